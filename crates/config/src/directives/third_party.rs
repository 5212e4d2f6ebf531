//! `ofs.tpc` and `scalla.tpcsource`: third-party copies.
//!
//! Several of these directives accumulate, so each starts from the value of the previous ones. The
//! table is in `ofs`.

use super::arguments::Arguments;
use super::draft::Draft;
use super::fault::DirectiveFault;
use super::shared::{option_not_yet, option_without_effect};
use super::xrootd::target;
use crate::effective::{
    COPY_JOBS_MAX, COPY_STREAMS_MAX, ChecksumKind, CopyAllow, CopyAttribute, CopyCredentials, CopyProgram,
    CopyRedirect, CopyRequire, CopyScan, CopySource, CopySources, HostPattern, ThirdPartyCopy,
};
use crate::language::DirectiveToken;
use crate::values::{self, between};

pub(super) const GRAMMAR: &str = "[allow {dn name|group name|host pattern|vo name}…] [autorm] [cksum type] [echo] \
                                  [fcpath path] [fcreds [?]protocol =variable] [logok] [oids] \
                                  [redirect [delegated|undelegated] host:port [?cgi]] \
                                  [require {all|client|dest} protocol[+]] [restrict path] \
                                  [scan {all|stderr|stdout}] [streams number[,max]] [ttl time [max]] \
                                  [xfr number] [pgm path [argument…]]";

/// The protocol whose credentials clients can delegate.
const GSI: &str = "gsi";

/// Maximum lifetime of a client's permission, in seconds.
const TTL_MAX: u64 = 86_400;

pub(super) fn apply(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let mut value = draft.effective.logical.third_party.value.clone().unwrap_or_default();
    while let Some(token) = arguments.next() {
        match token.text.as_str() {
            "allow" => value.allow.push(allow(arguments, token)?),
            "autorm" => option_without_effect(arguments, token, draft),
            "cksum" => value.checksum = Some(checksum(arguments)?),
            "echo" => value.echo = true,
            "fcpath" => {
                value.credentials_directory = Some(arguments.path("fcpath")?.into());
            }
            "fcreds" => credentials(arguments, token, draft, &mut value)?,
            "logok" => value.log_success = true,
            "oids" => value.object_ids = true,
            "redirect" => value.redirects.push(redirect(arguments, draft)?),
            "require" => value.require.push(require(arguments)?),
            "restrict" => value.restrict.push(arguments.path("restrict")?),
            "scan" => {
                let token = arguments.need("scan value")?;
                value.scan = match token.text.as_str() {
                    "all" => CopyScan::All,
                    "stderr" => CopyScan::Stderr,
                    "stdout" => CopyScan::Stdout,
                    _ => return Err(arguments.invalid(token, "scan value")),
                };
            }
            "streams" => (value.streams, value.streams_max) = streams(arguments.need("streams value")?)?,
            "ttl" => ttl(arguments, &mut value)?,
            "xfr" => value.jobs_max = arguments.count("xfr", 1, COPY_JOBS_MAX)?,
            "pgm" => value.program = Some(program(arguments)?),
            _ => draft.unknown_option(arguments, token),
        }
    }
    draft.effective.logical.third_party.set(Some(value), arguments.origin());
    Ok(())
}

fn allow(arguments: &mut Arguments<'_>, at: &DirectiveToken) -> Result<CopyAllow, DirectiveFault> {
    let mut rule = CopyAllow::default();
    while let Some("dn" | "group" | "host" | "vo") = arguments.peek() {
        let Some(kind) = arguments.next() else { break };
        let name = arguments.need(&format!("allow {} value", kind.text))?;
        match CopyAttribute::of_word(&kind.text) {
            Some(attribute) => rule.attributes.push((attribute, name.text.clone())),
            None => {
                let pattern = HostPattern::parse(&name.text).ok_or_else(|| {
                    DirectiveFault::at(
                        name,
                        format!("invalid host pattern '{}'", name.text),
                        "allowed: at most one '*'",
                    )
                })?;
                rule.host = Some(pattern);
            }
        }
    }
    if rule == CopyAllow::default() {
        return Err(DirectiveFault::at(
            at,
            "allow type not specified",
            "allowed: dn, group, host or vo, and a value",
        ));
    }
    Ok(rule)
}

/// `scalla.tpcsource {allow|deny} {loopback|linklocal|private|pattern}…`.
pub(super) fn sources(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let mut value = draft.effective.logical.copy_sources.value.clone();
    add_sources(arguments, &mut value)?;
    draft.effective.logical.copy_sources.set(value, arguments.origin());
    Ok(())
}

/// Reads `{allow|deny} {loopback|linklocal|private|pattern}…` and adds it to the lists.
pub(super) fn add_sources(
    arguments: &mut Arguments<'_>,
    value: &mut CopySources,
) -> Result<(), DirectiveFault> {
    let which = arguments.need("allow or deny")?;
    let list = match which.text.as_str() {
        "allow" => &mut value.allow,
        "deny" => &mut value.deny,
        _ => {
            return Err(DirectiveFault::at(
                which,
                format!("invalid list '{}'", which.text),
                "allowed: allow, deny",
            ));
        }
    };
    let mut token = arguments.need("source")?;
    loop {
        list.push(match token.text.as_str() {
            "loopback" => CopySource::Loopback,
            "linklocal" => CopySource::LinkLocal,
            "private" => CopySource::Private,
            text => CopySource::Host(HostPattern::parse(text).ok_or_else(|| {
                DirectiveFault::at(
                    token,
                    format!("invalid host pattern '{text}'"),
                    "allowed: at most one '*'",
                )
            })?),
        });
        match arguments.next() {
            Some(next) => token = next,
            None => return Ok(()),
        }
    }
}

