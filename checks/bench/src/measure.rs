//! The measurement of one load on one server.
//!
//! [`crate::outcome`] repeats it in interleaved pairs.

#[path = "../../../apps/scalla/src/bench/process_usage.rs"]
mod process_usage;

use anyhow::{Context, bail};
use process_usage::ProcessCosts;
use rawclient::{BlockingSession, Login, SessionError};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use wire::xroot::ErrorCode;

use crate::agents;
use crate::children::{Awaited, CLIENT_CPU, giving_way, pinned, run};
use crate::clients;
use crate::cold::Evictor;
use crate::data::Data;
use crate::figures::{Figure, Figures};
use crate::outcome::median;
use crate::proxy_loads;
use crate::proxy_rows::ProxyTask;
use crate::row::{ConcurrentLoads, OpenedFiles, Row, RowLoad, RowMethod};
use crate::secured::CredentialFiles;
use crate::server::{Server, ServerSide};
use crate::site;
use crate::stage_requests;
use crate::web_rows;

/// Maximum time of a run beyond its own duration, for example for making ten thousand connections.
const SLACK: Duration = Duration::from_secs(120);
/// Duration of the comparison of data before a load is measured.
const VERIFY: &str = "300ms";
/// Maximum duration of the load before it is measured.
const WARMUP: Duration = Duration::from_millis(500);
/// Time for requests of files that do not exist.
const MISSING_TIME: Duration = Duration::from_secs(1);
/// Number of connections for comparison; below it the number of busy connections.
const FEW: &str = "64";
const MANY: &str = "2000";

/// A function that creates the command of a generator.
type Starter = fn(&Path, u32) -> Command;

/// Parameters of the measurements.
pub(crate) struct Measure<'d> {
    pub(crate) program: PathBuf,
    pub(crate) data: &'d Data,
    pub(crate) time: Duration,
    pub(crate) quick: bool,
}

