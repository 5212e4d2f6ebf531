//! The program `xrdmapc`: shows the tree of a cluster, and the location of a file in it.
//!
//! Output and exit statuses are those of this program in XRootD 5.5.3. `--format` is from later
//! versions.

use crate::environment;
use crate::map::cluster_walk::{ChildNodes, ClusterWalk, MapNode, UnansweredRequest};
use crate::printer::{err, out};
use crate::xrootd_compat::options::{self, OptionSpec};
use crate::xrootd_compat::{self, CommandRuntime, XrdClStatus};
use client::xroot::ErrorCode;
use client::{Cause, Error, Source, Url};
use std::borrow::Cow;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt::Write;
use std::net::ToSocketAddrs;
use std::process::ExitCode;

const USAGE: &str = "\
Usage: xrdmapc [<opt>] <host>:<port> [<path>]
<opt>: [--help] [--format {text|json}] [--list {all|m|s}] [--quiet] [--refresh] [--verify]
";
const HELP: &str = "\
--format  | -f 'text' (default) or 'json'.
--list    | -l 'all' shows managers and servers (default), 'm' managers alone, 's'
               servers alone.
--quiet   | -q no messages about errors beside the map, which shows them too.
--refresh | -r the cluster looks for <path> anew.
--verify  | -v every server is asked whether it has <path>.
<path>         marks the servers to which <host>:<port> would send a client with it.
";

const OPTIONS: [OptionSpec; 6] = [
    OptionSpec::switch(Some('h'), "help"),
    OptionSpec::valued(Some('f'), "format"),
    OptionSpec::valued(Some('l'), "list"),
    OptionSpec::switch(Some('q'), "quiet"),
    OptionSpec::switch(Some('r'), "refresh"),
    OptionSpec::switch(Some('v'), "verify"),
];

/// Timeout of each request, which overrides the settings like that of the real program. A manager
/// may delay a request about a file for half an hour.
const QUESTION_SECONDS: &str = "30";
/// Exit status of an invalid command line, and of a command line with invalid values.
const USAGE_STATUS: u8 = 1;
const STATUS: u8 = 2;

/// The parsed options.
#[derive(Clone, Default)]
struct XrdmapcOptions {
    json: bool,
    /// Nodes to show: `all`, `m` or `s`.
    list: String,
    quiet: bool,
    refresh: bool,
    verify: bool,
    path: Option<String>,
}

/// Runs the program with the arguments after the name.
pub(crate) fn run(arguments: Vec<OsString>) -> ExitCode {
    let parsed = match options::parse(&xrootd_compat::words(arguments), &OPTIONS) {
        Ok(parsed) => parsed,
        Err(wrong) => return refuse(STATUS, &format!("{wrong}\n")),
    };
    let mut options = XrdmapcOptions { list: "all".to_owned(), ..XrdmapcOptions::default() };
    for (name, value) in parsed.options {
        match name {
            "help" => {
                err().lines(format_args!("{USAGE}{HELP}"));
                return ExitCode::SUCCESS;
            }
            "format" if matches!(value.as_str(), "text" | "json") => options.json = value == "json",
            "list" if matches!(value.as_str(), "all" | "m" | "s") => options.list = value,
            "format" | "list" => return refuse(USAGE_STATUS, &format!("Invalid {name} argument.\n{USAGE}")),
            "quiet" => options.quiet = true,
            "refresh" => options.refresh = true,
            _ => options.verify = true,
        }
    }
    let mut words = parsed.words.into_iter();
    let Some(place) = words.next() else {
        return refuse(USAGE_STATUS, &format!("Initial node not specified.\n{USAGE}"));
    };
    options.path = words.next();
    let url = match address(&place) {
        Ok(url) => url,
        Err(why) => return refuse(STATUS, &format!("Unable to validate initial node; {why}\n")),
    };
    let runtime = match CommandRuntime::new() {
        Ok(runtime) => runtime,
        Err(status) => return refuse(STATUS, &format!("{status}\n")),
    };
    let mut settings = environment::settings();
    settings.set("RequestTimeout", QUESTION_SECONDS, Source::Option).ok();
    let fs = environment::client_with(settings, "xrdmapc").file_system(&url);
    let walk = ClusterWalk {
        path: options.path.clone(),
        refresh: options.refresh,
        verify: options.verify,
        enters_managers: options.list != "s",
        ..ClusterWalk::default()
    };
    let below = runtime.wait(walk.children_of(&fs, &mut HashSet::new()));
    if !options.quiet {
        report_errors(&place, &below);
    }
    out().lines(if options.json { json(&place, &below, &options) } else { text(&place, &below, &options) });
    ExitCode::SUCCESS
}

