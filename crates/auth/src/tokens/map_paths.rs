//! [`BearerRules`]: the rules of a map file that can name one bearer, by their paths.
//!
//! A file has up to 10,000 rules, and a request has up to two paths. Decisions run on event loops, so
//! the rules of a bearer are selected once, when its token is verified. The cost of a decision then
//! grows with the depth of the paths of rules, not with the number of rules.

use base::LogicalPath;

/// The rules of one bearer. Numbers are positions of rules in the file; the lowest decides.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct BearerRules {
    /// Sorted by path. A rule that never decides is not in the list.
    paths: Box<[PathRule]>,
    /// Bytes of the longest path.
    bytes_max: usize,
    /// The first rule for all paths below the base paths.
    everywhere: Option<u32>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct PathRule {
    path: LogicalPath,
    rule: u32,
}

impl BearerRules {
    /// Takes rules in the order of the file.
    pub(super) fn new<'a>(rules: impl Iterator<Item = (u32, Option<&'a LogicalPath>)>) -> Self {
        let (mut all, mut everywhere) = (Self::default(), None);
        let mut paths = Vec::new();
        for (rule, path) in rules {
            let Some(path) = path else {
                everywhere = Some(rule);
                break;
            };
            paths.push(PathRule { path: path.clone(), rule });
        }
        // The sort is stable, so the first rule of a path is kept.
        paths.sort_by(|a, b| a.path.as_bytes().cmp(b.path.as_bytes()));
        paths.dedup_by(|later, first| later.path == first.path);
        all.bytes_max = paths.iter().map(|rule| rule.path.as_bytes().len()).max().unwrap_or(0);
        all.paths = paths.into();
        let decides = |rule: &&PathRule| all.first_within(rule.path.as_bytes()) == Some(rule.rule);
        let deciding: Vec<PathRule> = all.paths.iter().filter(decides).cloned().collect();
        Self { paths: deciding.into(), bytes_max: all.bytes_max, everywhere }
    }

    /// Returns the rule for a path. There is none outside of the base paths.
    pub(super) fn first(&self, bases: &[LogicalPath], path: &LogicalPath) -> Option<u32> {
        let below = bases.iter().filter_map(|base| rest(path, base));
        below.filter_map(|rest| self.first_within(rest).into_iter().chain(self.everywhere).min()).min()
    }

    /// Returns the rule for a bearer without regard to a path.
    pub(super) fn without_path(&self) -> Option<u32> {
        self.everywhere
    }

    /// Reports whether a rule has a path below `directory`, so that the name may differ there.
    pub(super) fn has_path_below(&self, bases: &[LogicalPath], directory: &LogicalPath) -> bool {
        let is_below = |base: &LogicalPath| match rest(directory, base) {
            Some(rest) => self.has_longer(rest),
            None => base.is_within(directory) && (!self.paths.is_empty() || self.everywhere.is_some()),
        };
        bases.iter().any(is_below)
    }

    /// Returns the lowest rule whose path is one of `rest`, which is below a base path, or above it.
    fn first_within(&self, rest: &[u8]) -> Option<u32> {
        let rest = rest.strip_suffix(b"/").unwrap_or(rest);
        let limit = rest.len().min(self.bytes_max);
        let ends = (1..=limit).filter(|end| *end == rest.len() || rest.get(*end) == Some(&b'/'));
        let above = ends.filter_map(|end| self.of(rest.get(..end)?));
        above.chain(self.of(b"/")).min()
    }

    /// Returns the rule with exactly this path.
    fn of(&self, path: &[u8]) -> Option<u32> {
        let at = self.paths.binary_search_by(|rule| rule.path.as_bytes().cmp(path)).ok()?;
        self.paths.get(at).map(|found| found.rule)
    }

    /// Reports whether a path is below `rest`.
    fn has_longer(&self, rest: &[u8]) -> bool {
        let rest = rest.strip_suffix(b"/").unwrap_or(rest);
        let prefix = [rest, b"/"].concat();
        let at = self.paths.partition_point(|rule| rule.path.as_bytes() <= prefix.as_slice());
        self.paths.get(at).is_some_and(|next| next.path.as_bytes().starts_with(&prefix))
    }

    /// Returns an estimate of the memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.paths.iter().map(|rule| size_of::<PathRule>() + rule.path.as_bytes().len()).sum()
    }
}