impl Measure<'_> {
    /// Compares all data briefly, if the load reads or writes data.
    pub(crate) fn verify(&self, row: &Row, server: &Server) -> anyhow::Result<()> {
        for arguments in row.load.arguments() {
            let kind = arguments.first().map_or("", String::as_str);
            if !["read", "stream", "readv", "pgread", "write", "pgwrite", "dirlist"].contains(&kind) {
                continue;
            }
            let mut arguments: Vec<_> =
                arguments.iter().filter(|argument| *argument != "--discard").cloned().collect();
            arguments.extend(["--verify", "--duration", VERIFY, "--warmup", "0s"].map(str::to_owned));
            self.bench(&arguments, server, pinned)?.finish()?;
        }
        Ok(())
    }

    /// Measures a load once.
    pub(crate) fn once(&self, row: &Row, server: &Server) -> anyhow::Result<Figures> {
        match (&row.load, server.side, &row.floor) {
            (_, ServerSide::Floor, Some(arguments)) => figures(&self.timed(arguments, server)?.finish()?),
            (RowLoad::Bench(arguments), ..) => figures(&self.timed(arguments, server)?.finish()?),
            (RowLoad::Download, ..) => {
                let target = self.data.downloaded();
                let copied = self.copy(server, &server.url("/copy"), &target.to_string_lossy());
                fs::remove_file(&target).ok();
                copied
            }
            (RowLoad::Upload, ..) => {
                let copied =
                    self.copy(server, &self.data.copied().to_string_lossy(), &server.url("/out/copy"));
                fs::remove_file(self.data.uploaded()).ok();
                copied
            }
            (RowLoad::Mixed, ..) => self.mixed(server),
            (RowLoad::Busy, ..) => self.busy(server),
            (RowLoad::Beside(both), ..) => self.beside(both, server),
            (RowLoad::Located(OpenedFiles::Known), ..) => self.located_again(server),
            (RowLoad::Located(files), ..) => self.located_first(server, *files == OpenedFiles::Placed),
            (RowLoad::Missing, ..) => missing(server),
            (RowLoad::Misses, ..) => self.misses(server),
            (RowLoad::Errand(errand), ..) => clients::errand(self.data, *errand, server),
            (RowLoad::Gather(from), ..) => clients::gather(self.data, *from, server),
            (RowLoad::Crowd(count), ServerSide::Ours, _) => clients::crowd(*count, server),
            (RowLoad::Crowd(_), ..) => Ok(Figures::new()),
            (RowLoad::Restart, ServerSide::Ours, _) => site::restart(self.data),
            (RowLoad::Restart, ..) => Ok(Figures::new()),
            (RowLoad::Proxy(task), ..) => self.proxied(*task, server),
            (RowLoad::StageRequests, ..) => stage_requests::measure(self.data, server, self.time),
            (RowLoad::Web(requests), ..) => web_rows::measure(self.data, *requests, server, self.time),
            (RowLoad::Formation, ..) => agents::form(server, &self.data.run_directory("agents")?),
        }
    }

    /// Starts a load for the duration of a measurement.
    fn timed(&self, arguments: &[String], server: &Server) -> anyhow::Result<BenchProcess> {
        self.timed_by(arguments, server, pinned)
    }

    fn timed_by(&self, arguments: &[String], server: &Server, by: Starter) -> anyhow::Result<BenchProcess> {
        let mut arguments = arguments.to_vec();
        let warmup = if self.quick { Duration::from_millis(200) } else { WARMUP.min(self.time / 2) };
        let milliseconds = |time: Duration| format!("{}ms", time.as_millis());
        arguments.extend(["--duration".to_owned(), milliseconds(self.time)]);
        arguments.extend(["--warmup".to_owned(), milliseconds(warmup)]);
        self.bench(&arguments, server, by)
    }

    /// Starts `scalla bench`; the second argument is the path.
    fn bench(&self, arguments: &[String], server: &Server, by: Starter) -> anyhow::Result<BenchProcess> {
        let [kind, path, options @ ..] = arguments else { bail!("a load has a kind and a path") };
        let mut command = by(&self.program, CLIENT_CPU);
        command.args(["bench", kind, &server.url(path)]).args(options).arg("--json");
        if let Some(security) = server.security {
            CredentialFiles::of(self.data, security)?.arm(&mut command);
        }
        for pid in server.pids() {
            command.args(["--server-pid", &pid.to_string()]);
        }
        Ok(BenchProcess { awaited: Awaited::start(command, self.time + SLACK)? })
    }

    /// Measures `xrdcp`.
    fn copy(&self, server: &Server, from: &str, to: &str) -> anyhow::Result<Figures> {
        let mut command: Command = pinned(Path::new("/usr/bin/xrdcp"), CLIENT_CPU);
        command.args(["--nopbar", "--force", from, to]);
        let before = ProcessCosts::of(server.pid())?;
        let start = Instant::now();
        run(command, Duration::from_secs(300))?;
        let seconds = start.elapsed().as_secs_f64();
        let after = ProcessCosts::of(server.pid())?;
        let used = after.since(&before);
        let bytes =
            fs::metadata(self.data.copied()).context("the file to copy no longer exists")?.len() as f64;
        Ok(Figures::from([
            (Figure::Wall, seconds),
            (Figure::Throughput, bytes / seconds),
            (Figure::Cpu, used.cpu_nanoseconds as f64 / 1e3),
            (Figure::Switches, used.context_switches as f64),
            (Figure::Memory, after.resident.saturating_sub(before.resident) as f64),
        ]))
    }

    /// Measures cached reads with concurrent uncached reads.
    fn mixed(&self, server: &Server) -> anyhow::Result<Figures> {
        let _evictor = Evictor::start(&self.data.cold())?;
        let arguments = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let before = from_storage(server);
        let cold = self.timed(&arguments("read /cold -s 4k -c 16 --align 4k"), server)?;
        let warm = self.timed(&arguments("read /big -s 2k -c 8"), server)?;
        let (warm, cold) = (warm.finish()?, cold.finish()?);
        was_cold(&cold, before, server)?;
        let mut figures = figures(&warm)?;
        let cold = number(&cold, &["operations_per_second"])?;
        figures.insert(Figure::BesideThroughput, cold);
        // The processor time of the server is divided between both loads.
        let warm_rate = figures.get(&Figure::Throughput).copied().unwrap_or(0.0);
        figures.entry(Figure::Cpu).and_modify(|cpu| *cpu *= warm_rate / (warm_rate + cold));
        Ok(figures)
    }

    /// Measures one load alone, and then with another one.
    fn beside(&self, both: &ConcurrentLoads, server: &Server) -> anyhow::Result<Figures> {
        let alone = figures(&self.timed(&both.watched, server)?.finish()?)?;
        let _evictor = match both.how {
            RowMethod::Cold => Some(Evictor::start(&self.data.cold())?),
            RowMethod::Slow | RowMethod::GivesWay => None,
        };
        let by: Starter = if both.how == RowMethod::GivesWay { giving_way } else { pinned };
        let before = from_storage(server);
        let other = self.timed_by(&both.other, server, by)?;
        let watched = self.timed(&both.watched, server)?;
        let (watched, other) = (watched.finish()?, other.finish()?);
        if both.how == RowMethod::Cold {
            was_cold(&other, before, server)?;
        }
        let mut figures = figures(&watched)?;
        // The resources of the server belong to both loads.
        figures.retain(|figure, _| !matches!(figure, Figure::Cpu | Figure::Switches | Figure::Memory));
        let p99 = |figures: &Figures| figures.get(&Figure::P99).copied().unwrap_or(0.0);
        let (with, without) = (p99(&figures), p99(&alone));
        let others = number(&other, &["operations_per_second"])?;
        figures.extend([
            (Figure::P99Alone, without),
            (Figure::Rise, with / without.max(1e-9)),
            (Figure::BesideThroughput, others),
        ]);
        Ok(figures)
    }

    /// Measures opens of files whose location the manager knows.
    fn located_again(&self, server: &Server) -> anyhow::Result<Figures> {
        let files = site::KNOWN_FILES.to_string();
        let open = |options: &[&str]| {
            ["open", "/known/f%d", "--files", &files]
                .iter()
                .chain(options)
                .map(|part| (*part).to_owned())
                .collect()
        };
        let all: Vec<String> = open(&["-c", "8", "--sequential", "--operations", &files, "--warmup", "0s"]);
        self.bench(&all, server, pinned)?.finish()?;
        let again: Vec<String> = open(&["-c", "64"]);
        figures(&self.timed(&again, server)?.finish()?)
    }

    /// Measures the first open of each file.
    fn located_first(&self, server: &Server, placed: bool) -> anyhow::Result<Figures> {
        let path = site::new_files(self.data, placed)?;
        let files = site::NEW_FILES.to_string();
        let arguments = ["open", &path, "--files", &files, "-c", "8", "--sequential"];
        let each = ["--operations", &files, "--warmup", "0s"];
        let arguments: Vec<_> = arguments.iter().chain(&each).map(|part| (*part).to_owned()).collect();
        figures(&self.bench(&arguments, server, pinned)?.finish()?)
    }

    /// Measures first opens alone, and then with many concurrent queries for missing files. All of
    /// them are sent from one processor on which the opens have priority, so that only delays of
    /// the manager are measured.
    fn misses(&self, server: &Server) -> anyhow::Result<Figures> {
        let opens = || -> anyhow::Result<BenchProcess> {
            let path = site::new_files(self.data, false)?;
            let files = site::FIRST_FILES.to_string();
            let arguments = ["open", &path, "--files", &files, "--sequential", "--operations", &files];
            self.bench(&arguments.map(str::to_owned), server, pinned)
        };
        let latency = |report: &Value| -> anyhow::Result<_> {
            Ok((number(report, &["latency_us", "p50"])?, number(report, &["latency_us", "p99"])?))
        };
        let alone = latency(&opens()?.finish()?)?;
        let flood = ["stat", "/none/f%d", "--missing", "--files", "1000000000", "-c", "8", "--depth", "64"];
        let flood = self.timed_by(&flood.map(str::to_owned), server, giving_way)?;
        std::thread::sleep(WARMUP);
        let beside = latency(&opens()?.finish()?)?;
        let mut figures = figures(&flood.finish()?)?;
        figures.extend([
            (Figure::P50, beside.0),
            (Figure::P99, beside.1),
            (Figure::P99Alone, alone.1),
            (Figure::MedianRise, beside.0 / alone.0.max(1e-9)),
            (Figure::Rise, beside.1 / alone.1.max(1e-9)),
        ]);
        Ok(figures)
    }

    /// Measures a load of a proxy.
    fn proxied(&self, task: ProxyTask, server: &Server) -> anyhow::Result<Figures> {
        match task {
            ProxyTask::Sparse => proxy_loads::sparse(self.data, server),
            ProxyTask::Start => proxy_loads::start(self.data, server),
            ProxyTask::Fill => proxy_loads::fill(self.data, server),
            ProxyTask::Cold | ProxyTask::Crowd => {
                let (arguments, bytes) = proxy_loads::arguments(self.data, task)?.context("no arguments")?;
                let origin = server.origin()?;
                let before = origin.bytes_read()?;
                let report = self.bench(&arguments, server, pinned)?.finish()?;
                let fetched = origin.bytes_read()? - before;
                let mut figures = figures(&report)?;
                figures.insert(Figure::Fetched, fetched as f64 / bytes as f64);
                Ok(figures)
            }
        }
    }

    /// Measures many connections relative to few.
    fn busy(&self, server: &Server) -> anyhow::Result<Figures> {
        let load = |connections: &str| ["read", "/big", "-s", "2k", "-c", connections].map(str::to_owned);
        let few = figures(&self.timed(&load(FEW), server)?.finish()?)?;
        let mut many = figures(&self.timed(&load(MANY), server)?.finish()?)?;
        let rate = |figures: &Figures| figures.get(&Figure::Throughput).copied().unwrap_or(0.0);
        let share = rate(&many) / rate(&few).max(1e-9);
        many.insert(Figure::Share, share);
        Ok(many)
    }
}

