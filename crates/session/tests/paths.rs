//! Requests that name a path: the resulting operations, every option, and refused paths.

#![allow(clippy::unwrap_used)]

mod support;

use base::ErrorKind;
use session::{DriverTask, Settings};
use support::*;
use vfs::{
    Answer, BriefStat, FileOperation, LocateOptions, OpenRequest, Opened, Operation, PrepareNotice,
    PrepareRequest, RedirectAnswer, TargetList, Value,
};

fn opening(bench: &mut Bench, options: u16) -> OpenRequest {
    open_request(bench.operation(&open("/data/f", options)).1).1
}

/// Returns the names of the flags set in an open request.
fn set_in(request: &OpenRequest) -> Vec<&'static str> {
    let all = [
        ("read", request.read),
        ("write", request.write),
        ("append", request.append),
        ("new", request.new),
        ("delete", request.delete),
        ("make_path", request.make_path),
        ("counts_as_reader", request.counts_as_reader),
        ("force", request.force),
        ("posc", request.posc),
        ("stat", request.stat),
        ("no_wait", request.no_wait),
        ("refresh", request.refresh),
        ("replica", request.replica),
        ("sequential", request.sequential),
        ("direct", request.direct),
        ("duplicate_of", request.duplicate_of.is_some()),
        ("same_file_system_as", request.same_file_system_as.is_some()),
    ];
    all.iter().filter(|(_, set)| *set).map(|(name, _)| *name).collect()
}

#[test]
fn each_option_of_open_sets_one_flag() {
    let cases: [(u16, &[&str]); 32] = [
        (0x0000, &[]),
        (0x0001, &[]),
        (0x0002, &["write", "delete", "counts_as_reader"]),
        (0x0004, &["force"]),
        (0x0008, &["write", "new", "counts_as_reader"]),
        (0x0010, &["read"]),
        (0x0020, &["write"]),
        (0x0040, &[]),
        (0x0080, &["refresh"]),
        (0x0100, &["make_path"]),
        (0x0200, &["append"]),
        (0x0400, &["stat"]),
        (0x0800, &["replica"]),
        (0x1000, &["posc"]),
        (0x2000, &["no_wait"]),
        (0x4000, &["sequential"]),
        (0x8000, &["write"]),
        // Read takes precedence over the write bits, but a create may write.
        (0x0030, &["read"]),
        (0x8010, &["read"]),
        (0x0012, &["read", "write", "delete", "counts_as_reader"]),
        (0x0018, &["read", "new", "counts_as_reader"]),
        (0x0038, &["read", "new", "counts_as_reader"]),
        (0x0022, &["write", "delete"]),
        (0x8008, &["write", "new"]),
        (0x0208, &["write", "append", "new"]),
        (0x0218, &["read", "append", "new", "counts_as_reader"]),
        // Combinations that clients send: plain read, forced upload, new file, with parents,
        // update, append.
        (0x0450, &["read", "stat"]),
        (0x0462, &["write", "delete", "make_path", "stat"]),
        (0x0468, &["write", "new", "make_path", "stat"]),
        (0x1468, &["write", "new", "make_path", "posc", "stat"]),
        (0x0562, &["write", "delete", "make_path", "stat"]),
        (0x0460, &["write", "stat"]),
    ];
    for (options, wanted) in cases {
        assert_eq!(set_in(&opening(&mut Bench::new(), options)), wanted, "{options:#06x}");
    }
    let all = set_in(&opening(&mut Bench::new(), 0xffff));
    assert_eq!(all.len(), 14, "{all:?}");
}

#[test]
fn open_carries_mode_path_and_opaque_text() {
    let mut bench = Bench::new();
    let request = Raw::new(OPEN).u16(4, 0xffff).u16(6, 8).payload(b"/data//x/./y?oss.asize=5&a=b?c");
    let (target, request) = open_request(bench.operation(&request).1);
    assert_eq!(path_of(&target), "/data/x/y");
    assert_eq!(target.cgi.as_bytes(), b"oss.asize=5&a=b?c");
    assert_eq!(request.mode, 0o777);
}

