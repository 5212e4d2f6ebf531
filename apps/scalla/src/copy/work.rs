//! The runtime of a copy, and what an interrupt does to it.

use std::process::ExitCode;

use client::copy::Watch;
use tokio::signal::unix::{SignalKind, signal};

use crate::environment::{self, Ground};

/// What shells expect of a program that was interrupted.
pub(crate) const INTERRUPTED: u8 = 130;

/// Runs `work` to its end. The first interrupt stops `watch`, so that the copies clean up; the second ends at once.
pub(crate) fn run(
    watch: &Watch,
    work: impl Future<Output = anyhow::Result<ExitCode>>,
) -> anyhow::Result<ExitCode> {
    run_telling(0, watch, work)
}

/// The same, and tells so much detail (see [`environment::begin`]).
pub(crate) fn run_telling(
    detail: u8,
    watch: &Watch,
    work: impl Future<Output = anyhow::Result<ExitCode>>,
) -> anyhow::Result<ExitCode> {
    let Ground { runtime, log: _log } = environment::begin(detail)?;
    let ended = runtime.block_on(async {
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let watch = watch.clone();
        let stopping = async move {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if watch.is_cancelled() {
                    std::process::exit(i32::from(INTERRUPTED));
                }
                watch.cancel();
            }
        };
        tokio::spawn(stopping);
        work.await
    });
    // A name that is being looked up is not waited for.
    runtime.shutdown_background();
    ended
}
