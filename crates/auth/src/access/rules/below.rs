//! The rules for paths below a directory.

use super::{AccessRules, ApplyingRecords, RulePath};
use crate::access::privileges::Privileges;

/// Maximum number of rule paths of a client below a directory that are examined.
const PATHS_EXAMINED_MAX: usize = 4096;

/// A byte that is in no path.
const NUL: u8 = 0;

impl AccessRules {
    /// Reports whether a record of a client has a pair for a path below `directory`, so that its
    /// privileges may differ there.
    pub(in crate::access) fn has_pair_below(
        &self,
        client: &ApplyingRecords,
        name: Option<&str>,
        directory: &[u8],
    ) -> bool {
        let (below, is_named) = (as_directory(directory), self.is_named(client));
        let applies = |known: &RulePath| {
            known.entries.has_any(&client.records) || (is_named && !known.named.is_empty())
        };
        self.paths_from(&below).any(applies) || self.named_from_above(client, name, &below).next().is_some()
    }

    /// Returns the privileges that a client has on `directory` and on every path below. With more rule
    /// paths than can be examined, it has none.
    ///
    /// The longest rule path with which a path begins determines the pairs that match, because all others that
    /// match are prefixes of it. So the rule paths are examined, and for each of them a longer name, for which
    /// the rule path ends within a component.
    pub(in crate::access) fn privileges_throughout(
        &self,
        client: &ApplyingRecords,
        name: Option<&str>,
        directory: &[u8],
    ) -> Privileges {
        let below = as_directory(directory);
        let own = self.paths_from(&below).filter(|known| known.entries.has_any(&client.records));
        let own = own.map(|known| known.text.to_vec());
        let named_name = name.filter(|_| self.is_named(client)).map(str::as_bytes);
        let inside = self.paths_from(&below).flat_map(|known| named_paths(known, named_name));
        let paths = own.chain(inside).chain(self.named_from_above(client, name, &below));
        let mut common = self.privileges(client, name, directory);
        for (number, mut path) in paths.enumerate() {
            if common.is_empty() || number == PATHS_EXAMINED_MAX {
                return Privileges::NONE;
            }
            common = common.common(self.privileges(client, name, &path));
            path.push(NUL);
            common = common.common(self.privileges(client, name, &path));
        }
        common
    }

    /// Reports whether the `u =` record applies to a client.
    fn is_named(&self, client: &ApplyingRecords) -> bool {
        self.named.is_some_and(|number| client.records.binary_search(&number).is_ok())
    }

    /// Returns the rule paths that begin with `below`.
    fn paths_from<'a>(&'a self, below: &'a [u8]) -> impl Iterator<Item = &'a RulePath> {
        let first = self.paths.partition_point(|known| *known.text < *below);
        self.paths.iter().skip(first).take_while(move |known| known.text.starts_with(below))
    }

    /// Returns the paths of the `u =` record that begin with `below` only with the name of the client: the
    /// part before the name ends above.
    fn named_from_above<'a>(
        &'a self,
        client: &ApplyingRecords,
        name: Option<&'a str>,
        below: &'a [u8],
    ) -> impl Iterator<Item = Vec<u8>> + use<'a> {
        let name = name.filter(|_| self.is_named(client)).map(str::as_bytes);
        let last = self.paths.partition_point(|known| *known.text <= *below).checked_sub(1);
        let outer = |at: &usize| usize::try_from(self.paths.get(*at)?.outer?).ok();
        let above = std::iter::successors(last, outer).filter_map(|at| self.paths.get(at));
        let above = above.filter(move |known| !known.text.starts_with(below));
        above.flat_map(move |known| named_paths(known, name)).filter(move |path| path.starts_with(below))
    }
}

/// Returns the paths of the `u =` record at a rule path, with the name of the client.
fn named_paths<'a>(known: &'a RulePath, name: Option<&'a [u8]>) -> impl Iterator<Item = Vec<u8>> {
    let paths =
        name.map(|name| known.named.iter().map(move |(_, after)| [&known.text, name, after].concat()));
    paths.into_iter().flatten()
}

/// Returns a directory with the `/` at which the paths below begin.
fn as_directory(directory: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if directory.ends_with(b"/") { b"" } else { b"/" };
    [directory, slash].concat()
}
