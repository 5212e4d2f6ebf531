//! [`UploadRemovals`]: the removal of what files that were not completed have left at an origin.
//!
//! Nobody waits for it: it is made under the breaker of the origin, and goes on while that does not answer for a while.

use crate::appearing_file::{AppearingFile, AppearingRest};
use crate::place::{OriginPlace, RequestFailure};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Number of removals that an origin makes at once, and of those that wait.
const REMOVALS_AT_ONCE: usize = 4;
const REMOVALS_MAX: usize = 1024;
/// Number of attempts of a removal. The pause after the first one doubles, up to the longest one.
const ATTEMPTS_MAX: u32 = 8;
const PAUSE: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(32);
/// Time of an attempt.
const ATTEMPT_TIME: Duration = Duration::from_secs(60);

/// The removals at one origin.
pub(crate) struct UploadRemovals {
    place: Arc<OriginPlace>,
    runtime: Handle,
    turns: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

impl UploadRemovals {
    pub(crate) fn new(place: Arc<OriginPlace>, runtime: Handle) -> Self {
        let limit = |most| Arc::new(Semaphore::new(most));
        Self { place, runtime, turns: limit(REMOVALS_AT_ONCE), waiting: limit(REMOVALS_MAX) }
    }

    /// Begins to remove the data of an unfinished file.
    pub(crate) fn begin(&self, file: AppearingFile, rest: AppearingRest) {
        let Ok(waits) = self.waiting.clone().try_acquire_owned() else {
            return report(&file, &"too many others wait for their removal");
        };
        let (place, turns) = (self.place.clone(), self.turns.clone());
        self.runtime.spawn(remove(place, turns, waits, (file, rest)));
    }
}

async fn remove(
    place: Arc<OriginPlace>,
    turns: Arc<Semaphore>,
    _waits: OwnedSemaphorePermit,
    (file, rest): (AppearingFile, AppearingRest),
) {
    let mut pause = PAUSE;
    for attempt in 1..=ATTEMPTS_MAX {
        let removed = {
            let _turn = turns.acquire().await;
            tokio::time::timeout(ATTEMPT_TIME, place.run(file.remove(&rest))).await
        };
        let reason: String = match removed {
            Ok(Ok(())) => return,
            Ok(Err(RequestFailure::Client(error))) => error.to_string(),
            Ok(Err(RequestFailure::NotAnswering(reason))) => reason.to_string(),
            Ok(Err(failure)) => format!("{failure:?}"),
            Err(_) => "it does not answer".to_owned(),
        };
        if attempt == ATTEMPTS_MAX {
            return report(&file, &reason);
        }
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(PAUSE_MAX);
    }
}

fn report(file: &AppearingFile, reason: &dyn std::fmt::Display) {
    let path = file.url().path.as_str();
    tracing::warn!(path, %reason, "a part of a file that was not completed stays at its origin");
}
