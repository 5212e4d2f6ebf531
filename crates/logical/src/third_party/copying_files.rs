//! [`CopyingFiles`]: third-party copies from and to files that are not on this server, in front of the
//! file system that has them.
//!
//! A proxy is the source or the destination of a copy like any server: clients and the other server see
//! its address. The file behind is opened as the client opens it. The destination of a granted file gets
//! it by the open of the client that granted it, so the server behind decides about that client and
//! never about the destination.

use super::copied_file::{CopiedFile, FileBehind, GrantedFile};
use super::rendezvous::GrantRights;
use super::request::{CopyRole, PullRequest, is_copy, parse};
use super::source::GrantOffer;
use super::{RunningCopy, ThirdPartyCopies, ThirdPartyCounts, ThirdPartyParts, refused};
use crate::job::done;
use base::{Cgi, Clock, Error, ErrorKind, Supervisor};
use std::sync::Arc;
use std::time::Duration;
use vfs::{
    Answer, Caller, FileSystem, OpenFile, OpenRequest, Opened, Operation, RedirectAnswer, ReplyTo, Started,
    Target, Value,
};

/// Interval of [`ThirdPartyCopies::tick`].
const TICK: Duration = Duration::from_secs(1);

/// A file system whose files take part in third-party copies.
pub struct CopyingFiles {
    behind: Arc<dyn FileSystem>,
    /// `None` if this server offers no copies.
    third: Option<Arc<ThirdPartyCopies>>,
}

/// An open that belongs to a copy.
struct CopyOpen {
    /// As the client has written it.
    target: Target,
    request: OpenRequest,
    caller: Arc<Caller>,
}

impl CopyOpen {
    /// Returns the open for the files behind, without the text of the copy.
    fn plain(&self) -> (Target, OpenRequest) {
        let cgi = without_copy(&self.target.cgi);
        (Target { path: self.target.path.clone(), cgi }, self.request.clone())
    }
}

impl CopyingFiles {
    /// Returns the files of `behind`. Without `parts`, an open that belongs to a copy is refused.
    pub fn before(
        behind: Arc<dyn FileSystem>,
        parts: Option<ThirdPartyParts>,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        Arc::new(Self { behind, third: parts.map(|parts| Arc::new(ThirdPartyCopies::new(parts, clock))) })
    }

    /// Starts the thread that ends copies and grants in time, as long as these files live; faults go to
    /// `supervisor`.
    ///
    /// # Errors
    /// The error of the system, if there is no thread.
    pub fn start_timer(&self, supervisor: &Supervisor) -> std::io::Result<()> {
        let Some(third) = self.third.as_ref().map(Arc::downgrade) else { return Ok(()) };
        let beat = move || {
            while let Some(third) = third.upgrade() {
                third.tick();
                drop(third);
                std::thread::sleep(TICK);
            }
        };
        supervisor.spawn("copies-timer", "the timer of third-party copies", beat).map(drop)
    }

    /// Handles all timeouts. To be called about once per second; never blocks.
    pub fn tick(&self) {
        if let Some(third) = &self.third {
            third.tick();
        }
    }

    /// Returns the numbers of copies since the start.
    pub fn counts(&self) -> ThirdPartyCounts {
        self.third.as_ref().map(|third| third.counters.counts()).unwrap_or_default()
    }

    fn open(&self, open: CopyOpen, reply: &ReplyTo) -> Started {
        let path = &open.target.path;
        let Some(third) = &self.third else {
            return match is_copy(&open.target.cgi) {
                true => done(Err(refused(path, ErrorKind::Unsupported, "tpc not supported"))),
                false => self.open_plain(&open, reply),
            };
        };
        let creates = open.request.new || open.request.delete;
        let writes = creates || open.request.write || open.request.append;
        let plain = path.without_slash();
        let role = match parse(path, &open.target.cgi, writes, creates, third.settings.object_ids) {
            Ok(role) => role,
            Err((kind, why)) => return done(Err(refused(path, kind, why))),
        };
        if !third.settings.admits_path(&plain) {
            return done(Err(refused(path, ErrorKind::NotAuthorized, "tpc not allowed for path")));
        }
        match role {
            CopyRole::None => self.open_plain(&open, reply),
            CopyRole::Register { key, destination, ttl } => {
                self.register(third, open, GrantOffer { key, destination, ttl }, reply)
            }
            CopyRole::Collect { key, origin } => self.collect(third, open, (&key, &origin), reply),
            CopyRole::Pull(pull) => match self.pull(third, open, *pull, reply) {
                Ok(started) => started,
                Err(error) => done(Err(error)),
            },
        }
    }

    /// Opens a file that only happens to have text of copies.
    fn open_plain(&self, open: &CopyOpen, reply: &ReplyTo) -> Started {
        let (target, request) = open.plain();
        self.behind.start(&open.caller, Operation::Open(target, Box::new(request)), reply)
    }

