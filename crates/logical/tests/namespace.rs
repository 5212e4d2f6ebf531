//! Tests of names: exports, status, directories, removing, renaming, modes, sizes, listings,
//! attributes, queries.

#![allow(clippy::unwrap_used)]

mod support;

use base::ErrorKind::{self, *};
use support::{Server, target, targets};
use vfs::{
    AttributeOutcome, AttributeWork, FileKind, ListDetail, LocateOptions, Operation, PrepareRequest, Value,
};

fn mkdir(name: &str, mode: u32, parents: bool) -> Operation {
    Operation::make_directory(target(name), mode, parents)
}

fn rename(from: &str, to: &str) -> Operation {
    Operation::rename(target(from), target(to))
}

fn chmod(name: &str, mode: u32) -> Operation {
    Operation::ChangeMode { target: target(name), mode }
}

fn truncate(name: &str, size: u64) -> Operation {
    Operation::Truncate { target: target(name), size }
}

#[test]
fn outside_of_exports_every_operation_is_disallowed() {
    let server = Server::new();
    let out = "/etc/x";
    for (operation, participle) in [
        (Operation::Stat(target(out)), "Stating"),
        (Operation::StatMany(targets(&["/data", out])), "Stating"),
        (Operation::StatSpace(target(out)), "Stating"),
        (Operation::QuerySpace(target(out)), "Stating"),
        (Operation::QueryAttributes(target(out)), "Stating"),
        (Operation::Open(target(out), Box::new(support::reading())), "Opening"),
        (Operation::List(target(out), ListDetail::default()), "Listing"),
        (mkdir(out, 0o755, true), "Creating"),
        (Operation::Remove(target(out)), "Removing"),
        (Operation::RemoveDirectory(target(out)), "Removing"),
        (rename(out, "/data/y"), "Renaming"),
        (rename("/data/x", out), "Renaming to"),
        (chmod(out, 0o644), "Modifying"),
        (truncate(out, 0), "Truncating"),
        (
            Operation::Attributes(target(out), AttributeWork::List { values: true }),
            "Inspecting file attributes",
        ),
        (
            Operation::Attributes(target(out), AttributeWork::Remove(vec![b"a".to_vec()])),
            "Modifying file attributes",
        ),
        (Operation::Locate(Some(target(out)), LocateOptions::default()), "Locating"),
        (
            Operation::Prepare(
                PrepareRequest { stage: true, ..Default::default() },
                targets(&["/data", out]),
            ),
            "Preparing",
        ),
        (Operation::QueryOpaque { code: 32, argument: out.into() }, "Querying"),
    ] {
        let want = (
            NotAuthorized,
            format!("{participle} path '{out}' is disallowed. This server exports /data, /nolock, /ro."),
        );
        assert_eq!(server.call(operation).refusal(), want);
    }
}

#[test]
fn changes_in_a_read_only_export_are_refused() {
    let server = Server::new();
    let set = AttributeWork::Set { pairs: vec![(b"a".to_vec(), b"1".to_vec())], new: false };
    for (operation, verb) in [
        (mkdir("/ro/x", 0o755, false), "mkdir"),
        (Operation::Remove(target("/ro/x")), "remove"),
        (Operation::RemoveDirectory(target("/ro/x")), "remove"),
        (rename("/ro/x", "/data/y"), "rename"),
        (chmod("/ro/x", 0o644), "change"),
        (truncate("/ro/x", 0), "trunc"),
        (Operation::Attributes(target("/ro/x"), set), "set fattr"),
        (Operation::Open(target("/ro/x"), Box::new(support::updating())), "open"),
        (Operation::Open(target("/ro/x"), Box::new(support::creating())), "create"),
    ] {
        let want = (FsReadOnly, format!("Unable to {verb} /ro/x; read-only file system"));
        assert_eq!(server.call(operation).refusal(), want);
    }
    assert_eq!(server.call(rename("/data/x", "/ro/y")).refusal().0, FsReadOnly);
    assert!(!server.stat("/ro/x").stat().writable);
    server.open("/ro/x", support::reading()).done();
}

