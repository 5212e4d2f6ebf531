//! Operations on the name space ([`Operation`]) and on an open file ([`FileOperation`]).
//!
//! They name what all protocols have in common, so that one file system serves every front end.

use crate::{ClientConnection, ListingPosition, OpenFile, Target, TargetList};
use auth::macaroons::Activity;
use auth::{Entity, Secret};
use base::{CopyRange, Identity, LogicalPath, ReadPiece};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The client for which an operation runs.
#[derive(Debug)]
pub struct Caller {
    /// Identity of the client.
    pub identity: Identity,
    /// Accepts a deferred answer ([`crate::Started::Later`]). Old clients do not; they receive a
    /// wait instead.
    pub accepts_deferred_reply: bool,
    /// Accepts a redirect during reads of an open file ([`crate::FileSystem::read_redirect`]).
    pub accepts_read_redirect: bool,
    /// Has both IPv4 and IPv6 addresses. Otherwise it only has the address family of its
    /// connection.
    pub dual_stack: bool,
    /// Its connection, if it accepts a redirect to a file on its own machine.
    pub local_files: Option<Arc<ClientConnection>>,
    /// Its connection is encrypted, or it must sign each open with the key of its session.
    pub is_protected: bool,
    entity: Option<Entity>,
    of_request: Option<Box<RequestCaller>>,
    disconnected: AtomicBool,
}

/// What belongs to a caller for one request.
#[derive(Debug)]
struct RequestCaller {
    /// The name that the token of the request gives its bearer.
    name: Option<Box<str>>,
    /// The caller of the session; `None` if the request goes on without it.
    session: Option<Arc<Caller>>,
}

impl Caller {
    /// Creates a connected caller.
    pub fn new(identity: Identity, takes_later: bool, moves: bool) -> Self {
        Self {
            identity,
            accepts_deferred_reply: takes_later,
            accepts_read_redirect: moves,
            dual_stack: false,
            local_files: None,
            is_protected: false,
            entity: None,
            of_request: None,
            disconnected: AtomicBool::new(false),
        }
    }

    /// Returns the caller with this value for [`Caller::dual_stack`].
    #[must_use]
    pub fn with_dual_stack(self, both_nets: bool) -> Self {
        Self { dual_stack: both_nets, ..self }
    }

    /// Returns the caller with this value for [`Caller::local_files`].
    #[must_use]
    pub fn with_local_files(self, local_files: Option<Arc<ClientConnection>>) -> Self {
        Self { local_files, ..self }
    }

    /// Returns the caller with this value for [`Caller::is_protected`].
    #[must_use]
    pub fn with_protection(self, is_protected: bool) -> Self {
        Self { is_protected, ..self }
    }

    /// Returns the caller after its authentication.
    #[must_use]
    pub fn with_entity(&self, entity: Entity) -> Self {
        Self {
            identity: self.identity.authenticated_by(&entity.protocol),
            accepts_deferred_reply: self.accepts_deferred_reply,
            accepts_read_redirect: self.accepts_read_redirect,
            dual_stack: self.dual_stack,
            local_files: self.local_files.clone(),
            is_protected: self.is_protected,
            entity: Some(entity),
            of_request: None,
            disconnected: AtomicBool::new(false),
        }
    }

    /// Returns the caller for one request, whose token gives its bearer this name.
    #[must_use]
    pub fn with_request_name(self: &Arc<Self>, name: &str) -> Self {
        self.for_request(Some(name.into()), Some(self.clone()))
    }

    /// Returns the caller for a request that another client makes in the name of this one, as long as that
    /// is connected.
    #[must_use]
    pub fn through(&self, other: &Arc<Self>) -> Self {
        Self {
            accepts_deferred_reply: other.accepts_deferred_reply,
            accepts_read_redirect: other.accepts_read_redirect,
            dual_stack: other.dual_stack,
            // Who asks here and who has the rights are on different machines.
            local_files: None,
            ..self.for_request(self.request_name().map(Into::into), Some(other.clone()))
        }
    }

