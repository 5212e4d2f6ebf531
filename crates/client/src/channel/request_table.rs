//! The table of requests in flight on a channel: destination of the data, deadline and caller.
//!
//! It is separate from the driver so that deadlines and size limits are tested without a socket.

use rawclient::{ConnectionEvent, RequestOutcome};
use slab::Slab;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::mpsc::WeakUnboundedSender;
use tokio::sync::oneshot;
use tokio::time::Instant;
use wire::xroot::limits::PAGE_BYTES;
use wire::xroot::reply::{StatusFrame, Wait};

use super::exchange::{
    ChannelRequest, ConnectionLoss, Deadlines, LINE_BYTES, MissingReply, PagesAt, ReplyContent, ReplySink,
    ServerReply,
};
use super::open_reply::UnclaimedHandle;
use crate::buffer_pool::PooledBuffer;
use crate::listing_memory::{ListingCharge, ListingMemory};
use crate::pacing::PacedRequest;

/// Maximum number of bytes of an abandoned or oversized body that are received and dropped. Beyond
/// them the connection is closed.
const DRAINED_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Maximum number of page frames of a reply beyond one for each page: empty frames, and frames of
/// requests whose replies carry no pages.
const SPARE_FRAMES_MAX: usize = 64;

/// Maximum size of the reply to an open whose caller has given up, from which the handle is taken.
const OPEN_REPLY_BYTES_MAX: usize = 64 * 1024;

/// The requests in flight by tag. An abandoned request stays until its reply arrives because its
/// stream id is in use.
#[derive(Debug)]
pub(super) struct RequestTable {
    requests: Slab<RequestEntry>,
    deadlines: BTreeSet<(Instant, usize)>,
    /// Number of requests whose data each lane carries.
    loads: Vec<usize>,
    /// The requests of this connection, for closes of files that nobody waits for.
    posting: WeakUnboundedSender<ChannelRequest>,
}

#[derive(Debug)]
struct RequestEntry {
    until: Deadlines,
    lane: usize,
    made: Instant,
    /// Time without progress after which the request times out.
    patience: Duration,
    /// Time at which data last arrived for the request.
    heard: Option<Instant>,
    sink: ReplySink,
    body: Vec<u8>,
    /// Charged memory for the body of a listing.
    charge: Option<ListingCharge>,
    /// Number of line ends in the body.
    lines: usize,
    pages: Vec<PagesAt>,
    /// Number of page frames that may still arrive, including empty ones.
    frames_left: usize,
    /// It opens a file, which is closed if the caller has given up.
    opens: bool,
    /// Its turn, also after the caller has given up; `None` if it needs none, or the reply is late.
    paced: Option<PacedRequest>,
    /// `None` if the caller has given up.
    answer: Option<oneshot::Sender<Result<ServerReply, MissingReply>>>,
}

impl RequestTable {
    pub(super) fn new(lanes: usize, posting: WeakUnboundedSender<ChannelRequest>) -> Self {
        Self { requests: Slab::new(), deadlines: BTreeSet::new(), loads: vec![0; lanes], posting }
    }

    /// Returns the bound lane with the fewest requests, or 0 if none is bound.
    pub(super) fn idlest_lane(&self) -> usize {
        let bound = self.loads.iter().enumerate().skip(1);
        bound.min_by_key(|(_, load)| **load).map_or(0, |(lane, _)| lane)
    }

    /// Adds a request and returns its tag.
    pub(super) fn add(
        &mut self,
        until: Deadlines,
        sink: ReplySink,
        answer: Option<oneshot::Sender<Result<ServerReply, MissingReply>>>,
        lane: usize,
        now: Instant,
    ) -> u64 {
        let waited_for = answer.is_some();
        let patience = until.answer.duration_since(now);
        let most = match &sink {
            ReplySink::Block(_, most) => *most,
            ReplySink::Body(_) | ReplySink::Nowhere(_) => 0,
        };
        let frames_left = most / PAGE_BYTES + SPARE_FRAMES_MAX;
        let entry = RequestEntry {
            until,
            lane,
            made: now,
            patience,
            heard: None,
            charge: match &sink {
                ReplySink::Body(limit) => limit.memory.as_ref().map(ListingMemory::charge),
                ReplySink::Block(..) | ReplySink::Nowhere(_) => None,
            },
            sink,
            body: Vec::new(),
            lines: 0,
            pages: Vec::new(),
            frames_left,
            opens: false,
            paced: None,
            answer,
        };
        if let Some(load) = self.loads.get_mut(lane) {
            *load += 1;
        }
        let place = self.requests.insert(entry);
        if waited_for {
            self.deadlines.insert((until.answer, place));
        }
        place as u64
    }

