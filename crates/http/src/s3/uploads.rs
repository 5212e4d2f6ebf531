//! The end of uploads in parts: who uses one, and when it is removed.
//!
//! A directory is that of an upload only if it has the record of one. Its age is that of its newest part. The server
//! removes the uploads that it began itself, and a listing those that it has seen, in the name of its client.

use super::target;
use crate::call::{CallFailure, Calls};
use base::{ErrorKind, LogicalPath};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};
use vfs::{Caller, ListDetail, OpenRequest, Operation, Value};

/// The begin of the names of directories of uploads. No key has such a name.
pub(super) const PREFIX: &str = vfs::UPLOAD_PREFIX;
/// The name of the record in the directory of an upload.
const RECORD: &str = ".scalla-multipart-record";
/// The begin of the record.
const RECORD_HEAD: &str = "upload in parts\n";
/// Maximum length of a record.
const RECORD_BYTES_MAX: usize = 512;
/// Bytes of the id of an upload.
pub(super) const ID_BYTES: usize = 16;
/// Maximum number of parts of an upload.
pub(super) const PARTS_MAX: u32 = 10_000;
/// Time after its last part after which an upload is removed.
const LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// Time after which the server looks again at an upload that is in use.
const USED_PAUSE: Duration = Duration::from_secs(3600);
/// Maximum number of uploads whose end this server awaits. Others are removed by later listings.
const AWAITED_MAX: usize = 10_000;
/// Number of uploads that could not be removed after which a listing tries no further ones.
const FAILURES_MAX: usize = 10;

