//! Options of `sec.protocol gsi`, the login with grid certificates, and the directives `gsi.`.
//!
//! Options have the form `-name:value`. One that is not in force stops the start, because it asks for a
//! restriction or a right that the server would not give.

use super::arguments::Arguments;
use super::draft::Draft;
use super::fault::DirectiveFault;
use super::grid_plugins::{GridPluginDraft, is_plugin_option};
use super::gsi_fault::{invalid, unknown};
use super::third_party::add_sources;
use super::voms::VomsDraft;
use crate::effective::{
    AuthProtocol, AuthorityCheck, CopySources, Effective, GridCipher, GridExport, GridForwarding,
    GridLimited, GridMapping, GsiOptions, RevocationCheck,
};
use crate::language::DirectiveToken;
use crate::report::{ConfigReport, ProblemKind};
use crate::setting::Setting;
use crate::values;
use std::path::PathBuf;
use std::time::Duration;

/// Options that are in force only with the value that turns them off.
const OFF_ONLY: [(&str, &[&str]); 1] = [("-trustdns", &["0", "false"])];

/// The reason, and the remedy.
const NO_DNS: &str = "remove it: clients compare names of servers with the URL, because answers of the name service \
                      can be forged";

/// The file of `-exppxy:=default`.
const EXPORT_DEFAULT: &str = "/tmp/x509up_u<uid>";
/// Parts of a file name that the client determines; the first two tell users apart.
const EXPORT_VARIABLES: [&str; 5] = ["<user>", "<uid>", "<host>", "<vo>", "<group>"];

/// Digests that can be offered. The choice has no effect.
const DIGESTS: [&str; 5] = ["sha256", "sha384", "sha512", "sha1", "md5"];

/// Maximum size of an RSA key in bits.
const KEY_BITS_MAX: u32 = 8192;

/// Reads the options of gsi.
pub(super) fn gsi_options(tokens: &[DirectiveToken]) -> Result<GsiOptions, DirectiveFault> {
    let mut options = GsiOptions::default();
    let mut voms = VomsDraft::default();
    let mut plugins = GridPluginDraft::default();
    for token in tokens {
        let (name, value) = match token.text.split_once(':') {
            Some((name, value)) => (name, Some(value)),
            None => (token.text.as_str(), None),
        };
        if let Some((_, off)) = OFF_ONLY.iter().find(|(known, _)| *known == name) {
            if value.is_some_and(|value| off.contains(&value)) {
                continue;
            }
            return Err(DirectiveFault::at(token, format!("'{}' is not supported", token.text), NO_DNS)
                .of(ProblemKind::Unsupported));
        }
        match (name, value) {
            (_, Some(value)) if is_plugin_option(name) => plugins.take(token, name, value)?,
            (_, Some(value)) if name.starts_with("-voms") => voms.take(token, name, value)?,
            ("-moninfo", _) => options.monitors_subject = value != Some("0"),
            ("-defaulthash", None) => options.new_hash_only = true,
            ("-authzpxy", _) => options.forwarding = Some(forwarding(token, value)?),
            (_, Some(value)) if !value.is_empty() => take(&mut options, token, name, value)?,
            _ => return Err(unknown(token)),
        }
    }
    options.voms = voms.finish();
    plugins.finish(&mut options)?;
    Ok(options)
}

/// Takes an option with a value.
fn take(
    options: &mut GsiOptions,
    token: &DirectiveToken,
    name: &str,
    value: &str,
) -> Result<(), DirectiveFault> {
    match name {
        "-certdir" => options.authorities = paths(token, value)?,
        "-cert" => options.certificate = path(token, value)?,
        "-key" => options.key = path(token, value)?,
        "-c" if value.split(':').any(|module| module == "ssl") => {}
        "-cipher" => options.ciphers = ciphers(token, value)?,
        "-md" => options.digests = digests(token, value)?,
        "-ca" => {
            let found = by_name_or_number(&AuthorityCheck::ALL, value);
            options.authority_check =
                found.ok_or_else(|| invalid(token, "noverify, verifyss, verify, 0 to 2"))?;
        }
        "-crl" => (options.revocation, options.downloads_lists) = revocation(token, value)?,
        "-crldir" => options.revocation_directories = paths(token, value)?,
        "-crlext" if value.starts_with('.') && !value.contains('/') => {
            options.revocation_extension = value.to_owned();
        }
        "-crlrefresh" => options.refresh = seconds(token, value)?,
        "-gridmap" => options.map = Some(path(token, value)?),
        "-gmapopt" => (options.mapping, options.names_by_subject) = mapping(token, value)?,
        "-gmapto" => options.map_refresh = seconds(token, value)?,
        "-dlgpxy" => {
            options.asks_for_proxy = match value {
                "ignore" | "0" => false,
                "request" | "1" => true,
                _ => return Err(invalid(token, "ignore, request, 0, 1")),
            }
        }
        "-exppxy" => options.export = Some(export(token, value)?),
        "-showdn" if ["0", "1"].contains(&value) => options.logs_subject = value == "1",
        "-d" if ["0", "1", "2", "3"].contains(&value) => {}
        _ => return Err(unknown(token)),
    }
    Ok(())
}

