//! Map files: names of clients by subject, name, group and path of the request (`name_mapfile`).
//!
//! A file is a JSON list of rules. All conditions of a rule must hold, and the first rule that
//! matches decides. A rule without conditions names everybody, but below the base paths of the issuer
//! only, like all rules. Members with other names are skipped, because sites keep notes in them; a
//! rule without conditions must not have any, because a misspelt condition would name everybody.

use super::claims::is_name;
use super::map_paths::{BearerRules, RulePaths};
use base::LogicalPath;
use serde_json::{Map, Value};
use std::collections::HashSet;

/// Maximum size of a map file in bytes.
pub const MAP_FILE_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of rules in a map file.
pub const MAP_RULES_MAX: usize = 10_000;
/// Maximum number of rules that are reported because they never apply.
const HIDDEN_RULES_MAX: usize = 20;
/// Number of rules with which later ones are compared for that.
const EARLIER_COMPARED_MAX: usize = 100;

/// A rule of a map file.
#[derive(Clone, PartialEq, Eq, Debug)]
struct MapRule {
    /// Position in the file, from 1.
    number: usize,
    result: Box<str>,
    subject: Option<Box<str>>,
    name: Option<Box<str>>,
    group: Option<Box<str>>,
    /// Path below a base path, without a `/` at the end.
    path: Option<LogicalPath>,
}

/// The rules of a map file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct MapFile(Vec<MapRule>);

/// The bearer of a token, as map rules see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct MappedBearer<'a> {
    pub(super) subject: &'a str,
    pub(super) name: Option<&'a str>,
    pub(super) groups: &'a [Box<str>],
}

impl MapFile {
    /// Parses a file. The error names the rule.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let list: Vec<Map<String, Value>> =
            serde_json::from_slice(text).map_err(|error| format!("not a JSON list of objects: {error}"))?;
        if list.len() > MAP_RULES_MAX {
            return Err(format!("more than {MAP_RULES_MAX} rules"));
        }
        let mut rules = Vec::new();
        for (number, object) in (1..).zip(&list) {
            let rule = MapRule::parse(number, object).map_err(|what| format!("rule {number}: {what}"))?;
            // A rule that is switched off is checked too, because it may be switched on later.
            if !object.contains_key("ignore") {
                rules.push(rule);
            }
        }
        Ok(Self(rules))
    }

    /// Returns the first rules that never apply, because an earlier one holds wherever they do: the numbers
    /// of both.
    pub(super) fn hidden_rules(&self) -> Vec<(usize, usize)> {
        let hidden = |(index, rule): (usize, &MapRule)| {
            let earlier =
                self.0.iter().take(index.min(EARLIER_COMPARED_MAX)).find(|earlier| earlier.covers(rule))?;
            Some((rule.number, earlier.number))
        };
        self.0.iter().enumerate().filter_map(hidden).take(HIDDEN_RULES_MAX).collect()
    }

    /// Returns the rules that can name a bearer. Computes for up to some milliseconds.
    pub(super) fn rules_of(&self, bearer: MappedBearer<'_>) -> BearerRules {
        let groups: HashSet<&str> = bearer.groups.iter().map(|group| &**group).collect();
        let matching = (0..).zip(&self.0).filter(|(_, rule)| rule.matches(bearer, &groups));
        BearerRules::new(self, matching.map(|(index, _)| index))
    }

    /// Returns the name for a request on `path`, and the number of the rule. `rules` are those of the
    /// bearer.
    pub(super) fn name(
        &self,
        rules: &BearerRules,
        bases: &[LogicalPath],
        path: &LogicalPath,
    ) -> Option<(&str, usize)> {
        self.result(rules.first(self, bases, path)?)
    }

    /// Returns the name for a login, which has no path.
    pub(super) fn login_name(&self, rules: &BearerRules) -> Option<&str> {
        self.result(rules.without_path()?).map(|(name, _)| name)
    }

    fn result(&self, rule: u32) -> Option<(&str, usize)> {
        let found = self.0.get(usize::try_from(rule).ok()?)?;
        Some((&found.result, found.number))
    }
}

