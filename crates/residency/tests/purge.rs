//! Purges of real files. The free space of their disk is what a test sets.

#![allow(clippy::unwrap_used)] // a panic is the failure of a test

use base::LogicalPath;
use digest::{Algorithm, ChecksumRecord, RunningChecksum};
use residency::{
    CopyFailure, FailureReason, FreeSpaceMark, KeptReason, OddChecksum, PathResidency, PolicyProgram,
    PurgePolicy, Purger, RemoteCatalog, RemoteStatus, ResidencyEvents, ResidencyPaths,
};
use rustix::fs::{Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use storage::faulty::{FaultRule, FaultyCall, InjectedFault};
use storage::{
    Backend as _, COPY_RECORD_ATTRIBUTE, COPY_TIME_ATTRIBUTE, CopyRecord, CopyTime, Faulty, FilePin, Posix,
};

/// Modification time of the files, in seconds since the epoch.
const MODIFIED: i64 = 1000;

/// Bytes of each file, which it also takes from the disk.
const SIZE: u64 = 64 * 1024;

fn path(text: &str) -> LogicalPath {
    LogicalPath::parse(text.as_bytes()).unwrap()
}

/// Exports in which all paths are purged, except those below `/hot`.
struct Paths;
impl ResidencyPaths for Paths {
    fn roots(&self) -> Vec<LogicalPath> {
        vec![LogicalPath::root(), path("/hot")]
    }
    fn of(&self, at: &LogicalPath) -> PathResidency {
        PathResidency { stage: true, purge: !at.is_within(&path("/hot")), ..PathResidency::default() }
    }
}

/// The events that were reported to the cluster, in order.
#[derive(Default)]
struct Events(Mutex<Vec<String>>);
impl ResidencyEvents for Events {
    fn arrived(&self, path: &LogicalPath) {
        self.0.lock().unwrap().push(format!("arrived {}", path.shown()));
    }
    fn removed(&self, path: &LogicalPath) {
        self.0.lock().unwrap().push(format!("removed {}", path.shown()));
    }
}

/// The sizes of the files in mass storage.
struct Catalog(BTreeMap<&'static str, u64>);
impl RemoteCatalog for Catalog {
    fn status(&self, path: &LogicalPath) -> Result<Option<RemoteStatus>, CopyFailure> {
        let size = self.0.get(path.shown().to_string().as_str());
        Ok(size.map(|&size| RemoteStatus {
            is_directory: false,
            size,
            mode: 0o644,
            modified: MODIFIED,
            checksum: Ok(None),
        }))
    }
}

struct Disk {
    root: PathBuf,
    backend: Arc<Faulty>,
    events: Arc<Events>,
}

impl Disk {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("scalla-purge-{}-{number}", std::process::id()));
        fs::create_dir_all(root.join("hot")).unwrap();
        let posix = Posix::new(&storage::posix::Config::new(&root)).unwrap();
        let backend = Arc::new(Faulty::new(Arc::new(posix)));
        backend.rules().set_room(Some(0));
        Self { root, backend, events: Arc::default() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.join(name.trim_start_matches('/'))
    }

    /// Creates a file with a copy. It was accessed `age` seconds after its last modification.
    fn copied(&self, name: &str, age: i64) {
        let at = self.at(name);
        fs::write(&at, vec![7; usize::try_from(SIZE).unwrap()]).unwrap();
        // Blocks are counted when they are on disk.
        File::open(&at).unwrap().sync_all().unwrap();
        set_times(&at, MODIFIED + age);
        let record = CopyRecord::new(&path(name), &self.backend.stat(&path(name)).unwrap());
        set_attribute(&at, COPY_TIME_ATTRIBUTE, &CopyTime(MODIFIED).encode());
        set_attribute(&at, COPY_RECORD_ATTRIBUTE, record.encode());
    }

    fn stop_file(&self) -> PathBuf {
        self.root.with_extension("stop")
    }

    /// Returns what removes files until this number of files would fit.
    fn purger(&self, files: u64) -> Purger {
        let high = FreeSpaceMark::Bytes(files * SIZE);
        Purger {
            backend: self.backend.clone(),
            paths: Arc::new(Paths),
            events: self.events.clone(),
            catalog: None,
            policies: PurgePolicy { low: high, high, hold: 100, asks_program: true }.into(),
            stop_file: Some(self.stop_file()),
            program: None,
            directory_hold: None,
        }
    }

    fn kept(&self, name: &str) -> Option<KeptReason> {
        let mut found = Vec::new();
        self.purger(1).examine(Some(&path(name)), &mut |file| {
            found.push(file.kept);
            true
        });
        assert_eq!(found.len(), 1, "{name}");
        found.pop().unwrap()
    }

    fn names(&self) -> Vec<String> {
        let all = fs::read_dir(&self.root).unwrap();
        let mut names: Vec<_> = all.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name != "hot");
        names.sort();
        names
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.root).ok();
        fs::remove_file(self.stop_file()).ok();
    }
}

