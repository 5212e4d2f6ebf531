//! Creation of files only within the lease of a manager, if the manager has granted one.
//!
//! A client that arrives after the end of the lease is redirected back, because the manager may
//! have sent another client to another server meanwhile (decision 001).

use crate::cluster::{CreationPermit, SharedLeases};
use cluster::CreationOutcome;
use cluster::tree::Address;
use std::sync::Arc;
use vfs::{Answer, Caller, FileSystem, Operation, RedirectAnswer, ReplyTo, Started, Target};

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
        let client = reply.clone();
        let detour = reply.intercept(move |answer| {
            creation.end(outcome(&answer));
            client.defer().send(answer);
        });
        match self.behind.start(caller, operation, &detour) {
            Started::Done(answer) => {
                detour.defer().send(answer);
                Started::Pending
            }
            started => started,
        }
    }
}

fn too_late(door: Option<Address>) -> Answer {
    match door {
        Some(door) => {
            let host = door.written_host().into();
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