#[test]
fn template_options_need_a_new_file_and_a_template() {
    let mut bench = Bench::new();
    let template = bench.open("/data/template", 0);
    let request = |optiont: u16, options: u16| open("/data/new", options).u16(8, optiont);
    let (_, found) = open_request(bench.operation(&request(1, 0x28)).1);
    assert!(template.is(&found.duplicate_of.unwrap()) && found.same_file_system_as.is_some());
    let (_, found) = open_request(bench.operation(&request(2, 0x08)).1);
    assert!(found.duplicate_of.is_none() && template.is(&found.same_file_system_as.unwrap()));
    assert_eq!(set_in(&open_request(bench.operation(&request(4, 0x10)).1).1), ["read", "stat"]);
    assert_eq!(set_in(&open_request(bench.operation(&request(8, 0x10)).1).1), ["read", "direct"]);

    let colocate = "file must be opened as a new file in order to colocate";
    for optiont in [1, 2, 3] {
        for options in [0x10, 0x20, 0x02] {
            assert_eq!(bench.refused(&request(optiont, options)), (3000, colocate.to_owned()));
        }
    }
    let writing = (3000, "cloned file is not being opened R/W".to_owned());
    for options in [0x08, 0x18, 0x38] {
        assert_eq!(bench.refused(&request(1, options)), writing, "{options:#x}");
    }
    for optiont in [1, 2] {
        let unknown = request(optiont, 0x28).at(16, &9u32.to_le_bytes());
        assert_eq!(bench.refused(&unknown).0, 3004);
    }
}

#[test]
fn the_reply_to_open_has_the_requested_details() {
    let reply = |options: u16, with_stat: bool| {
        let mut bench = Bench::new();
        let (call, _) = bench.operation(&open("/data/f", options));
        let stat = with_stat.then(stat);
        let file = FakeFile::new("/data/f");
        bench.reply_of(call, Answer::Value(Value::Opened(Opened { file, stat }))).body
    };
    let handle = [0; 4];
    assert_eq!(reply(0x10, false), handle);
    assert_eq!(reply(0x10, true), handle);
    assert_eq!(reply(0x11, false), [0; 12]);
    let with_stat = [&[0; 12][..], STAT_TEXT.as_bytes(), b"\0"].concat();
    assert_eq!(reply(0x0410, true), with_stat);
    assert_eq!(reply(0x0411, true), with_stat);
}

#[test]
fn an_open_is_answered_by_error_wait_or_redirect() {
    let mut bench = Bench::new();
    let mut reply = |answer| {
        let (call, _) = bench.operation(&open("/data/f", 0x10).stream(6));
        bench.reply_of(call, answer)
    };
    let text = "Input file /data/f is already opened by 1 writer; open denied.";
    assert_eq!(reply(error(ErrorKind::FileLocked, text)).error(), (3003, text.to_owned()));
    let wait = reply(Answer::Wait { seconds: 60, text: "File f is being created".to_owned() });
    assert_eq!((wait.status, &wait.body[..]), (WAIT, &b"\0\0\0\x3cFile f is being created"[..]));
    let to = |port, cgi: &str| RedirectAnswer { host: "127.0.0.1".into(), port, cgi: cgi.to_owned() };
    let redirect = reply(Answer::Redirect(to(21022, "")));
    assert_eq!((redirect.status, &redirect.body[..]), (REDIRECT, &b"\0\0\x52\x1e127.0.0.1"[..]));
    let redirect = reply(Answer::Redirect(to(21022, "tried=vm")));
    assert_eq!(redirect.body, b"\0\0\x52\x1e127.0.0.1?tried=vm");
    // An answer of the wrong type is an internal error, not an open file.
    assert_eq!(reply(Answer::DONE).error().0, 3012);
    assert_eq!(bench.session.files_open(), 0);
}

