//! A driver that executes the operations of a session in random order and in pieces.
//!
//! The order varies with the seed, so that every interleaving that the session permits can occur.

use super::model::{Act, Content, FILES, ModelFile, Outcome, Step};
use super::support::*;
use base::Extent;
use session::{CallId, Destination, DriverTask, PathId, ReadElement, ReadReply, ReceiveResult};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use vfs::{Answer, AttributeOutcome, AttributeWork, CheckpointWork, FileOperation, OpenFile, Opened, Value};

/// A request on a file, with its position in the sequence.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) number: u16,
    pub(crate) file: usize,
    pub(crate) act: Act,
}

/// An operation that the session has started.
enum Running {
    Call { call: CallId, file: Arc<dyn OpenFile>, operation: FileOperation, answer: Option<Answer> },
    Read { reply: ReadReply, stream: u16, elements: VecDeque<ReadElement>, data: Vec<u8>, cut: bool },
}

/// A write. Its pieces arrive in order and are written at any time afterwards.
struct Receipt {
    call: CallId,
    link: u8,
    held: bool,
    coming: VecDeque<Piece>,
    unwritten: Vec<Piece>,
    /// Set if each piece must be written before the next arrives.
    in_turn: bool,
    failed: bool,
}

struct Piece {
    file: Arc<dyn OpenFile>,
    offset: usize,
    data: Vec<u8>,
}

pub(crate) struct Driver {
    pub(crate) bench: Bench,
    pub(crate) files: [Arc<ModelFile>; FILES],
    pub(crate) outcomes: BTreeMap<u16, Outcome>,
    running: Vec<Running>,
    receipts: Vec<Receipt>,
    /// Data of the write whose header is being taken.
    data: Vec<Vec<u8>>,
}

impl Driver {
    pub(crate) fn new(tells_size: bool) -> Self {
        let mut bench = Bench::new();
        bench.session.bind(address(), false).unwrap();
        let files = std::array::from_fn(|number| ModelFile::new(number, tells_size));
        for (number, file) in files.iter().enumerate() {
            let (call, _) = bench.operation(&open(&format!("/{number}"), 0x0020));
            let opened = Opened { file: file.clone(), stat: None };
            bench.reply_of(call, Answer::Value(Value::Opened(opened)));
        }
        let (running, receipts) = (Vec::new(), Vec::new());
        Self { bench, files, outcomes: BTreeMap::new(), running, receipts, data: Vec::new() }
    }

    /// Reports whether the next request can be taken. It cannot while payload arrives on the
    /// control connection.
    pub(crate) fn takes_requests(&self) -> bool {
        let busy = self.receipts.iter().any(|receipt| receipt.link == 0 && !receipt.coming.is_empty());
        !busy && self.bench.session.has_room()
    }

    pub(crate) fn request(&mut self, request: &Request, dice: &mut Dice) {
        let (raw, data) = encode(request);
        self.data = data;
        let todo = self.bench.ask(&raw.stream(request.number));
        self.run(todo, dice);
    }

    fn run(&mut self, first: DriverTask, dice: &mut Dice) {
        let mut next = Some(first);
        while let Some(todo) = next {
            self.start(todo, dice);
            next = self.bench.session.next_todo();
        }
        for link in [0, 1] {
            for reply in self.bench.all_replies(link) {
                self.outcomes.insert(reply.stream, outcome_of(&reply));
            }
        }
    }