fn checksum(arguments: &mut Arguments<'_>) -> Result<ChecksumKind, DirectiveFault> {
    let token = arguments.need("cksum type")?;
    ChecksumKind::from_name(&token.text).ok_or_else(|| {
        let names = ChecksumKind::ALL.map(ChecksumKind::name).join(" ");
        DirectiveFault::at(
            token,
            format!("checksum '{}' is not built in", token.text),
            format!("allowed: {names}"),
        )
    })
}

/// `fcreds [?]protocol =variable`.
fn credentials(
    arguments: &mut Arguments<'_>,
    at: &DirectiveToken,
    draft: &mut Draft<'_>,
    value: &mut ThirdPartyCopy,
) -> Result<(), DirectiveFault> {
    let first = arguments.need("fcreds protocol")?;
    let is_optional = first.text.starts_with('?');
    let protocol = if first.text == "?" { arguments.need("fcreds protocol")? } else { first };
    let variable = arguments.need("fcreds variable")?;
    let name = variable.text.strip_prefix('=').unwrap_or_default();
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Err(DirectiveFault::at(
            variable,
            format!("invalid fcreds variable '{}'", variable.text),
            "allowed: =variable",
        ));
    }
    match protocol.text.trim_start_matches('?') {
        GSI => value.credentials = Some(CopyCredentials { variable: name.to_owned(), is_optional }),
        _ => option_not_yet(arguments, at, draft),
    }
    Ok(())
}

fn redirect(arguments: &mut Arguments<'_>, draft: &Draft<'_>) -> Result<CopyRedirect, DirectiveFault> {
    let (mut delegated, mut undelegated) = (true, true);
    if arguments.take("delegated").is_some() {
        undelegated = false;
    } else if arguments.take("undelegated").is_some() {
        delegated = false;
    }
    let token = arguments.need("redirect target")?;
    let target = target(token, &token.text, draft)?;
    let has_cgi = arguments.peek().is_some_and(|next| next.contains('='));
    let cgi = if has_cgi { arguments.next() } else { None };
    let cgi = cgi.map(|token| token.text.trim_start_matches('?').to_owned()).unwrap_or_default();
    Ok(CopyRedirect { delegated, undelegated, target, cgi })
}

fn require(arguments: &mut Arguments<'_>) -> Result<CopyRequire, DirectiveFault> {
    let who = arguments.need("require entity")?;
    let (client, destination) = match who.text.as_str() {
        "all" => (true, true),
        "client" => (true, false),
        "dest" => (false, true),
        _ => return Err(arguments.invalid(who, "require entity")),
    };
    let token = arguments.need("require protocol")?;
    let encrypted = token.text.ends_with('+');
    let protocol = token.text.trim_end_matches('+').to_owned();
    if protocol.is_empty() {
        return Err(arguments.invalid(token, "require protocol"));
    }
    Ok(CopyRequire { client, destination, protocol, encrypted })
}

fn streams(token: &DirectiveToken) -> Result<(u32, u32), DirectiveFault> {
    let (usual, most) = token.text.split_once(',').unwrap_or((&token.text, ""));
    let number = |text: &str| {
        let number = text.parse::<u32>().ok().filter(|number| *number <= COPY_STREAMS_MAX);
        number.ok_or_else(|| {
            let what = format!("streams '{}' is invalid", token.text);
            DirectiveFault::at(token, what, format!("allowed: number[,max], each at most {COPY_STREAMS_MAX}"))
        })
    };
    let usual = number(usual)?;
    let most = if most.is_empty() { COPY_STREAMS_MAX } else { number(most)? };
    if usual > most {
        let what = format!("streams '{}': the default exceeds the maximum", token.text);
        return Err(DirectiveFault::at(token, what, "allowed: number[,max]"));
    }
    Ok((usual, most))
}

fn ttl(arguments: &mut Arguments<'_>, value: &mut ThirdPartyCopy) -> Result<(), DirectiveFault> {
    value.ttl = arguments.time("ttl", between(1, TTL_MAX))?;
    value.ttl_max = value.ttl_max.max(value.ttl);
    let is_time = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    if arguments.peek().is_some_and(is_time)
        && let Some(token) = arguments.next()
    {
        value.ttl_max = values::time(token, "ttl max", between(value.ttl.as_secs(), TTL_MAX))?;
    }
    Ok(())
}

fn program(arguments: &mut Arguments<'_>) -> Result<CopyProgram, DirectiveFault> {
    let path = arguments.path("pgm")?.into();
    let mut rest = Vec::new();
    while let Some(token) = arguments.next() {
        rest.push(token.text.clone());
    }
    Ok(CopyProgram { path, arguments: rest })
}