impl RulePaths for MapFile {
    fn path(&self, rule: u32) -> &[u8] {
        let rule = usize::try_from(rule).ok().and_then(|rule| self.0.get(rule));
        rule.and_then(|rule| rule.path.as_ref()).map_or(b"", LogicalPath::as_bytes)
    }
}

/// The conditions of a rule.
const CONDITIONS: [&str; 4] = ["sub", "username", "group", "path"];
/// Members of a rule that are not conditions and have a meaning.
const OTHER_MEMBERS: [&str; 3] = ["result", "ignore", "comment"];

impl MapRule {
    fn parse(number: usize, object: &Map<String, Value>) -> Result<Self, String> {
        let unknown = object.keys().find(|name| !OTHER_MEMBERS.contains(&name.as_str()));
        if let Some(unknown) = unknown
            && !CONDITIONS.iter().any(|name| object.contains_key(*name))
        {
            return Err(format!(
                "it has no condition and would name everybody, and {unknown:?} is unknown; conditions are \
                 sub, username, group and path; write notes as 'comment'"
            ));
        }
        let text = |name: &str| match object.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str())),
            Some(_) => Err(format!("'{name}' is not a text")),
        };
        let result = text("result")?.ok_or("'result' is missing")?;
        if !is_name(result) {
            return Err(
                "'result' is not a name: 1 to 64 letters, digits, and ._@- except a leading '-'".to_owned()
            );
        }
        let path = match text("path")? {
            None => None,
            Some(path) => {
                let path =
                    LogicalPath::parse(path.as_bytes()).map_err(|_| "'path' is not an absolute path")?;
                Some(path.without_slash())
            }
        };
        Ok(Self {
            number,
            result: result.into(),
            subject: text("sub")?.map(Into::into),
            name: text("username")?.map(Into::into),
            group: text("group")?.map(Into::into),
            path,
        })
    }

    /// Reports whether all conditions hold wherever those of another rule do.
    fn covers(&self, other: &Self) -> bool {
        let is_part = |own: &Option<Box<str>>, others: &Option<Box<str>>| own.is_none() || own == others;
        let has_path = match (&self.path, &other.path) {
            (None, _) => true,
            (Some(own), Some(others)) => others.is_within(own),
            (Some(_), None) => false,
        };
        has_path
            && is_part(&self.subject, &other.subject)
            && is_part(&self.name, &other.name)
            && is_part(&self.group, &other.group)
    }

    /// Reports whether all conditions hold, except that of the path.
    fn matches(&self, bearer: MappedBearer<'_>, groups: &HashSet<&str>) -> bool {
        self.subject.as_deref().is_none_or(|subject| subject == bearer.subject)
            && self.name.as_deref().is_none_or(|name| bearer.name == Some(name))
            && self.group.as_deref().is_none_or(|group| groups.contains(group))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> LogicalPath {
        LogicalPath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn rules_that_never_apply_are_found() {
        let hidden = |rules: &str| MapFile::parse(format!("[{rules}]").as_bytes()).unwrap().hidden_rules();
        let all = r#"{"result": "all"}"#;
        let ann = r#"{"result": "ann", "sub": "1"}"#;
        let ann_here = r#"{"result": "ann", "sub": "1", "path": "/a/b"}"#;
        let group = r#"{"result": "g", "group": "/g", "path": "/a"}"#;
        let narrow = r#"{"result": "n", "group": "/g", "sub": "1", "path": "/a/b/"}"#;
        let off = r#"{"result": "off", "ignore": true}"#;
        assert_eq!(hidden(&[all, ann, group].join(",")), [(2, 1), (3, 1)]);
        assert_eq!(hidden(&[ann, ann_here, all].join(",")), [(2, 1)]);
        assert_eq!(hidden(&[group, narrow].join(",")), [(2, 1)]);
        for rules in [vec![ann_here, ann, all], vec![off, ann, all], vec![narrow, group, ann_here, ann]] {
            assert_eq!(hidden(&rules.join(",")), [], "{rules:?}");
        }
        // `/a` does not contain `/ab`.
        assert_eq!(hidden(&[group, r#"{"result": "n", "group": "/g", "path": "/ab"}"#].join(",")), []);
    }

    /// Recorded: `names.json`.
    #[test]
    fn the_first_rule_that_matches_decides() {
        let recorded: Value =
            serde_json::from_str(include_str!("../../../../vectors/security/names.json")).unwrap();
        let recorded = &recorded["name_mapfile"];
        let file = MapFile::parse(recorded["file"].to_string().as_bytes()).unwrap();
        let bases = [path(recorded["base_path"].as_str().unwrap())];
        let cases = recorded["cases"].as_array().unwrap();
        assert!(cases.len() >= 5);
        for case in cases {
            let groups: Vec<Box<str>> = case[0]["groups"]
                .as_array()
                .unwrap()
                .iter()
                .map(|group| group.as_str().unwrap().into())
                .collect();
            let subject = case[0]["sub"].as_str().unwrap();
            let bearer = MappedBearer { subject, name: Some(subject), groups: &groups };
            let found = file.name(&file.rules_of(bearer), &bases, &path(case[1].as_str().unwrap()));
            assert_eq!(found.map(|(name, _)| name), case[2].as_str(), "{case}");
        }
    }

    #[test]
    fn all_conditions_must_hold() {
        let text =
            br#"[{"sub": "s", "username": "u", "group": "g", "path": "/p", "result": "all", "note": 7}]"#;
        let file = MapFile::parse(text).unwrap();
        let bases = [path("/a"), path("/b/")];
        let ask = |subject, name, group: &str, at| {
            let groups = [group.into()];
            let rules = file.rules_of(MappedBearer { subject, name, groups: &groups });
            file.name(&rules, &bases, &path(at)).map(|(_, number)| number)
        };
        assert_eq!(ask("s", Some("u"), "g", "/a/p"), Some(1));
        assert_eq!(ask("s", Some("u"), "g", "/b/p/x"), Some(1));
        assert_eq!(ask("t", Some("u"), "g", "/a/p"), None);
        assert_eq!(ask("s", None, "g", "/a/p"), None);
        assert_eq!(ask("s", Some("u"), "h", "/a/p"), None);
        assert_eq!(ask("s", Some("u"), "g", "/p"), None);
        assert_eq!(ask("s", Some("u"), "g", "/a/px"), None);
    }

    #[test]
    fn errors_name_the_rule() {
        let error = |text: &str| MapFile::parse(text.as_bytes()).unwrap_err();
        assert_eq!(error(r#"[{"result": "a"}, {"sub": "b"}]"#), "rule 2: 'result' is missing");
        assert_eq!(error(r#"[{"result": "a", "sub": 7}]"#), "rule 1: 'sub' is not a text");
        assert!(error(r#"[{"result": "-x"}]"#).contains("is not a name"));
        assert!(error(r#"[{"result": "x", "path": "/a/../b"}]"#).contains("absolute path"));
        assert!(error("{}").contains("not a JSON list") && error("[7]").contains("not a JSON list"));
        let misspelt = error(r#"[{"comment": "", "result": "a"}, {"subject": "s", "result": "a"}]"#);
        assert!(misspelt.starts_with("rule 2: it has no condition ") && misspelt.contains("\"subject\""));
        // A rule that is switched off.
        assert_eq!(MapFile::parse(br#"[{"result": "a", "ignore": 1}]"#), Ok(MapFile::default()));
        assert!(error(r#"[{"ignore": 1}]"#).contains("'result' is missing"));
    }
}
