//! What comes back: a value, a redirect, a wait, or an error.

use crate::{BriefStat, OpenFile, SpaceFigures, Stat};
use base::{Error, ErrorKind};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// How an operation went off.
pub enum Started {
    /// The answer is here.
    Done(Answer),
    /// The answer will come soon.
    Pending,
    /// The answer will come, but the client is to be told to expect it within so many seconds.
    Later {
        /// The most it may take.
        seconds: u32,
        /// For the client; may be empty.
        text: &'static str,
    },
}

/// The answer to an operation.
pub enum Answer {
    /// It was done.
    Value(Value),
    /// Ask elsewhere.
    Redirect(Redirect),
    /// Ask again after so many seconds.
    Wait {
        /// Seconds.
        seconds: u32,
        /// For the client; may be empty.
        text: String,
    },
    /// It failed.
    Error(Error),
}

impl Answer {
    /// Done, with nothing to say.
    pub const DONE: Self = Self::Value(Value::Nothing);

    /// A failure without a system's error behind it.
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

/// Where to ask instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Redirect {
    /// Host name or address, or a whole URL when `port` is negative.
    pub host: String,
    /// Port; negative with a URL.
    pub port: i32,
    /// Goes into the cgi of the repeated request; may be empty.
    pub cgi: String,
}

/// A file that was opened.
pub struct Opened {
    /// The file.
    pub file: Arc<dyn OpenFile>,
    /// Its status, if it was asked for.
    pub stat: Option<Stat>,
}

/// One entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its name, one component.
    pub name: Vec<u8>,
    /// Its status, if it was asked for and could be had.
    pub stat: Option<Stat>,
    /// Its stored checksum, if asked for: type and value in hexadecimal, `None` where nothing valid is stored.
    pub checksum: Option<(String, Option<String>)>,
}

/// Entries of a directory that several listings may have at once.
#[derive(Clone, Default)]
pub struct Entries(Arc<Shared>);

#[derive(Default)]
struct Shared {
    list: Vec<Entry>,
    written: OnceLock<Written>,
}

/// Entries as a door tells them: text, to be cut at these places and before its last entry.
#[derive(Default)]
pub struct Written {
    /// One entry after the other.
    pub text: Vec<u8>,
    /// Where an entry begins that is to be the first of its frame. Rising, and none behind `last`.
    pub cuts: Vec<usize>,
    /// Where the last entry begins.
    pub last: usize,
}

impl Entries {
    /// The entries as they are told; `write` does it for the first listing that asks. All that have these entries have asked
    /// for the same detail, so one form is that of all.
    pub fn written(&self, write: impl FnOnce(&[Entry]) -> Written) -> &Written {
        self.0.written.get_or_init(|| write(&self.0.list))
    }
}

impl From<Vec<Entry>> for Entries {
    fn from(list: Vec<Entry>) -> Self {
        Self(Arc::new(Shared { list, written: OnceLock::new() }))
    }
}

impl Deref for Entries {
    type Target = [Entry];

    fn deref(&self) -> &[Entry] {
        &self.0.list
    }
}

/// What is left of a listing. Given back to the file system for the next page.
pub trait Listing: Send {
    /// For the file system that made it.
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any>;
}

/// What became of one attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttributeResult {
    /// Its name.
    pub name: Vec<u8>,
    /// What was wrong with this one.
    pub error: Option<ErrorKind>,
    /// Its value, where values were asked for.
    pub value: Vec<u8>,
}

/// What an operation yields.
pub enum Value {
    /// It was done; there is nothing to say.
    Nothing,
    /// Text for the client, without a final NUL.
    Text(Vec<u8>),
    /// An open file.
    Opened(Opened),
    /// A status.
    Stat(Stat),
    /// What paths stand for, one after the other.
    BriefStats(Vec<BriefStat>),
    /// Space for new files.
    Space(SpaceFigures),
    /// A page of a directory; with `rest` there is more.
    Listing {
        /// The entries of this page.
        entries: Entries,
        /// What is left.
        rest: Option<Box<dyn Listing>>,
    },
    /// Attributes, in the order asked.
    Attributes(Vec<AttributeResult>),
    /// A checksum.
    Checksum {
        /// Its type.
        algorithm: String,
        /// Its value, lower-case hexadecimal.
        hex: String,
    },
    /// The buffer, and how many bytes each piece got; fewer than asked is the end of the file.
    Data {
        /// As it was lent.
        buffer: Vec<u8>,
        /// Bytes read, piece by piece.
        lengths: Vec<usize>,
    },
    /// All was written; the buffer comes back.
    Written {
        /// As it was lent.
        buffer: Vec<u8>,
    },
    /// Limits and use of a checkpoint.
    CheckpointSize {
        /// Bytes it may save.
        max: u32,
        /// Bytes it has saved.
        used: u32,
    },
}