/// Returns the value with this name, or with this number in the table.
fn by_name_or_number<T: Copy>(all: &[(&str, T)], text: &str) -> Option<T> {
    let numbered = all.iter().enumerate();
    numbered
        .into_iter()
        .find(|(number, (name, _))| *name == text || number.to_string() == text)
        .map(|(_, (_, value))| *value)
}

/// Returns the use of revocation lists, and whether they are downloaded.
fn revocation(token: &DirectiveToken, value: &str) -> Result<(RevocationCheck, bool), DirectiveFault> {
    match value {
        "12" | "use,updt" => return Ok((RevocationCheck::Use, true)),
        "13" | "require,updt" => return Ok((RevocationCheck::Require, true)),
        _ => {}
    }
    let found = by_name_or_number(&RevocationCheck::ALL, value);
    let found = found.ok_or_else(|| {
        invalid(token, "ignore, try, use, require, 0 to 3; use,updt and require,updt, or 12 and 13")
    })?;
    Ok((found, false))
}

fn mapping(token: &DirectiveToken, value: &str) -> Result<(GridMapping, bool), DirectiveFault> {
    match value {
        "10" => return Ok((GridMapping::Off, true)),
        "11" => return Ok((GridMapping::Try, true)),
        _ => {}
    }
    let (word, by_subject) = match value.split_once(',') {
        Some((word, "usedn")) => (word, true),
        Some(_) => ("", false),
        None => (value, false),
    };
    let found = by_name_or_number(&GridMapping::ALL, word);
    let found = found.ok_or_else(|| invalid(token, "nomap, trymap, usemap, with ,usedn, 0 to 2, 10, 11"))?;
    Ok((found, by_subject))
}

fn ciphers(token: &DirectiveToken, value: &str) -> Result<Vec<GridCipher>, DirectiveFault> {
    let cipher =
        |name: &str| GridCipher::from_name(name).ok_or_else(|| invalid(token, "aes-256-cbc, aes-128-cbc"));
    value.split(':').map(cipher).collect()
}

fn digests(token: &DirectiveToken, value: &str) -> Result<Vec<String>, DirectiveFault> {
    let digest = |name: &str| match DIGESTS.contains(&name) {
        true => Ok(name.to_owned()),
        false => Err(invalid(token, &DIGESTS.join(", "))),
    };
    value.split(':').map(digest).collect()
}

fn forwarding(token: &DirectiveToken, value: Option<&str>) -> Result<GridForwarding, DirectiveFault> {
    let Some(value) = value else { return Ok(GridForwarding::default()) };
    let (field, part) = value.split_once('=').unwrap_or((value, "lastcert"));
    let as_endorsements = match field {
        "creds" => false,
        "endor" => true,
        _ => return Err(invalid(token, "{creds|endor}={fullchain|lastcert}")),
    };
    match part {
        "fullchain" => Ok(GridForwarding { as_endorsements, is_full: true }),
        "lastcert" => Ok(GridForwarding { as_endorsements, is_full: false }),
        _ => Err(invalid(token, "{creds|endor}={fullchain|lastcert}")),
    }
}

/// Reads the place of delegated proxies.
fn export(token: &DirectiveToken, value: &str) -> Result<GridExport, DirectiveFault> {
    let template = match value {
        "=creds" => return Ok(GridExport::Credentials),
        "=default" => EXPORT_DEFAULT.to_owned(),
        template => path(token, template)?.display().to_string(),
    };
    let rest = EXPORT_VARIABLES.iter().fold(template.clone(), |rest, name| rest.replace(name, ""));
    let tells_apart = EXPORT_VARIABLES.iter().take(2).any(|name| template.contains(name));
    if rest.contains(['<', '>']) || !tells_apart {
        let allowed = "=creds, =default, or a path with <user> or <uid>, also with <host>, <vo>, <group>";
        return Err(invalid(token, allowed));
    }
    Ok(GridExport::File(template))
}

