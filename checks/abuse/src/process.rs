//! A process of the program under test, its directory, and the resources that it holds.

use anyhow::{Context, Result, bail};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The resources that a server holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessUsage {
    /// Resident memory.
    pub(crate) memory: u64,
    pub(crate) descriptors: usize,
    pub(crate) threads: u64,
    pub(crate) connections: u64,
    pub(crate) open_files: u64,
}

/// The directory of a campaign. Dropping it removes it.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn create() -> Result<Self> {
        let directory = std::env::temp_dir().join(format!("scalla-abuse-{}", std::process::id()));
        fs::create_dir_all(&directory)?;
        Ok(Self(directory))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Asks a process of this directory over its admin socket.
    pub(crate) fn ask(
        &self,
        socket: &str,
        request: &server::admin::AdminRequest,
    ) -> Result<serde_json::Value> {
        server::admin::ask(&self.0.join(socket), request)
            .map_err(|error| anyhow::anyhow!("the answer over {socket}: {error}"))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// A process. Dropping it kills it.
pub(crate) struct ServerProcess {
    log: PathBuf,
    child: Child,
}

impl ServerProcess {
    /// Starts the program in a directory; returns when its port for clients, which is returned, is
    /// open.
    pub(crate) fn start(
        program: &Path,
        scratch: &Scratch,
        name: &str,
        arguments: &[&str],
    ) -> Result<(Self, u16)> {
        let directory = scratch.path();
        let log = directory.join(format!("{name}.log"));
        let mut child = Command::new(program)
            .args(arguments)
            .current_dir(directory)
            .env("HOME", directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log)?)
            .spawn()
            .with_context(|| format!("cannot start {}; build it or name it (--server)", program.display()))?;
        let output = child.stdout.take().context("no output")?;
        let process = Self { log, child };
        let mut lines = BufReader::new(output).lines().map_while(Result::ok);
        let port = lines.find_map(|line| port_in(&line));
        let port = port.with_context(|| format!("the {name} did not start:\n{}", process.log()))?;
        Ok((process, port))
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Reports an end of the process.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("the server ended ({status}):\n{}", self.log()),
            None => Ok(()),
        }
    }

    /// Kills it, as a crash would end it.
    pub(crate) fn kill(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }

    /// Resident memory in bytes.
    pub(crate) fn memory(&self) -> Result<u64> {
        Ok(self.figure("VmRSS:")? * 1024)
    }

    /// The largest resident memory since the last reset, in bytes.
    pub(crate) fn peak(&self) -> Result<u64> {
        Ok(self.figure("VmHWM:")? * 1024)
    }

    pub(crate) fn reset_peak(&self) {
        // Without it the peak is that of the whole run.
        fs::write(self.file("clear_refs"), "5").ok();
    }

    pub(crate) fn threads(&self) -> Result<u64> {
        self.figure("Threads:")
    }

    pub(crate) fn descriptors(&self) -> Result<usize> {
        Ok(fs::read_dir(self.file("fd"))?.count())
    }

    fn file(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.child.id()))
    }

    fn figure(&self, name: &str) -> Result<u64> {
        let text = fs::read_to_string(self.file("status"))?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)).context("no such figure")?;
        Ok(line.split_whitespace().next().context("an empty figure")?.parse()?)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The port in `listening on [::]:1094, ...`.
fn port_in(line: &str) -> Option<u16> {
    let (_, rest) = line.split_once("listening on ")?;
    rest.split([',', ' ']).next()?.rsplit(':').next()?.parse().ok()
}
