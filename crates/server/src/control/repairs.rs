//! Requests of the administrator that concern files: unfinished files and checkpoints.
//!
//! Each runs in the pool of its file system and not on the thread that handles signals, because it
//! waits for disks.

use crate::admin::{AdminCall, AdminRequest, AdminResponse, FileList, FileState, UnreadablePath};
use base::{Error, LogicalPath, Owner};
use logical::{
    BlockedFile, CheckpointBlock, CheckpointOrder, ClearOutcome, ListReply, Logical, UnfinishedFile,
    UnfinishedList, UnfinishedState, WalkLimits,
};
use serde::Serialize;
use std::sync::{Arc, LazyLock};
use tokio::sync::oneshot;

/// Limits of one answer: bytes of its files and of unreadable paths, both as JSON, and number of
/// files. The client reads at most 256 KiB.
const ANSWER_BYTES_MAX: usize = 128 * 1024;
const UNREADABLE_BYTES_MAX: usize = 32 * 1024;
const ANSWER_FILES_MAX: usize = 1000;

/// The error of a server without files.
const NO_FILES: &str = "this server has no files of its own";

/// Reports whether a request is to be answered by [`answer`].
pub(super) fn is_repair(request: &AdminRequest) -> bool {
    matches!(
        request,
        AdminRequest::Unfinished { .. }
            | AdminRequest::ClearUnfinished { .. }
            | AdminRequest::Checkpoints {}
            | AdminRequest::ResolveCheckpoint { .. }
    )
}

/// Answers a request from the pool of its file system.
pub(super) fn answer(logical: Option<&Arc<Logical>>, call: AdminCall) {
    let AdminCall { request, answer } = call;
    let started = order(request).and_then(|order| Ok((order, logical.cloned().ok_or(NO_FILES)?)));
    // The client may have disconnected.
    match started {
        Ok((FileOrder::ListUnfinishedBelow(path), logical)) => {
            logical.list_unfinished(&path, WalkLimits::default(), RepairClient(answer));
        }
        Ok((order, logical)) => {
            let pool = logical.backend().pool(order.path()).clone();
            pool.run_surely(Owner::SERVER, Box::new(move || drop(answer.send(run(&logical, &order)))));
        }
        Err(error) => drop(answer.send(AdminResponse::failed(error))),
    }
}

/// A client that waits for a list of unfinished files.
struct RepairClient(oneshot::Sender<AdminResponse>);

impl ListReply for RepairClient {
    fn is_awaited(&self) -> bool {
        !self.0.is_closed()
    }

    fn send(self, list: Result<UnfinishedList, Error>) {
        let response = list
            .map_or_else(|error| AdminResponse::failed(error.text), |list| AdminResponse::Files(found(list)));
        drop(self.0.send(response));
    }
}

/// A request about files.
enum FileOrder {
    ListUnfinished,
    ListUnfinishedBelow(LogicalPath),
    ClearUnfinished { path: LogicalPath, force: bool },
    ListCheckpoints,
    ResolveCheckpoint { path: LogicalPath, order: CheckpointOrder },
}

impl FileOrder {
    fn path(&self) -> &LogicalPath {
        static ROOT: LazyLock<LogicalPath> = LazyLock::new(LogicalPath::root);
        match self {
            Self::ListUnfinishedBelow(path)
            | Self::ClearUnfinished { path, .. }
            | Self::ResolveCheckpoint { path, .. } => path,
            Self::ListUnfinished | Self::ListCheckpoints => &ROOT,
        }
    }
}

fn order(request: AdminRequest) -> Result<FileOrder, String> {
    match request {
        AdminRequest::Unfinished { below: None } => Ok(FileOrder::ListUnfinished),
        AdminRequest::Unfinished { below: Some(below) } => parse(&below).map(FileOrder::ListUnfinishedBelow),
        AdminRequest::ClearUnfinished { path, force } => {
            parse(&path).map(|path| FileOrder::ClearUnfinished { path, force })
        }
        AdminRequest::Checkpoints {} => Ok(FileOrder::ListCheckpoints),
        AdminRequest::ResolveCheckpoint { path, undo, force } => {
            let order = if undo { CheckpointOrder::Apply { force } } else { CheckpointOrder::Discard };
            parse(&path).map(|path| FileOrder::ResolveCheckpoint { path, order })
        }
        _ => Err("not an order about files".to_owned()),
    }
}

