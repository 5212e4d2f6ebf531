//! A configuration under construction: the values so far, and the report of problems.

use std::borrow::Cow;

use super::arguments::Arguments;
use super::export_options::{ExportDraft, OptionEntry};
use super::missing::MissingPart;
use super::protocol_parameters::ProtocolParameters;
use crate::effective::Effective;
use crate::language::DirectiveToken;
use crate::report::{ConfigReport, ProblemKind};
use crate::setting::Origin;
use crate::source::ConfigSource;

/// A configuration under construction.
pub(crate) struct Draft<'a> {
    pub(crate) effective: Effective,
    pub(crate) exports: Vec<ExportDraft>,
    /// Position of an export of object ids, if there is one.
    pub(crate) object_ids: Option<Origin>,
    /// Options of `oss.defaults`, in order.
    pub(crate) defaults: Vec<&'static OptionEntry>,
    /// `sec.protparm` lines whose `sec.protocol` has not come yet.
    pub(crate) parameters: ProtocolParameters,
    pub(crate) report: &'a mut ConfigReport,
    pub(crate) source: &'a dyn ConfigSource,
}

impl Draft<'_> {
    /// Reports a problem of an accepted directive.
    pub(crate) fn note<'t>(
        &mut self,
        kind: ProblemKind,
        token: &DirectiveToken,
        what: impl Into<Cow<'t, str>>,
        allowed: &str,
    ) {
        self.report.add(kind, token.origin(), what.into(), allowed);
    }

    /// Reports an item that is not in force yet, and the consequence. `first` is the first argument
    /// of the directive.
    pub(crate) fn not_yet(
        &mut self,
        token: &DirectiveToken,
        what: String,
        missing: Option<MissingPart>,
        first: Option<&str>,
    ) {
        let consequence = missing.map(|missing| missing.consequence(first)).unwrap_or_default();
        let part = missing.map(|missing| missing.part);
        self.report.add_not_yet(token.origin(), what, consequence, part);
    }

    /// Reports an unknown option: an error, or a warning where existing files must start.
    pub(crate) fn unknown_option(&mut self, arguments: &Arguments<'_>, token: &DirectiveToken) {
        let what = format!("{}: unknown option '{}'", arguments.name.text, token.text);
        let allowed = format!("allowed: {}", arguments.grammar);
        self.note(ProblemKind::Unknown, token, what, &allowed);
    }

    /// Warns of arguments after the last expected one.
    pub(crate) fn finish(&mut self, arguments: &Arguments<'_>) {
        if let Some(token) = arguments.rest().first() {
            let what = format!("{}: '{}' and what follows is ignored", arguments.name.text, token.text);
            self.note(ProblemKind::Ignored, token, what, "");
        }
    }
}