    fn start(&mut self, todo: DriverTask, dice: &mut Dice) {
        match todo {
            DriverTask::Nothing => {}
            DriverTask::FileCall(call, file, operation) => {
                self.running.push(Running::Call { call, file, operation, answer: None });
            }
            DriverTask::Read(mut task) => {
                let elements = vec![ReadElement {
                    file: task.file,
                    extent: Extent { offset: task.offset, length: task.length },
                }];
                let at_once = dice.below(2) == 0;
                let began = (!at_once).then(|| self.bench.session.read_began(&mut task));
                self.start_read(number(task.streamid.0), elements, began);
                if at_once {
                    self.bench.session.read_answered(&task);
                }
            }
            DriverTask::ReadVector(mut task) => {
                let began = Some(self.bench.session.vector_read_began(&mut task));
                self.start_read(number(task.streamid.0), task.elements, began);
            }
            DriverTask::Receive(receive) => {
                let data = std::mem::take(&mut self.data);
                let piece = |(file, offset, data): (&Arc<dyn OpenFile>, u64, Vec<u8>)| Piece {
                    file: file.clone(),
                    offset: usize::try_from(offset).unwrap(),
                    data,
                };
                let all = match &receive.into {
                    Destination::File { file, offset } => halves((file, *offset, data.concat())),
                    Destination::Pages { file, offset } => vec![(file, *offset, data.concat())],
                    Destination::Vector(places) => {
                        let data = data.into_iter().filter(|data| !data.is_empty());
                        places.iter().zip(data).map(|(to, data)| (&to.file, to.extent.offset, data)).collect()
                    }
                    Destination::Discard => Vec::new(),
                };
                let in_turn = matches!(receive.into, Destination::Vector(_));
                let coming: VecDeque<Piece> = all.into_iter().map(piece).collect();
                self.receipts.push(Receipt {
                    call: receive.call,
                    link: receive.link.0,
                    held: receive.held,
                    coming,
                    unwritten: Vec::new(),
                    in_turn,
                    failed: false,
                });
            }
            DriverTask::Proceed(call) => {
                let receipt = self.receipts.iter_mut().find(|receipt| receipt.call == call);
                assert!(std::mem::take(&mut receipt.unwrap().held), "a write proceeds twice");
            }
            other => panic!("{}", name(&other)),
        }
    }

    fn start_read(&mut self, stream: u16, elements: Vec<ReadElement>, began: Option<ReadReply>) {
        let Some(reply) = began else {
            let data = elements.iter().flat_map(|element| self.content(element)).collect();
            self.outcomes.insert(stream, Outcome::Data(data));
            return;
        };
        let (elements, data) = (elements.into(), Vec::new());
        self.running.push(Running::Read { reply, stream, elements, data, cut: false });
    }

    fn content(&self, element: &ReadElement) -> Vec<u8> {
        let file = ModelFile::of(self.bench.session.file(element.file).unwrap());
        file.content().read(usize::try_from(element.extent.offset).unwrap(), element.extent.length)
    }

    /// Performs one step of an operation in progress. Returns `false` if there is none.
    pub(crate) fn step(&mut self, dice: &mut Dice) -> bool {
        let moving = |receipt: &&mut Receipt| !receipt.held;
        let receipts = self.receipts.iter_mut().filter(moving).count();
        let all = self.running.len() + receipts;
        if all == 0 {
            return false;
        }
        let choice = dice.below(all);
        if choice < self.running.len() {
            self.step_running(choice, dice);
            return true;
        }
        let at = (0..self.receipts.len()).filter(|at| !self.receipts[*at].held);
        let at = at.collect::<Vec<_>>()[choice - self.running.len()];
        self.step_receipt(at, dice);
        true
    }

    fn step_running(&mut self, at: usize, dice: &mut Dice) {
        let ended = match &mut self.running[at] {
            Running::Call { file, operation, answer, .. } if answer.is_none() => {
                *answer = Some(perform(file, operation));
                false
            }
            Running::Call { .. } => true,
            Running::Read { elements, data, cut, .. } => {
                if let Some(element) = elements.pop_front() {
                    let file = ModelFile::of(self.bench.session.file(element.file).unwrap());
                    // In two pieces; a short one is the end of the file.
                    let half = if *cut { element.extent.length } else { element.extent.length.div_ceil(2) };
                    let read = file.content().read(usize::try_from(element.extent.offset).unwrap(), half);
                    let rest = element.extent.length - half;
                    if read.len() == half && rest > 0 {
                        let offset = element.extent.offset + half as u64;
                        elements
                            .push_front(ReadElement { extent: Extent { offset, length: rest }, ..element });
                        *cut = true;
                    } else {
                        *cut = false;
                    }
                    data.extend(read);
                }
                elements.is_empty()
            }
        };
        if !ended {
            return;
        }
        let todo = match self.running.swap_remove(at) {
            Running::Call { call, answer, .. } => self.bench.answer(call, answer.unwrap()),
            Running::Read { reply, stream, data, .. } => {
                self.outcomes.insert(stream, Outcome::Data(data));
                self.bench.session.read_ended(reply);
                DriverTask::Nothing
            }
        };
        self.run(todo, dice);
    }