    /// Returns the caller for a request that needs the file itself, and no redirect to one on the machine of the client.
    #[must_use]
    pub fn without_local_files(self: &Arc<Self>) -> Self {
        Self {
            local_files: None,
            ..self.for_request(self.request_name().map(Into::into), Some(self.clone()))
        }
    }

    /// Returns the caller for requests that go on after it has disconnected.
    #[must_use]
    pub fn detached(&self) -> Self {
        self.for_request(self.request_name().map(Into::into), None)
    }

    fn for_request(&self, name: Option<Box<str>>, session: Option<Arc<Self>>) -> Self {
        Self {
            identity: self.identity.clone(),
            accepts_deferred_reply: self.accepts_deferred_reply,
            accepts_read_redirect: self.accepts_read_redirect,
            dual_stack: self.dual_stack,
            local_files: self.local_files.clone(),
            is_protected: self.is_protected,
            entity: self.entity.clone(),
            of_request: Some(Box::new(RequestCaller { name, session })),
            disconnected: AtomicBool::new(false),
        }
    }

    /// Returns the name that the token of this request gives its bearer.
    pub fn request_name(&self) -> Option<&str> {
        self.of_request.as_ref().and_then(|request| request.name.as_deref())
    }

    /// Returns the result of authentication, for authorization; `None` if the server asks for none.
    /// Then only the host of the client is known.
    pub fn entity(&self) -> Option<&Entity> {
        self.entity.as_ref()
    }

    /// Reports whether both are the same client: user, pid and host are equal, and so is the result
    /// of authentication.
    pub fn is_same_client(&self, other: &Self) -> bool {
        let name = |caller: &Self| caller.entity().and_then(|entity| entity.name.clone());
        self.identity.is_same_client(&other.identity)
            && self.identity.protocol() == other.identity.protocol()
            && name(self) == name(other)
            && self.verified_bearer() == other.verified_bearer()
    }

    fn verified_bearer(&self) -> Option<(&str, &str)> {
        self.entity()?.verified_bearer()
    }

    /// Marks the caller as disconnected, so that operations it still waits for may be cancelled.
    pub fn disconnect(&self) {
        self.disconnected.store(true, Ordering::Relaxed);
    }

    /// Reports whether both callers belong to the same session.
    pub fn is_of_session_of(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        Arc::ptr_eq(self.session(), other.session())
    }

    fn session(self: &Arc<Self>) -> &Arc<Self> {
        self.session_of_request().unwrap_or(self)
    }

    fn session_of_request(&self) -> Option<&Arc<Self>> {
        self.of_request.as_ref().and_then(|request| request.session.as_ref())
    }

    /// Reports whether the caller has disconnected.
    pub fn is_disconnected(&self) -> bool {
        self.disconnected.load(Ordering::Relaxed)
            || self.session_of_request().is_some_and(|session| session.is_disconnected())
    }
}

/// Parameters of an open. The names follow the option bits of `kXR_open`.
#[derive(Clone, Default)]
pub struct OpenRequest {
    /// Open for reading; also the default if no other access is requested.
    pub read: bool,
    /// Open for writing.
    pub write: bool,
    /// Append only.
    pub append: bool,
    /// The file must not exist.
    pub new: bool,
    /// Truncate an existing file; create a missing one.
    pub delete: bool,
    /// With `delete`: the new content takes the place of an existing file when the file is closed
    /// successfully, and that file stays as it is until then. The open then persists on close too.
    pub replace: bool,
    /// Create missing parent directories.
    pub make_path: bool,
    /// A directory above the path that must exist: missing parents are created only below it.
    pub existing_parent: Option<LogicalPath>,
    /// Count this open as a reader in the limits of concurrent use, although it may write: it
    /// creates a file without requesting update access.
    pub counts_as_reader: bool,
    /// Override the lock between readers and writers.
    pub force: bool,
    /// Persist on successful close.
    pub posc: bool,
    /// This server makes the file by a third-party copy, and no client writes it.
    pub is_copy: bool,
    /// Return the status with the answer.
    pub stat: bool,
    /// The client has also asked for writing, and the request is one for reading. A local file it would open for both.
    pub asks_write: bool,
    /// Do not wait for staging.
    pub no_wait: bool,
    /// Discard cached locations, which may be stale.
    pub refresh: bool,
    /// The file is a replica; a hint for placement.
    pub replica: bool,
    /// Sequential access follows; a hint.
    pub sequential: bool,
    /// Bypass the page cache; a hint.
    pub direct: bool,
    /// Permission bits of a new file.
    pub mode: u32,
    /// The file whose contents the new file starts with.
    pub duplicate_of: Option<Arc<dyn OpenFile>>,
    /// The file whose file system the new file is created on.
    pub same_file_system_as: Option<Arc<dyn OpenFile>>,
}

