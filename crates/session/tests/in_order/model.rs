//! The sequential model: files in memory, random requests, and their outcomes one by one.
//!
//! It has no queue and no concurrency, so that its results are correct by inspection.

use super::support::Dice;
use base::LogicalPath;
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard};
use vfs::{FileOperation, OpenFile, ReplyTo, Started};

/// Number of files of a sequence.
pub(crate) const FILES: usize = 2;
/// Upper bound of offsets and sizes, small so that requests often overlap.
const SPACE: usize = 12;

/// The observable state of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Content {
    pub(crate) bytes: Vec<u8>,
    saved: Option<Vec<u8>>,
    attribute: u8,
}

impl Content {
    pub(crate) fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        self.bytes.iter().skip(offset).take(length).copied().collect()
    }

    pub(crate) fn write(&mut self, offset: usize, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let end = offset + data.len();
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[offset..end].copy_from_slice(data);
    }

    pub(crate) fn attribute(&self) -> u8 {
        self.attribute
    }

    pub(crate) fn set_attribute(&mut self, value: u8) {
        self.attribute = value;
    }

    fn checkpoint(&mut self, step: Step) -> Outcome {
        match (step, &self.saved) {
            (Step::Begin, None) => self.saved = Some(self.bytes.clone()),
            (Step::Begin, Some(_)) | (_, None) => return Outcome::Error,
            (Step::Query, Some(_)) => {}
            (Step::Commit, Some(_)) => self.saved = None,
            (Step::RollBack, Some(_)) => self.undo(),
        }
        Outcome::Done
    }

    /// Undoes a checkpoint that was not committed.
    pub(crate) fn undo(&mut self) {
        if let Some(saved) = self.saved.take() {
            self.bytes = saved;
        }
    }
}

/// The result that a client receives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Data(Vec<u8>),
    Number(u64),
    Done,
    Error,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Begin,
    Commit,
    Query,
    RollBack,
}

/// The operation of a request on its file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    Read {
        offset: usize,
        length: usize,
        paged: bool,
    },
    ReadVector(Vec<(usize, usize, usize)>),
    Write {
        offset: usize,
        data: Vec<u8>,
        link: u8,
        paged: bool,
    },
    WriteVector {
        places: Vec<(usize, usize, Vec<u8>)>,
        sync: bool,
    },
    Truncate(usize),
    /// Source file, source offset, length, target offset.
    Clone(Vec<(usize, usize, usize, usize)>),
    Checkpoint(Step),
    Sync,
    Stat,
    SetAttribute(u8),
    GetAttribute,
    Close,
}

/// Executes an operation without a session. Returns its outcome.
pub(crate) fn apply(contents: &mut [Content; FILES], file: usize, act: &Act) -> Outcome {
    match act {
        Act::Read { offset, length, .. } => return Outcome::Data(contents[file].read(*offset, *length)),
        Act::ReadVector(elements) => {
            let read =
                |(file, offset, length): &(usize, usize, usize)| contents[*file].read(*offset, *length);
            let all: Vec<_> = elements.iter().map(read).collect();
            return Outcome::Data(all.concat());
        }
        Act::Write { offset, data, .. } => contents[file].write(*offset, data),
        Act::WriteVector { places, .. } => {
            places.iter().for_each(|(file, offset, data)| contents[*file].write(*offset, data));
        }
        Act::Truncate(size) => contents[file].bytes.resize(*size, 0),
        Act::Clone(ranges) => {
            for (source, from, length, to) in ranges {
                let data = contents[*source].read(*from, *length);
                contents[file].write(*to, &data);
            }
        }
        Act::Checkpoint(step) => return contents[file].checkpoint(*step),
        Act::Sync => {}
        Act::Stat => return Outcome::Number(contents[file].bytes.len() as u64),
        Act::SetAttribute(value) => contents[file].attribute = *value,
        Act::GetAttribute => return Outcome::Number(u64::from(contents[file].attribute)),
        Act::Close => contents[file].undo(),
    }
    Outcome::Done
}

/// Returns a request that is valid in any state of the files.
pub(crate) fn random_act(dice: &mut Dice, open: [bool; FILES]) -> Act {
    let data = |dice: &mut Dice| {
        let length = dice.below(7);
        (0..length).map(|_| 1 + u8::try_from(dice.below(250)).unwrap()).collect::<Vec<u8>>()
    };
    let all_open = open.iter().all(|open| *open);
    let step = [Step::Begin, Step::Commit, Step::Query, Step::RollBack];
    match dice.below(24) {
        0..=4 => {
            Act::Read { offset: dice.below(SPACE), length: 1 + dice.below(SPACE), paged: dice.below(2) == 0 }
        }
        5 if all_open => Act::ReadVector(
            (0..1 + dice.below(3))
                .map(|_| (dice.below(FILES), dice.below(SPACE), 1 + dice.below(5)))
                .collect(),
        ),
        6 if all_open => Act::WriteVector {
            places: (0..1 + dice.below(3))
                .map(|_| (dice.below(FILES), dice.below(SPACE), data(dice)))
                .collect(),
            sync: dice.below(2) == 0,
        },
        7 if all_open => Act::Clone(
            (0..1 + dice.below(2))
                .map(|_| (dice.below(FILES), dice.below(SPACE), dice.below(6), dice.below(SPACE)))
                .collect(),
        ),
        5..=13 => {
            let (paged, mut data) = (dice.below(4) == 0, data(dice));
            if paged && data.is_empty() {
                data.push(255);
            }
            Act::Write { offset: dice.below(SPACE), data, link: u8::try_from(dice.below(2)).unwrap(), paged }
        }
        14..=15 => Act::Truncate(dice.below(SPACE)),
        16..=17 => Act::Checkpoint(step[dice.below(4)]),
        18 => Act::Sync,
        19..=20 => Act::Stat,
        21 => Act::SetAttribute(u8::try_from(dice.below(250)).unwrap()),
        22 => Act::GetAttribute,
        _ if dice.below(2) == 0 => Act::Close,
        _ => Act::Sync,
    }
}

/// A file for a session.
pub(crate) struct ModelFile {
    path: LogicalPath,
    content: Mutex<Content>,
    /// Set if the size is available immediately.
    tells_size: bool,
    released: Mutex<u32>,
}

impl ModelFile {
    pub(crate) fn new(number: usize, tells_size: bool) -> Arc<Self> {
        let path = LogicalPath::parse(format!("/{number}").as_bytes()).unwrap();
        Arc::new(Self { path, content: Mutex::default(), tells_size, released: Mutex::default() })
    }

    pub(crate) fn of(file: &Arc<dyn OpenFile>) -> &Self {
        file.as_any().downcast_ref().unwrap()
    }

    /// Returns the content, for a running operation.
    pub(crate) fn content(&self) -> MutexGuard<'_, Content> {
        assert_eq!(*self.released.lock().unwrap(), 0, "used after its close");
        self.content.lock().unwrap()
    }

    /// Returns the final content.
    pub(crate) fn last_content(&self) -> Content {
        self.content.lock().unwrap().clone()
    }

    pub(crate) fn release(&self) {
        self.content().undo();
        *self.released.lock().unwrap() += 1;
    }

    pub(crate) fn is_released(&self) -> bool {
        *self.released.lock().unwrap() == 1
    }
}

impl OpenFile for ModelFile {
    fn path(&self) -> &LogicalPath {
        &self.path
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn size_now(&self) -> Option<u64> {
        self.tells_size.then(|| self.content().bytes.len() as u64)
    }

    fn start(&self, _: FileOperation, _: &ReplyTo) -> Started {
        Started::Pending
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
