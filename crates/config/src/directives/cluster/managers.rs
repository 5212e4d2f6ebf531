//! `all.role`, `all.manager`, `all.subcluster`: the role of a node, and its managers.
//!
//! The parsers of addresses are here because a command line names managers too.

use crate::directives::arguments::Arguments;
use crate::directives::draft::Draft;
use crate::directives::fault::DirectiveFault;
use crate::directives::shared::option_without_effect;
use crate::effective::{CLUSTER_PORT_DEFAULT, MANAGERS_MAX, ManagerAddress, NodeRole};
use crate::language::DirectiveToken;
use crate::report::ProblemKind;
use crate::setting::Setting;
use crate::values;

pub(crate) fn role(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let first = arguments.need("role")?;
    let words: Vec<&str> =
        std::iter::once(first).chain(arguments.rest()).map(|token| token.text.as_str()).collect();
    let role = match words.as_slice() {
        ["server"] => NodeRole::Server,
        ["supervisor"] => NodeRole::Supervisor,
        ["manager"] => NodeRole::Manager,
        ["meta", "manager"] => NodeRole::MetaManager,
        ["proxy", "server"] => NodeRole::Server,
        ["proxy", "supervisor"] => NodeRole::Supervisor,
        ["proxy", "manager"] => NodeRole::Manager,
        _ => {
            let what = format!("invalid role - {}", words.join(" "));
            return Err(DirectiveFault::at(first, what, format!("allowed: {}", arguments.grammar)));
        }
    };
    draft.effective.cluster.of_proxies = words.first() == Some(&"proxy");
    draft.effective.cluster.role = Setting::new(role, arguments.origin());
    Ok(())
}

pub(crate) fn manager(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let mut first = arguments.need("manager host")?;
    let (mut meta, mut proxy) = (false, false);
    match first.text.as_str() {
        "meta" => meta = true,
        "proxy" => proxy = true,
        "peer" => {
            option_without_effect(arguments, first, draft);
            while arguments.next().is_some() {}
            return Ok(());
        }
        _ => {}
    }
    if meta || proxy {
        first = arguments.need("manager host")?;
    }
    let mut spread = false;
    if matches!(first.text.as_str(), "all" | "any") {
        spread = first.text == "all";
        first = arguments.need("manager host")?;
    }
    let manager = ManagerAddress { spread, ..address(arguments, first, draft)? };
    draft.finish(arguments);
    let origin = arguments.origin();
    let cluster = &mut draft.effective.cluster;
    let list = match (meta, proxy) {
        (true, _) => &mut cluster.meta_managers,
        (_, true) => &mut cluster.proxy_managers,
        _ => &mut cluster.managers,
    };
    if let Some(known) = list.iter().find(|known| known.host == manager.host && known.port == manager.port) {
        let what = format!("duplicate manager {manager}, first defined at {}", known.origin);
        draft.note(ProblemKind::Ignored, first, what, "");
        return Ok(());
    }
    if list.len() >= MANAGERS_MAX {
        let what = format!("more than {MANAGERS_MAX} managers");
        return Err(DirectiveFault::at(first, what, format!("allowed: at most {MANAGERS_MAX}")));
    }
    list.push(Setting::new(manager, origin));
    Ok(())
}

pub(crate) fn subcluster(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let mut first = arguments.need("manager host")?;
    if first.text == "of" {
        first = arguments.need("manager host")?;
    }
    let manager = address(arguments, first, draft)?;
    draft.finish(arguments);
    draft.effective.cluster.subcluster.set(Some(manager), arguments.origin());
    Ok(())
}