/// Returns requests for one operation on one path, with the verb of each.
fn on_one_path() -> Vec<(Raw, &'static str)> {
    vec![
        (Raw::new(OPEN), "Opening"),
        (Raw::new(STAT), "Stating"),
        (Raw::new(STAT).u8(4, 1), "Stating"),
        (Raw::new(STATX), "Stating"),
        (Raw::new(DIRLIST), "Listing"),
        (Raw::new(LOCATE), "Locating"),
        (Raw::new(RM), "Removing"),
        (Raw::new(RMDIR), "Removing"),
        (Raw::new(MKDIR), "Creating"),
        (Raw::new(CHMOD), "Modifying"),
        (Raw::new(TRUNCATE), "Truncating"),
        (Raw::new(PREPARE), "Preparing"),
        (Raw::new(QUERY).u16(4, 3), "Check summing"),
        (Raw::new(QUERY).u16(4, 6), "Check summing"),
        (Raw::new(QUERY).u16(4, 4), "Stating"),
        (Raw::new(QUERY).u16(4, 5), "Stating"),
    ]
}

#[test]
fn paths_that_are_not_absolute_or_climb_are_refused_with_their_verb() {
    for (request, verb) in on_one_path() {
        for path in ["data/x", "/data/../x", "/..", "..", "x?y=/z", "*.."] {
            if path.starts_with('*') && verb != "Locating" {
                continue;
            }
            let shown = path.trim_start_matches('*').split('?').next().unwrap();
            let refusal = Bench::new().refused(&request.clone().payload(path.as_bytes()));
            assert_eq!(
                refusal,
                (3010, format!("{verb} relative path '{shown}' is disallowed.")),
                "{request:?}"
            );
        }
        let long = [b"/", &[b'x'; 8192][..]].concat();
        assert_eq!(Bench::new().refused(&request.payload(&long)).0, 3002, "{verb}");
    }
}

#[test]
fn a_nul_ends_a_path() {
    for (request, verb) in on_one_path() {
        let (_, operation) = Bench::new().operation(&request.payload(b"/data/f\0../x"));
        let path = match operation {
            Operation::Open(target, _)
            | Operation::Stat(target)
            | Operation::StatSpace(target)
            | Operation::List(target, _)
            | Operation::Remove(target)
            | Operation::RemoveDirectory(target)
            | Operation::MakeDirectory { target, .. }
            | Operation::ChangeMode { target, .. }
            | Operation::Truncate { target, .. }
            | Operation::Checksum(target)
            | Operation::CancelChecksum(target)
            | Operation::QueryAttributes(target)
            | Operation::QuerySpace(target)
            | Operation::Locate(Some(target), _) => path_of(&target),
            Operation::StatMany(targets) | Operation::Prepare(_, targets) => path_of(targets.first()),
            _ => panic!("{verb}"),
        };
        assert_eq!(path, "/data/f", "{verb}");
    }
}

#[test]
fn changes_of_names_are_answered_with_their_result() {
    let changes = [
        Raw::new(MKDIR).payload(b"/d/x"),
        Raw::new(RM).payload(b"/d/x"),
        Raw::new(RMDIR).payload(b"/d/x"),
        Raw::new(CHMOD).payload(b"/d/x"),
        Raw::new(MV).payload(b"/d/x /d/y"),
        Raw::new(TRUNCATE).payload(b"/d/x"),
    ];
    for request in changes {
        let mut bench = Bench::new();
        let (call, _) = bench.operation(&request);
        let reply = bench.reply_of(call, Answer::DONE);
        assert_eq!((reply.status, reply.body.len()), (OK, 0));
        let (call, _) = bench.operation(&request);
        let text = "Unable to remove /d/x; no such file or directory";
        assert_eq!(bench.reply_of(call, error(ErrorKind::NotFound, text)).error(), (3011, text.to_owned()));
    }
}

