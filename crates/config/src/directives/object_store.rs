//! Directives of object stores as origins.

use std::path::PathBuf;

use super::arguments::Arguments;
use super::draft::Draft;
use super::fault::DirectiveFault;
use crate::effective::{Effective, StoreKeys, is_section, parse_region, parse_store_endpoint};
use crate::report::{ConfigReport, ProblemKind};
use crate::setting::Setting;

/// `URL`.
pub(super) fn endpoint(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let token = arguments.need("endpoint")?;
    let allowed = || format!("allowed: {}", arguments.grammar);
    let server =
        parse_store_endpoint(&token.text).map_err(|what| DirectiveFault::at(token, what, allowed()))?;
    draft.finish(arguments);
    draft.effective.proxy.store.endpoint.set(Some(server), arguments.origin());
    Ok(())
}

/// `name`.
pub(super) fn region(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let token = arguments.need("region")?;
    let region = parse_region(&token.text).map_err(|what| DirectiveFault::at(token, what, String::new()))?;
    draft.finish(arguments);
    draft.effective.proxy.store.region.set(region, arguments.origin());
    Ok(())
}

/// `path [section]`.
pub(super) fn credentials(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let mut keys = StoreKeys::of(PathBuf::from(arguments.path("s3credentials")?));
    if let Some(token) = arguments.next() {
        if !is_section(&token.text) {
            return Err(arguments.invalid(token, "section"));
        }
        keys.section.clone_from(&token.text);
    }
    draft.finish(arguments);
    draft.effective.proxy.store.keys.set(Some(keys), arguments.origin());
    Ok(())
}

/// Checks that values for object stores have an effect, and that nothing contradicts a bucket.
pub(super) fn check(effective: &Effective, report: &mut ConfigReport) {
    let values = &effective.proxy;
    let has_bucket = values.origin.as_ref().is_some_and(|origin| origin.bucket.is_some());
    if has_bucket {
        if values.host_arena.is_some() {
            let (what, allowed) = ("pss.hostarena: a bucket has none", "use pss.localroot");
            report.add(ProblemKind::Unsupported, values.host_arena.origin.clone(), what, allowed);
        }
        return;
    }
    let mut warn = |name: &str, origin| {
        let what = format!("{name} has no effect, because the origin is no bucket");
        report.add(ProblemKind::Doubtful, origin, what, "set pss.origin s3://BUCKET, or remove it");
    };
    let store = &values.store;
    let is_set = |setting: &Setting<String>| !setting.origin.is_default();
    if store.endpoint.is_some() {
        warn("scalla.s3endpoint", store.endpoint.origin.clone());
    }
    if is_set(&store.region) {
        warn("scalla.s3region", store.region.origin.clone());
    }
    if store.keys.is_some() {
        warn("scalla.s3credentials", store.keys.origin.clone());
    }
}
