//! The rules for paths below a directory.

use super::{AccessRules, ApplyingRecords, RulePath};
use crate::access::privileges::Privileges;

/// Maximum work for the privileges on everything below a directory: visited rule paths, and pairs there that
/// are compared with the records of the client. It is that of few milliseconds.
const WORK_MAX: usize = 1 << 16;

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

    /// Returns the privileges that a client has on `directory` and on every path below. With more rules
    /// than can be examined, it has none.
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
        let mut examined = ExaminedPaths {
            rules: self,
            client,
            name,
            common: self.privileges(client, name, directory),
            work: WORK_MAX,
        };
        // A client without rights at the directory itself must not cause an examination of the paths below.
        match examined.common.is_empty() {
            true => Privileges::NONE,
            false => examined.examine(&as_directory(directory)).unwrap_or(Privileges::NONE),
        }
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
        let above = self.chain(below);
        let above = above.filter(move |known| !known.text.starts_with(below));
        above.flat_map(move |known| named_paths(known, name)).filter(move |path| path.starts_with(below))
    }
}

/// The examination of the rule paths below a directory.
struct ExaminedPaths<'a> {
    rules: &'a AccessRules,
    client: &'a ApplyingRecords,
    name: Option<&'a str>,
    /// The privileges on all paths so far.
    common: Privileges,
    /// The work that is left.
    work: usize,
}

impl ExaminedPaths<'_> {
    /// Returns the privileges on everything below; `None` if there is too much to examine.
    fn examine(&mut self, below: &[u8]) -> Option<Privileges> {
        let (rules, client) = (self.rules, self.client);
        let name = self.name.filter(|_| rules.is_named(client)).map(str::as_bytes);
        for known in rules.paths_from(below) {
            self.visit(known)?;
            if known.entries.has_any(&client.records) {
                self.at(known.text.to_vec())?;
            }
            for path in named_paths(known, name) {
                self.at(path)?;
            }
        }
        rules.chain(below).try_for_each(|known| self.visit(known))?;
        for path in rules.named_from_above(client, self.name, below) {
            self.at(path)?;
        }
        Some(self.common)
    }

    /// Takes the work for a rule path; `None` if none is left.
    fn visit(&mut self, known: &RulePath) -> Option<()> {
        let pairs = known.entries.entries.len().min(self.client.records.len()) + known.named.len();
        self.work = self.work.checked_sub(1 + pairs)?;
        Some(())
    }

    /// Takes away what the client lacks at a path and at a longer name there; `None` if nothing is left, or
    /// no work.
    fn at(&mut self, mut path: Vec<u8>) -> Option<()> {
        let rules = self.rules;
        for _ in 0..2 {
            rules.chain(&path).try_for_each(|known| self.visit(known))?;
            self.common = self.common.common(rules.privileges(self.client, self.name, &path));
            path.push(NUL);
        }
        (!self.common.is_empty()).then_some(())
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
