//! The thread of the cluster node: its start, its loop and its end.

use super::cluster_key::ClusterKey;
use super::engine::{ClusterEngine, Drivers, SharedEngine};
use super::front::ClusterFront;
use super::health::Health;
use super::inbox::{Inbox, InboxBatch, InboxRequest, Job, Receiver, StorageEvents};
use super::lease_record::LeaseRecord;
use super::leases::SharedLeases;
use super::location_driver::LocationDriver;
use super::mounts::Mounts;
use super::operations::Executor;
use super::pending_requests::RequestOrigin;
use super::presence::ChildPresence;
use super::server_driver::ServerDriver;
use super::server_files::ServerFiles;
use super::settings::{Listen, Settings};
use super::sockets::{self, Dialer};
use super::state_files::{NodeStateFiles, drained};
use super::tree_driver::TreeDriver;
use crate::error::StartError;
use crate::process;
use crate::reader_redirect::ReaderRedirect;
use auth::SystemRng;
use base::{Clock, Supervisor};
use cluster::tree::{Address, ClusterNode};
use cluster::{Cache, Cell, Chooser, LocationResolver, NameChange, ResolveSettings};
use config::NodeRole;
use logical::Logical;
use session::LiveValue;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};
use storage::NameRules;
use tokio::task::LocalSet;

/// Maximum time that a caller of [`ClusterThread::look`] waits for the thread.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// Minimum delay of a wake-up that counts as late: the machine or the process was stopped, or is
/// overloaded.
const LATE: Duration = Duration::from_millis(250);

/// After a late wake-up, arrived messages are read for this time. Only then do missing replies
/// count as timeouts and nodes as lost.
const CATCH_UP: Duration = Duration::from_millis(100);

/// The cluster node of this process, as seen by the rest of the process. Dropping it ends the node.
pub struct ClusterThread {
    inbox: Arc<Inbox>,
    address: Option<SocketAddr>,
    front: Option<Arc<ClusterFront>>,
    suspended: Arc<AtomicBool>,
    reader_redirect: Arc<ReaderRedirect>,
    leases: Arc<SharedLeases>,
    away: LiveValue,
    thread: Option<std::thread::JoinHandle<()>>,
    /// Dropped after the thread that it reports to.
    _health: Health,
    key: Option<Arc<ClusterKey>>,
}

/// A view of the node of a cluster.
#[derive(Clone)]
pub(crate) struct ClusterView(Arc<Inbox>);

impl ClusterView {
    /// Has `look` run with the engine on its thread. Returns the channel on which the result arrives; `None` if
    /// the thread takes no job.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut ClusterEngine) -> T + Send + 'static,
    ) -> Option<std::sync::mpsc::Receiver<T>> {
        let (tell, told) = std::sync::mpsc::channel();
        let work = move |engine: &mut ClusterEngine| {
            // The caller may no longer be waiting.
            tell.send(look(engine)).ok();
        };
        self.0.job(Box::new(work)).then_some(told)
    }
}

/// The parts that exist before the thread.
struct ClusterParts {
    settings: Settings,
    clock: Arc<dyn Clock>,
    listener: Option<std::net::TcpListener>,
    resolver: Option<LocationResolver>,
    logical: Option<Arc<Logical>>,
    reader_redirect: Arc<ReaderRedirect>,
    leases: Arc<SharedLeases>,
    away: LiveValue,
    inbox: Arc<Inbox>,
    supervisor: Supervisor,
}

