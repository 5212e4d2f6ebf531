//! [`EntityMapper`]: runs the program for one client, within limits, and parses its output.

use super::shared_run::WaitingRuns;
use auth::{Entity, EntityAttributes, EntityNames};
use base::errno_text;
use config::EntityProgram;
use rustix::io::Result as SystemResult;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use storage::Pool;
use tokio::io::AsyncReadExt as _;
use tokio::process::Child;
use tokio::time::{Instant, timeout, timeout_at};

/// Maximum number of programs that run at the same time.
pub(super) const PROGRAMS_MAX: usize = 4;
/// The time after which a program is ended.
const TIME_MAX: Duration = Duration::from_secs(10);
/// Maximum time that an ended program takes until its thread is used again.
const END_TIME_MAX: Duration = Duration::from_secs(1);
/// Maximum number of programs that cannot be ended. With so many, no further one is started.
pub(super) const ABANDONED_MAX: usize = 32;
/// Maximum number of bytes of the output of a program.
const OUTPUT_BYTES_MAX: u64 = 4096;
/// Maximum length of a name in bytes.
const NAME_BYTES_MAX: usize = 256;
/// The search path of programs.
const SEARCH_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The identity of a client as the environment of the program. The output of the program depends on
/// nothing else that the server gives it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct EntityVariables(Vec<(&'static str, Box<str>)>);

impl EntityVariables {
    pub(super) fn of(entity: &Entity) -> Self {
        let fields = [
            ("ENTITY_PROTOCOL", Some(&entity.protocol)),
            ("ENTITY_HOST", Some(&entity.host)),
            ("ENTITY_NAME", entity.name.as_ref()),
            ("ENTITY_VORG", entity.vorg.as_ref()),
            ("ENTITY_ROLE", entity.role.as_ref()),
            ("ENTITY_GROUPS", entity.groups.as_ref()),
            ("ENTITY_ENDORSEMENTS", entity.endorsements.as_ref()),
            ("ENTITY_MONINFO", entity.monitor_info.as_ref()),
        ];
        Self(fields.into_iter().filter_map(|(key, value)| Some((key, value?.clone()))).collect())
    }

    /// Returns the variables with another protocol.
    pub(super) fn by_protocol(mut self, protocol: &str) -> Self {
        for (key, value) in &mut self.0 {
            if *key == "ENTITY_PROTOCOL" {
                *value = protocol.into();
            }
        }
        self
    }
}

/// A program that completes identities, and its threads.
pub(crate) struct EntityMapper {
    pub(super) program: EntityProgram,
    pub(super) pool: Arc<Pool>,
    pub(super) waiting: WaitingRuns,
    pub(super) time_max: Duration,
    /// Ends a program and the processes of its group.
    pub(super) end: fn(Pid) -> SystemResult<()>,
    /// Programs that still run although they were ended: those with the rights of another user, or
    /// that wait for a device. They are reaped when a later program starts.
    pub(super) abandoned: Mutex<Vec<Child>>,
}

impl EntityMapper {
    pub(super) fn new(program: &EntityProgram) -> Self {
        Self {
            program: program.clone(),
            pool: Pool::new("entity-programs", PROGRAMS_MAX),
            waiting: WaitingRuns::default(),
            time_max: TIME_MAX,
            end: end_program,
            abandoned: Mutex::default(),
        }
    }

