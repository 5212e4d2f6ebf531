//! [`MarkRules`]: the experiment and the activity of a flow.

use config::{ActivityRule, ExperimentRule, PacketMarking};
use serde_json::Value;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use thiserror::Error;

/// Bits of an activity in the number that clients send.
const ACTIVITY_BITS: u32 = 6;
/// The numbers that clients can send.
const TAGS: RangeInclusive<u32> = 64..=65_535;
/// The numbers of experiments and activities that fit into them.
const EXPERIMENTS: RangeInclusive<u32> = 1..=1023;
const ACTIVITIES: RangeInclusive<u32> = 0..=63;

/// The numbers of an experiment and of one of its activities.
pub(super) type Marks = (u32, u32);

/// The reason why the numbers of experiments and activities are not known.
#[derive(Error, Debug)]
pub enum RegistryError {
    /// There are rules, and no file.
    #[error("map2exp and map2act need the numbers of experiments; name the file with them: defsfile /file")]
    Missing,
    /// The file is not a registry.
    #[error("the file with the numbers of experiments is not valid: {0}")]
    Invalid(String),
    /// A name is not in the file.
    #[error("{kind} '{name}' is not in the file with the numbers of experiments")]
    Unknown {
        /// Experiment or activity.
        kind: &'static str,
        /// Its name.
        name: String,
    },
}

/// The rules that select the experiment and the activity of a flow.
#[derive(Debug)]
pub struct MarkRules {
    accepts_tags: bool,
    /// Paths with the numbers of their experiments, the longest first.
    paths: Vec<(String, u32)>,
    organizations: HashMap<String, u32>,
    default: Option<u32>,
    activities: HashMap<u32, ActivityRules>,
}

/// The rules of one experiment.
#[derive(Default, Debug)]
struct ActivityRules {
    users: HashMap<String, u32>,
    roles: HashMap<String, u32>,
    default: u32,
}

impl MarkRules {
    /// Returns the rules if only the marks of clients count.
    pub fn of_clients(settings: &PacketMarking) -> Self {
        Self {
            accepts_tags: !settings.ignores_tags,
            paths: Vec::new(),
            organizations: HashMap::new(),
            default: None,
            activities: HashMap::new(),
        }
    }

    /// Returns the rules of a configuration, with the contents of the file that it names.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn new(settings: &PacketMarking, registry: Option<&str>) -> Result<Self, RegistryError> {
        let mut rules = Self::of_clients(settings);
        if !settings.has_rules() {
            return Ok(rules);
        }
        let registry = ExperimentNumbers::parse(registry.ok_or(RegistryError::Missing)?)?;
        for (rule, name) in &settings.experiments {
            let number = registry.experiment(name)?;
            match rule {
                ExperimentRule::Default => rules.default = Some(number),
                ExperimentRule::Path(path) => rules.paths.push((path.clone(), number)),
                ExperimentRule::Organization(vo) => _ = rules.organizations.insert(vo.clone(), number),
            }
        }
        rules.paths.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        for (experiment, rule, name) in &settings.activities {
            let number = registry.activity(experiment, name)?;
            let of = rules.activities.entry(registry.experiment(experiment)?).or_default();
            match rule {
                ActivityRule::Default => of.default = number,
                ActivityRule::Role(role) => _ = of.roles.insert(role.clone(), number),
                ActivityRule::User(user) => _ = of.users.insert(user.clone(), number),
            }
        }
        Ok(rules)
    }

    /// Returns the marks of a flow: those that the client names, else those of the rules.
    pub(super) fn marks(
        &self,
        tag: Option<&str>,
        path: &str,
        (organizations, roles, user): (Option<&str>, Option<&str>, Option<&str>),
    ) -> Option<Marks> {
        let tag = tag.filter(|tag| self.accepts_tags && tag.bytes().all(|byte| byte.is_ascii_digit()));
        let tag = tag.and_then(|tag| tag.parse().ok());
        if let Some(tag) = tag.filter(|tag| TAGS.contains(tag)) {
            return Some((tag >> ACTIVITY_BITS, tag & ((1 << ACTIVITY_BITS) - 1)));
        }
        let words =
            |text: Option<&str>| text.unwrap_or_default().split_whitespace().map(str::to_owned).collect();
        let (organizations, roles): (Vec<String>, Vec<String>) = (words(organizations), words(roles));
        let of_path = self.paths.iter().find(|(below, _)| is_below(path, below)).map(|(_, number)| *number);
        let of_vo = || organizations.iter().find_map(|vo| self.organizations.get(vo)).copied();
        let experiment = of_path.or_else(of_vo).or(self.default)?;
        let Some(rules) = self.activities.get(&experiment) else { return Some((experiment, 0)) };
        let of_user = user.and_then(|user| rules.users.get(user));
        let of_role = || roles.iter().find_map(|role| rules.roles.get(role));
        Some((experiment, of_user.or_else(of_role).copied().unwrap_or(rules.default)))
    }
}

