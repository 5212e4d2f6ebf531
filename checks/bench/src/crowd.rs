//! A client that has thousands of files open in one process, all of them read at once, and what that takes.

use std::fs;
use std::sync::Arc;

use anyhow::{Context, bail};
use client::{Client, OpenWith, Settings, Url};
use serde_json::json;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

/// Bytes of one read.
const PIECE_BYTES: usize = 2048;

/// Opens `count` files `BASE/f0`, `BASE/f1`, …; when all are open, reads each from end to end; prints as JSON what
/// the process needed.
pub(crate) fn read(base: &str, count: usize) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = Client::with(Settings::default(), "bench");
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
        let status = fs::read_to_string("/proc/self/status").context("cannot read what this process uses")?;
        let field = |name: &str| -> Option<u64> {
            status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
        };
        let resident = field("VmHWM:").context("the kernel does not tell")? * 1024;
        println!("{}", json!({ "bytes": bytes, "resident": resident, "threads": field("Threads:") }));
        Ok(())
    })
}

async fn one(client: Client, url: Url, all_open: Arc<Barrier>) -> anyhow::Result<usize> {
    let file = client.open(&url, &OpenWith::read()).await?;
    let size = file.stat_at_open().context("no status came with the open")?.size;
    all_open.wait().await;
    let mut bytes = 0;
    while (bytes as u64) < size {
        let data = file.read(bytes as u64, PIECE_BYTES).await?;
        if data.is_empty() {
            bail!("{url} ends at byte {bytes} of {size}");
        }
        bytes += data.len();
    }
    // Nobody closes before everybody has read.
    all_open.wait().await;
    file.close().await?;
    Ok(bytes)
}
