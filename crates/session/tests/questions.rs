//! kXR_query, kXR_set and kXR_fattr.

#![allow(clippy::unwrap_used)]

mod support;

use base::ErrorKind;
use session::{DriverTask, MonitorCommand, Settings};
use support::*;
use vfs::{Answer, AttributeOutcome, AttributeWork, FileOperation, Operation, Value};

fn query(code: u16, argument: &[u8]) -> Raw {
    Raw::new(QUERY).u16(4, code).payload(argument)
}

fn text(text: &str) -> Answer {
    Answer::Value(Value::Text(text.into()))
}

#[test]
fn a_checksum_is_queried_and_cancelled() {
    let mut bench = Bench::new();
    let (call, operation) = bench.operation(&query(3, b"/data/f?cks.type=crc32c\0"));
    let Operation::Checksum(target) = operation else { panic!() };
    assert_eq!((path_of(&target).as_str(), target.cgi.as_bytes()), ("/data/f", &b"cks.type=crc32c"[..]));
    let value = Value::Checksum { algorithm: "crc32c".to_owned(), hex: "00000001".to_owned() };
    assert_eq!(bench.reply_of(call, Answer::Value(value)).text(), "crc32c 00000001\0");
    let (call, _) = bench.operation(&query(3, b"/data/f"));
    let refusal = bench.reply_of(call, error(ErrorKind::ServerError, "sha999 checksum not supported."));
    assert_eq!(refusal.error(), (3012, "sha999 checksum not supported.".to_owned()));
    let (call, operation) = bench.operation(&query(6, b"/data/f"));
    assert!(matches!(operation, Operation::CancelChecksum(_)));
    assert_eq!(bench.reply_of(call, Answer::DONE).body, b"");
}

#[test]
fn space_and_attributes_are_sent_as_text() {
    let mut bench = Bench::new();
    let (call, operation) = bench.operation(&query(5, b"/data?oss.cgroup=public"));
    assert!(matches!(operation, Operation::QuerySpace(_)));
    assert_eq!(bench.reply_of(call, text("oss.cgroup=public")).body, b"oss.cgroup=public\0");
    let (call, operation) = bench.operation(&query(4, b"/data/f"));
    assert!(matches!(operation, Operation::QueryAttributes(_)));
    assert_eq!(bench.reply_of(call, text("oss.type=f")).body, b"oss.type=f\0");
}

#[test]
fn the_state_of_a_prepare_is_queried_by_its_id() {
    let mut bench = Bench::new();
    let (call, operation) = bench.operation(&query(2, b"the-id\n/a\n/b\0"));
    let Operation::QueryPrepare { id, targets } = operation else { panic!() };
    assert_eq!((&id[..], targets.unwrap().cursor().count()), (&b"the-id"[..], 2));
    assert_eq!(bench.reply_of(call, text("No information found.")).text(), "No information found.\0");
    let (_, operation) = bench.operation(&query(2, b"the-id"));
    assert!(matches!(operation, Operation::QueryPrepare { targets: None, .. }));
    assert_eq!(bench.refused(&query(2, b"\n/a")), (3001, "Prepare requestid not specified".to_owned()));
}

#[test]
fn opaque_queries_are_passed_on() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    for code in [10, 16, 32] {
        let (call, operation) = bench.operation(&query(code, b"/x?y\0z"));
        let Operation::QueryOpaque { code: seen, argument } = operation else { panic!() };
        assert_eq!((seen, &argument[..]), (code, &b"/x?y"[..]));
        assert_eq!(bench.reply_of(call, error(ErrorKind::Unsupported, "no")).error().0, 3013);
    }
    for code in [8, 9, 64] {
        for argument in [&b""[..], b"ofs.tpc cancel\0"] {
            let (call, operation) = bench.file_operation(&query(code, argument));
            let FileOperation::Query { code: seen, argument: found } = operation else { panic!() };
            let wanted = argument.strip_suffix(b"\0").unwrap_or(argument);
            assert_eq!((seen, &found[..]), (code, wanted));
            let refusal = bench.reply_of(call, error(ErrorKind::Unsupported, "fctl operation not supported"));
            assert_eq!(refusal.error(), (3013, "fctl operation not supported".to_owned()));
        }
    }
}

