//! What many directives have in common: those not in force, trace options, folders.

use super::{Arguments, Draft, Fault};
use crate::effective::{Folder, Trace};
use crate::language::Token;
use crate::report::ProblemKind;

/// A directive of a part that is not in force yet.
#[expect(clippy::unnecessary_wraps, reason = "the signature of all directives")]
pub(crate) fn later(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    let name = arguments.name;
    draft.note(ProblemKind::NotYet, name, format!("{} is not in force yet", name.text), "");
    Ok(())
}

/// A directive that could change nothing here.
#[expect(clippy::unnecessary_wraps, reason = "the signature of all directives")]
pub(crate) fn without_effect(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    let name = arguments.name;
    draft.note(ProblemKind::NoEffect, name, format!("{} has no effect here", name.text), "");
    Ok(())
}

/// A directive that restricts access or demands encryption, whatever its arguments.
pub(crate) fn stop(arguments: &mut Arguments<'_>, _draft: &mut Draft<'_>) -> Result<(), Fault> {
    Err(unprotected(arguments.name, ""))
}

/// The fault that keeps data from being served unprotected. `what` says which argument it is about, if any.
pub(crate) fn unprotected(token: &Token, what: &str) -> Fault {
    let blank = if what.is_empty() { "" } else { " " };
    Fault::at(
        token,
        format!("{what}{blank}restricts access or demands encryption, and is not in force yet"),
        "not starting, lest data be served unprotected; remove it only if everybody may have what it protects",
    )
    .of(ProblemKind::Unprotected)
}

/// A piece of a directive that is not in force yet.
pub(crate) fn part_later(arguments: &Arguments<'_>, token: &Token, draft: &mut Draft<'_>) {
    let what = format!("{}: '{}' is not in force yet", arguments.name.text, token.text);
    draft.note(ProblemKind::NotYet, token, what, "");
}

/// A piece of a directive that could change nothing here.
pub(crate) fn part_idle(arguments: &Arguments<'_>, token: &Token, draft: &mut Draft<'_>) {
    let what = format!("{}: '{}' has no effect here", arguments.name.text, token.text);
    draft.note(ProblemKind::NoEffect, token, what, "");
}

/// A piece of a directive that is accepted and changes nothing, for a reason the administrator is told.
pub(crate) fn part_without_effect(
    arguments: &Arguments<'_>,
    token: &Token,
    why: &str,
    draft: &mut Draft<'_>,
) {
    let what = format!("{}: '{}' is accepted without effect", arguments.name.text, token.text);
    draft.note(ProblemKind::NoEffect, token, what, why);
}

/// Trace options: names, `-name`, `all`, `off`, `none`. Each directive starts from nothing.
pub(crate) fn trace(
    arguments: &mut Arguments<'_>,
    options: &'static [&'static str],
    draft: &mut Draft<'_>,
) -> Result<Trace, Fault> {
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
pub(crate) fn folder(
    arguments: &mut Arguments<'_>,
    what: &str,
    draft: &mut Draft<'_>,
) -> Result<Folder, Fault> {
    let path = arguments.path(what)?.into();
    let group = arguments.take("group").is_some();
    draft.finish(arguments);
    Ok(Folder { path, group })
}