    /// Runs the program for a client. Blocks.
    pub(super) fn run(&self, entity: &EntityVariables) -> Result<EntityNames, String> {
        let abandoned = self.reap();
        if abandoned >= ABANDONED_MAX {
            return Err(format!("{abandoned} of its processes run too long and cannot be ended"));
        }
        let mut command = tokio::process::Command::new(&self.program.path);
        command.args(&self.program.arguments).env_clear().env("PATH", SEARCH_PATH);
        command.envs(entity.0.iter().map(|(key, value)| (key, &**value)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (status, output) = runtime.block_on(self.output(command))?;
        let output = String::from_utf8(output).map_err(|_| "its output is not UTF-8".to_owned())?;
        if status.success() {
            parse(&output)
        } else {
            let line = output.lines().next().unwrap_or_default();
            Err(format!("it refuses the client ({status}): {}", base::shown(line.as_bytes())))
        }
    }

    /// Reaps abandoned programs that have ended, and returns the number of the others.
    pub(super) fn reap(&self) -> usize {
        let mut abandoned = self.lock_abandoned();
        abandoned.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        abandoned.len()
    }

    fn lock_abandoned(&self) -> MutexGuard<'_, Vec<Child>> {
        self.abandoned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a program and returns its status and output. Then the processes of its group are ended.
    async fn output(&self, mut command: tokio::process::Command) -> Result<(ExitStatus, Vec<u8>), String> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.process_group(0).kill_on_drop(true);
        let deadline = Instant::now() + self.time_max;
        let mut child = command.spawn().map_err(failed)?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let output = timeout_at(deadline, read_output(&mut child)).await;
        let status = match &output {
            // The program has closed its output and may still compute its status.
            Ok(Ok(_)) => timeout_at(deadline, child.wait()).await.ok(),
            _ => None,
        };
        if status.is_none() {
            self.end(child, group).await;
        } else if let Some(group) = group {
            // The number is that of the group as long as the group has a process.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let late = || format!("it did not end within {} s", self.time_max.as_secs());
        let output = output.map_err(|_| late())??;
        match status {
            Some(status) => Ok((status.map_err(failed)?, output)),
            None => Err(late()),
        }
    }

    /// Ends a program for which nobody has waited, so its number is not used again. The thread does
    /// not wait for a program that stays.
    async fn end(&self, mut child: Child, group: Option<Pid>) {
        let ended = group.map_or(Ok(()), self.end);
        if timeout(END_TIME_MAX, child.wait()).await.is_ok() {
            return;
        }
        let reason = ended.map_or_else(|error| errno_text(&error.into()), |()| "it is blocked".to_owned());
        tracing::error!(
            "{} (sec.entityprogram): process {} runs for more than {} s and cannot be ended: {reason}",
            self.program.path.display(),
            child.id().unwrap_or_default(),
            self.time_max.as_secs()
        );
        self.lock_abandoned().push(child);
    }
}

fn failed(error: io::Error) -> String {
    format!("it cannot be run: {}", errno_text(&error))
}

async fn read_output(child: &mut Child) -> Result<Vec<u8>, String> {
    let mut output = Vec::new();
    if let Some(pipe) = child.stdout.take() {
        pipe.take(OUTPUT_BYTES_MAX + 1).read_to_end(&mut output).await.map_err(failed)?;
    }
    if output.len() as u64 > OUTPUT_BYTES_MAX {
        return Err(format!("it writes more than {OUTPUT_BYTES_MAX} bytes"));
    }
    Ok(output)
}

/// Ends the processes of a group, or its first one if that has left the group.
fn end_program(group: Pid) -> SystemResult<()> {
    kill_process_group(group, Signal::KILL).or_else(|_| kill_process(group, Signal::KILL))
}

/// Parses the output of a program.
fn parse(output: &str) -> Result<EntityNames, String> {
    let [mut name, mut vorg, mut role, mut groups] = [None; 4];
    for line in output.lines() {
        let malformed = || format!("it writes a malformed line: {}", base::shown(line.as_bytes()));
        let (key, value) = line.split_once('=').ok_or_else(malformed)?;
        let field = match key {
            "name" => &mut name,
            "vorg" => &mut vorg,
            "role" => &mut role,
            "groups" => &mut groups,
            _ => return Err(malformed()),
        };
        let is_name = key != "name" || (1..=NAME_BYTES_MAX).contains(&value.len());
        if field.is_some() || !is_name || value.chars().any(char::is_control) {
            return Err(malformed());
        }
        *field = Some(value);
    }
    let attributes = match (vorg, role, groups) {
        (None, None, None) => None,
        _ => {
            let [vorg, role, groups] = [vorg, role, groups].map(Option::unwrap_or_default);
            let attributes = EntityAttributes::new(vorg, role, groups);
            Some(attributes.ok_or("it writes vorg, role and groups with different numbers of words")?)
        }
    };
    Ok(EntityNames { name: name.map(Into::into), attributes })
}
