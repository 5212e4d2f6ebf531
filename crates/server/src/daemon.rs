//! A server as a process, from the command line to the exit status.
//!
//! The order matters: detach before any file is opened; open the port and raise limits while still
//! root; change to the user; then create directories, log and admin socket, which belong to that
//! user; serve; and only then notify the parent process that the server is ready.

use crate::adapters::host_name;
use crate::admin::AdminSocket;
use crate::control::{Control, Reloading, SignalRuntime};
use crate::error::StartError;
use crate::log::{ActiveLog, Levels, LogDestination, LogSettings, Retention};
use crate::ports::OpenPorts;
use crate::process::{
    self, AdminDirectory, DetachOutcome, Detached, EnvironmentFile, PidFile, PrivilegeState,
    RetainedPrivileges, User, enter_home, port_owner, state_directory,
};
use crate::stderr::print_stderr;
use crate::tls::ServerTls;
use crate::{RunningServer, VERSION};
use base::Supervisor;
use config::{
    AuthProtocol, ConfigInput, Effective, Loaded, LocalFiles, NodeRole, Problem, Severity, Strictness,
};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Exit status of a server that did not start.
const NOT_STARTED: u8 = 1;

/// The destination of the log; relative names have been made absolute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogTarget {
    /// The standard error.
    Stderr,
    /// A file.
    File {
        /// The name.
        path: PathBuf,
        /// Set if the directory of the instance is not put before it (`=`).
        exact: bool,
        /// The retention of old log files.
        retention: Retention,
    },
}

/// The settings of a server from its command line.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The configuration, to be loaded at the start and at each reload. Its host name is filled in
    /// if it is empty.
    pub load: ConfigInput,
    /// The destination of the log.
    pub log: LogTarget,
    /// The log levels; the trace directives of the configuration may raise them.
    pub levels: Levels,
    /// Log time stamps with microseconds.
    pub precise: bool,
    /// The user to change to.
    pub user: Option<String>,
    /// Detach from the terminal.
    pub background: bool,
    /// An additional pid file (`-s`).
    pub pid_file: Option<PathBuf>,
    /// Write the pid file of the configuration and the environment file, as scripts of sites expect
    /// from `xrootd`.
    pub traditional_files: bool,
    /// Print the exports, the address and usage hints on the standard output.
    pub announce: bool,
}

/// Starts a server and returns when it has ended.
pub fn run(mut launch: Launch) -> ExitCode {
    let program = launch.load.evaluation.program.clone();
    let detached = match begin(&mut launch, &program) {
        Ok(detached) => detached,
        Err(code) => return code,
    };
    match start(&launch, detached) {
        Ok((control, log)) => control.run(log),
        Err(error) => fail(&launch, &program, &error),
    }
}

/// Performs the first steps of every long-running process: keeps the program name, detaches if
/// requested, and determines the host name. The error is the exit status of this process, which may
/// be the parent of the long-running one.
pub(crate) fn begin(launch: &mut Launch, program: &str) -> Result<Option<Detached>, ExitCode> {
    process::keep_name();
    let detached = match launch.background.then(process::detach).transpose() {
        Ok(Some(DetachOutcome::Parent(status))) => return Err(ExitCode::from(status)),
        Ok(Some(DetachOutcome::Server(detached))) => Some(detached),
        Ok(None) => None,
        Err(error) => {
            let error = StartError::System { what: "the background process", source: error };
            return Err(fail(launch, program, &error));
        }
    };
    if launch.load.evaluation.host.is_empty() {
        launch.load.evaluation.host = host_name();
    }
    Ok(detached)
}

/// Returns the effective configuration. Its problems are reported where the operator looks.
pub(crate) fn configuration(launch: &Launch) -> Result<Loaded, StartError> {
    let loaded = config::load(&launch.load, &LocalFiles);
    if loaded.report.is_ok() {
        return Ok(loaded);
    }
    print_stderr(&loaded.report.to_string());
    Err(StartError::Configuration)
}

