//! What a server has: answers to its parents' questions, and word of names that come and go.
//!
//! The storage is never waited for: what is in memory is answered on the spot, the rest by the pool of its file system,
//! and comes back as a word to the cluster's thread. Words of different threads may overtake each other, so what is told
//! upward is what is there when the word arrives.

use super::askers::Parent;
use super::engine::{Engine, SharedEngine, aside};
use base::LogicalPath;
use cluster::StateReply;
use cluster::tree::{Extensions, LinkId};
use logical::{Events, Logical, Presence};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use wire::cms::flags::InventoryModifier;
use wire::cms::message::PathBatch;
use wire::cms::{Message as Wire, StreamId};

/// Bytes that may wait for a parent while an inventory is sent to it: it makes way for everything else.
const INVENTORY_WAITING_MAX: usize = 256 * 1024;

/// Between looks at whether a parent takes more of an inventory.
const INVENTORY_PAUSE: Duration = Duration::from_millis(10);

/// What the storage has to say.
pub(super) enum Word {
    /// A name came to exist or ceased to, or was sought in vain.
    Changed(LogicalPath),
    /// A directory was renamed with all that is below it.
    Moved,
    /// What looks at the disk have shown, each with its number.
    Looked(Vec<(LogicalPath, u64, Presence)>),
}

/// Hears what becomes of names, on any thread.
pub(super) struct Ear(pub(super) mpsc::UnboundedSender<Word>);

impl Events for Ear {
    fn made(&self, path: &LogicalPath, _pending: bool) {
        // Without a receiver the thread has ended.
        self.0.send(Word::Changed(path.clone())).ok();
    }

    fn gone(&self, path: &LogicalPath) {
        self.0.send(Word::Changed(path.clone())).ok();
    }

    fn moved(&self, _: &LogicalPath, _: &LogicalPath) {
        self.0.send(Word::Moved).ok();
    }
}

/// The files of this server, and who waits for looks at the disk.
pub(super) struct Holdings {
    logical: Arc<Logical>,
    words: mpsc::UnboundedSender<Word>,
    looking: HashMap<LogicalPath, (u64, Vec<Wanted>)>,
    /// Number of the last look.
    last: u64,
    /// Looks that are to begin together, once all that has come is read.
    later: Vec<(LogicalPath, u64)>,
}

/// Why the disk is looked at.
enum Wanted {
    /// A parent asked.
    Answer(Parent),
    /// A name came or went: parents are told what is there.
    News,
}

impl Holdings {
    pub(super) fn new(logical: Arc<Logical>, words: mpsc::UnboundedSender<Word>) -> Self {
        Self { logical, words, looking: HashMap::new(), last: 0, later: Vec::new() }
    }
}

impl Engine {
    /// A parent says that a file is wanted.
    pub(super) fn renew(&mut self, path: &[u8]) {
        if let (Some(holdings), Ok(path)) = (&self.holdings, LogicalPath::parse(path)) {
            holdings.logical.freshen(&path);
        }
    }

    /// A parent asks whether a path is here.
    pub(super) fn look(&mut self, parent: Parent) {
        match LogicalPath::parse(&parent.path) {
            Ok(path) => self.look_at(path.without_slash(), Wanted::Answer(parent)),
            Err(_) => self.answer_parent(&parent, StateReply::NotHere),
        }
    }

    fn look_at(&mut self, path: LogicalPath, wanted: Wanted) {
        let Some(holdings) = &mut self.holdings else { return };
        if let Some((_, waiting)) = holdings.looking.get_mut(&path) {
            waiting.push(wanted);
            return;
        }
        if let Some(presence) = holdings.logical.look_now(&path) {
            return self.seen(&path, presence, wanted);
        }
        holdings.last += 1;
        holdings.later.push((path.clone(), holdings.last));
        holdings.looking.insert(path, (holdings.last, vec![wanted]));
    }

    /// Begins the looks at the disk that are due.
    pub(super) fn look_later(&mut self) {
        let Some(holdings) = self.holdings.as_mut().filter(|holdings| !holdings.later.is_empty()) else {
            return;
        };
        let words = holdings.words.clone();
        holdings.logical.look(std::mem::take(&mut holdings.later), &move |looked| {
            // Without a receiver the thread has ended.
            words.send(Word::Looked(looked)).ok();
        });
    }

