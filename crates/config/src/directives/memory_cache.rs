//! Directives of the memory cache of a proxy.

use super::arguments::Arguments;
use super::draft::Draft;
use super::fault::DirectiveFault;
use crate::effective::{Effective, MemoryCacheValues};
use crate::language::DirectiveToken;
use crate::report::{ConfigReport, ProblemKind};
use crate::values::between;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;

/// `[size n] [pagesize n] [minpages n] [max2cache n] …`. Each directive begins with the default values, and the last one
/// counts.
pub(super) fn memory_cache(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let (mut values, origin) = (MemoryCacheValues::default(), arguments.origin());
    while let Some(token) = arguments.next() {
        match token.text.as_str() {
            "size" => values.bytes.set(arguments.size("size", between(MIB, 16 * TIB))?, origin.clone()),
            "pagesize" => {
                let bytes = arguments.size("pagesize", between(4 * KIB, 16 * MIB))?;
                values.page_bytes.set(bytes.next_power_of_two(), origin.clone());
            }
            "minpages" => values.pages_min.set(arguments.count("minpages", 1, 1 << 20)?, origin.clone()),
            "max2cache" => {
                let bytes = arguments.size("max2cache", between(1, 16 * TIB))?;
                values.kept_bytes.set(Some(bytes), origin.clone());
            }
            "debug" => {
                arguments.count("debug", 0, 3)?;
                ignored(token, draft);
            }
            "r/w" | "logstats" => ignored(token, draft),
            "sfiles" => {
                suffix(arguments)?;
                ignored(token, draft);
            }
            "preread" => {
                preread(arguments)?;
                ignored(token, draft);
            }
            _ => draft.unknown_option(arguments, token),
        }
    }
    values.enabled.set(true, origin);
    draft.effective.proxy.memory_cache = values;
    Ok(())
}

fn ignored(token: &DirectiveToken, draft: &mut Draft<'_>) {
    let what = format!("{} of the memory cache has no effect", token.text);
    draft.note(ProblemKind::NoEffect, token, what, "");
}

/// `{on|off|.suffix}`.
fn suffix(arguments: &mut Arguments<'_>) -> Result<(), DirectiveFault> {
    let token = arguments.need("sfiles value")?;
    match token.text.as_str() {
        "on" | "off" => Ok(()),
        text if text.starts_with('.') && text.len() > 1 => Ok(()),
        _ => Err(arguments.invalid(token, "sfiles")),
    }
}

/// `[pages [minrd]] [perf pct [recalc]]`.
fn preread(arguments: &mut Arguments<'_>) -> Result<(), DirectiveFault> {
    let is_number =
        |text: Option<&str>| text.is_some_and(|text| text.starts_with(|c: char| c.is_ascii_digit()));
    if is_number(arguments.peek()) {
        arguments.count("preread pages", 0, 1 << 20)?;
        if is_number(arguments.peek()) {
            arguments.size("preread minrd", between(0, 16 * TIB))?;
        }
    }
    if arguments.take("perf").is_some() {
        arguments.count("preread perf", 0, 100)?;
        if is_number(arguments.peek()) {
            arguments.size("preread recalc", between(0, 16 * TIB))?;
        }
    }
    Ok(())
}

/// Reports a memory cache that a disk cache replaces.
pub(super) fn check(effective: &Effective, report: &mut ConfigReport) {
    let values = &effective.proxy;
    if *values.memory_cache.enabled && *values.cache.enabled {
        let what = "pss.cache has no effect beside a disk cache";
        report.add(ProblemKind::NoEffect, values.memory_cache.enabled.origin.clone(), what, "");
    }
}
