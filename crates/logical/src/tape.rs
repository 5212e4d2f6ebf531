//! Requests of the WLCG Tape REST API. A request to stage files becomes transfers in the same queue as
//! a prepare request, with an id of the same form.

use crate::describe;
use crate::errno::{self, unable};
use crate::file_system::Logical;
use crate::job;
use crate::prepare;
use crate::presence::PathPresence;
use crate::staged_files::{StagedServices, USER_OWNER, request_owner};
use crate::stager::{RecordChange, RecordedFile, RecordedNeed, StageRequest};
use base::{Error, ErrorKind, LogicalPath};
use std::sync::Arc;
use storage::{COPY_TIME_ATTRIBUTE, CopyTime, Now, Pool};
use vfs::{
    Answer, Caller, DeferredReply, Locality, LocatedFile, ReplyTo, Started, TapeFile, TapeRequest, TapeWork,
    Value,
};

/// Maximum number of threads that read and record requests.
const RECORD_THREADS_MAX: usize = 2;

/// Maximum number of threads that look where files are. They wait for disks and for mass storage.
const LOCALITY_THREADS_MAX: usize = 4;

/// The threads of tape requests, which no other operation needs.
pub(crate) struct TapePools {
    records: Arc<Pool>,
    localities: Arc<Pool>,
}

impl TapePools {
    pub(crate) fn new() -> Self {
        Self {
            records: Pool::new("tape-requests", RECORD_THREADS_MAX),
            localities: Pool::new("tape-localities", LOCALITY_THREADS_MAX),
        }
    }
}

/// Starts a request.
pub(crate) fn start(
    services: &Arc<StagedServices>,
    caller: &Arc<Caller>,
    request: TapeRequest,
    reply: &ReplyTo,
) -> Started {
    if services.inner.acts_for_users() {
        // Nothing shows which files a user may see.
        let text = "tape requests are not served with multi-user";
        return Started::Done(Answer::error(ErrorKind::Unsupported, text));
    }
    let (inside, client) = (services.clone(), caller.clone());
    let pool = match &request.work {
        TapeWork::Locate(_) => services.tape.localities.clone(),
        _ => services.tape.records.clone(),
    };
    let work = move |reply: DeferredReply| {
        if client.is_disconnected() {
            return reply.send(job::disconnected_answer());
        }
        if let Some((reply, answer)) = answer(&inside, &client, request, reply) {
            reply.send(answer);
        }
    };
    job::spawn_reply(|job| pool.run(reply.owner(), job), reply, work)
}

/// Does the work. Returns the reply with its answer, unless the answer comes later.
fn answer(
    services: &StagedServices,
    caller: &Caller,
    mut request: TapeRequest,
    reply: DeferredReply,
) -> Option<(DeferredReply, Answer)> {
    let work = std::mem::replace(&mut request.work, TapeWork::Locate(Vec::new()));
    let refused = match &work {
        TapeWork::Stage(_) | TapeWork::Locate(_) => Ok(()),
        TapeWork::State { id, .. } | TapeWork::Forget { id } => owned(&request, caller, id),
        TapeWork::Cancel { id, paths } | TapeWork::Release { id, paths } => {
            owned(&request, caller, id).and_then(|()| paths.iter().try_for_each(|path| request.check(path)))
        }
    };
    if let Err(error) = refused {
        return Some((reply, Answer::Error(error)));
    }
    match work {
        TapeWork::Stage(files) => {
            stage(services, caller, (&request, files), reply);
            None
        }
        TapeWork::State { id, after } => {
            let state = services.stager.recorded_state(&id, after.as_ref());
            Some((
                reply,
                state.and_then(|state| state.ok_or_else(unknown)).map(Box::new).map(Value::TapeState).into(),
            ))
        }
        TapeWork::Cancel { id, paths } => {
            change(services, &id, RecordChange::Cancel(paths), reply);
            None
        }
        TapeWork::Forget { id } => {
            change(services, &id, RecordChange::Forget, reply);
            None
        }
        TapeWork::Release { id, paths } => {
            change(services, &id, RecordChange::Release(paths), reply);
            None
        }
        TapeWork::Locate(paths) => {
            let located = paths.into_iter().map(|path| {
                // Each file may wait for a disk or a program.
                let locality = match caller.is_disconnected() {
                    true => Ok(Locality::Unavailable),
                    false => locate(services, &request, &path).map_err(|error| error.text),
                };
                LocatedFile { path, locality }
            });
            Some((reply, Answer::Value(Value::Localities(located.collect()))))
        }
    }
}

fn unknown() -> Error {
    Error::new(ErrorKind::NotFound, "There is no such request")
}

/// Refuses a client that did not make a request, unless the authorization has decided about it.
fn owned(request: &TapeRequest, caller: &Caller, id: &str) -> Result<(), Error> {
    let made_by_another = prepare::owner_of(id.as_bytes()).is_some_and(|mark| mark != owner(request, caller));
    if made_by_another && !request.is_decided() {
        return Err(Error::new(ErrorKind::NotAuthorized, "It is a request of another client"));
    }
    Ok(())
}