fn set_times(at: &Path, accessed: i64) {
    let time = |seconds| Timespec { tv_sec: seconds, tv_nsec: 0 };
    let times = Timestamps { last_access: time(accessed), last_modification: time(MODIFIED) };
    rustix::fs::futimens(File::open(at).unwrap(), &times).unwrap();
}

fn set_attribute(at: &Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(at, name, value, XattrFlags::empty()).unwrap();
}

#[test]
fn a_file_that_local_tools_renamed_or_copied_stays() {
    let disk = Disk::new();
    for name in ["/file", "/old", "/source"] {
        disk.copied(name, 0);
    }
    fs::rename(disk.at("/old"), disk.at("/new")).unwrap();
    // A copy with all attributes and times.
    disk.copied("/copy", 0);
    for name in [COPY_TIME_ATTRIBUTE, COPY_RECORD_ATTRIBUTE] {
        let value = disk.backend.attribute(&path("/source"), name).unwrap().unwrap();
        set_attribute(&disk.at("/copy"), name, &value);
    }
    // Another content of the same second.
    fs::write(disk.at("/source"), "other").unwrap();
    set_times(&disk.at("/source"), MODIFIED);
    for name in ["/new", "/copy", "/source"] {
        assert_eq!(disk.kept(name), Some(KeptReason::UnknownCopy), "{name}");
    }
    assert_eq!(disk.kept("/file"), None);
    assert_eq!(disk.purger(100).purge().files, 1);
    assert_eq!(disk.names(), ["copy", "new", "source"]);
}

#[test]
fn an_administrator_releases_a_file_within_its_hold_time_and_no_other() {
    let disk = Disk::new();
    ["/used", "/pinned", "/local"].iter().for_each(|name| disk.copied(name, 0));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    set_times(&disk.at("/used"), i64::try_from(now.as_secs()).unwrap());
    rustix::fs::removexattr(disk.at("/local"), COPY_TIME_ATTRIBUTE).unwrap();
    let purger = disk.purger(0);
    purger.set_pin(&path("/pinned"), Some(FilePin::Forever)).unwrap();
    assert_eq!(disk.kept("/used"), Some(KeptReason::InHold));
    assert_eq!(purger.release(&path("/used")), Ok(SIZE));
    assert_eq!(purger.release(&path("/pinned")), Err(KeptReason::Pinned(FilePin::Forever)));
    assert_eq!(purger.release(&path("/local")), Err(KeptReason::NoCopyTime));
    fs::write(disk.at("/hot/file"), "").unwrap();
    assert_eq!(purger.release(&path("/hot/file")), Err(KeptReason::NotPurgeable));
    assert_eq!(disk.names(), ["local", "pinned"]);
    assert_eq!(*disk.events.0.lock().unwrap(), ["removed /used"]);
}

#[test]
fn a_copy_that_mass_storage_does_not_confirm_keeps_its_file() {
    let disk = Disk::new();
    for name in ["/there", "/short", "/gone"] {
        disk.copied(name, 0);
    }
    let catalog = Arc::new(Catalog(BTreeMap::from([("/there", SIZE), ("/short", SIZE - 1)])));
    let purger = Purger { catalog: Some(catalog), ..disk.purger(100) };
    assert_eq!(purger.purge().files, 1);
    assert_eq!(disk.names(), ["gone", "short"]);
    let mut reasons = Vec::new();
    purger.examine(Some(&path("/gone")), &mut |file| {
        reasons.push(file.kept.map(|reason| reason.to_string()));
        true
    });
    assert_eq!(reasons, [Some("mass storage does not confirm its copy: no such file there".to_owned())]);
}

