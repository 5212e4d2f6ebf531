//! What may be asked: of the name space ([`Operation`]) and of an open file ([`FileOperation`]).

use crate::{Listing, OpenFile, Target, TargetList};
use base::Identity;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// For whom an operation runs.
#[derive(Debug)]
pub struct Caller {
    /// Who it is.
    pub identity: Identity,
    /// May the answer be deferred ([`crate::Started::Later`])? Old clients cannot take that; they get a wait instead.
    pub takes_later: bool,
    /// May it be sent elsewhere in the middle of a file it reads ([`crate::FileSystem::elsewhere`])?
    pub moves: bool,
    /// Has it addresses of both kinds, IPv4 and IPv6? Else that by which it came is the kind it has.
    pub both_nets: bool,
    left: AtomicBool,
}

impl Caller {
    /// Somebody who is there.
    pub fn new(identity: Identity, takes_later: bool, moves: bool) -> Self {
        Self { identity, takes_later, moves, both_nets: false, left: AtomicBool::new(false) }
    }

    /// The same, with what it says of its addresses.
    #[must_use]
    pub fn with_both_nets(self, both_nets: bool) -> Self {
        Self { both_nets, ..self }
    }

    /// It is not there any more: what it still waits for may be given up.
    pub fn leave(&self) {
        self.left.store(true, Ordering::Relaxed);
    }

    /// Is it not there any more?
    pub fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }
}

/// How to open a file. Names follow the option bits of kXR_open.
#[derive(Default)]
pub struct OpenRequest {
    /// Reading is wanted (also when nothing else is).
    pub read: bool,
    /// Writing is wanted.
    pub write: bool,
    /// Append only.
    pub append: bool,
    /// The file must not exist.
    pub new: bool,
    /// An existing file is truncated, a missing one is created.
    pub delete: bool,
    /// Missing parents are created.
    pub make_path: bool,
    /// In the rules of use, this open counts as a reader, although it may write: it creates without asking for updates.
    pub counts_as_reader: bool,
    /// Overrides the lock between readers and writers.
    pub force: bool,
    /// Persist on successful close.
    pub posc: bool,
    /// The status is wanted with the answer.
    pub stat: bool,
    /// Do not wait for staging.
    pub no_wait: bool,
    /// Discard what a cache of locations says.
    pub refresh: bool,
    /// The file is a replica; a hint for placement.
    pub replica: bool,
    /// Sequential access is coming; a hint.
    pub sequential: bool,
    /// Bypass the page cache; a hint.
    pub direct: bool,
    /// Permission bits for a new file.
    pub mode: u32,
    /// The new file starts as a clone of this one.
    pub duplicate_of: Option<Arc<dyn OpenFile>>,
    /// The new file goes to the file system of this one.
    pub same_file_system_as: Option<Arc<dyn OpenFile>>,
}

/// What a listing tells of each entry.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct ListDetail {
    /// The status.
    pub stat: bool,
    /// The stored checksum of the type that `cks.type` names (or the first configured one); never computed.
    pub checksum: bool,
    /// Only what needs no staging.
    pub online: bool,
}

/// Options of kXR_locate.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct LocateOptions {
    /// Discard what is cached.
    pub refresh: bool,
    /// Host names instead of addresses.
    pub prefer_name: bool,
    /// Answer with what is known now.
    pub no_wait: bool,
    /// For a listing.
    pub for_listing: bool,
    /// Each host once.
    pub unique: bool,
    /// Not who has the path: who would have it, because it exports it (the form `*path`).
    pub exporting: bool,
    /// Also addresses that the client cannot use.
    pub all_networks: bool,
}

/// kXR_prepare, decoded, but for its files.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct PrepareRequest {
    /// Bring online; the answer is a request id.
    pub stage: bool,
    /// The files will be written.
    pub write: bool,
    /// Keep them together.
    pub colocate: bool,
    /// Refresh the access time.
    pub fresh: bool,
    /// No longer needed.
    pub evict: bool,
    /// Tell the client when it is done, at this port.
    pub notify_port: Option<u16>,
    /// 0 to 3.
    pub priority: u8,
}

/// What may be done with user attributes. Names are without any prefix of the storage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AttributeWork {
    /// Values of these.
    Get(Vec<Vec<u8>>),
    /// Sets name to value; with `new` only where it does not exist.
    Set {
        /// Names and values.
        pairs: Vec<(Vec<u8>, Vec<u8>)>,
        /// Fail where it exists.
        new: bool,
    },
    /// Removes these.
    Remove(Vec<Vec<u8>>),
    /// All names, with values if wanted.
    List {
        /// With values.
        values: bool,
    },
}