#[test]
fn fields_of_changes_are_passed_on() {
    let mut bench = Bench::new();
    let (_, operation) = bench.operation(&Raw::new(MKDIR).u8(4, 1).u16(18, 0o750).payload(b"/d"));
    assert!(matches!(operation, Operation::MakeDirectory { mode: 0o750, parents: true, .. }));
    let (_, operation) = bench.operation(&Raw::new(MKDIR).u8(4, 0xfe).u16(18, 0xffff).payload(b"/d"));
    assert!(matches!(operation, Operation::MakeDirectory { mode: 0o777, parents: false, .. }));
    let (_, operation) = bench.operation(&Raw::new(CHMOD).u16(18, 0o644).payload(b"/d"));
    assert!(matches!(operation, Operation::ChangeMode { mode: 0o644, .. }));
    let (_, operation) = bench.operation(&Raw::new(CHMOD).u16(18, 0xf000).payload(b"/d"));
    assert!(matches!(operation, Operation::ChangeMode { mode: 0, .. }));
    // A negative size is refused by the file system, after errors in the path.
    for wanted in [i64::MAX, -1, i64::MIN] {
        let (_, operation) = bench.operation(&Raw::new(TRUNCATE).i64(8, wanted).payload(b"/d"));
        assert!(matches!(operation, Operation::Truncate { size, .. } if size == wanted.cast_unsigned()));
    }
}

#[test]
fn a_rename_has_two_paths() {
    let mut bench = Bench::new();
    let mut renamed = |length: i16, text: &[u8]| {
        let request = Raw::new(MV).at(18, &length.to_be_bytes()).payload(text);
        let (_, Operation::Rename { from, to, .. }) = bench.operation(&request) else { panic!() };
        (path_of(&from), path_of(&to), to.cgi.as_bytes().to_vec())
    };
    let plain = ("/a".to_owned(), "/b".to_owned(), Vec::new());
    assert_eq!(renamed(0, b"/a /b"), plain);
    assert_eq!(renamed(2, b"/a /b"), plain);
    let blanks = ("/a b".to_owned(), "/c d".to_owned(), b"x=1".to_vec());
    assert_eq!(renamed(4, b"/a b /c d?x=1"), blanks);

    let mut refused =
        |length: i16, text: &[u8]| bench.refused(&Raw::new(MV).at(18, &length.to_be_bytes()).payload(text));
    let invalid = (3000, "invalid path specification".to_owned());
    for length in [1, 3, -1, i16::MIN, i16::MAX] {
        assert_eq!(refused(length, b"/a /b"), invalid, "{length}");
    }
    let missing = (3001, "new path specification missing".to_owned());
    assert_eq!(refused(0, b"/a"), missing);
    assert_eq!(refused(0, b"a /b").1, "Renaming relative path 'a' is disallowed.");
    assert_eq!(refused(0, b"/a b").1, "Renaming to relative path 'b' is disallowed.");
}

#[test]
fn a_status_is_complete() {
    let mut bench = Bench::new();
    let (call, _) = bench.operation(&by_path(STAT, "/data/f"));
    assert_eq!(bench.reply_of(call, Answer::Value(Value::Stat(stat()))).text(), format!("{STAT_TEXT}\0"));
    let kinds = [
        (vfs::FileStat { kind: vfs::FileKind::Directory, executable: true, ..stat() }, "51"),
        (vfs::FileStat { kind: vfs::FileKind::Other, readable: false, writable: false, ..stat() }, "4"),
        (vfs::FileStat { offline: true, writable: false, ..stat() }, "24"),
        (vfs::FileStat { posc_pending: true, mode: 0o1640, ..stat() }, "112"),
    ];
    for (status, flags) in kinds {
        let (call, _) = bench.operation(&by_path(STAT, "/data/f"));
        let text = bench.reply_of(call, Answer::Value(Value::Stat(status))).text();
        assert_eq!(text.split(' ').nth(2), Some(flags), "{text}");
    }
}

