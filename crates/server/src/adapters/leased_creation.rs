//! Creation of files only within the lease of a manager, if the manager has granted one.
//!
//! A client that arrives after the end of the lease is redirected back, because the manager may
//! have sent another client to another server meanwhile (decision 001).

use crate::cluster::{Creation, CreationPermit, SharedLeases};
use cluster::CreationOutcome;
use cluster::tree::Address;
use std::sync::{Arc, Mutex, PoisonError};
use vfs::{
    Answer, Caller, FileSystem, Mailbox, Operation, RedirectAnswer, ReplyTo, ReplyToken, Started, Target,
};

/// A file system whose new files need leases.
pub(crate) struct LeasedCreation {
    behind: Arc<dyn FileSystem>,
    leases: Arc<SharedLeases>,
}

impl LeasedCreation {
    pub(crate) fn before(behind: Arc<dyn FileSystem>, leases: Arc<SharedLeases>) -> Arc<dyn FileSystem> {
        Arc::new(Self { behind, leases })
    }
}

/// Returns the name that an operation may create.
fn created(operation: &Operation) -> Option<&Target> {
    match operation {
        Operation::Open(target, request) if request.new || request.delete => Some(target),
        Operation::MakeDirectory { target, .. } => Some(target),
        _ => None,
    }
}

/// Returns the outcome for an answer.
fn outcome(answer: &Answer) -> CreationOutcome {
    match answer {
        Answer::Error(_) => CreationOutcome::Failed,
        Answer::Redirect(_) | Answer::Wait { .. } => CreationOutcome::Retried,
        Answer::Value(_) => CreationOutcome::Created,
    }
}

impl FileSystem for LeasedCreation {
    fn start(&self, caller: &Arc<Caller>, operation: Operation, reply: &ReplyTo) -> Started {
        let permit = created(&operation).map(|target| self.leases.begin(&target.path));
        let creation = match permit {
            None | Some(CreationPermit::Free) => return self.behind.start(caller, operation, reply),
            Some(CreationPermit::Later) => return Started::Done(later()),
            Some(CreationPermit::Refused(door)) => return Started::Done(too_late(door)),
            Some(CreationPermit::Leased(creation)) => creation,
        };
        let passage = Arc::new(CreationReply { creation: Mutex::new(Some(creation)), to: reply.clone() });
        let started = self.behind.start(caller, operation, &reply.through(passage.clone()));
        if let Started::Done(answer) = &started {
            passage.end(answer);
        }
        started
    }
}

fn too_late(door: Option<Address>) -> Answer {
    match door {
        Some(door) => {
            let host = door.written_host().into_owned();
            Answer::Redirect(RedirectAnswer { host, port: door.port().into(), cgi: String::new() })
        }
        // The server has just started, and no parent has reported the node where clients begin.
        None => later(),
    }
}

fn later() -> Answer {
    let seconds = u32::try_from(cluster::OVERTAKEN.as_secs()).unwrap_or(u32::MAX);
    Answer::Wait { seconds, text: String::new() }
}

/// The receiver of the answer to a creation, which ends the lease and passes the answer on to the
/// client.
struct CreationReply {
    creation: Mutex<Option<Creation>>,
    to: ReplyTo,
}

impl CreationReply {
    fn end(&self, answer: &Answer) {
        let creation = self.creation.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(creation) = creation {
            creation.end(outcome(answer));
        }
    }
}

impl Mailbox for CreationReply {
    fn deliver(&self, _: ReplyToken, answer: Answer) {
        self.end(&answer);
        self.to.defer().send(answer);
    }
}
