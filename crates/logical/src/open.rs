//! From a name to an open file.
//!
//! Opening a file for reading is answered on the spot when its name is in memory. Everything that creates, truncates or
//! writes goes to the pool.

use crate::checksum::stored;
use crate::describe;
use crate::file_system::done;
use crate::handle::Handle;
use crate::job;
use crate::lock::LockTicket;
use crate::open_file::NewFile;
use crate::persist::{Admission, Scope, Ticket};
use crate::shared::{Shared, errno, is_read_only, os, unable};
use crate::third_party::{self, Copy, Offer, Pull, Role};
use base::{Cgi, Error, ErrorKind, LogicalPath};
use std::sync::Arc;
use storage::{CreateHow, Elsewhere, Metadata, Now, OpenHow, StoredFile};
use vfs::{Answer, Caller, FileKind, OpenRequest, Opened, ReplyTo, Started, Target, Value};

/// ENOTBLK: what is neither a file nor a directory cannot be opened.
const NOT_A_FILE: i32 = 15;
/// What a reader of a file that is not yet whole is told to wait.
const CREATION_SECONDS: u64 = 60;
/// Mode of parents that are created on the way, before the configured range.
const PARENT_MODE: u32 = 0o755;

/// An open that was found permissible.
pub(crate) struct Plan {
    /// As the client wrote it, for texts.
    pub(crate) path: LogicalPath,
    /// Without trailing `/`.
    pub(crate) plain: LogicalPath,
    pub(crate) request: OpenRequest,
    pub(crate) caller: Arc<Caller>,
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
    fn create(&self, shared: &Shared) -> Result<Option<CreateHow>, Error> {
        let request = &self.request;
        let template = request.same_file_system_as.as_ref().or(request.duplicate_of.as_ref());
        let beside = match template.map(|file| file.as_any().downcast_ref::<Handle>()) {
            Some(None) => return Err(unable(self.verb(), &self.path, errno::UNSUPPORTED)),
            Some(Some(handle)) => Some(handle.stored().clone()),
            None => None,
        };
        Ok(self.creates.then(|| CreateHow {
            exclusive: request.new,
            mode: shared.config.mode_of_file(request.mode),
            parents: request.make_path.then(|| shared.config.mode_of_directory(PARENT_MODE)),
            size_hint: self.cgi.text("oss.asize").and_then(|text| text.parse().ok()),
            space: self.cgi.text("oss.cgroup").map(str::to_owned),
            beside,
            at: self.place.clone(),
        }))
    }
}

/// Opens a file.
pub(crate) fn start(
    shared: &Arc<Shared>,
    caller: &Arc<Caller>,
    target: Target,
    request: OpenRequest,
    reply: &ReplyTo,
) -> Started {
    let (plan, role) = match plan(shared, caller, &target, request) {
        Ok(plan) => plan,
        Err(error) => return done(Err(error)),
    };
    match (role, shared.third_party.get()) {
        (Role::Register { key, destination, ttl }, Some(third)) => {
            let offer = Offer { key, destination, ttl };
            third_party::register(shared, third, plan, offer, reply)
        }
        (Role::Collect { key, origin }, Some(third)) => {
            third_party::collect(shared, third, plan, &key, &origin, reply)
        }
        _ => proceed(shared, plan, reply),
    }
}

/// Opens a file whose open was found permissible.
pub(crate) fn proceed(shared: &Arc<Shared>, plan: Plan, reply: &ReplyTo) -> Started {
    if !plan.write
        && let Some(answer) = open_now(shared, &plan)
    {
        return Started::Done(answer);
    }
    let (path, inside) = (plan.path.clone(), shared.clone());
    let create = plan.create(shared).ok().flatten();
    job::spawn_at(shared, &path, create, reply, move |place, reply| {
        reply.send(open(&inside, &Plan { place, ..plan }));
    })
}

/// Is this open permissible at all?
fn plan(
    shared: &Shared,
    caller: &Arc<Caller>,
    target: &Target,
    request: OpenRequest,
) -> Result<(Plan, Role), Error> {
    let path = target.path.clone();
    let export = shared.export(&path, "Opening")?;
    let creates = request.new || request.delete;
    let write = creates || (request.write && !export.force_read_only);
    let mut plan = Plan {
        plain: path.without_slash(),
        path,
        write,
        creates,
        caller: caller.clone(),
        cgi: target.cgi.clone(),
        enforce_lock: export.lock && !request.force,
        asks_persist: request.posc || target.cgi.text("ofs.posc") == Some("1"),
        copy: None,
        place: None,
        request,
    };
    if write && is_read_only(export) {
        return Err(unable(plan.verb(), &plan.path, errno::READ_ONLY));
    }
    check_templates(&plan)?;
    let role = role(shared, &mut plan)?;
    Ok((plan, role))
}

