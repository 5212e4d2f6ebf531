//! Takes over the queues of XRootD's transfer daemon, which are record files, at a start.
//!
//! Each file is one transaction, which also records which requests it were. Then the file gets another name. So each
//! request is taken over exactly once, whenever the process is killed, and also if the file gets its name back. Slots
//! that cannot be read stay in the renamed file, and a file without any that can be read keeps its name; the log names
//! both.

use crate::entry::{EntryKey, RequestId};
use crate::ports::ResidencyPaths;
use crate::queue::{Submission, TransferQueue};
use crate::record_file::{SLOT_BYTES, TransferRecord, parse_slot, request_identity};
use crate::sqlite_store::{SqliteStore, StoreError};
use crate::staging::remote_name;
use base::LogicalPath;
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::PrivateDirectory;

/// The directory of the files, in that of the queue.
const DIRECTORY: &str = "Queues";

/// The queues: staging, migration, copies in and copies out. Each has a file for each priority.
const QUEUES: [&str; 4] = ["pstg", "migr", "getf", "putf"];
const PRIORITIES: [u8; 3] = [2, 1, 0];

/// Maximum time that a start waits for the lock of a file, which agents have for one request.
const LOCK_TIME_MAX: Duration = Duration::from_secs(10);
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Number of refused requests of a file that the log names.
const REFUSED_LOGGED_MAX: usize = 20;

/// Maximum number of files with one name that were taken over.
const NAMES_MAX: u32 = 1000;

/// The result for one file.
#[derive(Default, Debug)]
struct ImportedRecords {
    /// Requests that are in the queue now.
    taken: usize,
    /// Requests that were taken over before.
    known: usize,
    /// Requests with a notification.
    notifying: usize,
    /// Slots that were refused.
    refused: usize,
}

/// The error of one file.
enum FileError {
    Io(io::Error),
    Store(StoreError),
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<StoreError> for FileError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// A start that takes queues over.
pub(crate) struct RecordImport<'a> {
    pub(crate) store: &'a mut SqliteStore,
    pub(crate) queue: &'a TransferQueue,
    pub(crate) paths: &'a dyn ResidencyPaths,
    pub(crate) remote_root: &'a str,
    /// [`Submission::source`].
    pub(crate) source: Arc<str>,
    /// Seconds since the epoch.
    pub(crate) now: u64,
}

