//! `sec.entityprogram`: a program of the site that names the user and the groups of each client that
//! has authenticated, or refuses it.
//!
//! The identity is in the environment of the program. Each line of its output is `KEY=VALUE`; what it
//! does not name stays as the protocol gives it. Another status than 0, a malformed line, too much
//! output and too much time refuse the client, because an identity must be certain.
//!
//! Programs run on threads of their own, so that slow ones do not occupy those of other logins. The
//! login waits without a thread ([`ServerStep::Later`]).

use crate::error::StartError;
use auth::{
    CertificateInForce, Entity, EntityNames, ExportedFiles, FileRefresh, LoginPeer, LoginWaker, RefusedLogin,
    ServerLogin, ServerProtocol, ServerStep, SignatureCipher, StepCost,
};
use base::errno_text;
use config::EntityProgram;
use rustix::fs::{Access, access};
use rustix::process::{Pid, Signal, kill_process_group};
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use storage::Pool;
use tokio::io::AsyncReadExt as _;

/// Maximum number of programs that run at the same time.
const PROGRAMS_MAX: usize = 4;
/// The time after which a program is ended.
const TIME_MAX: Duration = Duration::from_secs(10);
/// Maximum number of bytes of its output.
const OUTPUT_BYTES_MAX: u64 = 4096;
/// Maximum length of a name in bytes.
const NAME_BYTES_MAX: usize = 256;
/// The search path of programs.
const SEARCH_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A program that completes identities, and its threads.
struct EntityMapper {
    program: EntityProgram,
    pool: Arc<Pool>,
    time_max: Duration,
}

/// Lets a program complete the identities of clients of these protocols.
///
/// # Errors
/// [`StartError::Security`]: the program cannot be executed.
pub(crate) fn with_program(
    protocols: Vec<Arc<dyn ServerProtocol>>,
    program: &EntityProgram,
) -> Result<Vec<Arc<dyn ServerProtocol>>, StartError> {
    access(&program.path, Access::EXEC_OK).map_err(|error| {
        let (shown, reason) = (program.path.display(), errno_text(&error.into()));
        StartError::Security(format!("sec.entityprogram: {shown} cannot be executed: {reason}"))
    })?;
    let pool = Pool::new("entity-programs", PROGRAMS_MAX);
    let mapper = Arc::new(EntityMapper { program: program.clone(), pool, time_max: TIME_MAX });
    let mapped =
        |inner| Arc::new(MappedProtocol { inner, mapper: mapper.clone() }) as Arc<dyn ServerProtocol>;
    Ok(protocols.into_iter().map(mapped).collect())
}

/// A protocol whose identities a program completes.
struct MappedProtocol {
    inner: Arc<dyn ServerProtocol>,
    mapper: Arc<EntityMapper>,
}

impl ServerProtocol for MappedProtocol {
    fn id(&self) -> &'static str {
        self.inner.id()
    }

    fn parameters(&self) -> String {
        self.inner.parameters()
    }

    fn credential_bytes_min(&self) -> usize {
        self.inner.credential_bytes_min()
    }

    fn needs_tls(&self) -> bool {
        self.inner.needs_tls()
    }

    fn begin(&self, peer: &LoginPeer) -> Box<dyn ServerLogin> {
        Box::new(MappedLogin {
            protocol: self.inner.id(),
            inner: self.inner.begin(peer),
            mapper: self.mapper.clone(),
            mapping: None,
        })
    }

    fn ready_at(&self) -> SystemTime {
        self.inner.ready_at()
    }

    fn periodic_refreshes(&self) -> Vec<FileRefresh> {
        self.inner.periodic_refreshes()
    }

    fn refresh(&self) -> Result<(), String> {
        self.inner.refresh()
    }

    fn warnings(&self, now: SystemTime, soon: Duration) -> Vec<String> {
        self.inner.warnings(now, soon)
    }

    fn exported_files(&self) -> Option<&ExportedFiles> {
        self.inner.exported_files()
    }

    fn certificate(&self) -> Option<CertificateInForce> {
        self.inner.certificate()
    }

    fn state(&self) -> String {
        self.inner.state()
    }
}

/// The result of a program, and the login that waits for it.
#[derive(Default)]
struct MappingState {
    result: Option<Result<EntityNames, String>>,
    waker: Option<LoginWaker>,
}