/// Returns the mark of the client.
fn owner(request: &TapeRequest, caller: &Caller) -> String {
    request.owner.clone().unwrap_or_else(|| prepare::owner_mark(caller))
}

fn change(services: &StagedServices, id: &str, change: RecordChange, reply: DeferredReply) {
    let done = move |result: Result<(), Error>| reply.send(result.map(|()| Value::Nothing).into());
    services.stager.change_record(id, change, Box::new(done));
}

/// Records a request, with each file that is refused.
fn stage(
    services: &StagedServices,
    caller: &Caller,
    (request, files): (&TapeRequest, Vec<TapeFile>),
    reply: DeferredReply,
) {
    let mark = owner(request, caller);
    let id = services.inner.issue_random_id(&mark);
    let (client, queued_for) = (caller.identity.to_string().into(), queue_owner(caller, &mark));
    let recorded = files.into_iter().map(|file| {
        let need = request.check(&file.path).and_then(|()| need(&services.inner, &file.path));
        RecordedFile {
            request: StageRequest {
                path: file.path.without_slash(),
                priority: 0,
                client: Arc::clone(&client),
                owner: queued_for.clone(),
            },
            lifetime: file.lifetime,
            need: need.unwrap_or_else(|error| RecordedNeed::Refused(error.text)),
        }
    });
    let text = id.clone().into_bytes();
    let done = move |result: Result<(), Error>| reply.send(result.map(|()| Value::Text(text)).into());
    services.stager.record(&id, recorded.collect(), Box::new(done));
}

/// Returns the owner of requests in the queue, with whom others share it: that of other transfers of the client,
/// but the bearer of a token is not the host or the user of its login.
fn queue_owner(caller: &Caller, mark: &str) -> Arc<str> {
    let login = request_owner(caller);
    let has_bearer = caller.entity().is_some_and(|entity| entity.verified_bearer().is_some());
    let is_named = login.starts_with(USER_OWNER);
    if mark == prepare::owner_mark(caller) && (is_named || !has_bearer) {
        return login;
    }
    format!("bearer {mark}").into()
}

/// Returns the need of a file for a transfer, without access to a disk that could wait.
fn need(files: &Logical, path: &LogicalPath) -> Result<RecordedNeed, Error> {
    files.check_export(path)?;
    match files.backend().stat_now(&path.without_slash()) {
        Now::Done(Ok(found)) if describe::is_directory(&found) => {
            Err(unable("stage", path, errno::IS_A_DIRECTORY))
        }
        Now::Done(Ok(_)) if files.look_now(path) == Some(PathPresence::Here { pending: true }) => {
            let text = format!("Unable to stage {}; it is being written", path.text());
            Err(Error::new(ErrorKind::FileLocked, text))
        }
        Now::Done(Ok(_)) => Ok(RecordedNeed::OnDisk),
        _ if files.stages(path) => Ok(RecordedNeed::Transfer),
        _ => {
            let text = format!("Unable to stage {}; its export does not stage files", path.text());
            Err(Error::new(ErrorKind::Unsupported, text))
        }
    }
}

/// Returns where a file is. May block for long.
fn locate(services: &StagedServices, request: &TapeRequest, path: &LogicalPath) -> Result<Locality, Error> {
    request.check(path)?;
    let (files, plain) = (&services.inner, path.without_slash());
    files.check_export(path)?;
    match files.backend().stat(&plain) {
        Ok(found) if describe::is_directory(&found) => Err(unable("locate", path, errno::IS_A_DIRECTORY)),
        Ok(found) if found.offline => Ok(Locality::Tape),
        Ok(_) if files.presence(&plain) == (PathPresence::Here { pending: true }) => {
            Ok(Locality::Unavailable)
        }
        Ok(found) => {
            let copied = files.backend().attribute(&plain, COPY_TIME_ATTRIBUTE);
            let copied = copied.map_err(|error| Error::unable("locate", path, error))?;
            let has_copy = CopyTime::shows_copy(copied.as_deref(), found.modified);
            Ok(if has_copy { Locality::DiskAndTape } else { Locality::Disk })
        }
        Err(error) if !storage::is_missing(&error) => Err(Error::unable("locate", path, error)),
        Err(_) if !files.is_remote(path) => Ok(Locality::None),
        Err(_) if !services.stager.has_catalog() => {
            let text = format!(
                "Unable to locate {}; it is not on disk, and no program knows the names in mass storage \
                 (oss.rsscmd)",
                path.text()
            );
            Err(Error::new(ErrorKind::Unsupported, text))
        }
        Err(_) => Ok(match services.stager.remote_status(&plain) {
            Ok(Some(_)) => Locality::Tape,
            Ok(None) => Locality::None,
            Err(_) => Locality::Unavailable,
        }),
    }
}
