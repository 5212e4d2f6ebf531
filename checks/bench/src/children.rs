//! Child processes that end with this process and have a deadline.
//!
//! Otherwise a killed benchmark would leave servers running, and a hung server would block it
//! forever.

use anyhow::{Context, bail};
use nix::unistd::{Uid, User};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The processor of servers; below it that of generators.
pub(crate) const SERVER_CPU: u32 = 0;
pub(crate) const CLIENT_CPU: u32 = 1;

/// The user of the servers if this process runs as root, because XRootD refuses to run as root.
const USER: &str = "nobody";

/// Returns the user of the servers; `None` if it is the present user.
pub(crate) fn user() -> anyhow::Result<Option<User>> {
    if !Uid::effective().is_root() {
        return Ok(None);
    }
    let user = User::from_name(USER)?;
    Ok(Some(user.with_context(|| format!("the user {USER} for the servers does not exist"))?))
}

/// Raises the limit of open files to its maximum; servers inherit it.
pub(crate) fn allow_descriptors() -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .context("cannot raise the limit of open files")
}

/// Returns a command that is pinned to a processor and killed when this process ends.
pub(crate) fn pinned(program: &Path, cpu: u32) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "taskset", "-c", &cpu.to_string()]).arg(program);
    // Variables of the present user would change the behaviour of the XRootD programs.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("XRD") {
            command.env_remove(name);
        }
    }
    command
}

/// Returns a pinned command that only runs when no other process needs its processor.
pub(crate) fn giving_way(program: &Path, cpu: u32) -> Command {
    let mut command = pinned(Path::new("chrt"), cpu);
    command.args(["--idle", "0"]).arg(program);
    command
}

/// A server that is killed on drop.
pub(crate) struct ChildServer {
    child: Child,
}

impl ChildServer {
    /// Starts the server with its output in a file.
    pub(crate) fn start(mut command: Command, log: &Path, as_user: bool) -> anyhow::Result<Self> {
        let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        if as_user && let Some(user) = user()? {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        Ok(Self { child })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `found` returns a value for the output. The deadline is 30 s.
    pub(crate) fn wait_for<T>(&mut self, log: &Path, found: impl Fn(&str) -> Option<T>) -> anyhow::Result<T> {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let text = std::fs::read_to_string(log).unwrap_or_default();
            if let Some(found) = found(&text) {
                return Ok(found);
            }
            if self.child.try_wait()?.is_some() || Instant::now() > until {
                bail!("a server did not start:\n{text}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for ChildServer {
    fn drop(&mut self) {
        // The server may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A running program whose output is needed; killed on drop.
pub(crate) struct Awaited {
    child: Option<Child>,
    text: String,
    until: Instant,
}

impl Awaited {
    /// Starts the program. Its output must be short, because it is read when the program has ended.
    pub(crate) fn start(mut command: Command, patience: Duration) -> anyhow::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let text = command.get_args().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let child = command.spawn().with_context(|| format!("cannot start {text}"))?;
        Ok(Self { child: Some(child), text, until: Instant::now() + patience })
    }

    /// Waits for the end of the program, with any exit status.
    pub(crate) fn wait(mut self) -> anyhow::Result<Output> {
        while let Some(child) = &mut self.child {
            if child.try_wait()?.is_some() {
                break;
            }
            if Instant::now() > self.until {
                bail!("the program did not end before its deadline: {}", self.text);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let child = self.child.take().context("a program can be waited for once")?;
        Ok(child.wait_with_output()?)
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

/// Runs a program and fails unless it succeeds.
pub(crate) fn run(command: Command, patience: Duration) -> anyhow::Result<Output> {
    let awaited = Awaited::start(command, patience)?;
    let text = awaited.text.clone();
    let output = awaited.wait()?;
    if !output.status.success() {
        bail!("failed: {text}\n{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output)
}
