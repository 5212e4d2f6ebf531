//! Gives each loop its io_uring, for reads that would wait, and wakes the loop when they have ended.

use net::{LoopHandle, Wake};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use storage::ring::{hold, install, release};

/// Installs a ring on each loop, and says once which way reads that wait go: where the kernel forbids io_uring, through the
/// threads of each file system, which costs more.
pub(crate) fn install_on(loops: &[LoopHandle]) {
    let told = Arc::new(AtomicBool::new(false));
    for handle in loops {
        let told = told.clone();
        handle.spawn(move || async move {
            let ring = install().and_then(|driver| Ok((Wake::new(driver.event()?)?, driver)));
            match ring {
                Ok((wake, driver)) => {
                    net::around_rounds(hold, release);
                    if !told.swap(true, Ordering::Relaxed) {
                        tracing::info!("reads that wait for a disk go through io_uring");
                    }
                    while wake.arrived().await {
                        driver.complete();
                    }
                }
                Err(error) if !told.swap(true, Ordering::Relaxed) => {
                    tracing::info!("io_uring is refused ({error}); reads that wait for a disk take threads");
                }
                Err(_) => {}
            }
        });
    }
}