/// Reports why a server did not start, where the operator looks.
pub(crate) fn fail(launch: &Launch, program: &str, error: &StartError) -> ExitCode {
    let mut stderr = std::io::stderr().lock();
    // The text may contain names chosen by others: files, directories, hosts.
    let error = error.to_string();
    let error = base::shown(&error);
    // A failure to write the error is ignored.
    if launch.announce {
        writeln!(stderr, "scalla: error: {error}").ok();
    } else {
        let instance = launch.load.evaluation.instance.as_deref().unwrap_or(config::ANONYMOUS);
        let host = &launch.load.evaluation.host;
        writeln!(stderr, "{program}: error: {error}").ok();
        writeln!(stderr, "------ {program} {instance}@{host} initialization failed.").ok();
    }
    ExitCode::from(NOT_STARTED)
}

/// Performs all steps up to the log, which belongs to the user of the service like everything after
/// it.
pub(crate) fn start(launch: &Launch, detached: Option<Detached>) -> Result<(Control, ActiveLog), StartError> {
    let Loaded { mut effective, report } = configuration(launch)?;
    if User::is_root() {
        // After the configuration, which can be an inherited pipe.
        process::close_inherited();
    }
    process::apply_environment(&effective.environment)
        .map_err(|source| StartError::System { what: "the environment of setenv", source })?;
    let user = launch.user.as_deref().map(User::find).transpose()?;
    let descriptors =
        process::raise_descriptors(effective.network.max_fd.value).map_err(StartError::Limits)?;
    let ports = OpenPorts::open(&effective, descriptors).map_err(|error| {
        let port = error.address.port();
        StartError::Port { port, owner: port_owner(port), source: error.source }
    })?;
    if effective.process.admin_path.origin.is_default() {
        effective.process.admin_path.value.path = state_directory(&effective, user.as_ref())?;
    }
    let acts_for_users = crate::multi_user::is_enabled(&effective);
    // A site may need the privileges of such a program, as of `sudo` in a script.
    let programs = config::program_directives(&effective).next().is_some();
    let retained = RetainedPrivileges { capabilities: acts_for_users, programs };
    let privileges = process::give_up_privileges(user.as_ref(), retained)?;
    if acts_for_users {
        // Before any thread starts, because threads inherit the capabilities.
        crate::multi_user::claim()?;
    }
    let log_file = log_path(launch, &effective);
    let supervisor = Supervisor::default();
    let log = open_log(launch, &effective, log_file.clone(), &supervisor)?;
    introduce(launch, &effective, &report, privileges);
    let outcome = serve(launch, effective, ports, log_file.as_deref(), detached, supervisor);
    if let (Err(error), LogTarget::File { .. }) = (&outcome, &launch.log) {
        tracing::error!("{error}");
    }
    Ok((outcome?, log))
}

/// Performs the steps that can fail with a log open: directories, admin socket, exports and files.
/// Then it reports that the server is ready.
fn serve(
    launch: &Launch,
    effective: Effective,
    ports: OpenPorts,
    log_file: Option<&Path>,
    detached: Option<Detached>,
    supervisor: Supervisor,
) -> Result<Control, StartError> {
    let mut directory = AdminDirectory::claim(
        &effective.admin_directory(),
        effective.process.admin_path.mode(),
        &effective.program,
    )?;
    let home = enter_home(effective.process.home_path.value.as_ref(), effective.instance.as_deref())?;
    let socket = directory.socket_name();
    let admin = AdminSocket::bind(directory.control(), &socket).map_err(|source| StartError::File {
        what: "admin socket",
        path: directory.control().path().join(socket),
        source,
    })?;
    let ear = SignalRuntime::new().map_err(|source| StartError::System { what: "signals", source })?;
    let running = RunningServer::start(&effective, ports, supervisor)?;
    if let Some(cluster) = running.cluster() {
        for order in crate::cluster::NodeOrder::kept(&effective.admin_directory()) {
            tracing::warn!("cluster: by order of the administrator this node is {}", order.state());
            cluster.order(order);
        }
    }
    let port = running.address().port();
    directory.note(port).ok();
    let pid_files = write_files(launch, &effective, log_file, &home)?;
    tracing::info!("{}", start_line(launch, &effective, &running));
    if launch.announce && launch.background {
        print(&background_line(port, log_file));
    } else if launch.announce {
        announce(&effective, &running);
    } else {
        let Effective { program, host, .. } = &effective;
        tracing::info!("------ {program} {}@{host}:{port} initialization completed.", instance(&effective));
    }
    if let Some(detached) = detached {
        detached.ready().map_err(|source| StartError::System { what: "/dev/null", source })?;
    }
    let reloading = Reloading { load: launch.load.clone(), levels: launch.levels.clone() };
    Ok(Control { ear, running, effective, admin, directory, pid_files, reloading })
}

