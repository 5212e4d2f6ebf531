//! Map files: names of clients by subject, name, group and path of the request (`name_mapfile`).
//!
//! A file is a JSON list of rules. All conditions of a rule must hold, and the first rule that
//! matches decides. Members with other names are skipped, because sites keep notes in them.

use super::claims::is_name;
use super::scopes::below;
use base::LogicalPath;
use serde_json::{Map, Value};

/// Maximum size of a map file in bytes.
pub const MAP_FILE_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of rules in a map file.
pub const MAP_RULES_MAX: usize = 10_000;

/// A rule of a map file.
#[derive(Clone, PartialEq, Eq, Debug)]
struct MapRule {
    /// Position in the file, from 1.
    number: usize,
    result: Box<str>,
    subject: Option<Box<str>>,
    name: Option<Box<str>>,
    group: Option<Box<str>>,
    /// Path below a base path.
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

    /// Returns the name for a request on `path`, and the number of the rule.
    pub(super) fn name(
        &self,
        bearer: MappedBearer<'_>,
        bases: &[LogicalPath],
        path: &LogicalPath,
    ) -> Option<(&str, usize)> {
        let found = self.0.iter().find(|rule| rule.matches(bearer, bases, path))?;
        Some((&found.result, found.number))
    }
}

impl MapRule {
    fn parse(number: usize, object: &Map<String, Value>) -> Result<Self, String> {
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
                Some(LogicalPath::parse(path.as_bytes()).map_err(|_| "'path' is not an absolute path")?)
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

    fn matches(&self, bearer: MappedBearer<'_>, bases: &[LogicalPath], path: &LogicalPath) -> bool {
        let is_below = |rule: &LogicalPath| {
            bases.iter().filter_map(|base| below(base, rule)).any(|full| path.is_within(&full))
        };
        self.subject.as_deref().is_none_or(|subject| subject == bearer.subject)
            && self.name.as_deref().is_none_or(|name| bearer.name == Some(name))
            && self.group.as_ref().is_none_or(|group| bearer.groups.contains(group))
            && self.path.as_ref().is_none_or(is_below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> LogicalPath {
        LogicalPath::parse(text.as_bytes()).unwrap()
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
            let found = file.name(bearer, &bases, &path(case[1].as_str().unwrap()));
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
            file.name(MappedBearer { subject, name, groups: &groups }, &bases, &path(at))
                .map(|(_, number)| number)
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
        // A rule that is switched off.
        assert_eq!(MapFile::parse(br#"[{"result": "a", "ignore": 1}]"#), Ok(MapFile::default()));
        assert!(error(r#"[{"ignore": 1}]"#).contains("'result' is missing"));
    }
}