    /// Opens the file for the client that grants it, which keeps it open as long as the grant is to hold.
    fn register(
        &self,
        third: &Arc<ThirdPartyCopies>,
        open: CopyOpen,
        offer: GrantOffer,
        reply: &ReplyTo,
    ) -> Started {
        if let Err(error) = third.check_client(&open.target.path, &open.caller) {
            return done(Err(error));
        }
        let (inside, behind, client) = (third.clone(), self.behind.clone(), open.caller.identity.address);
        let (reply, duty) = (reply.clone(), reply.defer());
        third.look_up(client, move || {
            let destination = inside.destination(&offer);
            let (target, request) = open.plain();
            let rights = GrantRights::Client(open.caller.clone(), target.clone());
            let caller = open.caller.clone();
            ask(&behind, &caller, Operation::Open(target, Box::new(request)), &reply, move |answer| {
                duty.send(with_file(answer, |file| {
                    let grant =
                        inside.grant(&open.target.path, &open.caller, &offer, (destination, rights))?;
                    Ok(Arc::new(GrantedFile::new(file, grant)))
                }));
            });
        });
        Started::Pending
    }

    /// Opens the file for a destination, as the client opened it that granted it.
    fn collect(
        &self,
        third: &Arc<ThirdPartyCopies>,
        open: CopyOpen,
        (key, origin): (&str, &str),
        reply: &ReplyTo,
    ) -> Started {
        match third.request_grant(&open.target.path, &open.caller, (key, origin), reply) {
            Err(started) => started,
            Ok(GrantRights::Client(client, target)) => {
                let caller = Arc::new(client.through(&open.caller));
                self.behind.start(&caller, Operation::Open(target, Box::new(open.request)), reply)
            }
            // Only files of this server are granted with other rights.
            Ok(GrantRights::Server | GrantRights::Account(_)) => {
                done(Err(refused(&open.target.path, ErrorKind::NotAuthorized, "tpc not granted")))
            }
        }
    }

    /// Opens the destination of a copy.
    fn pull(
        &self,
        third: &Arc<ThirdPartyCopies>,
        open: CopyOpen,
        pull: PullRequest,
        reply: &ReplyTo,
    ) -> Result<Started, Error> {
        third.check_client(&open.target.path, &open.caller)?;
        let access = third.settings.source_access(&open.target.path, &pull, &open.caller);
        let access = access.map_err(|error| third.denied(error))?;
        let asks_persist = open.request.posc || open.target.cgi.text("ofs.posc") == Some("1");
        let copy = RunningCopy::new(third, pull, access, &open.caller, asks_persist);
        let (target, request) = open.plain();
        // If this server, or the one behind, ends meanwhile, the latter removes the file.
        let request = OpenRequest { read: true, write: true, posc: true, is_copy: true, ..request };
        let (behind, at, duty, owner) = (self.behind.clone(), target.clone(), reply.defer(), reply.clone());
        // A client that leaves during the open does not end it: only who gets the file can remove it.
        let who = Arc::new(open.caller.detached());
        let caller = who.clone();
        ask(&self.behind, &caller, Operation::Open(target, Box::new(request)), reply, move |answer| {
            duty.send(with_file(answer, |file| {
                let file = FileBehind::new(file, (behind, who, at), &owner);
                Ok(Arc::new(CopiedFile::new(file, copy)))
            }));
        });
        Ok(Started::Pending)
    }
}

impl FileSystem for CopyingFiles {
    fn start(&self, caller: &Arc<Caller>, operation: Operation, reply: &ReplyTo) -> Started {
        match operation {
            Operation::Open(target, request) if target.cgi.has_prefix("tpc.") => {
                // Another server reads it too, so a file on the machine of the client is of no use.
                let caller = match caller.local_files {
                    Some(_) => Arc::new(caller.without_local_files()),
                    None => caller.clone(),
                };
                self.open(CopyOpen { target, request: *request, caller }, reply)
            }
            other => self.behind.start(caller, other, reply),
        }
    }

    fn read_redirect(&self, caller: &Caller, file: &dyn OpenFile) -> Option<RedirectAnswer> {
        self.behind.read_redirect(caller, file)
    }
}

/// Starts an operation, and passes its answer to `then`, which must not block. A client that has to wait
/// for long is notified.
pub(super) fn ask(
    files: &Arc<dyn FileSystem>,
    caller: &Arc<Caller>,
    operation: Operation,
    reply: &ReplyTo,
    then: impl FnOnce(Answer) + Send + 'static,
) {
    let detour = reply.intercept(then);
    match files.start(caller, operation, &detour) {
        Started::Done(answer) => detour.defer().send(answer),
        Started::Later { seconds, .. } => reply.notify_later(seconds),
        Started::Pending => {}
    }
}

/// Puts the file that `change` returns in the place of an opened one.
fn with_file(
    answer: Answer,
    change: impl FnOnce(Arc<dyn OpenFile>) -> Result<Arc<dyn OpenFile>, Answer>,
) -> Answer {
    match answer {
        Answer::Value(Value::Opened(Opened { file, stat })) => match change(file) {
            Ok(file) => Answer::Value(Value::Opened(Opened { file, stat })),
            Err(answer) => answer,
        },
        other => other,
    }
}

/// Returns opaque text without the elements of third-party copies, which are for this server.
fn without_copy(cgi: &Cgi) -> Cgi {
    let elements = cgi.as_bytes().split(|&byte| byte == b'&');
    let kept = elements.filter(|element| !element.is_empty() && !element.starts_with(b"tpc."));
    Cgi::new(&kept.collect::<Vec<_>>().join(&b'&'))
}