pub(crate) fn instance(effective: &Effective) -> &str {
    effective.instance.as_deref().unwrap_or(config::ANONYMOUS)
}

/// Returns the path of the log: `log/x` of instance `foo` is `log/foo/x`.
pub(crate) fn log_path(launch: &Launch, effective: &Effective) -> Option<PathBuf> {
    let LogTarget::File { path, exact, .. } = &launch.log else { return None };
    match (&effective.instance, path.parent(), path.file_name()) {
        (Some(instance), Some(directory), Some(name)) if !exact => Some(directory.join(instance).join(name)),
        _ => Some(path.clone()),
    }
}

pub(crate) fn open_log(
    launch: &Launch,
    effective: &Effective,
    path: Option<PathBuf>,
    supervisor: &Supervisor,
) -> Result<ActiveLog, StartError> {
    let target = match (&launch.log, path) {
        (LogTarget::File { retention, .. }, Some(path)) => {
            LogDestination::File { path, retention: *retention }
        }
        _ if launch.background => LogDestination::Nowhere,
        _ => LogDestination::Stderr,
    };
    let named = match &target {
        LogDestination::File { path, .. } => path.clone(),
        _ => PathBuf::from("the error output"),
    };
    if target == LogDestination::Nowhere {
        print_stderr(&format!(
            "{}: warning: in the background without a log file nothing is logged; name one (-l)\n",
            effective.program
        ));
    }
    let settings = LogSettings {
        target,
        format: effective.process.log_format.value,
        precise: launch.precise,
        levels: launch.levels.clone().with_traces(effective),
    };
    ActiveLog::start_supervised(settings, supervisor).map_err(|source| StartError::File {
        what: "log",
        path: named,
        source,
    })
}

/// Writes the first lines of a log: the program and the remarks on the configuration.
fn introduce(
    launch: &Launch,
    effective: &Effective,
    report: &config::ConfigReport,
    privileges: PrivilegeState,
) {
    let Effective { program, host, .. } = effective;
    if !launch.announce {
        tracing::info!("++++++ {program} {}@{host} initialization started.", instance(effective));
    }
    tracing::info!("scalla {VERSION} on {}", rustix::system::uname().release().to_string_lossy());
    tracing::info!("{privileges}");
    if privileges == PrivilegeState::Superuser && !effective.cluster.role.redirects() {
        tracing::warn!(
            "serving as the superuser: clients get at whatever is below the exports; name a user ({})",
            if launch.announce { "--user" } else { "-R" }
        );
    }
    // Dead paths and contradictions are errors only in `config check`; here a part of the data may
    // still be served.
    let doubts = config::check(effective, &config::LocalDisk, launch.load.strictness);
    for problem in report.problems().iter().chain(doubts.problems()) {
        let Problem { origin, what, allowed, .. } = problem;
        let advice = if allowed.is_empty() { String::new() } else { format!("; {allowed}") };
        match problem.severity {
            Severity::Error | Severity::Warning => tracing::warn!("{origin}: {what}{advice}"),
            Severity::Note => tracing::info!("{origin}: {what}{advice}"),
        }
    }
    if launch.load.strictness == Strictness::Legacy {
        let unknown = report.problems().iter().filter(|p| p.kind == config::ProblemKind::Unknown).count();
        if unknown > 0 {
            let text = format!("{unknown} unknown directives are not in force; see `scalla config check`");
            tracing::warn!("{text}");
            print_stderr(&format!("{program}: warning: {text}\n"));
        }
    }
}