/// The details that a listing returns for each entry.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct ListDetail {
    /// The status.
    pub stat: bool,
    /// The stored checksum of the type in `cks.type`, or of the first configured type; never
    /// computed.
    pub checksum: bool,
    /// Only entries that need no staging.
    pub online: bool,
}

/// Options of `kXR_locate`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct LocateOptions {
    /// Discard cached locations, which may be stale.
    pub refresh: bool,
    /// Return host names instead of addresses.
    pub prefer_name: bool,
    /// Answer with the locations that are known now.
    pub no_wait: bool,
    /// The locations are used for a listing.
    pub for_listing: bool,
    /// Return each host only once.
    pub unique: bool,
    /// Return the servers that export the path instead of those that have it (the form `*path`).
    pub exporting: bool,
    /// Include addresses that the client cannot use.
    pub all_networks: bool,
}

/// The options of `kXR_prepare`; the files are passed separately.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct PrepareRequest {
    /// Stage the files; the answer is a request id.
    pub stage: bool,
    /// The files will be written.
    pub write: bool,
    /// Place the files on one server.
    pub colocate: bool,
    /// Update the access time.
    pub fresh: bool,
    /// The files are no longer needed; a hint for eviction.
    pub evict: bool,
    /// The messages that the client wants about the files.
    pub notify: Option<PrepareNotice>,
    /// Priority from 0 to 3.
    pub priority: u8,
}

/// The messages to the host of a client about the files of its prepare request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrepareNotice {
    /// The port.
    pub port: u16,
    /// By TCP instead of UDP.
    pub by_tcp: bool,
    /// Files that fail are reported too.
    pub on_failure: bool,
}

/// An operation on user attributes. Names do not include a prefix of the storage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AttributeWork {
    /// Returns the values of these attributes.
    Get(Vec<Vec<u8>>),
    /// Sets attributes.
    Set {
        /// Names and values.
        pairs: Vec<(Vec<u8>, Vec<u8>)>,
        /// Fail for attributes that exist.
        new: bool,
    },
    /// Removes these attributes.
    Remove(Vec<Vec<u8>>),
    /// Lists all names.
    List {
        /// Return the values as well.
        values: bool,
    },
}