#[test]
fn a_status_in_memory_is_answered_at_once() {
    let server = Server::new();
    server.memory.put("/data/f", b"12345");
    for cold in [false, true] {
        server.memory.set_cold(cold);
        let call = server.stat("/data/f");
        assert_eq!(call.was_on_the_spot(), !cold);
        let stat = call.stat();
        assert_eq!((stat.size, stat.kind, stat.mode), (5, FileKind::File, 0o644));
        assert_eq!(server.stat("/data/").stat().kind, FileKind::Directory);
        let missing = server.stat("/data/nope").refusal();
        assert_eq!(missing, (NotFound, "Unable to locate /data/nope; no such file or directory".into()));
        let slash = server.stat("/data/f/").refusal();
        assert_eq!(slash, (FsError, "Unable to locate /data/f/; not a directory".into()));
    }
    let Value::BriefStats(stats) = server.call(Operation::StatMany(targets(&["/data/f", "/data"]))).value()
    else {
        panic!()
    };
    assert_eq!(stats.iter().map(|s| s.kind()).collect::<Vec<_>>(), [FileKind::File, FileKind::Directory]);
    let error = server.call(Operation::StatMany(targets(&["/data/f", "/data/no"]))).error();
    assert_eq!(error.kind, NotFound);
}

#[test]
fn directories_are_created_and_removed_as_clients_expect() {
    let server = Server::new();
    server.memory.put("/data/f", b"");
    let check = |operation: Operation, want: Result<(), (ErrorKind, &str)>| match want {
        Ok(()) => server.call(operation).done(),
        Err((kind, text)) => assert_eq!(server.call(operation).refusal(), (kind, text.to_owned())),
    };
    check(mkdir("/data/d", 0o755, false), Ok(()));
    check(mkdir("/data/d", 0o755, false), Ok(()));
    check(mkdir("/data/d/", 0o755, true), Ok(()));
    check(mkdir("/data/d", 0o700, false), Err((ItExists, "Unable to mkdir /data/d; file exists")));
    check(mkdir("/data/f", 0o644, false), Err((ItExists, "Unable to mkdir /data/f; file exists")));
    check(
        mkdir("/data/a/b", 0, false),
        Err((NotFound, "Unable to mkdir /data/a/b; no such file or directory")),
    );
    check(mkdir("/data/a/b", 0o7777, true), Ok(()));
    assert_eq!(server.memory.mode("/data/a/b"), Some(0o775));
    check(mkdir("/data/z", 0, true), Ok(()));
    assert_eq!(server.memory.mode("/data/z"), Some(0o700));
    let rmdir = |name: &str| Operation::RemoveDirectory(target(name));
    let rm = |name: &str| Operation::Remove(target(name));
    check(rmdir("/data/a"), Err((ItExists, "Unable to remove /data/a; directory not empty")));
    check(rm("/data/a"), Err((ItExists, "Unable to remove /data/a; directory not empty")));
    check(rmdir("/data/f"), Err((FsError, "Unable to remove /data/f; not a directory")));
    check(rm("/data/f/"), Err((FsError, "Unable to remove /data/f/; not a directory")));
    check(rmdir("/data/nope"), Ok(()));
    check(rm("/data/nope"), Err((NotFound, "Unable to remove /data/nope; no such file or directory")));
    check(rmdir("/data/a/b"), Ok(()));
    check(rm("/data/a"), Ok(()));
    check(rm("/data/f"), Ok(()));
    assert_eq!(server.memory.content("/data/f"), None);
}

#[test]
fn renaming_replaces_and_creates_parents() {
    let server = Server::new();
    server.memory.put("/data/f", b"new");
    server.memory.put("/data/g", b"old");
    server.call(rename("/data/f", "/data/g")).done();
    assert_eq!(server.memory.content("/data/g").as_deref(), Some(&b"new"[..]));
    server.call(rename("/data/g", "/data/p/q/r")).done();
    assert_eq!(server.memory.content("/data/p/q/r").as_deref(), Some(&b"new"[..]));
    let missing = server.call(rename("/data/nope", "/data/t/u")).refusal();
    assert_eq!(missing, (NotFound, "Unable to rename /data/nope; no such file or directory".into()));
    assert_eq!(server.memory.content("/data/t"), None);
}

