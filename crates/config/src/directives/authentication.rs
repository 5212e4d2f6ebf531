//! Directives of authentication and signing: `xrootd.seclib`, `sec.`.
//!
//! Protocols without an implementation stop the start. So does a directive that asks for
//! authentication while `xrootd.seclib`, which enables all of them, is missing.

use super::arguments::Arguments;
use super::draft::Draft;
use super::fault::DirectiveFault;
use super::grid_login::gsi_options;
use super::kerberos_login::krb5_options;
use super::password_login::pwd_options;
use super::protocol_parameters::{PendingParameters, ProtocolParameters};
use super::shared::trace;
use super::token_login::ztn_options;
use crate::effective::{
    AUTH_PROTOCOLS_MAX, AuthBinding, AuthProtocol, HostPattern, SecurityConfig, SigningLevel, SigningRule,
    SssOptions,
};
use crate::language::DirectiveToken;
use crate::report::{ConfigReport, ProblemKind};
use crate::setting::{Origin, Setting};
use crate::values;
use std::path::PathBuf;
use std::time::Duration;

/// The id of the protocol without credentials.
const HOST: &str = AuthProtocol::HOST_ID;

/// Ids of the protocols that are in force.
const IN_FORCE: [&str; 7] = [HOST, "unix", "sss", "ztn", "krb5", "gsi", "pwd"];

/// The allowed ids, for messages.
const ALLOWED_IDS: &str = "allowed: host, unix, sss, ztn, krb5, gsi, pwd";

/// Maximum length of a protocol id in characters.
const ID_CHARS_MAX: usize = 7;

/// Maximum length of the parameters of one protocol in bytes.
const PARAMETER_BYTES_MAX: usize = 4096;

/// Minimum length of a forwarded protocol's id.
const FORWARDED_ID_MIN: usize = 2;

/// The options of `sec.trace`.
const TRACE_OPTIONS: &[&str] = &["debug", "auth", "authentication"];

/// `{default|path}`.
pub(super) fn library(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let token = arguments.need("security library")?;
    let base = token.text.rsplit('/').next().unwrap_or_default();
    let is_known = base.strip_prefix("libXrdSec").is_some_and(|rest| rest.starts_with(['.', '-']));
    if token.text != "default" && !is_known {
        let what = format!("unsupported library '{}'", token.text);
        let allowed = "authentication is built in; use xrootd.seclib default";
        return Err(DirectiveFault::at(token, what, allowed).of(ProblemKind::ForeignLibrary));
    }
    draft.effective.security.enabled = Setting::new(true, arguments.origin());
    draft.finish(arguments);
    Ok(())
}

/// `[/libdir] name [parameters]`.
pub(super) fn protocol(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let mut token = arguments.need("protocol name")?;
    if token.text.starts_with('/') {
        token = arguments.need("protocol name")?;
    }
    check_id(token)?;
    if draft.effective.security.protocols.len() >= AUTH_PROTOCOLS_MAX {
        let what = format!("more than {AUTH_PROTOCOLS_MAX} protocols");
        return Err(DirectiveFault::at(token, what, ""));
    }
    let known = draft.effective.security.protocols.iter().find(|known| known.id() == token.text);
    if let Some(known) = known.cloned() {
        let what = format!("{}: {} is named twice, and is offered twice", arguments.name.text, token.text);
        draft.note(ProblemKind::Doubtful, token, what, "its first options apply");
        draft.effective.security.protocols.push(Setting::new(known.value, arguments.origin()));
        return Ok(());
    }
    let mut options = draft.parameters.take(&token.text);
    options.extend(arguments.rest().iter().cloned());
    let protocol = match token.text.as_str() {
        HOST => without_options(&options, AuthProtocol::Host)?,
        "unix" => without_options(&options, AuthProtocol::Unix)?,
        "ztn" => AuthProtocol::Ztn(ztn_options(&options, draft)?),
        "gsi" => AuthProtocol::Gsi(Box::new(gsi_options(&options)?)),
        "krb5" => AuthProtocol::Krb5(krb5_options(token, &options)?),
        "pwd" => AuthProtocol::Pwd(pwd_options(&options, draft)?),
        _ => AuthProtocol::Sss(sss_options(&options)?),
    };
    draft.effective.security.protocols.push(Setting::new(protocol, arguments.origin()));
    Ok(())
}