/// Writes the pid files and the environment file.
pub(crate) fn write_files(
    launch: &Launch,
    effective: &Effective,
    log_file: Option<&Path>,
    home: &Path,
) -> Result<Vec<PidFile>, StartError> {
    let mut pid_files = Vec::new();
    let mut write = |path: PathBuf, chosen: bool| match PidFile::write(path.clone()) {
        Ok(file) => {
            pid_files.push(file);
            Ok(())
        }
        Err(source) if chosen => Err(StartError::File { what: "pid file", path, source }),
        Err(error) => {
            tracing::warn!("no pid file {}: {error}; name a directory (all.pidpath)", path.display());
            Ok(())
        }
    };
    if let Some(path) = &launch.pid_file {
        // A relative path is relative to the working directory, which is the home directory by now.
        write(home.join(path), true)?;
    }
    let chosen = !effective.process.pid_path.origin.is_default();
    let traditional = effective.process.pid_file(&effective.program, effective.instance.as_deref());
    if launch.traditional_files || chosen {
        write(traditional.clone(), chosen)?;
    }
    if launch.traditional_files {
        let file = EnvironmentFile {
            effective,
            version: VERSION,
            config_file: launch.load.file.as_deref().map(Path::new),
            log_file,
            home,
        };
        // If the full path of a pid file was given, scripts look for this file in the same
        // directory.
        let chosen = launch.pid_file.as_deref().filter(|path| path.is_absolute());
        let directory = chosen.unwrap_or(&traditional).parent().unwrap_or(home);
        if let Err(error) = file.write(directory) {
            tracing::warn!("no environment file {}: {error}", directory.join(file.name()).display());
        }
    }
    Ok(pid_files)
}

/// Returns the log line with the address, the role of the server, and its files and directories.
fn start_line(launch: &Launch, effective: &Effective, running: &RunningServer) -> String {
    let part = match running.cluster().and_then(crate::cluster::ClusterThread::address) {
        Some(nodes) => {
            format!("{} of the nodes that join at port {}", effective.cluster.role.name(), nodes.port())
        }
        None => format!("serving {}", crate::exports::describe_exports(effective)),
    };
    let configuration = match &launch.load.file {
        Some(file) => format!("configuration {}", base::shown(file)),
        None => "no configuration file".to_owned(),
    };
    let directory = effective.admin_directory();
    let directory = base::shown(directory.as_os_str().as_encoded_bytes());
    format!("listening on {}, {part}; {configuration}; admin directory {directory}", running.address())
}

/// Returns the line for the user who started the server in the background.
fn background_line(port: u16, log_file: Option<&Path>) -> String {
    let pid = std::process::id();
    let log = match log_file {
        Some(path) => format!("log {}", base::shown(path.as_os_str().as_encoded_bytes())),
        None => "no log".to_owned(),
    };
    format!("running as pid {pid}, port {port}; {log}; stop it with: kill {pid}\n")
}

/// Prints text. The server also runs if its standard output is closed.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).ok();
}