#[test]
fn renaming_to_a_new_name_replaces_nothing() {
    let server = Server::new();
    let rename = |from: &str, to: &str| server.call(Operation::rename_to_new(target(from), target(to)));
    server.memory.put("/data/f", b"f");
    server.memory.put("/data/g", b"g");
    server.call(mkdir("/data/empty", 0o755, false)).done();
    for name in ["/data/g", "/data/empty", "/data/f"] {
        let (kind, text) = rename("/data/f", name).refusal();
        assert_eq!((kind, text.as_str()), (ItExists, "Unable to rename /data/f; file exists"), "{name}");
    }
    rename("/data/f", "/data/p/f").done();
    assert_eq!(server.memory.content("/data/p/f").as_deref(), Some(&b"f"[..]));
    assert_eq!(server.memory.content("/data/g").as_deref(), Some(&b"g"[..]));
    assert_eq!(rename("/data/f", "/data/h").refusal().0, NotFound);
}

#[test]
fn modes_and_sizes() {
    let server = Server::new();
    server.memory.put("/data/f", b"12345");
    server.call(chmod("/data/f", 0o7777)).done();
    assert_eq!(server.memory.mode("/data/f"), Some(0o775));
    // The server owns the file, and without its own access no client could change the mode back.
    server.call(chmod("/data/f", 0)).done();
    assert_eq!(server.memory.mode("/data/f"), Some(0o600));
    server.call(chmod("/data", 0o050)).done();
    assert_eq!(server.memory.mode("/data"), Some(0o750));
    let missing = server.call(chmod("/data/nope", 0o644)).refusal();
    assert_eq!(missing, (NotFound, "Unable to stat /data/nope; no such file or directory".into()));
    server.call(truncate("/data/f", 2)).done();
    assert_eq!(server.memory.content("/data/f").as_deref(), Some(&b"12"[..]));
    let directory = server.call(truncate("/data", 2)).refusal();
    assert_eq!(directory, (IsDirectory, "Unable to trunc /data; is a directory".into()));
    let missing = server.call(truncate("/data/nope", 2)).refusal();
    assert_eq!(missing, (NotFound, "Unable to trunc /data/nope; no such file or directory".into()));
    let negative = server.call(truncate("/data/f", -1_i64 as u64)).refusal();
    assert_eq!(negative, (ArgInvalid, "Unable to trunc /data/f; invalid argument".into()));
}

#[test]
fn a_listing_has_pages_and_omits_unlistable_names() {
    let server = Server::new();
    for n in 0..1100 {
        server.memory.put(&format!("/data/big/{n:04}"), b"1");
    }
    server.memory.put("/data/big/line\nfeed", b"");
    server.memory.put("/data/big/with space", b"");
    let detail = ListDetail { stat: true, ..ListDetail::default() };
    let mut names = Vec::new();
    let mut pages = 0;
    let mut next = Some(Operation::List(target("/data/big"), detail));
    while let Some(operation) = next.take() {
        let Value::Listing { entries, rest } = server.call(operation).value() else { panic!() };
        assert!(entries.len() <= 512);
        for entry in entries.iter() {
            assert_eq!(entry.stat.as_ref().map(|stat| stat.kind), Some(FileKind::File));
            names.push(String::from_utf8(entry.name.clone()).unwrap());
        }
        pages += 1;
        next = rest.map(Operation::ListMore);
    }
    assert!(pages >= 3);
    assert_eq!(names.len(), 1101);
    assert!(names.contains(&"with space".to_owned()));
    for (name, want) in [
        ("/data/nope", (NotFound, "Unable to open directory /data/nope; no such file or directory")),
        ("/data/x", (FsError, "Unable to open directory /data/x; not a directory")),
    ] {
        let refusal = server.call(Operation::List(target(name), ListDetail::default())).refusal();
        assert_eq!(refusal, (want.0, want.1.to_owned()));
    }
}