/// An operation on the name space. The value that answers it is named behind each.
pub enum Operation {
    /// [`crate::Value::Opened`].
    Open(Target, Box<OpenRequest>),
    /// [`crate::Value::Stat`].
    Stat(Target),
    /// Space for new files below a path, for `kXR_stat` with the vfs option: [`crate::Value::Space`].
    StatSpace(Target),
    /// [`crate::Value::BriefStats`], one for each; one that fails fails all.
    StatMany(TargetList),
    /// [`crate::Value::Listing`], the first page.
    List(Target, ListDetail),
    /// The next page of a listing: [`crate::Value::Listing`].
    ListMore(Box<dyn Listing>),
    /// [`crate::Value::Nothing`], as for all changes.
    MakeDirectory {
        /// Where.
        target: Target,
        /// Permission bits.
        mode: u32,
        /// With missing parents.
        parents: bool,
    },
    /// Removes an empty directory.
    RemoveDirectory(Target),
    /// Removes a file (or an empty directory).
    Remove(Target),
    /// Renames; an existing file is replaced, missing parents are created.
    Rename {
        /// Present name.
        from: Target,
        /// New name.
        to: Target,
    },
    /// Sets permission bits.
    ChangeMode {
        /// What.
        target: Target,
        /// Permission bits.
        mode: u32,
    },
    /// Sets the size.
    Truncate {
        /// What.
        target: Target,
        /// Bytes.
        size: u64,
    },
    /// User attributes by path: [`crate::Value::Attributes`].
    Attributes(Target, AttributeWork),
    /// Where a file is; `None` for all servers: [`crate::Value::Text`].
    Locate(Option<Target>, LocateOptions),
    /// Checksum of the type in `cks.type`, or the default type: [`crate::Value::Checksum`].
    Checksum(Target),
    /// Cancels a running checksum.
    CancelChecksum(Target),
    /// `query xattr`: [`crate::Value::Text`].
    QueryAttributes(Target),
    /// `query space`: [`crate::Value::Text`].
    QuerySpace(Target),
    /// [`crate::Value::Text`] with the request id when staging, else [`crate::Value::Nothing`].
    Prepare(PrepareRequest, TargetList),
    /// Cancels a prepare request.
    CancelPrepare {
        /// The id.
        id: Vec<u8>,
    },
    /// State of a prepare request: [`crate::Value::Text`].
    QueryPrepare {
        /// The id.
        id: Vec<u8>,
        /// The files asked about; `None` for all.
        targets: Option<TargetList>,
    },
    /// Queries that only plug-ins answer (opaque 16, opaquf 32, fsinfo 10).
    QueryOpaque {
        /// The query's type code.
        code: u16,
        /// Its argument as it came.
        argument: Vec<u8>,
    },
}

/// One range to read into a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Bytes to read.
    pub length: usize,
    /// Where they go in the buffer.
    pub at: usize,
}

/// One range to clone.
pub struct CloneRange {
    /// From this file.
    pub source: Arc<dyn OpenFile>,
    /// From here in it.
    pub source_offset: u64,
    /// Bytes.
    pub length: u64,
    /// To here.
    pub offset: u64,
}

/// What may be done with a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckpointWork {
    /// Start one.
    Begin,
    /// Keep the changes.
    Commit,
    /// [`crate::Value::CheckpointSize`].
    Query,
    /// Undo the changes.
    RollBack,
}

/// An operation on an open file.
pub enum FileOperation {
    /// Fills the pieces of `buffer`, whose length covers them: [`crate::Value::Data`], with the bytes read of each piece.
    /// Pieces after a short one are still read.
    Read {
        /// Taken for the duration, given back with the answer.
        buffer: Vec<u8>,
        /// What to read where.
        pieces: Vec<Piece>,
    },
    /// Writes `buffer` at `offset`: [`crate::Value::Written`], which gives the buffer back.
    Write {
        /// Taken for the duration.
        buffer: Vec<u8>,
        /// Bytes from the start of the file.
        offset: u64,
        /// Under the active checkpoint: what it overwrites is saved first.
        checkpoint: bool,
    },
    /// What was written reaches stable storage.
    Sync,
    /// Sets the size.
    Truncate {
        /// Bytes.
        size: u64,
        /// Under the active checkpoint.
        checkpoint: bool,
    },
    /// [`crate::Value::Stat`].
    Stat,
    /// The client closes it. With `failed`, what was written is known to be bad: a file that persists only on successful
    /// close is removed.
    Close {
        /// Writes failed for good.
        failed: bool,
    },
    /// The client vanished. Answered when the file is released, so that it may be reopened at once.
    Abandon,
    /// Checkpoints.
    Checkpoint(CheckpointWork),
    /// Clones ranges of other files into this one.
    CloneFrom(Vec<CloneRange>),
    /// User attributes: [`crate::Value::Attributes`].
    Attributes(AttributeWork),
    /// Queries on a handle that only plug-ins answer (visa 8, finfo 9, opaqug 64).
    Query {
        /// The query's type code.
        code: u16,
        /// Its argument.
        argument: Vec<u8>,
    },
}