    fn step_receipt(&mut self, at: usize, dice: &mut Dice) {
        let link = self.receipts[at].link;
        // Payloads arrive in the order of their announcements.
        let is_next = self.receipts[..at].iter().all(|other| other.link != link || other.coming.is_empty());
        let receipt = &mut self.receipts[at];
        let may_come =
            is_next && !receipt.coming.is_empty() && (!receipt.in_turn || receipt.unwritten.is_empty());
        if may_come && dice.below(2) == 0 {
            receipt.unwritten.extend(receipt.coming.pop_front());
        } else if !receipt.unwritten.is_empty() {
            let piece = receipt.unwritten.swap_remove(dice.below(receipt.unwritten.len()));
            ModelFile::of(&piece.file).content().write(piece.offset, &piece.data);
        } else if receipt.coming.is_empty() {
            self.settle(at, dice);
        }
    }

    fn settle(&mut self, at: usize, dice: &mut Dice) {
        let receipt = self.receipts.remove(at);
        let error = receipt.failed.then(|| base::Error::new(base::ErrorKind::IoError, "lost"));
        let received = ReceiveResult { error, ..ReceiveResult::default() };
        let todo = self.bench.session.received(receipt.call, received, &mut self.bench.out);
        self.run(todo, dice);
    }

    /// Disconnects the client; input that has not arrived is lost.
    pub(crate) fn vanish(&mut self, dice: &mut Dice) {
        self.bench.session.end();
        self.run(DriverTask::Nothing, dice);
        self.bench.session.unbind(PathId(1));
        for at in (0..self.receipts.len()).rev() {
            let Some(receipt) = self.receipts.get_mut(at).filter(|receipt| !receipt.coming.is_empty()) else {
                continue;
            };
            receipt.coming.clear();
            receipt.failed = true;
            receipt.held = false;
            if receipt.unwritten.is_empty() {
                self.settle(at, dice);
            }
        }
    }
}

fn number(stream: [u8; 2]) -> u16 {
    u16::from_be_bytes(stream)
}

/// Returns a write in two pieces.
fn halves(
    (file, offset, mut data): (&Arc<dyn OpenFile>, u64, Vec<u8>),
) -> Vec<(&Arc<dyn OpenFile>, u64, Vec<u8>)> {
    let behind = data.split_off(data.len() / 2);
    let middle = offset + data.len() as u64;
    vec![(file, offset, data), (file, middle, behind)]
}

/// Executes a whole operation immediately.
fn perform(file: &Arc<dyn OpenFile>, operation: &FileOperation) -> Answer {
    let model = ModelFile::of(file);
    let step = |step| {
        let mut content = [model.content().clone(), Content::default()];
        let outcome = super::model::apply(&mut content, 0, &Act::Checkpoint(step));
        let [now, _] = content;
        *model.content() = now;
        outcome
    };
    let value = match operation {
        FileOperation::Truncate { size, .. } => {
            model.content().bytes.resize(usize::try_from(*size).unwrap(), 0);
            Value::Nothing
        }
        FileOperation::CloneFrom(ranges) => {
            for range in ranges {
                let [from, length, to] = [range.range.from, range.range.length, range.range.to]
                    .map(|n| usize::try_from(n).unwrap());
                let data = ModelFile::of(&range.source).content().read(from, length);
                model.content().write(to, &data);
            }
            Value::Nothing
        }
        FileOperation::Checkpoint(work) => {
            let outcome = match work {
                CheckpointWork::Begin => step(Step::Begin),
                CheckpointWork::Commit => step(Step::Commit),
                CheckpointWork::Query => step(Step::Query),
                CheckpointWork::RollBack => step(Step::RollBack),
            };
            if outcome == Outcome::Error {
                return error(base::ErrorKind::NotFound, "no checkpoint, or one already");
            }
            Value::Nothing
        }
        FileOperation::Stat => {
            let size = model.content().bytes.len() as u64;
            Value::Stat(vfs::FileStat { size, ..stat() })
        }
        FileOperation::Attributes(AttributeWork::Set { pairs, .. }) => {
            model.content().set_attribute(pairs[0].1[0]);
            Value::Attributes(vec![AttributeOutcome { name: b"a".to_vec(), error: None, value: Vec::new() }])
        }
        FileOperation::Attributes(_) => {
            let value = vec![model.content().attribute()];
            Value::Attributes(vec![AttributeOutcome { name: b"a".to_vec(), error: None, value }])
        }
        FileOperation::Close { .. } | FileOperation::Abandon => {
            model.release();
            Value::Nothing
        }
        _ => Value::Nothing,
    };
    Answer::Value(value)
}