/// A catalog in which all files have the content of [`Disk::copied`].
struct Content;
impl RemoteCatalog for Content {
    fn status(&self, _: &LogicalPath) -> Result<Option<RemoteStatus>, CopyFailure> {
        let checksum = Some(RunningChecksum::of(Algorithm::Adler32, &[7; SIZE as usize]));
        Ok(Some(RemoteStatus {
            is_directory: false,
            size: SIZE,
            mode: 0o644,
            modified: MODIFIED,
            checksum: Ok(checksum),
        }))
    }
}

#[test]
fn a_copy_with_another_checksum_keeps_its_file() {
    let disk = Disk::new();
    for name in ["/same", "/other", "/stored"] {
        disk.copied(name, 0);
    }
    // Another content of this size, with all attributes of a copy.
    fs::write(disk.at("/other"), vec![8; usize::try_from(SIZE).unwrap()]).unwrap();
    set_times(&disk.at("/other"), MODIFIED);
    let found = disk.backend.stat(&path("/other")).unwrap();
    set_attribute(
        &disk.at("/other"),
        COPY_RECORD_ATTRIBUTE,
        CopyRecord::new(&path("/other"), &found).encode(),
    );
    // The stored checksum is that of the content which a client has read.
    let before = RunningChecksum::of(Algorithm::Adler32, b"before");
    let record = ChecksumRecord::new(before, MODIFIED, MODIFIED + 1);
    set_attribute(&disk.at("/stored"), "user.XrdCks.adler32", &record.encode());
    let purger = Purger { catalog: Some(Arc::new(Content)), ..disk.purger(100) };
    let accessed = |name: &str| disk.backend.stat(&path(name)).unwrap().accessed;
    let seconds = accessed("/other");
    assert_eq!(purger.purge().files, 1);
    assert_eq!(disk.names(), ["other", "stored"]);
    assert_eq!(accessed("/other"), seconds, "the comparison is no use of the file");
    // The result is stored, so that the next purge does not read the file again: one that reads it would find this.
    let stored = disk.backend.attribute(&path("/other"), "user.XrdCks.adler32").unwrap().unwrap();
    let found = RunningChecksum::of(Algorithm::Adler32, &vec![8; usize::try_from(SIZE).unwrap()]);
    assert_eq!(ChecksumRecord::decode(&stored).unwrap().checksum, found);
    let Err(KeptReason::NotConfirmed(text)) = purger.release(&path("/stored")) else { panic!("it is gone") };
    assert!(text.starts_with("the file on disk has the adler32 checksum"), "{text}");
}

/// A catalog with a checksum that cannot be read. It creates a file when it is asked.
struct Odd(std::path::PathBuf, bool);
impl RemoteCatalog for Odd {
    fn status(&self, _: &LogicalPath) -> Result<Option<RemoteStatus>, CopyFailure> {
        fs::write(&self.0, "").unwrap();
        let odd = OddChecksum { algorithm: Algorithm::Adler32, found: 9 };
        let checksum = if self.1 { Err(odd) } else { Ok(None) };
        Ok(Some(RemoteStatus { is_directory: false, size: SIZE, mode: 0o644, modified: MODIFIED, checksum }))
    }
}

#[test]
fn a_checksum_that_cannot_be_read_keeps_its_file_and_ends_no_purge() {
    let disk = Disk::new();
    for number in 0..8 {
        disk.copied(&format!("/{number}"), 0);
    }
    let catalog = Arc::new(Odd(disk.at("/asked"), true));
    let purger = Purger { catalog: Some(catalog), ..disk.purger(100) };
    let Err(KeptReason::NotConfirmed(text)) = purger.release(&path("/0")) else { panic!("it is gone") };
    assert!(text.contains("adler32"), "{text}");
    assert_eq!(purger.purge().files, 0);
    assert_eq!(disk.names().len(), 9);
}

#[test]
fn a_removal_whose_file_is_examined_ends_with_all_purges() {
    let disk = Disk::new();
    disk.copied("/f", 0);
    let stop = disk.at("/STOPPURGE");
    let catalog = Some(Arc::new(Odd(stop.clone(), false)) as Arc<dyn RemoteCatalog>);
    let purger = Purger { catalog, stop_file: Some(stop.clone()), ..disk.purger(100) };
    assert_eq!(purger.release(&path("/f")), Err(KeptReason::Stopped));
    assert!(disk.at("/f").exists());
    fs::remove_file(&stop).unwrap();
    assert_eq!(disk.purger(100).release(&path("/f")), Ok(SIZE));
}

