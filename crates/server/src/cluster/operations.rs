//! Operations on names that a parent forwards.
//!
//! They are performed on the files of this server like the request of a client, but without an
//! answer. Failures are logged. Source: cms protocol 3, sections forwarded namespace operations and
//! prepare.
//!
//! They are sent to every server that may write the path, even if it does not have the file. A
//! missing name, or a directory that exists already, is therefore not logged.
//!
//! An order names no client. With multi-user, changes of names are therefore not made: there is no
//! account with whose rights they could be made, and with those of the server a link that a user
//! placed would lead to the keys and journals of the server.

use base::{Cgi, ErrorKind, Identity, LogicalPath, LoginNames, Owner};
use cluster::OrderPermit;
use config::OperationCommand;
use std::collections::HashMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use storage::{NameRules, Pool};
use vfs::{
    Answer, Caller, FileSystem, Mailbox, Operation, PrepareRequest, ReplyTo, ReplyToken, Started, Target,
};
use wire::cms::flags::PrepaddModifier;
use wire::cms::message::Message;

/// Maximum number of site programs that run at the same time.
const PROGRAMS_MAX: usize = 4;
/// The operation that has no path.
const CANCEL: &str = "cancel";

/// Executes the operations that parents forward.
pub(crate) struct Executor {
    files: Arc<dyn FileSystem>,
    /// The files are changed with the rights of the accounts of clients.
    acts_for_users: bool,
    caller: Arc<Caller>,
    programs: Vec<OperationCommand>,
    local_root: PathBuf,
    names: NameRules,
    pool: Arc<Pool>,
    log: Arc<ProgramLog>,
}

/// An operation with its name for programs and logs.
struct NameOperation {
    name: &'static str,
    /// Mode or size, as it was sent.
    figure: Option<String>,
    paths: Vec<LogicalPath>,
    operation: Operation,
}

impl NameOperation {
    /// Reports whether it changes names, modes or sizes, unlike the orders about prepare requests.
    fn changes_names(&self) -> bool {
        !matches!(self.operation, Operation::Prepare(..) | Operation::CancelPrepare { .. })
    }
}

/// Logs the outcomes.
#[derive(Default)]
struct ProgramLog {
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, String>>,
}

