//! [`NameRules`]: translates logical paths to paths below the local root and back
//! (`scalla.namerule`, decision 047).
//!
//! A *stored path* is a path below the local root. A translation never leaves the directory of its
//! rule. It is valid only if the stored path leads back to the same logical path, so no file has two
//! names, and no name is a way around the authorization of another one.

use crate::ParentCreation;
use crate::incoming::is_reserved;
use base::{LogicalPath, PathError};
use config::{NameLayout, NameRule};
use digest::{Algorithm, RunningChecksum};
use rustix::io::Errno;
use std::borrow::Cow;
use std::io;

/// Mode of directories that only the layout of a rule needs.
const LAYOUT_DIRECTORY_MODE: u32 = 0o755;
/// Number of hexadecimal digits in the name of each hash directory.
const HASH_DIGITS: usize = 2;

/// The translation of logical paths. Without rules, both paths are equal.
#[derive(Debug, Default)]
pub struct NameRules {
    rules: Vec<PlacedRule>,
}

/// A rule with its directories.
#[derive(Debug)]
struct PlacedRule {
    /// The logical directory.
    from: LogicalPath,
    /// The stored directory.
    to: LogicalPath,
    layout: NameLayout,
}

/// Returns the path below a directory without its first `/`; empty for the directory itself. `None`
/// for a path outside of it.
fn below<'p>(path: &'p LogicalPath, directory: &LogicalPath) -> Option<&'p [u8]> {
    if !path.is_within(directory) {
        return None;
    }
    let directory = directory.as_bytes();
    let directory = directory.strip_suffix(b"/").unwrap_or(directory);
    let rest = path.as_bytes().get(directory.len()..)?;
    let rest = rest.strip_prefix(b"/").unwrap_or(rest);
    Some(rest.strip_suffix(b"/").unwrap_or(rest))
}

/// Returns the path of `rest` in a directory. It is in the directory and has exactly these
/// components.
fn inside(directory: &LogicalPath, rest: &[u8]) -> io::Result<LogicalPath> {
    if rest.is_empty() {
        return Ok(directory.clone());
    }
    let odd = |part: &[u8]| matches!(part, b"" | b"." | b"..");
    if rest.split(|byte| *byte == b'/').any(odd) {
        return Err(Errno::NOENT.into());
    }
    directory.join(rest).map_err(|error| match error {
        PathError::TooLong => Errno::NAMETOOLONG.into(),
        PathError::Relative | PathError::Nul => Errno::NOENT.into(),
    })
}

fn is_equal(one: &LogicalPath, other: &LogicalPath) -> bool {
    one.is_within(other) && other.is_within(one)
}

impl PlacedRule {
    /// Translates the path below `from`.
    fn forward(&self, rest: &[u8]) -> Option<Vec<u8>> {
        match &self.layout {
            _ if rest.is_empty() => Some(Vec::new()),
            NameLayout::Prefix => Some(rest.to_vec()),
            NameLayout::Rucio => rucio_place(rest),
            NameLayout::Pattern(pair) => pair.forward.apply(rest).filter(|place| !place.is_empty()),
        }
    }

    /// Translates the path below `to`.
    fn inverse(&self, rest: &[u8]) -> Option<Vec<u8>> {
        match &self.layout {
            _ if rest.is_empty() => Some(Vec::new()),
            NameLayout::Prefix => Some(rest.to_vec()),
            NameLayout::Rucio => rucio_name(rest),
            NameLayout::Pattern(pair) => pair.inverse.apply(rest).filter(|name| !name.is_empty()),
        }
    }

    /// Reports whether directories below `from` are directories on disk.
    fn keeps_directories(&self) -> bool {
        self.layout == NameLayout::Prefix
    }
}

/// Returns `SCOPE/xx/yy/NAME` for `SCOPE:NAME`.
fn rucio_place(name: &[u8]) -> Option<Vec<u8>> {
    let colon = name.iter().position(|byte| *byte == b':')?;
    let (scope, file) = (name.get(..colon)?, name.get(colon + 1..)?);
    if scope.is_empty() || file.is_empty() || name.contains(&b'/') {
        return None;
    }
    let hash = RunningChecksum::of(Algorithm::Md5, name).hex();
    let (first, rest) = hash.as_bytes().split_at_checked(HASH_DIGITS)?;
    let mut place = scope.to_vec();
    if scope.starts_with(b"user") || scope.starts_with(b"group") {
        place.iter_mut().filter(|byte| **byte == b'.').for_each(|byte| *byte = b'/');
    }
    for part in [first, rest.get(..HASH_DIGITS)?, file] {
        place.push(b'/');
        place.extend_from_slice(part);
    }
    Some(place)
}

