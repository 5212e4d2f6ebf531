//! The files of a server: answers to its parents' questions, and reports of names that appear and vanish. A redirector that sees
//! the shared files of its servers (`cms.dfs lookup central`) looks in the same way.
//!
//! This thread never waits for the storage: names in memory are answered on the spot, others by the pool of their file system,
//! and the result comes back through the inbox of the cluster's thread. Change events of different threads can arrive out
//! of order, so an event only triggers a look; the result of the look is reported.

use super::askers::Parent;
use super::engine::{Engine, SharedEngine, aside};
use super::inbox::{Inbox, Looked};
use super::looking::{Looking, Waiting, Wanted};
use base::LogicalPath;
use cluster::tree::{Extensions, LinkId};
use cluster::{Look, LookRules, Looks, Sight, StateReply};
use logical::{Logical, Presence};
use std::collections::VecDeque;
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

/// The files of this server, and who waits for looks at the disk.
pub(super) struct Holdings {
    logical: Arc<Logical>,
    inbox: Arc<Inbox>,
    looking: Looking,
    /// How many begin, and what need not be looked at.
    looks: Looks,
    /// What the location machine wants to know. It is told later: whoever asked is not noted yet.
    asked: VecDeque<Arc<[u8]>>,
    /// Number of the last look.
    last: u64,
    /// Looks that are to begin together, once all that has come is read.
    later: Vec<(LogicalPath, u64)>,
}

impl Holdings {
    pub(super) fn new(logical: Arc<Logical>, inbox: Arc<Inbox>, rules: LookRules) -> Self {
        let looks = Looks::new(rules);
        let (looking, asked) = (Looking::default(), VecDeque::new());
        Self { logical, inbox, looking, looks, asked, last: 0, later: Vec::new() }
    }

    /// When the next look may begin of those that wait for their turn.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.looks.next_deadline()
    }

    /// The location machine wants to know whether a path is there.
    pub(super) fn ask(&mut self, path: Arc<[u8]>) {
        self.asked.push_back(path);
    }

    /// Somebody says that a path is there.
    pub(super) fn appeared(&mut self, path: &[u8]) {
        self.looks.appeared(path);
    }
}

impl Engine {
    /// A parent says that a file is wanted.
    pub(super) fn renew(&mut self, path: &[u8]) {
        // Below a redirector its servers do it.
        if let (Some(holdings), None, Ok(path)) = (&self.holdings, &self.resolver, LogicalPath::parse(path)) {
            holdings.logical.freshen(&path);
        }
    }

    /// A parent asks whether a path is here.
    pub(super) fn look(&mut self, parent: Parent) {
        if self.has_lease(&parent.path) {
            return self.answer_leased(&parent);
        }
        match LogicalPath::parse(&parent.path) {
            Ok(path) => self.look_at(path.without_slash(), Wanted::Answer(parent)),
            Err(_) => self.answer_parent(&parent, StateReply::NotHere),
        }
    }

    fn look_at(&mut self, path: LogicalPath, wanted: Wanted) {
        let now = self.now();
        let Some(holdings) = &mut self.holdings else { return };
        if let Some(waiting) = holdings.looking.get_mut(&path) {
            return waiting.add(wanted);
        }
        let look = match wanted {
            Wanted::Answer(_) | Wanted::Machine => holdings.looks.want(path.as_bytes(), now),
            Wanted::News | Wanted::Folder => Look::Now,
        };
        match (look, wanted) {
            (Look::Now, wanted) => self.begin(path, vec![wanted]),
            (Look::Later, wanted) => {
                holdings.looking.insert(path, Waiting { number: None, wanted: vec![wanted] });
                self.check_alarm();
            }
            (Look::Missing, wanted) => self.tell(&path, Presence::NotHere, wanted),
            (Look::Refused, Wanted::Machine) => self.sighted(path.as_bytes(), Sight::Refused),
            (Look::Refused, _) => {
                tracing::debug!("{} is not looked up: too much waits for its turn", path.shown())
            }
        }
    }

    /// As many looks wait as may, because a disk hangs. Parents wait for an answer and ask again; what they know of names that
    /// changed is void.
    fn not_looked_at(&mut self, path: &LogicalPath, wanted: &Wanted) {
        match wanted {
            Wanted::Machine => self.sighted(path.as_bytes(), Sight::Refused),
            Wanted::News => self.drive(|node, now, out| node.reset(now, out)),
            Wanted::Answer(_) | Wanted::Folder => {
                tracing::debug!("{} is not looked up: too many looks wait for a disk", path.shown());
            }
        }
    }

    fn begin(&mut self, path: LogicalPath, wanted: Vec<Wanted>) {
        let Some(holdings) = &mut self.holdings else { return };
        if let Some(presence) = holdings.logical.look_now(&path) {
            return wanted.into_iter().for_each(|wanted| self.seen(&path, presence, wanted));
        }
        if !holdings.looking.has_room() {
            return wanted.iter().for_each(|wanted| self.not_looked_at(&path, wanted));
        }
        holdings.last += 1;
        holdings.later.push((path.clone(), holdings.last));
        holdings.looking.insert(path, Waiting { number: Some(holdings.last), wanted });
    }

    /// Begins the looks whose turn it is.
    pub(super) fn look_in_turn(&mut self) {
        let now = self.now();
        while let Some(path) = self.holdings.as_mut().and_then(|holdings| holdings.looks.due(now)) {
            let Some((path, holdings)) = LogicalPath::parse(&path).ok().zip(self.holdings.as_mut()) else {
                continue;
            };
            // It may have been looked up meanwhile, because it came or went.
            if holdings.looking.get(&path).is_some_and(|waiting| waiting.number.is_none()) {
                let waiting = holdings.looking.remove(&path);
                self.begin(path, waiting.map(|waiting| waiting.wanted).unwrap_or_default());
            }
        }
        self.look_later();
    }