impl ProgramLog {
    fn outcome(what: &str, answer: &Answer) {
        match answer {
            // The cancelled prepare request belonged to another server, or is finished.
            Answer::Error(error)
                if matches!(error.kind, ErrorKind::NotFound | ErrorKind::ItExists)
                    || what.starts_with(CANCEL) =>
            {
                tracing::debug!("{what}, passed on by a manager: {error}");
            }
            Answer::Error(error) => tracing::warn!("{what}, passed on by a manager, failed: {error}"),
            Answer::Wait { text, .. } => {
                tracing::warn!("{what}, passed on by a manager, was not done: {text}")
            }
            _ => tracing::debug!("{what}, passed on by a manager, was done"),
        }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, HashMap<u64, String>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Mailbox for ProgramLog {
    fn deliver(&self, token: ReplyToken, answer: Answer) {
        let what = self.waiting().remove(&token.call);
        Self::outcome(what.as_deref().unwrap_or("an operation"), &answer);
    }
}

impl Executor {
    /// Creates an executor for `files`, which are at the translated paths below a directory on disk.
    /// With `acts_for_users`, it leaves changes of names to the programs of the site.
    pub(crate) fn new(
        (files, acts_for_users): (Arc<dyn FileSystem>, bool),
        programs: Vec<OperationCommand>,
        (local_root, names): (PathBuf, NameRules),
    ) -> Self {
        let told = LoginNames { user: "manager", host: "cluster", ..LoginNames::default() };
        let caller = Caller::new(Identity::new(&told, 0, None, "host"), true, false);
        let (pool, log) = (Pool::new("cluster-program", PROGRAMS_MAX), Arc::default());
        Self { files, acts_for_users, caller: Arc::new(caller), programs, local_root, names, pool, log }
    }

    /// Starts the operation ordered by a message of a parent. Returns `false` if the message is not
    /// such an order. Never blocks.
    pub(super) fn run(&self, _permit: OrderPermit, message: &Message<'_>) -> bool {
        let Some(order) = order(message) else { return false };
        match order {
            Ok(order) => self.start(order),
            Err(what) => tracing::warn!(%what, "an operation that a manager passed on cannot be understood"),
        }
        true
    }

    fn start(&self, order: NameOperation) {
        let paths: Vec<String> = order.paths.iter().map(|path| path.text().into_owned()).collect();
        let what = format!("{} {}", order.name, paths.join(" "));
        let program = self.programs.iter().find(|program| program.operations.contains(&order.name));
        if let Some(program) = program {
            return self.call(program, &order, what);
        }
        if self.acts_for_users && order.changes_names() {
            tracing::warn!(
                "{what}, passed on by a manager, was not done: it names no account with whose rights it could be \
                 made (libXrdMultiuser.so)"
            );
            return;
        }
        let number = self.log.next.fetch_add(1, Ordering::Relaxed);
        self.log.waiting().insert(number, what);
        let reply = ReplyTo::new(self.log.clone(), ReplyToken { owner: 0, call: number });
        if let Started::Done(answer) = self.files.start(&self.caller, order.operation, &reply) {
            self.log.deliver(ReplyToken { owner: 0, call: number }, answer);
        }
    }

    fn call(&self, program: &OperationCommand, order: &NameOperation, what: String) {
        let Some((name, arguments)) = program.program.split_first() else { return };
        let mut command = Command::new(name);
        command.args(arguments).arg(order.name).args(&order.figure);
        for path in &order.paths {
            let stored = match self.names.stored(path) {
                Ok(stored) => stored,
                Err(error) => {
                    tracing::warn!("{what}, passed on by a manager, was not done: {}: {error}", path.shown());
                    return;
                }
            };
            let below = stored.as_os_str().to_string_lossy().trim_start_matches('/').to_owned();
            command.arg(self.local_root.join(below));
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let refused = what.clone();
        let job = move || match command.status() {
            Ok(status) if status.success() => tracing::debug!("{what}, passed on by a manager, was done"),
            Ok(status) => tracing::warn!("{what}, passed on by a manager: its program failed with {status}"),
            Err(error) => {
                tracing::error!("{what}, passed on by a manager: its program cannot be run: {error}")
            }
        };
        if self.pool.run(Owner::SERVER, Box::new(job)).is_err() {
            tracing::warn!(
                "{refused}, passed on by a manager, was not done: too many wait for their program"
            );
        }
    }
}

/// Returns the order in a message; `None` if it contains no order, an error if it cannot be
/// decoded.
fn order(message: &Message<'_>) -> Option<Result<NameOperation, String>> {
    Some(match message {
        Message::Chmod(m) => path("chmod", m.path, m.opaque).and_then(|(place, path)| {
            let mode = m.permissions().map_err(|error| error.to_string())?;
            let operation = Operation::ChangeMode { target: place, mode };
            Ok(NameOperation { name: "chmod", figure: Some(text(m.mode)), paths: vec![path], operation })
        }),
        Message::Mkdir(m) => directory("mkdir", m, false),
        Message::Mkpath(m) => directory("mkpath", m, true),
        Message::Mv(m) => path("mv", m.old, m.old_opaque).and_then(|(from, old)| {
            let (to, new) = path("mv", m.new, m.new_opaque)?;
            let operation = Operation::rename(from, to);
            Ok(NameOperation { name: "mv", figure: None, paths: vec![old, new], operation })
        }),
        Message::Rm(m) => path("rm", m.path, m.opaque).map(|(place, path)| NameOperation {
            name: "rm",
            figure: None,
            paths: vec![path],
            operation: Operation::Remove(place),
        }),
        Message::Rmdir(m) => path("rmdir", m.path, m.opaque).map(|(place, path)| NameOperation {
            name: "rmdir",
            figure: None,
            paths: vec![path],
            operation: Operation::RemoveDirectory(place),
        }),
        Message::Trunc(m) => path("trunc", m.path, m.opaque).and_then(|(place, path)| {
            let size = m.size_bytes().map_err(|error| error.to_string())?;
            let operation = Operation::Truncate { target: place, size };
            Ok(NameOperation { name: "trunc", figure: Some(text(m.size)), paths: vec![path], operation })
        }),
        Message::Prepadd(m) => path("prepare", m.path, m.opaque).map(|(place, path)| NameOperation {
            name: "prepare",
            figure: None,
            paths: vec![path],
            operation: Operation::Prepare(
                PrepareRequest {
                    stage: m.modifier.contains(PrepaddModifier::STAGE),
                    write: m.modifier.contains(PrepaddModifier::WRITE),
                    colocate: m.modifier.contains(PrepaddModifier::COLOCATE),
                    fresh: m.modifier.contains(PrepaddModifier::FRESHEN),
                    evict: m.modifier.contains(PrepaddModifier::EVICT),
                    priority: m.priority.first().map_or(0, |digit| digit.wrapping_sub(b'0').min(3)),
                    ..PrepareRequest::default()
                },
                place.into(),
            ),
        }),
        Message::Prepdel(m) => Ok(NameOperation {
            name: CANCEL,
            figure: Some(text(m.reqid)),
            paths: Vec::new(),
            operation: Operation::CancelPrepare { id: m.reqid.to_vec() },
        }),
        _ => return None,
    })
}

fn directory(
    name: &'static str,
    m: &wire::cms::message::ModeChange<'_>,
    parents: bool,
) -> Result<NameOperation, String> {
    let (target, path) = path(name, m.path, m.opaque)?;
    let mode = m.permissions().map_err(|error| error.to_string())?;
    let operation = Operation::make_directory(target, mode, parents);
    Ok(NameOperation { name, figure: Some(text(m.mode)), paths: vec![path], operation })
}

fn path(name: &str, path: &[u8], opaque: Option<&[u8]>) -> Result<(Target, LogicalPath), String> {
    let path = LogicalPath::parse(path).map_err(|error| format!("{name}: {error:?}"))?;
    let cgi = Cgi::new(opaque.unwrap_or_default());
    Ok((Target { path: path.clone(), cgi }, path))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::NameChangeSet;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use wire::cms::flags::RelayModifier;
    use wire::cms::message::{ModeChange, Mv, Prepadd, Removal, Trunc};

    /// Records each operation and refuses it.
    struct Recorder(Mutex<Sender<String>>);

    impl FileSystem for Recorder {
        fn start(&self, caller: &Arc<Caller>, operation: Operation, _: &ReplyTo) -> Started {
            let what = match operation {
                Operation::ChangeMode { target, mode } => format!("chmod {mode:o} {}", target.path.text()),
                Operation::MakeDirectory { target, mode, parents, .. } => {
                    format!("mkdir {mode:o} {} {parents}", target.path.text())
                }
                Operation::Rename { from, to, .. } => format!("mv {} {}", from.path.text(), to.path.text()),
                Operation::Remove(target) => format!("rm {} {:?}", target.path.text(), target.cgi.text("a")),
                Operation::RemoveDirectory(target) => format!("rmdir {}", target.path.text()),
                Operation::Truncate { target, size } => format!("trunc {size} {}", target.path.text()),
                Operation::Prepare(request, targets) => {
                    format!("prepare {} {} {}", request.stage, request.priority, targets.cursor().count())
                }
                _ => "something else".to_owned(),
            };
            self.0.lock().unwrap().send(format!("{what} by {}", caller.identity.user())).unwrap();
            Started::Done(Answer::error(ErrorKind::NotFound, "it is not here"))
        }
    }

    fn executor(programs: Vec<OperationCommand>, root: &str) -> (Executor, Receiver<String>) {
        let (sender, done) = channel();
        let files: Arc<dyn FileSystem> = Arc::new(Recorder(Mutex::new(sender)));
        (Executor::new((files, false), programs, (root.into(), NameRules::default())), done)
    }

    const MODIFIER: RelayModifier = RelayModifier(0x40);

    fn messages() -> Vec<Message<'static>> {
        let change =
            ModeChange { modifier: MODIFIER, ident: b"u", mode: b"0750", path: b"/a//b", opaque: None };
        let removal = Removal { modifier: MODIFIER, ident: b"", path: b"/f", opaque: Some(b"a=1") };
        let mv =
            Mv { modifier: MODIFIER, ident: b"", old: b"/f", new: b"/g", old_opaque: None, new_opaque: None };
        vec![
            Message::Chmod(change),
            Message::Mkdir(change),
            Message::Mkpath(change),
            Message::Mv(mv),
            Message::Rm(removal),
            Message::Rmdir(removal),
            Message::Trunc(Trunc { modifier: MODIFIER, ident: b"", size: b"12", path: b"/f", opaque: None }),
            Message::Prepadd(Prepadd {
                modifier: PrepaddModifier::STAGE,
                ident: b"",
                reqid: b"1",
                notify: b"*",
                priority: b"2",
                mode: b"r",
                path: b"/f",
                opaque: None,
            }),
        ]
    }

    fn permit() -> OrderPermit {
        OrderPermit::for_client(None, NameChangeSet::NONE).unwrap()
    }

    #[test]
    fn what_parents_pass_on_is_done() {
        let (executor, done) = executor(Vec::new(), "/");
        for message in messages() {
            assert!(executor.run(permit(), &message));
        }
        let expected = [
            "chmod 750 /a/b",
            "mkdir 750 /a/b false",
            "mkdir 750 /a/b true",
            "mv /f /g",
            "rm /f Some(\"1\")",
            "rmdir /f",
            "trunc 12 /f",
            "prepare true 2 1",
        ];
        for line in expected {
            assert_eq!(done.recv().unwrap(), format!("{line} by manager"));
        }
        assert!(executor.log.waiting().is_empty());
        assert!(!executor.run(permit(), &Message::Ping));
    }

    /// With multi-user, a change ordered by a manager has no account.
    #[test]
    fn changes_of_names_are_not_made_with_the_rights_of_the_server() {
        let (executor, done) = executor(Vec::new(), "/");
        let executor = Executor { acts_for_users: true, ..executor };
        for message in messages() {
            assert!(executor.run(permit(), &message));
        }
        assert!(executor.log.waiting().is_empty());
        drop(executor);
        assert_eq!(done.iter().collect::<Vec<_>>(), ["prepare true 2 1 by manager"]);
    }

    #[test]
    fn nonsense_is_not_done() {
        let (executor, done) = executor(Vec::new(), "/");
        let bad = ModeChange { modifier: MODIFIER, ident: b"", mode: b"9", path: b"/f", opaque: None };
        assert!(executor.run(permit(), &Message::Chmod(bad)));
        let outside = Removal { modifier: MODIFIER, ident: b"", path: b"/../etc", opaque: None };
        assert!(executor.run(permit(), &Message::Rm(outside)));
        assert!(executor.run(permit(), &messages()[4]));
        assert_eq!(done.recv().unwrap(), "rm /f Some(\"1\") by manager", "the first that could be read");
    }

    #[test]
    fn a_program_of_the_site_does_it_instead() {
        let directory = std::env::temp_dir().join(format!("scalla-fsxeq-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let fifo = directory.join("said");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let script = format!("echo \"$@\" > {}", fifo.display());
        let program = ["sh", "-c", &script, "xeq"].map(str::to_owned).to_vec();
        let programs = vec![OperationCommand { operations: vec!["rm", "mv", "chmod"], program }];
        let (executor, done) = executor(programs, "/srv/data");
        for (number, expected) in
            [(4, "rm /srv/data/f\n"), (3, "mv /srv/data/f /srv/data/g\n"), (0, "chmod 0750 /srv/data/a/b\n")]
        {
            executor.run(permit(), &messages()[number]);
            assert_eq!(std::fs::read_to_string(&fifo).unwrap(), expected);
        }
        executor.run(permit(), &messages()[5]);
        assert_eq!(done.recv().unwrap(), "rmdir /f by manager");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
