//! Loads that compare clients: `scalla` and `xrdcp`, and `scalla cp` from servers with a rate
//! limit.
//!
//! They are separate from [`crate::measure`], because here the server is the same and the client
//! differs.

use anyhow::{Context, bail};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::children::{CLIENT_CPU, pinned, run};
use crate::data::Data;
use crate::figures::{Figure, Figures};
use crate::row::{ClientTask, SourceServers};
use crate::server::{Server, ServerSide};

/// Number and size of the files of a recursive copy.
pub(crate) const FILES: &str = "10000";
pub(crate) const FILE_BYTES: &str = "10k";
/// Their directory.
pub(crate) const DIRECTORY: &str = "/small";
/// Number of programs started one after the other.
const STARTS: u32 = 40;
/// Number of limited servers.
pub(crate) const LIMITED: usize = 5;
const PATIENCE: Duration = Duration::from_secs(300);

/// Runs a task with the client of a side.
pub(crate) fn errand(data: &Data, errand: ClientTask, server: &Server) -> anyhow::Result<Figures> {
    let ours = server.side == ServerSide::Ours;
    match errand {
        ClientTask::Download { streams } => {
            let target = data.downloaded();
            let done = timed(copy(data, ours, streams, &server.url("/copy"), &target)?);
            let whole = fs::metadata(&target).map(|meta| meta.len()).unwrap_or(0);
            fs::remove_file(&target).ok();
            if whole != fs::metadata(data.copied())?.len() {
                bail!("the copied file is incomplete");
            }
            done
        }
        ClientTask::Upload { streams } => {
            let target = data.tree(true).join("out/copy");
            fs::remove_file(&target).ok();
            let url = server.url("/out/copy");
            let done = timed(copy(data, ours, streams, &data.copied().to_string_lossy(), Path::new(&url))?);
            fs::remove_file(&target).ok();
            done
        }
        ClientTask::Directory => {
            let target = data.downloaded();
            fs::create_dir(&target).with_context(|| format!("cannot create {}", target.display()))?;
            let mut command = client(data, ours);
            if ours {
                command.args(["cp", "--quiet", "-r"]);
            } else {
                command.args(["--nopbar", "-r"]);
            }
            command.arg(server.url(DIRECTORY)).arg(&target);
            let done = timed(command);
            let copied = count(&target);
            fs::remove_dir_all(&target).ok();
            if copied.to_string() != FILES {
                bail!("{copied} files were copied");
            }
            done
        }
        ClientTask::List => {
            let program = if ours { xrdfs(data)? } else { PathBuf::from("/usr/bin/xrdfs") };
            let mut sum = Figures::new();
            for _ in 0..STARTS {
                let mut command = pinned(&program, CLIENT_CPU);
                command.arg(server.address().to_string()).args(["ls", "/"]);
                for (figure, value) in timed(command)? {
                    *sum.entry(figure).or_default() += value / f64::from(STARTS);
                }
            }
            Ok(sum)
        }
    }
}

fn client(data: &Data, ours: bool) -> Command {
    pinned(&if ours { data.program() } else { PathBuf::from("/usr/bin/xrdcp") }, CLIENT_CPU)
}

fn copy(data: &Data, ours: bool, streams: u32, from: &str, to: &Path) -> anyhow::Result<Command> {
    let mut command = client(data, ours);
    if ours {
        command.args(["cp", "--quiet", "--force"]);
    } else {
        command.args(["--nopbar", "--force"]);
    }
    if streams > 0 {
        command.args(["--streams", &streams.to_string()]);
    }
    command.arg(from).arg(to);
    Ok(command)
}

/// Returns our program under the name `xrdfs`, which selects that command line.
fn xrdfs(data: &Data) -> anyhow::Result<PathBuf> {
    let link = data.program().with_file_name("xrdfs");
    if !link.is_symlink() {
        symlink(data.program(), &link).with_context(|| format!("cannot create {}", link.display()))?;
    }
    Ok(link)
}

fn count(directory: &Path) -> usize {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| if entry.path().is_dir() { count(&entry.path()) } else { 1 }).sum()
}

/// Runs a program and returns its elapsed time and processor time.
fn timed(command: Command) -> anyhow::Result<Figures> {
    let (before, start) = (used()?, Instant::now());
    run(command, PATIENCE)?;
    let seconds = start.elapsed().as_secs_f64();
    let cpu = (used()? - before) as f64 * 10_000.0;
    Ok(Figures::from([(Figure::Wall, seconds), (Figure::ClientCpu, cpu)]))
}

/// Returns the processor time of all child processes so far, in hundredths of a second.
fn used() -> anyhow::Result<u64> {
    let stat =
        fs::read_to_string("/proc/self/stat").context("cannot read the processor time of child processes")?;
    // The name of the program is in parentheses; the next field is number 3.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    Ok(fields.skip(16 - 3).take(2).map(|field| field.parse().unwrap_or(0)).sum())
}

/// Copies from limited servers and returns the share of their maximum rate.
pub(crate) fn gather(data: &Data, from: SourceServers, server: &Server) -> anyhow::Result<Figures> {
    let (name, bytes) = from.file();
    let ports = server.ports().into_iter().take(from.servers);
    let hosts: Vec<String> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
    let target = data.downloaded();
    let mut command = pinned(&data.program(), CLIENT_CPU);
    command.args(["cp", "--json", "--force"]);
    if from.streams > 0 {
        command.args(["--streams", &from.streams.to_string()]);
    }
    command.arg(format!("root://{}//{name}", hosts.join(","))).arg(&target);
    let start = Instant::now();
    let done = run(command, PATIENCE)?;
    let rate = bytes as f64 / start.elapsed().as_secs_f64();
    let same = fs::read(&target)? == fs::read(data.tree(true).join(&name))?;
    fs::remove_file(&target).ok();
    if !same {
        bail!("the copied file differs from the source");
    }
    let told = String::from_utf8_lossy(&done.stdout).into_owned();
    let told: Value = serde_json::from_str(told.lines().next().unwrap_or_default())?;
    let shares = told.get("shares").and_then(Value::as_array).map_or(0, Vec::len);
    if from.servers > 1 && shares != from.servers {
        bail!("{shares} of {} servers took part", from.servers);
    }
    Ok(Figures::from([(Figure::Throughput, rate), (Figure::OfSum, rate / from.rate() as f64)]))
}

/// Opens thousands of files in one process.
pub(crate) fn crowd(count: usize, server: &Server) -> anyhow::Result<Figures> {
    let own = std::env::current_exe().context("cannot determine the path of this program")?;
    let mut command = pinned(&own, CLIENT_CPU);
    command.args(["--crowd", &server.url(DIRECTORY), &count.to_string()]);
    let start = Instant::now();
    let done = run(command, PATIENCE)?;
    let seconds = start.elapsed().as_secs_f64();
    let told: Value = serde_json::from_str(String::from_utf8_lossy(&done.stdout).trim())?;
    let number =
        |name| told.get(name).and_then(Value::as_f64).with_context(|| format!("the output lacks {name}"));
    Ok(Figures::from([
        (Figure::Wall, seconds),
        (Figure::Resident, number("resident")?),
        (Figure::Threads, number("threads")?),
    ]))
}