/// `name parameters`, before the `sec.protocol` of that name.
pub(super) fn parameters(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let token = arguments.need("protocol name")?;
    check_id(token)?;
    arguments.peek().map_or_else(|| arguments.need("protocol parameter").map(drop), |_| Ok(()))?;
    if draft.effective.security.protocols.iter().any(|known| known.id() == token.text) {
        let what = format!("{}: it follows sec.protocol {}", arguments.name.text, token.text);
        draft.note(ProblemKind::Ignored, token, what, "move it before that line");
        return Ok(());
    }
    let tokens = arguments.rest().to_vec();
    let bytes: usize = tokens.iter().map(|token| token.text.len() + 1).sum();
    if draft.parameters.bytes_of(&token.text) + bytes > PARAMETER_BYTES_MAX {
        let what = format!("the parameters of {} exceed {PARAMETER_BYTES_MAX} bytes", token.text);
        return Err(DirectiveFault::at(token, what, ""));
    }
    draft.parameters.add(PendingParameters { id: token.text.clone(), origin: arguments.origin(), tokens });
    Ok(())
}

/// `{host|*} {none|[only] protocol…}`.
pub(super) fn binding(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let token = arguments.need("protbind host")?;
    let invalid =
        || DirectiveFault::at(token, format!("invalid host pattern '{}'", token.text), "one * at most");
    let hosts = HostPattern::parse(&token.text).ok_or_else(invalid)?;
    if let Some(other) = draft.effective.security.bindings.iter().find(|known| known.hosts == hosts) {
        let what = format!("'{}' is bound twice", token.text);
        return Err(DirectiveFault::at(token, what, format!("it is bound at {}", other.origin)));
    }
    let only = arguments.take("only").is_some();
    let mut token = arguments.need("protbind protocol")?;
    let mut protocols = Vec::new();
    if token.text == "none" && !only {
        if let Some(more) = arguments.next() {
            let what = format!("'{}' follows none", more.text);
            return Err(DirectiveFault::at(more, what, format!("allowed: {}", arguments.grammar)));
        }
    } else {
        loop {
            check_id(token)?;
            protocols.push(token.text.clone());
            match arguments.next() {
                Some(next) => token = next,
                None => break,
            }
        }
        if protocols.len() > 1 && protocols.iter().any(|id| id == HOST) {
            let what = format!("{}: host cancels the other protocols of its list", arguments.name.text);
            draft.note(ProblemKind::Doubtful, arguments.name, what, "these hosts need no authentication");
            protocols = vec![HOST.to_owned()];
        }
    }
    let binding = AuthBinding { hosts, protocols, only };
    draft.effective.security.bindings.push(Setting::new(binding, arguments.origin()));
    Ok(())
}

/// `{enforce|offer}`.
pub(super) fn binding_mode(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let token = arguments.need("bind mode")?;
    let offers = match token.text.as_str() {
        "enforce" => false,
        "offer" => true,
        _ => return Err(arguments.invalid(token, "bind mode")),
    };
    draft.effective.security.binding_offers = Setting::new(offers, arguments.origin());
    draft.finish(arguments);
    Ok(())
}

/// `[all|local|remote] [relaxed] level [force]`.
pub(super) fn level(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let scope = ["all", "local", "remote"].into_iter().find(|word| arguments.take(word).is_some());
    let relaxed = arguments.take("relaxed").is_some();
    let token = arguments.need("security level")?;
    let level = SigningLevel::from_name(&token.text);
    let level = level.ok_or_else(|| arguments.invalid(token, "security level"))?;
    let force = arguments.take("force").is_some();
    if let Some(more) = arguments.next() {
        return Err(arguments.invalid(more, "security level modifier"));
    }
    let rule = SigningRule { level, relaxed, force };
    let mut levels = draft.effective.security.signing.value;
    if scope != Some("remote") {
        levels.local = rule;
    }
    if scope != Some("local") {
        levels.remote = rule;
    }
    draft.effective.security.signing.set(levels, arguments.origin());
    Ok(())
}