#[test]
fn kinds_of_many_paths_are_one_byte_each() {
    let mut bench = Bench::new();
    let (call, operation) = bench.operation(&Raw::new(STATX).payload(b"/a\n/b?x\n\n/c\n/d"));
    let Operation::StatMany(targets) = operation else { panic!() };
    let paths = |targets: &TargetList| targets.cursor().map(|t| path_of(&t.unwrap())).collect::<Vec<_>>();
    assert_eq!(paths(&targets), ["/a", "/b", "/c", "/d"]);
    let many = [
        (vfs::FileKind::File, false),
        (vfs::FileKind::Directory, false),
        (vfs::FileKind::File, true),
        (vfs::FileKind::Other, false),
    ];
    let many = many.map(|(kind, offline)| BriefStat::new(kind, offline)).to_vec();
    assert_eq!(bench.reply_of(call, Answer::Value(Value::BriefStats(many))).body, [0, 2, 8, 0]);
    for nothing in [&b"\n\n"[..], b"\0"] {
        assert_eq!(bench.refused(&Raw::new(STATX).payload(nothing)).0, 3001);
    }
    assert_eq!(bench.refused(&Raw::new(STATX).payload(b"b\n/a")).0, 3010);
    // Paths after the first are checked when they are used.
    let (_, operation) = bench.operation(&Raw::new(STATX).payload(b"/a\nb"));
    let Operation::StatMany(targets) = operation else { panic!() };
    assert_eq!(targets.cursor().filter_map(Result::err).count(), 1);
}

#[test]
fn locate_takes_one_path_or_all_servers() {
    let mut bench = Bench::new();
    let all = LocateOptions {
        refresh: true,
        prefer_name: true,
        no_wait: true,
        for_listing: true,
        unique: true,
        exporting: false,
        all_networks: true,
    };
    let cases = [
        (0, LocateOptions::default()),
        (0x0001, LocateOptions { unique: true, ..Default::default() }),
        (0x0004, LocateOptions { all_networks: true, ..Default::default() }),
        (0x0080, LocateOptions { refresh: true, ..Default::default() }),
        (0x0100, LocateOptions { prefer_name: true, ..Default::default() }),
        (0x0400, LocateOptions { for_listing: true, ..Default::default() }),
        (0x2000, LocateOptions { no_wait: true, ..Default::default() }),
        (0xffff, all),
    ];
    for (bits, wanted) in cases {
        let (call, operation) = bench.operation(&Raw::new(LOCATE).u16(4, bits).payload(b"/data/f"));
        let Operation::Locate(Some(target), options) = operation else { panic!() };
        assert_eq!((path_of(&target).as_str(), options), ("/data/f", wanted), "{bits:#x}");
        let text = Answer::Value(Value::Text(b"Sw[::127.0.0.1]:21022".to_vec()));
        assert_eq!(bench.reply_of(call, text).text(), "Sw[::127.0.0.1]:21022\0");
    }
    for everywhere in [&b"*"[..], b"*\0"] {
        let (_, operation) = bench.operation(&Raw::new(LOCATE).payload(everywhere));
        assert!(matches!(operation, Operation::Locate(None, _)));
    }
    // All servers that export the path.
    for everywhere in [&b"*/data"[..], b"*/data\0"] {
        let (_, operation) = bench.operation(&Raw::new(LOCATE).payload(everywhere));
        let Operation::Locate(Some(target), options) = operation else { panic!() };
        assert_eq!((path_of(&target).as_str(), options.exporting), ("/data", true));
    }
}