/// Parses `host[+]:port[%instance][@site]`, or the same with a blank instead of the colon.
fn address(
    arguments: &mut Arguments<'_>,
    token: &DirectiveToken,
    draft: &Draft<'_>,
) -> Result<ManagerAddress, DirectiveFault> {
    let mut manager = ManagerAddress::new("", 0);
    let (text, instance, site) = suffixes(&token.text);
    let (host, port) = split_port(text).ok_or_else(|| bad(arguments, token))?;
    let (host, every_address) = host.strip_suffix('+').map_or((host, false), |host| (host, true));
    manager.every_address = every_address;
    manager.host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).to_owned();
    (manager.instance, manager.site) = (instance, site);
    let (port_token, port) = match port {
        Some(port) => (token, port),
        None => {
            let Some(next) = arguments.next() else {
                let what = format!("manager port not specified for {}", manager.host);
                return Err(DirectiveFault::at(token, what, format!("allowed: {}", arguments.grammar)));
            };
            let (port, instance, site) = suffixes(&next.text);
            manager.instance = instance.or(manager.instance);
            manager.site = site.or(manager.site);
            (next, port)
        }
    };
    manager.port = values::port(port_token, port, 1, draft.source)?;
    let odd = |c: char| c.is_whitespace() || matches!(c, '/' | '+' | '*' | '[' | ']');
    if manager.host.is_empty() || manager.host.contains(odd) {
        return Err(bad(arguments, token));
    }
    Ok(manager)
}

impl std::str::FromStr for ManagerAddress {
    type Err = String;

    /// Parses `host[:port]` from a command line, with an IPv6 address in brackets.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is not a manager address; expected host, host:port or [address]:port");
        let (host, port) = match text.parse::<std::net::Ipv6Addr>() {
            Ok(_) => (text, None),
            Err(_) => split_port(text).ok_or_else(wrong)?,
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = port.map_or(Ok(CLUSTER_PORT_DEFAULT), |port| port.parse().map_err(|_| wrong()))?;
        let odd = |c: char| c.is_whitespace() || "/+*[]%@".contains(c);
        if host.is_empty() || host.contains(odd) || port == 0 {
            return Err(wrong());
        }
        Ok(Self::new(host, port))
    }
}

/// Splits `%instance` and `@site` off the end.
fn suffixes(text: &str) -> (&str, Option<String>, Option<String>) {
    let cut = |text: &'_ str, mark| -> (usize, Option<String>) {
        match text.split_once(mark) {
            Some((head, tail)) => (head.len(), Some(tail.to_owned()).filter(|tail| !tail.is_empty())),
            None => (text.len(), None),
        }
    };
    let (length, site) = cut(text, '@');
    let text = text.get(..length).unwrap_or(text);
    let (length, instance) = cut(text, '%');
    (text.get(..length).unwrap_or(text), instance, site)
}

/// Splits a host from the port after its colon. An IPv6 address must be in brackets.
fn split_port(text: &str) -> Option<(&str, Option<&str>)> {
    if text.starts_with('[') {
        let end = text.find(']')? + 1;
        let end = if text.get(end..).is_some_and(|rest| rest.starts_with('+')) { end + 1 } else { end };
        let (host, rest) = text.split_at_checked(end)?;
        return match rest.strip_prefix(':') {
            Some(port) => Some((host, Some(port))),
            None if rest.is_empty() => Some((host, None)),
            None => None,
        };
    }
    match text.split_once(':') {
        Some((_, port)) if port.contains(':') => None,
        Some((host, port)) => Some((host, Some(port))),
        None => Some((text, None)),
    }
}

fn bad(arguments: &Arguments<'_>, token: &DirectiveToken) -> DirectiveFault {
    arguments.invalid(token, "manager")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managers_on_a_command_line_may_omit_the_port() {
        for (text, host, port) in [
            ("redir.org", "redir.org", CLUSTER_PORT_DEFAULT),
            ("redir.org:99", "redir.org", 99),
            ("10.0.0.1:99", "10.0.0.1", 99),
            ("::1", "::1", CLUSTER_PORT_DEFAULT),
            ("[::1]", "::1", CLUSTER_PORT_DEFAULT),
            ("[::1]:99", "::1", 99),
        ] {
            assert_eq!(text.parse(), Ok(ManagerAddress::new(host, port)), "{text}");
        }
        for text in ["", ":1", "h:", "h:0", "h:70000", "a b", "[::1", "h:1:2", "h@s", "*:1"] {
            assert!(text.parse::<ManagerAddress>().is_err(), "{text}");
        }
    }
}