#[test]
fn invalid_queries_are_refused() {
    let mut bench = Bench::new();
    for code in [0, 11, 0x63, 0xffff] {
        let refusal = bench.refused(&query(code, b"x"));
        assert_eq!(refusal, (3000, "Invalid information query type code".to_owned()));
    }
    // Without an argument every type queries a handle.
    let not_open = (3004, "query does not refer to an open file".to_owned());
    for code in [1, 3, 7, 8, 64, 0xffff] {
        assert_eq!(bench.refused(&query(code, b"")), not_open);
    }
    bench.open("/data/f", 0);
    for code in [1, 3, 7, 0xffff] {
        assert_eq!(
            bench.refused(&query(code, b"")),
            (3001, "Required query argument not present".to_owned())
        );
    }
}

#[test]
fn statistics_come_from_the_driver() {
    let mut bench = Bench::new();
    let DriverTask::Statistics { call, selection } = bench.ask(&query(1, b"ilu\0")) else { panic!() };
    assert_eq!(selection, "ilu");
    assert_eq!(bench.reply_of(call, text("<statistics/>")).text(), "<statistics/>\0");
}

fn configured() -> Bench {
    let pair = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    let known = [("bind_max", "15"), ("sysid", "1 2"), ("chksum", "0:adler32,1:md5")];
    let configuration = known.into_iter().map(pair).collect();
    Bench::with(Settings { configuration, ..Settings::default() }, 5)
}

#[test]
fn configuration_keys_are_answered_line_by_line() {
    let mut bench = configured();
    let mut answer = |keys: &str| bench.reply_to(&query(7, keys.as_bytes())).text();
    assert_eq!(answer("bind_max"), "15\n");
    assert_eq!(answer("tpc tpcdlg\0"), "tpc\ntpcdlg\n");
    assert_eq!(answer("  chksum nosuch   bind_max "), "0:adler32,1:md5\nnosuch\n15\n");
    // The command line client joins keys this way.
    assert_eq!(answer("bind_max\nsitename"), "15\nsitename\n");
    assert_eq!(answer("bind_max\0chksum"), "15\n");
    // The text of the configuration is not public.
    assert_eq!(answer("xrootd"), "\n\0");
    assert_eq!(answer("cmsd"), "\n\0");
    assert_eq!(answer("xrootd bind_max"), "xrootd\n15\n");
}

#[test]
fn answers_to_configuration_queries_are_limited() {
    let mut bench = configured();
    for nothing in [&b" "[..], b"\0", b"\n\n"] {
        assert_eq!(bench.refused(&query(7, nothing)).0, 3001);
    }
    let fits = "x".repeat(4095);
    assert_eq!(bench.reply_to(&query(7, fits.as_bytes())).body.len(), 4096);
    assert_eq!(bench.refused(&query(7, format!("{fits}x").as_bytes())).0, 3002);
}

#[test]
fn set_accepts_its_keywords_only() {
    let mut bench = Bench::new();
    let mut set = |text: &str| bench.reply_to(&Raw::new(SET).payload(text.as_bytes()));
    for fine in ["appid root.exe", "monitor on", "monitor off x", "  monitor   on  appid\0"] {
        let reply = set(fine);
        assert_eq!((reply.status, reply.body.len()), (OK, 0), "{fine}");
    }
    assert_eq!(set("monitor info some text").body, [0, 0, 0, 0]);
    for wrong in
        ["nosuch thing", "appid", "monitor", "monitor maybe", "cache evict /x", "clttl 5", "", "\0appid x"]
    {
        let request = Raw::new(SET).payload(format!("{wrong} ").as_bytes());
        assert_eq!(bench.refused(&request), (3000, "invalid set parameter".to_owned()), "{wrong}");
    }
}