impl ClusterThread {
    /// Starts the node: opens its port if it has children, and starts to look for parents.
    ///
    /// Clients are served at `data_port`. `logical` has the files of a server; without it the node
    /// is a member that has no files. A redirector that looks files up itself
    /// ([`Settings::looks_itself`]) reads the files shared by its servers from it. The threads of
    /// the node report to `supervisor` if they end prematurely.
    ///
    /// # Errors
    /// [`StartError`] if the port cannot be opened or the thread cannot be started.
    pub fn start(
        mut settings: Settings,
        clock: Arc<dyn Clock>,
        data_port: u16,
        logical: Option<Arc<Logical>>,
        supervisor: &Supervisor,
    ) -> Result<Self, StartError> {
        let redirects = settings.role.redirects();
        let listener = redirects.then(|| open_port(settings.listen)).transpose()?;
        let address = listener.as_ref().and_then(|listener| listener.local_addr().ok());
        complete(&mut settings, data_port, address.map(|address| address.port()));
        let inbox = Arc::<Inbox>::default();
        let suspended = Arc::new(AtomicBool::new(false));
        let resolver = redirects.then(|| recovered(resolver(&settings, &*clock), &settings, &*clock));
        let front = resolver.as_ref().map(|resolver| {
            let busy = settings.policy.waits.lookup;
            let shared = resolver.shared().clone();
            Arc::new(ClusterFront::new(shared, clock.clone(), inbox.clone(), suspended.clone(), busy))
        });
        let health = Self::measure(&mut settings, logical.as_ref(), &inbox, supervisor)?;
        let reader_redirect = Arc::<ReaderRedirect>::default();
        let jobs = inbox.clone();
        let end_leases = move || {
            // If the queue refuses this job, the next deadline does the work.
            jobs.job(Box::new(ClusterEngine::end_leases));
        };
        let leases = SharedLeases::new(clock.clone(), Box::new(end_leases), settings.place_file.as_deref());
        let away = LiveValue::default();
        let key = settings.key.clone();
        let parts = ClusterParts {
            settings,
            clock,
            listener,
            resolver,
            logical,
            reader_redirect: reader_redirect.clone(),
            leases: leases.clone(),
            away: away.clone(),
            inbox: inbox.clone(),
            supervisor: supervisor.clone(),
        };
        let supervisor = supervisor.clone();
        let system = |what| move |source| StartError::System { what, source };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(system("the cluster's runtime"))?;
        let thread = std::thread::Builder::new()
            .name("cluster".into())
            .spawn(move || {
                supervisor.run("the cluster thread", || LocalSet::new().block_on(&runtime, run(parts)));
                // Does not wait for disk walks and name look-ups.
                runtime.shutdown_background();
            })
            .map_err(system("the cluster's thread"))?;
        Ok(Self {
            inbox,
            address,
            front,
            suspended,
            reader_redirect,
            leases,
            away,
            thread: Some(thread),
            _health: health,
            key,
        })
    }

    /// Starts to measure the load and space of this node. The first values are available when this
    /// returns.
    fn measure(
        settings: &mut Settings,
        logical: Option<&Arc<Logical>>,
        inbox: &Arc<Inbox>,
        supervisor: &Supervisor,
    ) -> Result<Health, StartError> {
        let inbox = inbox.clone();
        let report = move |report| {
            // If the queue refuses this report, the next report replaces it.
            inbox.job(Box::new(move |engine: &mut ClusterEngine| engine.apply_health_report(report)));
        };
        // A redirector does not report the files that it sees as its own.
        let backend = logical.filter(|_| !settings.role.redirects()).map(|logical| logical.backend());
        Health::start(std::mem::take(&mut settings.health), backend, report, supervisor)
            .map_err(|source| StartError::System { what: "a thread that measures", source })
    }

    /// Returns the address to which other nodes connect; `None` for a server.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Returns the key by which nodes authenticate.
    pub(crate) fn key(&self) -> Option<&Arc<ClusterKey>> {
        self.key.as_ref()
    }

    /// Returns the front, through which client connections query the cluster; `None` for a server.
    pub(crate) fn front(&self) -> Option<&Arc<ClusterFront>> {
        self.front.as_ref()
    }

    /// Returns the values of `query config` that this node changes. `scalla.away` are the children
    /// that are expected and disconnected: their number, then their addresses.
    pub(crate) fn live_values(&self) -> Vec<(String, LiveValue)> {
        let away = self.front.as_ref().map(|_| ("scalla.away".to_owned(), self.away.clone()));
        away.into_iter().collect()
    }

