//! The runtime of a copy, and the handling of interrupts.

use std::process::ExitCode;

use client::copy::Watch;
use tokio::signal::unix::{SignalKind, signal};

use crate::environment::{self, ClientRuntime};
use crate::exit_status::INTERRUPTED;

/// Runs `work` to its end. The first interrupt cancels `watch`, so that the copies clean up. The
/// second ends the process immediately.
pub(crate) fn run(
    watch: &Watch,
    work: impl Future<Output = anyhow::Result<ExitCode>>,
) -> anyhow::Result<ExitCode> {
    run_with_log_level(0, watch, work)
}

/// Runs `work` like [`run`], with the log level `detail` (see [`environment::start_runtime`]).
pub(crate) fn run_with_log_level(
    detail: u8,
    watch: &Watch,
    work: impl Future<Output = anyhow::Result<ExitCode>>,
) -> anyhow::Result<ExitCode> {
    let ClientRuntime { runtime, log: _log } = environment::start_runtime(detail)?;
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
    // Does not wait for a pending name lookup.
    runtime.shutdown_background();
    ended
}
