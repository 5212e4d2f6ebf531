//! Answers of the file system: a value, a redirect, a wait or an error.
//!
//! They are independent of any wire protocol; each front end encodes them as its own replies.

use crate::{BriefStat, FileStat, IssuedMacaroon, OpenFile, SpaceFigures};
use base::{Error, ErrorKind};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// The result of starting an operation.
pub enum Started {
    /// The operation is finished.
    Done(Answer),
    /// The answer follows soon through the [`crate::DeferredReply`].
    Pending,
    /// The answer follows late. The front end sends the client a deferral (`kXR_waitresp`) with
    /// this time.
    Later {
        /// Maximum time until the answer, in seconds.
        seconds: u32,
        /// Text for the client; may be empty.
        text: &'static str,
    },
}

/// The answer to an operation.
pub enum Answer {
    /// The operation succeeded.
    Value(Value),
    /// The client must repeat the request at another server.
    Redirect(RedirectAnswer),
    /// The client must repeat the request after this time.
    Wait {
        /// Waiting time in seconds.
        seconds: u32,
        /// Text for the client; may be empty.
        text: String,
    },
    /// The operation failed.
    Error(Error),
}

impl Answer {
    /// Success without a value.
    pub const DONE: Self = Self::Value(Value::Nothing);

    /// Creates a failure without an underlying error of the operating system.
    pub fn error(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self::Error(Error::new(kind, text))
    }
}

impl From<Result<Value, Error>> for Answer {
    fn from(result: Result<Value, Error>) -> Self {
        match result {
            Ok(value) => Self::Value(value),
            Err(error) => Self::Error(error),
        }
    }
}

/// The server to which a request is redirected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedirectAnswer {
    /// Host name or address; a whole URL if `port` is negative.
    pub host: Arc<str>,
    /// Port; negative with a URL.
    pub port: i32,
    /// Text to add to the CGI of the repeated request; may be empty.
    pub cgi: String,
}

/// A newly opened file.
pub struct Opened {
    /// The file.
    pub file: Arc<dyn OpenFile>,
    /// Status of the file, if requested.
    pub stat: Option<FileStat>,
}

/// One entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirectoryEntry {
    /// Name of the entry, one component.
    pub name: Vec<u8>,
    /// Status of the entry, if requested and available.
    pub stat: Option<FileStat>,
    /// Stored checksum, if requested: type and hexadecimal value. The value is `None` if no valid
    /// checksum is stored.
    pub checksum: Option<(String, Option<String>)>,
}

/// Entries of a directory that several listings can share.
#[derive(Clone, Default)]
pub struct DirectoryEntries(Arc<SharedEntries>);

#[derive(Default)]
struct SharedEntries {
    list: Vec<DirectoryEntry>,
    written: OnceLock<EncodedEntries>,
}

/// Entries in the text form of a front end, with the offsets at which they are split into frames.
#[derive(Default)]
pub struct EncodedEntries {
    /// All entries, concatenated.
    pub text: Vec<u8>,
    /// Offsets of the entries that start a new frame. They are ascending and not greater than
    /// `last`.
    pub cuts: Vec<usize>,
    /// Offset of the last entry.
    pub last: usize,
}

impl DirectoryEntries {
    /// Returns the entries in text form; `write` creates it on first use. One form serves all
    /// listings that share these entries, because they requested the same detail.
    pub fn written(&self, write: impl FnOnce(&[DirectoryEntry]) -> EncodedEntries) -> &EncodedEntries {
        self.0.written.get_or_init(|| write(&self.0.list))
    }
}

impl From<Vec<DirectoryEntry>> for DirectoryEntries {
    fn from(list: Vec<DirectoryEntry>) -> Self {
        Self(Arc::new(SharedEntries { list, written: OnceLock::new() }))
    }
}

impl Deref for DirectoryEntries {
    type Target = [DirectoryEntry];

    fn deref(&self) -> &[DirectoryEntry] {
        &self.0.list
    }
}

/// The position of a listing. It is passed back to the file system to get the next page.
pub trait ListingPosition: Send {
    /// Converts it for the file system that created it, which downcasts it to its own type.
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any>;
    /// Returns it as a value whose type can be asked for.
    fn as_any(&self) -> &dyn std::any::Any;
}

/// The result for one attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttributeOutcome {
    /// Name of the attribute.
    pub name: Vec<u8>,
    /// Error for this attribute.
    pub error: Option<ErrorKind>,
    /// Value of the attribute, if values were requested.
    pub value: Vec<u8>,
}

/// The result of a successful operation.
pub enum Value {
    /// The operation succeeded and has no result.
    Nothing,
    /// Text for the client, without a final NUL.
    Text(Vec<u8>),
    /// An open file.
    Opened(Opened),
    /// The status of a file or directory.
    Stat(FileStat),
    /// The kinds of several paths, in the order of the request.
    BriefStats(Vec<BriefStat>),
    /// Space for new files.
    Space(SpaceFigures),
    /// A page of a directory. `rest` is present if more pages follow.
    Listing {
        /// The entries of this page.
        entries: DirectoryEntries,
        /// The position of the next page.
        rest: Option<Box<dyn ListingPosition>>,
    },
    /// Attributes, in the order of the request.
    Attributes(Vec<AttributeOutcome>),
    /// A checksum.
    Checksum {
        /// Type of the checksum.
        algorithm: String,
        /// Value in lower-case hexadecimal.
        hex: String,
    },
    /// The buffer and the number of bytes read for each piece; fewer bytes than requested mean end
    /// of file.
    Data {
        /// The buffer of the request.
        buffer: Vec<u8>,
        /// Bytes read for each piece.
        lengths: Vec<usize>,
    },
    /// All bytes were written; the buffer is returned.
    Written {
        /// The buffer of the request.
        buffer: Vec<u8>,
    },
    /// The state of a tape request.
    TapeState(Box<crate::TapeState>),
    /// Where files are, in the order of the request.
    Localities(Vec<crate::LocatedFile>),
    /// A macaroon.
    Macaroon(Box<IssuedMacaroon>),
    /// Limit and use of a checkpoint.
    CheckpointSize {
        /// Maximum number of bytes that the checkpoint may save.
        max: u32,
        /// Number of bytes that it has saved.
        used: u32,
    },
}