fn refuse(status: u8, message: &str) -> ExitCode {
    err().lines(format_args!("xrdmapc: {message}"));
    ExitCode::from(status)
}

/// Returns the URL of the starting node. Its port is always explicit.
fn address(place: &str) -> Result<Url, String> {
    let port = place.rsplit_once(':').map(|(_, port)| port).filter(|port| !port.ends_with(']'));
    let port = port.ok_or("port not specified")?;
    if place.contains("://") {
        return Err("Name or service not known".to_owned());
    }
    if !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("invalid port number".to_owned());
    }
    let url = Url::parse(&format!("root://{place}")).map_err(|error| match error {
        client::UrlError::BadPort(_) => "invalid port number",
        _ => "Name or service not known",
    })?;
    (url.host.as_str(), url.port).to_socket_addrs().map_err(|error| {
        let text = error.to_string();
        text.rsplit_once(": ").map_or(text.clone(), |(_, why)| why.to_owned())
    })?;
    Ok(url)
}

/// Reports the errors below a node, in the order of their occurrence.
fn report_errors(name: &str, below: &ChildNodes) {
    if let Some(trouble) = &below.unanswered {
        let what = match trouble {
            UnansweredRequest::Children(_) => format!("get {name} subscribers"),
            UnansweredRequest::Path(_) => format!("query {name} about path"),
        };
        let status = XrdClStatus::from(trouble.error().clone()).to_string();
        err().line(format_args!("xrdmapc: Unable to {what}; {}", status.trim_end()));
    }
    for node in &below.nodes {
        report_errors(&shown(&node.location.address), &node.children);
    }
}

/// Describes the errors below a manager briefly.
fn trouble_of(below: &ChildNodes) -> Cow<'static, str> {
    below.unanswered.as_ref().map_or_else(Cow::default, |trouble| describe_error(trouble.error()))
}

/// Describes the error of a node.
fn note_of(node: &MapNode) -> Cow<'static, str> {
    match &node.verified {
        Some(Err(error)) => describe_error(error),
        _ => trouble_of(&node.children),
    }
}

fn describe_error(error: &Error) -> Cow<'static, str> {
    let text = match error.cause() {
        Cause::Unreachable(_)
        | Cause::NoResources(_)
        | Cause::Unresolved(_)
        | Cause::NotAllowed(_)
        | Cause::Lost(_) => "connect error",
        Cause::TimedOut(_) | Cause::Expired { .. } => "op expired",
        Cause::Server { code: ErrorCode::NOT_AUTHORIZED, .. } => "not authorized",
        Cause::Server { code: ErrorCode::NOT_FOUND, .. } => "not found",
        Cause::Server { code, .. } => return format!("xrootd error {}", code.0).into(),
        Cause::Connection(_) => "login error",
        _ => "xroot error",
    };
    text.into()
}

/// Formats an address. IPv4 addresses are written as mapped ones.
fn shown(address: &str) -> String {
    match address.strip_prefix("[::") {
        Some(rest) if rest.split(']').next().is_some_and(|ip| ip.parse::<std::net::Ipv4Addr>().is_ok()) => {
            format!("[::ffff:{rest}")
        }
        _ => address.to_owned(),
    }
}

fn text(place: &str, below: &ChildNodes, how: &XrdmapcOptions) -> String {
    let path = how.path.is_some();
    let mark = |set: bool, letter: char| if set { letter } else { '*' };
    let (asked, verified) = (mark(path, 'r'), mark(path && how.verify, 'v'));
    let mut out = format!("0*{asked}{verified}* {place}{}\n", bracketed(&trouble_of(below)));
    lines(&mut out, &below.nodes, 1, how);
    out
}

fn bracketed(note: &str) -> String {
    if note.is_empty() { String::new() } else { format!(" [{note}]") }
}

