//! Every directive: its names, grammar, default, help and standing side by side with what it does.
//!
//! One table per prefix; the manual, the checks and the nearest-name hint are made from them.

mod arguments;
mod cluster;
mod export;
mod http;
mod libraries;
mod ofs;
mod oss;
mod process;
mod proxy;
mod residency;
mod security;
mod shared;
mod third_party;
mod xrd;
mod xrootd;

use std::borrow::Cow;

pub(crate) use arguments::{Arguments, Fault};
pub(crate) use cluster::read_by_xrootd;
pub use export::{EXPORT_OPTIONS, OptionEntry};
pub(crate) use export::{ExportDraft, resolve};
pub(crate) use shared::unprotected;

use crate::effective::Effective;
use crate::language::Token;
use crate::report::{ProblemKind, Report};
use crate::setting::Origin;
use crate::source::Source;

/// How many sites use a directive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// Most.
    Most,
    /// Some.
    Common,
    /// Few.
    Rare,
}

/// What a directive does here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It does what it says.
    InForce,
    /// Accepted; there is nothing here it could change.
    NoEffect,
    /// Known; the part of the server it belongs to is not in force yet.
    NotYet,
}

/// Reads the arguments of a directive into the draft.
pub(crate) type Apply = fn(&mut Arguments<'_>, &mut Draft<'_>) -> Result<(), Fault>;

/// One directive.
pub struct Directive {
    /// Full names, the usual one first.
    pub names: &'static [&'static str],
    /// How many sites use it.
    pub mark: Mark,
    /// Its arguments. `|` is or, `[ ]` optional, `…` repeatable, `[if]` an inline condition.
    pub grammar: &'static str,
    /// What holds without it.
    pub default: &'static str,
    /// What it is for, and what of it differs here.
    pub help: &'static str,
    /// What it does here.
    pub standing: Standing,
    /// Arguments that are accepted (with a warning or note if the standing says so).
    pub example: &'static str,
    /// Arguments that restrict access or demand encryption in a way that is not in force, so that the start stops.
    pub stops_with: Option<&'static str>,
    pub(crate) apply: Apply,
}

impl Directive {
    /// A directive in force.
    const fn new(names: &'static [&'static str], mark: Mark, grammar: &'static str, apply: Apply) -> Self {
        Self {
            names,
            mark,
            grammar,
            default: "",
            help: "",
            standing: Standing::InForce,
            example: "",
            stops_with: None,
            apply,
        }
    }

    /// A directive without effect here.
    const fn idle(names: &'static [&'static str], mark: Mark, grammar: &'static str) -> Self {
        let mut directive = Self::new(names, mark, grammar, shared::without_effect);
        directive.standing = Standing::NoEffect;
        directive
    }

    /// A directive of a part that is not in force yet.
    const fn later(names: &'static [&'static str], mark: Mark, grammar: &'static str) -> Self {
        let mut directive = Self::new(names, mark, grammar, shared::later);
        directive.standing = Standing::NotYet;
        directive
    }

    /// A directive that is not in force and stops the start, whatever its arguments.
    const fn guard(
        names: &'static [&'static str],
        mark: Mark,
        grammar: &'static str,
        example: &'static str,
    ) -> Self {
        let mut directive = Self::new(names, mark, grammar, shared::stop);
        directive.standing = Standing::NotYet;
        directive.stops_with = Some(example);
        directive
    }

    const fn default(mut self, default: &'static str) -> Self {
        self.default = default;
        self
    }

    const fn help(mut self, help: &'static str) -> Self {
        self.help = help;
        self
    }

    const fn example(mut self, example: &'static str) -> Self {
        self.example = example;
        self
    }

    const fn stops_with(mut self, example: &'static str) -> Self {
        self.stops_with = Some(example);
        self
    }

    const fn standing(mut self, standing: Standing) -> Self {
        self.standing = standing;
        self
    }

    /// True if some arguments restrict access or demand encryption and are not in force.
    #[must_use]
    pub fn guards(&self) -> bool {
        self.stops_with.is_some()
    }

    /// True if `if CONDITION` may follow the arguments.
    #[must_use]
    pub fn takes_condition(&self) -> bool {
        self.grammar.ends_with("[if]")
    }

    /// True if no arguments are accepted: a guard without a harmless form.
    #[must_use]
    pub fn always_stops(&self) -> bool {
        self.stops_with.is_some() && self.example.is_empty()
    }
}

