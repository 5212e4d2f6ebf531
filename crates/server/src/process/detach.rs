//! Into the background (`-b`).
//!
//! The program starts itself a second time, in a session of its own, and the first process waits at a pipe until the
//! second one says that its port is open; then it exits with 0. If the second one ends before that, its messages have gone
//! to the terminal and its status becomes that of the first. Starting anew instead of forking means that the server's
//! process is born with one thread and nothing inherited.

use std::ffi::{CString, OsString};
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};

/// Set for the second process to the pid of the first; what it may start itself inherits the variable, but not the parent.
const MARK: &str = "SCALLA_DETACHED_BY";

/// What the second process says when it serves.
const READY: &[u8] = b"ready\n";

/// What became of the wish to detach.
pub enum Outcome {
    /// This is the first process: the server runs, or did not start; exit with this status.
    Parent(u8),
    /// This is the second process: start, then call [`Detached::ready`].
    Server(Detached),
}

/// The background process before it has told its parent that it serves.
#[must_use = "the parent waits for `ready`"]
pub struct Detached(());

/// Detaches: to be called before anything is opened or any thread is started.
///
/// # Errors
/// When the program cannot be started a second time.
pub fn detach() -> io::Result<Outcome> {
    if is_server() {
        // Fails only for a leader of a process group, which a process just started by another is not.
        rustix::process::setsid().ok();
        return Ok(Outcome::Server(Detached(())));
    }
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| OsString::from("scalla"));
    let mut child = Command::new(std::env::current_exe()?)
        .arg0(name)
        .args(arguments)
        .env(MARK, std::process::id().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = Vec::new();
    if let Some(mut pipe) = child.stdout.take() {
        pipe.read_to_end(&mut said)?;
    }
    let ready = said.strip_suffix(READY);
    io::stdout().write_all(ready.unwrap_or(&said)).and_then(|()| io::stdout().flush()).ok();
    if ready.is_some() {
        return Ok(Outcome::Parent(0));
    }
    let status = child.wait()?;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    // A server that ends well before it serves has not started either.
    Ok(Outcome::Parent(u8::try_from(code).unwrap_or(1).max(1)))
}

/// Keeps the name that `ps` and `pgrep` show: that of the link we were started under, however often we started anew.
pub fn keep_name() {
    let Some(name) = std::env::args_os().next() else { return };
    let name = Path::new(&name).file_name().unwrap_or_default();
    if let Ok(name) = CString::new(name.as_encoded_bytes()) {
        // A process whose name cannot be set serves under another.
        rustix::thread::set_name(&name).ok();
    }
}

/// Is this the process that a parent started to be the server?
fn is_server() -> bool {
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().to_string());
    parent.is_some() && std::env::var(MARK).ok() == parent
}

impl Detached {
    /// Tells the parent that the server serves, and lets go of the terminal.
    ///
    /// # Errors
    /// When `/dev/null` cannot be opened.
    pub fn ready(self) -> io::Result<()> {
        let nowhere = std::fs::File::options().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stderr(&nowhere)?;
        // The parent may have been killed meanwhile; the server serves all the same.
        io::stdout().write_all(READY).and_then(|()| io::stdout().flush()).ok();
        rustix::stdio::dup2_stdin(&nowhere)?;
        rustix::stdio::dup2_stdout(&nowhere)?;
        Ok(())
    }
}