/// `{off|on}`.
pub(super) fn signed_data(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let token = arguments.need("signature of data")?;
    let is_signed = match token.text.as_str() {
        "off" => false,
        "on" => true,
        _ => return Err(arguments.invalid(token, "signature of data")),
    };
    draft.effective.security.signed_data = Setting::new(is_signed, arguments.origin());
    draft.finish(arguments);
    Ok(())
}

/// `{all|debug|auth|authentication|off|-option}…`.
pub(super) fn security_trace(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let value = trace(arguments, TRACE_OPTIONS, draft)?;
    draft.effective.security.trace = Setting::new(value, arguments.origin());
    Ok(())
}

/// Returns the bindings whose hosts all match an earlier one, which therefore never apply. `*` is for
/// hosts that no other binding matches, and `localhost` stands for the name of the server's own host.
fn hidden_bindings(
    bindings: &[Setting<AuthBinding>],
) -> impl Iterator<Item = (&Setting<AuthBinding>, &Setting<AuthBinding>)> {
    let is_pattern = |binding: &Setting<AuthBinding>| !matches!(binding.hosts.as_str(), "*" | "localhost");
    bindings.iter().enumerate().filter_map(move |(index, binding)| {
        let earlier = bindings.iter().take(index).filter(|earlier| is_pattern(earlier));
        let mut earlier = earlier.filter(|_| is_pattern(binding));
        earlier.find(|earlier| earlier.hosts.covers(&binding.hosts)).map(|other| (binding, other))
    })
}

/// Checks the directives against each other, after the whole file was read.
pub(crate) fn check_security(
    security: &SecurityConfig,
    parameters: ProtocolParameters,
    report: &mut ConfigReport,
) {
    let mut add = |kind, origin: &Origin, what: String, allowed: &str| {
        report.add(kind, origin.clone(), what, allowed);
    };
    for pending in parameters.into_rest() {
        let what = format!("sec.protparm: there is no sec.protocol {} after it", pending.id);
        add(ProblemKind::BadValue, &pending.origin, what, "add that line, or remove the parameters");
    }
    for binding in &security.bindings {
        let missing = |id: &&String| *id != HOST && !security.protocols.iter().any(|known| known.id() == *id);
        if let Some(id) = binding.protocols.iter().find(missing) {
            let what = format!("sec.protbind: there is no sec.protocol {id}");
            add(ProblemKind::BadValue, &binding.origin, what, "add that line, or remove the protocol here");
        }
    }
    for (binding, other) in hidden_bindings(&security.bindings) {
        let (hidden, covering) = (binding.hosts.as_str(), other.hosts.as_str());
        let what = format!(
            "sec.protbind: '{hidden}' never applies, because '{covering}' ({}) covers it",
            other.origin
        );
        add(ProblemKind::Doubtful, &binding.origin, what, "move it before that line, or remove it");
    }
    let signing = &security.signing;
    if signing.local.level > signing.remote.level {
        let what = format!(
            "sec.level: local clients must sign more ({}) than remote ones ({})",
            signing.local.level.name(),
            signing.remote.level.name()
        );
        add(ProblemKind::Doubtful, &signing.origin, what, "usually it is the other way round");
    }
    if *security.signed_data && signing.remote.level.max(signing.local.level) < SigningLevel::Intense {
        let what = "sec.signdata: no client has to sign writes".to_owned();
        let allowed = "add sec.level intense, or remove this line";
        add(ProblemKind::BadValue, &security.signed_data.origin, what, allowed);
    }
    if security.enabled.value {
        return;
    }
    let protocol = security.protocols.iter().find(|known| known.value != AuthProtocol::Host);
    let signing = signing.is_in_force().then_some(("sec.level", &signing.origin));
    let demand = protocol.map(|known| ("sec.protocol", &known.origin)).or(signing);
    if let Some((name, origin)) = demand {
        let what = format!("{name}: clients do not authenticate, because xrootd.seclib is missing");
        let allowed = "add xrootd.seclib default, or remove this line if everybody may have what it protects";
        add(ProblemKind::Unprotected, origin, what, allowed);
    }
}

