//! Names that mass storage has too: their creation, removal and rename, and listings.

#![allow(clippy::unwrap_used)] // a panic is the failure of a test

mod support;

use base::{Error, ErrorKind, LogicalPath};
use logical::{HasLeft, StageNotice, StageRequest, StagedFiles, Stager, StagerReply};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use storage::Metadata;
use support::{Client, Server, caller, creating, path, replacing, target};
use vfs::{Answer, ListDetail, Operation, Value};

/// A mass storage with names, which records orders.
struct Names {
    files: Mutex<BTreeMap<LogicalPath, Metadata>>,
    /// The status of a file that is created.
    created: Metadata,
    orders: Mutex<Vec<String>>,
    fails: bool,
    /// A name that is created there exists already.
    late: AtomicBool,
    /// Called with the next question for a status.
    on_status: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Names {
    fn order(&self, text: String) -> Result<(), Error> {
        self.orders.lock().unwrap().push(text);
        if self.fails { Err(Error::new(ErrorKind::FsError, "no tape")) } else { Ok(()) }
    }

    fn orders(&self) -> Vec<String> {
        std::mem::take(&mut *self.orders.lock().unwrap())
    }

    fn has(&self, name: &str) -> bool {
        self.files.lock().unwrap().contains_key(&path(name))
    }
}

impl Stager for Names {
    fn fetch(&self, request: StageRequest, _: HasLeft, reply: StagerReply<()>) {
        self.order(format!("fetch {}", request.path.text())).unwrap();
        reply(Err(Error::new(ErrorKind::NotFound, "")));
    }
    fn submit(&self, _: &str, _: Vec<StageRequest>, _: Option<StageNotice>, reply: StagerReply<()>) {
        reply(Ok(()));
    }
    fn cancel(&self, _: &str, reply: StagerReply<()>) {
        reply(Ok(()));
    }
    fn query(&self, _: &str, reply: StagerReply<Option<String>>) {
        reply(Ok(None));
    }
    fn has_catalog(&self) -> bool {
        true
    }
    fn remote_status(&self, path: &LogicalPath) -> Result<Option<Metadata>, Error> {
        if let Some(call) = self.on_status.lock().unwrap().take() {
            call();
        }
        Ok(self.files.lock().unwrap().get(path).cloned())
    }
    fn create_remote(&self, path: &LogicalPath, mode: u32) -> Result<(), Error> {
        self.order(format!("create {} {mode:o}", path.text()))?;
        match self.late.load(Ordering::Relaxed) {
            true => Err(Error::new(ErrorKind::ItExists, "it is there")),
            false => {
                self.files.lock().unwrap().insert(path.clone(), self.created.clone());
                Ok(())
            }
        }
    }
    fn remove_remote(&self, path: &LogicalPath) -> Result<(), Error> {
        self.order(format!("rm {}", path.text()))?;
        self.files.lock().unwrap().remove(path);
        Ok(())
    }
    fn rename_remote(&self, from: &LogicalPath, to: &LogicalPath) -> Result<bool, Error> {
        self.order(format!("mv {} {}", from.text(), to.text()))?;
        let mut files = self.files.lock().unwrap();
        let Some(file) = files.remove(from) else { return Ok(false) };
        files.insert(to.clone(), file);
        Ok(true)
    }
    fn remote_names(&self, path: &LogicalPath) -> Result<Option<BTreeSet<Vec<u8>>>, Error> {
        self.order(format!("dlist {}", path.text()))?;
        let files = self.files.lock().unwrap();
        let below = files.keys().filter(|file| file.parent().as_ref() == Some(path));
        let names: BTreeSet<_> = below.map(|file| file.file_name().unwrap().to_vec()).collect();
        Ok((!names.is_empty()).then_some(names))
    }
}

/// The options of `/data`, which stages.
#[derive(Clone, Copy, Default)]
struct Options {
    check: bool,
    create: bool,
    list: bool,
    fails: bool,
}

/// A server with files on disk and in mass storage.
fn site(disk: &[&str], tape: &[&str], options: Options) -> (Server, Arc<Names>, Client) {
    let server = Server::with(|config| {
        for export in config.exports.iter_mut().filter(|export| export.prefix == path("/data")) {
            (export.stage, export.check) = (true, options.check);
            (export.remote_directories, export.remote_create) = (options.list, options.create);
        }
    });
    for name in disk {
        server.memory.put(name, b"12");
    }
    server.memory.put("/data/.status", b"12");
    let status = server.logical.backend().stat(&path("/data/.status")).unwrap();
    let client = Client::new(server.logical.clone(), caller("ann", 1));
    client.call(Operation::Remove(target("/data/.status"))).done();
    let files = tape.iter().map(|name| (path(name), status.clone())).collect();
    let names = Arc::new(Names {
        files: Mutex::new(files),
        created: status,
        orders: Mutex::default(),
        fails: options.fails,
        late: AtomicBool::new(false),
        on_status: Mutex::default(),
    });
    let client = Client::new(StagedFiles::before(server.logical.clone(), names.clone()), caller("ann", 1));
    (server, names, client)
}

fn is_on_disk(server: &Server, name: &str) -> bool {
    server.logical.backend().stat(&path(name)).is_ok()
}

fn remove(name: &str) -> Operation {
    Operation::Remove(target(name))
}

fn rename(from: &str, to: &str) -> Operation {
    Operation::rename(target(from), target(to))
}

#[test]
fn a_file_in_mass_storage_is_not_created_where_that_is_checked() {
    let options = Options { check: true, ..Options::default() };
    let (server, names, client) = site(&["/data/here"], &["/data/on-tape"], options);
    for name in ["/data/on-tape", "/data/here"] {
        let (kind, text) = client.open(name, creating()).refusal();
        assert_eq!(kind, ErrorKind::ItExists, "{name}: {text}");
    }
    assert!(!is_on_disk(&server, "/data/on-tape"));
    client.open("/data/new", creating()).file();
    // A client that replaces a file wants that, and other exports are not checked.
    client.open("/data/on-tape", replacing()).file();
    client.open("/nolock/on-tape", creating()).file();
    assert_eq!(names.orders(), [""; 0]);
}

#[test]
fn a_new_file_is_created_in_mass_storage_unless_it_is_there() {
    let options = Options { create: true, ..Options::default() };
    let (server, names, client) = site(&["/data/here"], &["/data/on-tape", "/data/replaced"], options);
    client.open("/data/new", creating()).file();
    client.open("/data/new2", replacing()).file();
    assert_eq!(names.orders(), ["create /data/new 644", "create /data/new2 644"]);
    // Such an order could empty an existing file. A name that cannot be on disk is not created in mass storage.
    client.open("/data/on-tape", creating()).file();
    client.open("/data/replaced", replacing()).file();
    client.open("/data/here", replacing()).file();
    client.open("/data/none/new", creating()).refusal();
    client.open("/data/here/new", creating()).refusal();
    // The disk of this test has no such rule.
    client.open("/data/.scalla-incoming-1", creating()).file();
    client.open("/data/slash/", creating()).refusal();
    client.open("/nolock/new", creating()).file();
    assert_eq!(names.orders(), [""; 0]);
    // A file that a first try has created in mass storage only does not keep the name from its client.
    client.open("/data/again", creating()).file();
    client.call(Operation::Remove(target("/data/again"))).done();
    names.files.lock().unwrap().insert(path("/data/again"), names.created.clone());
    client.open("/data/again", creating()).file();
    assert_eq!(names.orders(), ["create /data/again 644", "rm /data/again"]);
    // Somebody else was faster there.
    names.late.store(true, Ordering::Relaxed);
    client.open("/data/late", creating()).file();
    assert_eq!(names.orders(), ["create /data/late 644"]);
    assert!(is_on_disk(&server, "/data/late"));

    let options = Options { create: true, fails: true, ..Options::default() };
    let (server, _, client) = site(&[], &["/data/on-tape"], options);
    let (_, text) = client.open("/data/new", creating()).refusal();
    assert!(text.contains("mass storage does not create it: no tape"), "{text}");
    assert!(!is_on_disk(&server, "/data/new"));
}

#[test]
fn a_removed_file_leaves_mass_storage_too() {
    let on_tape = ["/data/both", "/data/tape", "/nolock/f"];
    let (server, names, client) =
        site(&["/data/both", "/data/disk", "/nolock/f"], &on_tape, Options::default());
    for name in ["/data/both", "/data/disk", "/data/tape"] {
        client.call(remove(name)).done();
        assert!(!is_on_disk(&server, name) && !names.has(name), "{name}");
        assert_eq!(names.orders(), [format!("rm {name}")]);
    }
    assert_eq!(client.call(remove("/data/none")).refusal().0, ErrorKind::NotFound);
    // Exports without mass storage, and directories, do not concern it.
    client.call(remove("/nolock/f")).done();
    client.call(Operation::make_directory(target("/data/dir"), 0o755, false)).done();
    client.call(remove("/data/dir")).done();
    assert!(names.has("/nolock/f"));
    assert_eq!(names.orders(), [""; 0]);
}

#[test]
fn a_removal_that_mass_storage_refuses_is_an_error_and_can_be_repeated() {
    let options = Options { fails: true, ..Options::default() };
    let (server, names, client) = site(&["/data/f"], &["/data/f"], options);
    for _ in 0..2 {
        let (kind, text) = client.call(remove("/data/f")).refusal();
        assert!(kind == ErrorKind::FsError && text.contains("no tape"), "{text}");
    }
    assert!(!is_on_disk(&server, "/data/f") && names.has("/data/f"));
    // An operation that is refused on disk does not reach mass storage.
    let (_, names, client) = site(&[], &["/ro/f"], Options::default());
    client.call(remove("/ro/f")).error();
    assert!(names.has("/ro/f") && names.orders().is_empty());
}

/// Its copy could be that of the new file.
#[test]
fn a_name_that_is_on_disk_again_stays_in_mass_storage() {
    let (server, names, client) = site(&[], &["/data/f"], Options::default());
    let memory = server.memory.clone();
    *names.on_status.lock().unwrap() = Some(Box::new(move || memory.put("/data/f", b"new")));
    let (kind, text) = client.call(remove("/data/f")).refusal();
    assert_eq!(kind, ErrorKind::Conflict, "{text}");
    assert!(names.orders().is_empty() && names.has("/data/f") && is_on_disk(&server, "/data/f"));
}

#[test]
fn a_renamed_file_has_its_new_name_in_mass_storage() {
    let on_tape = ["/data/both", "/data/taken"];
    let (server, names, client) = site(&["/data/both", "/data/disk"], &on_tape, Options::default());
    client.call(rename("/data/both", "/data/both2")).done();
    assert!(names.has("/data/both2") && !names.has("/data/both") && is_on_disk(&server, "/data/both2"));
    assert_eq!(names.orders(), ["mv /data/both /data/both2"]);
    // One that was never copied is renamed on disk only.
    client.call(rename("/data/disk", "/data/disk2")).done();
    assert!(is_on_disk(&server, "/data/disk2") && names.orders().len() == 1);
    // A file of mass storage is not replaced unseen.
    let (kind, _) = client.call(rename("/data/disk2", "/data/taken")).refusal();
    assert_eq!(kind, ErrorKind::ItExists);
    assert_eq!(client.call(rename("/data/none", "/data/new")).refusal().0, ErrorKind::NotFound);
    assert!(is_on_disk(&server, "/data/disk2") && names.orders().is_empty());
    let (_, _, client) = site(&["/data/f"], &["/data/f"], Options { fails: true, ..Options::default() });
    assert!(client.call(rename("/data/f", "/data/g")).refusal().1.contains("old name comes back"));
}

#[test]
fn a_rename_to_a_new_name_replaces_neither_a_file_on_disk_nor_one_in_mass_storage() {
    let (server, names, client) = site(
        &["/data/f", "/data/disk", "/data/both"],
        &["/data/f", "/data/tape", "/data/both"],
        Options::default(),
    );
    for name in ["/data/disk", "/data/tape", "/data/both"] {
        let renamed = client.call(Operation::rename_to_new(target("/data/f"), target(name)));
        assert_eq!(renamed.refusal().0, ErrorKind::ItExists, "{name}");
    }
    assert!(is_on_disk(&server, "/data/f") && names.has("/data/f") && names.orders().is_empty());
    client.call(Operation::rename_to_new(target("/data/f"), target("/data/g"))).done();
    assert_eq!(names.orders(), ["mv /data/f /data/g"]);
}

/// The file on disk would hide it, and replace it in mass storage with the next migration.
#[test]
fn a_file_that_only_mass_storage_has_is_not_renamed() {
    let on_tape = ["/data/tape", "/data/copied"];
    let (server, names, client) = site(&["/data/disk", "/data/copied"], &on_tape, Options::default());
    for new in ["/data/new", "/data/disk", "/data/copied"] {
        let (kind, text) = client.call(rename("/data/tape", new)).refusal();
        assert_eq!(kind, ErrorKind::FsError, "{text}");
        assert!(text.contains("in mass storage only"), "{text}");
    }
    assert_eq!(names.orders(), [""; 0]);
    assert!(names.has("/data/tape") && names.has("/data/copied"));
    assert!(is_on_disk(&server, "/data/disk") && is_on_disk(&server, "/data/copied"));
    assert_eq!(client.call(rename("/data/none", "/data/disk")).refusal().0, ErrorKind::NotFound);
}

/// An empty directory on disk may have files in mass storage.
#[test]
fn a_directory_of_mass_storage_is_not_replaced() {
    let (server, names, client) = site(&[], &["/data/b"], Options::default());
    for name in ["/data/a", "/data/b"] {
        client.call(Operation::make_directory(target(name), 0o755, false)).done();
    }
    assert_eq!(client.call(rename("/data/a", "/data/b")).refusal().0, ErrorKind::ItExists);
    assert!(names.orders().is_empty() && is_on_disk(&server, "/data/a"));
    // A file that replaces one in both places is meant.
    let (_, names, client) = site(&["/data/f", "/data/g"], &["/data/f", "/data/g"], Options::default());
    client.call(rename("/data/f", "/data/g")).done();
    assert_eq!(names.orders(), ["mv /data/f /data/g"]);
}

/// Returns all names of a listing.
fn listed(client: &Client, name: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut answer = client.call(Operation::List(target(name), ListDetail::default())).answer();
    loop {
        let Answer::Value(Value::Listing { entries, rest }) = answer else { panic!("no listing") };
        names.extend(entries.iter().map(|entry| String::from_utf8(entry.name.clone()).unwrap()));
        let Some(rest) = rest else { return names };
        answer = client.call(Operation::ListMore(rest)).answer();
    }
}

#[test]
fn a_listing_has_the_names_of_both() {
    let options = Options { list: true, ..Options::default() };
    let many: Vec<String> = (0..2500).map(|number| format!("/data/many/{number:04}")).collect();
    let on_tape = ["/data/both", "/data/tape"].into_iter().chain(many.iter().map(String::as_str));
    let on_tape: Vec<_> = on_tape.collect();
    let (_server, names, client) = site(&["/data/both", "/data/disk"], &on_tape, options);
    let mut found = listed(&client, "/data");
    found.sort();
    assert_eq!(found, ["both", "disk", "tape", "x"]);
    // A directory of mass storage only, in several pages.
    let found = listed(&client, "/data/many");
    assert!(found.len() == 2500 && found.is_sorted());
    assert_eq!(names.orders(), ["dlist /data", "dlist /data/many"]);
    assert_eq!(
        client.call(Operation::List(target("/data/none"), ListDetail::default())).refusal().0,
        ErrorKind::NotFound
    );
    // A client that wants files on disk gets these.
    assert_eq!(names.orders(), ["dlist /data/none"]);
    // One that wants the status would drop those without.
    for detail in [
        ListDetail { online: true, ..ListDetail::default() },
        ListDetail { stat: true, ..ListDetail::default() },
    ] {
        let answer = client.call(Operation::List(target("/data"), detail)).answer();
        let Answer::Value(Value::Listing { entries, .. }) = answer else { panic!("no listing") };
        assert_eq!(entries.len(), 3);
    }
    assert_eq!(names.orders(), [""; 0]);
    let (_server, _, client) = site(&["/data/f"], &[], Options { fails: true, ..options });
    assert!(
        client.call(Operation::List(target("/data"), ListDetail::default())).refusal().1.contains("no tape")
    );
}
