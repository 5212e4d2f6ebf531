//! Tests of programs that name users and groups.

use super::mapper::{ABANDONED_MAX, PROGRAMS_MAX};
use super::*;
use crate::named_protocol::with_names;
use auth::unix::UnixServer;
use auth::{EntityNames, LoginPeer, ServerLogin, ServerProtocol, ServerStep, StepCost};
use base::Owner;
use config::SecurityConfig;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};
use storage::Pool;

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
        let mut security = SecurityConfig::default();
        security.entity_program.value = Some(self.program());
        with_names(vec![Arc::new(UnixServer)], &security).unwrap().remove(0)
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
        assert!(refused.contains(reason) && refused.contains("(sec.entityprogram)"), "{lines}: {refused}");
    }
}

fn host() -> EntityVariables {
    EntityVariables::of(&Entity::of_host("h"))
}

fn short_mapper(script: &Script) -> EntityMapper {
    EntityMapper { time_max: Duration::from_millis(500), ..EntityMapper::new(&script.program()) }
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Organizations and roles of the protocol are not those of groups by the program.
#[test]
fn attributes_of_the_program_replace_all_of_the_protocol() {
    let attributes = |lines: &str| {
        log_in(lines, "attributes")
            .map(|entity| [&entity.vorg, &entity.role, &entity.groups].map(Clone::clone))
    };
    assert_eq!(attributes("echo name=bob").unwrap(), [None, None, Some("staff".into())]);
    assert_eq!(attributes("echo vorg=lab").unwrap(), [Some("lab".into()), None, None]);
    assert_eq!(attributes("echo groups=").unwrap(), [None, None, None]);
    let refused = attributes("echo 'vorg=a b'; echo groups=c").unwrap_err();
    assert!(refused.contains("vorg, role and groups with different numbers of words"), "{refused}");
}

/// The program of the documentation compares names as text: `7` is not the user `007`.
#[test]
fn the_documented_program_does_not_mix_up_numbers() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, program) = text.split_once("```\n#!/bin/sh\n").unwrap();
    let (program, _) = program.split_once("```").unwrap();
    assert!(program.contains("/etc/xrootd/users"), "{program}");
    let script = Script::new("documented", &program.replace("/etc/xrootd/users", "\"$0.users\""));
    let users = "007|bond|staff\n1e3|kilo|staff\n/O=Grid/CN=Alice Example|alice|users\n";
    std::fs::write(script.0.join("map.users"), users).unwrap();
    let mapper = EntityMapper::new(&script.program());
    let account = |user: &str| {
        let name = EntityNames { name: Some(user.into()), ..EntityNames::default() };
        let entity = Entity::of_host("h").renamed(name);
        let names = mapper.run(&EntityVariables::of(&entity)).ok()?;
        entity.renamed(names).name.clone()
    };
    for (user, name) in [("007", "bond"), ("1e3", "kilo"), ("/O=Grid/CN=Alice Example", "alice")] {
        assert_eq!(account(user).as_deref(), Some(name), "{user}");
    }
    for user in ["7", "+7", "0x7", "07", "1000", "/O=Grid/CN=Alice", ""] {
        assert_eq!(account(user), None, "{user}");
    }
}

/// A program with the rights of another user cannot be ended. It must not keep a thread.
#[test]
fn a_program_that_cannot_be_ended_does_not_keep_its_thread() {
    let script = Script::new(
        "stays",
        "[ -e \"$0.go\" ] || exec >&- ; while [ -e \"$0\" ] && [ ! -e \"$0.go\" ]; do sleep 0.05; done",
    );
    let mapper = EntityMapper { end: |_| Err(rustix::io::Errno::PERM), ..short_mapper(&script) };
    let refused = mapper.run(&host()).unwrap_err();
    assert!(refused.contains("it did not end within"), "{refused}");
    assert_eq!(mapper.reap(), 1);
    std::fs::write(script.0.join("map.go"), "").unwrap();
    wait_until("it still runs", || mapper.reap() == 0);
    assert!(mapper.run(&host()).is_ok());
}

