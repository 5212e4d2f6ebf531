//! Batching on each event loop: reads from disk, and with io_uring also the system calls of
//! connections that are served in the same round.
//!
//! It is separate from `net` and `storage`, because it connects the hooks of one with the rings of
//! the other (decisions 004 and 005).

use net::{LoopHandle, LoopWaker};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use storage::ring::{RingDriver, install};

/// Installs the rings on each loop if they are enabled, and logs once whether they are used.
///
/// The fallback is used where the kernel forbids io_uring: blocking reads run in the pool of each
/// file system, and each connection makes its own system calls, which costs more.
pub(crate) fn install_on(loops: &[LoopHandle], wanted: bool) {
    for handle in loops {
        handle.run(|| net::set_batch_hooks(storage::hold, storage::release));
    }
    if !wanted {
        return;
    }
    let told = Arc::new(AtomicBool::new(false));
    for handle in loops {
        let told = told.clone();
        let complete = async move {
            match on_this_loop() {
                Ok((wake, driver)) => {
                    if !told.swap(true, Ordering::Relaxed) {
                        tracing::info!(
                            "io_uring is used: for reads that wait for a disk, and to receive from and send to \
                             many connections at once"
                        );
                    }
                    while wake.arrived().await {
                        driver.complete();
                    }
                    return Err("its loop has no poller".to_owned());
                }
                Err(error) if !told.swap(true, Ordering::Relaxed) => {
                    tracing::info!(
                        "io_uring is refused ({error}); reads that wait for a disk take threads, and each \
                         connection its own system calls"
                    );
                }
                Err(_) => {}
            }
            Ok(())
        };
        handle.run(move || net::spawn_essential("the completion of cold reads", complete));
    }
}

/// Installs both rings or none, because a kernel that permits one permits the other.
fn on_this_loop() -> std::io::Result<(LoopWaker, RingDriver)> {
    let driver = install()?;
    let wake = LoopWaker::new(driver.event()?)?;
    net::enable_batching()?;
    Ok((wake, driver))
}
