//! [`SessionMonitor`]: records of detailed monitoring about one session.
//!
//! Sessions without monitoring do not have one. Files are named by the addresses of their objects, which
//! tasks of writes and closes have too.

use super::context::SessionContext;
use crate::driver::SessionHub;
use monitor::{AuthenticatedUser, MonitoredUser, SessionStreams};
use session::{
    CallId, Destination, MonitorCommand, PayloadAnnouncement, ReadTask, ReadVectorTask, page_layout,
};
use std::collections::HashMap;
use std::sync::Arc;
use vfs::{Answer, Caller, FileOperation, OpenFile, OpenRequest, Operation, RedirectAnswer, Value};
use wire::monitoring::RedirectOperation;

/// The protocol of clients of which only the host is known.
const UNAUTHENTICATED: &str = "host";

/// Records of one session.
pub(super) struct SessionMonitor {
    streams: SessionStreams,
    /// Requests that may be redirected, as long as they have no answer.
    requests: HashMap<u32, (RedirectOperation, String)>,
}

impl SessionMonitor {
    /// Begins with the records about a client that has logged in. Returns `None` if the server has no
    /// detailed monitoring.
    pub(super) fn begin(hub: &SessionHub, caller: &Caller) -> Option<Box<Self>> {
        let streams = hub.streams.as_ref()?;
        let streams = SessionStreams::new(streams, &user(caller));
        Some(Box::new(Self { streams, requests: HashMap::new() }))
    }

    /// Keeps what a record of a redirect needs. `answered` follows.
    pub(super) fn note_request(&mut self, call: CallId, operation: &Operation) {
        if self.streams.wants_redirects()
            && let Some(subject) = redirect_subject(operation)
        {
            self.requests.insert(call.0, subject);
        }
    }

    /// Takes the answer to a request.
    pub(super) fn answered(&mut self, call: CallId, answer: &Answer) {
        let request = self.requests.remove(&call.0);
        match (answer, request) {
            (Answer::Redirect(to), Some((operation, path))) => {
                self.streams.redirected(operation, target(to), &path);
            }
            (Answer::Value(Value::Opened(opened)), _) if self.streams.wants_files() => {
                let file = &opened.file;
                let size = opened.stat.as_ref().map(|stat| stat.size).or_else(|| file.size_now());
                let path = file.path().text();
                self.streams.opened(key(file), &path, size.unwrap_or(0), file.is_writable());
            }
            _ => {}
        }
    }

    /// Takes an operation on a file before it starts.
    pub(super) fn note_operation(&mut self, file: &Arc<dyn OpenFile>, operation: &FileOperation) {
        match operation {
            FileOperation::Close { .. } => self.streams.closed(key(file), false),
            FileOperation::Abandon => self.streams.closed(key(file), true),
            _ => {}
        }
    }

    /// Takes a read before it starts.
    pub(super) fn note_read(&self, file: &Arc<dyn OpenFile>, task: &ReadTask) {
        self.streams.read(key(file), task.offset, task.length);
    }

    /// Takes a vector read before it starts.
    pub(super) fn note_vector_read(&mut self, context: &SessionContext, task: &ReadVectorTask) {
        let element = |element: &session::ReadElement| {
            let file = context.session.file(element.file)?;
            Some((key(file), element.extent.offset, element.extent.length))
        };
        let elements: Vec<_> = task.elements.iter().filter_map(element).collect();
        self.streams.read_vector(&elements);
    }

    /// Takes a write whose data is announced.
    pub(super) fn note_write(&self, receive: &PayloadAnnouncement) {
        match &receive.into {
            Destination::File { file, offset } => self.streams.write(key(file), *offset, receive.length),
            Destination::Pages { file, offset } => {
                let data = page_layout(*offset, receive.length).map_or(0, |(_, data)| data);
                self.streams.write(key(file), *offset, data);
            }
            Destination::Vector(extents) => {
                for one in extents {
                    self.streams.write(key(&one.file), one.extent.offset, one.extent.length);
                }
            }
            Destination::Discard => {}
        }
    }

