//! [`BearerRules`]: the rules of a map file that can name one bearer, by their paths.
//!
//! A file has up to 10,000 rules, and a request has up to two paths. Decisions run on event loops, so
//! the rules of a bearer are selected once, when its token is verified. The cost of a decision then
//! grows with the depth of the paths of rules, not with the number of rules.

use base::LogicalPath;

/// The paths of the rules of a map file.
pub(super) trait RulePaths {
    /// Returns the path of a rule, by its position; empty if it has none.
    fn path(&self, rule: u32) -> &[u8];
}

/// The rules of one bearer, by their positions in the file; the lowest decides. The paths are not kept,
/// because tokens with many rules are cached. So all methods need those of the same file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct BearerRules {
    /// Rules with a path, sorted by it. A rule that never decides is not in the list.
    with_path: Box<[u32]>,
    /// Bytes of the longest path.
    bytes_max: usize,
    /// The first rule for all paths below the base paths.
    everywhere: Option<u32>,
}

impl BearerRules {
    /// Takes rules in the order of the file.
    pub(super) fn new(file: &impl RulePaths, rules: impl Iterator<Item = u32>) -> Self {
        let (mut all, mut everywhere) = (Self::default(), None);
        let mut with_path = Vec::new();
        for rule in rules {
            if file.path(rule).is_empty() {
                everywhere = Some(rule);
                break;
            }
            with_path.push(rule);
        }
        // The sort is stable, so the first rule of a path is kept.
        with_path.sort_by(|a, b| file.path(*a).cmp(file.path(*b)));
        with_path.dedup_by(|later, first| file.path(*later) == file.path(*first));
        all.bytes_max = with_path.iter().map(|rule| file.path(*rule).len()).max().unwrap_or(0);
        all.with_path = with_path.into();
        let decides = |rule: &u32| all.first_within(file, file.path(*rule)) == Some(*rule);
        let deciding: Vec<u32> = all.with_path.iter().copied().filter(decides).collect();
        Self { with_path: deciding.into(), bytes_max: all.bytes_max, everywhere }
    }

    /// Returns the rule for a path. There is none outside of the base paths.
    pub(super) fn first(
        &self,
        file: &impl RulePaths,
        bases: &[LogicalPath],
        path: &LogicalPath,
    ) -> Option<u32> {
        let below = bases.iter().filter_map(|base| rest(path, base));
        below.filter_map(|rest| self.first_within(file, rest).into_iter().chain(self.everywhere).min()).min()
    }

    /// Returns the rule for a bearer without regard to a path.
    pub(super) fn without_path(&self) -> Option<u32> {
        self.everywhere
    }

    /// Reports whether a rule has a path below `directory`, so that the name may differ there.
    pub(super) fn has_path_below(
        &self,
        file: &impl RulePaths,
        bases: &[LogicalPath],
        directory: &LogicalPath,
    ) -> bool {
        let is_below = |base: &LogicalPath| match rest(directory, base) {
            Some(rest) => self.has_longer(file, rest),
            None => base.is_within(directory) && (!self.with_path.is_empty() || self.everywhere.is_some()),
        };
        bases.iter().any(is_below)
    }

    /// Returns the lowest rule whose path is one of `rest`, which is below a base path, or above it.
    fn first_within(&self, file: &impl RulePaths, rest: &[u8]) -> Option<u32> {
        let rest = rest.strip_suffix(b"/").unwrap_or(rest);
        let limit = rest.len().min(self.bytes_max);
        let ends = (1..=limit).filter(|end| *end == rest.len() || rest.get(*end) == Some(&b'/'));
        let above = ends.filter_map(|end| self.of(file, rest.get(..end)?));
        above.chain(self.of(file, b"/")).min()
    }

    /// Returns the rule with exactly this path.
    fn of(&self, file: &impl RulePaths, path: &[u8]) -> Option<u32> {
        let at = self.with_path.binary_search_by(|rule| file.path(*rule).cmp(path)).ok()?;
        self.with_path.get(at).copied()
    }

    /// Reports whether a path is below `rest`.
    fn has_longer(&self, file: &impl RulePaths, rest: &[u8]) -> bool {
        let rest = rest.strip_suffix(b"/").unwrap_or(rest);
        let prefix = [rest, b"/"].concat();
        let at = self.with_path.partition_point(|rule| file.path(*rule) <= prefix.as_slice());
        self.with_path.get(at).is_some_and(|next| file.path(*next).starts_with(&prefix))
    }

    /// Returns the memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.with_path)
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

    impl RulePaths for &[&str] {
        fn path(&self, rule: u32) -> &[u8] {
            self[rule as usize].as_bytes()
        }
    }

    fn rules(texts: &[&str]) -> BearerRules {
        BearerRules::new(&texts, 0..u32::try_from(texts.len()).unwrap())
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
                    let found = rules(list).first(&list, &bases, &path(place)).map(|rule| rule as usize);
                    assert_eq!(found, expected, "{list:?} {bases:?} {place}");
                }
            }
        }
    }

    #[test]
    fn rules_below_a_directory_are_found() {
        let found = |list: &[&str], base: &str, directory: &str| {
            rules(list).has_path_below(&list, &[path(base)], &path(directory))
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
        let file: &[&str] = &["/a/b"];
        let (rules, deep) = (rules(file), path(&"/a".repeat(500)));
        assert_eq!((rules.bytes_max, rules.first(&file, &[path("/")], &deep)), (4, None));
    }
}
