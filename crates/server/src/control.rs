//! Control of a running server: signals and the admin socket, drain and reload.
//!
//! | signal | effect |
//! |---|---|
//! | SIGTERM, SIGINT | drain: refuses connections, completes operations, closes the rest; exit 0 |
//! | a second one | ends at once; exit 1 |
//! | SIGHUP | reopens the log and reloads the configuration |
//! | SIGPIPE | none: a write to a closed socket is an error of that write |

mod cache_orders;
mod repairs;
mod residency_orders;

use crate::admin::{
    AdminCall, AdminRequest, AdminResponse, AdminSocket, LevelsAnswer, OrderAnswer, ReloadAnswer,
    ServerStatus,
};
use crate::authorization::PolicyRefresh;
use crate::cluster::{NodeOrder, OrderTarget};
use crate::log::{ActiveLog, Levels};
use crate::process::{AdminDirectory, PidFile};
use crate::reload::Difference;
use crate::running::AccessRefresh;
use crate::stderr::print_stderr;
use crate::{RunningServer, VERSION};
use auth::access::RulesRefresh;
use auth::macaroons::SecretRefresh;
use auth::tokens::IssuersRefresh;
use base::{Identity, ThreadFailure};
use config::{ConfigInput, Effective, LocalFiles, Severity};
use jiff::Zoned;
use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// Maximum number of waiting calls of the admin socket.
const CALLS_QUEUED_MAX: usize = 16;

/// The reply to an administrator of a server that is not a cluster node.
const ALONE: &str = "this server stands alone: it has no role in a cluster (all.manager, all.role)";

/// Exit status of a server that received a second request to end.
const ENDED_AT_ONCE: u8 = 1;

/// Exit status of a server that lost a thread without which it cannot serve.
const FAULT: u8 = 70;

/// Time for the last log lines of such a server.
const FAULT_EXIT_MAX: Duration = Duration::from_secs(10);

/// The inputs of a configuration reload.
pub(crate) struct Reloading {
    pub(crate) load: ConfigInput,
    pub(crate) levels: Levels,
}

/// A runtime that receives signals. It is created before the server is announced as ready, because
/// an earlier signal would kill it.
pub(crate) struct SignalRuntime {
    runtime: Runtime,
    signals: Signals,
}

impl SignalRuntime {
    pub(crate) fn new() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let signals = runtime.block_on(async { Signals::new() })?;
        Ok(Self { runtime, signals })
    }
}

/// A server that has started, with all parts that end with it.
pub(crate) struct Control {
    pub(crate) ear: SignalRuntime,
    pub(crate) running: RunningServer,
    pub(crate) effective: Effective,
    pub(crate) admin: AdminSocket,
    pub(crate) directory: AdminDirectory,
    pub(crate) pid_files: Vec<PidFile>,
    pub(crate) reloading: Reloading,
}

/// The state of the loop below.
struct ControlLoop {
    running: RunningServer,
    effective: Effective,
    log: ActiveLog,
    reloading: Reloading,
    started: Zoned,
    since: Instant,
    /// Set once the server was asked to end. Returns the clients that were cut off.
    drain: Option<JoinHandle<Vec<Identity>>>,
}

/// The signals that control the process. Once this exists, none of them kills the process.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }
}

impl Control {
    /// Serves until asked to end.
    pub(crate) fn run(self, log: ActiveLog) -> ExitCode {
        let Self { ear, running, effective, admin, directory, pid_files, reloading } = self;
        let mut watch = ControlLoop {
            running,
            effective,
            log,
            reloading,
            started: Zoned::now(),
            since: Instant::now(),
            drain: None,
        };
        let (tell, faults) = mpsc::unbounded_channel();
        watch.running.supervisor().on_fault(move |fault| {
            tell.send(fault.clone()).ok();
            end_within(FAULT_EXIT_MAX);
        });
        let outcome = ear.runtime.block_on(watch.serve(admin, ear.signals, faults));
        let code = match outcome {
            Ok(code) => code,
            Err(error) => {
                tracing::error!("the server's control loop ended: {error}");
                ExitCode::FAILURE
            }
        };
        if watch.running.supervisor().fault().is_none() {
            watch.running.end_exports();
        }
        drop((pid_files, directory));
        watch.log.flush();
        if watch.running.supervisor().fault().is_some() {
            // Its threads may no longer answer. They end with the process.
            std::mem::forget(watch);
        }
        code
    }
}