/// Reports whether a name is reserved for uploads.
pub(super) fn is_reserved(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// Reports whether a text is the id of an upload.
pub(super) fn is_id(id: &str) -> bool {
    id.len() == 2 * ID_BYTES && id.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Reports whether a directory with this name may be that of an upload.
pub(super) fn is_upload(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(is_id)
}

/// Returns the path of the record in the directory of an upload.
pub(super) fn record_of(directory: &LogicalPath) -> Option<LogicalPath> {
    directory.join(RECORD.as_bytes()).ok()
}

/// Returns the record of an upload.
pub(super) fn record(id: &str, name: &[u8]) -> Vec<u8> {
    [RECORD_HEAD.as_bytes(), id.as_bytes(), b"\n", name, b"\n"].concat()
}

/// Returns the name of the object of an upload with this directory; `None` if it is no record of this upload.
fn name_of(record: &[u8], directory: &LogicalPath) -> Option<Vec<u8>> {
    let id = directory.file_name()?.strip_prefix(PREFIX.as_bytes())?;
    let rest = record.strip_prefix(RECORD_HEAD.as_bytes())?.strip_prefix(id)?;
    let name = rest.strip_prefix(b"\n")?.strip_suffix(b"\n")?;
    (!name.is_empty() && !name.contains(&b'/') && !name.contains(&b'\n')).then(|| name.to_vec())
}

/// What a request does with an upload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum UploadUse {
    /// It stores a part.
    Part,
    /// It joins the parts.
    Completion,
    /// It removes the upload.
    Abort,
    /// The time of the upload is over.
    Expiry,
}

/// The requests that use an upload.
#[derive(Default)]
struct UploadUsers {
    parts: usize,
    end: Option<UploadUse>,
}

/// An upload whose end the server awaits.
struct AwaitedUpload {
    due: Instant,
    calls: Calls,
    caller: Arc<Caller>,
}

#[derive(Default)]
struct RegisteredUploads {
    users: HashMap<LogicalPath, UploadUsers>,
    awaited: HashMap<LogicalPath, AwaitedUpload>,
    /// A task removes those that are awaited.
    is_awaiting: bool,
}

/// The uploads of a server that are in use, and those whose end it awaits.
pub(crate) struct UploadRegistry {
    uploads: Mutex<RegisteredUploads>,
    /// Removals of listings: one at a time.
    removals: Semaphore,
}

/// The use of an upload. It ends on drop.
#[must_use = "the use ends on drop"]
pub(super) struct HeldUpload {
    registry: Arc<UploadRegistry>,
    directory: LogicalPath,
    held: UploadUse,
}

impl Drop for HeldUpload {
    fn drop(&mut self) {
        let mut uploads = self.registry.lock();
        let Some(users) = uploads.users.get_mut(&self.directory) else { return };
        match self.held {
            UploadUse::Part => users.parts -= 1,
            _ => users.end = None,
        }
        if users.parts == 0 && users.end.is_none() {
            uploads.users.remove(&self.directory);
        }
    }
}

/// The reason why an upload was not removed.
enum KeptUpload {
    /// It is no upload, or there was an error.
    Failed,
    /// A request uses it.
    Used,
    /// Its time is over after this one.
    Young(Duration),
}

impl UploadRegistry {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { uploads: Mutex::default(), removals: Semaphore::new(1) })
    }

    fn lock(&self) -> MutexGuard<'_, RegisteredUploads> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the use of an upload; `None` if another use excludes it. Parts may be stored while others are joined.
    pub(super) fn hold(self: &Arc<Self>, directory: &LogicalPath, held: UploadUse) -> Option<HeldUpload> {
        let mut uploads = self.lock();
        let present = uploads.users.get(directory);
        let (parts, end) = present.map_or((0, None), |users| (users.parts, users.end));
        let is_free = match held {
            UploadUse::Part => matches!(end, None | Some(UploadUse::Completion)),
            UploadUse::Completion | UploadUse::Abort => end.is_none(),
            UploadUse::Expiry => end.is_none() && parts == 0,
        };
        if !is_free {
            return None;
        }
        let users = uploads.users.entry(directory.clone()).or_default();
        match held {
            UploadUse::Part => users.parts += 1,
            _ => users.end = Some(held),
        }
        Some(HeldUpload { registry: self.clone(), directory: directory.clone(), held })
    }

    /// Removes an upload at the end of its time, in the name of the user who began it.
    pub(super) fn await_end(self: &Arc<Self>, directory: LogicalPath, calls: &Calls, caller: &Caller) {
        let mut uploads = self.lock();
        if uploads.awaited.len() >= AWAITED_MAX {
            return;
        }
        let caller = Arc::new(caller.detached());
        let due = Instant::now() + LIFETIME;
        uploads.awaited.insert(directory, AwaitedUpload { due, calls: calls.clone(), caller });
        if !uploads.is_awaiting {
            uploads.is_awaiting = true;
            tokio::spawn(self.clone().remove_awaited());
        }
    }

    /// Forgets an upload that has ended.
    pub(super) fn forget(&self, directory: &LogicalPath) {
        self.lock().awaited.remove(directory);
    }

    /// Returns the upload that ends first. Without one, the task that asks ends.
    fn first_awaited(&self) -> Option<(LogicalPath, Instant)> {
        let mut uploads = self.lock();
        let first = uploads.awaited.iter().min_by_key(|(_, awaited)| awaited.due);
        let first = first.map(|(directory, awaited)| (directory.clone(), awaited.due));
        uploads.is_awaiting = first.is_some();
        first
    }

    async fn remove_awaited(self: Arc<Self>) {
        while let Some((directory, due)) = self.first_awaited() {
            sleep_until(due).await;
            let Some(mut awaited) = self.lock().awaited.remove(&directory) else { continue };
            let pause = match self.expire(&awaited.calls, &awaited.caller, &directory).await {
                Err(KeptUpload::Used) => USED_PAUSE,
                Err(KeptUpload::Young(rest)) => rest + Duration::from_secs(1),
                // What stays is left to listings.
                Ok(()) | Err(KeptUpload::Failed) => continue,
            };
            awaited.due = Instant::now() + pause;
            self.lock().awaited.insert(directory, awaited);
        }
    }

    /// Removes uploads that a listing has seen and whose time is over, in the name of its client.
    pub(super) fn remove_seen(self: &Arc<Self>, seen: Vec<LogicalPath>, calls: &Calls, caller: &Caller) {
        let (registry, calls, caller) = (self.clone(), calls.clone(), Arc::new(caller.detached()));
        tokio::spawn(async move {
            let Ok(_place) = registry.removals.try_acquire() else { return };
            let mut failures = 0;
            for directory in seen {
                if let Err(KeptUpload::Failed) = registry.expire(&calls, &caller, &directory).await {
                    failures += 1;
                }
                if failures >= FAILURES_MAX {
                    return;
                }
            }
        });
    }

    /// Removes an upload whose time is over.
    async fn expire(
        self: &Arc<Self>,
        calls: &Calls,
        caller: &Arc<Caller>,
        directory: &LogicalPath,
    ) -> Result<(), KeptUpload> {
        let _held = self.hold(directory, UploadUse::Expiry).ok_or(KeptUpload::Used)?;
        let modified = |path: LogicalPath| async move {
            match calls.run(caller, || Operation::Stat(target(&path))).await {
                Ok(Value::Stat(stat)) => Ok(stat.modified),
                Err(error) if error.kind() == Some(ErrorKind::NotFound) => Ok(i64::MIN),
                _ => Err(KeptUpload::Failed),
            }
        };
        let own = modified(directory.clone()).await?;
        rest_of(own).map_or(Ok(()), |rest| Err(KeptUpload::Young(rest)))?;
        let Some(parts) = read_record(calls, caller, directory).await else {
            // It is none, or has ended when its record was removed. Only an empty directory is removed.
            let removed = calls.run(caller, || Operation::RemoveDirectory(target(directory))).await;
            return removed.map(drop).map_err(|_| KeptUpload::Failed);
        };
        let newest = modified(parts.clone()).await?.max(own);
        match rest_of(newest) {
            Some(rest) => Err(KeptUpload::Young(rest)),
            None => remove(calls, caller, directory, &parts).await.map_err(|_| KeptUpload::Failed),
        }
    }
}

/// Returns how long an upload with this time of its last change is kept; `None` if its time is over.
fn rest_of(modified: i64) -> Option<Duration> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let end = Duration::from_secs(u64::try_from(modified).unwrap_or(0)).saturating_add(LIFETIME);
    end.checked_sub(now).filter(|rest| !rest.is_zero())
}

