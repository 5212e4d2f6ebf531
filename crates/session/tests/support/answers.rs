//! Recovers the answer of the file system from a recorded reply.
//!
//! A recording has only replies, but the session under test needs the answers behind them.

use super::{ERROR, FakeFile, REDIRECT, Reply, WAIT};
use base::{Error, ErrorKind};
use session::wire_code;
use std::sync::Arc;
use vfs::{
    Answer, AttributeOutcome, AttributeWork, BriefStat, CheckpointWork, DirectoryEntry, FileKind,
    FileOperation, FileStat, ListDetail, Opened, Operation, RedirectAnswer, SpaceFigures, Value,
};
use wire::Decode;
use wire::xroot::codes::ErrorCode;
use wire::xroot::flags::StatFlags;
use wire::xroot::reply::{ChkpointSizes, StatText, VfsText, dirlist, fattr, query};

const KINDS: [ErrorKind; 36] = {
    use ErrorKind::*;
    [
        ArgInvalid,
        ArgMissing,
        ArgTooLong,
        FileLocked,
        FileNotOpen,
        FsError,
        InvalidRequest,
        IoError,
        NoMemory,
        NoSpace,
        NotAuthorized,
        NotFound,
        ServerError,
        Unsupported,
        NoServer,
        NotFile,
        IsDirectory,
        Cancelled,
        ItExists,
        ChecksumError,
        InProgress,
        OverQuota,
        SignatureError,
        DecryptError,
        Overloaded,
        FsReadOnly,
        BadPayload,
        AttributeNotFound,
        TlsRequired,
        NoReplicas,
        AuthFailed,
        Impossible,
        Conflict,
        TooManyErrors,
        RequestTimedOut,
        TimerExpired,
    ]
};

fn kind_of(code: u32) -> ErrorKind {
    *KINDS.iter().find(|kind| wire_code(**kind) == ErrorCode(code)).unwrap()
}

/// The kind of operation, which determines the type of its answer.
pub enum Asked {
    /// With the path.
    Open(String),
    Stat,
    Stats,
    Space,
    List(ListDetail),
    Text,
    Checksum,
    Attributes {
        list: bool,
        values: bool,
    },
    CheckpointSize,
    Nothing,
}

impl Asked {
    pub fn of(operation: &Operation) -> Self {
        match operation {
            Operation::Open(target, _) => Self::Open(super::path_of(target)),
            Operation::Stat(_) => Self::Stat,
            Operation::StatMany(_) => Self::Stats,
            Operation::StatSpace(_) => Self::Space,
            Operation::List(_, detail) => Self::List(*detail),
            Operation::Checksum(_) => Self::Checksum,
            Operation::Attributes(_, work) => Self::work(work),
            Operation::Locate(..)
            | Operation::QueryAttributes(_)
            | Operation::QuerySpace(_)
            | Operation::Prepare(..)
            | Operation::QueryPrepare { .. }
            | Operation::QueryOpaque { .. } => Self::Text,
            _ => Self::Nothing,
        }
    }

    pub fn of_file(operation: &FileOperation) -> Self {
        match operation {
            FileOperation::Stat => Self::Stat,
            FileOperation::Attributes(work) => Self::work(work),
            FileOperation::Checkpoint(CheckpointWork::Query) => Self::CheckpointSize,
            FileOperation::Query { .. } => Self::Text,
            _ => Self::Nothing,
        }
    }

    fn work(work: &AttributeWork) -> Self {
        let values = matches!(work, AttributeWork::Get(_) | AttributeWork::List { values: true });
        Self::Attributes { list: matches!(work, AttributeWork::List { .. }), values }
    }

    /// Returns the answer that the joined parts of a reply encode.
    pub fn answer(&self, reply: &Reply) -> Answer {
        let number = || u32::from_be_bytes(reply.body[..4].try_into().unwrap());
        match reply.status {
            ERROR => Answer::Error(Error::new(kind_of(number()), reply.error().1)),
            WAIT => {
                Answer::Wait { seconds: number(), text: String::from_utf8_lossy(&reply.body[4..]).into() }
            }
            REDIRECT => {
                let host = String::from_utf8_lossy(&reply.body[4..]).into();
                let port = i32::from_be_bytes(reply.body[..4].try_into().unwrap());
                Answer::Redirect(RedirectAnswer { host, port, cgi: String::new() })
            }
            _ => Answer::Value(self.value(&reply.body)),
        }
    }

