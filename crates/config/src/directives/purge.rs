//! Directives of purges: `frm.purge.`. The table is in `residency`.

use super::arguments::Arguments;
use super::draft::Draft;
use super::fault::DirectiveFault;
use crate::effective::{CopyProgram, FreeSpaceLimit, PurgeProgram, PurgeRule};
use crate::language::DirectiveToken;
use crate::setting::Setting;
use crate::values::{self, TIME_MAX, between, from};
use std::time::Duration;

/// The part of the lower limit that the upper one is above it, if only the lower one is given.
const MORE_DIVISOR: u64 = 5;

/// The values of a file that a program can get, and how many of them.
const VARIABLES: [&str; 10] =
    ["atime", "ctime", "fname", "fsize", "fspace", "mtime", "pfn", "sname", "tspace", "usage"];
const VARIABLES_MAX: usize = 8;

/// Reads `frm.purge.policy`.
pub(super) fn policy(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    if arguments.take("=").is_some() {
        return program(arguments, draft);
    }
    let space = arguments.need("purge space")?;
    let hold = crate::effective::ResidencyConfig::default().purge.value.hold;
    let mut rule = PurgeRule { free: None, hold, asks_program: false };
    let first = arguments.need("purge minfree")?;
    rule.free = match first.text.as_str() {
        "nopurge" => None,
        _ => Some(limits(first, arguments)?),
    };
    while let Some(token) = arguments.next() {
        match token.text.as_str() {
            "hold" if arguments.take("forever").is_some() => rule.free = None,
            "hold" => rule.hold = arguments.time("purge hold", between(0, TIME_MAX))?,
            "polprog" if draft.effective.residency.purge_program.is_none() => {
                let what = "there is no frm.purge.polprog before it";
                return Err(DirectiveFault::at(token, what, "the program first"));
            }
            "polprog" => rule.asks_program = true,
            _ => return Err(arguments.invalid(token, "purge option")),
        }
    }
    let residency = &mut draft.effective.residency;
    match space.text.as_str() {
        "*" => residency.purge.set(rule, arguments.origin()),
        name => {
            let setting =
                residency.purge_spaces.entry(name.to_owned()).or_insert_with(|| Setting::default_of(rule));
            setting.set(rule, arguments.origin());
        }
    }
    Ok(())
}

/// Reads `frm.purge.polprog`: names of values, and a program behind `|`.
pub(super) fn program(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let mut variables = Vec::new();
    let path = loop {
        let token = arguments.need("polprog program")?;
        if let Some(path) = token.text.strip_prefix('|') {
            break match path.is_empty() {
                true => values::path(arguments.need("polprog program")?, "polprog program")?,
                false => path.to_owned(),
            };
        }
        if !VARIABLES.contains(&token.text.as_str()) || variables.len() == VARIABLES_MAX {
            return Err(arguments.invalid(token, "polprog variable, or program behind |"));
        }
        variables.push(token.text.clone());
    };
    if !path.starts_with('/') {
        return Err(DirectiveFault::at(arguments.name, "the program has no absolute path", "|/path"));
    }
    let mut rest = Vec::new();
    while let Some(token) = arguments.next() {
        rest.push(token.text.clone());
    }
    let program = PurgeProgram { command: CopyProgram { path: path.into(), arguments: rest }, variables };
    draft.effective.residency.purge_program.set(Some(program), arguments.origin());
    Ok(())
}

/// Reads `frm.purge.dirhold`.
pub(super) fn directories(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let hold = match arguments.peek() {
        Some("forever" | "-1") => {
            arguments.next();
            None
        }
        _ => Some(arguments.time("purge dirhold", between(0, TIME_MAX))?),
    };
    draft.finish(arguments);
    draft.effective.residency.purge_directories.set(hold, arguments.origin());
    Ok(())
}

/// Reads the lower limit, and the upper one if it follows.
fn limits(
    low: &DirectiveToken,
    arguments: &mut Arguments<'_>,
) -> Result<(FreeSpaceLimit, FreeSpaceLimit), DirectiveFault> {
    let low_limit = limit(low, "purge minfree")?;
    let second = arguments.peek().filter(|text| text.starts_with(|c: char| c.is_ascii_digit()));
    let Some(token) = second.and_then(|_| arguments.next()) else {
        let more = match low_limit {
            FreeSpaceLimit::Percent(percent) => FreeSpaceLimit::Percent(percent.saturating_add(1).min(100)),
            FreeSpaceLimit::Bytes(bytes) => FreeSpaceLimit::Bytes(bytes.saturating_add(bytes / MORE_DIVISOR)),
        };
        return Ok((low_limit, more));
    };
    let high_limit = limit(token, "purge maxfree")?;
    let is_above = match (low_limit, high_limit) {
        (FreeSpaceLimit::Percent(low), FreeSpaceLimit::Percent(high)) => low < high,
        (FreeSpaceLimit::Bytes(low), FreeSpaceLimit::Bytes(high)) => low < high,
        _ => {
            let why = "minfree and maxfree have different units";
            return Err(DirectiveFault::at(token, why, "two percentages, or two sizes"));
        }
    };
    if is_above {
        return Ok((low_limit, high_limit));
    }
    Err(DirectiveFault::at(token, "maxfree is not above minfree", "a larger value"))
}

fn limit(token: &DirectiveToken, what: &str) -> Result<FreeSpaceLimit, DirectiveFault> {
    Ok(match token.text.ends_with('%') {
        true => FreeSpaceLimit::Percent(values::percent(token, what)?),
        false => FreeSpaceLimit::Bytes(values::size(token, what, from(0))?),
    })
}

/// Reads `frm.purge.waittime`.
pub(super) fn interval(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let interval: Duration = arguments.time("purge waittime", between(1, TIME_MAX))?;
    draft.finish(arguments);
    draft.effective.residency.purge_interval.set(interval, arguments.origin());
    Ok(())
}
