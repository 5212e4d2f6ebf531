//! From a name to an open file.
//!
//! Opening a file for reading is answered on the spot when its name is in memory. Everything that creates, truncates or
//! writes goes to the pool.

mod pending;

use crate::checksum::stored;
use crate::clone;
use crate::config::CreationModes;
use crate::describe::{self, View};
use crate::errno::{self, unable};
use crate::exports::Exports;
use crate::file_services::FileServices;
use crate::handle::Handle;
use crate::job;
use crate::job::done;
use crate::lock::{LockTicket, Use};
use crate::lookup;
use crate::open_file::NewFile;
use crate::persist::{Admission, Scope, Ticket};
use crate::third_party::{self, Copy, Offer, Pull, Role};
use crate::wholeness::{Wholeness, WholenessRule};
use crate::writers::{FileKey, WriterTicket};
use base::{Cgi, Error, ErrorKind, LogicalPath, Owner};
use pending::{create_pending, directories_to_make};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use storage::{CreateHow, Elsewhere, Metadata, Now, OpenHow, StoredFile};
use vfs::{Answer, Caller, FileKind, OpenRequest, Opened, ReplyTo, Started, Target, Value};

/// ENOTBLK: what is neither a file nor a directory cannot be opened.
const NOT_A_FILE: i32 = 15;
/// Mode of parents that are created on the way, before the configured range.
const PARENT_MODE: u32 = 0o755;

/// Opens files.
pub(crate) struct Opener {
    pub(crate) creation_modes: CreationModes,
    /// The longest wait that is sent to a client.
    pub(crate) delay_max: Duration,
    pub(crate) exports: Arc<Exports>,
    pub(crate) wholeness: Arc<WholenessRule>,
    /// The parts that the files use once they are open, and that opening uses too.
    pub(crate) services: Arc<FileServices>,
}

/// An open that was found permissible.
pub(crate) struct Plan {
    /// As the client wrote it, for texts.
    pub(crate) path: LogicalPath,
    /// Without trailing `/`.
    pub(crate) plain: LogicalPath,
    pub(crate) request: OpenRequest,
    pub(crate) caller: Arc<Caller>,
    /// The session of the client.
    owner: Owner,
    pub(crate) write: bool,
    pub(crate) creates: bool,
    cgi: Cgi,
    enforce_lock: bool,
    /// Persist on successful close was asked for.
    asks_persist: bool,
    /// It is the destination of a copy from another server.
    copy: Option<Arc<Copy>>,
    /// Where it is done, if that is not the pool of the path.
    pub(crate) place: Option<Elsewhere>,
}

impl Plan {
    fn verb(&self) -> &'static str {
        if self.creates { "create" } else { "open" }
    }

    fn unable(&self, error: std::io::Error) -> Error {
        Error::unable(self.verb(), &self.path, error)
    }

    /// How the file is created, if it is.
    fn create(&self, opener: &Opener) -> Result<Option<CreateHow>, Error> {
        let request = &self.request;
        let template = request.same_file_system_as.as_ref().or(request.duplicate_of.as_ref());
        let beside = match template.map(|file| file.as_any().downcast_ref::<Handle>()) {
            Some(None) => return Err(unable(self.verb(), &self.path, errno::UNSUPPORTED)),
            Some(Some(handle)) => Some(handle.stored().clone()),
            None => None,
        };
        Ok(self.creates.then(|| CreateHow {
            exclusive: request.new,
            mode: opener.creation_modes.of_file(request.mode),
            parents: request.make_path.then(|| opener.creation_modes.of_directory(PARENT_MODE)),
            size_hint: self.cgi.text("oss.asize").and_then(|text| text.parse().ok()),
            space: self.cgi.text("oss.cgroup").map(str::to_owned),
            beside,
            at: self.place.clone(),
        }))
    }
}

/// Opens a file.
pub(crate) fn start(
    opener: &Arc<Opener>,
    caller: &Arc<Caller>,
    target: Target,
    request: OpenRequest,
    reply: &ReplyTo,
) -> Started {
    let (plan, role) = match plan(opener, caller, &target, request, reply.owner()) {
        Ok(plan) => plan,
        Err(error) => return done(Err(error)),
    };
    match (role, opener.services.third_party.get()) {
        (Role::Register { key, destination, ttl }, Some(third)) => {
            let offer = Offer { key, destination, ttl };
            third_party::register(opener, third, plan, offer, reply)
        }
        (Role::Collect { key, origin }, Some(third)) => {
            third_party::collect(opener, third, plan, &key, &origin, reply)
        }
        _ => proceed(opener, plan, reply),
    }
}

