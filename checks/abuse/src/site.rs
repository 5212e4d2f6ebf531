//! The server under test: its files, its resources, and its end.

use anyhow::{Context, Result, bail};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Bytes of the large file.
pub(crate) const BIG_BYTES: usize = 256 * 1024 * 1024;

/// Entries of the large directory.
const ENTRIES: usize = 2000;

/// The resources that a server holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holdings {
    /// Resident memory.
    pub(crate) memory: u64,
    pub(crate) descriptors: usize,
    pub(crate) threads: u64,
    pub(crate) connections: u64,
    pub(crate) open_files: u64,
}

/// A server and its directory. Dropping it ends both.
pub(crate) struct Site {
    pub(crate) port: u16,
    directory: PathBuf,
    child: Child,
}

impl Site {
    pub(crate) fn start(program: &Path) -> Result<Self> {
        let directory = std::env::temp_dir().join(format!("scalla-abuse-{}", std::process::id()));
        fs::create_dir_all(directory.join("data/many"))?;
        // Sparse, because only the server's use of it matters, not its content.
        fs::File::create(directory.join("data/big"))?.set_len(BIG_BYTES as u64)?;
        fs::write(directory.join("data/small"), [7; 100_000])?;
        for number in 0..ENTRIES {
            fs::write(directory.join(format!("data/many/a-file-with-a-longer-name-{number}")), "")?;
        }
        let mut child = Command::new(program)
            .args(["serve", "data", "--port", "0", "--admin-path", "admin"])
            .current_dir(&directory)
            .env("HOME", &directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(directory.join("log"))?)
            .spawn()
            .with_context(|| format!("cannot start {}; build it or name it (--server)", program.display()))?;
        let output = child.stdout.take().context("no output")?;
        let mut lines = BufReader::new(output).lines().map_while(Result::ok);
        let port = lines.find_map(|line| port_in(&line));
        let mut site = Self { port: 0, directory, child };
        site.port = port.with_context(|| format!("the server did not start:\n{}", site.log()))?;
        Ok(site)
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Reports an end of the server.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("the server ended ({status}):\n{}", self.log()),
            None => Ok(()),
        }
    }

    pub(crate) fn holdings(&self) -> Result<Holdings> {
        let socket = self.directory.join("admin/.scalla/xrootd.sock");
        let status = server::admin::ask(&socket, &server::admin::Request::Status {})
            .map_err(|error| anyhow::anyhow!("the server's status: {error}"))?;
        Ok(Holdings {
            memory: self.process_figure("VmRSS:")? * 1024,
            descriptors: fs::read_dir(self.process_file("fd"))?.count(),
            threads: self.process_figure("Threads:")?,
            connections: status["connections"].as_u64().context("connections")?,
            open_files: status["open_files"].as_u64().context("open_files")?,
        })
    }

    /// The largest resident memory since the last reset.
    pub(crate) fn peak(&self) -> Result<u64> {
        Ok(self.process_figure("VmHWM:")? * 1024)
    }

    pub(crate) fn reset_peak(&self) {
        // Without it the peak is that of the whole run.
        fs::write(self.process_file("clear_refs"), "5").ok();
    }

    fn process_file(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.child.id()))
    }

    fn process_figure(&self, name: &str) -> Result<u64> {
        let text = fs::read_to_string(self.process_file("status"))?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)).context("no such figure")?;
        Ok(line.split_whitespace().next().context("an empty figure")?.parse()?)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        fs::remove_dir_all(&self.directory).ok();
    }
}

/// The port in `listening on [::]:1094, ...`.
fn port_in(line: &str) -> Option<u16> {
    let (_, rest) = line.split_once("listening on ")?;
    rest.split([',', ' ']).next()?.rsplit(':').next()?.parse().ok()
}
