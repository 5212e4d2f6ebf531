//! The human-readable server status and the table of servers that run on this host.

use base::shown;
use serde_json::{Value, json};
use server::admin::{AdminRequest, LiveServer, ServerStatus, ask};
use std::fmt::Write;

use crate::files::format::human;

/// Formats the status of a server, one line per topic.
pub(super) fn topics(status: &ServerStatus) -> String {
    let uptime = jiff::SignedDuration::from_secs(i64::try_from(status.uptime_seconds).unwrap_or(i64::MAX));
    let configuration = match &status.config_file {
        Some(file) => format!("configuration {file}"),
        None => "no configuration file".to_owned(),
    };
    let mut lines = vec![
        (
            "server",
            format!(
                "scalla {} as {} {}@{}, pid {}, {}, up {uptime:#} since {}",
                status.version,
                status.program,
                status.instance,
                status.host,
                status.pid,
                ports(status),
                status.started
            ),
        ),
        (
            "state",
            if status.draining { "drains: no new connections, and it ends soon" } else { "serves" }
                .to_owned(),
        ),
        ("serves", format!("{}; {configuration}", status.exports.join(", "))),
        (
            "clients",
            format!(
                "{} sessions, {} connections; refused since the start: {}",
                status.sessions,
                status.connections,
                refused(status)
            ),
        ),
        (
            "traffic",
            format!(
                "since the start {} requests, {} in, {} out",
                status.requests,
                human(status.bytes_in),
                human(status.bytes_out)
            ),
        ),
        (
            "now",
            format!(
                "{} files open, {} of them for writing, {} unfinished, {} with a checkpoint; {} checksums are computed",
                status.open_files,
                status.open_for_writing,
                status.pending_files,
                status.checkpoints,
                status.checksums
            ),
        ),
        ("log", status.log_levels.clone()),
    ];
    if !status.authorization.is_empty() {
        lines.push(("rules", status.authorization.clone()));
    }
    if !status.authentication.is_empty() {
        lines.push(("keys", status.authentication.clone()));
    }
    let mut text = String::new();
    for (topic, line) in lines {
        // Writing to a text cannot fail.
        writeln!(text, "{topic:8}  {}", shown(&line)).ok();
    }
    text
}

/// Formats the ports, with their protocols if there are several.
fn ports(status: &ServerStatus) -> String {
    let http: String = status.http_ports.iter().map(|port| format!(", {port} (http)")).collect();
    if http.is_empty() {
        return format!("port {}", status.port);
    }
    format!("ports {} (xroot){http}", status.port)
}

/// Formats the number of refused connections and the reasons.
fn refused(status: &ServerStatus) -> String {
    let (full, denied, unknown) = (status.refused_full, status.refused_denied, status.refused_unknown);
    match full + denied + unknown {
        0 => "0".to_owned(),
        all => format!("{all} ({full} too many, {denied} not allowed, {unknown} of unknown protocol)"),
    }
}

/// A running server: its location, and its status reply or the reason why there is none.
pub(super) struct ListedServer {
    server: LiveServer,
    status: Result<ServerStatus, String>,
}

impl ListedServer {
    pub(super) fn query(server: LiveServer) -> Self {
        let answer = ask(&server.socket, &AdminRequest::Status {}).map_err(|error| error.to_string());
        let status =
            answer.and_then(|answer| serde_json::from_value(answer).map_err(|error| error.to_string()));
        Self { server, status }
    }

    pub(super) fn json(&self) -> Value {
        let directory = self.server.directory.display().to_string();
        match &self.status {
            Ok(status) => json!({ "admin_path": directory, "status": status }),
            Err(why) => json!({ "admin_path": directory, "note": self.server.note, "error": why }),
        }
    }

    fn columns(&self) -> [String; 5] {
        let place = shown(self.server.directory.as_os_str().as_encoded_bytes()).to_string();
        match &self.status {
            Ok(status) => [
                status.pid.to_string(),
                status.port.to_string(),
                format!("{} {}", shown(&status.program), shown(&status.instance)),
                shown(&status.exports.join(", ")).to_string(),
                place,
            ],
            Err(why) => [
                String::new(),
                String::new(),
                shown(&self.server.note).to_string(),
                shown(why).to_string(),
                place,
            ],
        }
    }
}

