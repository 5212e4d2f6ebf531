//! Directives about certificates over HTTP: that of the server (`http.cert`, `http.key`), and those of clients
//! (`http.gridmap`, `http.secxtractor`, `http.tlsclientauth`).

use super::arguments::Arguments;
use super::draft::Draft;
use super::fault::DirectiveFault;
use super::http::note_guard;
use super::shared::{apply_not_yet, option_without_effect};
use super::voms::is_extractor;
use crate::effective::{Effective, HANDSHAKE_TIME, HttpGridMap, TlsCertificate};
use crate::report::{ConfigReport, ProblemKind};
use crate::setting::Setting;
use std::path::PathBuf;

/// Applies `http.cert`.
pub(super) fn certificate(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let path = PathBuf::from(arguments.path("http.cert")?);
    draft.effective.http.certificate.set(Some(path), arguments.origin());
    draft.finish(arguments);
    Ok(())
}

/// Applies `http.key`.
pub(super) fn key(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let path = PathBuf::from(arguments.path("http.key")?);
    draft.effective.http.key.set(Some(path), arguments.origin());
    draft.finish(arguments);
    Ok(())
}

/// Uses the certificate of `http.cert` if there is no `xrd.tls`. Otherwise reports a different one, which is not used.
pub(crate) fn finish_certificate(effective: &mut Effective, report: &mut ConfigReport) {
    let (http, network) = (&effective.http, &mut effective.network);
    let key = http.key.value.clone();
    let Some(certificate) = http.certificate.value.clone() else {
        if effective.serves_http() && key.is_some() {
            let allowed = "name the certificate by http.cert, or both by xrd.tls";
            let what = "http.key: without http.cert it has no effect";
            report.add(ProblemKind::Doubtful, http.key.origin.clone(), what, allowed);
        }
        return;
    };
    if http.ports.is_empty() {
        return;
    }
    let Some(other) = &*network.tls else {
        let value = TlsCertificate { certificate, key, handshake_time: HANDSHAKE_TIME, is_renewed: false };
        network.tls = Setting::new(Some(value), http.certificate.origin.clone());
        return;
    };
    if other.certificate != certificate
        || other.key.as_ref().unwrap_or(&other.certificate) != key.as_ref().unwrap_or(&certificate)
    {
        let what = "http.cert: HTTPS has the certificate of xrd.tls";
        let allowed = "remove http.cert and http.key, or name the same files in both";
        report.add(ProblemKind::Doubtful, http.certificate.origin.clone(), what, allowed);
    }
}

/// `[required] [compatNameGeneration] file`.
pub(super) fn grid_map(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let is_required = arguments.take("required").is_some();
    if let Some(names) = arguments.take("compatNameGeneration") {
        option_without_effect(arguments, names, draft);
    }
    let path = arguments.path("file")?.into();
    draft.finish(arguments);
    draft.effective.http.grid_map.set(Some(HttpGridMap { path, is_required }), arguments.origin());
    Ok(())
}

/// `[required] library [parameters]`. The library for attributes of VOMS stands for the code of this server.
pub(super) fn extractor(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let is_required = arguments.rest().first().is_some_and(|token| token.text == "required");
    let rest = arguments.rest().get(usize::from(is_required)..).unwrap_or_default();
    if rest.is_empty() {
        let _ = arguments.take("required");
        arguments.need("library")?;
    }
    // Parameters select memberships, so without them more would count.
    let is_known = matches!(rest, [library] if is_extractor(&library.text));
    if !is_known {
        if is_required {
            note_guard(arguments, format!("{} required", arguments.name.text), draft);
        }
        return apply_not_yet(arguments, draft);
    }
    if is_required {
        arguments.take("required");
    }
    arguments.need("library")?;
    draft.finish(arguments);
    draft.effective.http.voms.set(Some(is_required), arguments.origin());
    Ok(())
}

/// `{on|off}`.
pub(super) fn client_certificates(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let token = arguments.need("tlsclientauth value")?;
    let is_on = match token.text.as_str() {
        "on" => true,
        "off" => false,
        _ => return Err(arguments.invalid(token, "tlsclientauth value")),
    };
    draft.finish(arguments);
    draft.effective.http.asks_for_certificates.set(is_on, arguments.origin());
    Ok(())
}

/// Reports maps and attributes that do not count, because `sec.protocol gsi` has its own.
pub(super) fn check_certificates(effective: &Effective, report: &mut ConfigReport) {
    let http = &effective.http;
    let is_map_required = http.grid_map.as_ref().map(|map| map.is_required);
    let settings = [
        ("http.gridmap", &http.grid_map.origin, is_map_required),
        ("http.secxtractor", &http.voms.origin, *http.voms),
    ];
    for (name, origin, required) in settings {
        let Some(is_required) = required else { continue };
        let (reason, allowed) = if effective.has_grid_logins() {
            let reason = "sec.protocol gsi decides about the identity of clients with certificates";
            (reason, "remove it, and use -gridmap:, -gmapopt: and -vomsat: of sec.protocol gsi")
        } else if !effective.asks_for_certificates() {
            let reason = "clients are not asked for certificates";
            (reason, "name a certificate by xrd.tls and authorities by xrd.tlsca, or remove it")
        } else {
            continue;
        };
        // It would refuse clients that are accepted now.
        let kind = if is_required { ProblemKind::Unprotected } else { ProblemKind::Doubtful };
        let what = format!("{name} has no effect: {reason}");
        report.add_about(name, kind, origin.clone(), what, allowed);
    }
}
