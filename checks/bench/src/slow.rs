//! Our server on a storage that takes its time: every read of one file waits, whatever is in memory; or all reads together
//! give so much in a second and no more, and so does each connection.
//!
//! It is assembled as `scalla serve DIR` assembles it, but for the storage.

use anyhow::{Context, bail};
use base::LogicalPath;
use config::{Evaluation, Files, Folder, Load, Overrides, Port, Strictness};
use server::Running;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use storage::Faulty;
use storage::faulty::{Call, Fault, Rule, Rules};

use crate::relay;

/// The file that is slow.
pub(crate) const FILE: &str = "/slow";
/// How long each read of it waits.
pub(crate) const DELAY: Duration = Duration::from_millis(50);

/// Serves `tree` until killed, with its own files in `work`; prints `port N` when it listens.
pub(crate) fn serve(tree: &Path, work: &Path) -> anyhow::Result<()> {
    let path = LogicalPath::parse(FILE.as_bytes()).ok().context("the slow file has no path")?;
    let rule = Rule::new(&[Call::Read], Fault::Delay(DELAY)).below(&path);
    let running = running(tree, work, |rules| {
        rules.add(rule);
    })?;
    wait(running.address().port())
}

/// The same, but it gives no more than so many bytes a second, to each connection and to all together.
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

fn running(tree: &Path, work: &Path, told: impl FnOnce(&Rules)) -> anyhow::Result<Running> {
    let request = Load {
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
            admin_path: Some(Folder { path: PathBuf::from(work), group: false }),
            ..Overrides::default()
        },
        strictness: Strictness::Strict,
    };
    let loaded = config::load(&request, &Files);
    if !loaded.report.is_ok() {
        bail!("{}", loaded.report);
    }
    Ok(Running::listen_over(&loaded.effective, |posix| {
        let slow = Faulty::new(posix);
        told(slow.rules());
        Arc::new(slow)
    })?)
}