    /// Looks at what the location machine asked for, and begins the looks at the disk that are due.
    pub(super) fn look_later(&mut self) {
        while let Some(path) = self.holdings.as_mut().and_then(|holdings| holdings.asked.pop_front()) {
            match LogicalPath::parse(&path) {
                Ok(path) => self.look_at(path.without_slash(), Wanted::Machine),
                Err(_) => self.sighted(&path, Sight::Unknown),
            }
        }
        let Some(holdings) = self.holdings.as_mut().filter(|holdings| !holdings.later.is_empty()) else {
            return;
        };
        let inbox = holdings.inbox.clone();
        holdings.logical.look(std::mem::take(&mut holdings.later), &move |looked| inbox.looked(looked));
    }

    fn seen(&mut self, path: &LogicalPath, presence: Presence, wanted: Wanted) {
        let asked = matches!(wanted, Wanted::Answer(_) | Wanted::Machine);
        self.tell(path, presence, wanted);
        let remembers = self.holdings.as_ref().is_some_and(|holdings| holdings.looks.remembers());
        if remembers
            && asked
            && presence == Presence::NotHere
            && let Some(Ok(folder)) = cluster::folder(path.as_bytes()).map(LogicalPath::parse)
        {
            self.look_at(folder, Wanted::Folder);
        }
    }

    /// What a look at the shared file system has shown.
    fn sighted(&mut self, path: &[u8], sight: Sight) {
        self.resolve(|resolver, now, out| resolver.looked(path, sight, now, out));
    }

    fn tell(&mut self, path: &LogicalPath, presence: Presence, wanted: Wanted) {
        let now = self.now();
        match (wanted, presence) {
            (Wanted::Machine, presence) => {
                let sight = match presence {
                    Presence::Here { pending } => Sight::Here { pending },
                    Presence::NotHere => Sight::NotHere,
                    Presence::Unknown => Sight::Unknown,
                };
                self.sighted(path.as_bytes(), sight);
            }
            (Wanted::Folder, Presence::NotHere) => {
                if let Some(holdings) = self.holdings.as_mut().filter(|one| one.logical.exports(path)) {
                    holdings.looks.missing(path.as_bytes(), now);
                }
            }
            (Wanted::Folder, _) => {}
            (Wanted::Answer(parent), Presence::Here { pending }) => {
                self.leases.exists(path.as_bytes());
                self.answer_parent(&parent, StateReply::Have { pending });
            }
            (Wanted::Answer(parent), Presence::NotHere) => self.answer_parent(&parent, StateReply::NotHere),
            (Wanted::News, Presence::Here { pending }) => {
                self.leases.exists(path.as_bytes());
                if let Some(holdings) = &mut self.holdings {
                    holdings.appeared(path.as_bytes());
                }
                self.announce(path.as_bytes(), pending);
            }
            // The client that is to create it may be on its way.
            (Wanted::News, Presence::NotHere) if self.has_lease(path.as_bytes()) => {}
            (Wanted::News, Presence::NotHere) => self.retract(path.as_bytes()),
            // A parent that hears nothing does not take that for an absence: a server of our own would have said so.
            (_, Presence::Unknown) => {}
        }
    }

    /// A name came to exist or ceased to, or was sought in vain.
    pub(super) fn name_changed(&mut self, path: &LogicalPath) {
        // Looks under way may have run before the change, so their requests are answered by the next look.
        let plain = path.without_slash();
        let waiting = self.holdings.as_mut().and_then(|holdings| holdings.looking.remove(&plain));
        if self.parents().is_empty() {
            return;
        }
        self.look_at(plain.clone(), Wanted::News);
        for wanted in waiting.map(|waiting| waiting.wanted).unwrap_or_default() {
            self.look_at(plain.clone(), wanted);
        }
        self.end_broken();
    }

    /// More names changed than are known, or a directory was renamed with all that is below it: what parents know of this
    /// server is void, and looks under way may have been before the change.
    pub(super) fn names_lost(&mut self) {
        self.drive(|node, now, out| node.reset(now, out));
        let Some(holdings) = &mut self.holdings else { return };
        for (path, waiting) in holdings.looking.take_begun() {
            self.begin(path, waiting.wanted);
        }
        self.end_broken();
    }

    /// Looks at the disk have shown something.
    pub(super) fn looked(&mut self, looked: impl Iterator<Item = Looked>) {
        for (path, number, presence) in looked {
            self.looked_at(&path, number, presence);
        }
        self.end_broken();
    }

    fn looked_at(&mut self, path: &LogicalPath, number: u64, presence: Presence) {
        let Some(holdings) = &mut self.holdings else { return };
        // An earlier look than the one that is waited for tells of an earlier time.
        if holdings.looking.get(path).is_none_or(|waiting| waiting.number != Some(number)) {
            return;
        }
        let waiting = holdings.looking.remove(path).map(|waiting| waiting.wanted);
        for wanted in waiting.unwrap_or_default() {
            self.seen(path, presence, wanted);
        }
    }

    /// A parent has taken this node in: one that wants to know at once what is here is told.
    pub(super) fn new_parent(&mut self, link: LinkId) {
        let wants = |line: &super::line::Line| line.extensions.contains(Extensions::INVENTORY);
        // What a redirector sees is its servers'.
        let tells = self.resolver.is_none() && self.lines.get(&link).is_some_and(wants);
        let (Some(holdings), true) = (&self.holdings, tells) else { return };
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