/// Returns the part of a path below a base path; `None` if the path is not within it.
fn rest<'a>(path: &'a LogicalPath, base: &LogicalPath) -> Option<&'a [u8]> {
    let base_bytes = base.as_bytes().strip_suffix(b"/").unwrap_or(base.as_bytes());
    path.is_within(base).then(|| path.as_bytes().get(base_bytes.len()..)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> LogicalPath {
        LogicalPath::parse(text.as_bytes()).unwrap().without_slash()
    }

    fn rules(texts: &[&str]) -> BearerRules {
        let paths: Vec<Option<LogicalPath>> =
            texts.iter().map(|text| (!text.is_empty()).then(|| path(text))).collect();
        BearerRules::new((0..).zip(paths.iter().map(Option::as_ref)))
    }

    /// Compares with the definition: the first rule whose path, below a base path, is above.
    #[test]
    fn the_first_rule_above_a_path_is_found() {
        let lists: [&[&str]; 8] = [
            &["/a/b", "/a", "/a/c", "/ab"],
            &["/a", "/a/b"],
            &["/a/b", "", "/a"],
            &["", "/a"],
            &["/"],
            &["/x", "/", "/x/y"],
            &["/a/b", "/a/b", "/a"],
            &[],
        ];
        let bases: [&[&str]; 4] = [&["/"], &["/a"], &["/s", "/s/a"], &["/s", "/a"]];
        let places =
            ["/", "/a", "/a/b", "/a/b/c", "/ab", "/a/c", "/s", "/s/a", "/s/a/b", "/s/a/a/b/c", "/x/y"];
        for list in lists {
            for bases in bases {
                let bases: Vec<LogicalPath> = bases.iter().map(|base| path(base)).collect();
                for place in places {
                    let full = |rule: &str, base: &LogicalPath| {
                        path(&format!("{}{rule}", String::from_utf8_lossy(base.as_bytes())))
                    };
                    let applies =
                        |rule: &&str| bases.iter().any(|base| path(place).is_within(&full(rule, base)));
                    let expected = list.iter().position(applies);
                    let found = rules(list).first(&bases, &path(place)).map(|rule| rule as usize);
                    assert_eq!(found, expected, "{list:?} {bases:?} {place}");
                }
            }
        }
    }

    #[test]
    fn rules_below_a_directory_are_found() {
        let found = |list: &[&str], base: &str, directory: &str| {
            rules(list).has_path_below(&[path(base)], &path(directory))
        };
        assert!(found(&["/a/b"], "/s", "/s/a") && found(&["/a/b"], "/s", "/s") && found(&["/a"], "/s", "/"));
        assert!(!found(&["/a/b"], "/s", "/s/a/b") && !found(&["/a/b"], "/s", "/s/a/b/c"));
        assert!(!found(&["/ab", "/a-b"], "/s", "/s/a") && !found(&["/a/b"], "/s", "/t"));
        assert!(found(&["/"], "/s", "/") && !found(&["/"], "/s", "/s"));
        assert!(found(&[""], "/s", "/") && !found(&[""], "/s", "/s") && !found(&[""], "/s", "/s/a"));
        assert!(!found(&["/a", "/a/b"], "/s", "/s/a"), "the second rule never decides");
        assert!(!found(&["", "/a/b"], "/s", "/s/a"), "neither does one after a rule for all paths");
    }

    #[test]
    fn the_cost_does_not_grow_with_the_path_of_the_client() {
        let rules = rules(&["/a/b"]);
        let deep = path(&"/a".repeat(500));
        assert_eq!((rules.bytes_max, rules.first(&[path("/")], &deep)), (4, None));
    }
}