    /// Records whether a request opens a file, whose handle is not lost when the caller gives up, and
    /// the turn of the request.
    pub(super) fn mark(&mut self, tag: u64, opens: bool, paced: Option<PacedRequest>) {
        if let Some(entry) = self.entry(tag) {
            (entry.opens, entry.paced) = (opens, paced);
        }
    }

    /// Removes a request that [`RequestTable::add`] added and that could not be queued.
    pub(super) fn forget(&mut self, tag: u64) {
        if let Some(mut entry) = self.remove(tag)
            && let Some(answer) = entry.answer.take()
        {
            entry.paced = None;
            let _ = answer.send(Err(MissingReply::Lost { reason: ConnectionLoss::Closed, sent: false }));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Reports whether nobody waits for any of the requests.
    pub(super) fn is_abandoned(&self) -> bool {
        self.requests.iter().all(|(_, entry)| entry.is_abandoned())
    }

    /// Reports whether nobody waits for most of the requests.
    pub(super) fn is_mostly_abandoned(&self) -> bool {
        let abandoned = self.requests.iter().filter(|(_, entry)| entry.is_abandoned());
        2 * abandoned.count() > self.requests.len()
    }

    /// Returns the next deadline of a request.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    fn remove(&mut self, tag: u64) -> Option<RequestEntry> {
        let place = usize::try_from(tag).ok()?;
        let entry = self.requests.try_remove(place)?;
        self.deadlines.remove(&(entry.until.answer, place));
        if let Some(load) = self.loads.get_mut(entry.lane) {
            *load -= 1;
        }
        Some(entry)
    }

    fn entry(&mut self, tag: u64) -> Option<&mut RequestEntry> {
        self.requests.get_mut(usize::try_from(tag).ok()?)
    }

    /// Returns the block for the data of a request, with its remaining capacity.
    pub(super) fn block(&mut self, tag: u64, now: Instant) -> Option<(&mut PooledBuffer, usize)> {
        let entry = self.entry(tag)?;
        entry.heard = Some(now);
        entry.drop_unwanted();
        match &mut entry.sink {
            ReplySink::Block(block, most) => {
                let room = most.saturating_sub(block.len());
                Some((block, room))
            }
            ReplySink::Body(_) | ReplySink::Nowhere(_) => None,
        }
    }

    /// Processes an event.
    ///
    /// # Errors
    /// The server sends more than was requested: the connection cannot be used any longer.
    pub(super) fn take(&mut self, event: ConnectionEvent<'_>, now: Instant) -> Result<(), ConnectionLoss> {
        match event {
            ConnectionEvent::Data { tag, bytes } => {
                self.entry(tag).map_or(Ok(()), |entry| {
                    entry.heard = Some(now);
                    entry.take(bytes)
                })?;
            }
            ConnectionEvent::Pages { tag, frame } => {
                self.entry(tag).map_or(Ok(()), |entry| entry.pages(frame))?;
            }
            ConnectionEvent::Later { tag, wait } => self.extend(tag, &wait, now),
            ConnectionEvent::Done { tag, outcome } => {
                if let Some(entry) = self.remove(tag) {
                    entry.finish(outcome, &self.posting)?;
                }
            }
            ConnectionEvent::Ready
            | ConnectionEvent::StartTls
            | ConnectionEvent::Authenticate(_)
            | ConnectionEvent::Notice { .. } => {}
        }
        Ok(())
    }

    /// Extends the deadline of a request whose reply is deferred.
    fn extend(&mut self, tag: u64, wait: &Wait<'_>, now: Instant) {
        let Some(entry) = self.entry(tag) else { return };
        if let Some(paced) = entry.paced.take() {
            paced.pause();
        }
        let before = entry.until.answer;
        let later = now + Duration::from_secs(u64::try_from(wait.seconds).unwrap_or(0));
        entry.until.answer = before.max(later.min(entry.until.end));
        let after = entry.until.answer;
        if let Ok(place) = usize::try_from(tag)
            && self.deadlines.remove(&(before, place))
        {
            self.deadlines.insert((after, place));
        }
    }

    /// Ends the requests whose deadline has passed. A reply in transfer is extended as long as its
    /// data arrives. A request that may not be sent yet (`sending`) is extended as long as bytes
    /// are sent. Returns whether one of them still holds its turn.
    pub(super) fn expire(&mut self, now: Instant, sending: Option<Instant>) -> bool {
        let mut holds_turn = false;
        while let Some(&(at, place)) = self.deadlines.first()
            && at <= now
        {
            self.deadlines.pop_first();
            let Some(entry) = self.requests.get_mut(place) else { continue };
            let moved = entry.heard.max(sending).unwrap_or(entry.made).max(entry.made);
            let due = (moved + entry.patience).min(entry.until.end);
            if due > now && entry.answer.is_some() {
                entry.until.answer = due;
                self.deadlines.insert((due, place));
                continue;
            }
            let seconds = now.duration_since(entry.made).as_secs();
            entry.give_up(MissingReply::TimedOut(seconds));
            holds_turn |= entry.paced.is_some();
        }
        holds_turn
    }

    /// Ends all requests because the connection is lost.
    pub(super) fn fail_all(&mut self, reason: &ConnectionLoss) {
        self.deadlines.clear();
        for mut entry in self.requests.drain() {
            entry.paced = None;
            if let Some(answer) = entry.answer {
                let _ = answer.send(Err(MissingReply::Lost { reason: reason.clone(), sent: true }));
            }
        }
    }
}

impl RequestEntry {
    /// Ends the request for its caller. The rest of its reply is dropped on arrival.
    fn give_up(&mut self, failed: MissingReply) {
        if let Some(answer) = self.answer.take() {
            let _ = answer.send(Err(failed));
        }
        self.drop_unwanted();
    }

