//! Directives of the disk cache of a proxy.

use super::arguments::Arguments;
use super::draft::Draft;
use super::fault::DirectiveFault;
use super::libraries::base_name;
use super::shared::apply_not_yet;
use crate::effective::{CacheSpace, Effective};
use crate::language::DirectiveToken;
use crate::report::{ConfigReport, ProblemKind};
use crate::setting::Setting;
use crate::values::{self, between};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Unit of the size of blocks.
const BLOCK_UNIT: u64 = 4 * KIB;

/// `{default|library} [parameters]`.
pub(super) fn library(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let token = arguments.need("cache library")?;
    if !matches!(base_name(&token.text), "default" | "libXrdPfc" | "libXrdFileCache") {
        let what = format!("unsupported library '{}'", token.text);
        let allowed = "name libXrdPfc.so; the cache is built in, and nothing is loaded";
        return Err(DirectiveFault::at(token, what, allowed).of(ProblemKind::ForeignLibrary));
    }
    draft.finish(arguments);
    draft.effective.proxy.cache.enabled.set(true, arguments.origin());
    Ok(())
}

/// `size`.
pub(super) fn memory(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let bytes = arguments.size("ram", between(GIB, 256 * GIB))?;
    draft.finish(arguments);
    draft.effective.proxy.cache.memory.set(bytes, arguments.origin());
    Ok(())
}

/// `size`, rounded up.
pub(super) fn block_size(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let bytes = arguments.size("blocksize", between(BLOCK_UNIT, 512 * MIB))?;
    draft.finish(arguments);
    draft.effective.proxy.cache.block_bytes.set(bytes.next_multiple_of(BLOCK_UNIT), arguments.origin());
    Ok(())
}

/// `n`: blocks.
pub(super) fn prefetch(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let blocks = arguments.count("prefetch", 0, 4096)?;
    draft.finish(arguments);
    draft.effective.proxy.cache.prefetch.set(blocks, arguments.origin());
    Ok(())
}

/// `low high …`.
pub(super) fn disk_usage(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let low = space(arguments.need("diskusage low value")?)?;
    let token = arguments.need("diskusage high value")?;
    let high = space(token)?;
    let is_ordered = match (low, high) {
        (CacheSpace::Share(low), CacheSpace::Share(high)) => low < high,
        (CacheSpace::Bytes(low), CacheSpace::Bytes(high)) => low < high,
        // Compared when the size of the disk is known.
        _ => true,
    };
    if !is_ordered {
        let what = "the low value must be less than the high one".to_owned();
        return Err(DirectiveFault::at(token, what, format!("allowed: {}", arguments.grammar)));
    }
    while let Some(token) = arguments.next() {
        let (count, what) = match token.text.as_str() {
            "purgeinterval" | "sleep" => (1, "the disk is looked at every 10 s"),
            word @ ("files" | "purgecoldfiles") => {
                let what = format!("'{word}' is not in force yet");
                let allowed = "remove it; low and high are in force";
                return Err(DirectiveFault::at(token, what, allowed).of(ProblemKind::Unsupported));
            }
            _ => (0, ""),
        };
        if count == 0 {
            draft.unknown_option(arguments, token);
        } else {
            arguments.need("purgeinterval value")?;
            super::shared::part_without_effect(arguments, token, what, draft);
        }
    }
    draft.effective.proxy.cache.usage.set((low, high), arguments.origin());
    Ok(())
}

/// Reads a part of the disk: a fraction without a letter, or a size.
fn space(token: &DirectiveToken) -> Result<CacheSpace, DirectiveFault> {
    let is_size = token.text.ends_with(|c: char| c.is_ascii_alphabetic());
    if is_size {
        return values::size(token, "diskusage", between(0, u64::MAX)).map(CacheSpace::Bytes);
    }
    let fraction = token.text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    let fault = || {
        let what = format!("diskusage {} is neither a fraction nor a size", token.text);
        DirectiveFault::at(token, what, "allowed: 0.9, 500g")
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 0 and 1")]
    fraction.map(|share| CacheSpace::Share((share * 1_000_000.0).round() as u32)).ok_or_else(fault)
}

/// A directive that is not in force, and without which a cache would do something else.
pub(super) fn needed(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let name = Setting::new(arguments.name.text.clone(), arguments.origin());
    draft.effective.proxy.cache.missing.push(name);
    apply_not_yet(arguments, draft)
}

/// Checks that a cache has a place, and that nothing is configured that it cannot do.
pub(super) fn check(effective: &Effective, report: &mut ConfigReport) {
    let values = &effective.proxy.cache;
    if !*values.enabled {
        return;
    }
    if effective.storage.local_root.value.is_none() {
        let allowed = "set oss.localroot to the directory of the cache";
        let what = "the cache has no directory";
        report.add(ProblemKind::Unsupported, values.enabled.origin.clone(), what, allowed);
    }
    for name in &values.missing {
        let what = format!("{} is not in force yet, and the cache would not do what it says", name.value);
        report.add(ProblemKind::Unsupported, name.origin.clone(), what, "remove it");
    }
}