/// Decodes the result in a reply.
fn outcome_of(reply: &Reply) -> Outcome {
    match reply.status {
        ERROR => Outcome::Error,
        // The value of an attribute is last. The status of a file has its size as the second word.
        OK if reply.body.starts_with(b"\0\x01\0\0a\0") && reply.body.len() == 11 => {
            Outcome::Number(u64::from(reply.body[10]))
        }
        OK if reply.body.contains(&b' ') => {
            Outcome::Number(reply.text().split(' ').nth(1).unwrap().parse().unwrap())
        }
        _ => Outcome::Done,
    }
}

/// Returns the encoded request, and its data separately.
fn encode(request: &Request) -> (Raw, Vec<Vec<u8>>) {
    let handle = u32::try_from(request.file).unwrap();
    let raw = |code| Raw::new(code).handle(handle);
    let long = |number: usize| i64::try_from(number).unwrap();
    let int = |number: usize| i32::try_from(number).unwrap();
    let element = |file: usize, offset: usize, length: usize| {
        segment(u32::try_from(file).unwrap(), int(length), long(offset))
    };
    let none = Vec::new();
    match &request.act {
        Act::Read { offset, length, paged } => {
            let code = if *paged { PGREAD } else { READ };
            (raw(code).i64(8, long(*offset)).i32(16, int(*length)), none)
        }
        Act::ReadVector(all) => {
            let list: Vec<_> =
                all.iter().map(|(file, offset, length)| element(*file, *offset, *length)).collect();
            (Raw::new(READV).payload(&list.concat()), none)
        }
        Act::Write { offset, data, link, paged } => {
            let (code, more) = if *paged { (PGWRITE, 4) } else { (WRITE, 0) };
            let raw = raw(code).i64(8, long(*offset)).u8(16, *link).dlen(int(data.len() + more));
            (raw, vec![data.clone()])
        }
        Act::WriteVector { places, sync } => {
            let list: Vec<_> =
                places.iter().map(|(file, offset, data)| element(*file, *offset, data.len())).collect();
            let raw = Raw::new(WRITEV).u8(4, u8::from(*sync)).payload(&list.concat());
            (raw, places.iter().map(|(.., data)| data.clone()).collect())
        }
        Act::Truncate(size) => (raw(TRUNCATE).i64(8, long(*size)), none),
        Act::Clone(ranges) => {
            let item = |(source, from, length, to): &(usize, usize, usize, usize)| {
                let source = u32::try_from(*source).unwrap().to_le_bytes();
                let numbers = [from, length, to].map(|number| (*number as u64).to_be_bytes()).concat();
                [&source[..], &[0; 4], &numbers].concat()
            };
            let list: Vec<_> = ranges.iter().map(item).collect();
            (raw(CLONE).payload(&list.concat()), none)
        }
        Act::Checkpoint(step) => {
            let code = match step {
                Step::Begin => 0,
                Step::Commit => 1,
                Step::Query => 2,
                Step::RollBack => 3,
            };
            (raw(CHKPOINT).u8(19, code), none)
        }
        Act::Sync => (raw(SYNC), none),
        Act::Stat => (Raw::new(STAT).at(16, &handle.to_le_bytes()), none),
        Act::SetAttribute(value) => {
            let argument = [&b"\0\0\0a\0\0\0\0\x01"[..], &[*value]].concat();
            (raw(FATTR).u8(8, 3).u8(9, 1).payload(&argument), none)
        }
        Act::GetAttribute => (raw(FATTR).u8(8, 1).u8(9, 1).payload(b"\0\0\0a\0"), none),
        Act::Close => (raw(CLOSE), none),
    }
}