/// The processor time of a process from a moment on.
pub(crate) struct ProcessTime {
    pid: u32,
    before: ProcessCosts,
}

impl ProcessTime {
    /// Begins now.
    pub(crate) fn from_now(pid: u32) -> anyhow::Result<Self> {
        Ok(Self { pid, before: ProcessCosts::of(pid)? })
    }

    /// Begins with the start of the process.
    pub(crate) fn from_start(pid: u32) -> Self {
        Self { pid, before: ProcessCosts::default() }
    }

    /// Returns the time until now in microseconds.
    pub(crate) fn microseconds(&self) -> anyhow::Result<f64> {
        Ok(ProcessCosts::of(self.pid)?.since(&self.before).cpu_nanoseconds as f64 / 1e3)
    }
}

/// Measures the time until a file is reported as missing, including waits: the median of as many
/// files as fit into [`MISSING_TIME`]. XRootD managers take seconds for the first.
fn missing(server: &Server) -> anyhow::Result<Figures> {
    let mut session = BlockingSession::connect(&[server.address()], &Login::of_process("bench"), SLACK)?;
    let (begin, mut times) = (Instant::now(), Vec::new());
    while begin.elapsed() < MISSING_TIME {
        let start = Instant::now();
        match session.size(&format!("/known/not-there-{start:?}")) {
            Err(SessionError::Failed { code: ErrorCode::NOT_FOUND, .. }) => {
                times.push(start.elapsed().as_secs_f64() * 1e6);
            }
            other => bail!("a missing file was not reported as missing: {other:?}"),
        }
    }
    let median = median(times).context("no file was requested")?;
    Ok(Figures::from([(Figure::P50, median)]))
}

