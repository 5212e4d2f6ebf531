//! `scalla serve DIR`, `scalla manager`, `scalla supervisor` and `scalla meta`: start a data
//! server, or a node that redirects clients to the servers below it.

use crate::evaluation::evaluation;
use crate::local_path::absolute;
use crate::tls_option::TlsOption;
use anyhow::{Context, bail};
use clap::ValueEnum;
use config::{
    ConfigInput, DirectorySetting, FreeSpace, LogFormat, ManagerAddress, NodeRole, OriginUrl, Overrides,
    Port, ProxyServer, Strictness,
};
use server::log::{Levels, Retention};
use server::{Launch, LogTarget};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Serve DIR as `/`, the files of another server, or the exports of a configuration file, until
/// stopped.
#[derive(clap::Args, Debug)]
pub(crate) struct ServeCommand {
    /// Directory to serve.
    #[arg(required_unless_present_any = ["config", "origin"])]
    dir: Option<PathBuf>,
    /// Serve the files of this server (a proxy): `root://HOST[:PORT]`, `roots://HOST[:PORT]`, or read-only
    /// those of a web server (`https://HOST[:PORT][/DIRECTORY]`, `http://…`) or of an object store
    /// (`s3://BUCKET[/PREFIX]`).
    #[arg(long, value_name = "URL", conflicts_with_all = ["dir", "manager", "min_free"])]
    origin: Option<OriginUrl>,
    /// The object store of the bucket: `https://HOST[:PORT]`, `http://…`. The default is that of Amazon.
    #[arg(long, value_name = "URL", requires = "origin", value_parser = config::parse_store_endpoint)]
    s3_endpoint: Option<ProxyServer>,
    /// The region of the bucket; the default is us-east-1.
    #[arg(long, value_name = "NAME", requires = "origin", value_parser = config::parse_region)]
    s3_region: Option<String>,
    /// File with the keys of the object store, in the form of `~/.aws/credentials`. Without it, requests are
    /// not signed.
    #[arg(long, value_name = "FILE", requires = "origin")]
    s3_credentials: Option<PathBuf>,
    /// Keep the files that clients read in this directory (a disk cache). It must exist.
    #[arg(long, value_name = "DIR", requires = "origin")]
    cache: Option<PathBuf>,
    /// Maximum size of the cached files: 500g. Without it, files are removed when the disk is 95 % full.
    #[arg(long, value_name = "SIZE", requires = "cache", value_parser = size)]
    cache_size: Option<u64>,
    /// Reject all changes.
    #[arg(long)]
    read_only: bool,
    /// Join the cluster of this manager. Repeat the option for redundant managers. The default port
    /// is 1213.
    #[arg(long, value_name = "HOST[:PORT]")]
    manager: Vec<ManagerAddress>,
    /// Accept no new files from the manager if the disk has less free space: 500m, 10g. The default
    /// is that of the configuration file, otherwise 2% and 10g.
    #[arg(long, value_name = "SIZE")]
    min_free: Option<FreeSpace>,
    #[command(flatten)]
    process: ProcessOptions,
}

/// Redirect clients to the servers that join, until stopped.
#[derive(clap::Args, Debug)]
pub(crate) struct ManagerCommand {
    /// Join the federation of this meta manager.
    #[arg(long, value_name = "HOST[:PORT]")]
    meta: Vec<ManagerAddress>,
    /// Another manager of the same cluster, which all servers join too.
    #[arg(long, value_name = "HOST[:PORT]")]
    replica: Vec<ManagerAddress>,
    /// Port that servers join; 0 selects a free one. The default is that of the configuration file,
    /// otherwise 1213.
    #[arg(long, value_name = "PORT")]
    cluster_port: Option<u16>,
    #[command(flatten)]
    process: ProcessOptions,
}

/// Run between a manager and servers. A large cluster has one supervisor per 64 servers.
#[derive(clap::Args, Debug)]
pub(crate) struct SupervisorCommand {
    /// Join the cluster of this manager. Repeat the option for redundant managers. The default port
    /// is 1213.
    #[arg(long, value_name = "HOST[:PORT]", required_unless_present = "config")]
    manager: Vec<ManagerAddress>,
    /// Port that servers join. The default is that of the configuration file, otherwise a free one.
    #[arg(long, value_name = "PORT")]
    cluster_port: Option<u16>,
    #[command(flatten)]
    process: ProcessOptions,
}

/// Run above managers: redirect clients to the clusters that join, until stopped.
#[derive(clap::Args, Debug)]
pub(crate) struct MetaCommand {
    /// Another meta manager of the same federation, which all managers join too.
    #[arg(long, value_name = "HOST[:PORT]")]
    replica: Vec<ManagerAddress>,
    /// Port that managers join; 0 selects a free one. The default is that of the configuration
    /// file, otherwise 1213.
    #[arg(long, value_name = "PORT")]
    cluster_port: Option<u16>,
    #[command(flatten)]
    process: ProcessOptions,
}