/// A program that runs for a client.
struct RunningMapping {
    entity: Entity,
    state: Arc<Mutex<MappingState>>,
}

/// An exchange whose identity a program completes.
struct MappedLogin {
    protocol: &'static str,
    inner: Box<dyn ServerLogin>,
    mapper: Arc<EntityMapper>,
    mapping: Option<RunningMapping>,
}

impl ServerLogin for MappedLogin {
    fn cost(&self) -> StepCost {
        if self.mapping.is_some() { StepCost::Cheap } else { self.inner.cost() }
    }

    fn step(&mut self, credentials: &[u8], now: SystemTime) -> ServerStep {
        let Some(mapping) = self.mapping.take() else {
            return match self.inner.step(credentials, now) {
                ServerStep::Done(entity) => self.start(entity),
                other => other,
            };
        };
        let result = lock(&mapping.state).result.take();
        match result {
            None => {
                self.mapping = Some(mapping);
                ServerStep::Later
            }
            Some(Ok(names)) => ServerStep::Done(mapping.entity.renamed(names)),
            Some(Err(reason)) => self.refuse(&reason),
        }
    }

    fn wake_when_ready(&mut self, waker: LoginWaker) {
        let Some(mapping) = &self.mapping else { return self.inner.wake_when_ready(waker) };
        let mut state = lock(&mapping.state);
        if state.result.is_none() {
            state.waker = Some(waker);
        } else {
            drop(state);
            waker();
        }
    }

    fn signature_cipher(&self) -> Option<Arc<dyn SignatureCipher>> {
        self.inner.signature_cipher()
    }
}

impl MappedLogin {
    /// Starts the program.
    fn start(&mut self, entity: Entity) -> ServerStep {
        let state = Arc::new(Mutex::new(MappingState::default()));
        let (mapper, result, named) = (self.mapper.clone(), state.clone(), entity.clone());
        let job = move || {
            // A login that ended meanwhile needs no program.
            if Arc::strong_count(&result) > 1 {
                finish(&result, mapper.run(&named));
            }
        };
        if self.mapper.pool.run(Pool::current_owner(), Box::new(job)).is_err() {
            return self.refuse("too many clients wait for it");
        }
        self.mapping = Some(RunningMapping { entity, state });
        ServerStep::Later
    }

    fn refuse(&self, reason: &str) -> ServerStep {
        let program = self.mapper.program.path.display();
        ServerStep::Refused(RefusedLogin::new(
            self.protocol,
            format!("{program} (sec.entityprogram): {reason}"),
        ))
    }
}

fn lock(state: &Mutex<MappingState>) -> MutexGuard<'_, MappingState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn finish(state: &Mutex<MappingState>, result: Result<EntityNames, String>) {
    let mut state = lock(state);
    state.result = Some(result);
    let waker = state.waker.take();
    drop(state);
    if let Some(wake) = waker {
        wake();
    }
}

impl EntityMapper {
    /// Runs the program for a client. Blocks.
    fn run(&self, entity: &Entity) -> Result<EntityNames, String> {
        let failed = |error: io::Error| format!("it cannot be run: {}", errno_text(&error));
        let mut command = std::process::Command::new(&self.program.path);
        command.args(&self.program.arguments).env_clear().env("PATH", SEARCH_PATH);
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
        command.envs(fields.into_iter().filter_map(|(key, value)| Some((key, &**value?))));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (status, output) = runtime.block_on(output(command, self.time_max))?;
        let output = String::from_utf8(output).map_err(|_| "its output is not UTF-8".to_owned())?;
        if status.success() {
            parse(&output)
        } else {
            let line = output.lines().next().unwrap_or_default();
            Err(format!("it refuses the client ({status}): {}", base::shown(line.as_bytes())))
        }
    }
}