    fn value(&self, body: &[u8]) -> Value {
        let text = body.strip_suffix(b"\0").unwrap_or(body);
        match self {
            Self::Open(path) => {
                let stat = body.get(12..).filter(|rest| !rest.is_empty()).map(|rest| {
                    stat_of(&StatText::decode(rest.strip_suffix(b"\0").unwrap_or(rest)).unwrap())
                });
                Value::Opened(Opened { file: FakeFile::new(path), stat })
            }
            Self::Stat => Value::Stat(stat_of(&StatText::decode(text).unwrap())),
            Self::Stats => Value::BriefStats(body.iter().map(|&byte| of_kind(byte)).collect()),
            Self::List(detail) => Value::Listing { entries: entries(body, *detail).into(), rest: None },
            Self::Space => {
                let figures = VfsText::decode(text).unwrap();
                Value::Space(SpaceFigures {
                    writable_nodes: u32::try_from(figures.writable_nodes).unwrap(),
                    largest_free: figures.free_mb << 20,
                    total: 100,
                    free: 100 - figures.used_percent,
                    ..SpaceFigures::default()
                })
            }
            Self::Text => Value::Text(text.to_vec()),
            Self::Checksum => {
                let checksum = query::ChecksumText::decode(text).unwrap();
                let string = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                Value::Checksum { algorithm: string(checksum.kind), hex: string(checksum.value) }
            }
            Self::Attributes { list: true, values } => {
                let listed = fattr::decode_list(body, *values).unwrap();
                let result = |item: &fattr::ListedAttribute<'_>| AttributeOutcome {
                    name: item.name.to_vec(),
                    error: None,
                    value: item.value.unwrap_or_default().to_vec(),
                };
                Value::Attributes(listed.iter().map(result).collect())
            }
            Self::Attributes { list: false, values } => {
                let results = fattr::decode_results(body, *values).unwrap();
                let result = |item: &fattr::AttributeResult<'_>| AttributeOutcome {
                    name: item.name.to_vec(),
                    error: item.error.map(|code| kind_of(code.0)),
                    value: item.value.to_vec(),
                };
                Value::Attributes(results.iter().map(result).collect())
            }
            Self::CheckpointSize => {
                let sizes = ChkpointSizes::decode(body).unwrap();
                Value::CheckpointSize { max: sizes.max_bytes, used: sizes.used_bytes }
            }
            Self::Nothing => {
                assert_eq!(body, b"");
                Value::Nothing
            }
        }
    }
}

fn of_kind(byte: u8) -> BriefStat {
    let kind = if byte & 2 != 0 { FileKind::Directory } else { FileKind::File };
    BriefStat::new(kind, byte & 8 != 0)
}

fn stat_of(text: &StatText<'_>) -> FileStat {
    let has = |bit| text.flags.contains(bit);
    let kind = match (has(StatFlags::IS_DIR), has(StatFlags::OTHER)) {
        (true, _) => FileKind::Directory,
        (_, true) => FileKind::Other,
        _ => FileKind::File,
    };
    let extended = text.extended.as_ref().unwrap();
    let name = |bytes: &[u8]| Arc::from(std::str::from_utf8(bytes).unwrap());
    FileStat {
        id: text.id,
        size: text.size,
        kind,
        readable: has(StatFlags::READABLE),
        writable: has(StatFlags::WRITABLE),
        executable: has(StatFlags::XSET),
        offline: has(StatFlags::OFFLINE),
        posc_pending: has(StatFlags::POSCPEND),
        modified: text.mtime,
        changed: extended.ctime,
        accessed: extended.atime,
        mode: extended.mode,
        owner: name(extended.owner),
        group: name(extended.group),
    }
}

fn entries(body: &[u8], detail: ListDetail) -> Vec<DirectoryEntry> {
    let listing = dirlist::Listing::new(body);
    assert_eq!(listing.has_stat(), detail.stat);
    let string = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let entry = |item: dirlist::Entry<'_>| DirectoryEntry {
        name: item.name.to_vec(),
        stat: item.stat.as_ref().map(stat_of),
        checksum: item.checksum.map(|checksum| (string(checksum.kind), checksum.value.map(string))),
    };
    listing.map(|item| entry(item.unwrap())).collect()
}
