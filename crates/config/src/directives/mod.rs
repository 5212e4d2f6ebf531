//! The tables of directives: names, grammar, default, help, standing, and the function that applies
//! it.
//!
//! There is one table per prefix. The manual, the checks and the nearest-name hint are generated
//! from them, so that a directive is described in one place.

mod arguments;
mod cluster;
mod export;
mod http;
mod libraries;
mod missing;
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
pub(crate) use missing::{Missing, of as missing};
pub(crate) use shared::unprotected;

use crate::effective::Effective;
use crate::language::Token;
use crate::report::{ProblemKind, Report};
use crate::setting::Origin;
use crate::source::Source;

/// Fraction of sites that use a directive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// Most sites.
    Most,
    /// Some sites.
    Common,
    /// Few sites.
    Rare,
}

/// Effect of a directive in this server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// In force.
    InForce,
    /// Accepted without effect.
    NoEffect,
    /// Known, but the part of the server it belongs to is not in force yet.
    NotYet,
}

/// A function that reads the arguments of a directive into the draft.
pub(crate) type Apply = fn(&mut Arguments<'_>, &mut Draft<'_>) -> Result<(), Fault>;

/// One directive.
pub struct Directive {
    /// Full names, the usual one first.
    pub names: &'static [&'static str],
    /// Fraction of sites that use it.
    pub mark: Mark,
    /// Arguments. `|` is or, `[ ]` optional, `…` repeatable, `[if]` an inline condition.
    pub grammar: &'static str,
    /// Behaviour without the directive.
    pub default: &'static str,
    /// Purpose, and differences from XRootD.
    pub help: &'static str,
    /// Effect in this server.
    pub standing: Standing,
    /// Accepted arguments (with a warning or note that depends on the standing).
    pub example: &'static str,
    /// Arguments that restrict access or demand encryption but are not in force, so that the start
    /// stops.
    pub stops_with: Option<&'static str>,
    pub(crate) apply: Apply,
}

impl Directive {
    /// Returns a directive in force.
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

    /// Returns a directive without effect.
    const fn idle(names: &'static [&'static str], mark: Mark, grammar: &'static str) -> Self {
        let mut directive = Self::new(names, mark, grammar, shared::without_effect);
        directive.standing = Standing::NoEffect;
        directive
    }

    /// Returns a directive of a part that is not in force yet.
    const fn later(names: &'static [&'static str], mark: Mark, grammar: &'static str) -> Self {
        let mut directive = Self::new(names, mark, grammar, shared::later);
        directive.standing = Standing::NotYet;
        directive
    }

    /// Returns a directive that is not in force and stops the start with any arguments.
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

    /// Reports whether some arguments restrict access or demand encryption and are not in force.
    #[must_use]
    pub fn guards(&self) -> bool {
        self.stops_with.is_some()
    }

    /// Reports whether `if CONDITION` may follow the arguments.
    #[must_use]
    pub fn takes_condition(&self) -> bool {
        self.grammar.ends_with("[if]")
    }

    /// Reports whether all arguments stop the start.
    #[must_use]
    pub fn always_stops(&self) -> bool {
        self.stops_with.is_some() && self.example.is_empty()
    }
}

/// A table: the directives of one or two prefixes.
pub struct Section {
    /// Heading in the manual.
    pub title: &'static str,
    /// Introduction in the manual.
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

/// Prefixes of components that are not part of this server. XRootD ignores them unless the
/// component runs.
const OTHER_PREFIXES: [&str; 6] = ["bwm", "odc", "olb", "scitokens", "ssi", "voms"];

/// Returns all directives, table by table.
pub fn every_directive() -> impl Iterator<Item = &'static Directive> {
    SECTIONS.iter().flat_map(|section| section.directives)
}

/// Returns the directive with this full name.
#[must_use]
pub fn find_directive(name: &str) -> Option<&'static Directive> {
    every_directive().find(|directive| directive.names.contains(&name))
}

/// Reports whether a directive belongs to a component that is not part of this server.
pub(crate) fn of_another_component(name: &str) -> bool {
    name.split_once('.').is_some_and(|(prefix, _)| OTHER_PREFIXES.contains(&prefix))
}

/// Returns the known name closest to `name`, if at most a third of its characters differ.
#[must_use]
pub fn nearest_directive(name: &str) -> Option<&'static str> {
    base::nearest(name, every_directive().flat_map(|directive| directive.names.iter().copied()))
}

/// A configuration under construction.
pub(crate) struct Draft<'a> {
    pub(crate) effective: Effective,
    pub(crate) exports: Vec<ExportDraft>,
    /// Position of an export of object ids, if there is one.
    pub(crate) object_ids: Option<Origin>,
    /// Options of `oss.defaults`, in order.
    pub(crate) defaults: Vec<&'static OptionEntry>,
    pub(crate) report: &'a mut Report,
    pub(crate) source: &'a dyn Source,
}

impl Draft<'_> {
    /// Reports a problem of an accepted directive.
    pub(crate) fn note<'t>(
        &mut self,
        kind: ProblemKind,
        token: &Token,
        what: impl Into<Cow<'t, str>>,
        allowed: &str,
    ) {
        self.report.add(kind, token.origin(), what.into(), allowed);
    }

    /// Reports an item that is not in force yet, and the consequence. `first` is the first argument of
    /// the directive.
    pub(crate) fn not_yet(
        &mut self,
        token: &Token,
        what: String,
        missing: Option<Missing>,
        first: Option<&str>,
    ) {
        let consequence = missing.map(|missing| missing.consequence(first)).unwrap_or_default();
        let part = missing.map(|missing| missing.part);
        self.report.add_not_yet(token.origin(), what, consequence, part);
    }

    /// Reports an unknown option: an error, or a warning where existing files must start.
    pub(crate) fn unknown_option(&mut self, arguments: &Arguments<'_>, token: &Token) {
        let what = format!("{}: unknown option '{}'", arguments.name.text, token.text);
        let allowed = format!("allowed: {}", arguments.directive.grammar);
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
                assert!(seen.insert(name), "{name} is in two tables");
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
