//! A server as a child process and a client of raw bytes, for tests of the real program.
//!
//! When a test ends in any way, its server is killed by its process id and its directory is
//! removed.

#![allow(dead_code)] // each test file uses its part
#![allow(clippy::unwrap_used)] // a test fails where it is

mod client;
pub(crate) mod codes;
pub(crate) mod refusal;

pub(crate) use client::Client;

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Timeout for something that must happen. Only a broken server makes a test wait this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A directory that is removed after its test.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("scalla-{name}-{}-{number}", std::process::id()));
        fs::create_dir_all(path.join("data")).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// Returns a command for the program under one of its names, with state and home inside the scratch
/// directory.
pub(crate) fn program(name: &str, scratch: &Scratch) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scalla"));
    command.arg0(name).env("XDG_STATE_HOME", scratch.path("state")).env("HOME", scratch.path(""));
    command.current_dir(scratch.path("")).stdin(Stdio::null());
    command
}

/// Runs the program to its end.
pub(crate) fn run(name: &str, scratch: &Scratch, arguments: &[&str]) -> Output {
    program(name, scratch).args(arguments).output().unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A server that runs in the foreground.
pub(crate) struct Server {
    child: Child,
    /// The port for clients.
    pub(crate) port: u16,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Server {
    /// Starts `scalla serve` on the scratch directory's `data`, with an admin directory there, on a
    /// free port.
    pub(crate) fn serve(scratch: &Scratch, more: &[&str]) -> Self {
        let mut command = program("scalla", scratch);
        command.args(["serve", &scratch.text("data"), "--port", "0", "--admin-path", &scratch.text("admin")]);
        Self::start(command.args(more))
    }

    /// Starts the link `xrootd` with a configuration file on a free port.
    pub(crate) fn xrootd(scratch: &Scratch, more: &[&str]) -> Self {
        let mut command = program("xrootd", scratch);
        command.args(["-p", "any", "-a", &scratch.text("admin")]);
        Self::start(command.args(more))
    }

    /// Starts the link `xrootd` with this configuration and admin directory, on a free port.
    pub(crate) fn configured(scratch: &Scratch, admin: &str, config: &str) -> Self {
        let file = scratch.write("x.cfg", config);
        let mut command = program("xrootd", scratch);
        command.args(["-p", "any", "-a", &scratch.text(admin), "-c", file.to_str().unwrap()]);
        Self::start(&mut command)
    }

    /// Starts `scalla serve` like [`Server::serve`], in a process with this limit of descriptors.
    pub(crate) fn serve_with_descriptors(scratch: &Scratch, descriptors: usize) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"")]);
        command.arg(env!("CARGO_BIN_EXE_scalla")).env("XDG_STATE_HOME", scratch.path("state"));
        command.args(["serve", &scratch.text("data"), "--port", "0", "--admin-path", &scratch.text("admin")]);
        Self::start(command.env("HOME", scratch.path("")).stdin(Stdio::null()))
    }

    /// Starts a server and waits until it reports its port.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (tell, lines) = channel();
        let pipes: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for pipe in pipes {
            let tell = tell.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                    if tell.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        let mut server = Self { child, port: 0, lines, seen: Vec::new() };
        let started = server.line(|line| port_in(line).is_some());
        server.port = port_in(&started).unwrap();
        server
    }

    /// Returns the next matching line of output. Earlier lines are skipped.
    pub(crate) fn line(&mut self, fits: impl Fn(&str) -> bool) -> String {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if fits(&line) {
                        return line;
                    }
                }
                Err(error) => panic!("{error}; the server said:\n{}", self.seen.join("\n")),
            }
        }
    }

    /// Returns a matching line of output, including lines written during the start.
    pub(crate) fn said(&mut self, fits: impl Fn(&str) -> bool) -> String {
        let seen = self.seen.iter().find(|line| fits(line)).cloned();
        seen.unwrap_or_else(|| self.line(fits))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for the end of the process.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Resets the counter of [`Server::peak_memory`]. Returns the current memory in bytes.
    pub(crate) fn reset_peak_memory(&self) -> usize {
        fs::write(format!("/proc/{}/clear_refs", self.pid()), "5").unwrap();
        self.memory("VmRSS:")
    }

    /// Returns the peak memory in bytes.
    pub(crate) fn peak_memory(&self) -> usize {
        self.memory("VmHWM:")
    }

    fn memory(&self, what: &str) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with(what)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
    }

    pub(crate) fn client(&self) -> Client {
        Client::login(self.port)
    }

    /// Shuts the server down, and returns all of its output.
    pub(crate) fn ended(mut self) -> Vec<String> {
        self.signal(rustix::process::Signal::TERM);
        self.wait();
        let mut said = std::mem::take(&mut self.seen);
        said.extend(self.lines.iter());
        said
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Returns the port in `listening on [::]:1094` or `anon@host:1094 initialization completed`.
fn port_in(line: &str) -> Option<u16> {
    let rest = match line.split_once("listening on ") {
        Some((_, rest)) => rest,
        None => line.strip_suffix(" initialization completed.")?,
    };
    let word = rest.split([',', ' ']).rfind(|word| word.contains(':'))?;
    word.rsplit(':').next()?.parse().ok()
}

/// A server in the background, known by its pid.
pub(crate) struct Background(pub(crate) u32);

impl Background {
    /// Waits for the end of the process, whatever its cause.
    pub(crate) fn wait(&self) {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        use rustix::process::{Pid, PidfdFlags, pidfd_open};
        let pid = Pid::from_raw(self.0.cast_signed()).unwrap();
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        let limit = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
        let ended = poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&limit)).unwrap();
        assert_eq!(ended, 1, "the server {} does not end", self.0);
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.0.cast_signed()).unwrap();
        rustix::process::kill_process(pid, signal).ok();
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.signal(rustix::process::Signal::KILL);
        self.wait();
    }
}

/// Returns the status of the server with this admin directory.
pub(crate) fn status(admin: &Path) -> serde_json::Value {
    let socket = admin.join(".scalla/xrootd.sock");
    server::admin::ask(&socket, &server::admin::AdminRequest::Status {}).unwrap()
}

/// Reports whether this test is run by root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns the names in a directory, sorted.
pub(crate) fn names(directory: impl AsRef<Path>) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .map(|entries| {
            entries.flatten().map(|e| OsStr::to_string_lossy(&e.file_name()).into_owned()).collect()
        })
        .unwrap_or_default();
    names.sort();
    names
}
