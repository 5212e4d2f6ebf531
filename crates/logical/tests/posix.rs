//! Tests of this crate on a real file system with journals on disk: an upload, its loss and
//! resumption, a checkpoint that a restart undoes, and attributes and checksums in their format on
//! disk.

#![allow(clippy::unwrap_used)]

mod support;

use base::LogicalPath;
use config::{NameLayout, NamePattern, NameRule, PatternPair};
use logical::config::{Config, ExportConfig};
use logical::{Events, Journals, Logical, LogicalParts, NumberedUsers};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use storage::Posix;
use support::time::ManualClock;
use support::{Call, Client, caller, creating, path, reading, replacing, target, updating};
use vfs::{AttributeWork, CheckpointWork, FileOperation, ListDetail, OpenRequest, Operation, Value};

/// A directory that is removed when the test ends.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("logical-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("data")).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join("data").join(name)
    }

    fn mode(&self, name: &str) -> u32 {
        fs::metadata(self.file(name)).unwrap().permissions().mode() & 0o7777
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Replaces a directory of journals by a copy, because the stopped process, which is still alive in
/// this test, holds its lock.
fn leave_behind(journals: &Path) {
    let Ok(entries) = fs::read_dir(journals) else { return };
    let copy = journals.with_extension("copy");
    fs::create_dir(&copy).unwrap();
    for entry in entries.map(Result::unwrap) {
        fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    fs::remove_dir_all(journals).unwrap();
    fs::rename(copy, journals).unwrap();
}

struct Process {
    logical: Arc<Logical>,
    client: Client,
}

impl Process {
    /// Starts the server on this directory, as if all earlier ones had been killed.
    fn start(directory: &Path, clock: &Arc<ManualClock>) -> Self {
        Self::start_with(directory, clock, Vec::new())
    }

    fn start_with(directory: &Path, clock: &Arc<ManualClock>, name_rules: Vec<NameRule>) -> Self {
        for name in ["posc", "chkpnt"] {
            leave_behind(&directory.join("admin").join(name));
        }
        let mut config = Config::new(vec![ExportConfig::new(path("/"))], directory.join("admin"));
        config.checksums.types = vec![digest::Algorithm::Adler32, digest::Algorithm::Crc32c];
        let posix =
            storage::posix::Config { name_rules, ..storage::posix::Config::new(directory.join("data")) };
        let parts = LogicalParts {
            journals: Journals::on_disk(&config),
            config,
            backend: Arc::new(Posix::new(&posix).unwrap()),
            clock: clock.clone(),
            users: Arc::new(NumberedUsers),
            locator: None,
            accounts: None,
        };
        let logical = Logical::new(parts).unwrap();
        Self { client: Client::new(logical.clone(), caller("alice", 1)), logical }
    }

    fn call(&self, operation: Operation) -> Call {
        self.client.call(operation)
    }

    fn open(&self, name: &str, request: OpenRequest) -> Call {
        self.client.open(name, request)
    }
}

#[test]
fn an_upload_is_lost_resumed_and_closed() {
    let directory = Directory::new("posc");
    let clock = Arc::new(ManualClock::default());
    let posc = |request| OpenRequest { posc: true, make_path: true, ..request };
    let first = Process::start(&directory.0, &clock);
    let file = first.open("/a/b/f", posc(creating())).file();
    first.client.write(&file, 0, b"12345").done();
    assert_eq!(directory.mode("a/b/f"), 0o1644);
    // The process is killed; its journal is on disk.
    let second = Process::start(&directory.0, &clock);
    assert_eq!(second.logical.status().pending_files, 1);
    let file = second.open("/a/b/f", updating()).file();
    second.client.write(&file, 5, b"6789").done();
    second.client.close(&file).done();
    assert_eq!(directory.mode("a/b/f"), 0o644);
    assert_eq!(fs::read(directory.file("a/b/f")).unwrap(), b"123456789");
    let third = Process::start(&directory.0, &clock);
    assert_eq!(third.logical.status().pending_files, 0);
    let file = third.open("/a/b/g", posc(creating())).file();
    third.client.abandon(&file).done();
    clock.advance(std::time::Duration::from_secs(601));
    third.logical.tick();
    while third.logical.status().pending_files > 0 {
        std::thread::yield_now();
    }
    assert!(!directory.file("a/b/g").exists());
}

/// Rules whose logical parents are not on disk.
fn rules() -> Vec<NameRule> {
    let forward = NamePattern::new("([a-z]+)/(.+)", "{2}.{1}").unwrap();
    let inverse = NamePattern::new("(.+)[.]([a-z]+)", "{2}/{1}").unwrap();
    let rule = |from: &str, to: &str, layout| NameRule { from: from.to_owned(), to: to.to_owned(), layout };
    vec![
        rule("/atlas/rucio", "/disk/grid", NameLayout::Rucio),
        rule("/runs", "/disk/q", NameLayout::Pattern(Box::new(PatternPair { forward, inverse }))),
        rule("/store/old", "/disk/old", NameLayout::Prefix),
    ]
}

const PLACED: [(&str, &str); 3] = [
    ("/atlas/rucio/mc15:f", "disk/grid/mc15/81/72/f"),
    ("/runs/abc/d/f", "disk/q/d/f.abc"),
    ("/store/old/d/f", "disk/old/d/f"),
];

fn with_targets(name: &str) -> Directory {
    let directory = Directory::new(name);
    for target in ["disk/grid", "disk/q", "disk/old"] {
        fs::create_dir_all(directory.file(target)).unwrap();
    }
    directory
}

/// The directories above a name are those on disk, and not those of its logical path.
#[test]
fn files_below_rules_are_unfinished_resumed_and_checkpointed() {
    let directory = with_targets("rules");
    let clock = Arc::new(ManualClock::default());
    let posc = |request| OpenRequest { posc: true, make_path: true, ..request };
    for (name, place) in PLACED {
        let first = Process::start_with(&directory.0, &clock, rules());
        let file = first.open(name, posc(creating())).file();
        first.client.write(&file, 0, b"12345").done();
        assert_eq!(directory.mode(place), 0o1644, "{name}");
        let second = Process::start_with(&directory.0, &clock, rules());
        assert_eq!(second.logical.status().pending_files, 1);
        let file = second.open(name, updating()).file();
        second.client.close(&file).done();
        assert_eq!(directory.mode(place), 0o644, "{name}");
        let file = second.open(name, updating()).file();
        second.client.on_file(&file, FileOperation::Checkpoint(CheckpointWork::Begin)).done();
        second.client.write(&file, 0, b"XXXXXXX").done();
        let third = Process::start_with(&directory.0, &clock, rules());
        assert_eq!(fs::read(directory.file(place)).unwrap(), b"12345");
        assert_eq!((third.logical.status().checkpoints, third.logical.status().pending_files), (0, 0));
    }
}

/// An unmounted target, or a changed rule, does not prove that a file was removed.
#[test]
fn records_of_files_below_rules_wait_for_their_disk() {
    let directory = with_targets("unmounted");
    let clock = Arc::new(ManualClock::default());
    let posc = |request| OpenRequest { posc: true, make_path: true, ..request };
    let first = Process::start_with(&directory.0, &clock, rules());
    for (name, _) in PLACED {
        let file = first.open(name, posc(creating())).file();
        first.client.write(&file, 0, b"12345").done();
    }
    let away = directory.0.join("away");
    for target in ["disk/grid", "disk/q", "disk/old", "disk"] {
        fs::rename(directory.file(target), &away).unwrap();
        let next = Process::start_with(&directory.0, &clock, rules());
        assert_eq!(next.logical.unfinished().len(), PLACED.len(), "{target}");
        drop(next);
        fs::rename(&away, directory.file(target)).unwrap();
    }
    let mut changed = rules();
    for rule in &mut changed {
        rule.from.push_str("/new");
    }
    for other in [Vec::new(), changed] {
        let next = Process::start_with(&directory.0, &clock, other);
        assert_eq!(next.logical.unfinished().len(), PLACED.len());
    }
    let last = Process::start_with(&directory.0, &clock, rules());
    assert_eq!(last.logical.status().pending_files, PLACED.len());
    // What was removed on a disk that is there is removed.
    fs::remove_dir_all(directory.file("disk/old/d")).unwrap();
    let last = Process::start_with(&directory.0, &clock, rules());
    assert_eq!(last.logical.unfinished().len(), PLACED.len() - 1);
}

#[derive(Default)]
struct Created(Mutex<Vec<String>>);

impl Events for Created {
    fn created(&self, path: &LogicalPath, _pending: bool) {
        self.0.lock().unwrap().push(path.text().into_owned());
    }
    fn removed(&self, _path: &LogicalPath) {}
    fn moved(&self, _from: &LogicalPath, _to: &LogicalPath) {}
}

#[test]
fn only_logical_directories_that_are_created_are_reported() {
    let directory = with_targets("reported");
    let process = Process::start_with(&directory.0, &Arc::new(ManualClock::default()), rules());
    let created = Arc::new(Created::default());
    process.logical.set_events(created.clone());
    for (name, _) in PLACED {
        process.open(name, OpenRequest { make_path: true, ..creating() }).done();
    }
    let [rucio, run, old] = PLACED.map(|(name, _)| name);
    assert_eq!(*created.0.lock().unwrap(), [rucio, run, "/store/old/d", old]);
}

#[test]
fn a_file_whose_directory_was_renamed_can_be_synced() {
    let directory = Directory::new("moved");
    let process = Process::start(&directory.0, &Arc::new(ManualClock::default()));
    let file = process.open("/d/x", OpenRequest { make_path: true, ..creating() }).file();
    process.call(Operation::rename(target("/d"), target("/c"))).done();
    process.client.on_file(&file, FileOperation::Sync).done();
    // The old name of the directory is now that of a file.
    let file = process.open("/e/x", OpenRequest { make_path: true, ..creating() }).file();
    process.call(Operation::rename(target("/e"), target("/f"))).done();
    process.open("/e", creating()).file();
    process.client.on_file(&file, FileOperation::Sync).done();
}

#[test]
fn a_restart_undoes_a_checkpoint() {
    let directory = Directory::new("checkpoint");
    let clock = Arc::new(ManualClock::default());
    fs::write(directory.file("f"), b"0123456789").unwrap();
    let first = Process::start(&directory.0, &clock);
    let file = first.open("/f", updating()).file();
    first.client.on_file(&file, FileOperation::Checkpoint(CheckpointWork::Begin)).done();
    first.client.write(&file, 2, b"XXXX").done();
    first.client.on_file(&file, FileOperation::Truncate { size: 4, checkpoint: true }).done();
    first.client.write(&file, 20, b"end").done();
    assert_eq!(fs::metadata(directory.file("f")).unwrap().len(), 23);
    let second = Process::start(&directory.0, &clock);
    assert_eq!(fs::read(directory.file("f")).unwrap(), b"0123456789");
    assert_eq!(second.logical.status().checkpoints, 0);
    assert!(fs::read_dir(directory.0.join("admin/chkpnt")).unwrap().next().is_none());
}

#[test]
fn checksums_and_attributes_in_their_format_on_disk() {
    let directory = Directory::new("attributes");
    let clock = Arc::new(ManualClock::default());
    let process = Process::start(&directory.0, &clock);
    let file = process.open("/f", creating()).file();
    process.client.write(&file, 0, b"123456789").done();
    process.client.close(&file).done();
    let known = process.call(Operation::Checksum(target("/f")));
    assert!(known.was_on_the_spot());
    let set = AttributeWork::Set { pairs: vec![(b"key".to_vec(), b"value".to_vec())], new: true };
    process.call(Operation::Attributes(target("/f"), set)).done();
    let list = process.call(Operation::Attributes(target("/f"), AttributeWork::List { values: true }));
    let Value::Attributes(list) = list.value() else { panic!() };
    assert_eq!(list.iter().map(|one| one.name.as_slice()).collect::<Vec<_>>(), [b"key"]);
    // Another start uses the stored checksum.
    let process = Process::start(&directory.0, &clock);
    let detail = ListDetail { stat: true, checksum: true, online: false };
    let Value::Listing { entries, .. } = process.call(Operation::List(target("/"), detail)).value() else {
        panic!()
    };
    let shown = entries[0].checksum.clone().unwrap();
    assert_eq!(shown, ("adler32".to_owned(), Some("091e01de".to_owned())));
    let Value::Checksum { hex, .. } = process.call(Operation::Checksum(target("/f?cks.type=crc32c"))).value()
    else {
        panic!()
    };
    assert_eq!(hex, "e3069283");
    let file = process.open("/f", replacing()).file();
    process.client.close(&file).done();
    let Value::Checksum { hex, .. } = process.call(Operation::Checksum(target("/f"))).value() else {
        panic!()
    };
    assert_eq!(hex, "00000001");
}

#[test]
fn unusual_names_are_served() {
    let directory = Directory::new("names");
    let clock = Arc::new(ManualClock::default());
    let process = Process::start(&directory.0, &clock);
    fs::create_dir(directory.file("d")).unwrap();
    for (operation, kind) in [
        (Operation::Stat(target("/nope")), base::ErrorKind::NotFound),
        (Operation::Open(target("/d"), Box::new(reading())), base::ErrorKind::IsDirectory),
        (Operation::Open(target("/d/"), Box::new(reading())), base::ErrorKind::IsDirectory),
        (Operation::Open(target("/d"), Box::new(replacing())), base::ErrorKind::IsDirectory),
        (Operation::Open(target("/d"), Box::new(creating())), base::ErrorKind::ItExists),
        (Operation::Open(target("/x/y"), Box::new(creating())), base::ErrorKind::NotFound),
        (Operation::Truncate { target: target("/d"), size: 0 }, base::ErrorKind::IsDirectory),
    ] {
        assert_eq!(process.call(operation).error().kind, kind);
    }
    process.call(Operation::RemoveDirectory(target("/nope"))).done();
    process.call(Operation::make_directory(target("/d"), 0o755, true)).done();
    let odd = "/d/with space, ümlaut";
    let file = process.open(odd, creating()).file();
    process.client.close(&file).done();
    process.call(Operation::rename(target(odd), target("/new/place"))).done();
    assert!(directory.file("new/place").exists());
    process.call(Operation::Remove(target("/new/place"))).done();
    process.call(Operation::Remove(target("/new"))).done();
    assert!(!directory.file("new").exists());
}

#[test]
fn a_walk_visits_a_directory_once_despite_links() {
    let directory = Directory::new("walk");
    fs::create_dir_all(directory.file("d")).unwrap();
    fs::write(directory.file("d/f"), "").unwrap();
    for name in ["a", "b", "d/c"] {
        let up = if name.contains('/') { ".." } else { "." };
        std::os::unix::fs::symlink(up, directory.file(name)).unwrap();
    }
    let process = Process::start(&directory.0, &Arc::new(ManualClock::default()));
    let mut count = 0;
    process.logical.walk(&mut |_| {
        count += 1;
        count < 10
    });
    assert_eq!(count, 1);
}

#[test]
fn a_second_path_makes_the_list_of_names_incomplete() {
    let directory = Directory::new("names");
    fs::create_dir_all(directory.file("d")).unwrap();
    fs::write(directory.file("d/f"), "").unwrap();
    let process = Process::start(&directory.0, &Arc::new(ManualClock::default()));
    let names = || {
        let mut names = Vec::new();
        let gap = process.logical.walk_names(&mut |path| {
            names.push(path.text().into_owned());
            true
        });
        names.sort();
        (names, gap.map(|gap| gap.path.text().into_owned()))
    };
    let all = ["/", "/d", "/d/f"].map(str::to_owned).to_vec();
    assert_eq!(names(), (all.clone(), None));
    // Creating the file or directory also creates the target of the link under its second path,
    // which is not reported.
    for (target, link) in [("later", "d/dangling"), ("f", "d/link"), (".", "d/self")] {
        std::os::unix::fs::symlink(target, directory.file(link)).unwrap();
        assert_eq!(names().1, Some(format!("/{link}")));
        fs::remove_file(directory.file(link)).unwrap();
    }
    // A target outside of the root, as with data of spaces, has no second path; but the server may
    // not serve it here.
    std::os::unix::fs::symlink("/etc/hostname", directory.file("d/outside")).unwrap();
    assert_eq!(names(), (all, Some("/d/outside".to_owned())));
    fs::remove_file(directory.file("d/outside")).unwrap();
    let stopped = process.logical.walk_names(&mut |_| false);
    assert_eq!(stopped.map(|gap| gap.path), Some(base::LogicalPath::root()));
}

#[test]
fn a_start_on_an_empty_directory_keeps_all_records() {
    let directory = Directory::new("unmounted");
    let clock = Arc::new(ManualClock::default());
    fs::create_dir(directory.file("d")).unwrap();
    fs::write(directory.file("d/changed"), b"0123456789").unwrap();
    let server = Process::start(&directory.0, &clock);
    let upload = server.open("/d/upload", OpenRequest { posc: true, ..creating() }).file();
    server.client.write(&upload, 0, b"part").done();
    let changed = server.open("/d/changed", updating()).file();
    server.client.on_file(&changed, FileOperation::Checkpoint(CheckpointWork::Begin)).done();
    server.client.write(&changed, 2, b"XXXX").done();

    let (mounted, away) = (directory.0.join("data"), directory.0.join("away"));
    fs::rename(&mounted, &away).unwrap();
    fs::create_dir(&mounted).unwrap();
    let empty = Process::start(&directory.0, &clock);
    assert!(matches!(empty.open("/d/upload", reading()).answer(), vfs::Answer::Error(_)));
    assert!(matches!(empty.open("/d/changed", updating()).answer(), vfs::Answer::Error(_)));

    fs::remove_dir(&mounted).unwrap();
    fs::rename(&away, &mounted).unwrap();
    let server = Process::start(&directory.0, &clock);
    assert_eq!(fs::read(directory.file("d/changed")).unwrap(), b"0123456789");
    assert_eq!(server.logical.status().pending_files, 1);
    let upload = server.open("/d/upload", updating()).file();
    server.client.write(&upload, 4, b" and rest").done();
    server.client.close(&upload).done();
    assert_eq!(fs::read(directory.file("d/upload")).unwrap(), b"part and rest");
    assert_eq!(directory.mode("d/upload"), 0o644);
}

/// Returns the names of new content in a directory.
fn beside(directory: &Path) -> Vec<std::ffi::OsString> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with(".scalla-replacing-")).collect()
}

