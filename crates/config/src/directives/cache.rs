//! Directives of the disk cache of a proxy.

use super::arguments::Arguments;
use super::draft::Draft;
use super::fault::DirectiveFault;
use super::libraries::base_name;
use super::shared::{apply_not_yet, part_without_effect};
use crate::effective::{CacheSpace, CacheUsage, Effective};
use crate::language::DirectiveToken;
use crate::report::{ConfigReport, ProblemKind};
use crate::setting::Setting;
use crate::values::{self, between};
use std::path::PathBuf;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// Minimum of `pss.dca recheck`, in seconds.
const RECHECK_MIN: u64 = 10;
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

/// `low high [files base nominal max] [purgeinterval time] [purgecoldfiles age n]`.
pub(super) fn disk_usage(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let low = space(arguments.need("diskusage low value")?)?;
    let token = arguments.need("diskusage high value")?;
    let mut usage = CacheUsage::new(low, space(token)?);
    check_order(token, &[("low", low), ("high", usage.high)], arguments)?;
    while let Some(token) = arguments.next() {
        match token.text.as_str() {
            "files" => {
                let mut limit = |name: &str| space(arguments.need(&format!("diskusage files {name} value"))?);
                let [base, nominal, most] = [limit("base")?, limit("nominal")?, limit("max")?];
                let order = [("base", base), ("nominal", nominal), ("max", most), ("low", low)];
                check_order(token, &order, arguments)?;
                usage.files = Some([base, nominal, most]);
            }
            "purgeinterval" | "sleep" => {
                usage.interval = arguments.time(&token.text, between(MINUTE, HOUR))?
            }
            "purgecoldfiles" => {
                let age = arguments.time("purgecoldfiles age", between(HOUR, 360 * DAY))?;
                usage.cold = Some((age, arguments.count("purgecoldfiles n", 1, 1000)?));
            }
            _ => draft.unknown_option(arguments, token),
        }
    }
    draft.effective.proxy.cache.usage.set(usage, arguments.origin());
    Ok(())
}

/// Fails if values are not in order. A size and a fraction are compared when the size of the disk is known.
fn check_order(
    token: &DirectiveToken,
    values: &[(&str, CacheSpace)],
    arguments: &Arguments<'_>,
) -> Result<(), DirectiveFault> {
    for (at, (name, value)) in values.iter().enumerate() {
        for (next, larger) in values.iter().skip(at + 1) {
            let is_ordered = match (value, larger) {
                (CacheSpace::Share(value), CacheSpace::Share(larger)) => value < larger,
                (CacheSpace::Bytes(value), CacheSpace::Bytes(larger)) => value < larger,
                _ => true,
            };
            if !is_ordered {
                let what = format!("the {name} value must be less than the {next} one");
                return Err(DirectiveFault::at(token, what, format!("allowed: {}", arguments.grammar)));
            }
        }
    }
    Ok(())
}

/// A flag.
pub(super) fn path_commands(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    draft.finish(arguments);
    draft.effective.proxy.cache.path_commands.set(true, arguments.origin());
    Ok(())
}

/// `[recheck {off|time}] [world|group]`: clients on this machine read complete files without the server.
pub(super) fn direct_access(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    while let Some(token) = arguments.next() {
        match token.text.as_str() {
            "group" | "world" => {
                let why =
                    "the files keep the mode 0600, and clients with the account of the server read them";
                part_without_effect(arguments, token, why, draft);
            }
            "recheck" => {
                if arguments.take("off").is_none() {
                    arguments.time("recheck", between(RECHECK_MIN, DAY))?;
                }
                part_without_effect(arguments, token, "each open looks whether the file is complete", draft);
            }
            _ => draft.unknown_option(arguments, token),
        }
    }
    draft.effective.proxy.cache.direct_reads.set(true, arguments.origin());
    Ok(())
}

/// `libXrdPfcPurgeQuota.so file`: quotas of directories.
pub(super) fn purge_library(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let token = arguments.need("purge library")?;
    if base_name(&token.text) != "libXrdPfcPurgeQuota" {
        // Of another one, nothing is known.
        return needed(arguments, draft);
    }
    let path = arguments.path("purge quota file")?;
    draft.finish(arguments);
    draft.effective.proxy.cache.quota_file.set(Some(PathBuf::from(path)), arguments.origin());
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
    if *values.direct_reads && !effective.has_direct_reads() {
        let what = match (*values.enabled, *effective.authorization.enabled) {
            (true, true) => "pss.dca has no effect with ofs.authorize, which decides for each client",
            (true, false) => "pss.dca has no effect with xrootd.seclib, which asks each client for a login",
            (false, _) => "pss.dca has no effect without a disk cache",
        };
        report.add(ProblemKind::NoEffect, values.direct_reads.origin.clone(), what, "");
    }
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