    /// Reports whether nobody waits for the reply.
    fn is_abandoned(&self) -> bool {
        self.answer.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// Drops the received data of an abandoned request.
    fn drop_unwanted(&mut self) {
        if !self.is_abandoned() {
            return;
        }
        let left = match &self.sink {
            ReplySink::Body(_) if self.opens && self.body.len() <= OPEN_REPLY_BYTES_MAX => return,
            ReplySink::Body(_) => DRAINED_BYTES_MAX,
            ReplySink::Block(block, most) => most.saturating_sub(block.len()),
            ReplySink::Nowhere(_) => return,
        };
        self.sink = ReplySink::Nowhere(left);
        (self.body, self.pages, self.charge) = (Vec::new(), Vec::new(), None);
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), ConnectionLoss> {
        self.drop_unwanted();
        match &mut self.sink {
            ReplySink::Nowhere(left) => {
                *left = left.checked_sub(bytes.len()).ok_or(ConnectionLoss::TooMuch)?;
            }
            ReplySink::Block(block, most) => {
                if bytes.len() > most.saturating_sub(block.len()) {
                    return Err(ConnectionLoss::TooMuch);
                }
                block.data().extend_from_slice(bytes);
            }
            ReplySink::Body(limit) => {
                let mut has_room = bytes.len() <= limit.bytes.saturating_sub(self.body.len());
                if let Some(charge) = &mut self.charge {
                    self.lines += bytes.iter().filter(|byte| **byte == b'\n').count();
                    let lines = self.lines.saturating_mul(LINE_BYTES);
                    has_room &= charge.reach(lines.max(self.body.len() + bytes.len()));
                }
                if !has_room {
                    let limit = limit.clone();
                    self.give_up(MissingReply::TooLarge(limit));
                } else {
                    self.body.extend_from_slice(bytes);
                }
            }
        }
        Ok(())
    }

    fn pages(&mut self, frame: StatusFrame) -> Result<(), ConnectionLoss> {
        self.drop_unwanted();
        let length = usize::try_from(frame.dlen).unwrap_or(0);
        let (at, most) = match &self.sink {
            ReplySink::Block(block, most) => (block.len(), *most),
            ReplySink::Body(limit) => (self.body.len(), limit.bytes),
            ReplySink::Nowhere(left) => (0, *left),
        };
        self.frames_left = self.frames_left.checked_sub(1).ok_or(ConnectionLoss::TooMuch)?;
        if length > most.saturating_sub(at) {
            return Err(ConnectionLoss::TooMuch);
        }
        if length > 0 && !matches!(self.sink, ReplySink::Nowhere(_)) {
            self.pages.push(PagesAt { frame, at });
        }
        Ok(())
    }

    fn finish(
        mut self,
        outcome: RequestOutcome<'_>,
        posting: &WeakUnboundedSender<ChannelRequest>,
    ) -> Result<(), ConnectionLoss> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let answer = match outcome {
            RequestOutcome::Ok(bytes) => {
                if let Err(reason) = self.take(bytes) {
                    self.give_up(MissingReply::Lost { reason: reason.clone(), sent: true });
                    return Err(reason);
                }
                let block = match self.sink {
                    ReplySink::Block(block, _) => Some(block),
                    ReplySink::Body(_) | ReplySink::Nowhere(_) => None,
                };
                let handle = if self.opens { UnclaimedHandle::of(&self.body, posting) } else { None };
                ServerReply::Ok(ReplyContent {
                    body: self.body,
                    block,
                    pages: self.pages,
                    charge: self.charge,
                    handle,
                })
            }
            RequestOutcome::Error(error) => ServerReply::Error { code: error.code, text: text(error.text) },
            RequestOutcome::Redirect(redirect) => {
                ServerReply::Redirect { port: redirect.port, host: redirect.host.to_vec() }
            }
            RequestOutcome::Wait(wait) => {
                let seconds = u64::try_from(wait.seconds).unwrap_or(0);
                ServerReply::Wait { pause: Duration::from_secs(seconds), text: text(wait.text) }
            }
        };
        // The caller may give its turn up at once.
        drop(self.paced);
        if let Some(waiting) = self.answer {
            // If the caller has gone, the handle in the reply closes its file.
            let _ = waiting.send(Ok(answer));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::exchange::BodyLimit;
    use super::*;
    use crate::buffer_pool::DataBufferPool;
    use tokio::sync::mpsc;
    use wire::xroot::codes::ResponseType;
    use wire::xroot::{RequestCode, StreamId};

    fn limit() -> BodyLimit {
        BodyLimit::listing(&ListingMemory::new(100))
    }

    /// A table with one request, its reply, and the requests that the table posts.
    struct Caller(
        RequestTable,
        u64,
        oneshot::Receiver<Result<ServerReply, MissingReply>>,
        (mpsc::UnboundedSender<ChannelRequest>, mpsc::UnboundedReceiver<ChannelRequest>),
    );

    fn caller(sink: ReplySink) -> Caller {
        let (answer, receiver) = oneshot::channel();
        let now = Instant::now();
        let end = now + Duration::from_secs(60);
        let posted = mpsc::unbounded_channel();
        let mut book = RequestTable::new(1, posted.0.downgrade());
        let tag = book.add(Deadlines { answer: end, end }, sink, Some(answer), 0, now);
        Caller(book, tag, receiver, posted)
    }

    impl Caller {
        fn data(&mut self, bytes: &[u8]) -> Result<(), ConnectionLoss> {
            self.0.take(ConnectionEvent::Data { tag: self.1, bytes }, Instant::now())
        }

        /// Returns the number of bytes of memory that its reply takes.
        fn kept(&self) -> usize {
            let entry = self.0.requests.get(usize::try_from(self.1).unwrap()).unwrap();
            let block = if let ReplySink::Block(block, _) = &entry.sink { block.len() } else { 0 };
            entry.body.capacity() + block + entry.pages.capacity()
        }
    }

    #[tokio::test]
    async fn an_oversized_reply_fails_at_its_limit_and_is_dropped() {
        for piece in [&[b'x'; 60][..], b"a\nb\nc\nd\n"] {
            let limit = limit();
            let mut caller = caller(ReplySink::Body(limit.clone()));
            caller.data(piece).unwrap();
            assert!(caller.kept() > 0);
            caller.data(piece).unwrap();
            assert!(matches!(caller.2.try_recv(), Ok(Err(MissingReply::TooLarge(of))) if of == limit));
            // The memory is released immediately.
            assert!(limit.memory.unwrap().charge().reach(100));
            caller.data(piece).unwrap();
            assert_eq!(caller.kept(), 0);
            caller
                .0
                .take(
                    ConnectionEvent::Done { tag: caller.1, outcome: RequestOutcome::Ok(b"end") },
                    Instant::now(),
                )
                .unwrap();
            assert!(caller.0.is_empty());
        }
    }

    #[tokio::test]
    async fn data_of_abandoned_requests_is_dropped() {
        let sinks =
            [ReplySink::Body(BodyLimit::ANSWER), ReplySink::Block(DataBufferPool::default().take(64), 1000)];
        for sink in sinks {
            let mut caller = caller(sink);
            caller.data(&[1; 10]).unwrap();
            assert!(caller.kept() > 0);
            caller.2.close();
            caller.data(&[1; 10]).unwrap();
            assert_eq!(caller.kept(), 0);
        }
        let mut late = caller(ReplySink::Body(BodyLimit::ANSWER));
        late.data(&[1; 10]).unwrap();
        late.0.expire(Instant::now() + Duration::from_secs(1000), None);
        assert!(matches!(late.2.try_recv(), Ok(Err(MissingReply::TimedOut(_)))));
        assert_eq!(late.kept(), 0);
        // The rest is drained up to the limit.
        let piece = vec![0; 1 << 20];
        let most = DRAINED_BYTES_MAX >> 20;
        assert_eq!((0..most).find(|_| late.data(&piece).is_err()), None);
        assert_eq!(late.data(&piece), Err(ConnectionLoss::TooMuch));
    }

    #[tokio::test]
    async fn a_connection_without_callers_is_found() {
        let mut caller = caller(ReplySink::Body(BodyLimit::ANSWER));
        let (until, limit) = (Deadlines { answer: Instant::now(), end: Instant::now() }, BodyLimit::ANSWER);
        let mut answers: Vec<_> = (0..4)
            .map(|_| oneshot::channel())
            .map(|(answer, receiver)| {
                caller.0.add(until, ReplySink::Body(limit.clone()), Some(answer), 0, Instant::now());
                receiver
            })
            .collect();
        answers.truncate(2);
        assert!(!caller.0.is_mostly_abandoned());
        answers.truncate(1);
        assert!(caller.0.is_mostly_abandoned());
    }

    #[tokio::test]
    async fn a_file_whose_open_nobody_waits_for_is_closed() {
        let opened = |caller: &mut Caller| {
            caller.0.mark(caller.1, true, None);
            caller.data(&[1, 2]).unwrap();
        };
        let done = |caller: &mut Caller| {
            let outcome = RequestOutcome::Ok(&[3, 4, 0, 0]);
            caller.0.take(ConnectionEvent::Done { tag: caller.1, outcome }, Instant::now()).unwrap();
        };
        let posted = |caller: &mut Caller| {
            let posted = caller.3.1.try_recv().ok()?;
            assert!(posted.answer.is_none());
            let mut bytes = Vec::new();
            posted.request.append(StreamId::default(), 0, &mut bytes);
            Some((posted.request.code(), bytes[4..8].to_vec()))
        };
        let close = Some((RequestCode::CLOSE, vec![1, 2, 3, 4]));
        // The caller goes before the reply, after a timeout, or with the reply in its hands.
        let mut gone = caller(ReplySink::Body(BodyLimit::ANSWER));
        opened(&mut gone);
        gone.2.close();
        done(&mut gone);
        assert_eq!(posted(&mut gone), close);
        let mut late = caller(ReplySink::Body(BodyLimit::ANSWER));
        opened(&mut late);
        late.0.expire(Instant::now() + Duration::from_secs(1000), None);
        done(&mut late);
        assert_eq!(posted(&mut late), close);
        let mut unread = caller(ReplySink::Body(BodyLimit::ANSWER));
        opened(&mut unread);
        done(&mut unread);
        assert_eq!(posted(&mut unread), None);
        drop(unread.2.try_recv().unwrap());
        assert_eq!(posted(&mut unread), close);
        let mut taken = caller(ReplySink::Body(BodyLimit::ANSWER));
        opened(&mut taken);
        done(&mut taken);
        let Ok(Ok(ServerReply::Ok(reply))) = taken.2.try_recv() else { panic!("no reply") };
        reply.handle.unwrap().claim();
        assert_eq!(posted(&mut taken), None);
    }

    #[tokio::test]
    async fn the_number_of_page_frames_is_bounded() {
        let frame = |dlen| StatusFrame {
            streamid: StreamId([0, 1]),
            request: RequestCode::PGREAD,
            resptype: ResponseType::PARTIAL,
            dlen,
            offset: 0,
        };
        let pages = 8;
        let mut caller = caller(ReplySink::Block(DataBufferPool::default().take(64), pages * PAGE_BYTES));
        let most = pages + SPARE_FRAMES_MAX;
        for _ in 0..most {
            caller.0.take(ConnectionEvent::Pages { tag: caller.1, frame: frame(0) }, Instant::now()).unwrap();
        }
        assert_eq!(caller.kept(), 0);
        let more = caller.0.take(ConnectionEvent::Pages { tag: caller.1, frame: frame(0) }, Instant::now());
        assert_eq!(more, Err(ConnectionLoss::TooMuch));
    }
}
