//! Our server on a storage that takes its time: every read of one file waits, whatever is in memory.
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
use storage::faulty::{Call, Fault, Rule};

/// The file that is slow.
pub(crate) const FILE: &str = "/slow";
/// How long each read of it waits.
pub(crate) const DELAY: Duration = Duration::from_millis(50);

/// Serves `tree` until killed, with its own files in `work`; prints `port N` when it listens.
pub(crate) fn serve(tree: &Path, work: &Path) -> anyhow::Result<()> {
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
    let path = LogicalPath::parse(FILE.as_bytes()).ok().context("the slow file has no path")?;
    let running = Running::listen_over(&loaded.effective, |posix| {
        let slow = Faulty::new(posix);
        slow.rules().add(Rule::new(&[Call::Read], Fault::Delay(DELAY)).below(&path));
        Arc::new(slow)
    })?;
    println!("port {}", running.address().port());
    loop {
        std::thread::park();
    }
}