    /// Executes a command of the client. Returns its answer.
    pub(super) fn execute(&mut self, command: &MonitorCommand) -> Answer {
        match command {
            MonitorCommand::Application(name) => self.streams.application(name),
            MonitorCommand::Switch { is_on, application } => {
                // The name of the application is in the trace also if it ends there.
                if *is_on {
                    self.streams.set_traced(true);
                }
                if !application.is_empty() {
                    self.streams.application(application);
                }
                self.streams.set_traced(*is_on);
            }
            MonitorCommand::Info(text) => {
                let id = self.streams.info(text).to_be_bytes();
                return Answer::Value(Value::Text(id.to_vec()));
            }
        }
        Answer::DONE
    }
}

/// The answer to a command of a session without monitoring.
pub(super) fn answer_without_monitor(command: &MonitorCommand) -> Answer {
    match command {
        MonitorCommand::Info(_) => Answer::Value(Value::Text(vec![0; 4])),
        MonitorCommand::Application(_) | MonitorCommand::Switch { .. } => Answer::DONE,
    }
}

/// Returns the name of an open file in its session.
fn key(file: &Arc<dyn OpenFile>) -> usize {
    Arc::as_ptr(file).cast::<()>().addr()
}

/// Returns host and port of a redirect. The host of a whole URL is the URL without its scheme.
fn target(to: &RedirectAnswer) -> (&str, u16) {
    let host = to.host.split_once("://").map_or(&*to.host, |(_, host)| host);
    (host, u16::try_from(to.port).unwrap_or(0))
}

fn or_empty(text: Option<&str>) -> &str {
    text.unwrap_or_default()
}

/// Returns the texts about a client.
fn user(caller: &Caller) -> MonitoredUser<'_> {
    let identity = &caller.identity;
    let entity = caller.entity().filter(|entity| &*entity.protocol != UNAUTHENTICATED);
    let authenticated = entity.map(|entity| AuthenticatedUser {
        protocol: &entity.protocol,
        name: or_empty(entity.name.as_deref()),
        host: &entity.host,
        organizations: or_empty(entity.vorg.as_deref()),
        roles: or_empty(entity.role.as_deref()),
        groups: or_empty(entity.groups.as_deref()),
        info: or_empty(entity.monitor_info.as_deref()),
        token_subject: entity.verified_bearer().map(|(_, subject)| subject),
    });
    MonitoredUser {
        name: identity.user(),
        process: identity.pid,
        host: identity.host(),
        address: identity.address,
        release: identity.release(),
        application: identity.application(),
        info: identity.info(),
        authenticated,
    }
}

/// Returns the code and the path of a request that can be redirected.
fn redirect_subject(operation: &Operation) -> Option<(RedirectOperation, String)> {
    let (code, target) = match operation {
        Operation::Open(target, request) => (open_code(request), target),
        Operation::Stat(target) | Operation::StatSpace(target) => (RedirectOperation::STAT, target),
        Operation::List(target, _) => (RedirectOperation::OPENDIR, target),
        Operation::MakeDirectory { target, .. } => (RedirectOperation::MKDIR, target),
        Operation::RemoveDirectory(target) => (RedirectOperation::RMDIR, target),
        Operation::Remove(target) => (RedirectOperation::RM, target),
        Operation::Rename { from, .. } => (RedirectOperation::MV, from),
        Operation::ChangeMode { target, .. } => (RedirectOperation::CHMOD, target),
        Operation::Truncate { target, .. } => (RedirectOperation::TRUNCATE, target),
        Operation::Locate(Some(target), _) => (RedirectOperation::LOCATE, target),
        Operation::Checksum(target)
        | Operation::CancelChecksum(target)
        | Operation::QueryAttributes(target)
        | Operation::QuerySpace(target)
        | Operation::Attributes(target, _) => (RedirectOperation::QUERY, target),
        Operation::Prepare(..) | Operation::CancelPrepare { .. } | Operation::QueryPrepare { .. } => {
            return Some((RedirectOperation::PREPARE, String::new()));
        }
        _ => return None,
    };
    Some((code, target.path.text().into_owned()))
}

fn open_code(request: &OpenRequest) -> RedirectOperation {
    if request.new || request.delete {
        RedirectOperation::CREATE
    } else if request.write || request.append {
        RedirectOperation::OPEN_WRITE
    } else {
        RedirectOperation::OPEN_READ
    }
}