fn attributes(server: &Server, name: &str, work: AttributeWork) -> Vec<(String, Option<ErrorKind>, Vec<u8>)> {
    let Value::Attributes(results) = server.call(Operation::Attributes(target(name), work)).value() else {
        panic!()
    };
    let plain = |one: AttributeOutcome| (String::from_utf8(one.name).unwrap(), one.error, one.value);
    results.into_iter().map(plain).collect()
}

fn names(list: &[&str]) -> Vec<Vec<u8>> {
    list.iter().map(|name| name.as_bytes().to_vec()).collect()
}

#[test]
fn each_attribute_has_its_own_result() {
    let server = Server::new();
    server.memory.put("/data/f", b"");
    let set = |pairs: &[(&str, &str)], new| AttributeWork::Set {
        pairs: pairs.iter().map(|(n, v)| (n.as_bytes().to_vec(), v.as_bytes().to_vec())).collect(),
        new,
    };
    let ok = |name: &str, value: &str| (name.to_owned(), None, value.as_bytes().to_vec());
    let bad = |name: &str, kind| (name.to_owned(), Some(kind), Vec::new());
    assert_eq!(
        attributes(&server, "/data/f", set(&[("a", "1"), ("b", "")], false)),
        [ok("a", ""), ok("b", "")]
    );
    assert_eq!(server.memory.attribute_of("/data/f", "user.U.a").as_deref(), Some(&b"1"[..]));
    assert_eq!(
        attributes(&server, "/data/f", set(&[("a", "2"), ("c", "3")], true)),
        [bad("a", ItExists), ok("c", "")]
    );
    let get = AttributeWork::Get(names(&["a", "no", "b"]));
    assert_eq!(
        attributes(&server, "/data/f", get),
        [ok("a", "1"), bad("no", AttributeNotFound), ok("b", "")]
    );
    let list = |values| AttributeWork::List { values };
    assert_eq!(attributes(&server, "/data/f", list(true)), [ok("a", "1"), ok("b", ""), ok("c", "3")]);
    assert_eq!(attributes(&server, "/data/f", list(false)), [ok("a", ""), ok("b", ""), ok("c", "")]);
    let remove = AttributeWork::Remove(names(&["a", "zz"]));
    assert_eq!(attributes(&server, "/data/f", remove), [ok("a", ""), bad("zz", AttributeNotFound)]);
    for work in
        [AttributeWork::Get(names(&["a"])), AttributeWork::Remove(names(&["a"])), set(&[("a", "1")], false)]
    {
        assert_eq!(attributes(&server, "/data/nope", work), [bad("a", NotFound)]);
    }
    let missing = server.call(Operation::Attributes(target("/data/nope"), list(true))).refusal();
    assert_eq!(missing, (NotFound, "Unable to list fattrs /data/nope; no such file or directory".into()));
}

#[test]
fn attribute_limits_are_exact() {
    let server = Server::new();
    let set = |name: usize, value: usize| {
        let pairs = vec![(vec![b'n'; name], vec![b'v'; value])];
        server.call(Operation::Attributes(target("/data/x"), AttributeWork::Set { pairs, new: false }))
    };
    set(248, 65_536).done();
    for (name, value, kind, text) in [
        (249, 0, ArgTooLong, "Argument is too long processing fattr name argument #1"),
        (1, 65_537, ArgTooLong, "Argument is too long processing fattr data argument #1"),
        (0, 0, ArgMissing, "Missing argument processing fattr name argument #1"),
    ] {
        assert_eq!(set(name, value).refusal(), (kind, text.to_owned()));
    }
}

