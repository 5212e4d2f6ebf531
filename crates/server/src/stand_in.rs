//! The stand-in for a `cmsd` process beside a server that is the cluster node itself.
//!
//! It exists because units and scripts start a `cmsd`, watch its pid file and end it. It runs until
//! it receives a signal, and changes nothing.
//!
//! The two processes can be started in either order. The stand-in ends with an error if no scalla
//! server appears on its admin directory, or an XRootD daemon does. Otherwise an operator could
//! believe that a node runs that does not.

use crate::VERSION;
use crate::admin::{AdminError, AdminRequest, ask};
use crate::daemon::{self, Launch};
use crate::error::StartError;
use crate::log::ActiveLog;
use crate::process::{self, Detached, User, control_directory, enter_home, state_directory};
use config::Effective;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// The name under which the server runs.
const XROOTD: &str = "xrootd";
/// The name of this stand-in.
const CMSD: &str = "cmsd";
/// The time that the server may take to appear.
pub const APPEARANCE: Duration = Duration::from_secs(30);
/// The interval between two searches.
const LOOK: Duration = Duration::from_millis(100);
/// The sockets of XRootD's own daemons in an admin directory.
const FOREIGN: [(&str, &str); 3] =
    [(".xrootd/admin", "xrootd"), (".olb/olbd.admin", "cmsd"), (".olb/olbd.nimda", "cmsd")];

/// The result of a search in an admin directory.
#[derive(Debug, PartialEq, Eq)]
enum AdminSocketOwner {
    /// No server yet.
    Nobody,
    /// A scalla server, with its description.
    Ours(String),
    /// Another program, with the error text.
    Other(String),
}

/// Runs beside the server of this command line. `launch` is the result of the same command line
/// under the name `xrootd`.
pub fn stand_in(mut launch: Launch) -> ExitCode {
    let detached = match daemon::begin(&mut launch, CMSD) {
        Ok(detached) => detached,
        Err(code) => return code,
    };
    match start(&launch) {
        Ok((log, effective)) => stay(&launch, log, &effective, detached),
        Err(error) => daemon::fail(&launch, CMSD, &error),
    }
}

/// Opens the log, switches the user and finds the directory of the server.
fn start(launch: &Launch) -> Result<(ActiveLog, Effective), StartError> {
    let mut effective = daemon::configuration(launch)?.effective;
    if User::is_root() {
        process::close_inherited();
    }
    let user = launch.user.as_deref().map(User::find).transpose()?;
    if effective.process.admin_path.origin.is_default() {
        effective.process.admin_path.value.path = state_directory(&effective, user.as_ref())?;
    }
    if let Some(user) = &user {
        user.switch()?;
    }
    effective.program = CMSD.to_owned();
    let log = {
        let path = daemon::log_path(launch, &effective);
        daemon::open_log(launch, &effective, path, &base::Supervisor::default())?
    };
    Ok((log, effective))
}

/// Searches the server, then waits for a signal to end.
fn stay(launch: &Launch, mut log: ActiveLog, effective: &Effective, detached: Option<Detached>) -> ExitCode {
    let instance = daemon::instance(effective);
    let who = format!("{CMSD} {instance}@{}", effective.host);
    tracing::info!("++++++ {who} initialization started.");
    tracing::info!(
        "scalla {VERSION} serves as data server and cluster node in one process; this is its stand-in"
    );
    let code = match wait(launch, effective, &who, &mut log, detached) {
        Ok(()) => {
            tracing::info!("good bye");
            ExitCode::SUCCESS
        }
        Err(error) => {
            tracing::error!("{error}");
            let code = daemon::fail(launch, CMSD, &error);
            tracing::error!("------ {who} initialization failed.");
            code
        }
    };
    log.flush();
    code
}

fn wait(
    launch: &Launch,
    effective: &Effective,
    who: &str,
    log: &mut ActiveLog,
    detached: Option<Detached>,
) -> Result<(), StartError> {
    let admin = effective.admin_directory();
    process::open_admin(&admin, effective.process.admin_path.mode())?;
    let home = enter_home(effective.process.home_path.value.as_ref(), effective.instance.as_deref())?;
    let log_file = daemon::log_path(launch, effective);
    let _pid_files = daemon::write_files(launch, effective, log_file.as_deref(), &home)?;
    // The pid file exists when the starting process continues. A script that starts both in
    // sequence must not wait here for the second one.
    if let Some(detached) = detached {
        detached.ready().map_err(|source| StartError::System { what: "/dev/null", source })?;
    }
    let system = |source| StartError::System { what: "signals", source };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(system)?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).map_err(system)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(system)?;
        let mut hang_up = signal(SignalKind::hangup()).map_err(system)?;
        let mut appeared = std::pin::pin!(appearance(&admin, who, APPEARANCE));
        let mut there = false;
        loop {
            tokio::select! {
                _ = terminate.recv() => return Ok(()),
                _ = interrupt.recv() => return Ok(()),
                _ = hang_up.recv() => if let Err(error) = log.reopen() {
                    tracing::error!("cannot open the log again, the old file stays in use: {error}");
                },
                found = &mut appeared, if !there => {
                    found?;
                    there = true;
                }
            }
        }
    })
}