#[test]
fn programs_that_cannot_be_ended_are_limited() {
    let script = Script::new(
        "limit",
        "echo x >> \"$0.log\"; while [ -e \"$0\" ] && [ ! -e \"$0.go\" ]; do sleep 0.5; done",
    );
    let mapper = EntityMapper {
        end: |_| Err(rustix::io::Errno::PERM),
        time_max: Duration::from_millis(1),
        ..EntityMapper::new(&script.program())
    };
    std::thread::scope(|scope| {
        for _ in 0..ABANDONED_MAX {
            scope.spawn(|| mapper.run(&host()).unwrap_err());
        }
    });
    assert_eq!(mapper.reap(), ABANDONED_MAX);
    let refused = mapper.run(&host()).unwrap_err();
    assert!(refused.contains("32 of its processes run too long and cannot be ended"), "{refused}");
    std::fs::write(script.0.join("map.go"), "").unwrap();
    wait_until("they still run", || mapper.reap() == 0);
}

/// Executes the step of a login as a server does: on the pool of logins, or on the event loop.
fn step_of(pool: &Pool, owner: Owner, mut login: Box<dyn ServerLogin>, user: &str) -> Box<dyn ServerLogin> {
    let credentials = format!("unix\0{user}\0").into_bytes();
    if login.cost() == StepCost::Cheap {
        assert!(matches!(login.step(&credentials, SystemTime::now()), ServerStep::Later));
        return login;
    }
    let (send, stepped) = mpsc::channel();
    let job = move || {
        let step = login.step(&credentials, SystemTime::now());
        send.send((step, login)).unwrap();
    };
    assert!(pool.run(owner, Box::new(job)).is_ok());
    let (step, login) = stepped.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(step, ServerStep::Later));
    login
}

/// A host with many logins does not delay those of another one.
#[test]
fn hosts_are_served_in_turn() {
    let lines =
        "[ \"$ENTITY_NAME\" = bob ] || while [ -e \"$0\" ] && [ ! -e \"$0.go\" ]; do sleep 0.05; done";
    let script = Script::new("turn", lines);
    let protocol = script.protocol();
    let pool = Pool::new("logins", 1);
    let (busy, other) = (Owner::unique(), Owner::unique());
    let logins: Vec<_> = (0..100).map(|_| step_of(&pool, busy, protocol.begin(&peer()), "alice")).collect();
    let mut login = step_of(&pool, other, protocol.begin(&peer()), "bob");
    let (wake, woken) = mpsc::channel();
    login.wake_when_ready(Box::new(move || wake.send(()).unwrap()));
    woken.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(login.step(b"unix\0bob\0", SystemTime::now()), ServerStep::Done(_)));
    drop(logins);
    std::fs::write(script.0.join("map.go"), "").unwrap();
}