    fn seen(&mut self, path: &LogicalPath, presence: Presence, wanted: Wanted) {
        match (wanted, presence) {
            (Wanted::Answer(parent), Presence::Here { pending }) => {
                self.answer_parent(&parent, StateReply::Have { pending });
            }
            (Wanted::Answer(parent), Presence::NotHere) => self.answer_parent(&parent, StateReply::NotHere),
            (Wanted::News, Presence::Here { pending }) => self.announce(path.as_bytes(), pending),
            (Wanted::News, Presence::NotHere) => self.retract(path.as_bytes()),
            // A parent that hears nothing does not take that for an absence: a server of our own would have said so.
            (_, Presence::Unknown) => {}
        }
    }

    /// The storage has something to say.
    pub(super) fn word(&mut self, word: Word) {
        match word {
            Word::Changed(path) => {
                // Looks under way may have been before the change: whoever waits for them is told what is there now.
                let plain = path.without_slash();
                let waiting = self.holdings.as_mut().and_then(|holdings| holdings.looking.remove(&plain));
                if self.parents().is_empty() {
                    return;
                }
                self.look_at(plain.clone(), Wanted::News);
                for wanted in waiting.map(|(_, waiting)| waiting).unwrap_or_default() {
                    self.look_at(plain.clone(), wanted);
                }
            }
            Word::Moved => self.drive(|node, now, out| node.reset(now, out)),
            Word::Looked(looked) => {
                for (path, number, presence) in looked {
                    self.looked(&path, number, presence);
                }
            }
        }
        self.look_later();
        self.end_broken();
    }

    fn looked(&mut self, path: &LogicalPath, number: u64, presence: Presence) {
        let Some(holdings) = &mut self.holdings else { return };
        // An earlier look than the one that is waited for tells of an earlier time.
        if holdings.looking.get(path).is_none_or(|(current, _)| *current != number) {
            return;
        }
        let waiting = holdings.looking.remove(path).map(|(_, waiting)| waiting);
        for wanted in waiting.unwrap_or_default() {
            self.seen(path, presence, wanted);
        }
    }

    /// A parent has taken this node in: one that wants to know at once what is here is told.
    pub(super) fn new_parent(&mut self, link: LinkId) {
        let wants = |line: &super::line::Line| line.extensions.contains(Extensions::INVENTORY);
        let (Some(holdings), true) = (&self.holdings, self.lines.get(&link).is_some_and(wants)) else {
            return;
        };
        let most = self.settings.inventory_max;
        if most > 0
            && let Some(engine) = self.shared()
        {
            tokio::task::spawn_local(tell_all(engine, link, holdings.logical.clone(), most));
        }
    }
}

/// Tells a parent of all files, as fast as it takes them.
async fn tell_all(engine: SharedEngine, link: LinkId, logical: Arc<Logical>, most: usize) {
    let (give, mut given) = mpsc::channel::<(PathBatch, bool)>(2);
    aside("inventory", move || collect(&logical, most, &give));
    let mut begin = InventoryModifier::FIRST;
    while let Some((batch, last)) = given.recv().await {
        loop {
            let waiting = engine.borrow_mut().line(link).map(|line| line.outbox.waiting());
            match waiting {
                None => return,
                Some(waiting) if waiting < INVENTORY_WAITING_MAX => break,
                Some(_) => tokio::time::sleep(INVENTORY_PAUSE).await,
            }
        }
        let end = if last { InventoryModifier::LAST } else { InventoryModifier::NONE };
        let message = Wire::Inventory(batch.message(begin | end));
        let mut engine = engine.borrow_mut();
        engine.put(link, |peer, out| message.encode(StreamId::NONE, peer, out));
        engine.end_broken();
        begin = InventoryModifier::NONE;
    }
}

/// Walks over all files and gives their paths in batches; ends when nobody takes them.
fn collect(logical: &Logical, most: usize, give: &mpsc::Sender<(PathBatch, bool)>) {
    let mut batch = PathBatch::default();
    let mut count = 0;
    let mut whole = true;
    logical.walk(&mut |path| {
        count += 1;
        if count > most {
            whole = false;
            return false;
        }
        // What no message can hold is asked for when it is wanted.
        if !batch.push(path.as_bytes()).unwrap_or(true) {
            let full = std::mem::take(&mut batch);
            batch.push(path.as_bytes()).ok();
            whole = give.blocking_send((full, false)).is_ok();
        }
        whole
    });
    give.blocking_send((batch, whole)).ok();
}