/// An operation on the name space. The comment of each variant names the value that answers it; the
/// others are answered by [`crate::Value::Nothing`].
pub enum Operation {
    /// Opens a file: [`crate::Value::Opened`].
    Open(Target, Box<OpenRequest>),
    /// Returns the status of a path: [`crate::Value::Stat`].
    Stat(Target),
    /// Returns the space for new files below a path, for `kXR_stat` with the vfs option:
    /// [`crate::Value::Space`].
    StatSpace(Target),
    /// Returns the kinds of several paths: [`crate::Value::BriefStats`]. An error for one path
    /// fails the operation.
    StatMany(TargetList),
    /// Returns the first page of a listing: [`crate::Value::Listing`].
    List(Target, ListDetail),
    /// Returns the next page of a listing: [`crate::Value::Listing`].
    ListMore(Box<dyn ListingPosition>),
    /// Creates a directory.
    MakeDirectory {
        /// Path of the new directory.
        target: Target,
        /// Permission bits.
        mode: u32,
        /// Create missing parent directories.
        parents: bool,
        /// A directory above the path that must exist: missing parents are created only below it.
        existing_parent: Option<LogicalPath>,
    },
    /// Removes an empty directory.
    RemoveDirectory(Target),
    /// Removes a file or an empty directory.
    Remove(Target),
    /// Renames an object. Missing parent directories are created.
    Rename {
        /// Present path.
        from: Target,
        /// New path.
        to: Target,
        /// Replace an existing file. Without it, an object at the new path is an error.
        replace: bool,
        /// A directory above the new path that must exist: missing parents are created only below
        /// it.
        existing_parent: Option<LogicalPath>,
    },
    /// Sets permission bits.
    ChangeMode {
        /// Path of the object.
        target: Target,
        /// Permission bits.
        mode: u32,
    },
    /// Sets the size of a file.
    Truncate {
        /// Path of the file.
        target: Target,
        /// New size in bytes.
        size: u64,
    },
    /// Reads or changes user attributes by path: [`crate::Value::Attributes`].
    Attributes(Target, AttributeWork),
    /// Locates a file, or all servers for `None`: [`crate::Value::Text`].
    Locate(Option<Target>, LocateOptions),
    /// Returns the checksum of the type in `cks.type`, or of the default type:
    /// [`crate::Value::Checksum`].
    Checksum(Target),
    /// Cancels a running checksum.
    CancelChecksum(Target),
    /// Answers `query xattr`: [`crate::Value::Text`].
    QueryAttributes(Target),
    /// Answers `query space`: [`crate::Value::Text`].
    QuerySpace(Target),
    /// Prepares files: [`crate::Value::Text`] with the request id when staging, otherwise
    /// [`crate::Value::Nothing`].
    Prepare(PrepareRequest, TargetList),
    /// Cancels a prepare request.
    CancelPrepare {
        /// Id of the request.
        id: Vec<u8>,
    },
    /// Returns the state of a prepare request: [`crate::Value::Text`].
    QueryPrepare {
        /// Id of the request.
        id: Vec<u8>,
        /// The files to report; `None` for all.
        targets: Option<TargetList>,
    },
    /// A query that only plug-ins can answer (opaque 16, opaquf 32, fsinfo 10).
    QueryOpaque {
        /// Type code of the query.
        code: u16,
        /// Argument of the query as it was received.
        argument: Vec<u8>,
    },
    /// Removes a file from the disk cache of a proxy, or asks for it: [`crate::Value::Text`], which is empty.
    Cache(Target, CachedFileCommand),
    /// A request of the WLCG Tape REST API.
    Tape(Box<crate::TapeRequest>),
    /// Issues a macaroon for a path and everything below: [`crate::Value::Macaroon`].
    IssueMacaroon(Target, Box<MacaroonOrder>),
}

/// The contents that a client requests for a macaroon.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct MacaroonOrder {
    /// The activities; `None` for all that the client can pass on.
    pub activities: Option<Vec<Activity>>,
    /// The time until the expiry; `None` for the longest that is allowed.
    pub validity: Option<Duration>,
}

/// A macaroon that was issued.
#[derive(Debug)]
pub struct IssuedMacaroon {
    /// The macaroon.
    pub text: Secret,
    /// Its activities.
    pub activities: Vec<Activity>,
    /// The time until its expiry.
    pub validity: Duration,
}

/// A command about a file in the disk cache of a proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CachedFileCommand {
    /// Succeeds if all of the file is stored.
    IsCached,
    /// Removes the file, unless a client has it open.
    Evict,
    /// Removes the file. Clients that have it open read it from the origin.
    EvictOpen,
}

impl Operation {
    /// Creates a directory. With `parents` all missing parents are created.
    pub const fn make_directory(target: Target, mode: u32, parents: bool) -> Self {
        Self::MakeDirectory { target, mode, parents, existing_parent: None }
    }

    /// Renames an object. An existing file is replaced, and all missing parents are created.
    pub const fn rename(from: Target, to: Target) -> Self {
        Self::Rename { from, to, replace: true, existing_parent: None }
    }

    /// Renames an object to a path at which there must be none. All missing parents are created.
    pub const fn rename_to_new(from: Target, to: Target) -> Self {
        Self::Rename { from, to, replace: false, existing_parent: None }
    }

