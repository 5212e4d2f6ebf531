//! The requests in flight on a channel: where their data goes, until when they are waited for.

use slab::Slab;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;
use wire::xroot::reply::{StatusFrame, Wait};

use super::{Answer, Failed, Lost, PagesAt, Received, Sink, Until};
use crate::blocks::Block;
use crate::connection::{Event, Outcome};

/// Most bytes of an answer without a block: listings of some million entries.
const BODY_BYTES_MAX: usize = 512 * 1024 * 1024;

/// The requests in flight by tag. One whose caller has given up stays until its answer comes: its stream id is in use.
#[derive(Debug)]
pub(super) struct Book {
    requests: Slab<Entry>,
    deadlines: BTreeSet<(Instant, usize)>,
    /// Requests whose data takes each lane.
    loads: Vec<usize>,
}

#[derive(Debug)]
struct Entry {
    until: Until,
    lane: usize,
    made: Instant,
    /// How long nothing may come for it.
    patience: Duration,
    /// When data last came for it.
    heard: Option<Instant>,
    sink: Sink,
    body: Vec<u8>,
    pages: Vec<PagesAt>,
    /// `None` when nobody waits.
    answer: Option<oneshot::Sender<Result<Answer, Failed>>>,
}

impl Book {
    pub(super) fn new(lanes: usize) -> Self {
        Self { requests: Slab::new(), deadlines: BTreeSet::new(), loads: vec![0; lanes] }
    }

    /// The bound lane with the fewest requests; 0 when there is none.
    pub(super) fn idlest_lane(&self) -> usize {
        let bound = self.loads.iter().enumerate().skip(1);
        bound.min_by_key(|(_, load)| **load).map_or(0, |(lane, _)| lane)
    }

    /// Notes a request and returns its tag.
    pub(super) fn add(
        &mut self,
        until: Until,
        sink: Sink,
        answer: Option<oneshot::Sender<Result<Answer, Failed>>>,
        lane: usize,
        now: Instant,
    ) -> u64 {
        let waited_for = answer.is_some();
        let patience = until.answer.duration_since(now);
        let entry = Entry {
            until,
            lane,
            made: now,
            patience,
            heard: None,
            sink,
            body: Vec::new(),
            pages: Vec::new(),
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

    /// Takes back what [`Book::add`] noted, because it could not be made.
    pub(super) fn forget(&mut self, tag: u64) {
        if let Some(entry) = self.remove(tag)
            && let Some(answer) = entry.answer
        {
            let _ = answer.send(Err(Failed::Lost { reason: Lost::Closed, sent: false }));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// When the next request is given up.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    fn remove(&mut self, tag: u64) -> Option<Entry> {
        let place = usize::try_from(tag).ok()?;
        let entry = self.requests.try_remove(place)?;
        self.deadlines.remove(&(entry.until.answer, place));
        if let Some(load) = self.loads.get_mut(entry.lane) {
            *load -= 1;
        }
        Some(entry)
    }

    fn entry(&mut self, tag: u64) -> Option<&mut Entry> {
        self.requests.get_mut(usize::try_from(tag).ok()?)
    }

    /// The block that the data of a request goes into, with the room that is left in it.
    pub(super) fn block(&mut self, tag: u64, now: Instant) -> Option<(&mut Block, usize)> {
        let entry = self.entry(tag)?;
        entry.heard = Some(now);
        match &mut entry.sink {
            Sink::Block(block, most) => {
                let room = most.saturating_sub(block.len());
                Some((block, room))
            }
            Sink::Body => None,
        }
    }

    /// Takes what has happened.
    ///
    /// # Errors
    /// The server sends more than was asked for: the connection is of no more use.
    pub(super) fn take(&mut self, event: Event<'_>, now: Instant) -> Result<(), Lost> {
        match event {
            Event::Data { tag, bytes } => {
                self.entry(tag).map_or(Ok(()), |entry| {
                    entry.heard = Some(now);
                    entry.take(bytes)
                })?;
            }
            Event::Pages { tag, frame } => {
                self.entry(tag).map_or(Ok(()), |entry| entry.pages(frame))?;
            }
            Event::Later { tag, wait } => self.extend(tag, &wait, now),
            Event::Done { tag, outcome } => {
                if let Some(entry) = self.remove(tag) {
                    entry.finish(outcome)?;
                }
            }
            Event::Ready | Event::Notice { .. } => {}
        }
        Ok(())
    }

    /// The answer comes later: it is waited for that long.
    fn extend(&mut self, tag: u64, wait: &Wait<'_>, now: Instant) {
        let Some(entry) = self.entry(tag) else { return };
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

    /// Gives up what is due. An answer that is on its way is waited for as long as its data comes, and a request that may
    /// not have left yet (`sending`) as long as bytes leave.
    pub(super) fn expire(&mut self, now: Instant, sending: Option<Instant>) {
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
            if let Some(answer) = entry.answer.take() {
                let _ = answer.send(Err(Failed::TimedOut(now.duration_since(entry.made).as_secs())));
            }
        }
    }

    /// Ends everything: the connection is gone.
    pub(super) fn fail_all(&mut self, reason: &Lost) {
        self.deadlines.clear();
        for entry in self.requests.drain() {
            if let Some(answer) = entry.answer {
                let _ = answer.send(Err(Failed::Lost { reason: reason.clone(), sent: true }));
            }
        }
    }
}

impl Entry {
    fn take(&mut self, bytes: &[u8]) -> Result<(), Lost> {
        let (place, most) = match &mut self.sink {
            Sink::Block(block, most) => (block.data(), *most),
            Sink::Body => (&mut self.body, BODY_BYTES_MAX),
        };
        if bytes.len() > most.saturating_sub(place.len()) {
            return Err(Lost::TooMuch);
        }
        place.extend_from_slice(bytes);
        Ok(())
    }

    fn pages(&mut self, frame: StatusFrame) -> Result<(), Lost> {
        let length = usize::try_from(frame.dlen).unwrap_or(0);
        let (at, most) = match &self.sink {
            Sink::Block(block, most) => (block.len(), *most),
            Sink::Body => (self.body.len(), BODY_BYTES_MAX),
        };
        if length > most.saturating_sub(at) {
            return Err(Lost::TooMuch);
        }
        self.pages.push(PagesAt { frame, at });
        Ok(())
    }

    fn finish(mut self, outcome: Outcome<'_>) -> Result<(), Lost> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let answer = match outcome {
            Outcome::Ok(bytes) => {
                self.take(bytes)?;
                let block = match self.sink {
                    Sink::Block(block, _) => Some(block),
                    Sink::Body => None,
                };
                Answer::Ok(Received { body: self.body, block, pages: self.pages })
            }
            Outcome::Error(error) => Answer::Error { code: error.code, text: text(error.text) },
            Outcome::Redirect(redirect) => {
                Answer::Redirect { port: redirect.port, host: redirect.host.to_vec() }
            }
            Outcome::Wait(wait) => {
                let seconds = u64::try_from(wait.seconds).unwrap_or(0);
                Answer::Wait { pause: Duration::from_secs(seconds), text: text(wait.text) }
            }
        };
        if let Some(waiting) = self.answer {
            let _ = waiting.send(Ok(answer));
        }
        Ok(())
    }
}