fn path(token: &DirectiveToken, value: &str) -> Result<PathBuf, DirectiveFault> {
    let part = DirectiveToken { text: value.to_owned(), ..token.clone() };
    values::path(&part, "gsi").map(PathBuf::from)
}

fn paths(token: &DirectiveToken, value: &str) -> Result<Vec<PathBuf>, DirectiveFault> {
    value.split(',').map(|one| path(token, one)).collect()
}

fn seconds(token: &DirectiveToken, value: &str) -> Result<Duration, DirectiveFault> {
    let part = DirectiveToken { text: value.to_owned(), ..token.clone() };
    let seconds = values::count(&part, "gsi time", values::between(1, values::TIME_MAX))?;
    Ok(Duration::from_secs(seconds))
}

/// `{refuse|read|full}`.
pub(super) fn limited(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let token = arguments.need("use of limited proxies")?;
    let found = GridLimited::from_name(&token.text);
    let limited = found.ok_or_else(|| arguments.invalid(token, "use of limited proxies"))?;
    draft.effective.security.grid_limited = Setting::new(limited, arguments.origin());
    draft.finish(arguments);
    Ok(())
}

/// `rfc [legacy]`.
pub(super) fn proxy_types(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let token = arguments.need("proxy type")?;
    let legacy = match (token.text.as_str(), arguments.peek()) {
        ("rfc", Some("legacy")) => arguments.next().is_some(),
        ("rfc", None) => false,
        ("legacy", None) => true,
        _ => return Err(arguments.invalid(token, "proxy type")),
    };
    draft.effective.security.grid_legacy = Setting::new(legacy, arguments.origin());
    draft.finish(arguments);
    Ok(())
}

/// `{allow|deny} {loopback|linklocal|private|pattern}…`.
pub(super) fn list_sources(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let mut value = draft.effective.security.grid_list_sources.value.clone();
    add_sources(arguments, &mut value)?;
    draft.effective.security.grid_list_sources.set(value, arguments.origin());
    Ok(())
}

/// Reports sources of revocation lists that no `sec.protocol gsi` downloads.
pub(crate) fn check_list_sources(effective: &Effective, report: &mut ConfigReport) {
    let security = &effective.security;
    let downloads = |protocol: &Setting<AuthProtocol>| match &protocol.value {
        AuthProtocol::Gsi(options) => options.downloads_lists,
        _ => false,
    };
    let sources = &security.grid_list_sources;
    if sources.value == CopySources::default() || security.protocols.iter().any(downloads) {
        return;
    }
    let what = "gsi.crlsource has no effect, because no revocation lists are downloaded";
    let allowed = "add -crl:use,updt to sec.protocol gsi, or remove it";
    report.add_about("gsi.crlsource", ProblemKind::Doubtful, sources.origin.clone(), what, allowed);
}

/// `bits`.
pub(super) fn key_bits(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let bits = arguments.count("key size", crate::effective::GRID_KEY_BITS, KEY_BITS_MAX)?;
    draft.effective.security.grid_key_bits = Setting::new(bits, arguments.origin());
    draft.finish(arguments);
    Ok(())
}

/// `olddh pattern`.
pub(super) fn old_clients(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let mode = arguments.need("mode")?;
    if mode.text != "olddh" {
        return Err(arguments.invalid(mode, "mode"));
    }
    let pattern = arguments.need("host pattern")?.text.clone();
    draft.finish(arguments);
    let old = &mut draft.effective.security.grid_old_clients;
    let mut patterns = old.value.clone();
    patterns.push(pattern);
    old.set(patterns, arguments.origin());
    Ok(())
}

/// Reports hosts of old clients that no `sec.protocol gsi` knows.
pub(crate) fn check_old_clients(effective: &Effective, report: &mut ConfigReport) {
    let security = &effective.security;
    let has_gsi = security.protocols.iter().any(|protocol| matches!(protocol.value, AuthProtocol::Gsi(_)));
    if security.grid_old_clients.is_empty() || has_gsi && *security.enabled {
        return;
    }
    let what = "gsi.compat has no effect, because no client can log in by gsi";
    let allowed = "add xrootd.seclib default and sec.protocol gsi, or remove it";
    let origin = security.grid_old_clients.origin.clone();
    report.add_about("gsi.compat", ProblemKind::Doubtful, origin, what, allowed);
}
