//! One directive of a table: names, grammar, default, help, standing, and the function that applies
//! it.

use super::arguments::Arguments;
use super::draft::Draft;
use super::fault::DirectiveFault;
use super::shared;
use super::standing::{Standing, UsageFrequency};
use crate::effective::Effective;

/// A function that reads the arguments of a directive into the draft.
pub(crate) type Apply = fn(&mut Arguments<'_>, &mut Draft<'_>) -> Result<(), DirectiveFault>;

/// A function that reports whether an effective configuration has a program of a directive.
type HasProgram = fn(&Effective) -> bool;

/// One directive.
pub struct Directive {
    /// Full names, the usual one first.
    pub names: &'static [&'static str],
    /// Fraction of sites that use it.
    pub mark: UsageFrequency,
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
    /// Set if the server executes a program that the directive names.
    pub(super) has_program: Option<HasProgram>,
    pub(crate) apply: Apply,
}

impl Directive {
    /// Returns a directive in force.
    pub(super) const fn new(
        names: &'static [&'static str],
        mark: UsageFrequency,
        grammar: &'static str,
        apply: Apply,
    ) -> Self {
        Self {
            names,
            mark,
            grammar,
            default: "",
            help: "",
            standing: Standing::InForce,
            example: "",
            stops_with: None,
            has_program: None,
            apply,
        }
    }

    /// Returns a directive without effect.
    pub(super) const fn idle(
        names: &'static [&'static str],
        mark: UsageFrequency,
        grammar: &'static str,
    ) -> Self {
        let mut directive = Self::new(names, mark, grammar, shared::without_effect);
        directive.standing = Standing::NoEffect;
        directive
    }

    /// Returns a directive of a part that is not in force yet.
    pub(super) const fn not_yet(
        names: &'static [&'static str],
        mark: UsageFrequency,
        grammar: &'static str,
    ) -> Self {
        let mut directive = Self::new(names, mark, grammar, shared::apply_not_yet);
        directive.standing = Standing::NotYet;
        directive
    }

    /// Returns a directive that is not in force and stops the start with any arguments.
    pub(super) const fn guard(
        names: &'static [&'static str],
        mark: UsageFrequency,
        grammar: &'static str,
        example: &'static str,
        apply: Apply,
    ) -> Self {
        let mut directive = Self::new(names, mark, grammar, apply);
        directive.standing = Standing::NotYet;
        directive.stops_with = Some(example);
        directive
    }

    pub(super) const fn default(mut self, default: &'static str) -> Self {
        self.default = default;
        self
    }

    pub(super) const fn help(mut self, help: &'static str) -> Self {
        self.help = help;
        self
    }

    pub(super) const fn example(mut self, example: &'static str) -> Self {
        self.example = example;
        self
    }

    pub(super) const fn stops_with(mut self, example: &'static str) -> Self {
        self.stops_with = Some(example);
        self
    }

    /// Declares that the server executes a program of this directive. Without it, the program could not
    /// use `sudo` under a server that root has started.
    pub(super) const fn executes(mut self, has_program: HasProgram) -> Self {
        self.has_program = Some(has_program);
        self
    }

    pub(super) const fn standing(mut self, standing: Standing) -> Self {
        self.standing = standing;
        self
    }

    /// Reports whether some arguments restrict access or demand encryption and are not in force.
    #[must_use]
    pub fn guards(&self) -> bool {
        self.stops_with.is_some()
    }

    /// Reports whether the server executes a program that the directive names.
    #[must_use]
    pub fn names_program(&self) -> bool {
        self.has_program.is_some()
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