/// Reports whether the time of an upload is over, as far as its own directory shows it.
pub(super) fn is_old(modified: i64) -> bool {
    rest_of(modified).is_none()
}

/// Returns the directory with the parts of an upload; `None` if there is no record of it.
async fn read_record(calls: &Calls, caller: &Arc<Caller>, directory: &LogicalPath) -> Option<LogicalPath> {
    let path = record_of(directory)?;
    let open = || {
        let options = OpenRequest { read: true, ..OpenRequest::default() };
        Operation::Open(target(&path), Box::new(options))
    };
    let (file, _) = calls.open(caller, open).await.ok()?;
    let mut record = Vec::new();
    file.read(0, RECORD_BYTES_MAX, &mut record).await.ok()?;
    directory.join(&name_of(&record, directory)?).ok()
}

/// Returns the parts in a directory; `None` if it has anything else.
async fn parts_in(
    calls: &Calls,
    caller: &Arc<Caller>,
    directory: &LogicalPath,
) -> Result<Vec<LogicalPath>, CallFailure> {
    let other =
        || CallFailure::new(ErrorKind::ItExists, "the directory of an upload has other files than parts");
    let listed = calls.run(caller, || Operation::List(target(directory), ListDetail::default())).await;
    let mut page = match listed {
        Err(error) if error.kind() == Some(ErrorKind::NotFound) => return Ok(Vec::new()),
        page => page?,
    };
    let mut found = Vec::new();
    loop {
        let Value::Listing { entries, rest } = page else { return Err(other()) };
        for entry in entries.iter() {
            let is_part = entry.name.len() == 5 && entry.name.iter().all(u8::is_ascii_digit);
            if !is_part || found.len() > usize::try_from(PARTS_MAX).unwrap_or(usize::MAX) {
                return Err(other());
            }
            found.push(directory.join(&entry.name).map_err(|_| other())?);
        }
        let Some(rest) = rest else { return Ok(found) };
        page = calls.once(caller, Operation::ListMore(rest)).await?;
    }
}

/// Removes an upload: its parts, its record and its directories. Anything else in them stays, with what is around it.
pub(super) async fn remove(
    calls: &Calls,
    caller: &Arc<Caller>,
    directory: &LogicalPath,
    parts: &LogicalPath,
) -> Result<(), CallFailure> {
    let absent = |removed: Result<Value, CallFailure>| match removed {
        Err(error) if error.kind() != Some(ErrorKind::NotFound) => Err(error),
        _ => Ok(()),
    };
    for part in parts_in(calls, caller, parts).await? {
        absent(calls.run(caller, || Operation::Remove(target(&part))).await)?;
    }
    absent(calls.run(caller, || Operation::RemoveDirectory(target(parts))).await)?;
    if let Some(record) = record_of(directory) {
        absent(calls.run(caller, || Operation::Remove(target(&record))).await)?;
    }
    absent(calls.run(caller, || Operation::RemoveDirectory(target(directory))).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory() -> LogicalPath {
        LogicalPath::parse(format!("/b/{PREFIX}{}", "0f".repeat(ID_BYTES)).as_bytes()).unwrap()
    }

    #[test]
    fn only_uploads_have_the_names_of_uploads() {
        assert!(is_reserved(".scalla-multipart-0") && is_reserved(RECORD));
        assert!(!is_reserved(".scalla") && !is_reserved("a.scalla-multipart-"));
        assert!(is_upload(&format!("{PREFIX}{}", "0f".repeat(ID_BYTES))));
        for other in [RECORD, ".scalla-multipart-backup", ".scalla-multipart-", "x"] {
            assert!(!is_upload(other), "{other}");
        }
    }

    #[test]
    fn a_record_is_that_of_its_directory() {
        let id = "0f".repeat(ID_BYTES);
        assert_eq!(name_of(&record(&id, b"name"), &directory()), Some(b"name".to_vec()));
        for other in [
            record(&"1f".repeat(ID_BYTES), b"name"),
            record(&id, b""),
            record(&id, b"../x"),
            record(&id, b"a\nb"),
            format!("{RECORD_HEAD}{id}\nname").into_bytes(),
            Vec::new(),
        ] {
            assert_eq!(name_of(&other, &directory()), None, "{}", String::from_utf8_lossy(&other));
        }
    }

    #[test]
    fn uses_of_an_upload_exclude_each_other() {
        use UploadUse::{Abort, Completion, Expiry, Part};
        let registry = UploadRegistry::new();
        for (first, allowed) in
            [(Part, &[Part, Completion, Abort][..]), (Completion, &[Part]), (Abort, &[]), (Expiry, &[])]
        {
            let held = registry.hold(&directory(), first);
            assert!(held.is_some(), "{first:?}");
            for second in [Part, Completion, Abort, Expiry] {
                let is_allowed = registry.hold(&directory(), second).is_some();
                assert_eq!(is_allowed, allowed.contains(&second), "{second:?} during {first:?}");
            }
            drop(held);
            assert!(registry.lock().users.is_empty());
        }
    }
}