fn run(logical: &Logical, order: &FileOrder) -> AdminResponse {
    match order {
        FileOrder::ListUnfinished => {
            AdminResponse::Files(list(logical.unfinished().into_iter().map(unfinished)))
        }
        // It takes long, so it runs in steps elsewhere.
        FileOrder::ListUnfinishedBelow(_) => AdminResponse::failed("an order that is done in steps"),
        FileOrder::ListCheckpoints => {
            AdminResponse::Files(list(logical.blocked_files().into_iter().map(blocked)))
        }
        FileOrder::ResolveCheckpoint { path, order } => match logical.resolve_checkpoint(path, *order) {
            Ok(Some(effect)) => resolved(path, &format!("as it was before the checkpoint; {effect}")),
            Ok(None) => resolved(path, "as it is; the checkpoint is kept aside"),
            Err(error) => AdminResponse::failed(error.text),
        },
        FileOrder::ClearUnfinished { path, force } => match logical.clear_unfinished(path, *force) {
            Ok(ClearOutcome::Whole) => resolved(path, "whole"),
            Ok(ClearOutcome::Record) => resolved(path, "no file is there; its record was ended"),
            Err(error) => AdminResponse::failed(error.text),
        },
    }
}

fn resolved(path: &LogicalPath, state: &str) -> AdminResponse {
    AdminResponse::Resolved { path: path.escaped(), state: state.to_owned() }
}

pub(super) fn parse(text: &str) -> Result<LogicalPath, String> {
    LogicalPath::from_escaped(text).map_err(|why| format!("{text} is not a path as clients name it: {why}"))
}

fn unfinished(one: UnfinishedFile) -> FileState {
    let state = match one.state {
        UnfinishedState::Open { handles } => format!("open ({handles})"),
        UnfinishedState::Held { seconds } => format!("removed in {seconds} s"),
        UnfinishedState::Absent { directory } => {
            format!("not there: {} is another directory", directory.escaped())
        }
        UnfinishedState::Unknown => "marked, no record".to_owned(),
    };
    FileState { path: one.path.escaped(), state, ..FileState::default() }
}

fn blocked(one: BlockedFile) -> FileState {
    let state = match one.block {
        CheckpointBlock::Failed => format!("undoing {} failed", one.journal),
        CheckpointBlock::Unresolved => format!("{} may be of another file", one.journal),
    };
    FileState { path: one.path.escaped(), state, ..FileState::default() }
}

/// Returns the result of a walk, truncated to the limits of an answer.
fn found(walked: UnfinishedList) -> FileList {
    let mut answer = list(walked.files.into_iter().map(unfinished));
    if let Some(limit) = walked.limit {
        answer.complete = false;
        answer.stopped = Some(limit.to_string());
    }
    answer.more_unreadable = walked.more_unreadable;
    let mut bytes = 0;
    for one in walked.unreadable {
        let one = UnreadablePath { path: one.path.escaped(), reason: one.reason };
        bytes += json_bytes(&one);
        if bytes > UNREADABLE_BYTES_MAX {
            answer.more_unreadable += 1;
        } else {
            answer.unreadable.push(one);
        }
    }
    answer.complete &= answer.unreadable.is_empty() && answer.more_unreadable == 0;
    answer
}

/// Returns the bytes of an entry and its comma in an answer, in which a name may take twice its own
/// length.
fn json_bytes(entry: &impl Serialize) -> usize {
    serde_json::to_vec(entry).map_or(0, |json| json.len() + 1)
}

/// Collects files up to the limits of an answer.
pub(super) fn list(all: impl Iterator<Item = FileState>) -> FileList {
    let mut answer = FileList { complete: true, ..FileList::default() };
    let mut bytes = 0;
    for one in all {
        bytes += json_bytes(&one);
        if bytes > ANSWER_BYTES_MAX || answer.files.len() == ANSWER_FILES_MAX {
            answer.complete = false;
            answer.stopped = Some(format!("an answer holds {} files", answer.files.len()));
            break;
        }
        answer.files.push(one);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_bounded_by_its_bytes_as_json() {
        let path = "\\".repeat(500);
        let state = FileState { path, state: "open (1)".to_owned(), ..FileState::default() };
        let answer = list(std::iter::repeat_n(state, ANSWER_FILES_MAX));
        assert!(!answer.complete && !answer.files.is_empty());
        let json = serde_json::to_string(&answer).unwrap_or_default();
        assert!(json.len() <= ANSWER_BYTES_MAX + 1024, "{} bytes", json.len());
    }
}
