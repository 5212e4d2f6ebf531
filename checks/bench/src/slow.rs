//! Our server on a slow storage: each read of one file is delayed, or the rates are limited.
//!
//! It is assembled like `scalla serve DIR` except for the storage, so that only the storage
//! differs.

use anyhow::{Context, bail};
use base::LogicalPath;
use config::{ConfigInput, DirectorySetting, Evaluation, LocalFiles, Overrides, Port, Strictness};
use server::RunningServer;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use storage::Faulty;
use storage::faulty::{FaultRule, FaultRules, FaultyCall, InjectedFault};

use crate::relay;

/// Path of the slow file.
pub(crate) const FILE: &str = "/slow";
/// Delay of each read of the slow file.
pub(crate) const DELAY: Duration = Duration::from_millis(50);

/// Serves `tree` until killed, with its own files in `work`; prints `port N` when it listens.
pub(crate) fn serve(tree: &Path, work: &Path) -> anyhow::Result<()> {
    let path = LogicalPath::parse(FILE.as_bytes()).ok().context("the path of the slow file is invalid")?;
    let rule = FaultRule::new(&[FaultyCall::Read], InjectedFault::Delay(DELAY)).below(&path);
    let running = running(tree, work, |rules| {
        rules.add(rule);
    })?;
    wait(running.address().port())
}

/// Serves `tree` with limited rates in bytes per second, for each connection and for all together.
pub(crate) fn serve_limited(tree: &Path, work: &Path, connection: u64, server: u64) -> anyhow::Result<()> {
    let running = running(tree, work, |rules| rules.set_rate(Some(server)))?;
    wait(relay::start(running.address().port(), connection)?)
}

fn wait(port: u16) -> ! {
    println!("port {port}");
    loop {
        std::thread::park();
    }
}

fn running(tree: &Path, work: &Path, told: impl FnOnce(&FaultRules)) -> anyhow::Result<RunningServer> {
    let request = ConfigInput {
        file: None,
        evaluation: Evaluation {
            program: "xrootd".to_owned(),
            instance: None,
            host: server::host_name(),
            environment: Default::default(),
        },
        overrides: Overrides {
            directory: Some(tree.to_owned()),
            port: Some(Port::Any),
            admin_path: Some(DirectorySetting { path: PathBuf::from(work), group: false }),
            ..Overrides::default()
        },
        strictness: Strictness::Strict,
    };
    let loaded = config::load(&request, &LocalFiles);
    if !loaded.report.is_ok() {
        bail!("{}", loaded.report);
    }
    Ok(RunningServer::listen_over(&loaded.effective, |posix| {
        let slow = Faulty::new(posix);
        told(slow.rules());
        Arc::new(slow)
    })?)
}