/// A table: directives of one or two prefixes.
pub struct Section {
    /// Heading in the manual.
    pub title: &'static str,
    /// What they are about.
    pub about: &'static str,
    /// The directives.
    pub directives: &'static [Directive],
}

/// All tables.
pub static SECTIONS: &[Section] = &[
    process::SECTION,
    xrd::SECTION,
    xrootd::SECTION,
    ofs::SECTION,
    oss::SECTION,
    security::SECTION,
    cluster::SECTION,
    residency::SECTION,
    http::SECTION,
    proxy::SECTION,
];

/// Prefixes of components that are none of ours; upstream ignores them unless the component runs.
const OTHER_PREFIXES: [&str; 6] = ["bwm", "odc", "olb", "scitokens", "ssi", "voms"];

/// Every directive, table by table.
pub fn every_directive() -> impl Iterator<Item = &'static Directive> {
    SECTIONS.iter().flat_map(|section| section.directives)
}

/// The directive of that full name.
#[must_use]
pub fn find_directive(name: &str) -> Option<&'static Directive> {
    every_directive().find(|directive| directive.names.contains(&name))
}

/// True for a directive of a component that is none of ours.
pub(crate) fn of_another_component(name: &str) -> bool {
    name.split_once('.').is_some_and(|(prefix, _)| OTHER_PREFIXES.contains(&prefix))
}

/// The known name closest to `name`, if any is close: at most a third of its characters differ.
#[must_use]
pub fn nearest_directive(name: &str) -> Option<&'static str> {
    base::nearest(name, every_directive().flat_map(|directive| directive.names.iter().copied()))
}

/// What a configuration has come to so far.
pub(crate) struct Draft<'a> {
    pub(crate) effective: Effective,
    pub(crate) exports: Vec<ExportDraft>,
    /// Where the file exports object ids, if it does.
    pub(crate) object_ids: Option<Origin>,
    /// Options of `oss.defaults`, in order.
    pub(crate) defaults: Vec<&'static OptionEntry>,
    pub(crate) report: &'a mut Report,
    pub(crate) source: &'a dyn Source,
}

impl Draft<'_> {
    /// Something to say about an accepted directive.
    pub(crate) fn note<'t>(
        &mut self,
        kind: ProblemKind,
        token: &Token,
        what: impl Into<Cow<'t, str>>,
        allowed: &str,
    ) {
        self.report.add(kind, token.origin(), what.into(), allowed);
    }

    /// An option nobody knows: an error, or a warning where old files must start.
    pub(crate) fn unknown_option(&mut self, arguments: &Arguments<'_>, token: &Token) {
        let what = format!("{}: unknown option '{}'", arguments.name.text, token.text);
        let allowed = format!("allowed: {}", arguments.directive.grammar);
        self.note(ProblemKind::Unknown, token, what, &allowed);
    }

    /// Warns of arguments behind the last one that counts.
    pub(crate) fn finish(&mut self, arguments: &Arguments<'_>) {
        if let Some(token) = arguments.rest().first() {
            let what = format!("{}: '{}' and what follows is ignored", arguments.name.text, token.text);
            self.note(ProblemKind::Ignored, token, what, "");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_complete() {
        let mut seen = BTreeSet::new();
        for directive in every_directive() {
            assert!(!directive.names.is_empty());
            for name in directive.names {
                assert!(seen.insert(name), "{name} stands in two tables");
                assert!(name.contains('.'), "{name}");
            }
            assert!(!directive.help.is_empty(), "{} has no help", directive.names[0]);
        }
        assert!(seen.len() > 200, "{}", seen.len());
    }

    #[test]
    fn the_nearest_name_is_found() {
        for (name, expected) in [
            ("xrd.prot", Some("xrd.port")),
            ("all.exprot", Some("all.export")),
            ("xrootd.checksum", Some("xrootd.chksum")),
            ("oss.lcoalroot", Some("oss.localroot")),
            ("zzz.qqqqqq", None),
            ("", None),
        ] {
            assert_eq!(nearest_directive(name), expected, "{name}");
        }
    }
}
