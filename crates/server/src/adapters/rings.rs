//! Gives each loop its io_uring, for reads that would wait, and wakes the loop when they have ended.

use net::{LoopHandle, Wake};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use storage::ring::install;

/// Installs a ring on each loop. Where the kernel forbids it, says so once: such reads then go through the threads of each
/// file system, which costs more.
pub(crate) fn install_on(loops: &[LoopHandle]) {
    let told = Arc::new(AtomicBool::new(false));
    for handle in loops {
        let told = told.clone();
        handle.spawn(move || async move {
            let ring = install().and_then(|driver| Ok((Wake::new(driver.event()?)?, driver)));
            match ring {
                Ok((wake, driver)) => {
                    while wake.arrived().await {
                        driver.complete();
                    }
                }
                Err(error) if !told.swap(true, Ordering::Relaxed) => {
                    tracing::info!(
                        "io_uring is not to be had ({error}); reads that wait for a disk take threads"
                    );
                }
                Err(_) => {}
            }
        });
    }
}