/// The part of this open in a copy between servers.
fn role(shared: &Shared, plan: &mut Plan) -> Result<Role, Error> {
    if !plan.cgi.has_prefix("tpc.") {
        return Ok(Role::None);
    }
    let Some(third) = shared.third_party.get() else {
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

fn lock(shared: &Shared, plan: &Plan) -> Result<LockTicket, Error> {
    shared.locks.acquire(&plan.plain, plan.write, plan.enforce_lock)
}

/// Opens for reading what is in memory.
fn open_now(shared: &Arc<Shared>, plan: &Plan) -> Option<Answer> {
    if plan.path != plan.plain {
        return None;
    }
    let lock = match lock(shared, plan) {
        Ok(lock) => lock,
        Err(error) => return Some(Answer::Error(error)),
    };
    if shared.persist.is_pending(&plan.plain) {
        return Some(being_created(shared, plan));
    }
    if let Err(error) = shared.checkpoints.check_open(&plan.plain, false) {
        return Some(Answer::Error(plan.unable(error)));
    }
    match shared.backend.open_now(&plan.plain, &OpenHow::default()) {
        Now::WouldBlock => None,
        Now::Done(Err(error)) => {
            shared.tell_missing(&plan.plain, &error);
            Some(Answer::Error(plan.unable(error)))
        }
        Now::Done(Ok(file)) => finish_now(shared, plan, file, lock).map(Answer::from),
    }
}

/// The answer to a reader of a file that is not yet whole.
fn being_created(shared: &Shared, plan: &Plan) -> Answer {
    let name = String::from_utf8_lossy(plan.plain.file_name().unwrap_or_default()).into_owned();
    let seconds = CREATION_SECONDS.min(shared.config.delay_max.as_secs()) as u32;
    let text = format!("File {name} is being created; estimated time to completion 1 minute");
    Answer::Wait { seconds, text }
}

/// Opens where blocking is allowed.
pub(crate) fn open(shared: &Arc<Shared>, plan: &Plan) -> Answer {
    if plan.path != plan.plain {
        return Answer::Error(slash_error(shared, plan));
    }
    let claim = if plan.write { shared.persist.claim(&[&plan.plain], Scope::Name) } else { None };
    if plan.write && claim.is_none() {
        return Answer::Wait { seconds: 1, text: String::new() };
    }
    let lock = match lock(shared, plan) {
        Ok(lock) => lock,
        Err(error) => return Answer::Error(error),
    };
    if let Err(error) = shared.checkpoints.check_open(&plan.plain, plan.write) {
        return Answer::Error(plan.unable(error));
    }
    if !plan.write && shared.persist.is_pending(&plan.plain) {
        return being_created(shared, plan);
    }
    if plan.copy.is_some() && lock.was_disturbed() {
        // Without the lock of the export, two would write one file.
        return Answer::Error(unable(plan.verb(), &plan.path, errno::TEXT_BUSY));
    }
    // What must not exist cannot be resumed.
    let admission = if plan.write && !plan.request.new {
        shared.persist.admit(&plan.plain, &plan.caller.identity, plan.asks_persist)
    } else {
        Admission::Free
    };
    match admission {
        Admission::Leaving => Answer::Wait { seconds: 1, text: String::new() },
        Admission::Busy => Answer::Error(Error::new(
            ErrorKind::InProgress,
            format!(
                "Unable to access {}; text file busy\nAdditional context: ofs_open: posc mode initiation failed",
                plan.path
            ),
        )),
        Admission::Resume(ticket) => resume(shared, plan, lock, ticket),
        Admission::Free if plan.copy.is_some() || shared.persist.wants(plan.asks_persist, plan.creates) => {
            create_pending(shared, plan, lock).into()
        }
        Admission::Free => plain(shared, plan, lock).into(),
    }
}

/// Opens a file for which persist on close plays no part.
fn plain(shared: &Arc<Shared>, plan: &Plan, lock: LockTicket) -> Result<Value, Error> {
    let how = how(shared, plan, plan.request.delete && !plan.request.new, 0)?;
    let above = missing_above(shared, plan);
    let file = match shared.backend.open(&plan.plain, &how) {
        Ok(file) => file,
        Err(error) => {
            if !plan.creates {
                shared.tell_missing(&plan.plain, &error);
            }
            return Err(plan.unable(error));
        }
    };
    if plan.creates {
        shared.tell_made_above(&above);
    }
    if let Err(error) = clone_template(plan, file.as_ref()) {
        discard(shared, plan, file);
        return Err(error);
    }
    let opened = finish(shared, plan, file, lock, None)?;
    if plan.creates {
        shared.tell_made(&plan.plain, false);
    }
    Ok(opened)
}

/// Directories that this open will make on the way.
fn missing_above(shared: &Shared, plan: &Plan) -> Vec<LogicalPath> {
    if plan.creates && plan.request.make_path { shared.missing_above(&plan.plain) } else { Vec::new() }
}

/// Goes on with a file that is not yet whole.
fn resume(shared: &Arc<Shared>, plan: &Plan, lock: LockTicket, ticket: Ticket) -> Answer {
    let how = OpenHow { write: true, truncate: plan.request.delete, create: None };
    match shared.backend.open(&plan.plain, &how) {
        Ok(file) => match finish(shared, plan, file, lock, Some(ticket)) {
            Ok(value) => Answer::Value(value),
            Err(error) => {
                shared.persist.abandon(ticket, false);
                Answer::Error(error)
            }
        },
        Err(error) if error.raw_os_error() == Some(errno::NOT_FOUND) => {
            // Somebody removed it behind the server's back.
            shared.persist.cancel(ticket);
            if plan.creates {
                create_pending(shared, plan, lock).into()
            } else {
                Answer::Error(plan.unable(error))
            }
        }
        Err(error) => {
            shared.persist.abandon(ticket, false);
            Answer::Error(plan.unable(error))
        }
    }
}

/// Creates a file that persists only on successful close, or makes an existing one such by emptying it.
fn create_pending(shared: &Arc<Shared>, plan: &Plan, lock: LockTicket) -> Result<Value, Error> {
    let ticket = reserve(shared, plan)?;
    // Never truncated at open: it must bear the mark first.
    let how = match how(shared, plan, false, describe::MODE_PENDING) {
        Ok(how) => how,
        Err(error) => {
            shared.persist.cancel(ticket);
            return Err(error);
        }
    };
    let above = missing_above(shared, plan);
    let file = match shared.backend.open(&plan.plain, &how) {
        Ok(file) => file,
        Err(error) => {
            shared.persist.cancel(ticket);
            return Err(plan.unable(error));
        }
    };
    shared.tell_made_above(&above);
    let prepared = prepare_pending(shared, plan, ticket, file.as_ref());
    match prepared.and_then(|()| finish(shared, plan, file.clone(), lock, Some(ticket))) {
        Ok(value) => {
            shared.tell_made(&plan.plain, true);
            Ok(value)
        }
        Err(error) => {
            if plan.request.new {
                discard(shared, plan, file);
            } else {
                unmark(plan, file.as_ref());
            }
            shared.persist.cancel(ticket);
            Err(error)
        }
    }
}

fn reserve(shared: &Shared, plan: &Plan) -> Result<Ticket, Error> {
    let mode = shared.config.mode_of_file(plan.request.mode);
    let attempt =
        || shared.persist.reserve(&plan.plain, &plan.caller.identity, mode).map_err(|e| plan.unable(e));
    if let Some(ticket) = attempt()? {
        return Ok(ticket);
    }
    // Something is pending there, unless it was removed behind the server's back.
    match shared.backend.stat(&plan.plain) {
        Err(error) if error.raw_os_error() == Some(errno::NOT_FOUND) => {
            shared.persist.forget_unheld(&plan.plain)
        }
        _ => {}
    }
    let busy = if plan.request.new { errno::EXISTS } else { errno::TEXT_BUSY };
    attempt()?.ok_or_else(|| unable(plan.verb(), &plan.path, busy))
}

/// Marks, then empties, then fills from the template.
fn prepare_pending(shared: &Shared, plan: &Plan, ticket: Ticket, file: &dyn StoredFile) -> Result<(), Error> {
    let metadata = file.stat().map_err(|e| plan.unable(e))?;
    check_kind(plan, &metadata)?;
    shared.persist.mark(ticket, file).map_err(|e| plan.unable(e))?;
    if metadata.size > 0 {
        file.truncate(0).map_err(|e| plan.unable(e))?;
    }
    clone_template(plan, file)
}

/// An existing file that could not be emptied is whole as it was.
fn unmark(plan: &Plan, file: &dyn StoredFile) {
    let unmarked = file.stat().and_then(|metadata| {
        let mode = metadata.mode & describe::MODE_BITS & !describe::MODE_PENDING;
        if describe::is_pending(&metadata) { file.set_mode(mode) } else { Ok(()) }
    });
    if let Err(error) = unmarked {
        tracing::warn!(path = %plan.path, %error, "a file keeps the mark of an unfinished one");
    }
}

/// Removes what was created a moment ago by this very call, so that nobody else can have put anything into it.
fn discard(shared: &Shared, plan: &Plan, file: Arc<dyn StoredFile>) {
    drop(file);
    if !plan.request.new {
        return;
    }
    if let Err(error) = shared.backend.remove_file(&plan.plain) {
        tracing::warn!(path = %plan.path, %error, "a file that could not be created fully stays behind");
    }
}

/// What is wrong with a name that ends in `/`: it asks for a directory, and a directory cannot be opened.
fn slash_error(shared: &Shared, plan: &Plan) -> Error {
    match shared.metadata(&plan.path, plan.verb()) {
        Ok(_) => unable(plan.verb(), &plan.path, errno::IS_A_DIRECTORY),
        Err(error) if error.kind == ErrorKind::NotFound && plan.creates => {
            unable(plan.verb(), &plan.path, errno::IS_A_DIRECTORY)
        }
        Err(error) => error,
    }
}

fn how(shared: &Shared, plan: &Plan, truncate: bool, mark: u32) -> Result<OpenHow, Error> {
    let create = plan.create(shared)?.map(|create| CreateHow { mode: create.mode | mark, ..create });
    Ok(OpenHow { write: plan.write, truncate, create })
}

/// Fills a new file from the one it is to be a clone of, if any.
fn clone_template(plan: &Plan, file: &dyn StoredFile) -> Result<(), Error> {
    let Some(template) = &plan.request.duplicate_of else { return Ok(()) };
    let source = template.as_any().downcast_ref::<Handle>();
    let cloned = source.ok_or_else(|| os(errno::UNSUPPORTED)).and_then(|source| {
        let length = source.stored().stat()?.size;
        file.clone_range(source.stored().as_ref(), 0, length, 0)
    });
    cloned.map_err(|e| Error::unable("clone", &plan.path, e))
}

/// Checks what was opened and makes the handle.
fn finish(
    shared: &Arc<Shared>,
    plan: &Plan,
    file: Arc<dyn StoredFile>,
    lock: LockTicket,
    persist: Option<Ticket>,
) -> Result<Value, Error> {
    let metadata = file.stat().map_err(|e| plan.unable(e))?;
    check_kind(plan, &metadata)?;
    let stat = match plan.request.stat {
        true => Some(shared.stat(&metadata, shared.export(&plan.path, "Opening")?)),
        false => None,
    };
    // A new file has none, and one that was emptied at open has lost what it had.
    let has_checksums = plan.write && !plan.request.new && stored::has_any(file.as_ref());
    if has_checksums && plan.request.delete {
        stored::drop_all(file.as_ref(), &plan.plain);
    }
    let has_checksums = has_checksums && !plan.request.delete;
    make_handle(shared, plan, &metadata, NewParts { file, lock, persist, has_checksums, stat })
}

/// The same for a file that was opened for reading on the spot; `None` if it would have to wait for names.
fn finish_now(
    shared: &Arc<Shared>,
    plan: &Plan,
    file: Arc<dyn StoredFile>,
    lock: LockTicket,
) -> Option<Result<Value, Error>> {
    let metadata = match file.stat_now() {
        Now::WouldBlock => return None,
        Now::Done(Ok(metadata)) => metadata,
        Now::Done(Err(error)) => return Some(Err(plan.unable(error))),
    };
    if let Err(error) = check_kind(plan, &metadata) {
        return Some(Err(error));
    }
    let stat = match (plan.request.stat, shared.export(&plan.path, "Opening")) {
        (true, Ok(export)) => Some(shared.stat_now(&metadata, export)?),
        (true, Err(error)) => return Some(Err(error)),
        (false, _) => None,
    };
    let parts = NewParts { file, lock, persist: None, has_checksums: false, stat };
    Some(make_handle(shared, plan, &metadata, parts))
}

/// What goes into a handle.
struct NewParts {
    file: Arc<dyn StoredFile>,
    lock: LockTicket,
    persist: Option<Ticket>,
    has_checksums: bool,
    stat: Option<vfs::Stat>,
}

fn make_handle(
    shared: &Arc<Shared>,
    plan: &Plan,
    metadata: &Metadata,
    parts: NewParts,
) -> Result<Value, Error> {
    let new = NewFile {
        path: plan.plain.clone(),
        file: parts.file,
        writable: plan.write,
        lock: parts.lock,
        persist: parts.persist,
        read_only_export: is_read_only(shared.export(&plan.path, "Opening")?),
        empty: metadata.size == 0,
        has_checksums: parts.has_checksums,
        copy: plan.copy.clone(),
        stays_here: plan.cgi.get("tpc.key").is_some(),
    };
    Ok(Value::Opened(Opened { file: Handle::open(shared, new), stat: parts.stat }))
}

fn check_kind(plan: &Plan, metadata: &Metadata) -> Result<(), Error> {
    match describe::kind(metadata) {
        FileKind::File => Ok(()),
        FileKind::Directory => Err(unable(plan.verb(), &plan.path, errno::IS_A_DIRECTORY)),
        FileKind::Other => Err(unable(plan.verb(), &plan.path, NOT_A_FILE)),
    }
}