#[test]
fn a_link_does_not_lead_a_purge_to_another_export() {
    let disk = Disk::new();
    disk.copied("/hot/f", 0);
    std::os::unix::fs::symlink("hot", disk.at("/latest")).unwrap();
    // Its copy was made under the name behind the link, so only the link is in the way.
    let record = CopyRecord::new(&path("/latest/f"), &disk.backend.stat(&path("/hot/f")).unwrap());
    set_attribute(&disk.at("/hot/f"), COPY_RECORD_ATTRIBUTE, record.encode());
    let purger = disk.purger(100);
    let mut examined = 0;
    purger.examine(None, &mut |_| {
        examined += 1;
        true
    });
    assert_eq!((examined, purger.purge().files), (0, 0));
    assert_eq!(disk.kept("/latest/f"), Some(KeptReason::Link));
    assert!(disk.at("/hot/f").exists() && disk.events.0.lock().unwrap().is_empty());
}

#[test]
fn no_more_goes_than_was_missing_if_space_is_freed_late() {
    let disk = Disk::new();
    for number in 0..20 {
        disk.copied(&format!("/f{number:02}"), number);
    }
    // The disk says that nothing became free.
    let outcome = disk.purger(5).purge();
    assert_eq!((outcome.files, outcome.bytes, outcome.short.len()), (5, 5 * SIZE, 0));
    let left: Vec<_> = (5..20).map(|number| format!("f{number:02}")).collect();
    assert_eq!(disk.names(), left, "the oldest have gone");
    // So do those that go later. What cannot be reached is reported.
    let outcome = disk.purger(100).purge();
    assert_eq!((outcome.files, outcome.short), (15, vec![path("/")]));
}

#[test]
fn a_purge_ends_when_the_free_space_is_not_known() {
    let disk = Disk::new();
    for number in 0..20 {
        disk.copied(&format!("/f{number:02}"), number);
    }
    // The disk is asked at the beginning, and once before each removal.
    let fault = FaultRule::new(&[FaultyCall::Usage], InjectedFault::Error(Errno::IO.raw_os_error()));
    disk.backend.rules().add(fault.after(4).times(1));
    let outcome = disk.purger(100).purge();
    assert_eq!((outcome.files, outcome.short), (3, vec![path("/")]));
    assert_eq!(disk.names().len(), 17);
    // Another one has freed enough.
    disk.backend.rules().set_room(Some(10 * SIZE));
    assert_eq!(disk.purger(10).purge().files, 0);
}

#[test]
fn a_file_with_attributes_of_clients_stays() {
    let disk = Disk::new();
    disk.copied("/f", 0);
    set_attribute(&disk.at("/f"), "user.U.owner", b"alice");
    assert_eq!(disk.kept("/f"), Some(KeptReason::ClientAttributes));
    assert_eq!(disk.purger(100).purge().files, 0);
    disk.copied("/g", 0);
    // Others come again, such as stored checksums.
    set_attribute(&disk.at("/g"), "user.XrdCks.adler32", b"1");
    assert_eq!(disk.purger(100).purge().files, 1);
    assert_eq!(disk.names(), ["f"]);
}

/// A receiver of events that creates the file again, as a client that was waiting.
struct Creator {
    root: PathBuf,
    events: Events,
}
impl ResidencyEvents for Creator {
    fn arrived(&self, path: &LogicalPath) {
        self.events.arrived(path);
    }
    fn removed(&self, path: &LogicalPath) {
        // The client's report has come first.
        fs::write(self.root.join(path.shown().to_string().trim_start_matches('/')), "new").unwrap();
        self.events.arrived(path);
        self.events.removed(path);
    }
}