#[test]
fn commands_about_monitoring_are_executed_by_the_driver() {
    let mut bench = Bench::with(Settings { has_monitoring: true, ..Settings::default() }, 5);
    let switch = |is_on, application: &str| MonitorCommand::Switch { is_on, application: application.into() };
    for (text, expected) in [
        ("appid root.exe x\0y", MonitorCommand::Application(b"root.exe x".to_vec())),
        ("monitor on", switch(true, "")),
        (" monitor  off  x ", switch(false, "x")),
    ] {
        let request = Raw::new(SET).payload(text.as_bytes());
        let DriverTask::Monitor { call, command } = bench.ask(&request) else { panic!("{text}") };
        assert_eq!(command, expected);
        assert_eq!(bench.reply_of(call, Answer::DONE).body, b"");
    }
    let request = Raw::new(SET).payload(b"monitor info some text");
    let DriverTask::Monitor { call, command } = bench.ask(&request) else { panic!() };
    assert_eq!(command, MonitorCommand::Info(b"some text".to_vec()));
    assert_eq!(bench.reply_of(call, text("\0\0\0\x07")).body, [0, 0, 0, 7]);
    let request = Raw::new(SET).payload(b"monitor maybe");
    assert_eq!(bench.refused(&request), (3000, "invalid set parameter".to_owned()));
}

/// Encodes the names of a fattr payload.
fn names(names: &[&str]) -> Vec<u8> {
    names.iter().flat_map(|name| [b"\0\0", name.as_bytes(), b"\0"].concat()).collect()
}

fn value(value: &[u8]) -> Vec<u8> {
    [&i32::try_from(value.len()).unwrap().to_be_bytes()[..], value].concat()
}

fn fattr(subcode: u8, count: u8, options: u8, payload: &[u8]) -> Raw {
    Raw::new(FATTR).u8(8, subcode).u8(9, count).u8(10, options).payload(payload)
}

fn result(name: &str, error: Option<ErrorKind>, value: &str) -> AttributeOutcome {
    AttributeOutcome { name: name.into(), error, value: value.into() }
}

#[test]
fn attributes_are_read_by_path_and_by_handle() {
    let mut bench = Bench::new();
    let file = bench.open("/data/f", 0);
    let wanted = AttributeWork::Get(vec![b"a".to_vec(), b"b".to_vec()]);
    let by_path = fattr(1, 2, 0, &[b"/data/f?x\0".to_vec(), names(&["a", "b"])].concat());
    let (_, operation) = bench.operation(&by_path);
    let Operation::Attributes(target, work) = operation else { panic!() };
    assert_eq!((path_of(&target).as_str(), &work), ("/data/f", &wanted));
    let by_handle = fattr(1, 2, 0, &[b"\0".to_vec(), names(&["a", "b"])].concat());
    let DriverTask::FileCall(call, on, FileOperation::Attributes(work)) = bench.ask(&by_handle) else {
        panic!()
    };
    assert!(file.is(&on));
    assert_eq!(work, wanted);
    // A close waits for the operation.
    bench.ask(&Raw::new(CLOSE));
    assert!(bench.session.next_todo().is_none());
    let results = vec![result("a", None, "v"), result("b", Some(ErrorKind::AttributeNotFound), "")];
    let reply = bench.reply_of(call, Answer::Value(Value::Attributes(results)));
    assert_eq!(reply.body, b"\x01\x02\0\0a\0\x0b\xd3b\0\0\0\0\x01v\0\0\0\0");
    assert!(bench.session.next_todo().is_some());
}

