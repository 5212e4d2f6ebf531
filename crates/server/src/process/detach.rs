//! Detaching into the background (`-b`).
//!
//! The program starts itself a second time, in a session of its own. The first process waits at a
//! pipe until the second one reports that its port is open; then it exits with 0. If the second one
//! ends before that, its messages have gone to the terminal and the first process exits with its
//! status. The program is started anew instead of forked, so that the server's process begins with
//! one thread and inherits nothing.

use std::ffi::{CString, OsString};
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};

/// Environment variable of the second process with the pid of the first. Programs that the second
/// one starts inherit the variable, but have another parent.
const MARK: &str = "SCALLA_DETACHED_BY";

/// The message of the second process after its port is open.
const READY: &[u8] = b"ready\n";

/// The result of [`detach`].
pub enum DetachOutcome {
    /// This is the first process. The server runs or has failed; exit with this status.
    Parent(u8),
    /// This is the second process: start, then call [`Detached::ready`].
    Server(Detached),
}

/// The background process before it has reported its start.
#[must_use = "the parent waits for `ready`"]
pub struct Detached(());

/// Detaches. Must be called before any file is opened or any thread is started.
///
/// # Errors
/// The program cannot be started a second time.
pub fn detach() -> io::Result<DetachOutcome> {
    if is_server() {
        // This fails only for the leader of a process group, which a newly started process is not.
        rustix::process::setsid().ok();
        return Ok(DetachOutcome::Server(Detached(())));
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
        return Ok(DetachOutcome::Parent(0));
    }
    let status = child.wait()?;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    // A server that exits with 0 before it serves has not started either.
    Ok(DetachOutcome::Parent(u8::try_from(code).unwrap_or(1).max(1)))
}

/// Sets the process name shown by `ps` and `pgrep` to that of the link under which the program was
/// started. A restart of the program changes it.
pub fn keep_name() {
    let Some(name) = std::env::args_os().next() else { return };
    let name = Path::new(&name).file_name().unwrap_or_default();
    if let Ok(name) = CString::new(name.as_encoded_bytes()) {
        // A failure affects only the displayed name.
        rustix::thread::set_name(&name).ok();
    }
}

/// Reports whether this process was started by a parent to be the server.
fn is_server() -> bool {
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().to_string());
    parent.is_some() && std::env::var(MARK).ok() == parent
}

impl Detached {
    /// Reports the start to the parent, and closes the terminal.
    ///
    /// # Errors
    /// `/dev/null` cannot be opened.
    pub fn ready(self) -> io::Result<()> {
        let nowhere = std::fs::File::options().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stderr(&nowhere)?;
        // The parent may have been killed meanwhile; the server continues.
        io::stdout().write_all(READY).and_then(|()| io::stdout().flush()).ok();
        rustix::stdio::dup2_stdin(&nowhere)?;
        rustix::stdio::dup2_stdout(&nowhere)?;
        Ok(())
    }
}
