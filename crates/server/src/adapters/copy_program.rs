//! Pulls files with a program of the site (`ofs.tpc pgm`), which writes the destination's file itself.
//!
//! It is run as `PROGRAM [its arguments] [-C checksum] [-S streams] URL FILE`, as XRootD runs it, with `XRDTPC=1` in its
//! environment. Its last words are the reason where it fails.

use super::fetcher::{Pull, SharedThreads, until_cancelled};
use base::{Error, ErrorKind};
use config::{CopyProgram, CopyScan};
use logical::{Fetch, Fetched, Fetcher, Finish, Running, Sink};
use rustix::process::{Pid, Signal, kill_process_group};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How often it is looked whether the file grows.
const LOOK: Duration = Duration::from_secs(2);
/// How long a program that was asked to end may take.
const ENDING: Duration = Duration::from_secs(5);
/// How long its output is read after its end: a child of its own may still hold it open.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Bytes of a line of its output that are kept.
const LINE_BYTES_MAX: usize = 1024;

/// Runs the program.
pub(crate) struct Runner {
    program: CopyProgram,
    scan: CopyScan,
    echo: bool,
    threads: SharedThreads,
}

impl Runner {
    pub(crate) fn new(program: CopyProgram, scan: CopyScan, echo: bool) -> Self {
        Self { program, scan, echo, threads: SharedThreads::default() }
    }

    /// The command line. Source and destination cannot be taken for options: one is a URL, the other an absolute path.
    fn command(&self, fetch: &Fetch, file: &Path) -> Command {
        let mut command = Command::new(&self.program.path);
        command.args(&self.program.arguments);
        if let Some(algorithm) = fetch.checksum {
            command.args(["-C", algorithm.name()]);
        }
        if fetch.streams > 0 {
            command.args(["-S", &fetch.streams.to_string()]);
        }
        command.arg(source_url(fetch)).arg(file);
        command.env("XRDTPC", "1").env("XRD_TIDENT", &fetch.client);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        command
    }
}

fn source_url(fetch: &Fetch) -> String {
    let Fetch { source, path, cgi, key, origins, .. } = fetch;
    let origin = origins.first().map(String::as_str).unwrap_or_default();
    let more = if cgi.is_empty() { String::new() } else { format!("{cgi}&") };
    format!("xroot://{source}/{path}?{more}tpc.key={key}&tpc.org={origin}")
}

impl Fetcher for Runner {
    fn start(&self, fetch: Fetch, sink: Arc<dyn Sink>, finish: Finish) -> Box<dyn Running> {
        let (cancel, cancelled) = watch::channel(false);
        let running = Box::new(Pull(cancel));
        let Some(threads) = self.threads.get() else {
            finish.done(Err(Error::new(ErrorKind::NoMemory, "there are no threads for it")));
            return running;
        };
        let place = match place(sink.as_ref()) {
            Ok(place) => place,
            Err(error) => {
                finish.done(Err(error));
                return running;
            }
        };
        let command = self.command(&fetch, &place);
        let name = self.program.path.display().to_string();
        let (scan, echo) = (self.scan, self.echo);
        threads.spawn(async move {
            let run = Run { name, scan, echo, size: fetch.size, place };
            finish.done(run.run(command, cancelled, sink.as_ref()).await);
        });
        running
    }
}

/// The file as programs name it.
fn place(sink: &dyn Sink) -> Result<PathBuf, Error> {
    let descriptor = sink.descriptor().ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, "a program can only write files on disk; leave ofs.tpc pgm out")
    })?;
    let link = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    std::fs::read_link(link).map_err(|e| Error::unable("find", &"the destination's file", e))
}

/// One run of the program.
struct Run {
    name: String,
    scan: CopyScan,
    echo: bool,
    /// Bytes that should come.
    size: Option<u64>,
    place: PathBuf,
}

