//! `xrootd.pmark`: reports about flows of data with their experiment and activity (SciTags).

use super::monitoring::ReportDestination;
use std::time::Duration;

/// The default port of reports.
pub const FIREFLY_PORT: u16 = 10_514;

/// The clients whose flows are reported.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum MarkedDomain {
    /// All.
    Any,
    /// Those of this site.
    Local,
    /// Those of other sites.
    #[default]
    Remote,
}

/// What selects the experiment of a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ExperimentRule {
    /// Everything that no other rule selects.
    Default,
    /// A path and everything below it.
    Path(String),
    /// An organization of the client.
    Organization(String),
}

/// What selects the activity of a flow of an experiment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ActivityRule {
    /// Everything that no other rule selects.
    Default,
    /// A role of the client.
    Role(String),
    /// The name of the client.
    User(String),
}

/// `xrootd.pmark`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PacketMarking {
    /// The clients whose flows are reported.
    pub domain: MarkedDomain,
    /// The collector of reports; `None` if there is none.
    pub collector: Option<ReportDestination>,
    /// The port of the clients to which reports are sent too.
    pub origin_port: Option<u16>,
    /// Interval of reports about flows that go on; `None` for none.
    pub echo: Option<Duration>,
    /// No reports are sent.
    pub is_silent: bool,
    /// Experiments and activities that clients name are ignored.
    pub ignores_tags: bool,
    /// Names of experiments, and what selects them.
    pub experiments: Vec<(ExperimentRule, String)>,
    /// Names of experiments, what selects an activity of theirs, and its name.
    pub activities: Vec<(String, ActivityRule, String)>,
    /// The file with the numbers of experiments and activities.
    pub registry: Option<String>,
    /// The server does not start if a rule has no number. Otherwise only the marks of clients count then.
    pub needs_registry: bool,
}

impl PacketMarking {
    /// Reports whether there are rules, which need the numbers of experiments.
    #[must_use]
    pub const fn has_rules(&self) -> bool {
        !self.experiments.is_empty() || !self.activities.is_empty()
    }

    /// Reports whether reports are sent anywhere.
    #[must_use]
    pub fn is_in_force(&self) -> bool {
        !self.is_silent && (self.collector.is_some() || self.origin_port.is_some())
    }
}