#[test]
fn the_last_event_of_a_file_that_exists_is_not_its_removal() {
    let disk = Disk::new();
    disk.copied("/f", 0);
    let creator = Arc::new(Creator { root: disk.root.clone(), events: Events::default() });
    let purger = Purger { events: creator.clone(), ..disk.purger(100) };
    assert_eq!(purger.purge().files, 1);
    let events = creator.events.0.lock().unwrap();
    assert_eq!(*events, ["arrived /f", "removed /f", "arrived /f"]);
    disk.copied("/g", 0);
    assert_eq!(disk.purger(100).purge().files, 1);
    assert_eq!(*disk.events.0.lock().unwrap(), ["removed /g"]);
}

#[test]
fn a_policy_that_no_purge_can_meet_removes_nothing() {
    let disk = Disk::new();
    disk.copied("/f", 0);
    let total = disk.backend.file_systems(&path("/")).unwrap()[0].total;
    let purge = |high: u64| {
        let policy = PurgePolicy {
            low: FreeSpaceMark::Bytes(1),
            high: FreeSpaceMark::Bytes(high),
            hold: 100,
            asks_program: false,
        };
        Purger { policies: policy.into(), ..disk.purger(1) }.purge().files
    };
    assert_eq!(purge(total + 1), 0);
    assert_eq!(disk.names(), ["f"]);
    assert_eq!(purge(total), 1);
}

/// An administrator who stops purges when the first file goes.
struct Stopper(PathBuf);
impl ResidencyEvents for Stopper {
    fn arrived(&self, _: &LogicalPath) {}
    fn removed(&self, _: &LogicalPath) {
        fs::write(&self.0, "").unwrap();
    }
}

#[test]
fn a_file_of_the_administrator_stops_purges() {
    let disk = Disk::new();
    for number in 0..5 {
        disk.copied(&format!("/f{number}"), number);
    }
    let purger = Purger { events: Arc::new(Stopper(disk.stop_file())), ..disk.purger(100) };
    let outcome = purger.purge();
    assert_eq!((outcome.files, outcome.is_stopped), (1, true));
    assert_eq!(outcome.short, [], "nobody is asked to look for a reason");
    let outcome = disk.purger(100).purge();
    assert_eq!((outcome.files, outcome.is_stopped), (0, true));
    assert_eq!(disk.names().len(), 4);
    fs::remove_file(disk.stop_file()).unwrap();
    let outcome = disk.purger(100).purge();
    assert_eq!((outcome.files, outcome.is_stopped), (4, false));
    // One that cannot be looked up may exist.
    disk.copied("/f", 0);
    let loop_of_links = disk.at("/hot/loop");
    std::os::unix::fs::symlink("loop", &loop_of_links).unwrap();
    let purger = Purger { stop_file: Some(loop_of_links.join("STOPPURGE")), ..disk.purger(100) };
    assert!(purger.purge().is_stopped);
    assert_eq!(disk.names(), ["f"]);
}

#[test]
fn old_files_that_stay_are_not_in_the_way_of_others() {
    let disk = Disk::new();
    for number in 0..20 {
        // Days apart, because ages are counted in hours.
        disk.copied(&format!("/f{number:02}"), number * 86_400);
        if number < 10 {
            set_attribute(&disk.at(&format!("/f{number:02}")), "user.U.owner", b"alice");
        }
    }
    let outcome = disk.purger(4).purge();
    assert_eq!((outcome.files, outcome.short.len()), (4, 0));
    assert_eq!(disk.names()[..10], (0..10).map(|number| format!("f{number:02}")).collect::<Vec<_>>());
}

/// A catalog that cannot be asked.
#[derive(Default)]
struct BrokenCatalog(AtomicU32);
impl RemoteCatalog for BrokenCatalog {
    fn status(&self, _: &LogicalPath) -> Result<Option<RemoteStatus>, CopyFailure> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Err(CopyFailure::new(FailureReason::Temporary, "the library does not answer"))
    }
}

#[test]
fn a_purge_ends_when_mass_storage_cannot_be_asked() {
    let disk = Disk::new();
    for number in 0..20 {
        disk.copied(&format!("/f{number:02}"), number);
    }
    let catalog = Arc::new(BrokenCatalog::default());
    let purger = Purger { catalog: Some(catalog.clone()), ..disk.purger(100) };
    let outcome = purger.purge();
    assert_eq!((outcome.files, outcome.short), (0, vec![path("/")]));
    assert_eq!(catalog.0.load(Ordering::Relaxed), 5);
}