    /// Runs `look` with the engine on its thread and waits for the result; `None` if the thread
    /// does not answer. It must not be called from an event loop of connections.
    pub fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut ClusterEngine) -> T + Send + 'static,
    ) -> Option<T> {
        self.view().ask(look)?.recv_timeout(LOOK_MAX).ok()
    }

    /// Returns a view of the node that other threads can keep. It does not keep the thread.
    pub(crate) fn view(&self) -> ClusterView {
        ClusterView(self.inbox.clone())
    }

    fn run(&self, job: Job) -> bool {
        self.inbox.job(job)
    }

    /// Redirects clients elsewhere, or accepts them again. Files that no other node has are still
    /// served.
    pub fn drain(&self, draining: bool) {
        let work = move |engine: &mut ClusterEngine| engine.drain(draining);
        self.run(Box::new(work));
    }

    /// Returns a function that takes reports whether the origin of this node, a proxy, has failed. It returns
    /// `false` if the queue is full.
    pub(crate) fn origin_reports(&self) -> impl Fn(bool) -> bool + Send + 'static {
        let inbox = self.inbox.clone();
        move |has_failed| inbox.job(Box::new(move |engine| engine.set_origin_failed(has_failed)))
    }

    /// Returns the flag that the code that opens files checks: whether clients are redirected
    /// elsewhere.
    pub(crate) fn reader_redirect(&self) -> &Arc<ReaderRedirect> {
        &self.reader_redirect
    }

    /// Returns the files that clients are expected to create here.
    pub(crate) fn leases(&self) -> &Arc<SharedLeases> {
        &self.leases
    }

    /// Carries out an order of the administrator for the child in this slot and keeps it over
    /// restarts. Returns whether the child exists; `None` if the thread does not answer.
    pub fn order_child(&self, order: super::NodeOrder, slot: u8) -> Option<bool> {
        self.look(move |engine| engine.drain_child(slot, order.takes_out()))
    }

    /// Carries out an order of the administrator for this node.
    pub(crate) fn order(&self, order: super::NodeOrder) {
        match order {
            super::NodeOrder::Suspend | super::NodeOrder::Resume => self.suspend(order.takes_out()),
            super::NodeOrder::Drain | super::NodeOrder::Undrain => self.drain(order.takes_out()),
        }
    }

    /// Suspends this node, so that it accepts no clients, or resumes it. A server reports this to
    /// its parents, a manager to its clients.
    pub fn suspend(&self, suspended: bool) {
        self.suspended.store(suspended, Ordering::Relaxed);
        let work = move |engine: &mut ClusterEngine| engine.suspend(suspended);
        self.run(Box::new(work));
    }
}

impl Drop for ClusterThread {
    fn drop(&mut self) {
        self.inbox.stop();
        if let Some(thread) = self.thread.take() {
            // The thread itself has reported its end.
            thread.join().ok();
        }
    }
}

/// Fills in the values that are known only once the ports are open.
fn complete(settings: &mut Settings, data_port: u16, cluster_port: Option<u16>) {
    if let (Some(parent), Some(port)) = (&mut settings.parent, cluster_port)
        && parent.address.port() == 0
    {
        parent.address = Address::new(parent.address.host(), port);
    }
    if let Some(parent) = &mut settings.parent
        && settings.role != NodeRole::Supervisor
    {
        parent.door.get_or_insert_with(|| Address::new(parent.address.host(), data_port));
    }
    let remembered = settings.place_file.as_deref().and_then(place);
    for child in &mut settings.children {
        if child.login.data_port == 0 {
            child.login.data_port = data_port;
        }
        if child.login.cluster_port == 0 {
            child.login.cluster_port = cluster_port.unwrap_or(0);
        }
        if child.remembered.is_none() {
            child.remembered.clone_from(&remembered);
        }
    }
    settings.resolve.has_parents = !settings.children.is_empty();
    settings.resolve.supervises = settings.role == NodeRole::Supervisor;
}

/// Reads the address of the parent that this node had before its restart.
fn place(file: &std::path::Path) -> Option<Address> {
    let text = super::state_file::read(file)?;
    let (host, port) = text.trim_end().split_once(' ')?;
    Some(Address::new(host, port.parse().ok()?))
}

fn resolver(settings: &Settings, clock: &dyn Clock) -> LocationResolver {
    let cache = Cache::new(&settings.cache, &mut SystemRng);
    let chooser = Chooser::new(settings.policy.clone());
    let mut cell = Cell::new(&settings.own_addresses);
    // No child has logged in yet.
    cell.set_quorum(false);
    let today = clock.today().duration_since(UNIX_EPOCH).unwrap_or_default();
    let resolve = ResolveSettings { started: today.saturating_sub(clock.now()), ..settings.resolve };
    LocationResolver::new(cell, cache, chooser, resolve, Box::new(SystemRng))
}

/// Restores the records of an earlier run into the location machine.
fn recovered(mut resolver: LocationResolver, settings: &Settings, clock: &dyn Clock) -> LocationResolver {
    if let Some(place) = settings.place_file.as_deref() {
        resolver.await_lessees(NodeStateFiles::lessees(place), clock.now());
        let has_parents = settings.resolve.has_parents;
        if let Some(time) = LeaseRecord::read(place, clock.today()).filter(|_| has_parents) {
            resolver.recover_leases(time, clock.now());
        }
    }
    resolver
}

/// Opens the port for other nodes.
fn open_port(listen: Listen) -> Result<std::net::TcpListener, StartError> {
    let port = listen.port;
    process::open_when_free(|| sockets::open(listen), io::Error::kind).map_err(|source| StartError::Port {
        port,
        owner: process::port_owner(port),
        source,
    })
}