/// Waits for the server to appear on its admin directory.
async fn appearance(admin: &Path, who: &str, limit: Duration) -> Result<(), StartError> {
    let until = Instant::now() + limit;
    let mut said = false;
    loop {
        // The call may block, because this process has no other work meanwhile.
        match look(admin) {
            AdminSocketOwner::Ours(note) => {
                tracing::info!("------ {who} initialization completed: {note} is the cluster node.");
                return Ok(());
            }
            AdminSocketOwner::Other(text) => return Err(StartError::Cluster(text)),
            AdminSocketOwner::Nobody => {}
        }
        if !said {
            tracing::info!("waiting for the scalla server of this instance on {}", admin.display());
            said = true;
        }
        if Instant::now() >= until {
            return Err(StartError::Cluster(format!(
                "no scalla server of this instance appeared on {} within {} s; start it (xrootd with the same -c, -n and \
                 -a), or, if the data server is XRootD's own, run XRootD's own cmsd beside it",
                admin.display(),
                limit.as_secs()
            )));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Returns the program that serves this admin directory.
fn look(admin: &Path) -> AdminSocketOwner {
    let socket = control_directory(admin).join(format!("{XROOTD}.sock"));
    match ask(&socket, &AdminRequest::Status {}) {
        Ok(status) => {
            let number = |name: &str| status[name].as_u64().unwrap_or_default();
            return AdminSocketOwner::Ours(format!(
                "scalla (pid {}, port {})",
                number("pid"),
                number("port")
            ));
        }
        Err(AdminError::Denied(path)) => {
            return AdminSocketOwner::Other(format!(
                "{} belongs to a server of another user; run this as that user (-R), or name an admin directory of its own (-a)",
                path.display()
            ));
        }
        // The server may be starting or ending.
        Err(AdminError::NoServer(_) | AdminError::Broken(_)) => {}
        Err(AdminError::Garbled(_) | AdminError::Refused(_)) => {
            return AdminSocketOwner::Other(format!(
                "the process that listens at {} is not a scalla server; stop it",
                socket.display()
            ));
        }
    }
    let foreign = FOREIGN.iter().map(|(name, program)| (admin.join(name), *program));
    match foreign.into_iter().find(|(path, _)| is_alive(path)) {
        Some((path, program)) => AdminSocketOwner::Other(alien(&path, program)),
        None => AdminSocketOwner::Nobody,
    }
}

fn is_alive(socket: &PathBuf) -> bool {
    match UnixStream::connect(socket) {
        Ok(_) => true,
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    }
}

fn alien(socket: &Path, program: &str) -> String {
    let advice = match program {
        "xrootd" => "run XRootD's own cmsd beside it, or stop it and start scalla in its place",
        _ => "stop it: scalla is data server and cluster node in one process",
    };
    format!("XRootD's own {program} runs on this instance (it listens at {}); {advice}", socket.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn directory(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("scalla-stand-in-{name}-{}", std::process::id()));
        std::fs::remove_dir_all(&directory).ok();
        std::fs::create_dir_all(directory.join(".olb")).unwrap();
        std::fs::create_dir_all(directory.join(".xrootd")).unwrap();
        directory
    }

    #[test]
    fn running_xrootd_daemons_are_distinguished_from_stale_sockets() {
        let directory = directory("others");
        assert_eq!(look(&directory), AdminSocketOwner::Nobody);
        for (name, word) in [(".olb/olbd.nimda", "stop it"), (".xrootd/admin", "own cmsd beside it")] {
            let path = directory.join(name);
            let listener = UnixListener::bind(&path).unwrap();
            let AdminSocketOwner::Other(text) = look(&directory) else { panic!("{name}") };
            assert!(text.contains(name) && text.contains(word), "{text}");
            drop(listener);
            assert!(path.exists());
            assert_eq!(
                look(&directory),
                AdminSocketOwner::Nobody,
                "a socket that nobody listens at is no daemon"
            );
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn the_wait_for_a_server_has_a_limit() {
        let directory = directory("nobody");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let error = runtime.block_on(appearance(&directory, "cmsd", Duration::ZERO)).unwrap_err().to_string();
        assert!(error.contains("no scalla server of this instance appeared"), "{error}");
        assert!(error.contains("the same -c, -n and -a"), "{error}");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