/// Opens a file whose open was found permissible.
pub(crate) fn proceed(opener: &Arc<Opener>, plan: Plan, reply: &ReplyTo) -> Started {
    if !plan.write
        && let Some(answer) = open_now(opener, &plan)
    {
        return Started::Done(answer);
    }
    let (path, inside) = (plan.path.clone(), opener.clone());
    let create = plan.create(opener).ok().flatten();
    job::spawn_at(&opener.services.backend, &path, create, reply, move |place, reply| {
        let plan = Plan { place, ..plan };
        match (open(&inside, &plan), &plan.request.duplicate_of) {
            (Answer::Value(Value::Opened(opened)), Some(template)) => clone::fill(opened, template, reply),
            (answer, _) => reply.send(answer),
        }
    })
}

/// Is this open permissible at all?
fn plan(
    opener: &Opener,
    caller: &Arc<Caller>,
    target: &Target,
    request: OpenRequest,
    owner: Owner,
) -> Result<(Plan, Role), Error> {
    let path = target.path.clone();
    let export = opener.exports.find(&path, "Opening")?;
    let creates = request.new || request.delete;
    let write = creates || (request.write && !export.force_read_only);
    let mut plan = Plan {
        plain: path.without_slash(),
        path,
        write,
        creates,
        caller: caller.clone(),
        owner,
        cgi: target.cgi.clone(),
        enforce_lock: export.lock && !request.force,
        asks_persist: request.posc || target.cgi.text("ofs.posc") == Some("1"),
        copy: None,
        place: None,
        request,
    };
    if write && export.is_read_only() {
        return Err(unable(plan.verb(), &plan.path, errno::READ_ONLY));
    }
    check_templates(&plan)?;
    let role = role(opener, &mut plan)?;
    Ok((plan, role))
}

/// The part of this open in a copy between servers.
fn role(opener: &Opener, plan: &mut Plan) -> Result<Role, Error> {
    if !plan.cgi.has_prefix("tpc.") {
        return Ok(Role::None);
    }
    let Some(third) = opener.services.third_party.get() else {
        // One that only looks is ordinary: the client finds out what is not offered by asking, and copies otherwise.
        if plan.cgi.get("tpc.key").is_none() && plan.cgi.get("tpc.src").is_none() {
            return Ok(Role::None);
        }
        return Err(third_party::refused(&plan.path, ErrorKind::Unsupported, "tpc not supported"));
    };
    let writes = plan.write || plan.request.write;
    let parsed = third_party::parse(&plan.path, &plan.cgi, writes, plan.creates, third.settings.object_ids);
    let role = parsed.map_err(|(kind, why)| third_party::refused(&plan.path, kind, why))?;
    third_party::check_path(&third.settings, plan)?;
    if let Role::Pull(pull) = &role {
        third.check_client(plan)?;
        plan.copy = Some(Copy::new(third, Pull::clone(pull), &plan.caller, plan.asks_persist));
        // What an earlier copy left unfinished is taken over.
        plan.asks_persist = true;
    }
    Ok(role)
}

fn check_templates(plan: &Plan) -> Result<(), Error> {
    let request = &plan.request;
    let wanted = request.duplicate_of.is_some() || request.same_file_system_as.is_some();
    if wanted && !request.new {
        let text = "file must be opened as a new file in order to colocate";
        return Err(Error::new(ErrorKind::ArgInvalid, text));
    }
    if request.duplicate_of.is_some() && !request.write {
        return Err(Error::new(ErrorKind::ArgInvalid, "cloned file is not being opened R/W"));
    }
    Ok(())
}

fn lock(opener: &Opener, plan: &Plan) -> Result<LockTicket, Error> {
    let usage = match (plan.write, plan.request.counts_as_reader) {
        (false, _) => Use::Read,
        (true, true) => Use::WriteAsReader,
        (true, false) => Use::Write,
    };
    opener.services.open_table.locks.acquire(&plan.plain, usage, plan.enforce_lock)
}