impl Run {
    async fn run(
        self,
        mut command: Command,
        mut cancelled: watch::Receiver<bool>,
        sink: &dyn Sink,
    ) -> Result<Fetched, Error> {
        let fail = |error| Error::unable("run", &self.name, error);
        let mut child = command.spawn().map_err(fail)?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let words = [
            listen(child.stdout.take(), self.echo, &self.name),
            listen(child.stderr.take(), self.echo, &self.name),
        ];
        let mut size = 0;
        let status = loop {
            tokio::select! {
                status = child.wait() => break status.map_err(fail)?,
                () = until_cancelled(&mut cancelled) => {
                    end(&mut child, group).await;
                    return Err(Error::new(ErrorKind::Cancelled, "cancelled"));
                }
                () = tokio::time::sleep(LOOK) => {
                    let now = self.bytes().await;
                    if now != size {
                        size = now;
                        sink.moved();
                    }
                }
            }
        };
        if !status.success() {
            // What it started must not write on when the file is let go.
            kill(group, Signal::KILL);
            let text = self.last_words(words).await.unwrap_or_else(|| match status.code() {
                Some(code) => format!("Copy failed with return code {code}"),
                None => format!("Copy failed: {status}"),
            });
            return Err(Error::new(ErrorKind::FsError, text));
        }
        let bytes = self.bytes().await;
        match self.size {
            Some(wanted) if wanted != bytes => {
                let text = format!("{} ended well with {bytes} of {wanted} bytes", self.name);
                Err(Error::new(ErrorKind::FsError, text))
            }
            _ => Ok(Fetched { bytes, checksum: None, verified: true }),
        }
    }

    async fn bytes(&self) -> u64 {
        tokio::fs::metadata(&self.place).await.map(|metadata| metadata.len()).unwrap_or_default()
    }

    /// The last line it wrote to where that is looked for; the error output counts first.
    async fn last_words(&self, [stdout, stderr]: [JoinHandle<String>; 2]) -> Option<String> {
        let hear = async |words: JoinHandle<String>| {
            tokio::time::timeout(LAST_WORDS, words)
                .await
                .ok()
                .and_then(Result::ok)
                .filter(|line| !line.is_empty())
        };
        let (stdout, stderr) = (hear(stdout).await, hear(stderr).await);
        match self.scan {
            CopyScan::All => stderr.or(stdout),
            CopyScan::Stderr => stderr,
            CopyScan::Stdout => stdout,
        }
    }
}

/// Reads what it writes, and keeps the last line that says anything.
fn listen(
    output: Option<impl AsyncRead + Send + Unpin + 'static>,
    echo: bool,
    name: &str,
) -> JoinHandle<String> {
    let name = name.to_owned();
    tokio::spawn(async move {
        let mut last = String::new();
        let Some(output) = output else { return last };
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        // A progress bar ends its lines with a carriage return, and never ends them in a bad case.
        while let Ok(read) = read_line(&mut output, &mut line).await {
            let text = String::from_utf8_lossy(&line);
            let text = text.rsplit('\r').find(|part| !part.trim().is_empty()).unwrap_or_default();
            let text: String = text.trim().chars().filter(|c| !c.is_control()).collect();
            if !text.is_empty() {
                if echo {
                    tracing::info!("{name}: {text}");
                }
                // The reason stands behind what the stock program puts before it.
                last = text.strip_prefix("Run: ").unwrap_or(&text).to_owned();
            }
            if read == 0 {
                break;
            }
            line.clear();
        }
        last
    })
}

/// Reads up to the end of a line or [`LINE_BYTES_MAX`], what lies between is lost; 0 at the end.
async fn read_line(output: &mut (impl AsyncBufRead + Unpin), line: &mut Vec<u8>) -> std::io::Result<usize> {
    let mut total = 0;
    loop {
        let available = output.fill_buf().await?;
        let end = available.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(available.len(), |end| end + 1);
        let room = LINE_BYTES_MAX.saturating_sub(line.len());
        line.extend_from_slice(available.get(..used.min(room)).unwrap_or_default());
        output.consume(used);
        total += used;
        if end.is_some() || used == 0 {
            return Ok(total);
        }
    }
}

fn kill(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        kill_process_group(group, signal).ok();
    }
}

/// Ends the program and all it has started.
async fn end(child: &mut Child, group: Option<Pid>) {
    kill(group, Signal::TERM);
    if tokio::time::timeout(ENDING, child.wait()).await.is_err() {
        kill(group, Signal::KILL);
        child.wait().await.ok();
    } else {
        kill(group, Signal::KILL);
    }
}