    /// Limits the creation of missing parents to those below a directory that must exist. It has no
    /// effect on operations that create none.
    #[must_use]
    pub fn with_existing_parent(mut self, directory: LogicalPath) -> Self {
        match &mut self {
            Self::Open(_, request) => request.existing_parent = Some(directory),
            Self::MakeDirectory { existing_parent, .. } | Self::Rename { existing_parent, .. } => {
                *existing_parent = Some(directory);
            }
            _ => {}
        }
        self
    }

    /// Reports whether the operation names `path` or a directory above it. Of a list only the first
    /// path is known before the operation runs, so a list may name every path.
    pub fn concerns(&self, path: &LogicalPath) -> bool {
        let names = |target: &Target| path.is_within(&target.path);
        match self {
            Self::Open(target, _)
            | Self::Stat(target)
            | Self::StatSpace(target)
            | Self::List(target, _)
            | Self::MakeDirectory { target, .. }
            | Self::RemoveDirectory(target)
            | Self::Remove(target)
            | Self::ChangeMode { target, .. }
            | Self::Truncate { target, .. }
            | Self::Attributes(target, _)
            | Self::Checksum(target)
            | Self::CancelChecksum(target)
            | Self::QueryAttributes(target)
            | Self::QuerySpace(target)
            | Self::Cache(target, _)
            | Self::IssueMacaroon(target, _) => names(target),
            Self::Locate(target, _) => target.as_ref().is_some_and(names),
            Self::Rename { from, to, .. } => names(from) || names(to),
            Self::StatMany(_) | Self::Prepare(..) => true,
            Self::ListMore(_)
            | Self::CancelPrepare { .. }
            | Self::QueryPrepare { .. }
            | Self::QueryOpaque { .. }
            | Self::Tape(_) => false,
        }
    }
}

/// A range to clone from one file into another.
pub struct CloneRange {
    /// Source file.
    pub source: Arc<dyn OpenFile>,
    /// The range.
    pub range: CopyRange,
}

/// An operation on a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckpointWork {
    /// Starts a checkpoint.
    Begin,
    /// Keeps the changes.
    Commit,
    /// Returns limit and use: [`crate::Value::CheckpointSize`].
    Query,
    /// Undoes the changes.
    RollBack,
}

/// An operation on an open file.
pub enum FileOperation {
    /// Reads the pieces into `buffer`, whose length covers them: [`crate::Value::Data`] with the
    /// bytes read for each piece. Pieces after a short one are still read.
    Read {
        /// The buffer, which is returned with the answer.
        buffer: Vec<u8>,
        /// The ranges to read.
        pieces: Vec<ReadPiece>,
    },
    /// Writes `buffer` at `offset`: [`crate::Value::Written`], which returns the buffer.
    Write {
        /// The data, which is returned with the answer.
        buffer: Vec<u8>,
        /// Offset in the file, in bytes.
        offset: u64,
        /// Write under the active checkpoint, which saves the overwritten data first.
        checkpoint: bool,
    },
    /// Flushes written data to stable storage.
    Sync,
    /// Sets the size of the file.
    Truncate {
        /// New size in bytes.
        size: u64,
        /// Truncate under the active checkpoint.
        checkpoint: bool,
    },
    /// Returns the status: [`crate::Value::Stat`].
    Stat,
    /// Closes the file for the client. With `failed`, the written data is known to be incomplete,
    /// and a file that persists only on successful close is removed.
    Close {
        /// A write has failed permanently.
        failed: bool,
    },
    /// Releases the file of a disconnected client. The answer follows the release, so that the file
    /// can be reopened then.
    Abandon,
    /// Begins, ends or queries a checkpoint.
    Checkpoint(CheckpointWork),
    /// Clones ranges of other files into this one.
    CloneFrom(Vec<CloneRange>),
    /// Reads or changes user attributes: [`crate::Value::Attributes`].
    Attributes(AttributeWork),
    /// A query on a handle that only plug-ins can answer (visa 8, finfo 9, opaqug 64).
    Query {
        /// Type code of the query.
        code: u16,
        /// Argument of the query.
        argument: Vec<u8>,
    },
}
