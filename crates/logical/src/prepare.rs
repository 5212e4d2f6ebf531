//! Prepare requests of a server whose files are all on disk: there is nothing to bring and nothing to wait for, but
//! clients want an id that they can ask about and cancel.
//!
//! Nothing is remembered. An id carries the server's own mark, so that it is known again at any time, also after the
//! request is long done or the server was restarted, and a server that never issued it says so.

use crate::job;
use crate::shared::{Shared, errno, unable};
use base::{Clock, Error, ErrorKind, LogicalPath};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;
use vfs::{PrepareRequest, Target, Value};

/// Issues ids of prepare requests and knows them again, also those of earlier runs.
pub struct Prepares {
    /// What all ids of this server start with, in every run of it.
    mark: String,
    /// What those of this run go on with.
    run: u32,
    next: AtomicU64,
}

impl Prepares {
    /// For the server that is known by `name`, of this run, which began now.
    pub fn new(name: &str, clock: &dyn Clock) -> Self {
        let mark = format!("scalla{:08x}", digest::crc32c(name.as_bytes()));
        // The second of the start, as far as eight digits go: until 2106.
        let run = clock.today().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as u32;
        Self { mark, run, next: AtomicU64::new(1) }
    }

    /// One more id.
    pub fn issue(&self) -> String {
        format!("{}{:08x}.{}", self.mark, self.run, self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Was it issued by this server, in this run or an earlier one?
    pub fn knows(&self, id: &[u8]) -> bool {
        let rest = std::str::from_utf8(id).ok().and_then(|text| text.strip_prefix(self.mark.as_str()));
        let Some((run, number)) = rest.and_then(|rest| rest.split_once('.')) else { return false };
        let issued = u32::from_str_radix(run, 16).is_ok_and(|run| run <= self.run);
        run.len() == 8 && issued && number.parse::<u64>().is_ok_and(|number| number > 0)
    }

    fn check(&self, id: &[u8]) -> Result<(), Error> {
        if self.knows(id) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::ArgInvalid, "Prepare requestid owned by an unknown server"))
    }
}

/// Accepts a request. With staging asked for, the answer is its id.
pub(crate) fn start(shared: &Arc<Shared>, request: PrepareRequest) -> Result<Value, Error> {
    for target in &request.targets {
        let export = shared.export(&target.path, "Preparing")?;
        if request.write && crate::shared::is_read_only(export) {
            return Err(unable("prepare", &target.path, errno::READ_ONLY));
        }
    }
    if request.fresh {
        request.targets.iter().for_each(|target| freshen(shared, &target.path));
    }
    if request.stage && !request.evict {
        return Ok(Value::Text(shared.prepares.issue().into_bytes()));
    }
    Ok(Value::Nothing)
}

/// Says that a file is wanted: whoever makes room by the time of the last access spares it. A hint; nobody waits for it, and
/// nobody hears what became of it.
pub(crate) fn freshen(shared: &Arc<Shared>, path: &LogicalPath) {
    let (inside, name) = (shared.clone(), path.without_slash());
    let job = move |_| {
        if let Err(error) = inside.backend.renew_access(&name) {
            tracing::debug!(path = %name, "its access time is not renewed: {error}");
        }
    };
    // A pool that is full has more important things to do.
    job::at(&shared.backend, path, None, job, || {});
}

/// Cancels: what is done already cannot be undone, which is fine.
pub(crate) fn cancel(shared: &Shared, id: &[u8]) -> Result<Value, Error> {
    shared.prepares.check(id).map(|()| Value::Nothing)
}

/// The state of a request: there is nothing in progress.
pub(crate) fn query(shared: &Shared, id: &[u8], _targets: &[Target]) -> Result<Value, Error> {
    shared.prepares.check(id)?;
    Ok(nothing_known())
}

/// What is said of a request of which nothing is in progress.
pub fn nothing_known() -> Value {
    Value::Text(b"No information found.".to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    struct At(u64);
    impl Clock for At {
        fn now(&self) -> Duration {
            Duration::ZERO
        }
        fn today(&self) -> SystemTime {
            UNIX_EPOCH + Duration::from_secs(self.0)
        }
    }

    #[test]
    fn only_own_ids_are_known() {
        let ours = Prepares::new("a:1094", &At(5));
        let theirs = Prepares::new("b:1094", &At(5));
        let (first, second) = (ours.issue(), ours.issue());
        assert_ne!(first, second);
        assert!(ours.knows(first.as_bytes()) && ours.knows(second.as_bytes()));
        assert!(Prepares::new("a:1094", &At(6)).knows(first.as_bytes()), "after a restart");
        assert!(!ours.knows(theirs.issue().as_bytes()));
        let future = Prepares::new("a:1094", &At(6)).issue();
        let cut = first.replace(".1", ".");
        for forged in [future.as_str(), &cut, "badid", "", &ours.mark] {
            assert!(!ours.knows(forged.as_bytes()), "{forged}");
        }
    }
}