/// Options of all server commands.
#[derive(clap::Args, Debug)]
struct ProcessOptions {
    /// Port for clients; 0 selects a free one. The default is that of the configuration file,
    /// otherwise 1094.
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// User to switch to when started as root.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Configuration file in XRootD's format.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Instance name, for `if named` and separate directories.
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,
    /// Directory for the admin socket and journals.
    #[arg(long, value_name = "DIR")]
    admin_path: Option<PathBuf>,
    /// Log to a file, and start a new one each day.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Old log files to keep: a number (7), their total size (500m), or `sighup` if another program
    /// rotates the log.
    #[arg(long, value_name = "WHAT", requires = "log")]
    keep: Option<Retention>,
    /// Format of log lines.
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<Format>,
    /// Detach from the terminal once the port is open.
    #[arg(long)]
    background: bool,
    /// Write the process id to a file.
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsOption,
    /// Serve HTTP and WebDAV on the same port too, and a dashboard for browsers on this machine:
    /// `http://localhost:PORT/dashboard`.
    #[arg(long)]
    http: bool,
    /// Log more; given twice, log everything.
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// Format of log lines.
#[derive(Clone, Copy, ValueEnum, Debug)]
enum Format {
    /// Lines of text.
    Text,
    /// One JSON object per line.
    Json,
}

/// Parses a size on the command line.
fn size(text: &str) -> Result<u64, String> {
    let bytes = base::parse_size(text).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| format!("'{text}' is not a size such as 500g"))
}

/// Returns the full path of a directory to serve.
fn directory(dir: &Path) -> anyhow::Result<PathBuf> {
    let full = dir.canonicalize()?;
    if full.is_dir() { Ok(full) } else { bail!("not a directory; name the directory that contains it") }
}

impl ServeCommand {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let directory = match &self.dir {
            Some(dir) => Some(directory(dir).with_context(|| format!("cannot serve {}", dir.display()))?),
            None => None,
        };
        let cache = match &self.cache {
            Some(dir) => {
                let found = self::directory(dir);
                let found = found.with_context(|| format!("cannot keep files in {}", dir.display()))?;
                Some((found, self.cache_size))
            }
            None => None,
        };
        let overrides = Overrides {
            directory,
            cache,
            origin: self.origin,
            store_endpoint: self.s3_endpoint,
            store_region: self.s3_region,
            store_keys: self.s3_credentials.as_deref().map(absolute).transpose()?,
            read_only: self.read_only,
            managers: self.manager,
            min_free: self.min_free,
            ..Overrides::default()
        };
        Ok(server::run(self.process.launch(overrides)?))
    }
}

impl ManagerCommand {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let overrides = Overrides {
            role: Some(NodeRole::Manager),
            managers: self.replica,
            meta_managers: self.meta,
            cluster_port: self.process.cluster_port(self.cluster_port),
            ..Overrides::default()
        };
        Ok(server::run(self.process.launch(overrides)?))
    }
}

impl MetaCommand {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let overrides = Overrides {
            role: Some(NodeRole::MetaManager),
            meta_managers: self.replica,
            cluster_port: self.process.cluster_port(self.cluster_port),
            ..Overrides::default()
        };
        Ok(server::run(self.process.launch(overrides)?))
    }
}

impl SupervisorCommand {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let overrides = Overrides {
            role: Some(NodeRole::Supervisor),
            managers: self.manager,
            cluster_port: self.cluster_port.map(port),
            ..Overrides::default()
        };
        Ok(server::run(self.process.launch(overrides)?))
    }
}

fn port(number: u16) -> Port {
    if number == 0 { Port::Any } else { Port::Number(number) }
}

impl ProcessOptions {
    /// Returns the port where nodes join. Without a configuration file this is the default port: a
    /// root has no entry for itself among its replicas that would contain its port.
    fn cluster_port(&self, said: Option<u16>) -> Option<Port> {
        said.or(self.config.is_none().then_some(config::CLUSTER_PORT_DEFAULT)).map(port)
    }

    fn launch(self, overrides: Overrides) -> anyhow::Result<Launch> {
        let full = |path: Option<PathBuf>| path.as_deref().map(absolute).transpose();
        let log = match full(self.log)? {
            Some(path) => LogTarget::File { path, exact: true, retention: self.keep.unwrap_or_default() },
            None => LogTarget::Stderr,
        };
        let overrides = Overrides {
            port: self.port.map(port),
            tls: self.tls.certificate()?,
            http: self.http,
            admin_path: full(self.admin_path)?.map(|path| DirectorySetting { path, group: false }),
            log_format: self.log_format.map(|format| match format {
                Format::Text => LogFormat::Text,
                Format::Json => LogFormat::Json,
            }),
            ..overrides
        };
        Ok(Launch {
            load: ConfigInput {
                file: full(self.config)?.map(|path| path.to_string_lossy().into_owned()),
                evaluation: evaluation("xrootd", self.instance),
                overrides,
                strictness: Strictness::Strict,
            },
            log,
            levels: Levels::raised(self.verbose),
            precise: false,
            user: self.user,
            background: self.background,
            pid_file: full(self.pid_file)?,
            traditional_files: false,
            announce: true,
        })
    }
}