/// Runs a program and returns its status and output. All processes of its group have ended then.
async fn output(command: std::process::Command, time_max: Duration) -> Result<(ExitStatus, Vec<u8>), String> {
    let failed = |error: io::Error| format!("it cannot be run: {}", errno_text(&error));
    let mut command = tokio::process::Command::from(command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.process_group(0).kill_on_drop(true);
    let mut child = command.spawn().map_err(failed)?;
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let pipe = child.stdout.take();
    let run = async {
        let mut output = Vec::new();
        if let Some(pipe) = pipe {
            pipe.take(OUTPUT_BYTES_MAX + 1).read_to_end(&mut output).await.map_err(failed)?;
        }
        if output.len() as u64 > OUTPUT_BYTES_MAX {
            return Err(format!("it writes more than {OUTPUT_BYTES_MAX} bytes"));
        }
        Ok(output)
    };
    let output = tokio::time::timeout(time_max, run).await;
    let ended = async {
        match &output {
            // The program has closed its output and may still compute its status.
            Ok(Ok(_)) => tokio::time::timeout(time_max, child.wait()).await.ok(),
            _ => None,
        }
    };
    let status = ended.await;
    if let Some(group) = group {
        // As long as nobody has waited for the program its number is not used again, and afterwards it
        // is that of the group as long as the group has a process.
        let _ = kill_process_group(group, Signal::KILL);
    }
    if status.is_none() {
        let _ = child.wait().await;
    }
    let late = || format!("it did not end within {} s", time_max.as_secs());
    let output = output.map_err(|_| late())??;
    match status {
        Some(status) => Ok((status.map_err(failed)?, output)),
        None => Err(late()),
    }
}

/// Parses the output of a program.
fn parse(output: &str) -> Result<EntityNames, String> {
    let mut names = EntityNames::default();
    for line in output.lines() {
        let malformed = || format!("it writes a malformed line: {}", base::shown(line.as_bytes()));
        let (key, value) = line.split_once('=').ok_or_else(malformed)?;
        let field = match key {
            "name" => &mut names.name,
            "vorg" => &mut names.vorg,
            "role" => &mut names.role,
            "groups" => &mut names.groups,
            _ => return Err(malformed()),
        };
        let is_name = key != "name" || (1..=NAME_BYTES_MAX).contains(&value.len());
        if field.is_some() || !is_name || value.chars().any(char::is_control) {
            return Err(malformed());
        }
        *field = Some(value.into());
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use auth::unix::UnixServer;
    use std::path::{Path, PathBuf};
    use std::sync::mpsc;
    use std::time::Instant;

    const PATIENCE: Duration = Duration::from_secs(60);

    struct Script(PathBuf);

    impl Script {
        fn new(name: &str, lines: &str) -> Self {
            let directory = std::env::temp_dir().join(format!("scalla-entity-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("map"), lines).unwrap();
            Self(directory)
        }

        fn program(&self) -> EntityProgram {
            // By way of the shell, because a file that another test has open for a fork cannot be executed.
            let map = self.0.join("map").to_string_lossy().into_owned();
            EntityProgram {
                path: "/bin/sh".into(),
                arguments: [&map, "--site", "lab"].map(str::to_owned).to_vec(),
            }
        }

        fn protocol(&self) -> Arc<dyn ServerProtocol> {
            with_program(vec![Arc::new(UnixServer)], &self.program()).unwrap().remove(0)
        }
    }

    impl Drop for Script {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn peer() -> LoginPeer {
        LoginPeer {
            address: "192.0.2.1:1".parse().unwrap(),
            host: "c.example.org".to_owned(),
            login_id: "x".to_owned(),
            is_tls: false,
        }
    }

    const CREDENTIALS: &[u8] = b"unix\0alice staff\0";

    fn finish_login(mut login: Box<dyn ServerLogin>) -> Result<Entity, String> {
        loop {
            match login.step(CREDENTIALS, SystemTime::now()) {
                ServerStep::Later => {
                    let (wake, woken) = mpsc::channel();
                    login.wake_when_ready(Box::new(move || wake.send(()).unwrap()));
                    woken.recv_timeout(PATIENCE).unwrap();
                }
                ServerStep::Done(entity) => return Ok(entity),
                ServerStep::Refused(refused) => return Err(refused.reason().to_owned()),
                ServerStep::Continue(_) => panic!("unix has one step"),
            }
        }
    }

    fn log_in(lines: &str, name: &str) -> Result<Entity, String> {
        let script = Script::new(name, lines);
        finish_login(script.protocol().begin(&peer()))
    }

    #[test]
    fn a_program_names_the_user_and_the_groups() {
        let entity = log_in(
            "echo \"name=$ENTITY_PROTOCOL-$ENTITY_NAME-$2\"; echo \"groups=a b\"; [ \"$ENTITY_HOST\" = c.example.org ]",
            "names",
        )
        .unwrap();
        assert_eq!(entity.name.as_deref(), Some("unix-alice-lab"));
        assert_eq!(entity.groups.as_deref(), Some("a b"));
        assert_eq!(&*entity.protocol, "unix");
        let same = log_in("exit 0", "same").unwrap();
        assert_eq!((same.name.as_deref(), same.groups.as_deref()), (Some("alice"), Some("staff")));
        // Secrets of the environment of the server are not there.
        assert_eq!(log_in("echo name=x${HOME}${USER}", "clear").unwrap().name.as_deref(), Some("x"));
    }

    #[test]
    fn a_client_without_a_certain_identity_is_refused() {
        for (lines, reason) in [
            ("echo 'no such user'; exit 3", "it refuses the client (exit status: 3): no such user"),
            ("kill -9 $$", "it refuses the client (signal: 9"),
            ("echo name", "malformed line: name"),
            ("echo name=", "malformed line: name="),
            ("echo name=a; echo name=b", "malformed line: name=b"),
            ("echo uid=0", "malformed line: uid=0"),
            ("printf 'name=a\\033b\\n'", "malformed line: name=a"),
            ("printf 'name=\\377\\n'", "not UTF-8"),
            ("head -c 5000 /dev/zero", "more than 4096 bytes"),
        ] {
            let refused = log_in(lines, "refused").unwrap_err();
            assert!(
                refused.contains(reason) && refused.contains("(sec.entityprogram)"),
                "{lines}: {refused}"
            );
        }
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_its_processes() {
        let script = Script::new("hangs", "sleep 1000 & echo $! > \"$0.pid\"; wait");
        let pool = Pool::new("test", 1);
        let mapper = EntityMapper { program: script.program(), pool, time_max: Duration::from_millis(500) };
        let refused = mapper.run(&Entity::of_host("h")).unwrap_err();
        assert!(refused.contains("it did not end within"), "{refused}");
        let pid = std::fs::read_to_string(script.0.join("map.pid")).unwrap();
        let has_ended = || {
            let stat = std::fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat"));
            stat.map_or(true, |stat| stat.contains(") Z "))
        };
        let until = Instant::now() + PATIENCE;
        while !has_ended() {
            assert!(Instant::now() < until, "{pid} still runs");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The number of programs is limited, and those that wait need no thread of the logins.
    #[test]
    fn many_clients_share_a_few_programs() {
        let script =
            Script::new("many", "echo x >> \"$0.log\"; while [ ! -e \"$0.go\" ]; do sleep 0.05; done");
        let protocol = script.protocol();
        let mut logins: Vec<_> = (0..20).map(|_| protocol.begin(&peer())).collect();
        let (wake, woken) = mpsc::channel();
        for login in &mut logins {
            assert!(matches!(login.step(CREDENTIALS, SystemTime::now()), ServerStep::Later));
            assert_eq!(login.cost(), StepCost::Cheap);
            let wake = wake.clone();
            login.wake_when_ready(Box::new(move || wake.send(()).unwrap()));
        }
        let running =
            || std::fs::read_to_string(script.0.join("map.log")).unwrap_or_default().lines().count();
        let until = Instant::now() + PATIENCE;
        while running() < PROGRAMS_MAX {
            assert!(Instant::now() < until, "{} run", running());
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(running(), PROGRAMS_MAX);
        // Clients that leave need no program.
        drop(logins.split_off(10));
        std::fs::write(script.0.join("map.go"), "").unwrap();
        for _ in 0..10 {
            woken.recv_timeout(PATIENCE).unwrap();
        }
        assert!(logins.into_iter().all(|login| finish_login(login).is_ok()));
        assert_eq!(running(), 10);
    }

    #[test]
    fn a_program_that_cannot_be_executed_stops_the_start() {
        let program = EntityProgram { path: "/nonexistent/map".into(), arguments: Vec::new() };
        let Err(StartError::Security(text)) = with_program(Vec::new(), &program) else { panic!("it starts") };
        assert!(
            text.starts_with("sec.entityprogram: /nonexistent/map cannot be executed: no such"),
            "{text}"
        );
    }
}