/// Cannot be asked for names that begin with `odd`.
struct OddNames;
impl RemoteCatalog for OddNames {
    fn check_name(&self, path: &LogicalPath) -> Result<(), CopyFailure> {
        match path.text().starts_with("/odd") {
            true => Err(CopyFailure::new(FailureReason::Permanent, "an odd name")),
            false => Ok(()),
        }
    }
    fn status(&self, _: &LogicalPath) -> Result<Option<RemoteStatus>, CopyFailure> {
        Ok(Some(RemoteStatus {
            is_directory: false,
            size: SIZE,
            mode: 0o644,
            modified: MODIFIED,
            checksum: Ok(None),
        }))
    }
}

#[test]
fn names_for_which_mass_storage_cannot_be_asked_do_not_end_a_purge() {
    let disk = Disk::new();
    // They are the oldest files.
    for number in 0..20 {
        disk.copied(&format!("/odd{number}"), 10);
    }
    disk.copied("/f", 20);
    let purger = Purger { catalog: Some(Arc::new(OddNames)), ..disk.purger(1) };
    assert_eq!(purger.purge().files, 1);
    assert!(!disk.at("/f").exists() && disk.at("/odd0").exists());
    let Err(reason) = purger.release(&path("/odd0")) else { panic!("a file without confirmation is gone") };
    assert_eq!(reason, KeptReason::NotAskable("an odd name".to_owned()));
}

/// Returns a program of the shell for the files of a purge.
fn policy_program(script: &str) -> Option<PolicyProgram> {
    let arguments = ["-c", script].map(str::to_owned).to_vec();
    Some(PolicyProgram::new("/bin/sh".into(), arguments, vec!["fname".to_owned()]))
}

#[test]
fn a_program_of_the_site_selects_the_files() {
    let disk = Disk::new();
    for (age, name) in ["/oldest", "/keep", "/last", "/never"].into_iter().enumerate() {
        disk.copied(name, i64::try_from(age).unwrap());
    }
    let script = "while read n; do case $n in keep) echo n;; last) echo a;; *) echo y;; esac; done";
    let purger = Purger { program: policy_program(script), ..disk.purger(100) };
    assert_eq!(purger.purge().files, 1);
    assert_eq!(disk.names(), ["keep", "last", "never"]);
    // An administrator does not ask it.
    assert_eq!(purger.release(&path("/keep")), Ok(SIZE));
    // Without an answer nothing goes.
    let purger = Purger { program: policy_program("exit"), ..disk.purger(100) };
    assert_eq!(purger.purge().files, 0);
    assert_eq!(disk.names(), ["last", "never"]);
}

#[test]
fn directories_that_are_empty_for_long_are_removed() {
    let disk = Disk::new();
    fs::create_dir_all(disk.at("/run/deep")).unwrap();
    fs::create_dir_all(disk.at("/new")).unwrap();
    fs::create_dir_all(disk.at("/hot/empty")).unwrap();
    fs::create_dir_all(disk.at("/filled")).unwrap();
    disk.copied("/f", 0);
    fs::write(disk.at("/filled/own"), "x").unwrap();
    for name in ["/run/deep", "/run", "/hot/empty", "/filled"] {
        set_times(&disk.at(name), MODIFIED);
    }
    let away = disk.root.with_extension("away");
    fs::create_dir_all(away.join("empty")).unwrap();
    std::os::unix::fs::symlink(&away, disk.at("/link")).unwrap();
    set_times(&away.join("empty"), MODIFIED);
    let purger =
        |hold| Purger { directory_hold: Some(std::time::Duration::from_secs(hold)), ..disk.purger(100) };
    let outcome = purger(3600).purge();
    assert_eq!((outcome.files, outcome.directories), (1, 1));
    // The one above was changed by that, and is kept for another hold time.
    assert!(disk.at("/run").exists() && !disk.at("/run/deep").exists());
    assert_eq!(purger(3600).purge().directories, 0);
    assert_eq!(purger(0).purge().directories, 2, "run and new");
    // What is not purged, has something in it, is an export, or is behind a link stays.
    for name in ["/hot", "/hot/empty", "/filled/own", "/link"] {
        assert!(disk.at(name).exists(), "{name}");
    }
    assert!(away.join("empty").exists());
    fs::remove_dir_all(away).unwrap();
}