impl ControlLoop {
    async fn serve(
        &mut self,
        admin: AdminSocket,
        mut signals: Signals,
        mut faults: mpsc::UnboundedReceiver<ThreadFailure>,
    ) -> io::Result<ExitCode> {
        let (calls, mut called) = mpsc::channel(CALLS_QUEUED_MAX);
        let mut admin = std::pin::pin!(admin.serve(calls));
        loop {
            tokio::select! {
                Some(()) = signals.terminate.recv() => if let Some(code) = self.request_end("SIGTERM") { return Ok(code) },
                Some(()) = signals.interrupt.recv() => if let Some(code) = self.request_end("SIGINT") { return Ok(code) },
                Some(()) = signals.hang_up.recv() => self.reload(None),
                Some(call) = called.recv() => self.answer(call),
                Some(fault) = faults.recv() => {
                    let text = format!(
                        "{fault}; the server ends, since it could not serve all clients without it: restart it, and report \
                         this with the log lines before it"
                    );
                    self.log.silence_other_threads();
                    tracing::error!("{text}");
                    // The thread that ended may be that of the log.
                    print_stderr(&format!("{}: error: {text}\n", self.effective.program));
                    return Ok(ExitCode::from(FAULT));
                }
                result = &mut admin => return result.map(|()| ExitCode::FAILURE),
                left = drained(&mut self.drain) => {
                    list(&left);
                    tracing::info!("good bye");
                    return Ok(ExitCode::SUCCESS);
                }
            }
        }
    }

    /// Handles a request to end: the first one begins a drain, the second one ends the server.
    fn request_end(&mut self, by: &str) -> Option<ExitCode> {
        if self.drain.is_some() {
            tracing::warn!("a second {by} ends the server at once");
            list(&self.running.clients());
            return Some(ExitCode::from(ENDED_AT_ONCE));
        }
        let (limit, sessions) = (*self.effective.process.drain, self.running.sessions());
        tracing::info!(
            "{by}: no new connections; {sessions} sessions may end what they do within {} s",
            limit.as_secs()
        );
        self.drain = Some(tokio::spawn(self.running.drain(limit)));
        None
    }

    fn answer(&mut self, call: AdminCall) {
        if repairs::is_repair(&call.request) {
            return repairs::answer(self.running.logical(), call);
        }
        if residency_orders::is_residency(&call.request) {
            let residency = self.running.transfers.as_ref();
            return residency_orders::answer(residency, self.running.logical(), call);
        }
        if cache_orders::is_about_cache(&call.request) {
            return cache_orders::answer(self.running.proxy.as_deref(), call);
        }
        let response = match call.request {
            AdminRequest::Status {} => AdminResponse::Status(Box::new(self.status())),
            AdminRequest::LogLevel { levels: None } => self.levels(),
            AdminRequest::LogLevel { levels: Some(text) } => match Levels::parse(&text) {
                Ok(levels) => {
                    tracing::info!("log level {levels} (was {})", self.log.levels());
                    self.log.set_levels(levels);
                    self.levels()
                }
                Err(error) => AdminResponse::failed(error),
            },
            AdminRequest::Reload {} => return self.reload(Some(call.answer)),
            AdminRequest::Unfinished { .. }
            | AdminRequest::ClearUnfinished { .. }
            | AdminRequest::Checkpoints {}
            | AdminRequest::ResolveCheckpoint { .. }
            | AdminRequest::ResidencyStatus {}
            | AdminRequest::TransferQueue {}
            | AdminRequest::Pin { .. }
            | AdminRequest::Transfer { .. }
            | AdminRequest::TransferState { .. }
            | AdminRequest::Release { .. }
            | AdminRequest::Purge {}
            | AdminRequest::PurgePreview { .. }
            | AdminRequest::CacheStatus {}
            | AdminRequest::EvictCached { .. }
            | AdminRequest::PinCached { .. }
            | AdminRequest::UnpinCached { .. } => AdminResponse::failed("an order about files"),
            AdminRequest::ClusterStatus {} => self.cluster_status(),
            AdminRequest::ClusterOrder { order, node } => self.cluster_order(order, node),
            AdminRequest::Drain {} => {
                if self.drain.is_none() {
                    self.request_end("admin drain");
                }
                AdminResponse::Draining
            }
        };
        // The caller may no longer be waiting.
        call.answer.send(response).ok();
    }