#[test]
fn attributes_are_set_removed_and_listed() {
    let mut bench = Bench::new();
    let pairs = [b"/f\0".to_vec(), names(&["k1", "k2"]), value(b"v1"), value(b"")].concat();
    for (options, wanted) in [(0, false), (1, true), (0x10, false), (0xff, true)] {
        let (call, operation) = bench.operation(&fattr(3, 2, options, &pairs));
        let Operation::Attributes(_, AttributeWork::Set { pairs, new }) = operation else { panic!() };
        assert_eq!(pairs, [(b"k1".to_vec(), b"v1".to_vec()), (b"k2".to_vec(), Vec::new())]);
        assert_eq!(new, wanted);
        let results = vec![result("k1", None, ""), result("k2", Some(ErrorKind::ItExists), "")];
        let reply = bench.reply_of(call, Answer::Value(Value::Attributes(results)));
        assert_eq!(reply.body, b"\x01\x02\0\0k1\0\x0b\xcak2\0");
    }
    let (call, operation) = bench.operation(&fattr(0, 1, 0, &[b"/f\0".to_vec(), names(&["k1"])].concat()));
    assert!(matches!(operation, Operation::Attributes(_, AttributeWork::Remove(names)) if names == [b"k1"]));
    let removed = Answer::Value(Value::Attributes(vec![result("k1", None, "")]));
    assert_eq!(bench.reply_of(call, removed).body, b"\0\x01\0\0k1\0");
    for (options, body) in [(0, &b"k1\0k2\0"[..]), (0x10, b"k1\0\0\0\0\x02v1k2\0\0\0\0\0")] {
        let (call, operation) = bench.operation(&fattr(2, 0, options, b"/f\0"));
        let Operation::Attributes(_, AttributeWork::List { values }) = operation else { panic!() };
        assert_eq!(values, options != 0);
        let all = vec![result("k1", None, "v1"), result("k2", None, "")];
        assert_eq!(bench.reply_of(call, Answer::Value(Value::Attributes(all))).body, body);
    }
}

#[test]
fn invalid_attribute_requests_are_refused() {
    let mut bench = Bench::new();
    let one = [b"/f\0".to_vec(), names(&["a"])].concat();
    for subcode in [4, 7, 255] {
        assert_eq!(bench.refused(&fattr(subcode, 1, 0, &one)), (3000, "fattr subcode is invalid".to_owned()));
    }
    for (subcode, count) in [(0, 0), (1, 0), (3, 0), (1, 17), (1, 255), (2, 1)] {
        let refusal = bench.refused(&fattr(subcode, count, 0, &one));
        assert_eq!(refusal, (3000, "fattr numattr is invalid".to_owned()), "{subcode} {count}");
    }
    let bad =
        |number: usize| (3026, format!("Invalid payload format processing fattr name argument #{number}"));
    let long = "x".repeat(249);
    let with = |list: &[&str]| [b"/f\0".to_vec(), names(list)].concat();
    assert_eq!(bench.refused(&fattr(1, 2, 0, &one)), bad(2));
    let empty = (3001, "Missing argument processing fattr name argument #1".to_owned());
    assert_eq!(bench.refused(&fattr(1, 1, 0, &with(&[""]))), empty);
    let too_long = (3002, "Argument is too long processing fattr name argument #2".to_owned());
    assert_eq!(bench.refused(&fattr(1, 2, 0, &with(&["a", &long]))), too_long);
    assert_eq!(bench.refused(&fattr(1, 1, 0, b"/f")).0, 3026);
    assert_eq!(bench.refused(&fattr(1, 1, 0, b"/f\0\0\0a")).0, 3026);
    // The longest name; values that are missing, negative or too long.
    bench.operation(&fattr(1, 1, 0, &with(&[&long[1..]])));
    let set = |value: &[u8]| fattr(3, 1, 0, &[&one[..], value].concat());
    for wrong in [&b""[..], b"\0\0\0", b"\0\0\0\x05abc", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xffx"] {
        assert_eq!(bench.refused(&set(wrong)).0, 3026, "{wrong:?}");
    }
    let too_long = (3002, "Argument is too long processing fattr data argument #1".to_owned());
    assert_eq!(bench.refused(&set(&value(&vec![0; 65537]))), too_long);
    bench.operation(&set(&value(&vec![0; 65536])));
    assert_eq!(bench.refused(&fattr(1, 1, 0, &[b"f\0".to_vec(), names(&["a"])].concat())).0, 3010);
}
