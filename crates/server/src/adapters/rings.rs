//! Has each loop begin together what can be: reads that would wait, and, with io_urings of its own, the system calls of
//! connections that are served together.

use net::{LoopHandle, Wake};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use storage::ring::{Driver, install};

/// Gives each loop its rings if it is to have any, and says once whether they are used: where the kernel forbids io_uring, reads
/// that wait go through the threads of each file system, and each connection has system calls of its own, which costs more.
pub(crate) fn install_on(loops: &[LoopHandle], wanted: bool) {
    for handle in loops {
        handle.run(|| net::around_rounds(storage::hold, storage::release));
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

/// Both or none: a kernel that allows one allows the other.
fn on_this_loop() -> std::io::Result<(Wake, Driver)> {
    let driver = install()?;
    let wake = Wake::new(driver.event()?)?;
    net::gather_calls()?;
    Ok((wake, driver))
}