/// Reports whether a path is a directory or below it.
fn is_below(path: &str, directory: &str) -> bool {
    let rest = path.strip_prefix(directory.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the name and the number of an entry.
fn named(entry: &Value, (name, number): (&str, &str), range: &RangeInclusive<u32>) -> Option<(String, u32)> {
    let name = entry.get(name)?.as_str()?.to_owned();
    let number = u32::try_from(entry.get(number)?.as_u64()?).ok()?;
    range.contains(&number).then_some((name, number))
}

/// The numbers of experiments, and those of their activities.
struct ExperimentNumbers(HashMap<String, (u32, HashMap<String, u32>)>);

impl ExperimentNumbers {
    /// Reads a registry. Entries without a name or a number that can be used do not count: the registry is common to all
    /// sites, and those of others must not be in the way.
    fn parse(text: &str) -> Result<Self, RegistryError> {
        let invalid = |what: &str| RegistryError::Invalid(what.to_owned());
        let found: Value = serde_json::from_str(text).map_err(|error| invalid(&error.to_string()))?;
        let experiments = found.get("experiments").and_then(Value::as_array);
        let experiments = experiments.ok_or_else(|| invalid("it has no list 'experiments'"))?;
        let experiment = |value: &Value| {
            let (name, number) = named(value, ("expName", "expId"), &EXPERIMENTS)?;
            let activities = value.get("activities").and_then(Value::as_array).into_iter().flatten();
            let activity = |value| named(value, ("activityName", "activityId"), &ACTIVITIES);
            Some((name, (number, activities.filter_map(activity).collect())))
        };
        Ok(Self(experiments.iter().filter_map(experiment).collect()))
    }

    fn experiment(&self, name: &str) -> Result<u32, RegistryError> {
        let found = self.0.get(name).map(|(number, _)| *number);
        found.ok_or_else(|| RegistryError::Unknown { kind: "experiment", name: name.to_owned() })
    }

    fn activity(&self, experiment: &str, name: &str) -> Result<u32, RegistryError> {
        self.experiment(experiment)?;
        let found = self.0.get(experiment).and_then(|(_, activities)| activities.get(name)).copied();
        found.ok_or_else(|| RegistryError::Unknown { kind: "activity", name: format!("{experiment} {name}") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGISTRY: &str = r#"{"experiments":[
        {"expName":"default","expId":1,"activities":[{"activityName":"default","activityId":1}]},
        {"expName":"atlas","expId":2,"activities":[{"activityName":"prod","activityId":5},
                                                   {"activityName":"user","activityId":6}]},
        {"expName":"cms","expId":3,"activities":[]}],"modified":"2026"}"#;
    const NOBODY: (Option<&str>, Option<&str>, Option<&str>) = (None, None, None);

    fn settings() -> PacketMarking {
        PacketMarking {
            experiments: vec![
                (ExperimentRule::Path("/at".to_owned()), "atlas".to_owned()),
                (ExperimentRule::Path("/at/cms".to_owned()), "cms".to_owned()),
                (ExperimentRule::Organization("atlas".to_owned()), "atlas".to_owned()),
                (ExperimentRule::Default, "default".to_owned()),
            ],
            activities: vec![
                ("atlas".to_owned(), ActivityRule::Default, "prod".to_owned()),
                ("atlas".to_owned(), ActivityRule::User("anna".to_owned()), "user".to_owned()),
                ("atlas".to_owned(), ActivityRule::Role("boss".to_owned()), "user".to_owned()),
            ],
            ..PacketMarking::default()
        }
    }

    #[test]
    fn rules_select_by_path_organization_role_and_user() {
        let rules = MarkRules::new(&settings(), Some(REGISTRY)).unwrap();
        assert_eq!(rules.marks(None, "/at/f", NOBODY), Some((2, 5)));
        assert_eq!(rules.marks(None, "/at", NOBODY), Some((2, 5)));
        assert_eq!(rules.marks(None, "/at/cms/f", NOBODY), Some((3, 0)), "the longest path");
        assert_eq!(rules.marks(None, "/atlas", NOBODY), Some((1, 0)), "not below /at");
        assert_eq!(rules.marks(None, "/f", (Some("x atlas"), None, Some("anna"))), Some((2, 6)));
        assert_eq!(rules.marks(None, "/f", (Some("atlas"), Some("y boss"), Some("eva"))), Some((2, 6)));
    }

    #[test]
    fn tags_of_clients_count_if_they_are_valid_and_wanted() {
        let rules = MarkRules::new(&PacketMarking::default(), None).unwrap();
        for (tag, marks) in [
            ("133", Some((2, 5))),
            ("64", Some((1, 0))),
            ("65535", Some((1023, 63))),
            ("63", None),
            ("65536", None),
            ("-1", None),
            ("x", None),
            ("+133", None),
            ("", None),
        ] {
            assert_eq!(rules.marks(Some(tag), "/f", NOBODY), marks, "{tag}");
        }
        let rules =
            MarkRules::new(&PacketMarking { ignores_tags: true, ..settings() }, Some(REGISTRY)).unwrap();
        assert_eq!(rules.marks(Some("200"), "/at/f", NOBODY), Some((2, 5)));
    }

    #[test]
    fn entries_that_cannot_be_used_do_not_count() {
        let others = r#"{"experiments":[{}, 7, {"expName":"a","expId":-1}, {"expName":"b","expId":1024},
            {"expName":"atlas","expId":2,"activities":[{}, {"activityName":"prod","activityId":5},
                {"activityName":"user","activityId":64}]}]}"#;
        let mut atlas = settings();
        atlas.experiments.retain(|(_, name)| name == "atlas");
        atlas.activities.retain(|(_, _, name)| name == "prod");
        let rules = MarkRules::new(&atlas, Some(others)).unwrap();
        assert_eq!(rules.marks(None, "/at/f", NOBODY), Some((2, 5)));
        assert!(MarkRules::new(&settings(), Some(others)).unwrap_err().to_string().contains("'cms'"));
        assert_eq!(MarkRules::of_clients(&settings()).marks(None, "/at/f", NOBODY), None);
        assert_eq!(MarkRules::of_clients(&settings()).marks(Some("133"), "/f", NOBODY), Some((2, 5)));
    }

    #[test]
    fn names_without_numbers_are_failures() {
        let failure =
            |settings: &PacketMarking, registry| MarkRules::new(settings, registry).unwrap_err().to_string();
        assert!(failure(&settings(), None).contains("defsfile"));
        for text in ["", "[]", "{}", "{\"experiments\":1}"] {
            assert!(failure(&settings(), Some(text)).contains("not valid"), "{text}");
        }
        let mut unknown = settings();
        unknown.experiments.push((ExperimentRule::Default, "lhcb".to_owned()));
        assert!(failure(&unknown, Some(REGISTRY)).contains("experiment 'lhcb' is not in the file"));
        let mut unknown = settings();
        unknown.activities.push(("cms".to_owned(), ActivityRule::Default, "prod".to_owned()));
        assert!(failure(&unknown, Some(REGISTRY)).contains("activity 'cms prod' is not in the file"));
    }
}