/// Checks that the data of a load was read from storage; `before` is the count before the load.
fn was_cold(report: &Value, before: Option<u64>, server: &Server) -> anyhow::Result<()> {
    let (Some(before), Some(after)) = (before, from_storage(server)) else { return Ok(()) };
    let read = number(report, &["bytes"])?;
    // The warm-up reads as well, so that more is read from storage than was counted.
    if ((after - before) as f64) < 0.8 * read {
        bail!("only {} of {read} bytes of the uncached file came from storage", after - before);
    }
    Ok(())
}

/// Returns the bytes that a server has read from storage; `None` if the kernel does not count them.
fn from_storage(server: &Server) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{}/io", server.pid())).ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes:"))?.trim().parse().ok()
}

/// A running `scalla bench`.
struct BenchProcess {
    awaited: Awaited,
}

impl BenchProcess {
    /// Returns its report, or an error if any operation failed.
    fn finish(self) -> anyhow::Result<Value> {
        let output = self.awaited.wait()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let told = String::from_utf8_lossy(&output.stderr);
        let report: Value = serde_json::from_str(text.trim())
            .with_context(|| format!("the generator failed: {}", told.trim()))?;
        if !output.status.success() {
            let first =
                report.get("first_error").and_then(Value::as_str).unwrap_or("no operation was completed");
            bail!("{} errors, the first: {first}", report.get("errors").unwrap_or(&Value::Null));
        }
        Ok(report)
    }
}

fn figures(report: &Value) -> anyhow::Result<Figures> {
    let table: [(Figure, &[&str]); 7] = [
        (Figure::Throughput, &["operations_per_second"]),
        (Figure::Cpu, &["server", "cpu_us_per_operation"]),
        (Figure::P50, &["latency_us", "p50"]),
        (Figure::P99, &["latency_us", "p99"]),
        (Figure::Memory, &["server", "resident_bytes_per_connection"]),
        (Figure::ClientCpu, &["client_cpu_us_per_operation"]),
        (Figure::Switches, &["server", "context_switches_per_operation"]),
    ];
    let at_rest = number(report, &["operations"])? == 0.0;
    let told = table.iter().filter(|(figure, _)| !at_rest || *figure == Figure::Memory);
    told.map(|(figure, path)| Ok((*figure, number(report, path)?))).collect()
}

fn number(report: &Value, path: &[&str]) -> anyhow::Result<f64> {
    let found = path.iter().try_fold(report, |value, name| value.get(name));
    found.and_then(Value::as_f64).with_context(|| format!("the report has no {}", path.join(".")))
}