/// Opens for reading what is in memory.
fn open_now(opener: &Arc<Opener>, plan: &Plan) -> Option<Answer> {
    if plan.path != plan.plain {
        return None;
    }
    let lock = match lock(opener, plan) {
        Ok(lock) => lock,
        Err(error) => return Some(Answer::Error(error)),
    };
    if opener.services.persist.is_pending(&plan.plain) {
        return Some(pending::being_created(opener, plan));
    }
    if opener.services.checkpoints.check_path(&plan.plain, false).is_err() {
        // The refusal looks at the disk.
        return None;
    }
    match opener.services.backend.open_now(&plan.plain, &OpenHow::default()) {
        Now::WouldBlock => None,
        Now::Done(Err(error)) => {
            opener.services.events.missing(&plan.plain, &error);
            Some(Answer::Error(plan.unable(error)))
        }
        Now::Done(Ok(file)) => finish_now(opener, plan, file, lock),
    }
}

/// Opens where blocking is allowed.
pub(crate) fn open(opener: &Arc<Opener>, plan: &Plan) -> Answer {
    if plan.path != plan.plain {
        return Answer::Error(slash_error(opener, plan));
    }
    let claim = if plan.write { opener.services.persist.claim(&[&plan.plain], Scope::Name) } else { None };
    if plan.write && claim.is_none() {
        return Answer::Wait { seconds: 1, text: String::new() };
    }
    let lock = match lock(opener, plan) {
        Ok(lock) => lock,
        Err(error) => return Answer::Error(error),
    };
    if let Err(error) = opener.services.checkpoints.check_path(&plan.plain, plan.write) {
        opener.services.checkpoints.note_file_at(&plan.plain, opener.services.backend.as_ref());
        return Answer::Error(plan.unable(error));
    }
    if !plan.write && opener.services.persist.is_pending(&plan.plain) {
        return pending::being_created(opener, plan);
    }
    if plan.copy.is_some() && lock.was_disturbed() {
        // Without the lock of the export, two would write one file.
        return Answer::Error(unable(plan.verb(), &plan.path, errno::TEXT_BUSY));
    }
    let must_be_there =
        plan.creates && !plan.request.force && opener.services.persist.has_identified_record(&plan.plain);
    if must_be_there && opener.services.backend.stat(&plan.plain).is_err() {
        return Answer::Error(pending::absent(plan));
    }
    // What must not exist cannot be resumed.
    let admission = if plan.write && !plan.request.new {
        opener.services.persist.admit(&plan.plain, &plan.caller.identity, plan.asks_persist)
    } else {
        Admission::Free
    };
    match admission {
        Admission::Leaving => return Answer::Wait { seconds: 1, text: String::new() },
        Admission::Busy => return pending::busy(plan),
        Admission::Resume(ticket) => return pending::resume(opener, plan, lock, ticket),
        Admission::Free => {}
    }
    let persists = plan.copy.is_some() || opener.services.persist.wants(plan.asks_persist, plan.creates);
    if !plan.write || plan.request.new {
        return if persists {
            create_pending(opener, plan, lock, Wholeness::Whole)
        } else {
            plain(opener, plan, lock)
        };
    }
    let found = match found_at(opener, &plan.plain) {
        Ok(found) => found,
        Err(error) => return Answer::Error(plan.unable(error)),
    };
    match found {
        found @ Wholeness::Whole if persists => create_pending(opener, plan, lock, found),
        Wholeness::Whole => plain(opener, plan, lock),
        // Whoever asks for persist on close takes it over, as that of a creator that is known.
        found @ (Wholeness::Marked | Wholeness::Left | Wholeness::Unresolved) if plan.asks_persist => {
            create_pending(opener, plan, lock, found)
        }
        found @ (Wholeness::Left | Wholeness::Unresolved) if plan.creates => {
            create_pending(opener, plan, lock, found)
        }
        found => pending::unfinished(opener, plan, found),
    }
}

/// The wholeness of what lies at a path and is to be written; nothing is whole too. Fails if a checkpoint blocks the file.
fn found_at(opener: &Opener, path: &LogicalPath) -> io::Result<Wholeness> {
    let Ok(metadata) = opener.services.backend.stat(path) else { return Ok(Wholeness::Whole) };
    let identity = || opener.services.backend.identity(path);
    opener.services.checkpoints.check_file(FileKey::from(&metadata), identity, true)?;
    Ok(opener.wholeness.at(path, &metadata))
}