#[test]
fn a_program_that_hangs_is_ended_with_its_processes() {
    let script = Script::new("hangs", "sleep 1000 & echo $! > \"$0.pid\"; wait");
    let mapper = short_mapper(&script);
    let refused = mapper.run(&host()).unwrap_err();
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

/// Logins that wait for a program. Each line of the log of the program is one run.
struct WaitingLogins {
    script: Script,
    protocol: Arc<dyn ServerProtocol>,
    logins: Vec<Box<dyn ServerLogin>>,
    wake: mpsc::Sender<()>,
    woken: mpsc::Receiver<()>,
}

impl WaitingLogins {
    fn new(name: &str) -> Self {
        let lines = "echo x >> \"$0.log\"; while [ -e \"$0\" ] && [ ! -e \"$0.go\" ]; do sleep 0.05; done";
        let script = Script::new(name, lines);
        let ((wake, woken), protocol) = (mpsc::channel(), script.protocol());
        Self { script, protocol, logins: Vec::new(), wake, woken }
    }

    fn add(&mut self, user: &str) {
        let mut login = self.protocol.begin(&peer());
        let credentials = format!("unix\0{user} staff\0");
        assert!(matches!(login.step(credentials.as_bytes(), SystemTime::now()), ServerStep::Later));
        assert_eq!(login.cost(), StepCost::Cheap);
        let wake = self.wake.clone();
        login.wake_when_ready(Box::new(move || wake.send(()).unwrap()));
        self.logins.push(login);
    }

    fn runs(&self) -> usize {
        std::fs::read_to_string(self.script.0.join("map.log")).unwrap_or_default().lines().count()
    }

    /// Lets the programs end, and returns the entities of the logins.
    fn finish(&mut self) -> Vec<Entity> {
        std::fs::write(self.script.0.join("map.go"), "").unwrap();
        let logins = std::mem::take(&mut self.logins);
        logins.iter().for_each(|_| self.woken.recv_timeout(PATIENCE).unwrap());
        logins.into_iter().map(|login| finish_login(login).unwrap()).collect()
    }
}

/// The number of programs is limited, and those that wait need no thread of the logins.
#[test]
fn many_clients_share_a_few_programs() {
    let mut waiting = WaitingLogins::new("many");
    (0..20).for_each(|number| waiting.add(&format!("u{number}")));
    wait_until("fewer run", || waiting.runs() == PROGRAMS_MAX);
    // Clients that leave need no program.
    drop(waiting.logins.split_off(10));
    assert_eq!(waiting.finish().len(), 10);
    assert_eq!(waiting.runs(), 10);
}

/// A login shares only runs that begin after it, so the result is not older than the login.
#[test]
fn logins_of_the_same_identity_share_a_run() {
    let mut waiting = WaitingLogins::new("shared");
    for number in 0..PROGRAMS_MAX {
        waiting.add("alice");
        wait_until("a run that has started is shared", || waiting.runs() == number + 1);
    }
    (0..50).for_each(|_| waiting.add("alice"));
    waiting.add("bob");
    let names: Vec<_> = waiting.finish().iter().map(|entity| entity.name.clone().unwrap()).collect();
    assert_eq!(names.iter().filter(|name| ***name == *"alice").count(), PROGRAMS_MAX + 50);
    assert_eq!(names.last().map(|name| &**name), Some("bob"));
    assert_eq!(waiting.runs(), PROGRAMS_MAX + 2);
}

/// The logins of other hosts would wait for the turn of the first one.
#[test]
fn logins_of_other_hosts_share_no_run() {
    let mapper = Arc::new(EntityMapper::new(&Script::new("owners", "exit 0").program()));
    let (shared, other) = (Owner::unique(), Owner::unique());
    let pool = Pool::new("logins", 1);
    // No run starts before the end of the test. Each job has an owner of its own, because the last thread is
    // reserved for others while one owner has the rest, and all have begun before the first run waits.
    let (blocked, wait) = mpsc::channel::<()>();
    let wait = Arc::new(std::sync::Mutex::new(wait));
    let (begun, begins) = mpsc::channel();
    for _ in 0..PROGRAMS_MAX {
        let (wait, begun) = (wait.clone(), begun.clone());
        let job = move || {
            begun.send(()).unwrap();
            assert!(wait.lock().is_ok_and(|wait| wait.recv().is_err()));
        };
        assert!(mapper.pool.run(Owner::unique(), Box::new(job)).is_ok());
    }
    (0..PROGRAMS_MAX).for_each(|_| begins.recv_timeout(PATIENCE).unwrap());
    let join = |owner| {
        let ((send, joined), mapper) = (mpsc::channel(), mapper.clone());
        let job = move || send.send(mapper.join_run(host()).unwrap()).unwrap();
        assert!(pool.run(owner, Box::new(job)).is_ok());
        joined.recv_timeout(PATIENCE).unwrap()
    };
    let runs = [shared, shared, other].map(join);
    assert!(Arc::ptr_eq(&runs[0], &runs[1]));
    assert!(!Arc::ptr_eq(&runs[0], &runs[2]));
    drop(blocked);
}

#[test]
fn a_program_that_cannot_be_executed_stops_the_start() {
    let program = EntityProgram { path: "/nonexistent/map".into(), arguments: Vec::new() };
    let Err(StartError::Security(text)) = mapper(&program) else { panic!("it starts") };
    assert!(text.starts_with("sec.entityprogram: /nonexistent/map cannot be executed: no such"), "{text}");
}
