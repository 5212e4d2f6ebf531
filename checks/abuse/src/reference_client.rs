//! The well-behaved client: small reads and stats, one after the other, each timed.

use crate::raw::{READ, READING, RawClient, STAT, range, request};
use anyhow::Result;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Latencies of requests that were answered.
#[derive(Default)]
pub(crate) struct Latencies(Vec<Duration>);

impl Latencies {
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn add(&mut self, latency: Duration) {
        self.0.push(latency);
    }

    /// The latency that as many of 100 requests did not exceed.
    pub(crate) fn percentile(&mut self, percent: usize) -> Duration {
        self.0.sort_unstable();
        self.0.get(self.0.len() * percent / 100).copied().unwrap_or(Duration::MAX)
    }

    pub(crate) fn worst(&self) -> Duration {
        self.0.iter().max().copied().unwrap_or_default()
    }
}

/// Works until it is over. The reply of each request is checked.
pub(crate) fn work(client: &mut RawClient, over: &AtomicBool) -> Result<Latencies> {
    let handle = client.open("/small", READING)?;
    let mut latencies = Latencies::default();
    while !over.load(Ordering::Relaxed) {
        let turn = latencies.count();
        let begun = Instant::now();
        if turn % 4 == 0 {
            client.ask(&request(STAT, [0; 16], b"/small"))?;
        } else {
            let offset = turn * 7919 % 90_000;
            let data = client.ask(&request(READ, range(handle, offset as u64, 5000), b""))?;
            anyhow::ensure!(data == [7; 5000], "a read of 5000 bytes at {offset} returned other bytes");
        }
        latencies.add(begun.elapsed());
    }
    let mut close = [0; 16];
    close[..4].copy_from_slice(&handle);
    client.ask(&request(3003, close, b""))?;
    Ok(latencies)
}

/// Works for a time.
pub(crate) fn work_for(client: &mut RawClient, time: Duration) -> Result<Latencies> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let working = scope.spawn(|| work(client, &over));
        std::thread::sleep(time);
        over.store(true, Ordering::Relaxed);
        working.join().unwrap_or_else(|_| anyhow::bail!("the well-behaved client panicked"))
    })
}
