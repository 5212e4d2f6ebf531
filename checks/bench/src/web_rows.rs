//! Loads of HTTP: our server beside XRootD's, and beside nginx.
//!
//! The generator is `wrk`, which nobody here wrote. It has one thread and the connections of the load, and asks for random
//! parts of a file as analysis jobs do.

use anyhow::{Context, bail};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::children::{CLIENT_CPU, ChildServer, SERVER_CPU, pinned, run};
use crate::data::Data;
use crate::figures::{Figure, Figures, Goal};
use crate::measure::ProcessTime;
use crate::row::{CPU, MeasuredServers, Row, RowLoad, RowSetting, THROUGHPUT, bench};
use crate::secured::{CredentialFiles, RowSecurity};
use crate::server::{Server, ServerSide, free_port};

const WRK: &str = "/usr/bin/wrk";
const NGINX: &str = "/usr/sbin/nginx";

/// The program of the generator.
const SCRIPT: &str = include_str!("web.lua");

/// The file that is read in parts, and its size.
const FILE: &str = "big";
const FILE_BYTES: u64 = 1 << 30;
/// The directory that is listed.
const DIRECTORY: &str = "many";
/// Least size of the head of a reply.
const LEAST_HEAD_BYTES: u64 = 32;
/// Time beyond the duration of a load, for connections and slow replies.
const SLACK: Duration = Duration::from_secs(60);

/// Lines of our server, which has HTTP on the port of the xroot protocol.
const OURS: &str = "xrd.protocol http *";

/// The requests of a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WebRequests {
    /// GET of random parts of a file.
    Get { bytes: u64, connections: u32 },
    /// PUT of files.
    Put { bytes: u64, connections: u32 },
    /// PROPFIND of a directory of 10,000 entries.
    List { connections: u32 },
}

impl WebRequests {
    /// Reports whether the file is needed, or the directory.
    pub(crate) const fn needs(self) -> (bool, bool) {
        (matches!(self, Self::Get { .. }), matches!(self, Self::List { .. }))
    }
}

/// Returns the loads.
pub(crate) fn rows() -> Vec<Row> {
    let small = WebRequests::Get { bytes: 2 << 10, connections: 64 };
    let large = WebRequests::Get { bytes: 1 << 20, connections: 8 };
    let put = WebRequests::Put { bytes: 1 << 20, connections: 8 };
    let list = WebRequests::List { connections: 4 };
    let (xrootd, nginx) = (MeasuredServers::Web, MeasuredServers::Nginx);
    let (plain, tls) = (None, Some(RowSecurity::Tls));
    let get = |what: &str| format!("GET of random parts of {what}");
    let small_title = get("2 KiB, 64 connections");
    let large_title = get("1 MiB, 8 connections");
    vec![
        row("http-get-2k-c64", &small_title, small, (xrootd, plain), &[Goal::at_least(THROUGHPUT, 3.0)]),
        row("http-get-2k-c64-nginx", &small_title, small, (nginx, plain), &[Goal::at_most(CPU, 1.0)]),
        row("http-get-1m-c8", &large_title, large, (xrootd, plain), &[Goal::at_most(CPU, 1.0)]),
        row("http-get-1m-c8-nginx", &large_title, large, (nginx, plain), &[Goal::at_most(CPU, 1.1)]),
        row("https-get-1m-c8", &large_title, large, (xrootd, tls), &[Goal::at_most(CPU, 1.0)]),
        row("https-get-1m-c8-nginx", &large_title, large, (nginx, tls), &[Goal::at_most(CPU, 1.1)]),
        row(
            "http-put-1m-c8",
            "PUT of 1 MiB, 8 connections",
            put,
            (xrootd, plain),
            &[Goal::at_most(CPU, 1.0)],
        ),
        row(
            "http-put-1m-c8-nginx",
            "PUT of 1 MiB, 8 connections",
            put,
            (nginx, plain),
            &[Goal::at_most(CPU, 1.1)],
        ),
        row(
            "http-list-10k",
            "PROPFIND of a directory of 10,000 entries, 4 connections",
            list,
            (xrootd, plain),
            &[Goal::at_least(THROUGHPUT, 5.0)],
        ),
    ]
}

fn row(
    name: &str,
    title: &str,
    requests: WebRequests,
    (cast, security): (MeasuredServers, Option<RowSecurity>),
    goals: &[Goal],
) -> Row {
    let whose = if cast == MeasuredServers::Nginx { "nginx" } else { "XRootD's HTTP" };
    let title = format!("{title}; theirs is {whose}");
    let setting = RowSetting { ours: vec![OURS], cast, security, ..RowSetting::default() };
    // The floor of encrypted replies is the cipher alone.
    let encrypted_bytes = match requests {
        WebRequests::Get { bytes, .. } if security.is_some() => usize::try_from(bytes).ok(),
        _ => None,
    };
    Row { load: RowLoad::Web(requests), setting, encrypted_bytes, ..bench(name, &title, "", "", "", goals) }
}

