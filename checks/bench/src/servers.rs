//! Start and stop of the servers.
//!
//! Loads with the same setting share running servers, because a start takes longer than many
//! measurements.

use anyhow::Context;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::children::{ChildServer, SERVER_CPU, pinned};
use crate::clients;
use crate::data::Data;
use crate::proxies;
use crate::row::{CONNECTION_RATE, MeasuredServers, RowSetting, SERVER_RATE};
use crate::server::{POLLING, Server, ServerSide, XROOTD, free_port};
use crate::site;
use crate::web_rows;

/// The running servers: one for each side of the setting.
pub(crate) struct Fleet<'d> {
    data: &'d Data,
    /// Additional arguments of our server in every load.
    arguments: &'d [String],
    running: Option<(RowSetting, Vec<Server>)>,
}

impl<'d> Fleet<'d> {
    pub(crate) fn new(data: &'d Data, arguments: &'d [String]) -> Self {
        Self { data, arguments, running: None }
    }

    /// Returns servers with this setting; reuses the running ones if possible.
    pub(crate) fn with(&mut self, setting: &RowSetting) -> anyhow::Result<&[Server]> {
        let same = |(running, _): &(RowSetting, Vec<Server>)| running == setting && !setting.fresh;
        if !self.running.as_ref().is_some_and(same) {
            self.running = None;
            let servers = match setting.cast {
                MeasuredServers::Root => vec![self.root()?],
                MeasuredServers::Large => vec![site::start_large(self.data)?],
                MeasuredServers::Slow => vec![self.slow(setting)?],
                MeasuredServers::Clients => {
                    vec![self.ours(setting, "ours")?, self.ours(setting, "ours-too")?.on(ServerSide::Theirs)]
                }
                MeasuredServers::TheirClients => {
                    vec![
                        self.theirs(setting, "theirs")?.on(ServerSide::Ours),
                        self.theirs(setting, "theirs-too")?,
                    ]
                }
                MeasuredServers::Limited => vec![self.limited(setting)?],
                MeasuredServers::Clusters => vec![
                    site::start(self.data, ServerSide::Ours, ServerSide::Ours)?,
                    site::start(self.data, ServerSide::Theirs, ServerSide::Theirs)?,
                ],
                MeasuredServers::Managers => vec![
                    site::start(self.data, ServerSide::Ours, ServerSide::Theirs)?,
                    site::start(self.data, ServerSide::Theirs, ServerSide::Theirs)?,
                ],
                MeasuredServers::Proxies(plan) => {
                    proxies::start(self.data, plan, || self.ours(&RowSetting::default(), "local"))?
                }
                MeasuredServers::Web => vec![self.ours(setting, "ours")?, self.theirs(setting, "theirs")?],
                MeasuredServers::Nginx => {
                    vec![self.ours(setting, "ours")?, web_rows::start_nginx(self.data, setting.security)?]
                }
                MeasuredServers::Servers => {
                    vec![
                        self.ours(setting, "ours")?,
                        self.theirs(setting, "theirs")?,
                        self.floor(setting)?,
                        self.bare(setting)?,
                    ]
                }
            };
            self.running = Some((setting.clone(), servers));
        }
        self.running.as_ref().map(|(_, servers)| servers.as_slice()).context("no servers")
    }

    fn ours(&self, setting: &RowSetting, name: &str) -> anyhow::Result<Server> {
        let directory = self.data.run_directory(name)?;
        let log = directory.join("log");
        let mut command = pinned(&self.data.program(), SERVER_CPU);
        command.arg("serve").arg(self.data.tree(setting.tmpfs));
        command.args(["--port", "0", "--admin-path"]).arg(&directory);
        let mut lines: Vec<_> = setting.ours.iter().map(|line| (*line).to_owned()).collect();
        lines.extend(self.security(setting, ServerSide::Ours)?);
        if !lines.is_empty() {
            let file = directory.join("scalla.cfg");
            fs::write(&file, lines.join("\n") + "\n")
                .with_context(|| format!("cannot write {}", file.display()))?;
            command.arg("--config").arg(file);
        }
        command.args(self.arguments);
        self.arm(setting, &directory, &mut command)?;
        let mut running = ChildServer::start(command, &log, true).context("our server")?;
        let port = running.wait_for(&log, |text| {
            let (_, rest) = text.split_once("listening on ")?;
            let (address, _) = rest.split_once(',')?;
            address.rsplit_once(':')?.1.trim().parse().ok()
        })?;
        Ok(Server::alone(running, port, ServerSide::Ours).secured(setting.security))
    }

