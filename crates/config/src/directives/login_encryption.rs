//! `sec.bindtls`: authentication protocols that are limited to encrypted connections.

use super::arguments::Arguments;
use super::authentication::check_id;
use super::draft::Draft;
use super::fault::DirectiveFault;
use crate::effective::{AuthProtocol, Effective};
use crate::report::{ConfigReport, ProblemKind};
use crate::setting::Setting;

/// `protocol…`. Several directives add up.
pub(super) fn tls_binding(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let mut token = arguments.need("protocol name")?;
    loop {
        check_id(token)?;
        if token.text == AuthProtocol::HOST_ID {
            let allowed = "it has no credentials to protect; xrootd.tls login encrypts all logins";
            return Err(DirectiveFault::at(token, "'host' cannot be limited to TLS".to_owned(), allowed));
        }
        let ids = &mut draft.effective.security.tls_protocols;
        if !ids.iter().any(|known| known.value == token.text) {
            ids.push(Setting::new(token.text.clone(), arguments.origin()));
        }
        match arguments.next() {
            Some(next) => token = next,
            None => return Ok(()),
        }
    }
}

/// Reports protocols of `sec.bindtls` that are not configured, or that no client could use because
/// the server has no certificate.
pub(crate) fn check_tls_protocols(effective: &Effective, report: &mut ConfigReport) {
    let security = &effective.security;
    for id in &security.tls_protocols {
        let mut add = |what: String, allowed: &str| {
            report.add(ProblemKind::BadValue, id.origin.clone(), format!("sec.bindtls: {what}"), allowed);
        };
        if !security.protocols.iter().any(|known| known.id() == id.value) {
            let what = format!("there is no sec.protocol {}", id.value);
            add(what, "add that line, or remove the protocol here");
        } else if *security.enabled && effective.network.tls.is_none() {
            let what = format!("no client can authenticate by {}, because xrd.tls is missing", id.value);
            add(what, "add xrd.tls with the certificate and key of this host, or remove this line");
        }
    }
}
