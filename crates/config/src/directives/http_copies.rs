//! `http.exthandler`, and the directives of third-party copies over HTTP: `tpc.`, `http.cadir` and `http.cafile`.

use super::arguments::Arguments;
use super::draft::Draft;
use super::fault::DirectiveFault;
use super::libraries::base_name;
use super::shared::apply_not_yet;
use crate::effective::HttpCopyTimes;
use crate::values::{self, between};
use std::path::PathBuf;
use std::time::Duration;

/// The library of third-party copies.
const COPY_LIBRARY: &str = "libXrdHttpTPC";

/// The library that issues macaroons.
const MACAROON_LIBRARY: &str = "libXrdMacaroons";

/// `http.exthandler name [+notls] library [parameters]`. The handlers of copies and of macaroons are built in;
/// others are not in force. Without `+notls` a handler needs a certificate.
pub(super) fn handler(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    arguments.need("name")?;
    let mut token = arguments.need("library")?;
    let mut without_tls = false;
    while token.text.starts_with('+') {
        without_tls |= token.text == "+notls";
        token = arguments.need("library")?;
    }
    let http = &mut draft.effective.http;
    match base_name(&token.text) {
        COPY_LIBRARY => {
            http.copies.set(true, arguments.origin());
            http.copies_without_tls = without_tls;
        }
        MACAROON_LIBRARY => {
            http.macaroons.set(true, arguments.origin());
            http.macaroons_without_tls = without_tls;
        }
        _ => return apply_not_yet(arguments, draft),
    }
    // The parameters of the libraries are those of `tpc.` and `macaroons.` directives.
    while arguments.next().is_some() {}
    Ok(())
}

/// `tpc.allow {local|private}`.
pub(super) fn allow(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    networks(arguments, draft, true)
}

/// `tpc.deny {local|private}`.
pub(super) fn deny(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    networks(arguments, draft, false)
}

fn networks(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
    allows: bool,
) -> Result<(), DirectiveFault> {
    let token = arguments.need("network")?;
    let mut networks = *draft.effective.http.copy_networks;
    match token.text.as_str() {
        "local" => networks.local = Some(allows),
        "private" => networks.private = Some(allows),
        _ => return Err(arguments.invalid(token, "network")),
    }
    draft.effective.http.copy_networks.set(networks, arguments.origin());
    draft.finish(arguments);
    Ok(())
}

/// `tpc.timeout time [first]`.
pub(super) fn timeout(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let range = || between(1, values::TIME_MAX);
    let stall = arguments.time("tpc.timeout", range())?;
    let first = match arguments.peek() {
        Some(_) => arguments.time("tpc.timeout", range())?,
        None => stall.saturating_mul(2).min(Duration::from_secs(u64::from(u32::MAX))),
    };
    draft.effective.http.copy_times.set(HttpCopyTimes { stall, first }, arguments.origin());
    draft.finish(arguments);
    Ok(())
}

/// `http.cadir path`.
pub(super) fn authority_directory(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let path = PathBuf::from(arguments.path("http.cadir")?);
    draft.effective.http.authority_directory.set(Some(path), arguments.origin());
    draft.finish(arguments);
    Ok(())
}

/// `http.cafile path`.
pub(super) fn authority_file(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let path = PathBuf::from(arguments.path("http.cafile")?);
    draft.effective.http.authority_file.set(Some(path), arguments.origin());
    draft.finish(arguments);
    Ok(())
}
