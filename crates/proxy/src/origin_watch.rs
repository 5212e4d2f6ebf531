//! Reports whether the fixed origin answers, for the cluster of a proxy: clients are then sent to
//! proxies that reach it.

use crate::file_system::ProxyFiles;
use std::time::Duration;

/// Pause before a report that was not taken is repeated.
const REPEAT_PAUSE: Duration = Duration::from_secs(1);

/// Follows the origin of all paths, also without requests. `report` gets `true` when it no longer answers and
/// `false` when it does again, and returns whether it has taken the report.
///
/// A proxy whose clients name origins reports nothing, because it may reach the others.
pub fn follow_origin(files: &ProxyFiles, report: impl Fn(bool) -> bool + Send + 'static) {
    let Some(home) = files.origins.only_origin().map(|origin| origin.home.clone()) else { return };
    let mut state = home.follow();
    files.runtime().spawn(async move {
        let mut reported = false;
        loop {
            let has_failed = state.has_failed();
            if has_failed != reported {
                if !report(has_failed) {
                    tokio::time::sleep(REPEAT_PAUSE).await;
                    continue;
                }
                reported = has_failed;
            }
            if state.changed().await.is_err() {
                return;
            }
        }
    });
}
