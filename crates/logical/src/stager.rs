//! The port to mass storage: brings files online that are not on disk.

use base::{Error, ErrorKind, LogicalPath};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use storage::Metadata;
use vfs::TapeState;

/// A function that is called once with the result of a request. It never blocks.
pub type StagerReply<T> = Box<dyn FnOnce(Result<T, Error>) + Send>;

/// A file to be brought online.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StageRequest {
    /// The path.
    pub path: LogicalPath,
    /// The priority, 0 to 3.
    pub priority: u8,
    /// The client, `user.pid:fd@host`.
    pub client: Arc<str>,
    /// The owner, with whom others share the queue: `user NAME` for an authenticated client, otherwise
    /// `host NAME`, because a client without authentication chooses its name.
    pub owner: Arc<str>,
}

/// A file of a request whose state is kept after its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordedFile {
    /// The transfer.
    pub request: StageRequest,
    /// Seconds for which the file stays on disk.
    pub lifetime: u64,
    /// The need of a transfer.
    pub need: RecordedNeed,
}

/// The need of a transfer of a [`RecordedFile`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RecordedNeed {
    /// It is not known to be on disk.
    Transfer,
    /// It is on disk.
    OnDisk,
    /// It is refused, for this reason.
    Refused(String),
}

/// A change of a request whose state is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RecordChange {
    /// Cancels files, all of which must be of the request.
    Cancel(Vec<LogicalPath>),
    /// Cancels and removes the request.
    Forget,
    /// Ends the time for which the request keeps files on disk. The request may be unknown.
    Release(Vec<LogicalPath>),
}

/// Messages about the files of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StageNotice {
    /// They go to this address, by UDP.
    pub address: SocketAddr,
    /// Files that fail are reported too.
    pub on_failure: bool,
}

/// Reports whether the client of a request has left.
pub type HasLeft = Box<dyn Fn() -> bool + Send>;

/// Brings files online. The errors contain the reason only, and not the operation and the path.
///
/// Calls do not block, except for those about names in mass storage, from [`Stager::remote_status`] on.
pub trait Stager: Send + Sync {
    /// Brings a file online. `reply` is called when it can be opened, or has failed for good. A file for
    /// which nobody waits any more need not come.
    fn fetch(&self, request: StageRequest, has_left: HasLeft, reply: StagerReply<()>);
    /// Records requests under an id, with the messages that they want. `reply` is called when they are durable.
    fn submit(
        &self,
        id: &str,
        requests: Vec<StageRequest>,
        notice: Option<StageNotice>,
        reply: StagerReply<()>,
    );
    /// Cancels the requests of an id. Those that have completed, or never existed, are ignored.
    fn cancel(&self, id: &str, reply: StagerReply<()>);
    /// Describes the requests of an id that have not completed, or have failed lately; `None` if there
    /// are none.
    fn query(&self, id: &str, reply: StagerReply<Option<String>>);
    /// Records a request whose state is kept after its end. `reply` is called when it is durable.
    fn record(&self, id: &str, files: Vec<RecordedFile>, reply: StagerReply<()>) {
        let _ = (id, files);
        reply(Err(without_records()));
    }
    /// Changes such a request. `reply` is called when the change is durable.
    fn change_record(&self, id: &str, change: RecordChange, reply: StagerReply<()>) {
        let _ = (id, change);
        reply(Err(without_records()));
    }
    /// Returns the state of such a request, with a page of the files after a path; `None` if it does not
    /// exist. Blocks, but delays no transfer.
    fn recorded_state(&self, id: &str, after: Option<&LogicalPath>) -> Result<Option<TapeState>, Error> {
        let _ = (id, after);
        Err(without_records())
    }
    /// Reports whether [`Stager::fetch`] also makes the missing files that clients create.
    fn stages_new_files(&self) -> bool {
        false
    }
    /// Reports whether [`Stager::remote_status`] can return a status.
    fn has_catalog(&self) -> bool;
    /// Returns the status of a file in mass storage, with the owner of the caller; `None` if the
    /// file does not exist there. May block for long.
    fn remote_status(&self, path: &LogicalPath) -> Result<Option<Metadata>, Error>;
    /// Creates an empty file in mass storage, which must not have replaced one. May block for long.
    fn create_remote(&self, path: &LogicalPath, mode: u32) -> Result<(), Error> {
        let _ = (path, mode);
        Ok(())
    }
    /// Removes a file from mass storage. A missing one counts as removed. May block for long.
    fn remove_remote(&self, path: &LogicalPath) -> Result<(), Error> {
        let _ = path;
        Ok(())
    }
    /// Renames a file or directory in mass storage, and returns `false` if it does not exist. May block for long.
    fn rename_remote(&self, from: &LogicalPath, to: &LogicalPath) -> Result<bool, Error> {
        let _ = (from, to);
        Ok(false)
    }
    /// Returns the names in a directory of mass storage; `None` if it does not exist. May block for long.
    fn remote_names(&self, path: &LogicalPath) -> Result<Option<BTreeSet<Vec<u8>>>, Error> {
        let _ = path;
        Ok(None)
    }
}

fn without_records() -> Error {
    Error::new(ErrorKind::Unsupported, "this server keeps no requests")
}
