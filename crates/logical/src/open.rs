//! From a name to an open file.
//!
//! Opening a file for reading is answered on the spot when its name is in memory. Everything that creates, truncates or
//! writes goes to the pool.

use crate::config::Export;
use crate::describe;
use crate::file_system::{done, on_pool};
use crate::handle::{Handle, NewHandle};
use crate::lock::LockTicket;
use crate::shared::{Shared, errno, is_read_only, os, unable};
use base::{Cgi, Error, ErrorKind, LogicalPath};
use std::sync::Arc;
use storage::{CreateHow, Metadata, Now, OpenHow, StoredFile};
use vfs::{Caller, FileKind, OpenRequest, Opened, ReplyTo, Started, Target, Value};

/// ENOTBLK: what is neither a file nor a directory cannot be opened.
const NOT_A_FILE: i32 = 15;
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
}

impl Plan {
    fn verb(&self) -> &'static str {
        if self.creates { "create" } else { "open" }
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
    let plan = match plan(shared, caller, &target, request) {
        Ok(plan) => plan,
        Err(error) => return done(Err(error)),
    };
    if !plan.write
        && let Some(result) = open_now(shared, &plan)
    {
        return done(result);
    }
    on_pool(shared, target, reply, move |shared, _| open(shared, &plan))
}

/// Is this open permissible at all?
fn plan(shared: &Shared, caller: &Arc<Caller>, target: &Target, request: OpenRequest) -> Result<Plan, Error> {
    let path = target.path.clone();
    let export = shared.export(&path, "Opening")?;
    if target.cgi.has_prefix("tpc.") {
        let text = format!("Unable to open {path}; tpc not supported");
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    let creates = request.new || request.delete;
    let write = creates || (request.write && !export.force_read_only);
    let plan = Plan {
        plain: path.without_slash(),
        path,
        write,
        creates,
        caller: caller.clone(),
        cgi: target.cgi.clone(),
        enforce_lock: export.lock && !request.force,
        request,
    };
    if write && is_read_only(export) {
        return Err(unable(plan.verb(), &plan.path, errno::READ_ONLY));
    }
    check_templates(&plan)?;
    Ok(plan)
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
fn open_now(shared: &Arc<Shared>, plan: &Plan) -> Option<Result<Value, Error>> {
    if plan.path != plan.plain {
        return None;
    }
    let lock = match lock(shared, plan) {
        Ok(lock) => lock,
        Err(error) => return Some(Err(error)),
    };
    match shared.backend.open_now(&plan.plain, &OpenHow::default()) {
        Now::WouldBlock => None,
        Now::Done(Err(error)) => Some(Err(Error::unable(plan.verb(), &plan.path, error))),
        Now::Done(Ok(file)) => Some(finish(shared, plan, file, lock)),
    }
}

/// Opens where blocking is allowed.
fn open(shared: &Arc<Shared>, plan: &Plan) -> Result<Value, Error> {
    if plan.path != plan.plain {
        return Err(slash_error(shared, plan));
    }
    let lock = lock(shared, plan)?;
    let how = how(shared, plan)?;
    let file =
        shared.backend.open(&plan.plain, &how).map_err(|e| Error::unable(plan.verb(), &plan.path, e))?;
    if let Some(template) = &plan.request.duplicate_of
        && let Err(error) = duplicate(file.as_ref(), template.as_ref())
    {
        // It was created a moment ago by this very call, so that nobody else can have put anything into it.
        drop(file);
        if let Err(left) = shared.backend.remove_file(&plan.plain) {
            tracing::warn!(path = %plan.path, error = %left, "a file that could not be cloned stays behind");
        }
        return Err(Error::unable("clone", &plan.path, error));
    }
    finish(shared, plan, file, lock)
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

fn how(shared: &Shared, plan: &Plan) -> Result<OpenHow, Error> {
    let request = &plan.request;
    let template = request.same_file_system_as.as_ref().or(request.duplicate_of.as_ref());
    let beside = match template.map(|file| file.as_any().downcast_ref::<Handle>()) {
        Some(None) => return Err(unable(plan.verb(), &plan.path, errno::UNSUPPORTED)),
        Some(Some(handle)) => Some(handle.stored().clone()),
        None => None,
    };
    let create = plan.creates.then(|| CreateHow {
        exclusive: request.new,
        mode: shared.config.file_mode.apply(request.mode),
        parents: request.make_path.then(|| shared.config.directory_mode.apply(PARENT_MODE)),
        size_hint: plan.cgi.text("oss.asize").and_then(|text| text.parse().ok()),
        space: plan.cgi.text("oss.cgroup").map(str::to_owned),
        beside,
    });
    Ok(OpenHow { write: plan.write, truncate: request.delete && !request.new, create })
}

fn duplicate(file: &dyn StoredFile, template: &dyn vfs::OpenFile) -> std::io::Result<()> {
    let source = template.as_any().downcast_ref::<Handle>().ok_or_else(|| os(errno::UNSUPPORTED))?;
    let length = source.stored().stat()?.size;
    file.clone_range(source.stored().as_ref(), 0, length, 0)
}

/// Checks what was opened and makes the handle.
fn finish(
    shared: &Arc<Shared>,
    plan: &Plan,
    file: Arc<dyn StoredFile>,
    lock: LockTicket,
) -> Result<Value, Error> {
    let metadata = file.stat().map_err(|e| Error::unable(plan.verb(), &plan.path, e))?;
    check_kind(plan, &metadata)?;
    let export: &Export = shared.export(&plan.path, "Opening")?;
    let stat = plan.request.stat.then(|| shared.stat(&metadata, export));
    let new = NewHandle {
        path: plan.plain.clone(),
        file,
        writable: plan.write,
        lock,
        read_only_export: is_read_only(export),
    };
    Ok(Value::Opened(Opened { file: Handle::open(shared, new), stat }))
}

fn check_kind(plan: &Plan, metadata: &Metadata) -> Result<(), Error> {
    match describe::kind(metadata) {
        FileKind::File => Ok(()),
        FileKind::Directory => Err(unable(plan.verb(), &plan.path, errno::IS_A_DIRECTORY)),
        FileKind::Other => Err(unable(plan.verb(), &plan.path, NOT_A_FILE)),
    }
}