/// Checks a protocol id.
pub(super) fn check_id(token: &DirectiveToken) -> Result<(), DirectiveFault> {
    let id = token.text.as_str();
    if IN_FORCE.contains(&id) {
        return Ok(());
    }
    let well_formed = id.len() <= ID_CHARS_MAX && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let what = if well_formed { "unknown" } else { "invalid" };
    Err(DirectiveFault::at(token, format!("{what} protocol '{id}'"), ALLOWED_IDS))
}

fn without_options(
    options: &[DirectiveToken],
    protocol: AuthProtocol,
) -> Result<AuthProtocol, DirectiveFault> {
    match options.first() {
        None => Ok(protocol),
        Some(token) => {
            let what = format!("unknown option '{}' of {}", token.text, protocol.id());
            Err(DirectiveFault::at(token, what, format!("{} has no options", protocol.id())))
        }
    }
}

/// Reads the options of sss.
fn sss_options(tokens: &[DirectiveToken]) -> Result<SssOptions, DirectiveFault> {
    let mut options = SssOptions::default();
    let mut rest = tokens.iter();
    while let Some(token) = rest.next() {
        let mut value = |what: &str| {
            rest.next().ok_or_else(|| {
                DirectiveFault::at(token, format!("{what} of sss option '{}' not specified", token.text), "")
            })
        };
        match token.text.as_str() {
            "-c" | "--clientkt" => options.client_keytab = Some(value("path")?.text.clone()),
            "-s" | "-serverkt" | "--serverkt" => {
                options.server_keytab = Some(PathBuf::from(values::path(value("path")?, "sss keytab")?));
            }
            "-e" | "--encrypt" => {
                let cipher = value("cipher")?;
                if cipher.text != "bf32" {
                    let what = format!("unknown cipher '{}' of sss", cipher.text);
                    return Err(DirectiveFault::at(cipher, what, "allowed: bf32"));
                }
            }
            "-g" | "--getcreds" => options.wants_credentials = true,
            "-k" | "--keyname" => options.checks_key_name = true,
            "-l" | "--lifetime" => options.lifetime = minutes(value("time")?, "sss lifetime", 1)?,
            "-r" | "--rfresh" | "--refresh" => options.refresh = minutes(value("time")?, "sss refresh", 10)?,
            "-p" | "--proxy" => options.forwarded_protocols = forwarded(value("protocols")?)?,
            text => {
                let what = format!("unknown option '{text}' of sss");
                let allowed =
                    "allowed: -c path, -s path, -e bf32, -g, -k, -l minutes, -p protocol[:…], -r minutes";
                return Err(DirectiveFault::at(token, what, allowed));
            }
        }
    }
    Ok(options)
}

/// Reads a number of minutes.
fn minutes(token: &DirectiveToken, what: &str, least: u32) -> Result<Duration, DirectiveFault> {
    /// A year.
    const MINUTES_MAX: u32 = 366 * 24 * 60;
    let minutes = values::count32(token, what, least, MINUTES_MAX)?;
    Ok(Duration::from_secs(60 * u64::from(minutes)))
}

/// Reads `protocol[:protocol…]`.
fn forwarded(token: &DirectiveToken) -> Result<Vec<String>, DirectiveFault> {
    let ids: Vec<String> = token.text.split(':').map(str::to_owned).collect();
    let fits = |id: &String| {
        (FORWARDED_ID_MIN..=ID_CHARS_MAX).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    if ids.iter().all(fits) {
        return Ok(ids);
    }
    let what = format!("invalid list of protocols '{}'", token.text);
    Err(DirectiveFault::at(token, what, "allowed: names of 2 to 7 letters and digits, separated by colons"))
}