/// Runs the thread.
async fn run(parts: ClusterParts) -> Result<(), String> {
    let ClusterParts {
        mut settings,
        clock,
        listener,
        resolver,
        logical,
        reader_redirect,
        leases,
        away,
        inbox,
        supervisor,
    } = parts;
    let _receiver = Receiver(inbox.clone());
    let admission = settings.admission.take();
    let children = std::mem::take(&mut settings.children);
    if let (Some(parent), Some(place)) = (&mut settings.parent, &settings.place_file) {
        parent.first_start &= !NodeStateFiles::has_formed(place);
    }
    let mut node = ClusterNode::new(settings.parent.clone(), children, &mut SystemRng, clock.now());
    node.set_drained(settings.place_file.as_deref().map(drained).unwrap_or_default());
    node.set_blacklist(std::mem::take(&mut settings.blacklist), clock.now(), &mut Vec::new());
    let own = logical.clone().filter(|_| resolver.is_none());
    let executor = own.clone().map(|logical| {
        let programs = std::mem::take(&mut settings.programs);
        let acts_for_users = logical.acts_for_users();
        let disk = (settings.local_root.clone(), NameRules::new(&settings.name_rules));
        Executor::new((logical, acts_for_users), programs, disk)
    });
    if let Some(logical) = own {
        logical.set_events(Arc::new(StorageEvents(inbox.clone())));
        settings.complete_inventory = settings.complete_inventory && watch_mounts(&inbox, &supervisor);
    }
    let results = inbox.clone();
    let server_files = logical.map(|logical| {
        ServerFiles::new(logical, Arc::new(move |found| results.add_stats(found)), settings.looks)
    });
    let settings = Rc::new(settings);
    let tree = TreeDriver::new(node, settings.clone(), clock.clone());
    let drivers = match resolver {
        Some(resolver) => {
            let presence = ChildPresence::new(away, settings.place_file.as_deref(), clock.now());
            let location = Some(LocationDriver::new(resolver, server_files, settings.clone(), presence));
            Drivers { tree, location, server: None }
        }
        None => {
            let server = Some(ServerDriver::new(server_files, executor, leases, &settings));
            Drivers { tree, location: None, server }
        }
    };
    let engine = ClusterEngine::new(settings, drivers, reader_redirect, |engine| Box::new(Dialer(engine)));
    if let Some(listener) = listener {
        let key = engine.borrow().settings().key.clone();
        log_who_may_join(engine.borrow().settings(), admission.is_some());
        let listener = tokio::net::TcpListener::from_std(listener)
            .map_err(|error| format!("the cluster port cannot be served: {error}"))?;
        let ready_in = key.map(|key| key.ready_in()).unwrap_or_default();
        let accepting = sockets::accept(engine.clone(), listener, admission);
        spawn_essential(&supervisor, "the cluster port", async move {
            tokio::time::sleep(ready_in).await;
            accepting.await
        });
    }
    let key = engine.borrow().settings().key.clone();
    if let Some(key) = key {
        spawn_essential(&supervisor, "the refresh of the key of the cluster", sockets::refresh(key));
    }
    serve(&engine, &inbox, &supervisor, clock).await;
    Ok(())
}

/// Serves the work queue until the node is to end.
async fn serve(engine: &SharedEngine, inbox: &Inbox, supervisor: &Supervisor, clock: Arc<dyn Clock>) {
    let mut turn = InboxBatch::default();
    // The values measured so far are sent with the first login.
    inbox.take(&mut turn, false);
    if work_off(engine, &mut turn) {
        return;
    }
    engine.borrow_mut().start();
    let frames = engine.borrow().waiting_frames();
    spawn_essential(supervisor, "the cluster timer", keep_time(engine.clone(), clock));
    loop {
        inbox.wait().await;
        inbox.take(&mut turn, frames.wait());
        if work_off(engine, &mut turn) {
            break;
        }
        // Lets the socket tasks run.
        tokio::task::yield_now().await;
    }
    engine.borrow_mut().leave();
    // Lets the last messages be sent.
    tokio::task::yield_now().await;
}

