//! Helpers of several tables: directives that are not in force, trace options, directories.
//!
//! They exist so that equal options have equal syntax and messages in all tables.

use super::arguments::Arguments;
use super::draft::Draft;
use super::fault::DirectiveFault;
use super::missing;
use crate::effective::{DirectorySetting, Trace};
use crate::language::DirectiveToken;
use crate::report::ProblemKind;

/// The consequence of a directive that restricts access or demands encryption.
pub(crate) const RESTRICTS: &str = "restricts access or demands encryption, and is not in force";

/// The reason for which such a directive stops the start.
pub(crate) const STOPS_UNPROTECTED: &str = "not starting, lest data be served unprotected";

/// Applies a directive of a part that is not in force yet.
#[expect(clippy::unnecessary_wraps, reason = "the signature of all directives")]
pub(crate) fn apply_not_yet(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let name = arguments.name;
    let what = format!("{} is not in force yet", name.text);
    draft.not_yet(name, what, missing::of(&name.text), arguments.peek());
    Ok(())
}

/// Applies a directive without effect.
#[expect(clippy::unnecessary_wraps, reason = "the signature of all directives")]
pub(crate) fn without_effect(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let name = arguments.name;
    draft.note(ProblemKind::NoEffect, name, format!("{} has no effect here", name.text), "");
    Ok(())
}

/// Returns the fault that prevents unprotected service. `what` names the argument, if there is one.
pub(crate) fn unprotected(token: &DirectiveToken, what: &str) -> DirectiveFault {
    let blank = if what.is_empty() { "" } else { " " };
    DirectiveFault::at(
        token,
        format!("{what}{blank}{RESTRICTS} yet"),
        format!("{STOPS_UNPROTECTED}; remove it only if everybody may have what it protects"),
    )
    .of(ProblemKind::Unprotected)
    .about(what.replace('\'', ""))
}

/// Reports an option that is not in force yet.
pub(crate) fn option_not_yet(arguments: &Arguments<'_>, token: &DirectiveToken, draft: &mut Draft<'_>) {
    let what = format!("{}: '{}' is not in force yet", arguments.name.text, token.text);
    draft.not_yet(token, what, missing::of(&arguments.name.text), None);
}

/// Reports an option without effect.
pub(crate) fn option_without_effect(
    arguments: &Arguments<'_>,
    token: &DirectiveToken,
    draft: &mut Draft<'_>,
) {
    let what = format!("{}: '{}' has no effect here", arguments.name.text, token.text);
    draft.note(ProblemKind::NoEffect, token, what, "");
}

/// Reports an option that is accepted without effect, with the reason.
pub(crate) fn part_without_effect(
    arguments: &Arguments<'_>,
    token: &DirectiveToken,
    why: &str,
    draft: &mut Draft<'_>,
) {
    let what = format!("{}: '{}' is accepted without effect", arguments.name.text, token.text);
    draft.note(ProblemKind::NoEffect, token, what, why);
}

/// Reads trace options: names, `-name`, `all`, `off`, `none`. Each directive starts with an empty
/// set.
pub(crate) fn trace(
    arguments: &mut Arguments<'_>,
    options: &'static [&'static str],
    draft: &mut Draft<'_>,
) -> Result<Trace, DirectiveFault> {
    let mut on = vec![false; options.len()];
    let mut token = arguments.need("trace option")?;
    loop {
        match token.text.as_str() {
            "all" => on.fill(true),
            "off" | "none" => on.fill(false),
            text => {
                let (name, value) = text.strip_prefix('-').map_or((text, true), |name| (name, false));
                match options.iter().zip(&mut on).find(|(option, _)| **option == name) {
                    Some((_, state)) => *state = value,
                    None => draft.unknown_option(arguments, token),
                }
            }
        }
        match arguments.next() {
            Some(next) => token = next,
            None => break,
        }
    }
    let all = on.iter().all(|state| *state);
    let options = options.iter().zip(on).filter(|(_, state)| *state).map(|(option, _)| *option).collect();
    Ok(Trace { options, all })
}

/// `path [group]`.
pub(crate) fn directory(
    arguments: &mut Arguments<'_>,
    what: &str,
    draft: &mut Draft<'_>,
) -> Result<DirectorySetting, DirectiveFault> {
    let path = arguments.path(what)?.into();
    let group = arguments.take("group").is_some();
    draft.finish(arguments);
    Ok(DirectorySetting { path, group })
}
