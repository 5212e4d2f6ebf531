//! Each operation of the contract and who does it.

use crate::config::Config;
use crate::describe::Users;
use crate::events::Events;
use crate::inquiry::Locator;
use crate::journal::{DiskFolder, JournalFolder};
use crate::shared::Shared;
use crate::third_party::{ThirdParty, ThirdPartyParts};
use crate::{attribute, change, checksum, inquiry, job, listing, lists, open, prepare, scan};
use base::{Clock, Error, Owner, Supervisor};
use std::sync::Arc;
use std::time::Duration;
use storage::Backend;
use vfs::{Answer, Caller, FileSystem, Operation, ReplyTo, Started, Target, Value};

/// How often the hold times of unfinished files are looked at.
const TICK: Duration = Duration::from_secs(1);

/// What a logical file system is made of.
pub struct Parts {
    /// What it is told.
    pub config: Config,
    /// Where the bytes are.
    pub backend: Arc<dyn Backend>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Names of owners.
    pub users: Arc<dyn Users>,
    /// Who knows where else files are; `None` for a server that stands alone.
    pub locator: Option<Arc<dyn Locator>>,
    /// Where it keeps what must survive the process.
    pub journals: Journals,
}

/// Where a logical file system keeps what must survive the process.
pub struct Journals {
    /// Files that are not yet whole.
    pub persist: Arc<dyn JournalFolder>,
    /// What checkpoints saved.
    pub checkpoints: Arc<dyn JournalFolder>,
}

impl Journals {
    /// In the folders that the configuration names.
    pub fn on_disk(config: &Config) -> Self {
        Self {
            persist: Arc::new(DiskFolder::new(config.persist_folder.clone())),
            checkpoints: Arc::new(DiskFolder::new(config.checkpoint_folder.clone())),
        }
    }
}

/// The logical file system of a data server.
pub struct Logical {
    pub(crate) shared: Arc<Shared>,
}

impl Logical {
    /// Builds it, after what an earlier run left unfinished was put right. Blocks; for the start of the server.
    pub fn new(parts: Parts) -> Result<Arc<Self>, Error> {
        Ok(Arc::new(Self { shared: Shared::new(parts)? }))
    }

    /// Where the bytes are.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.shared.backend
    }

    /// From now on `events` is told what becomes of names. To be set once, before anything is served; later ones are ignored.
    pub fn set_events(&self, events: Arc<dyn Events>) {
        let _ = self.shared.events.set(events);
    }

    /// From now on files are copied from and to other servers. To be called once, before anything is served; without it an
    /// open that belongs to such a copy is refused.
    pub fn copy_for_others(&self, parts: ThirdPartyParts) {
        let third = ThirdParty::new(parts, self.shared.clock.clone());
        let _ = self.shared.third_party.set(Arc::new(third));
    }

    /// Removes unfinished files whose creators did not come back in time, ends third-party copies whose other side does not
    /// come, and lets listings begin that have waited too long for others. To be called about once a second; never blocks. [`Logical::start_timer`] does it.
    pub fn tick(&self) {
        scan::tick(&self.shared);
        if let Some(third) = self.shared.third_party.get() {
            third.tick();
        }
        for (ticket, path) in self.shared.persist.expired() {
            let (shared, other) = (self.shared.clone(), self.shared.clone());
            let job = move |_| {
                if let Some(path) = shared.persist.remove(ticket, shared.backend.as_ref()) {
                    shared.tell_gone(&path);
                }
            };
            job::at(&self.shared.backend, Owner::SERVER, &path, None, job, move || {
                other.persist.postpone(ticket)
            });
        }
    }

    /// Starts the thread that calls [`Logical::tick`] as long as this file system lives; `supervisor` gets its faults.
    pub fn start_timer(self: &Arc<Self>, supervisor: &Supervisor) -> std::io::Result<()> {
        let weak = Arc::downgrade(self);
        let beat = move || {
            while let Some(logical) = weak.upgrade() {
                logical.tick();
                drop(logical);
                std::thread::sleep(TICK);
            }
        };
        let supervisor = supervisor.clone();
        let run = move || {
            supervisor.run("the timer of the file system", || {
                beat();
                Ok(())
            });
        };
        std::thread::Builder::new().name("logical-timer".into()).spawn(run).map(|_| ())
    }
}