/// Returns `SCOPE:NAME` for `SCOPE/xx/yy/NAME`. The caller compares the result of the other
/// direction.
fn rucio_name(place: &[u8]) -> Option<Vec<u8>> {
    let mut parts = place.rsplitn(4, |byte| *byte == b'/');
    let file = parts.next()?;
    let scope = parts.nth(2)?;
    let mut name = scope.to_vec();
    name.iter_mut().filter(|byte| **byte == b'/').for_each(|byte| *byte = b'.');
    name.push(b':');
    name.extend_from_slice(file);
    Some(name)
}

impl NameRules {
    /// Places the rules of the configuration, whose paths are in normal form.
    pub fn new<'r>(rules: impl IntoIterator<Item = &'r NameRule>) -> Self {
        let path = |text: &str| LogicalPath::parse(text.as_bytes()).ok();
        let placed = |rule: &NameRule| {
            let (from, to) = (path(&rule.from)?, path(&rule.to)?);
            Some(PlacedRule { from, to, layout: rule.layout.clone() })
        };
        Self { rules: rules.into_iter().filter_map(placed).collect() }
    }

    /// Reports whether stored paths equal logical ones.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the stored directories of all rules.
    pub fn targets(&self) -> impl Iterator<Item = &LogicalPath> {
        self.rules.iter().map(|rule| &rule.to)
    }

    /// Returns the rule of a logical path.
    fn rule(&self, path: &LogicalPath) -> Option<&PlacedRule> {
        let rules = self.rules.iter().filter(|rule| path.is_within(&rule.from));
        rules.max_by_key(|rule| rule.from.as_bytes().len())
    }

    /// Returns the rule of a stored path.
    fn rule_back(&self, stored: &LogicalPath) -> Option<&PlacedRule> {
        let rules = self.rules.iter().filter(|rule| stored.is_within(&rule.to));
        rules.max_by_key(|rule| rule.to.as_bytes().len())
    }

    /// Translates a logical path without looking at the other direction.
    fn forward(&self, path: &LogicalPath) -> io::Result<LogicalPath> {
        let Some(rule) = self.rule(path) else { return Ok(path.without_slash()) };
        let place = rule.forward(below(path, &rule.from).unwrap_or_default()).ok_or(Errno::NOENT)?;
        inside(&rule.to, &place)
    }

    /// Returns the logical path of a stored path; `None` if no logical path leads to it.
    pub fn logical(&self, stored: &LogicalPath) -> Option<LogicalPath> {
        let path = match self.rule_back(stored) {
            None => stored.without_slash(),
            Some(rule) => {
                let name = rule.inverse(below(stored, &rule.to)?)?;
                inside(&rule.from, &name).ok()?
            }
        };
        self.forward(&path).ok().filter(|forward| is_equal(forward, stored)).map(|_| path)
    }

    /// Returns the stored path of a logical path, with the trailing `/` if it has one.
    ///
    /// # Errors
    /// `ENOENT` if the path has no translation, or its translation belongs to another path, or its
    /// name is reserved for temporary files;
    /// `ENAMETOOLONG` if the translation is longer than a path can be.
    pub fn stored<'p>(&self, path: &'p LogicalPath) -> io::Result<Cow<'p, LogicalPath>> {
        if is_reserved(path) {
            return Err(Errno::NOENT.into());
        }
        if self.is_empty() {
            return Ok(Cow::Borrowed(path));
        }
        let stored = self.forward(path)?;
        if !self.logical(&stored).is_some_and(|logical| is_equal(&logical, path)) {
            return Err(Errno::NOENT.into());
        }
        if path.as_bytes().ends_with(b"/") && !path.is_root() && !stored.is_root() {
            let slashed = [stored.as_bytes(), b"/"].concat();
            let slashed = LogicalPath::parse(&slashed).map_err(|_| io::Error::from(Errno::NAMETOOLONG))?;
            return Ok(Cow::Owned(slashed));
        }
        Ok(Cow::Owned(stored))
    }

    /// Returns the stored path of a name that is going to be created.
    ///
    /// # Errors
    /// As for [`Self::stored`], but `EINVAL` for a name that cannot exist.
    pub fn stored_new<'p>(&self, path: &'p LogicalPath) -> io::Result<Cow<'p, LogicalPath>> {
        self.stored(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Errno::INVAL.into(),
            _ => error,
        })
    }

    /// Returns the missing stored directories above a path that a call may create. Those of a
    /// layout are created in any case, because no client knows them. The directory of a rule is never
    /// created: a missing one may be a disk that is not mounted.
    pub fn parents<'p>(
        &self,
        path: &LogicalPath,
        parents: Option<&'p ParentCreation>,
    ) -> Option<Cow<'p, ParentCreation>> {
        if self.is_empty() {
            return parents.map(Cow::Borrowed);
        }
        let rule = self.rule(path).filter(|rule| !is_equal(path, &rule.from));
        let layout = rule.filter(|rule| !rule.keeps_directories());
        let mode = parents.map_or(LAYOUT_DIRECTORY_MODE, |parents| parents.mode);
        let limit = parents.and_then(|parents| parents.below.as_ref());
        let below = match (limit, layout) {
            (None, Some(layout)) => Some(layout.to.clone()),
            (None, None) => match (rule, parents) {
                (Some(rule), Some(_)) => Some(rule.to.clone()),
                _ => return parents.map(Cow::Borrowed),
            },
            (Some(limit), _) => Some(match rule {
                Some(rule) if !limit.is_within(&rule.from) => rule.to.clone(),
                // A directory without a translation does not exist, and neither does this one.
                _ => self.stored(limit).map_or_else(|_| path.clone(), |limit| limit.without_slash()),
            }),
        };
        Some(Cow::Owned(ParentCreation { mode, below }))
    }

    /// Returns the stored directory of the rule of a path; `None` if it has no rule.
    pub(crate) fn target_of(&self, path: &LogicalPath) -> Option<&LogicalPath> {
        self.rule(path).map(|rule| &rule.to)
    }

    /// Reports whether the creation of a path may create this logical directory above it. Those of a
    /// layout are none, and the directory of a rule must exist.
    pub(crate) fn creates_parent(&self, directory: &LogicalPath, path: &LogicalPath) -> bool {
        self.rule(path).is_none_or(|rule| {
            rule.keeps_directories() && directory.is_within(&rule.from) && !is_equal(directory, &rule.from)
        })
    }

    /// Checks that a directory may be created at a path.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where a layout makes the directories.
    pub fn check_new_directory(&self, path: &LogicalPath) -> io::Result<()> {
        match self.rule(path) {
            Some(rule) if !rule.keeps_directories() && !is_equal(path, &rule.from) => {
                Err(Errno::OPNOTSUPP.into())
            }
            _ => Ok(()),
        }
    }

    /// Reports whether a path is the logical directory of a rule.
    pub(crate) fn is_rule_directory(&self, path: &LogicalPath) -> bool {
        self.rule(path).is_some_and(|rule| is_equal(path, &rule.from))
    }

    /// Checks that the directories of clients at a path are directories on disk, for operations on one.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where a layout makes the directories.
    pub fn check_directory(&self, path: &LogicalPath) -> io::Result<()> {
        match self.rule(path) {
            Some(rule) if !rule.keeps_directories() => Err(Errno::OPNOTSUPP.into()),
            _ => Ok(()),
        }
    }

    /// Checks that a name may be removed, replaced or moved, without effect on the paths of a rule. A
    /// link, too, may lead to the directory of a rule.
    ///
    /// # Errors
    /// `EBUSY` if a rule begins or ends at or below it, as for a mount point.
    pub fn check_moved(&self, path: &LogicalPath, stored: &LogicalPath) -> io::Result<()> {
        if self.rules.iter().any(|rule| rule.from.is_within(path) || rule.to.is_within(stored)) {
            return Err(Errno::BUSY.into());
        }
        Ok(())
    }

    /// Returns the name and the stored directory of each rule that begins in a directory.
    pub fn rules_in(&self, directory: &LogicalPath) -> Vec<(Vec<u8>, LogicalPath)> {
        let begins = |rule: &&PlacedRule| rule.from.parent().is_some_and(|above| is_equal(&above, directory));
        let rules = self.rules.iter().filter(begins);
        rules.filter_map(|rule| Some((rule.from.file_name()?.to_vec(), rule.to.clone()))).collect()
    }

    /// Reports whether an entry of a stored directory is the entry with this name of its logical
    /// directory.
    pub fn shows(&self, (directory, stored): (&LogicalPath, &LogicalPath), name: &[u8]) -> bool {
        let (Ok(path), Ok(entry)) = (directory.join(name), stored.join(name)) else { return false };
        self.stored(&path).is_ok_and(|found| is_equal(&found, &entry))
    }
}

#[cfg(test)]
mod tests;
