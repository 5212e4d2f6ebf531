//! Programs that end when we do, whatever ends us, and that are not waited for without end.

use anyhow::{Context, bail};
use nix::unistd::{Uid, User};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The processor of servers, and that of generators.
pub(crate) const SERVER_CPU: u32 = 0;
pub(crate) const CLIENT_CPU: u32 = 1;

/// User of the servers when we are root: the real xrootd refuses to be root.
const USER: &str = "nobody";

/// The user the servers run as; `None` when that is whom we are.
pub(crate) fn user() -> anyhow::Result<Option<User>> {
    if !Uid::effective().is_root() {
        return Ok(None);
    }
    let user = User::from_name(USER)?;
    Ok(Some(user.with_context(|| format!("there is no user {USER} for the servers"))?))
}

/// Raises the limit of open files to what is allowed; servers inherit it.
pub(crate) fn allow_descriptors() -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .context("cannot raise the limit of open files")
}

/// A command that stays on a processor and is killed when we end.
pub(crate) fn pinned(program: &Path, cpu: u32) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "taskset", "-c", &cpu.to_string()]).arg(program);
    // Settings of the person who runs this would change what the real programs do.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("XRD") {
            command.env_remove(name);
        }
    }
    command
}

/// The same, but on its processor whoever else has something to do comes first.
pub(crate) fn giving_way(program: &Path, cpu: u32) -> Command {
    let mut command = pinned(Path::new("chrt"), cpu);
    command.args(["--idle", "0"]).arg(program);
    command
}

/// A server that is killed when this is dropped.
pub(crate) struct Running {
    child: Child,
}

impl Running {
    /// Starts it with its output going to a file.
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

    /// Waits until its output makes `found` find something.
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

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended already is as good.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A program under way whose output is wanted; killed when dropped.
pub(crate) struct Awaited {
    child: Option<Child>,
    text: String,
    until: Instant,
}

impl Awaited {
    /// Starts it. Its output must be short: it is read when the program has ended.
    pub(crate) fn start(mut command: Command, patience: Duration) -> anyhow::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let text = command.get_args().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let child = command.spawn().with_context(|| format!("cannot start {text}"))?;
        Ok(Self { child: Some(child), text, until: Instant::now() + patience })
    }

    /// Waits for its end. Any exit status is good enough here.
    pub(crate) fn wait(mut self) -> anyhow::Result<Output> {
        while let Some(child) = &mut self.child {
            if child.try_wait()?.is_some() {
                break;
            }
            if Instant::now() > self.until {
                bail!("did not end in time: {}", self.text);
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

/// Runs a program to its end and insists on success.
pub(crate) fn run(command: Command, patience: Duration) -> anyhow::Result<Output> {
    let awaited = Awaited::start(command, patience)?;
    let text = awaited.text.clone();
    let output = awaited.wait()?;
    if !output.status.success() {
        bail!("failed: {text}\n{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output)
}