/// Logs whether nodes authenticate at the cluster port, and the operations open to anyone if it
/// accepts all hosts. `is_restricted` is set if the configuration restricts hosts.
fn log_who_may_join(settings: &Settings, is_restricted: bool) {
    if let Some(key) = &settings.key {
        let config = key.config();
        tracing::info!("cluster: nodes authenticate with the keys of {}", config.keytab.display());
        if !config.exempt.is_empty() {
            let exempt: Vec<&str> = config.exempt.iter().map(config::HostPattern::as_str).collect();
            let exempt = exempt.join(", ");
            tracing::warn!(
                "cluster: nodes of these hosts join without authentication (scalla.clusterkey except): {exempt}"
            );
        }
        return;
    }
    if is_restricted {
        return tracing::info!(
            "cluster: nodes do not authenticate, only their hosts are checked (cms.allow); scalla.clusterkey demands a key"
        );
    }
    let forwarded = super::rights::forwarded(&settings.forwarding);
    let changes = NameChange::ALL.into_iter().filter(|change| forwarded.contains(*change));
    let forwarded: Vec<&str> = changes.map(NameChange::name).collect();
    let orders = match forwarded.is_empty() {
        true => String::new(),
        false => format!(" and have all servers do {} (ofs.forward)", forwarded.join(", ")),
    };
    tracing::warn!(
        "cluster: cms.allow is not set: every host that reaches the cluster port may join as a data server, to which clients \
         are then sent, and as a redirector, which may ask where files are{orders}; demand a key with \
         \"scalla.clusterkey FILE\", or restrict it with \"cms.allow host NAME\""
    );
}

/// Treats a change of the mounts as a change of all names, as long as the thread runs. Returns
/// whether the mounts can be watched.
fn watch_mounts(inbox: &Arc<Inbox>, supervisor: &Supervisor) -> bool {
    let mounts = match Mounts::watch() {
        Ok(mounts) => mounts,
        Err(error) => {
            tracing::warn!(
                "cluster: scalla.inventory complete is not in force, because it cannot be told when a disk is mounted: \
                 /proc/self/mountinfo: {error}"
            );
            return false;
        }
    };
    let inbox = inbox.clone();
    spawn_essential(supervisor, "the watch of mounts", async move {
        loop {
            mounts.changed().await;
            inbox.names_lost();
        }
    });
    true
}

/// Runs a task that must not end before the thread.
fn spawn_essential(
    supervisor: &Supervisor,
    what: &'static str,
    task: impl Future<Output = Infallible> + 'static,
) {
    let supervisor = supervisor.clone();
    tokio::task::spawn_local(async move {
        supervisor.watch(what, async { match task.await {} }).await;
    });
}

/// Runs work whose panic must not end the whole thread. A requester that waits for its answer
/// notices because the answer is dropped. The machines keep their state between two steps.
fn guarded(what: &str, work: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        tracing::error!("cluster: {what} led to a panic, and was given up");
    }
}

/// Does one turn of the work submitted by other threads. Returns whether the thread must end.
fn work_off(engine: &SharedEngine, turn: &mut InboxBatch) -> bool {
    let mut engine = engine.borrow_mut();
    let _turn = engine.begin_turn();
    let work = &mut turn.work;
    let storage = "news of the storage";
    if !work.looked.is_empty() {
        guarded(storage, || engine.stats_finished(work.looked.drain(..)));
    }
    for job in work.jobs.drain(..) {
        guarded("a command", || engine.run(job));
    }
    if std::mem::take(&mut work.is_reset) {
        guarded(storage, || engine.names_lost());
    }
    for path in work.changed.drain(..) {
        guarded(storage, || engine.name_changed(&path));
    }
    for request in work.requests.drain(..) {
        guarded("a request", || match request {
            InboxRequest::Ask { path, query, caller, tell } => {
                engine.ask(&path, &query, RequestOrigin::Client(caller, tell));
            }
            InboxRequest::Order(order) => engine.run(order),
        });
    }
    for path in work.missed.drain(..) {
        guarded(storage, || engine.name_changed(&path));
    }
    guarded(storage, || engine.submit_looks());
    turn.is_stopped
}

/// Calls the engine whenever work is due.
async fn keep_time(engine: SharedEngine, clock: Arc<dyn Clock>) -> Infallible {
    let rearm = engine.borrow().alarm().bell();
    loop {
        let due = engine.borrow_mut().deadline();
        let pause = due.saturating_sub(clock.now());
        tokio::select! {
            () = tokio::time::sleep(pause) => {
                // Work that is due immediately is not late.
                if !due.is_zero() && clock.now().saturating_sub(due) > LATE {
                    tokio::time::sleep(CATCH_UP).await;
                }
                // Work that is due at the same time is done in steps. Messages and requests have
                // their turn in between.
                let mut is_due = true;
                while std::mem::take(&mut is_due) {
                    guarded("the time", || is_due = engine.borrow_mut().tick());
                    tokio::task::yield_now().await;
                }
            }
            () = rearm.notified() => {}
        }
    }
}