/// New content is never in another directory than the file that it replaces.
#[test]
fn files_below_rules_are_replaced_only_in_their_directory() {
    let directory = with_targets("replacing-rules");
    let put = || OpenRequest { replace: true, posc: true, ..replacing() };
    let process = Process::start_with(&directory.0, &Arc::new(ManualClock::default()), rules());
    for (name, place) in PLACED {
        let place = directory.file(place);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(&place, b"old").unwrap();
        if name.contains("rucio") {
            assert_eq!(process.open(name, put()).error().kind, base::ErrorKind::Unsupported);
            assert_eq!(fs::read(&place).unwrap(), b"old");
        } else {
            let file = process.open(name, put()).file();
            process.client.write(&file, 0, b"new").done();
            assert_eq!(fs::read(&place).unwrap(), b"old");
            process.client.close(&file).done();
            assert_eq!(fs::read(&place).unwrap(), b"new");
        }
        assert!(beside(place.parent().unwrap()).is_empty(), "{name}");
    }
}

/// Nobody continues it, so it does not wait for its hold time.
#[test]
fn the_new_content_of_a_killed_server_is_removed_at_its_start() {
    let directory = Directory::new("replacing-killed");
    let clock = Arc::new(ManualClock::default());
    fs::create_dir(directory.file("d")).unwrap();
    fs::write(directory.file("d/f"), b"old").unwrap();
    let first = Process::start(&directory.0, &clock);
    let file = first.open("/d/f", OpenRequest { replace: true, posc: true, ..replacing() }).file();
    first.client.write(&file, 0, b"part").done();
    let names = beside(&directory.file("d"));
    assert_eq!(names.len(), 1);
    assert_eq!(directory.mode(&format!("d/{}", names[0].display())), 0o1600);
    let second = Process::start(&directory.0, &clock);
    second.logical.tick();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while second.logical.status().pending_files > 0 {
        assert!(std::time::Instant::now() < until, "the new content is not removed");
        std::thread::yield_now();
    }
    assert!(beside(&directory.file("d")).is_empty());
    assert_eq!(fs::read(directory.file("d/f")).unwrap(), b"old");
    // The directory can be removed.
    second.call(Operation::Remove(target("/d/f"))).done();
    fs::remove_dir(directory.file("d")).unwrap();
}
