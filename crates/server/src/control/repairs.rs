//! Orders of the administrator that concern files: unfinished files and checkpoints.
//!
//! They wait for disks, so each runs in the pool of its file system and not where signals are handled.

use crate::admin::{Call, FileList, FileState, Request, Response};
use base::{LogicalPath, Owner};
use logical::{BlockedFile, CheckpointBlock, CheckpointOrder, Cleared, Logical, Unfinished, UnfinishedState};
use std::sync::{Arc, LazyLock};

/// Bytes of names in one answer, and files that it names.
const ANSWER_BYTES_MAX: usize = 128 * 1024;
const ANSWER_FILES_MAX: usize = 1000;

/// Told to an administrator of a server without files.
const NO_FILES: &str = "this server has no files of its own";

/// Reports whether a request is to be answered by [`answer`].
pub(super) fn is_repair(request: &Request) -> bool {
    matches!(
        request,
        Request::Unfinished { .. }
            | Request::ClearUnfinished { .. }
            | Request::Checkpoints {}
            | Request::ResolveCheckpoint { .. }
    )
}

/// Answers from the pool of the file system that the request concerns.
pub(super) fn answer(logical: Option<&Arc<Logical>>, call: Call) {
    let Call { request, answer } = call;
    let started = order(request).and_then(|order| Ok((order, logical.cloned().ok_or(NO_FILES)?)));
    // Who asked may have gone.
    match started {
        Ok((order, logical)) => {
            let pool = logical.backend().pool(order.path()).clone();
            pool.run_surely(Owner::SERVER, Box::new(move || drop(answer.send(run(&logical, &order)))));
        }
        Err(error) => drop(answer.send(Response::failed(error))),
    }
}

/// An order about files.
enum FileOrder {
    ListUnfinished(Option<LogicalPath>),
    ClearUnfinished { path: LogicalPath, force: bool },
    ListCheckpoints,
    ResolveCheckpoint { path: LogicalPath, order: CheckpointOrder },
}

impl FileOrder {
    fn path(&self) -> &LogicalPath {
        static ROOT: LazyLock<LogicalPath> = LazyLock::new(LogicalPath::root);
        match self {
            Self::ListUnfinished(below) => below.as_ref().unwrap_or(&ROOT),
            Self::ClearUnfinished { path, .. } | Self::ResolveCheckpoint { path, .. } => path,
            Self::ListCheckpoints => &ROOT,
        }
    }
}

fn order(request: Request) -> Result<FileOrder, String> {
    match request {
        Request::Unfinished { below } => {
            Ok(FileOrder::ListUnfinished(below.as_deref().map(parse).transpose()?))
        }
        Request::ClearUnfinished { path, force } => {
            parse(&path).map(|path| FileOrder::ClearUnfinished { path, force })
        }
        Request::Checkpoints {} => Ok(FileOrder::ListCheckpoints),
        Request::ResolveCheckpoint { path, undo, force } => {
            let order = if undo { CheckpointOrder::Apply { force } } else { CheckpointOrder::Discard };
            parse(&path).map(|path| FileOrder::ResolveCheckpoint { path, order })
        }
        _ => Err("not an order about files".to_owned()),
    }
}

fn run(logical: &Logical, order: &FileOrder) -> Response {
    match order {
        FileOrder::ListUnfinished(below) => {
            let (all, complete) = logical.unfinished(below.as_ref());
            Response::Files(list(all.into_iter().map(unfinished), complete))
        }
        FileOrder::ListCheckpoints => {
            Response::Files(list(logical.blocked_files().into_iter().map(blocked), true))
        }
        FileOrder::ResolveCheckpoint { path, order } => match logical.resolve_checkpoint(path, *order) {
            Ok(Some(effect)) => resolved(path, &format!("as it was before the checkpoint; {effect}")),
            Ok(None) => resolved(path, "as it is; the checkpoint is kept aside"),
            Err(error) => Response::failed(error.text),
        },
        FileOrder::ClearUnfinished { path, force } => match logical.clear_unfinished(path, *force) {
            Ok(Cleared::Whole) => resolved(path, "whole"),
            Ok(Cleared::Record) => resolved(path, "no file is there; its record was ended"),
            Err(error) => Response::failed(error.text),
        },
    }
}

fn resolved(path: &LogicalPath, state: &str) -> Response {
    Response::Resolved { path: path.escaped(), state: state.to_owned() }
}

fn parse(text: &str) -> Result<LogicalPath, String> {
    LogicalPath::from_escaped(text).map_err(|why| format!("{text} is not a path as clients name it: {why}"))
}

fn unfinished(one: Unfinished) -> FileState {
    let state = match one.state {
        UnfinishedState::Open { handles } => format!("open ({handles})"),
        UnfinishedState::Held { seconds } => format!("removed in {seconds} s"),
        UnfinishedState::Absent { directory } => {
            format!("not there: {} is another directory", directory.escaped())
        }
        UnfinishedState::Unknown => "marked, no record".to_owned(),
    };
    FileState { path: one.path.escaped(), state }
}

fn blocked(one: BlockedFile) -> FileState {
    let state = match one.block {
        CheckpointBlock::Failed => format!("undoing {} failed", one.journal),
        CheckpointBlock::Unresolved => format!("{} may be of another file", one.journal),
    };
    FileState { path: one.path.escaped(), state }
}

/// As many as an answer holds.
fn list(all: impl Iterator<Item = FileState>, mut complete: bool) -> FileList {
    let (mut files, mut bytes) = (Vec::new(), 0);
    for one in all {
        bytes += one.path.len() + one.state.len();
        if bytes > ANSWER_BYTES_MAX || files.len() == ANSWER_FILES_MAX {
            complete = false;
            break;
        }
        files.push(one);
    }
    FileList { files, complete }
}