#[test]
fn space_and_locate_queries() {
    let server = Server::new();
    server.memory.put("/data/f", b"12345");
    let locate = |name: Option<&str>, prefer_name| {
        let options = LocateOptions { prefer_name, ..LocateOptions::default() };
        server.call(Operation::Locate(name.map(target), options))
    };
    assert_eq!(locate(Some("/data/f"), false).text(), "Sw[::127.0.0.1]:1094");
    assert_eq!(locate(Some("/ro/x"), true).text(), "Srlocalhost:1094");
    assert_eq!(locate(None, false).text(), "Sw[::127.0.0.1]:1094");
    let missing = locate(Some("/data/nope"), false).refusal();
    assert_eq!(missing, (NotFound, "Unable to locate /data/nope; no such file or directory".into()));
    let space = |name: &str| server.call(Operation::QuerySpace(target(name))).text();
    let figures =
        "oss.space=1048576000&oss.free=419430400&oss.maxf=314572800&oss.used=629145600&oss.quota=-1";
    assert_eq!(space("/data"), format!("oss.cgroup=public&{figures}"));
    assert_eq!(space("/data/not/there/yet"), format!("oss.cgroup=public&{figures}"));
    assert_eq!(space("/data?oss.cgroup=hot"), format!("oss.cgroup=hot&{figures}"));
    let Value::Space(figures) = server.call(Operation::StatSpace(target("/data"))).value() else { panic!() };
    assert_eq!((figures.writable_nodes, figures.largest_free, figures.used), (1, 300 << 20, 600 << 20));
    let Value::Space(figures) = server.call(Operation::StatSpace(target("/ro"))).value() else { panic!() };
    assert_eq!(figures, vfs::SpaceFigures::default());
    assert_eq!(
        server.call(Operation::QueryAttributes(target("/data/f"))).text(),
        "oss.cgroup=public&oss.type=f&oss.used=5&oss.mt=1000000&oss.ct=1000000&oss.at=1000000&oss.u=*&oss.g=*\
         &oss.fs=w&ofs.ap=a"
    );
    let missing = server.call(Operation::QueryAttributes(target("/data/nope"))).refusal();
    assert_eq!(missing, (NotFound, "Unable to statxa /data/nope; no such file or directory".into()));
    for code in [10, 16, 32] {
        let refusal = server.call(Operation::QueryOpaque { code, argument: b"/data/f?x".to_vec() }).refusal();
        assert_eq!(refusal, (Unsupported, "Unable to FSctl ; operation not supported".into()));
    }
}

#[test]
fn prepare_renews_only_the_access_times_of_its_files() {
    let server = Server::new();
    let names = ["/data/wanted", "/data/other"];
    for name in names {
        server.open(name, support::creating()).file();
    }
    let times = |name| {
        let stat = server.stat(name).stat();
        (stat.accessed, stat.modified)
    };
    let before = times("/data/wanted");
    server.after(100);
    let prepare = |fresh, name: &str| {
        let request = PrepareRequest { fresh, ..Default::default() };
        server.call(Operation::Prepare(request, targets(&[name, "/data/nope"]))).done();
        server.settle();
    };
    prepare(true, "/data/wanted");
    prepare(false, "/data/other");
    assert_eq!(names.map(times), [(before.0 + 100, before.1), before]);
}

#[test]
fn prepare_issues_ids_that_can_be_cancelled_and_queried() {
    let server = Server::new();
    let prepare =
        |request: PrepareRequest| server.call(Operation::Prepare(request, targets(&["/data/nope"])));
    let id = prepare(PrepareRequest { stage: true, ..Default::default() }).text();
    prepare(PrepareRequest { evict: true, stage: true, ..Default::default() }).done();
    let cancel = |id: &str| server.call(Operation::CancelPrepare { id: id.into() });
    cancel(&id).done();
    cancel(&id).done();
    let unknown = (ArgInvalid, "Prepare requestid owned by an unknown server".to_owned());
    assert_eq!(cancel("badid").refusal(), unknown);
    let query = |id: &str| {
        server.call(Operation::QueryPrepare { id: id.into(), targets: Some(targets(&["/data/x"])) })
    };
    assert_eq!(query(&id).text(), "No information found.");
    assert_eq!(query("bad").refusal(), unknown);
}