/// Opens a file for which persist on close plays no part.
fn plain(opener: &Arc<Opener>, plan: &Plan, lock: LockTicket) -> Answer {
    let how = match how(opener, plan, plan.request.delete && !plan.request.new, None) {
        Ok(how) => how,
        Err(error) => return Answer::Error(error),
    };
    let above = directories_to_make(opener, plan);
    let file = match opener.services.backend.open(&plan.plain, &how) {
        Ok(file) => file,
        Err(error) => {
            if !plan.creates {
                opener.services.events.missing(&plan.plain, &error);
            }
            return Answer::Error(plan.unable(error));
        }
    };
    if plan.creates {
        opener.services.events.made_above(&above);
        // It is new or was emptied, so it is not the unfinished file of an earlier run.
        opener.services.persist.end_absent_at(&plan.plain);
    }
    let answer = finish(opener, plan, file, lock, Share::Plain { made: above });
    // One that is to be filled is told of when it is.
    if plan.creates && plan.request.duplicate_of.is_none() && matches!(answer, Answer::Value(_)) {
        opener.services.events.made(&plan.plain, false);
    }
    answer
}

/// Removes what was created a moment ago by this very call, so that nobody else can have put anything into it.
fn discard(opener: &Opener, plan: &Plan, file: Arc<dyn StoredFile>) {
    drop(file);
    if let Err(error) = opener.services.backend.remove_file(&plan.plain) {
        tracing::warn!(path = %plan.path.shown(), %error, "a file that could not be created fully stays behind");
    }
}

/// What is wrong with a name that ends in `/`: it asks for a directory, and a directory cannot be opened.
fn slash_error(opener: &Opener, plan: &Plan) -> Error {
    let has_parent =
        || plan.plain.parent().is_none_or(|parent| opener.services.backend.stat(&parent).is_ok());
    match lookup::metadata(opener.services.backend.as_ref(), &plan.path, plan.verb()) {
        Ok(_) if plan.request.new => unable(plan.verb(), &plan.path, errno::EXISTS),
        Ok(_) => unable(plan.verb(), &plan.path, errno::IS_A_DIRECTORY),
        Err(error) if error.kind == ErrorKind::NotFound && plan.creates => {
            let number = match plan.request.make_path || has_parent() {
                true => errno::IS_A_DIRECTORY,
                false => errno::NOT_FOUND,
            };
            unable(plan.verb(), &plan.path, number)
        }
        Err(error) => error,
    }
}

fn how(opener: &Opener, plan: &Plan, truncate: bool, mode: Option<u32>) -> Result<OpenHow, Error> {
    let create = plan.create(opener)?;
    let create = create.map(|create| CreateHow { mode: mode.unwrap_or(create.mode), ..create });
    Ok(OpenHow { write: plan.write, truncate, create })
}

/// The part of a handle in persist on close.
enum Share {
    /// Nothing. The open made these directories, whose names may not have reached stable storage.
    Plain { made: Vec<LogicalPath> },
    /// A share in a pending file.
    Pending(Ticket),
}

/// Checks what was opened and makes the handle. A marked file is opened only by who has a share in it.
fn finish(
    opener: &Arc<Opener>,
    plan: &Plan,
    file: Arc<dyn StoredFile>,
    lock: LockTicket,
    share: Share,
) -> Answer {
    let metadata = match file.stat().map_err(|e| plan.unable(e)) {
        Ok(metadata) => metadata,
        Err(error) => return Answer::Error(error),
    };
    let key = FileKey::from(&metadata);
    if let Err(error) = opener.services.checkpoints.check_file(key, || file.identity(), plan.write) {
        return Answer::Error(plan.unable(error));
    }
    if matches!(share, Share::Plain { .. }) {
        let found = opener.wholeness.of_open(&plan.plain, &metadata, file.as_ref());
        if found != Wholeness::Whole {
            return pending::unfinished(opener, plan, found);
        }
    }
    finish_whole(opener, plan, file, lock, (&metadata, share)).into()
}