/// Formats a table of running servers. The last column is the value of `--admin-path`.
pub(super) fn list(servers: &[ListedServer]) -> String {
    let head = ["PID", "PORT", "NAME", "SERVES", "ADMIN PATH"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head).chain(servers.iter().map(ListedServer::columns)).collect();
    let mut widths = [0; 5];
    for row in &rows {
        widths.iter_mut().zip(row).for_each(|(width, cell)| *width = cell.chars().count().max(*width));
    }
    let mut text = String::new();
    for row in &rows {
        let [pid, port, name, serves, place] = row;
        let [p, q, n, s, _] = widths;
        // Writing to a text cannot fail.
        writeln!(text, "{pid:>p$}  {port:>q$}  {name:n$}  {serves:s$}  {place}").ok();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> ServerStatus {
        let answer = json!({
            "version": "v0.1.0", "program": "xrootd", "instance": "anon", "pid": 812, "host": "disk1", "port": 1094,
            "exports": ["/a", "/b (read-only)"], "config_file": null, "started": "2026-11-23T10:00:00+01:00",
            "uptime_seconds": 3725, "connections": 3, "sessions": 2, "requests": 137, "bytes_in": 59_768_832,
            "bytes_out": 20, "open_files": 4, "open_for_writing": 1, "pending_files": 1, "checkpoints": 0,
            "checksums": 0, "refused_full": 0, "refused_denied": 2, "refused_unknown": 1, "log_levels": "info",
            "draining": false,
        });
        serde_json::from_value(answer).unwrap()
    }

    #[test]
    fn a_status_has_a_line_for_each_topic() {
        let expected = "\
server    scalla v0.1.0 as xrootd anon@disk1, pid 812, port 1094, up 1h 2m 5s since 2026-11-23T10:00:00+01:00
state     serves
serves    /a, /b (read-only); no configuration file
clients   2 sessions, 3 connections; refused since the start: 3 (0 too many, 2 not allowed, 1 of unknown protocol)
traffic   since the start 137 requests, 57M in, 20 out
now       4 files open, 1 of them for writing, 1 unfinished, 0 with a checkpoint; 0 checksums are computed
log       info
";
        assert_eq!(topics(&status()), expected);
        let web = topics(&ServerStatus { http_ports: vec![8443, 9443], ..status() });
        assert!(web.contains(", ports 1094 (xroot), 8443 (http), 9443 (http), up"), "{web}");
        let rules = ServerStatus { authorization: "3 records of /etc/authdb".to_owned(), ..status() };
        assert_eq!(topics(&rules), format!("{expected}rules     3 records of /etc/authdb\n"));
        let keys = ServerStatus { authentication: "sss: 2 keys of /k".to_owned(), ..status() };
        assert_eq!(topics(&keys), format!("{expected}keys      sss: 2 keys of /k\n"));
        let hostile = ServerStatus { host: "a\u{1b}[2J\nstate  x".to_owned(), draining: true, ..status() };
        let text = topics(&hostile);
        assert_eq!(text.lines().count(), 7);
        assert!(text.contains("@a\\u001b[2J\\nstate  x,") && text.contains("state     drains"), "{text}");
    }

    #[test]
    fn servers_are_listed_in_columns() {
        let place = |directory: &str| LiveServer {
            directory: directory.into(),
            socket: "/x".into(),
            note: "pid 7, port 9".to_owned(),
        };
        let servers = [
            ListedServer { server: place("/var/a"), status: Ok(status()) },
            ListedServer { server: place("b\n"), status: Err("no answer".to_owned()) },
        ];
        let expected = "\
PID  PORT  NAME           SERVES              ADMIN PATH
812  1094  xrootd anon    /a, /b (read-only)  /var/a
           pid 7, port 9  no answer           b\\n
";
        assert_eq!(list(&servers), expected);
    }
}