impl FileSystem for Logical {
    fn start(&self, caller: &Arc<Caller>, operation: Operation, reply: &ReplyTo) -> Started {
        let shared = &self.shared;
        match operation {
            Operation::Open(target, request) => open::start(shared, caller, target, *request, reply),
            Operation::Stat(target) => stat(shared, target, reply),
            Operation::StatMany(targets) => lists::stat_many(shared, caller, &targets, reply),
            Operation::StatSpace(target) => inquiry::stat_space(shared, target, reply),
            Operation::List(target, detail) => listing::start(shared, caller, target, detail, reply),
            Operation::ListMore(rest) => listing::more(shared, caller, rest, reply),
            Operation::MakeDirectory { target, mode, parents } => {
                change::make_directory(shared, target, mode, parents, reply)
            }
            Operation::RemoveDirectory(target) => change::remove_directory(shared, target, reply),
            Operation::Remove(target) => change::remove(shared, target, reply),
            Operation::Rename { from, to } => change::rename(shared, from, to, reply),
            Operation::ChangeMode { target, mode } => change::set_mode(shared, target, mode, reply),
            Operation::Truncate { target, size } => change::truncate(shared, target, size, reply),
            Operation::Attributes(target, work) => attribute::start(shared, target, work, reply),
            Operation::Locate(target, options) => inquiry::locate(shared, caller, target, options, reply),
            Operation::Checksum(target) => checksum::start(shared, caller, target, reply),
            Operation::CancelChecksum(target) => checksum::cancel(shared, &target),
            Operation::QueryAttributes(target) => inquiry::query_attributes(shared, target, reply),
            Operation::QuerySpace(target) => inquiry::query_space(shared, target, reply),
            Operation::Prepare(request, targets) => prepare::start(shared, caller, request, targets, reply),
            Operation::CancelPrepare { id } => Started::Done(prepare::cancel(shared, &id).into()),
            Operation::QueryPrepare { id, targets } => prepare::query(shared, caller, &id, targets, reply),
            Operation::QueryOpaque { code, argument } => {
                Started::Done(inquiry::query_opaque(shared, code, &argument))
            }
        }
    }
}

/// Runs `work` where blocking on `target`'s file system is allowed.
pub(crate) fn on_pool(
    shared: &Arc<Shared>,
    target: Target,
    reply: &ReplyTo,
    work: impl FnOnce(&Arc<Shared>, &Target) -> Result<Value, Error> + Send + 'static,
) -> Started {
    let (path, inside) = (target.path.clone(), shared.clone());
    job::spawn_at(shared, &path, None, reply, move |_, reply| reply.send(work(&inside, &target).into()))
}

/// An answer that is there already.
pub(crate) fn done(result: Result<Value, Error>) -> Started {
    Started::Done(Answer::from(result))
}

fn stat(shared: &Arc<Shared>, target: Target, reply: &ReplyTo) -> Started {
    let export = match shared.export(&target.path, "Stating") {
        Ok(export) => export,
        Err(error) => return done(Err(error)),
    };
    match shared.metadata_now(&target.path, "locate") {
        Some(Err(error)) => return done(Err(error)),
        Some(Ok(metadata)) => {
            if let Some(stat) = shared.stat_now(&target.path.without_slash(), &metadata, export) {
                return done(Ok(Value::Stat(stat)));
            }
        }
        None => {}
    }
    on_pool(shared, target, reply, |shared, target| {
        let export = shared.export(&target.path, "Stating")?;
        let metadata = shared.metadata(&target.path, "locate")?;
        Ok(Value::Stat(shared.stat(&target.path.without_slash(), &metadata, export)))
    })
}