    fn security(&self, setting: &RowSetting, side: ServerSide) -> anyhow::Result<Vec<String>> {
        setting.security.map_or(Ok(Vec::new()), |security| security.lines(self.data, side))
    }

    /// Sets the variables that a server needs for the security of a setting.
    fn arm(&self, setting: &RowSetting, directory: &Path, command: &mut Command) -> anyhow::Result<()> {
        setting.security.map_or(Ok(()), |security| security.arm_server(self.data, directory, command))
    }

    fn theirs(&self, setting: &RowSetting, name: &str) -> anyhow::Result<Server> {
        let directory = self.data.run_directory(name)?;
        let (log, file) = (directory.join("log"), directory.join("xrootd.cfg"));
        let (tree, work) = (self.data.tree(setting.tmpfs), directory.display());
        let web = match setting.cast {
            MeasuredServers::Web => Some(free_port()?),
            _ => None,
        };
        // Reverse DNS lookups are disabled, because they take seconds without a name server.
        let text = format!(
            "all.export /\noss.localroot {}\nall.adminpath {work}\nall.pidpath {work}\nxrd.network nodnr\n{}\n{}\n{}\n",
            tree.display(),
            web.map(web_rows::their_line).unwrap_or_default(),
            setting.theirs.join("\n"),
            self.security(setting, ServerSide::Theirs)?.join("\n")
        );
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        // XRootD cannot report a port assigned by the kernel.
        let port = free_port()?;
        let mut command = pinned(Path::new(XROOTD), SERVER_CPU);
        command.arg("-c").arg(&file).args(["-p", &port.to_string()]).current_dir(&directory);
        self.arm(setting, &directory, &mut command)?;
        let mut running = ChildServer::start(command, &log, true).context("their server")?;
        running.wait_for(&log, |text| text.contains("initialization completed").then_some(()))?;
        Ok(Server::alone(running, web.unwrap_or(port), ServerSide::Theirs).secured(setting.security))
    }

    fn floor(&self, setting: &RowSetting) -> anyhow::Result<Server> {
        self.own("floor", ServerSide::Floor, |command, _| {
            command.arg("--floor").args(polls(setting).then_some("--polling"));
        })
    }

    fn bare(&self, setting: &RowSetting) -> anyhow::Result<Server> {
        self.own("bare", ServerSide::Bare, |command, _| {
            command
                .arg("--bare")
                .arg(self.data.tree(setting.tmpfs))
                .args(polls(setting).then_some("--polling"));
        })
    }

    fn root(&self) -> anyhow::Result<Server> {
        self.own("root", ServerSide::Ours, |command, _| {
            command.args(["--agents", "1", "--agents-are", "manager"]);
        })
    }

    fn slow(&self, setting: &RowSetting) -> anyhow::Result<Server> {
        self.own("slow", ServerSide::Ours, |command, directory| {
            command.arg("--slow").arg(self.data.tree(setting.tmpfs)).arg(directory);
        })
    }

    /// Starts several limited servers, which are treated as one.
    fn limited(&self, setting: &RowSetting) -> anyhow::Result<Server> {
        let mut all: Vec<Server> = Vec::new();
        for number in 0..clients::LIMITED {
            all.push(self.own(&format!("limited-{number}"), ServerSide::Ours, |command, directory| {
                let rates = [CONNECTION_RATE, SERVER_RATE].map(|rate| rate.to_string());
                command.arg("--limited").arg(self.data.tree(setting.tmpfs)).arg(directory).args(rates);
            })?);
        }
        Ok(Server::group(all, ServerSide::Ours))
    }

    /// Starts a server that is part of this program.
    fn own(
        &self,
        name: &str,
        side: ServerSide,
        told: impl Fn(&mut Command, &Path),
    ) -> anyhow::Result<Server> {
        let directory = self.data.run_directory(name)?;
        let log = directory.join("log");
        let own = std::env::current_exe().context("cannot determine the path of this program")?;
        let mut command = pinned(&own, SERVER_CPU);
        told(&mut command, &directory);
        // The user of the servers may be unable to execute this program.
        let mut running =
            ChildServer::start(command, &log, false).with_context(|| format!("the server `{name}`"))?;
        let port = running.wait_for(&log, |text| text.strip_prefix("port ")?.lines().next()?.parse().ok())?;
        Ok(Server::alone(running, port, side))
    }
}

/// Reports whether our server uses polling.
fn polls(setting: &RowSetting) -> bool {
    setting.ours.contains(&POLLING)
}