/// Prints two lines on the exports and the address, and a third with an example command.
fn announce(effective: &Effective, running: &RunningServer) {
    let address = running.address();
    let exports = crate::exports::describe_exports(effective);
    let host = if effective.host.is_empty() { "localhost" } else { &effective.host };
    let scheme = if running.tls().is_some() { "roots" } else { "root" };
    let url = match address.port() {
        config::PORT_DEFAULT => format!("{scheme}://{host}/"),
        port => format!("{scheme}://{host}:{port}/"),
    };
    if let Some(nodes) = running.cluster().and_then(crate::cluster::ClusterThread::address) {
        let (role, port) = (*effective.cluster.role, nodes.port());
        let (who, hint) = match role {
            NodeRole::MetaManager => {
                ("clusters", format!("At the top of each:\n    scalla manager --meta {host}:{port}"))
            }
            NodeRole::Supervisor => {
                ("servers", "Servers are told of the manager, which sends them here.".to_owned())
            }
            _ => ("servers", format!("Where there are files:\n    scalla serve DIR --manager {host}:{port}")),
        };
        let text = format!(
            "scalla {VERSION} listening on {address}, {} of the {who} that join at port {port}\n\
             Ctrl-C ends. {hint}\n{}",
            role.name(),
            dashboard(effective, address.port())
        );
        print(&text);
        return;
    }
    let text = format!(
        "scalla {VERSION} listening on {address}, serving {exports}\n\
         {}; Ctrl-C ends. Try:\n    {}\n{}",
        admission(effective),
        trusting(running, &url, example(effective, &url)),
        dashboard(effective, address.port()),
    );
    print(&text);
}

/// Returns the line with the address of the dashboard, if browsers on this machine may show it.
fn dashboard(effective: &Effective, port: u16) -> String {
    let readers = &effective.http.pages.dashboard;
    if !effective.serves_http() || !readers.includes(IpAddr::from(Ipv4Addr::LOCALHOST)) {
        return String::new();
    }
    let scheme = if effective.network.tls.is_some() { "https" } else { "http" };
    let port = if effective.shares_port_with_http() {
        port
    } else {
        effective.own_http_ports().first().copied().unwrap_or(port)
    };
    format!("In a browser:\n    {scheme}://localhost:{port}/dashboard\n")
}

/// Describes who may do what, for the user who started the server.
fn admission(effective: &Effective) -> String {
    let security = &effective.security;
    let identifies = |protocol: &AuthProtocol| !matches!(protocol, AuthProtocol::Host);
    let who = if *security.enabled && security.protocols.iter().any(|protocol| identifies(protocol)) {
        "Clients must authenticate and"
    } else {
        "Whoever reaches the port"
    };
    let what = if *effective.authorization.enabled {
        "do what the rules allow"
    } else if effective.storage.exports.iter().all(|export| export.attributes.read_only) {
        "read"
    } else {
        "read and write"
    };
    format!("{who} may {what}")
}

/// Returns a command that works unchanged: it reads a file if there is one, otherwise writes one,
/// otherwise lists a directory.
fn example(effective: &Effective, url: &str) -> String {
    let Some(export) = effective.storage.exports.first() else { return format!("xrdfs {url} ls /") };
    let directory = effective.storage.local_path(&export.prefix);
    let prefix = export.prefix.trim_end_matches('/');
    if let Some(name) = first_file(&directory) {
        return format!("xrdcp {url}{prefix}/{name} .");
    }
    if export.attributes.read_only {
        return format!("xrdfs {url} ls {}", export.prefix);
    }
    format!("xrdcp /etc/hostname {url}{prefix}/hostname")
}

/// Returns a command; for a self-signed certificate one of this program, with the setting by which it
/// trusts the certificate.
fn trusting(running: &RunningServer, url: &str, command: String) -> String {
    match running.tls().and_then(ServerTls::self_signed) {
        Some(path) => format!("X509_CERT_FILE={} scalla ls {url}", path.display()),
        None => command,
    }
}

/// Maximum number of names in a directory that are examined for the example.
const NAMES_LOOKED_AT: usize = 200;

/// Returns the first regular file whose name needs no quotes in a shell or URL.
fn first_file(directory: &Path) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .ok()?
        .take(NAMES_LOOKED_AT)
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !name.starts_with(['.', '-']) && name.chars().all(plain))
        .collect();
    names.sort();
    names.into_iter().next()
}
