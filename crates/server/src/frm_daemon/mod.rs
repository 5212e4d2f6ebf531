//! `frm_xfrd` and `frm_purged`: the transfers and the purges of a server as processes of their own, with the
//! same code and the same configuration file.
//!
//! A server with the same directory of transfers has precedence (`residency::ServerClaim`), because only it
//! knows what its clients have open. So a daemon stands by while such a server runs, and works while none does.
//!
//! | file | content |
//! |---|---|
//! | `mod` | [`frm_daemon`]: from the command line to the exit status |
//! | `transfers` | the transfers, and their hand-over to a server |
//! | `purges` | purges in an interval, and one at once |
//! | `configured_paths` | the exports of a configuration |
//! | `agent` | [`TransferAgent`]: requests of other programs (`frm_xfragent`) |

mod agent;
mod configured_paths;
mod purges;
mod transfers;

pub use agent::{AgentOutput, TransferAgent};
pub use purges::{PurgeFree, PurgeOptions, PurgeOrder};

use crate::VERSION;
use crate::daemon::{self, Launch};
use crate::error::StartError;
use crate::log::ActiveLog;
use crate::process::{self, Detached, PidFile, enter_home, state_directory};
use base::Supervisor;
use config::Effective;
use residency::{DaemonClaim, DaemonWork, SharedWork};
use std::process::ExitCode;
use std::time::Duration;
use storage::posix::Posix;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit status of a daemon that did not start.
const NOT_STARTED: u8 = 4;

/// The interval in which a daemon looks whether a server runs.
const LOOK: Duration = Duration::from_millis(250);

/// A daemon beside the server.
#[derive(Clone, Debug)]
pub enum FrmDaemon {
    /// `frm_xfrd`.
    Transfers,
    /// `frm_purged`.
    Purges(PurgeOptions),
}

/// The reason for which a daemon ended.
enum DaemonEnd {
    /// A signal, or the end of its work.
    Done,
    /// A server wants to do the work. The daemon begins again, and stands by. The work ends when this process has been
    /// replaced.
    HandedOver(DaemonWork),
}

/// The parts that each daemon has.
struct DaemonParts {
    effective: Effective,
    log: ActiveLog,
    supervisor: Supervisor,
    signals: DaemonSignals,
}

/// The signals that control a daemon.
struct DaemonSignals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl DaemonSignals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits until the next look, and reports whether the process is to end.
    async fn is_end(&mut self, log: &ActiveLog) -> bool {
        let ends = tokio::select! {
            _ = self.terminate.recv() => true,
            _ = self.interrupt.recv() => true,
            _ = self.hang_up.recv() => {
                if let Err(error) = log.reopen() {
                    tracing::error!("cannot open the log again, the old file stays in use: {error}");
                }
                false
            }
            () = tokio::time::sleep(LOOK) => false,
        };
        if ends {
            tracing::info!("ending");
        }
        ends
    }
}

/// Runs a daemon until its end. `restart` replaces this process by a new one with the same command line, and
/// returns only if that fails.
pub fn frm_daemon(
    mut launch: Launch,
    daemon: FrmDaemon,
    restart: impl FnOnce() -> std::io::Error,
) -> ExitCode {
    let program = launch.load.evaluation.program.clone();
    let detached = match daemon::begin(&mut launch, &program) {
        Ok(detached) => detached,
        Err(code) => return code,
    };
    let fail = |error: &StartError| {
        daemon::fail(&launch, &program, error);
        ExitCode::from(NOT_STARTED)
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(source) => return fail(&StartError::System { what: "signals", source }),
    };
    let entered = runtime.enter();
    let (log, end) = match start(&launch) {
        Err(error) => return fail(&error),
        Ok(mut parts) => {
            let end = runtime.block_on(run(&launch, &daemon, &mut parts, detached));
            (parts.log, end)
        }
    };
    drop(entered);
    let code = match end {
        Ok(DaemonEnd::Done) => {
            tracing::info!("good bye");
            ExitCode::SUCCESS
        }
        Ok(DaemonEnd::HandedOver(_until_replaced)) => {
            log.flush();
            let error = restart();
            tracing::error!("cannot begin again after the hand-over: {error}");
            ExitCode::from(NOT_STARTED)
        }
        Err(error) => {
            tracing::error!("{error}");
            fail(&error)
        }
    };
    log.flush();
    code
}