#[test]
fn prepare_has_files_and_options() {
    let prepared = |options: u8, priority: u8, port: u16, extra: u16| {
        let request = Raw::new(PREPARE).u8(4, options).u8(5, priority).u16(6, port).u16(8, extra);
        let (_, operation) = Bench::new().operation(&request.payload(b"/a\n/b?x=1\n"));
        let Operation::Prepare(prepare, targets) = operation else { panic!() };
        let paths: Vec<_> = targets.cursor().map(|target| path_of(&target.unwrap())).collect();
        assert_eq!(paths, ["/a", "/b"]);
        prepare
    };
    let nothing = PrepareRequest::default;
    assert_eq!(prepared(0, 0, 0, 0), nothing());
    assert_eq!(prepared(8, 2, 0, 0), PrepareRequest { stage: true, priority: 2, ..nothing() });
    assert_eq!(prepared(16, 255, 0, 0), PrepareRequest { write: true, priority: 3, ..nothing() });
    assert_eq!(prepared(32, 0, 0, 0), PrepareRequest { colocate: true, ..nothing() });
    assert_eq!(prepared(64, 0, 0, 0), PrepareRequest { fresh: true, ..nothing() });
    let notice = |by_tcp, on_failure| Some(PrepareNotice { port: 9000, by_tcp, on_failure });
    for (options, notify) in
        [(2, notice(false, true)), (6, notice(false, false)), (130, notice(true, true)), (4, None)]
    {
        assert_eq!(prepared(options, 0, 9000, 0), PrepareRequest { notify, ..nothing() });
    }
    assert_eq!(prepared(2, 0, 0, 0), nothing());
    assert_eq!(prepared(0x84, 0, 9000, 0), nothing());
    // Evict clears the other options.
    assert_eq!(prepared(0x78, 0, 0, 1), PrepareRequest { evict: true, ..nothing() });
}

#[test]
fn prepare_returns_an_id_which_can_be_cancelled() {
    let mut bench = Bench::new();
    let (call, _) = bench.operation(&Raw::new(PREPARE).u8(4, 8).payload(b"/a"));
    let id = "52087f000001:e2ae223c.6b0060ba:2";
    assert_eq!(bench.reply_of(call, Answer::Value(Value::Text(id.into()))).text(), id);
    let (call, operation) =
        bench.operation(&Raw::new(PREPARE).u8(4, 9).payload(format!("{id}\n/a").as_bytes()));
    let Operation::CancelPrepare { id: cancelled } = operation else { panic!() };
    assert_eq!(cancelled, id.as_bytes());
    let unknown = "Prepare requestid owned by an unknown server";
    assert_eq!(
        bench.reply_of(call, error(ErrorKind::ArgInvalid, unknown)).error(),
        (3000, unknown.to_owned())
    );
    for payload in [&b"\n/a"[..], b"\0"] {
        let refusal = bench.refused(&Raw::new(PREPARE).u8(4, 1).payload(payload));
        assert_eq!(refusal, (3001, "Prepare requestid not specified".to_owned()));
    }
    assert_eq!(
        bench.refused(&Raw::new(PREPARE).payload(b"\n\n")),
        (3001, "No prepare paths specified".to_owned())
    );
}

#[test]
fn prepares_of_a_session_are_limited_if_configured() {
    let mut bench = Bench::with(Settings { prepares_max: Some(2), ..Settings::default() }, 5);
    bench.operation(&by_path(PREPARE, "/a"));
    bench.operation(&by_path(PREPARE, "/a"));
    let refusal = bench.refused(&by_path(PREPARE, "/a"));
    assert_eq!(refusal, (3021, "Surpassed this connection's prepare limit.".to_owned()));
    // A cancel is always allowed.
    bench.operation(&Raw::new(PREPARE).u8(4, 1).payload(b"id"));
    let silent = Settings { prepares_max: Some(1), prepares_silent: true, ..Settings::default() };
    let mut bench = Bench::with(silent, 5);
    bench.operation(&by_path(PREPARE, "/a"));
    assert_eq!(bench.reply_to(&by_path(PREPARE, "/a")).status, 0);
}

#[test]
fn an_unrequested_file_is_released() {
    let mut bench = Bench::new();
    let (call, _) = bench.operation(&by_path(STAT, "/data/f"));
    let file = FakeFile::new("/data/f");
    let todo = bench.answer(call, opened(&file));
    assert!(matches!(todo, DriverTask::FileCall(_, _, FileOperation::Abandon)));
    assert_eq!(bench.reply().error().0, 3012);
}

#[test]
fn the_longest_path_is_accepted() {
    let path = [b"/", &[b'x'; 4094][..]].concat();
    Bench::new().operation(&Raw::new(STAT).payload(&path));
    let one_more = [b"/", &[b'x'; 4095][..]].concat();
    assert_eq!(Bench::new().refused(&Raw::new(STAT).payload(&one_more)).0, 3002);
}
