//! A client that has thousands of files open in one process and reads all of them concurrently.
//!
//! It runs in a process of its own, so that the memory and threads of the client can be measured.

use std::fs;
use std::sync::Arc;

use anyhow::{Context, bail};
use client::{Client, Credentials, OpenWith, Settings, Url};
use serde_json::json;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

/// Size of one read in bytes.
const PIECE_BYTES: usize = 2048;

/// Opens `count` files `BASE/f0`, `BASE/f1`, …, and then reads each of them completely. Prints the
/// resources used by the process as JSON.
pub(crate) fn read(base: &str, count: usize) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = Client::with(Settings::default(), Credentials::none(), "bench");
        let base = Url::parse(base)?;
        let all_open = Arc::new(Barrier::new(count));
        let mut running = JoinSet::new();
        for number in 0..count {
            let url = base.with_user_path(&format!("{}/f{number}", base.path))?;
            running.spawn(one(client.clone(), url, all_open.clone()));
        }
        let mut bytes = 0;
        while let Some(ended) = running.join_next().await {
            bytes += ended??;
        }
        let status = fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
        let field = |name: &str| -> Option<u64> {
            status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
        };
        let resident = field("VmHWM:").context("/proc/self/status lacks VmHWM")? * 1024;
        println!("{}", json!({ "bytes": bytes, "resident": resident, "threads": field("Threads:") }));
        Ok(())
    })
}

async fn one(client: Client, url: Url, all_open: Arc<Barrier>) -> anyhow::Result<usize> {
    let file = client.open(&url, &OpenWith::read()).await?;
    let size = file.stat_at_open().context("the reply to the open lacks the status")?.size;
    all_open.wait().await;
    let mut bytes = 0;
    while (bytes as u64) < size {
        let data = file.read(bytes as u64, PIECE_BYTES).await?;
        if data.is_empty() {
            bail!("{url} ends at byte {bytes} of {size}");
        }
        bytes += data.len();
    }
    // No file is closed before all files have been read.
    all_open.wait().await;
    file.close().await?;
    Ok(bytes)
}