impl RecordImport<'_> {
    /// Takes all files in a directory of transfers over. The caller has its lock, so XRootD's daemon does not run.
    /// Only a failure of the database is an error: a file that cannot be read stays.
    pub(crate) fn run(&mut self, place: &PrivateDirectory) -> Result<(), StoreError> {
        let path = place.path().join(DIRECTORY);
        let files = match PrivateDirectory::open(&path) {
            Ok(files) => files,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                let path = path.display();
                tracing::error!(%path, %error, "cannot take over the queues of XRootD's frm_xfrd; they stay");
                return Ok(());
            }
        };
        for (queue, priority) in QUEUES.into_iter().flat_map(|queue| PRIORITIES.map(|number| (queue, number)))
        {
            let name = format!("{queue}Q.{priority}");
            match self.take_over(&files, &name) {
                Ok(()) => {}
                Err(FileError::Store(error)) => return Err(error),
                Err(FileError::Io(error)) => {
                    let file = files.path().join(&name);
                    let file = file.display();
                    tracing::error!(%file, %error, "cannot take over this queue of XRootD's frm_xfrd; it stays");
                }
            }
        }
        Ok(())
    }

    fn take_over(&mut self, files: &PrivateDirectory, name: &str) -> Result<(), FileError> {
        let file = match files.open_file(name) {
            Ok(file) => OwnedFd::from(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let lock = files.open_or_create(&format!("{name}.lock"))?;
        lock_file(&lock)?;
        let content = self.read(files, name, &file)?;
        if content.taken + content.known == 0 {
            return Ok(());
        }
        let suffix = if content.refused == 0 { "imported" } else { "partly-imported" };
        let kept = set_aside(files, name, suffix)?;
        let file = kept.display();
        if content.refused > 0 {
            tracing::warn!(%file, "requests of XRootD's frm_xfrd that are not in the queue stay in this file");
        }
        Ok(())
    }

    /// Adds the requests of a file in one transaction.
    fn read(
        &mut self,
        files: &PrivateDirectory,
        name: &str,
        file: &OwnedFd,
    ) -> Result<ImportedRecords, FileError> {
        let path = files.path().join(name);
        self.store.begin()?;
        let mut content = ImportedRecords::default();
        let read = self.add_all(&path, file, &mut content);
        if let Err(error) = read.and_then(|()| Ok(self.store.commit()?)) {
            self.store.roll_back();
            return Err(error);
        }
        let file = path.display();
        let ImportedRecords { taken, known, notifying, refused } = content;
        if taken > 0 {
            tracing::info!(%file, requests = taken, "took over a queue of XRootD's frm_xfrd");
        }
        if notifying > 0 {
            tracing::warn!(%file, requests = notifying, "notifications of requests are not sent");
        }
        if refused > 0 && taken + known == 0 {
            tracing::error!(%file, slots = refused, "no request of this queue of XRootD's frm_xfrd can be used; it stays");
        }
        Ok(content)
    }

    fn add_all(
        &mut self,
        path: &std::path::Path,
        file: &OwnedFd,
        content: &mut ImportedRecords,
    ) -> Result<(), FileError> {
        let mut place = 0;
        let mut slot = [0; SLOT_BYTES];
        loop {
            let length = read_slot(file, &mut slot)?;
            let record = match length {
                0 => return Ok(()),
                // The header.
                SLOT_BYTES if place == 0 => Ok(None),
                SLOT_BYTES => parse_slot(&slot, place),
                _ => Err("the slot is incomplete".to_owned()),
            };
            let identity = request_identity(&slot);
            let request = match record {
                Ok(Some(_)) if self.store.has_imported_request(&identity)? => {
                    content.known += 1;
                    Ok(None)
                }
                Ok(record) => record.map(|record| self.submission(record)).transpose(),
                Err(reason) => Err(reason),
            };
            match request {
                Ok(None) => {}
                Ok(Some((submission, added, notifies))) => {
                    self.queue.adopt(self.store, &submission, added)?;
                    self.store.add_imported_request(&identity)?;
                    content.taken += 1;
                    content.notifying += usize::from(notifies);
                }
                Err(reason) => {
                    content.refused += 1;
                    if content.refused <= REFUSED_LOGGED_MAX {
                        let file = path.display();
                        tracing::warn!(%file, place, reason, "cannot take over a request of XRootD's frm_xfrd");
                    }
                }
            }
            place += SLOT_BYTES as u64;
        }
    }

    /// Returns the request of a record, its time, and whether it has a notification.
    fn submission(&self, record: TransferRecord) -> Result<(Submission, u64, bool), String> {
        let TransferRecord { direction, removes, path, url, client, id, priority, added, notifies } = record;
        let shown = String::from_utf8_lossy(&path).into_owned();
        let path = LogicalPath::parse(&path).map_err(|error| format!("{shown:?}: {error:?}"))?;
        if let Some(option) = self.paths.of(&path).missing_option(direction, removes) {
            return Err(format!("{shown:?} is not on an export with {option}"));
        }
        if let Some(url) = url
            && url != remote_name(self.remote_root, &path).as_bytes()
        {
            let url = String::from_utf8_lossy(&url).into_owned();
            return Err(format!("{url:?} is not the name of the file behind oss.remoteroot"));
        }
        let owner: Arc<str> = client.into();
        let submission = Submission {
            key: EntryKey { direction, path },
            priority,
            source: self.source.clone(),
            client: owner.clone(),
            owner,
            request: (!id.is_empty()).then(|| RequestId(id.into())),
            removes,
        };
        Ok((submission, added.min(self.now), notifies))
    }
}

/// Reads a slot. The result is less than its size at the end of the file only.
fn read_slot(file: &OwnedFd, slot: &mut [u8; SLOT_BYTES]) -> io::Result<usize> {
    let mut length = 0;
    while let Some(rest) = slot.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match rustix::io::read(file, rest) {
            Ok(0) => break,
            Ok(bytes) => length += bytes,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(length)
}

/// Locks a file as XRootD's programs do, until it is closed.
fn lock_file(lock: impl AsFd) -> io::Result<()> {
    let since = Instant::now();
    loop {
        match fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::AGAIN | Errno::ACCESS) if since.elapsed() < LOCK_TIME_MAX => {
                std::thread::sleep(LOCK_PAUSE);
            }
            Err(Errno::AGAIN | Errno::ACCESS) => {
                return Err(io::Error::other(
                    "another process has had it locked for 10 s; end XRootD's programs",
                ));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Gives a file a name that shows that it was taken over, and returns its path.
fn set_aside(files: &PrivateDirectory, name: &str, suffix: &str) -> io::Result<PathBuf> {
    for number in 0..NAMES_MAX {
        let new = match number {
            0 => format!("{name}.{suffix}"),
            _ => format!("{name}.{suffix}.{number}"),
        };
        match files.rename(name, &new) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => return other.map(|()| files.path().join(new)),
        }
    }
    Err(io::Error::other("there are too many files that were taken over; remove some"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;
    use crate::entry::{EntryState, Priority, TransferDirection, TransferEntry};
    use crate::ports::PathResidency;
    use crate::queue::QueueLimits;
    use crate::record_file::tests::slot;
    use crate::store::EntryStore as _;
    use std::path::Path;

    const LIMITS: QueueLimits = QueueLimits {
        slots_in: 1,
        slots_out: 1,
        slots_of_source: 1,
        slots_of_owner: 1,
        // Acknowledged requests find a place in any case.
        places: 1,
        tries_max: 1,
        backoff: 1,
        deny: 1,
        failures_kept: 1,
    };

    /// Exports below this path.
    struct Paths(&'static str);

    impl ResidencyPaths for Paths {
        fn roots(&self) -> Vec<LogicalPath> {
            Vec::new()
        }

        fn of(&self, path: &LogicalPath) -> PathResidency {
            let is_stored = path.as_bytes().starts_with(self.0.as_bytes());
            let is_purged = path.as_bytes().ends_with(b".old");
            PathResidency { stage: is_stored, migrate: is_stored, purge: is_purged }
        }
    }

    /// A directory of transfers with record files, which is removed at the end.
    struct Site {
        path: PathBuf,
        store: SqliteStore,
        queue: TransferQueue,
        paths: Paths,
    }

    impl Site {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("residency-import-{name}-{}", std::process::id()));
            std::fs::remove_dir_all(&path).ok();
            let place = PrivateDirectory::create(&path).unwrap();
            PrivateDirectory::create(&path.join(DIRECTORY)).unwrap();
            let store = SqliteStore::open(&place).unwrap();
            Self { path, store, queue: TransferQueue::new(LIMITS), paths: Paths("/store/") }
        }

        fn files(&self) -> PathBuf {
            self.path.join(DIRECTORY)
        }

        /// Writes a record file with these slots behind the header.
        fn write(&self, name: &str, slots: &[(u8, &[u8])]) {
            let mut bytes = vec![0; SLOT_BYTES];
            for (operation, path) in slots {
                let place = bytes.len() as u64;
                bytes.extend(slot(*operation, path, place));
            }
            std::fs::write(self.files().join(name), bytes).unwrap();
        }

        fn import(&mut self) -> RecordImport<'_> {
            RecordImport {
                store: &mut self.store,
                queue: &self.queue,
                paths: &self.paths,
                remote_root: "root://far/",
                source: "far".into(),
                now: 2_000_000_000,
            }
        }

        fn run(&mut self) {
            let place = PrivateDirectory::open(&self.path).unwrap();
            self.import().run(&place).unwrap();
        }

        fn entries(&mut self) -> Vec<TransferEntry> {
            self.store.entries(None, 1000).unwrap()
        }

        fn paths(&mut self) -> Vec<String> {
            self.entries().iter().map(|entry| entry.key.path.text().into_owned()).collect()
        }

        fn names(&self) -> Vec<String> {
            let names = std::fs::read_dir(self.files()).unwrap();
            let name =
                |entry: io::Result<std::fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
            let mut names: Vec<String> = names.map(name).filter(|name| !name.ends_with(".lock")).collect();
            names.sort();
            names
        }
    }

    impl Drop for Site {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.path).ok();
        }
    }

    #[test]
    fn each_request_is_taken_over_once() {
        let mut site = Site::new("once");
        site.write("pstgQ.1", &[(b'+', b"/store/s1"), (b'+', b""), (b'+', b"/store/s2")]);
        site.write("getfQ.0", &[(b'<', b"/store/s1")]);
        site.write("migrQ.0", &[(b'&', b"/store/m1"), (b'&', b"\0store/m2"), (b'^', b"/store/m3.old")]);
        site.write("putfQ.2", &[]);
        site.run();
        assert_eq!(site.paths(), ["/store/s1", "/store/s2", "/store/m1", "/store/m3.old"]);
        assert_eq!(
            site.entries().iter().map(|entry| entry.removes).collect::<Vec<_>>(),
            [false, false, false, true]
        );
        let first = &site.entries()[0];
        assert_eq!((&*first.id, &*first.client, &*first.source), ("ID1", "me.1:2@h", "far"));
        assert_eq!((first.priority, first.added), (Priority::new(1), 1_795_969_056));
        assert_eq!(first.state, EntryState::Queued { ready: 1_795_969_056 });
        assert_eq!(site.names(), ["getfQ.0.imported", "migrQ.0.imported", "pstgQ.1.imported", "putfQ.2"]);
        for entry in site.entries() {
            site.store.remove(&entry.key).unwrap();
        }
        // What was done is not done again, and files of a daemon that ran meanwhile come too.
        site.write("getfQ.0", &[(b'<', b"/store/s3")]);
        site.run();
        assert_eq!(site.paths(), ["/store/s3"]);
        assert_eq!(site.names()[..2], ["getfQ.0.imported", "getfQ.0.imported.1"]);
    }

    #[test]
    fn a_kill_before_the_file_has_its_other_name_repeats_no_request() {
        let mut site = Site::new("kill");
        for (slots, suffix) in [
            (&[(b'+', &b"/store/s1"[..])][..], "imported"),
            (&[(b'+', b"/store/s2"), (b'+', b"/other")], "partly-imported"),
        ] {
            site.write("pstgQ.1", slots);
            let files = PrivateDirectory::open(&site.files()).unwrap();
            let file = OwnedFd::from(files.open_file("pstgQ.1").unwrap());
            let read = site.import().read(&files, "pstgQ.1", &file);
            assert!(read.is_ok_and(|content| (content.taken, content.known) == (1, 0)));
            let key = site.entries()[0].key.clone();
            site.store.remove(&key).unwrap();
            site.run();
            assert_eq!(site.paths(), [""; 0]);
            assert!(site.names().contains(&format!("pstgQ.1.{suffix}")), "{:?}", site.names());
        }
    }

    /// The administrator mends the configuration, and gives the file its name again or copies it there.
    #[test]
    fn a_file_that_comes_back_gives_the_requests_that_were_refused() {
        for is_copied in [false, true] {
            let mut site = Site::new("back");
            let slots: &[(u8, &[u8])] = &[(b'+', b"/store/s1"), (b'+', b"/later/s2"), (b'+', b"/later/s3")];
            site.write("pstgQ.0", slots);
            site.run();
            assert_eq!(
                (site.paths(), site.names()),
                (vec!["/store/s1".to_owned()], vec!["pstgQ.0.partly-imported".to_owned()])
            );
            let key = site.entries()[0].key.clone();
            site.store.remove(&key).unwrap();
            let files = site.files();
            let (aside, back) = (files.join("pstgQ.0.partly-imported"), files.join("pstgQ.0"));
            if is_copied {
                std::fs::write(&back, std::fs::read(&aside).unwrap()).unwrap();
            } else {
                std::fs::rename(&aside, &back).unwrap();
            }
            site.paths = Paths("/later/");
            site.run();
            // What was done is not done again.
            assert_eq!(site.paths(), ["/later/s2", "/later/s3"]);
            assert!(site.names().contains(&"pstgQ.0.imported".to_owned()), "{:?}", site.names());
        }
    }

    /// The file has its name still, because the directory was full, and another request came.
    #[test]
    fn a_file_that_keeps_its_name_gives_only_its_new_requests() {
        let mut site = Site::new("appended");
        let slots: &[(u8, &[u8])] = &[(b'+', b"/store/s1"), (b'+', b"/store/s1"), (b'+', b"/store/s2")];
        for number in 0..NAMES_MAX {
            let suffix = if number == 0 { String::new() } else { format!(".{number}") };
            std::fs::write(site.files().join(format!("pstgQ.0.imported{suffix}")), "").unwrap();
        }
        site.write("pstgQ.0", &slots[..2]);
        site.run();
        let key = site.entries()[0].key.clone();
        site.store.remove(&key).unwrap();
        assert!(site.names().contains(&"pstgQ.0".to_owned()));
        site.write("pstgQ.0", slots);
        site.run();
        assert_eq!(site.paths(), ["/store/s2"]);
    }

    #[test]
    fn what_cannot_be_read_is_kept() {
        let mut site = Site::new("kept");
        let files = site.files();
        site.write(
            "pstgQ.0",
            &[(b'+', b"/store/s1"), (b'+', b"relative"), (b'+', b"/other/s2"), (b'^', b"/store/m1")],
        );
        std::fs::write(files.join("pstgQ.1"), [b'x'; 3 * SLOT_BYTES + 7]).unwrap();
        std::fs::write(files.join("pstgQ.2"), b"short").unwrap();
        std::os::unix::fs::symlink("pstgQ.0", files.join("migrQ.0")).unwrap();
        site.write("putfQ.0", &[(b'>', b"/store/p1")]);
        site.run();
        assert_eq!(site.paths(), ["/store/s1", "/store/p1"]);
        let wanted = ["migrQ.0", "pstgQ.0.partly-imported", "pstgQ.1", "pstgQ.2", "putfQ.0.imported"];
        assert_eq!(site.names(), wanted);
        assert_eq!(std::fs::read(files.join("pstgQ.1")).unwrap().len(), 3 * SLOT_BYTES + 7);
    }

    #[test]
    fn a_url_has_to_be_the_name_behind_the_root() {
        let mut site = Site::new("url");
        let mut bytes = vec![0; SLOT_BYTES];
        for (host, place) in [("far", 4096), ("fat", 8192)] {
            let mut slot = slot(b'+', format!("root://{host}//store/{host}").as_bytes(), place);
            slot[4084..4086].copy_from_slice(&11i16.to_ne_bytes());
            bytes.extend(slot);
        }
        std::fs::write(site.files().join("pstgQ.0"), bytes).unwrap();
        site.run();
        assert_eq!(site.paths(), ["/store/far"]);
        assert_eq!(site.names(), ["pstgQ.0.partly-imported"]);
    }

    #[test]
    fn a_request_joins_one_that_is_there_and_a_missing_directory_is_no_error() {
        let mut site = Site::new("join");
        site.write("pstgQ.1", &[(b'+', b"/store/s1")]);
        let submission = Submission {
            key: EntryKey {
                direction: TransferDirection::In,
                path: LogicalPath::parse(b"/store/s1").unwrap(),
            },
            priority: Priority::new(2),
            source: "far".into(),
            client: "u".into(),
            owner: "u".into(),
            request: None,
            removes: false,
        };
        site.queue.submit(&mut site.store, &submission, 1_900_000_000).unwrap();
        site.run();
        let entries = site.entries();
        assert_eq!(
            (entries.len(), entries[0].priority, entries[0].is_anonymous),
            (1, Priority::new(2), true)
        );
        assert!(site.store.has_requests(&entries[0].key).unwrap());
        std::fs::remove_dir_all(site.files()).unwrap();
        site.run();
        assert!(!Path::new(&site.files()).exists());
    }
}