/// Reads the configuration and opens the log.
fn start(launch: &Launch) -> Result<DaemonParts, StartError> {
    let system = |what| move |source| StartError::System { what, source };
    let mut effective = daemon::configuration(launch)?.effective;
    process::apply_environment(&effective.environment).map_err(system("the environment of setenv"))?;
    if effective.process.admin_path.origin.is_default() {
        effective.process.admin_path.value.path = state_directory(&effective, None)?;
    }
    let signals = DaemonSignals::new().map_err(system("signals"))?;
    let supervisor = Supervisor::default();
    let log = daemon::open_log(launch, &effective, daemon::log_path(launch, &effective), &supervisor)?;
    Ok(DaemonParts { effective, log, supervisor, signals })
}

async fn run(
    launch: &Launch,
    daemon: &FrmDaemon,
    parts: &mut DaemonParts,
    detached: Option<Detached>,
) -> Result<DaemonEnd, StartError> {
    let effective = &parts.effective;
    let who = format!("{} {}@{}", effective.program, daemon::instance(effective), effective.host);
    tracing::info!("++++++ {who} initialization started.");
    tracing::info!("scalla {VERSION}");
    let work = match daemon {
        FrmDaemon::Transfers => SharedWork::Transfers,
        FrmDaemon::Purges(_) => SharedWork::Purges,
    };
    let is_once = matches!(daemon, FrmDaemon::Purges(options) if options.order.is_some());
    // A purge at once is no daemon: it waits for its turn.
    let claim = if is_once { None } else { Some(claim(effective, work)?) };
    let home = enter_home(effective.process.home_path.value.as_ref(), effective.instance.as_deref())?;
    let _pid_files = pid_files(launch, effective, &home)?;
    let ready = || {
        tracing::info!("------ {who} initialization completed.");
        match detached {
            Some(detached) => {
                detached.ready().map_err(|source| StartError::System { what: "/dev/null", source })
            }
            None => Ok(()),
        }
    };
    match (daemon, &claim) {
        (FrmDaemon::Transfers, Some(claim)) => transfers::run(parts, claim, ready).await,
        (FrmDaemon::Purges(options), claim) => purges::run(parts, claim.as_ref(), options, ready).await,
        (FrmDaemon::Transfers, None) => Ok(DaemonEnd::Done),
    }
}

/// Claims work for this daemon.
fn claim(effective: &Effective, work: SharedWork) -> Result<DaemonClaim, StartError> {
    let directory = effective.transfer_directory();
    let fail = |reason: &dyn std::fmt::Display| {
        StartError::Residency(format!(
            "cannot use the directory of transfers {}: {reason}",
            directory.display()
        ))
    };
    let claim = DaemonClaim::take(&directory, work).map_err(|error| fail(&error))?;
    let program = &effective.program;
    claim.ok_or_else(|| fail(&format_args!("Another {program} may already be running!")))
}

/// Writes the pid files.
fn pid_files(
    launch: &Launch,
    effective: &Effective,
    home: &std::path::Path,
) -> Result<Vec<PidFile>, StartError> {
    let own = launch.pid_file.as_ref().map(|path| home.join(path));
    let is_configured = !effective.process.pid_path.origin.is_default();
    let configured = effective.process.pid_file(&effective.program, effective.instance.as_deref());
    own.into_iter()
        .chain(is_configured.then_some(configured))
        .map(|path| {
            PidFile::write(path.clone()).map_err(|source| StartError::File { what: "pid file", path, source })
        })
        .collect()
}

/// Opens the files of a configuration.
fn open_tree(effective: &Effective) -> Result<Posix, StartError> {
    Posix::new(&storage::posix::Config::from_effective(&effective.storage)).map_err(|source| {
        let path = effective.storage.local_root.value.clone().unwrap_or_else(|| "/".into());
        StartError::Storage { path, source }
    })
}
