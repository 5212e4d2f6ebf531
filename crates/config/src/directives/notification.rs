//! `ofs.notify` and `ofs.notifymsg`: events about files for a program of the site. The table is in `ofs`.

use super::arguments::Arguments;
use super::draft::Draft;
use super::fault::DirectiveFault;
use crate::effective::{CopyProgram, Notification, NotifyEvent, NotifyMessage, NotifyTarget};
use crate::language::DirectiveToken;
use crate::setting::Setting;
use crate::values;
use std::collections::BTreeSet;

pub(super) const GRAMMAR: &str = "[-]event… [msgs min [max]] {|program [argument…]|>fifo}";
pub(super) const MESSAGE_GRAMMAR: &str = "event text";

/// The numbers of `msgs` without the option, and their maximum.
const WAITING: (u32, u32) = (90, 10);
const WAITING_MAX: u32 = 100_000;

const EVENTS: &str =
    "allowed: all chmod close closer closew create fwrite mkdir mv open openr openw rm rmdir trunc";
const VARIABLES: &str =
    "allowed: $TID $LFN $LFN1 $LFN2 $CGI $CGI1 $CGI2 $FMODE $FSIZE, and \\$ for the character";

/// Reads `ofs.notify`. The last of several directives counts.
pub(super) fn notify(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let (mut events, mut waiting) = (BTreeSet::new(), WAITING);
    let target = loop {
        let token = arguments.need("notify program or pipe")?;
        match token.text.as_str() {
            "msgs" => waiting = limits(arguments)?,
            text if text.starts_with(['|', '>']) => break target(token, arguments, draft)?,
            text => {
                let (removes, word) = text.strip_prefix('-').map_or((false, text), |word| (true, word));
                let named = NotifyEvent::of_word(word).ok_or_else(|| unknown(token, word))?;
                match removes {
                    true => events.retain(|event| !named.contains(event)),
                    false => events.extend(named),
                }
            }
        }
    };
    if events.is_empty() {
        return Err(DirectiveFault::at(arguments.name, "notify events not specified", EVENTS));
    }
    let value = Notification { events, waiting, target };
    draft.effective.notification.notification.set(Some(value), arguments.origin());
    Ok(())
}

fn unknown(token: &DirectiveToken, word: &str) -> DirectiveFault {
    DirectiveFault::at(token, format!("there is no event '{word}'"), EVENTS)
}

/// Reads `min [max]`.
fn limits(arguments: &mut Arguments<'_>) -> Result<(u32, u32), DirectiveFault> {
    let small = arguments.count("msgs min", 0, WAITING_MAX)?;
    let has_large = arguments.peek().is_some_and(|text| text.starts_with(|c: char| c.is_ascii_digit()));
    let large = if has_large { arguments.count("msgs max", 0, WAITING_MAX)? } else { WAITING.1 };
    Ok((small, large))
}

/// Reads the path of a receiver. It stands behind the `|` or `>` of a token, or is the next word.
fn target(
    token: &DirectiveToken,
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<NotifyTarget, DirectiveFault> {
    let is_program = token.text.starts_with('|');
    let what = if is_program { "notify program" } else { "notify pipe" };
    let behind = token.text.get(1..).unwrap_or_default();
    let path = match behind {
        "" => values::path(arguments.need(what)?, what)?,
        behind => values::path(&DirectiveToken { text: behind.to_owned(), ..token.clone() }, what)?,
    };
    if !is_program {
        draft.finish(arguments);
        return Ok(NotifyTarget::Pipe(path.into()));
    }
    let mut rest = Vec::new();
    while let Some(token) = arguments.next() {
        rest.push(token.text.clone());
    }
    Ok(NotifyTarget::Program(CopyProgram { path: path.into(), arguments: rest }))
}

/// Reads `ofs.notifymsg`: all that follows the event is the line.
pub(super) fn message(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let event = arguments.need("notifymsg event")?;
    // One text cannot be that of all events, which have different values.
    let named = NotifyEvent::of_word(&event.text).filter(|_| event.text != "all");
    let named = named.ok_or_else(|| unknown(event, &event.text))?;
    let first = arguments.need("notifymsg text")?;
    let mut words = vec![first.text.as_str()];
    while let Some(token) = arguments.next() {
        words.push(&token.text);
    }
    let message = NotifyMessage::parse(&words.join(" "))
        .map_err(|name| DirectiveFault::at(first, format!("there is no variable '${name}'"), VARIABLES))?;
    for event in named {
        let setting = Setting::new(message.clone(), arguments.origin());
        draft.effective.notification.messages.insert(event, setting);
    }
    Ok(())
}