/// The lines of XRootD for HTTP at a port.
pub(crate) fn their_line(port: u16) -> String {
    format!("xrd.protocol XrdHttp:{port} libXrdHttp.so")
}

/// Starts nginx with the files of the loads: one process, as the others have, with what its documents advise for files.
pub(crate) fn start_nginx(data: &Data, security: Option<RowSecurity>) -> anyhow::Result<Server> {
    let directory = data.run_directory("nginx")?;
    let (log, file, port) = (directory.join("log"), directory.join("nginx.conf"), free_port()?);
    let (work, tree) = (directory.display(), data.tree(false));
    let listen = match security {
        None => format!("listen 127.0.0.1:{port};"),
        Some(security) => {
            let files = CredentialFiles::of(data, security)?;
            let (certificate, key) = files.of_host();
            format!(
                "listen 127.0.0.1:{port} ssl; ssl_certificate {}; ssl_certificate_key {};",
                certificate.display(),
                key.display()
            )
        }
    };
    let temporary = ["client_body", "proxy", "fastcgi", "scgi", "uwsgi"];
    let temporary: String = temporary.map(|name| format!("{name}_temp_path {work}/{name};\n")).concat();
    let text = format!(
        "daemon off; master_process off; pid {work}/pid; error_log stderr notice;\n\
         events {{ worker_connections 4096; }}\n\
         http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000000;\n\
         open_file_cache max=10000; client_max_body_size 0; default_type application/octet-stream;\n{temporary}\
         server {{ {listen} root {}; dav_methods PUT; }} }}\n",
        tree.display()
    );
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    let mut command = pinned(Path::new(NGINX), SERVER_CPU);
    command.args(["-e", "stderr", "-p"]).arg(&directory).arg("-c").arg(&file);
    let mut running = ChildServer::start(command, &log, true).context("nginx")?;
    running.wait_for(&log, |text| text.contains("using the \"epoll\" event method").then_some(()))?;
    Ok(Server::alone(running, port, ServerSide::Theirs).secured(security))
}

/// Measures a load once.
pub(crate) fn measure(
    data: &Data,
    requests: WebRequests,
    server: &Server,
    time: Duration,
) -> anyhow::Result<Figures> {
    let script = data.run_directory("wrk")?.join("web.lua");
    fs::write(&script, SCRIPT).with_context(|| format!("cannot write {}", script.display()))?;
    let seconds = time.as_secs().max(1);
    let (connections, arguments, bytes) = match requests {
        WebRequests::Get { bytes, connections } => (
            connections,
            vec!["get".to_owned(), bytes.to_string(), FILE_BYTES.to_string(), format!("/{FILE}")],
            bytes,
        ),
        WebRequests::Put { bytes, connections } => {
            (connections, vec!["put".to_owned(), bytes.to_string(), "/out/put-".to_owned()], 0)
        }
        WebRequests::List { connections } => {
            (connections, vec!["list".to_owned(), format!("/{DIRECTORY}")], 1 << 20)
        }
    };
    let mut command: Command = pinned(Path::new(WRK), CLIENT_CPU);
    command.args([
        "-t",
        "1",
        "-c",
        &connections.to_string(),
        "-d",
        &format!("{seconds}s"),
        "--timeout",
        "30s",
        "-s",
    ]);
    command.arg(&script).arg(server.web_url()).arg("--").args(arguments);
    let used = ProcessTime::from_now(server.pid())?;
    let done = run(command, time + SLACK)?;
    let used = used.microseconds()?;
    let told = String::from_utf8_lossy(&done.stdout).into_owned();
    let told =
        told.lines().find_map(|line| line.strip_prefix("figures ")).context("wrk has told no figures")?;
    let told: Value = serde_json::from_str(told)?;
    let number = |name: &str| {
        told.get(name).and_then(Value::as_f64).with_context(|| format!("wrk has not told {name}"))
    };
    let (count, received) = (number("requests")?, number("bytes")?);
    if number("errors")? > 0.0 || count < 1.0 {
        bail!("requests failed: {told}");
    }
    // Each reply has a head too.
    if received < count * (bytes + LEAST_HEAD_BYTES) as f64 {
        bail!("replies are incomplete: {told}");
    }
    if let WebRequests::Put { bytes, .. } = requests {
        let put = data.tree(false).join("out/put-1");
        let size = fs::metadata(&put).map(|found| found.len()).unwrap_or_default();
        fs::remove_file(&put).ok();
        if size != bytes {
            bail!("{} has {size} bytes", put.display());
        }
    }
    Ok(Figures::from([
        (Figure::Throughput, count / number("seconds")?),
        (Figure::Cpu, used / count),
        (Figure::P50, number("p50")?),
        (Figure::P99, number("p99")?),
    ]))
}
