//! One effective value as a line, and the texts that several parts share.

use std::fmt;
use std::time::Duration;

use crate::effective::Trace;
use crate::setting::{Origin, Setting};
use crate::values::show_time;

/// Reports whether a running server can apply another value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reload {
    /// Applies immediately.
    Safe,
    /// Needs a restart.
    Restart,
}

/// One effective value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EffectiveLine {
    /// The directive that sets it; `-I` for a value that only the command line sets.
    pub directive: &'static str,
    /// Arguments of the directive; `None` if it is not set and no argument expresses that.
    pub value: Option<String>,
    /// Origin of the value.
    pub origin: Origin,
    /// Reports whether another value applies while the server runs.
    pub reload: Reload,
}

/// Width of the column of values in `config show`.
const VALUE_COLUMN: usize = 56;

impl fmt::Display for EffectiveLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value.as_deref().unwrap_or("(not set)");
        let line = format!("{} {value}", self.directive);
        write!(f, "{line:<VALUE_COLUMN$}  # {}", self.origin)
    }
}

/// Collects values in the order of the output.
pub(super) struct EffectiveLines(pub(super) Vec<EffectiveLine>);

impl EffectiveLines {
    pub(super) fn add<T>(
        &mut self,
        reload: Reload,
        directive: &'static str,
        setting: &Setting<T>,
        text: impl FnOnce(&T) -> Option<String>,
    ) {
        let value = text(&setting.value);
        self.0.push(EffectiveLine { directive, value, origin: setting.origin.clone(), reload });
    }

    pub(super) fn safe<T>(
        &mut self,
        directive: &'static str,
        setting: &Setting<T>,
        text: impl FnOnce(&T) -> String,
    ) {
        self.add(Reload::Safe, directive, setting, |value| Some(text(value)));
    }

    pub(super) fn restart<T>(
        &mut self,
        directive: &'static str,
        setting: &Setting<T>,
        text: impl FnOnce(&T) -> String,
    ) {
        self.add(Reload::Restart, directive, setting, |value| Some(text(value)));
    }
}

pub(super) fn time(value: &Duration) -> String {
    show_time(value.as_secs())
}

pub(super) fn trace(trace: &Trace) -> String {
    if trace.all {
        "all".to_owned()
    } else if trace.options.is_empty() {
        "off".to_owned()
    } else {
        trace.options.join(" ")
    }
}
