//! Requests of the WLCG Tape REST API: staging of many files under one id, and where files are.

use base::{Cgi, Error, LogicalPath};
use std::fmt;
use std::sync::Arc;

/// A request. The paths are checked one by one when they are used, because there may be many.
#[derive(Clone)]
pub struct TapeRequest {
    /// The CGI of the request, which can contain a token.
    pub cgi: Cgi,
    /// The work.
    pub work: TapeWork,
    /// The mark of the client that the authorization knows by the token of the request.
    pub owner: Option<String>,
    check: Option<Arc<TapeCheck>>,
}

type TapeCheck = dyn Fn(&LogicalPath) -> Result<(), Error> + Send + Sync;

/// The work of a [`TapeRequest`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TapeWork {
    /// Stages files: [`crate::Value::Text`] with the id of the request.
    Stage(Vec<TapeFile>),
    /// Returns the state of a request: [`crate::Value::TapeState`].
    State {
        /// Id of the request.
        id: String,
        /// The files after this path, in the order of paths; `None` for the first ones.
        after: Option<LogicalPath>,
    },
    /// Cancels files of a request. Each of them must be one of its files.
    Cancel {
        /// Id of the request.
        id: String,
        /// The files.
        paths: Vec<LogicalPath>,
    },
    /// Cancels and removes a request.
    Forget {
        /// Id of the request.
        id: String,
    },
    /// Ends the time for which a request keeps files on disk.
    Release {
        /// Id of the request. It may be unknown.
        id: String,
        /// The files.
        paths: Vec<LogicalPath>,
    },
    /// Returns where files are: [`crate::Value::Localities`], in the order of the request.
    Locate(Vec<LogicalPath>),
}

/// A file to be staged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TapeFile {
    /// The path.
    pub path: LogicalPath,
    /// Seconds for which the file stays on disk; 0 without a wish.
    pub lifetime: u64,
}

impl TapeRequest {
    /// Creates a request without a check of its paths.
    pub fn new(cgi: Cgi, work: TapeWork) -> Self {
        Self { cgi, work, owner: None, check: None }
    }

    /// Returns the request after its authorization, with the check of each path.
    #[must_use]
    pub fn with_check(
        self,
        check: impl Fn(&LogicalPath) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Self {
        Self { check: Some(Arc::new(check)), ..self }
    }

    /// Reports whether the authorization has decided about the request.
    pub fn is_decided(&self) -> bool {
        self.check.is_some()
    }

    /// Checks a path.
    ///
    /// # Errors
    /// The refusal of the authorization.
    pub fn check(&self, path: &LogicalPath) -> Result<(), Error> {
        self.check.as_ref().map_or(Ok(()), |check| check(path))
    }
}

impl fmt::Debug for TapeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The CGI can contain a token.
        f.debug_struct("TapeRequest").field("work", &self.work).finish_non_exhaustive()
    }
}

/// The state of a request, with one page of its files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TapeState {
    /// The time of the request, in seconds since the epoch.
    pub created: u64,
    /// The time at which the first of its files began; that of the request before.
    pub started: u64,
    /// The time at which its last file ended.
    pub completed: Option<u64>,
    /// Files, in the order of their paths.
    pub files: Vec<TapeFileState>,
    /// These are the last files.
    pub is_last: bool,
}

/// The state of a file of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TapeFileState {
    /// The path.
    pub path: LogicalPath,
    /// The progress.
    pub progress: TapeProgress,
    /// The begin of its first copy, in seconds since the epoch.
    pub started: Option<u64>,
    /// The end.
    pub finished: Option<u64>,
    /// The reason of a failure.
    pub error: Option<String>,
}

/// The progress of a file of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TapeProgress {
    /// It waits.
    Submitted,
    /// It is being copied, or waits for another try.
    Started,
    /// It is on disk.
    Completed,
    /// It did not come.
    Failed,
    /// Its staging was cancelled.
    Cancelled,
}

/// Where a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Locality {
    /// On disk only.
    Disk,
    /// In mass storage only.
    Tape,
    /// In both.
    DiskAndTape,
    /// Nowhere.
    None,
    /// Mass storage does not answer.
    Unavailable,
}

/// A file, and where it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocatedFile {
    /// The path.
    pub path: LogicalPath,
    /// The place, or the reason why it is not known.
    pub locality: Result<Locality, String>,
}