    fn levels(&self) -> AdminResponse {
        AdminResponse::Levels(LevelsAnswer { levels: self.log.levels().to_string() })
    }

    fn status(&self) -> ServerStatus {
        let (effective, running) = (&self.effective, &self.running);
        let (refused, files) = (running.refused(), running.files());
        ServerStatus {
            version: VERSION.to_owned(),
            program: effective.program.clone(),
            instance: effective.instance.clone().unwrap_or_else(|| config::ANONYMOUS.to_owned()),
            pid: std::process::id(),
            host: effective.host.clone(),
            port: running.address().port(),
            http_ports: effective.own_http_ports().into_iter().collect(),
            exports: crate::exports::export_list(effective),
            config_file: self.reloading.load.file.clone(),
            started: self.started.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
            uptime_seconds: self.since.elapsed().as_secs(),
            connections: running.connections() as u64,
            sessions: running.sessions() as u64,
            requests: running.totals().requests,
            bytes_in: running.totals().bytes_in,
            bytes_out: running.totals().bytes_out,
            open_files: files.open_files as u64,
            open_for_writing: files.writers as u64,
            pending_files: files.pending_files as u64,
            checkpoints: files.checkpoints as u64,
            checksums: files.checksums as u64,
            refused_full: refused.full,
            refused_denied: refused.denied,
            refused_unknown: refused.unknown,
            log_levels: self.log.levels().to_string(),
            authorization: running.rules_state(),
            authentication: running.keys_state(),
            draining: self.drain.is_some(),
        }
    }

    fn cluster_status(&self) -> AdminResponse {
        let status = self.running.cluster().map(|cluster| cluster.look(|engine| engine.status()));
        match status {
            Some(Some(mut status)) => {
                if status.host.is_empty() {
                    status.host.clone_from(&self.effective.host);
                }
                AdminResponse::Cluster(Box::new(status))
            }
            Some(None) => AdminResponse::failed("the cluster's thread does not answer; see the log"),
            None => AdminResponse::failed(ALONE),
        }
    }

    /// Carries out an order for a cluster node. Orders for this node and for a child are kept over
    /// restarts.
    fn cluster_order(&self, order: NodeOrder, node: Option<String>) -> AdminResponse {
        let Some(cluster) = self.running.cluster() else { return AdminResponse::failed(ALONE) };
        let wanted = node.clone();
        let mut state = order.state();
        let address = match cluster.look(move |engine| engine.find(wanted.as_deref())) {
            None => return AdminResponse::failed("the cluster's thread does not answer; see the log"),
            Some(Err(why)) => return AdminResponse::failed(why),
            Some(Ok(OrderTarget::Child(slot, name))) => {
                if cluster.order_child(order, slot) != Some(true) {
                    return AdminResponse::failed(format!("{name} has left"));
                }
                // A parent has one way to keep clients away from a child.
                state = if order.takes_out() { NodeOrder::Drain.state() } else { state };
                Some(name)
            }
            Some(Ok(OrderTarget::Own)) => {
                if let Err(error) = order.keep(&self.effective.admin_directory()) {
                    return AdminResponse::failed(format!(
                        "the order cannot be kept for the next start: {error}"
                    ));
                }
                cluster.order(order);
                None
            }
        };
        let name = address.clone().or(node).unwrap_or_else(|| "this node".to_owned());
        tracing::info!("cluster: by order of the administrator {name} is {state}");
        AdminResponse::Ordered(OrderAnswer { node: name, state: state.into(), address })
    }

    /// Opens the log and reads the configuration, keys and rules again. Logs the result and sends it
    /// to the administrator, if there is one.
    fn reload(&mut self, administrator: Option<oneshot::Sender<AdminResponse>>) {
        if let Err(error) = self.log.reopen() {
            tracing::error!("cannot open the log again, the old file stays in use: {error}");
        }
        // The administrator may no longer be waiting.
        let answer = |response| drop(administrator.map(|waiting| waiting.send(response)));
        let applied = match self.apply_configuration() {
            Ok(applied) => applied,
            Err(error) => {
                tracing::error!("the configuration stays as it was: {error}");
                return answer(AdminResponse::failed(error));
            }
        };
        let refresh = self.running.refresh_access();
        let finish = move || {
            let reloaded = with_access(applied, refresh());
            log_reload(&reloaded);
            answer(AdminResponse::Reload(reloaded));
        };
        // A file system or the name service can block, and this thread handles signals.
        let supervisor = self.running.supervisor();
        if let Err(error) = supervisor.spawn("reload", "the reload of keys and rules", finish) {
            tracing::error!("keys and authorization rules are not read again, for want of a thread: {error}");
        }
    }