/// Formats the nodes of a level, and those below each manager.
fn lines(out: &mut String, nodes: &[MapNode], level: usize, how: &XrdmapcOptions) {
    let indent = 5 * (level - 1);
    for node in nodes {
        let manager = node.location.is_manager;
        let left_out = if manager { "s" } else { "m" };
        if how.list != left_out {
            let depth = if manager { level.to_string() } else { " ".to_owned() };
            let chosen = if node.is_selected { '>' } else { ' ' };
            let has = match node.verified {
                None => ' ',
                Some(Err(_)) => '?',
                Some(Ok(true)) => '+',
                Some(Ok(false)) => '-',
            };
            let kind = if manager { "Man" } else { "Srv" };
            let (name, note) = (shown(&node.location.address), bracketed(&note_of(node)));
            // Writing to a string does not fail.
            let _ = writeln!(out, "{depth:<2}{chosen}{has}  {:indent$}{kind} {name}{note}", "");
        }
        lines(out, &node.children.nodes, level + 1, how);
    }
}

fn json(place: &str, below: &ChildNodes, how: &XrdmapcOptions) -> String {
    let map = serde_json::json!({ "name": place, "type": "manager", "servers": servers(&below.nodes, how) });
    format!("{map}\n")
}

/// Reports whether a server is known to have the file.
fn has(node: &MapNode) -> bool {
    node.verified.as_ref().map_or(node.is_selected, |has| matches!(has, Ok(true)))
}

fn servers(nodes: &[MapNode], how: &XrdmapcOptions) -> Vec<serde_json::Value> {
    let shown_here = |node: &&MapNode| how.list != if node.location.is_manager { "s" } else { "m" };
    let value = |node: &MapNode| {
        let mut value = serde_json::json!({ "name": shown(&node.location.address) });
        if how.path.is_some() && !node.location.is_manager {
            value["hasFile"] = has(node).into();
        }
        if node.location.is_manager {
            value["type"] = "manager".into();
            value["servers"] = servers(&node.children.nodes, how).into();
        }
        if !note_of(node).is_empty() {
            value["error"] = note_of(node).into();
        }
        value
    };
    nodes.iter().filter(shown_here).map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::ReplicaLocation;

    fn node(address: &str, is_manager: bool, chosen: bool, nodes: Vec<MapNode>) -> MapNode {
        let location =
            ReplicaLocation { address: address.to_owned(), is_manager, pending: false, writable: true };
        let verified = (!is_manager).then_some(Ok(chosen));
        MapNode {
            location,
            is_selected: chosen,
            verified,
            about: None,
            is_duplicate: false,
            children: ChildNodes { nodes, unanswered: None },
        }
    }

    #[test]
    fn a_map_as_the_real_program_draws_it() {
        let deep = vec![node("[::127.0.0.1]:4", false, true, vec![])];
        let mut nodes = vec![node("[::127.0.0.1]:2", false, false, vec![]), node("host:3", true, true, deep)];
        let how = XrdmapcOptions {
            list: "all".into(),
            verify: true,
            path: Some("/a".into()),
            ..XrdmapcOptions::default()
        };
        nodes[0].verified = Some(Err(Error::new("stat", "root://h//a", Cause::TimedOut(1))));
        let expected = "0*rv* localhost:1\n   ?  Srv [::ffff:127.0.0.1]:2 [op expired]\n1 >   Man host:3\n  >+       Srv [::ffff:127.0.0.1]:4\n";
        let below = ChildNodes { nodes, unanswered: None };
        assert_eq!(text("localhost:1", &below, &how), expected);
        let managers = XrdmapcOptions { list: "m".into(), ..XrdmapcOptions::default() };
        let unreachable = Error::new("locate", "root://h:1//", Cause::Unreachable("refused".into()));
        let below = ChildNodes { unanswered: Some(UnansweredRequest::Children(unreachable)), ..below };
        assert_eq!(text("h:1", &below, &managers), "0**** h:1 [connect error]\n1 >   Man host:3\n");
    }

    #[test]
    fn a_node_is_named_with_its_port() {
        let table = [
            ("localhost", "port not specified"),
            ("[::1]", "port not specified"),
            ("localhost:x", "invalid port number"),
        ];
        for (place, expected) in table {
            assert_eq!(address(place).err().as_deref(), Some(expected), "{place}");
        }
        assert!(address("127.0.0.1:1").is_ok());
    }
}