fn finish_whole(
    opener: &Arc<Opener>,
    plan: &Plan,
    file: Arc<dyn StoredFile>,
    lock: LockTicket,
    (metadata, share): (&Metadata, Share),
) -> Result<Value, Error> {
    check_kind(plan, metadata)?;
    let stat = match plan.request.stat {
        true => Some(describe::stat(metadata, opener.services.users.as_ref(), view(opener, plan, &share)?)),
        false => None,
    };
    // A new file has none, and one that was emptied at open has lost what it had.
    // From here on no checksum of it is stored by others.
    let writer = plan.write.then(|| opener.services.open_table.writers.add(FileKey::from(metadata)));
    let mut has_checksums = plan.write && !plan.request.new && stored::has_any(file.as_ref());
    if let Some(writer) = writer.as_ref().filter(|_| has_checksums && plan.request.delete) {
        stored::drop_all(&opener.services.checksums.memory, file.as_ref(), &plan.plain, writer.key());
        has_checksums = false;
    }
    make_handle(opener, plan, metadata, NewParts { file, lock, writer, share, has_checksums, stat })
}

/// The same for a file that was opened for reading on the spot; `None` if it would have to wait for names.
fn finish_now(
    opener: &Arc<Opener>,
    plan: &Plan,
    file: Arc<dyn StoredFile>,
    lock: LockTicket,
) -> Option<Answer> {
    let metadata = match file.stat_now() {
        Now::WouldBlock => return None,
        Now::Done(Ok(metadata)) => metadata,
        Now::Done(Err(error)) => return Some(Answer::Error(plan.unable(error))),
    };
    if let Err(error) = check_kind(plan, &metadata) {
        return Some(Answer::Error(error));
    }
    if opener.services.checkpoints.may_block_file(FileKey::from(&metadata)) {
        return None;
    }
    let share = Share::Plain { made: Vec::new() };
    match opener.wholeness.now(&plan.plain, &metadata)? {
        Wholeness::Whole => {}
        found => return Some(pending::unfinished(opener, plan, found)),
    }
    let stat = match (plan.request.stat, view(opener, plan, &share)) {
        (true, Ok(view)) => Some(describe::stat_now(&metadata, opener.services.users.as_ref(), view)?),
        (true, Err(error)) => return Some(Answer::Error(error)),
        (false, _) => None,
    };
    let parts = NewParts { file, lock, writer: None, share, has_checksums: false, stat };
    Some(make_handle(opener, plan, &metadata, parts).into())
}

fn view(opener: &Opener, plan: &Plan, share: &Share) -> Result<View, Error> {
    let read_only = opener.exports.find(&plan.path, "Opening")?.is_read_only();
    Ok(View { read_only, pending: matches!(share, Share::Pending(_)) })
}

/// What goes into a handle.
struct NewParts {
    file: Arc<dyn StoredFile>,
    lock: LockTicket,
    writer: Option<WriterTicket>,
    share: Share,
    has_checksums: bool,
    stat: Option<vfs::Stat>,
}

fn make_handle(
    opener: &Arc<Opener>,
    plan: &Plan,
    metadata: &Metadata,
    parts: NewParts,
) -> Result<Value, Error> {
    let (persist, mut new_names) = match parts.share {
        Share::Pending(ticket) => (Some(ticket), Vec::new()),
        Share::Plain { made } => (None, made),
    };
    if plan.creates {
        new_names.push(plan.plain.clone());
    }
    let new = NewFile {
        path: plan.plain.clone(),
        key: FileKey::from(metadata),
        caller: plan.caller.clone(),
        owner: plan.owner,
        file: parts.file,
        writer: parts.writer,
        lock: parts.lock,
        persist,
        read_only_export: opener.exports.find(&plan.path, "Opening")?.is_read_only(),
        empty: metadata.size == 0,
        has_checksums: parts.has_checksums,
        new_names,
        copy: plan.copy.clone(),
        stays_here: plan.cgi.get("tpc.key").is_some(),
    };
    Ok(Value::Opened(Opened { file: Handle::open(&opener.services, new), stat: parts.stat }))
}

fn check_kind(plan: &Plan, metadata: &Metadata) -> Result<(), Error> {
    match describe::kind(metadata) {
        FileKind::File => Ok(()),
        FileKind::Directory => Err(unable(plan.verb(), &plan.path, errno::IS_A_DIRECTORY)),
        FileKind::Other => Err(unable(plan.verb(), &plan.path, NOT_A_FILE)),
    }
}