    /// Applies the settings that can change while serving. Changes nothing if the new
    /// configuration has errors.
    fn apply_configuration(&mut self) -> Result<ReloadAnswer, String> {
        let config::Loaded { effective: mut new, report } = config::load(&self.reloading.load, &LocalFiles);
        if !report.is_ok() {
            let errors: Vec<_> = report.errors().map(ToString::to_string).collect();
            return Err(errors.join("\n"));
        }
        if new.process.admin_path.origin.is_default() {
            new.process.admin_path = self.effective.process.admin_path.clone();
        }
        let difference = Difference::between(&self.effective, &new);
        if difference.live.iter().any(|name| name.ends_with(".trace")) {
            self.log.set_levels(self.reloading.levels.clone().with_traces(&new));
        }
        self.running.reconfigure(&new);
        crate::reload::take_over(&mut self.effective, &new);
        let warnings = report.problems().iter().filter(|problem| problem.severity == Severity::Warning);
        let warnings = warnings.map(ToString::to_string).collect();
        Ok(ReloadAnswer { applied: difference.live, need_restart: difference.restart, warnings })
    }
}

/// Adds the result of reading keytabs and rules again to the answer of a reload.
fn with_access(mut answer: ReloadAnswer, access: AccessRefresh) -> ReloadAnswer {
    answer.warnings.extend(access.warnings);
    let PolicyRefresh { rules, issuers, macaroons } = access.policy;
    match rules {
        Some(RulesRefresh::Replaced(_)) => answer.applied.push("the rules of acc.authdb".to_owned()),
        Some(RulesRefresh::Kept(error)) => {
            answer.warnings.push(format!("acc.authdb: the earlier rules stay in force: {error}"));
        }
        Some(RulesRefresh::Unchanged) | None => {}
    }
    match issuers {
        Some(IssuersRefresh::Replaced(_)) => answer.applied.push("the token issuers".to_owned()),
        Some(IssuersRefresh::Kept(error)) => {
            answer.warnings.push(format!("token issuers: the earlier ones stay in force: {error}"));
        }
        Some(IssuersRefresh::Unchanged) | None => {}
    }
    match macaroons {
        Some(SecretRefresh::Replaced) => answer.applied.push("the secret of macaroons".to_owned()),
        Some(SecretRefresh::Kept(error)) => {
            answer.warnings.push(format!("macaroons: the earlier secret stays in force: {error}"));
        }
        Some(SecretRefresh::Unchanged) | None => {}
    }
    answer
}

fn log_reload(answer: &ReloadAnswer) {
    let list = |names: &[String]| if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
    tracing::info!("configuration read again; changed now: {}", list(&answer.applied));
    answer.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    if !answer.need_restart.is_empty() {
        tracing::warn!("needs a restart to change: {}", list(&answer.need_restart));
    }
}

/// Ends the process after this time if it is still running, because a disk that hangs can block the
/// log or the control loop.
fn end_within(limit: Duration) {
    let end = move || {
        std::thread::sleep(limit);
        print_stderr("scalla: error: the server could not end in order; it ends now\n");
        std::process::exit(i32::from(FAULT));
    };
    if std::thread::Builder::new().name("last-resort".to_owned()).spawn(end).is_err() {
        std::process::exit(i32::from(FAULT));
    }
}

/// Waits for the end of a drain; never completes if none has begun.
async fn drained(drain: &mut Option<JoinHandle<Vec<Identity>>>) -> Vec<Identity> {
    match drain {
        Some(drain) => drain.await.unwrap_or_default(),
        None => std::future::pending().await,
    }
}

/// Logs the clients whose connections are closed in the middle of an operation.
fn list(left: &[Identity]) {
    for client in left {
        tracing::warn!("{client} is cut off in the middle of a request");
    }
}

#[cfg(test)]
mod tests;
