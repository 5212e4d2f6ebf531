//! The server under test and its files.

use crate::process::{ProcessUsage, Scratch, ServerProcess};
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

/// Bytes of the large file.
pub(crate) const BIG_BYTES: usize = 256 * 1024 * 1024;

/// Entries of the large directory.
const ENTRIES: usize = 2000;

/// A server and its directory. Dropping it ends both.
pub(crate) struct Site {
    pub(crate) port: u16,
    pub(crate) process: ServerProcess,
    scratch: Scratch,
}

impl Site {
    /// Starts the server with the lines of configuration that `prepare` returns for its directory.
    pub(crate) fn start(program: &Path, prepare: fn(&Path) -> Result<Vec<String>>) -> Result<Self> {
        let scratch = Scratch::create()?;
        let directory = scratch.path();
        fs::create_dir_all(directory.join("data/many"))?;
        // Sparse, because only the server's use of it matters, not its content.
        fs::File::create(directory.join("data/big"))?.set_len(BIG_BYTES as u64)?;
        fs::write(directory.join("data/small"), [7; 100_000])?;
        for number in 0..ENTRIES {
            fs::write(directory.join(format!("data/many/a-file-with-a-longer-name-{number}")), "")?;
        }
        let mut arguments = vec!["serve", "data", "--port", "0", "--admin-path", "admin"];
        let lines = prepare(directory)?;
        if !lines.is_empty() {
            fs::write(directory.join("server.cfg"), lines.join("\n") + "\n")?;
            arguments.extend(["--config", "server.cfg"]);
        }
        let (process, port) = ServerProcess::start(program, &scratch, "server", &arguments)?;
        Ok(Self { port, process, scratch })
    }

    pub(crate) fn holdings(&self) -> Result<ProcessUsage> {
        let status =
            self.scratch.ask("admin/.scalla/xrootd.sock", &server::admin::AdminRequest::Status {})?;
        Ok(ProcessUsage {
            memory: self.process.memory()?,
            descriptors: self.process.descriptors()?,
            threads: self.process.threads()?,
            connections: status["connections"].as_u64().context("connections")?,
            open_files: status["open_files"].as_u64().context("open_files")?,
        })
    }
}
