//! Tests of `scalla bench` against our server: every load with verification of all data, and the
//! reports of errors.

#![allow(clippy::unwrap_used)] // a test fails where it is

mod support;

use serde_json::Value;
use std::fs;
use std::process::Output;
use support::{Scratch, Server, program, run, stderr, stdout};

/// Starts a server with a file slightly larger than 1 MiB, and ten small ones.
fn served(name: &str) -> (Scratch, Server) {
    let scratch = Scratch::new(name);
    fs::create_dir_all(scratch.path("data/many")).unwrap();
    let size = &["--size", "1050000"];
    assert!(bench(&scratch, &[&["gen", &scratch.text("data/big")], &size[..]].concat()).status.success());
    let several = ["gen", &scratch.text("data/many/f%d"), "--size", "10", "--files", "10"];
    assert!(bench(&scratch, &several).status.success());
    let server = Server::serve(&scratch, &[]);
    (scratch, server)
}

fn bench(scratch: &Scratch, arguments: &[&str]) -> Output {
    run("scalla", scratch, &[&["bench"], arguments].concat())
}

/// Runs a load that must succeed and returns its report.
fn report(scratch: &Scratch, server: &Server, load: &str, path: &str, options: &str) -> Value {
    let url = format!("root://localhost:{}/{path}", server.port);
    let mut arguments = vec![load, &url, "--json"];
    arguments.extend(options.split_whitespace());
    let output = bench(scratch, &arguments);
    assert!(output.status.success(), "{load} {options}: {}{}", stdout(&output), stderr(&output));
    serde_json::from_str(&stdout(&output)).unwrap()
}

#[test]
fn every_load_gets_what_it_asks_for() {
    let (scratch, server) = served("bench-loads");
    let table = [
        ("read", "/big", "-s 24,2k,70000 -c 4 -d 8 --verify"),
        ("read", "/many/f%d", "-s 10 -c 3 --files 10 --verify"),
        ("read", "/big", "-s 300k -c 2 -d 3 --discard"),
        ("stream", "/big", "-s 64k -c 2 --verify"),
        ("readv", "/big", "-s 3k --segments 64 -c 2 -d 2 --verify"),
        ("readv", "/big", "-s 100 --segments 1024 --gap 500 --verify"),
        ("pgread", "/big", "-s 1,4096,70001 -c 2 -d 4 --verify"),
        ("pgread", "/big", "-s 1m --align 4k"),
        ("write", "/new", "-s 1,5000,300k -c 3 -d 4 --file-size 1m --verify"),
        ("pgwrite", "/made/new%d", "-s 1,4096,300k -c 3 -d 4 --file-size 1m --verify"),
        ("pgwrite", "/new", "-s 64k -c 2 --file-size 1m"),
        ("open", "/many/f%d", "--files 10 -c 3 -d 2"),
        ("stat", "/many/f%d", "--files 10 -c 3 -d 2"),
        ("dirlist", "/many", "-c 2 --verify"),
        ("dirlist", "/many", "--plain --verify"),
        ("connect", "", "-c 5"),
    ];
    for (load, path, options) in table {
        let report = report(&scratch, &server, load, path, &format!("{options} --operations 200"));
        assert_eq!(report["operations"], 200, "{load} {options}");
        assert_eq!(report["errors"], 0, "{load} {options}");
    }
    let left: Vec<_> =
        fs::read_dir(scratch.path("data")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "big, many and made: what was written is removed: {left:?}");
}

/// Loads log in with TLS and credentials: with full and resumed handshakes, in both orders of TLS and
/// login, and for each direction of data.
#[test]
fn loads_use_tls_and_credentials() {
    let scratch = Scratch::new("bench-secured");
    fs::create_dir_all(scratch.path("data")).unwrap();
    let generated = bench(&scratch, &["gen", &scratch.text("data/big"), "--size", "1050000"]);
    assert!(generated.status.success());
    for (number, tls) in ["capable all", "session", "login"].into_iter().enumerate() {
        let text = format!("xrootd.seclib libXrdSec.so\nsec.protocol unix\nxrootd.tls {tls}\n");
        let config = scratch.write(&format!("{number}.cfg"), text);
        let mut server = Server::serve(&scratch, &["--tls", "self", "--config", config.to_str().unwrap()]);
        let hint = server.said(|line| line.contains("X509_CERT_FILE="));
        let (_, hint) = hint.split_once("X509_CERT_FILE=").unwrap();
        let (file, _) = hint.split_once(' ').unwrap();
        let scheme = if tls == "capable all" { "roots" } else { "root" };
        for (load, path, options) in [
            ("connect", "", "-c 5 --operations 20"),
            ("connect", "", "-c 5 --operations 20 --resume"),
            ("read", "/big", "-s 24,2k,300k -c 3 -d 4 --operations 200 --verify"),
            ("stream", "/big", "-s 1m -c 2 --operations 20 --verify"),
            ("pgwrite", "/new", "-s 5000,300k -c 2 -d 3 --file-size 1m --operations 40 --verify"),
        ] {
            let url = format!("{scheme}://localhost:{}/{path}", server.port);
            let mut command = program("scalla", &scratch);
            command.env("X509_CERT_FILE", file).args(["bench", load, &url, "--json"]);
            let output = command.args(options.split_whitespace()).output().unwrap();
            assert!(output.status.success(), "{tls} {load}: {}{}", stdout(&output), stderr(&output));
            let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
            assert_eq!(report["errors"], 0, "{tls} {load} {options}");
        }
        let url = format!("{scheme}://localhost:{}//big", server.port);
        let untrusted = bench(&scratch, &["read", &url]);
        assert_eq!(untrusted.status.code(), Some(1), "{tls}: without the authority");
    }
}

#[test]
fn bytes_are_counted_and_the_server_is_watched() {
    let (scratch, server) = served("bench-count");
    let watched = format!("--server-pid {} --operations 100", server.pid());
    let reads = report(&scratch, &server, "read", "/big", &format!("-s 2k -c 7 {watched}"));
    assert_eq!(reads["bytes"], 100 * 2048);
    assert!(reads["server"]["resident_bytes_at_end"].as_u64().unwrap() > 1_000_000);
    assert!(reads["latency_us"]["p50"].as_f64() <= reads["latency_us"]["max"].as_f64());
    let vectors = report(&scratch, &server, "readv", "/big", &format!("-s 1k --segments 8 {watched}"));
    assert_eq!(vectors["bytes"], 100 * 8 * 1024, "data only");
    let idle = report(&scratch, &server, "idle", "", &format!("-c 50 -t 1ms --server-pid {}", server.pid()));
    assert!(idle["server"]["resident_bytes_per_connection"].as_f64().unwrap() >= 0.0);
}

#[test]
fn what_writers_wrote_is_kept_when_asked_for() {
    let (scratch, server) = served("bench-keep");
    report(&scratch, &server, "write", "/kept", "-s 1000 --file-size 5000 --operations 7 --keep");
    assert_eq!(fs::metadata(scratch.path("data/kept.0")).unwrap().len(), 5000, "begun again after five");
}

#[test]
fn a_wrong_byte_is_found_and_named() {
    let (scratch, server) = served("bench-wrong");
    let mut content = fs::read(scratch.path("data/big")).unwrap();
    content[700_001] ^= 0x10;
    fs::write(scratch.path("data/big"), content).unwrap();
    let url = format!("root://localhost:{}//big", server.port);
    for (load, size) in [("stream", "50k"), ("pgread", "1050000"), ("readv", "1050000")] {
        let one = ["--segments", "1"];
        let more: &[&str] = if load == "readv" { &one } else { &[] };
        let arguments = [&[load, &url, "-s", size, "--operations", "20", "--verify"], more].concat();
        let output = bench(&scratch, &arguments);
        assert_eq!(output.status.code(), Some(3), "{load}: {}", stdout(&output));
        let expected =
            if load == "readv" { "the data of piece 0 is wrong" } else { "byte 700001 of the file is wrong" };
        assert!(stdout(&output).contains(expected), "{load}: {}", stdout(&output));
    }
}

#[test]
fn what_cannot_be_is_said() {
    let (scratch, server) = served("bench-refused");
    let url = |path: &str| format!("root://localhost:{}/{path}", server.port);
    let table = [
        (vec!["read", "gopher://h//f"], "`gopher` is no protocol"),
        (vec!["read", "roots://h//f", "--discard"], "the kernel cannot discard encrypted data"),
        (vec!["read", "https://h//f"], "not an xroot server"),
        (vec!["read", "root://h/f"], "two slashes"),
        (vec!["open", "root://h//f", "--files", "3"], "has no %d"),
        (vec!["write", "root://h//f", "-s", "1m", "--file-size", "1k"], "--file-size"),
        (vec!["gen", "f", "--size", "1", "--files", "2"], "has no %d"),
    ];
    for (arguments, expected) in table {
        let output = bench(&scratch, &arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(stderr(&output).contains(expected), "{arguments:?}: {}", stderr(&output));
    }
    let table = [
        (url("/missing"), "2k", "kXR_NotFound"),
        (url("/many"), "2k", "kXR_isDirectory"),
        (url("/many/f0"), "2k", "the file has 10 bytes, fewer than the 2048 of a request"),
    ];
    for (url, size, expected) in table {
        let output = bench(&scratch, &["read", &url, "-s", size, "-c", "3"]);
        assert_eq!(output.status.code(), Some(1), "{url}");
        assert!(stderr(&output).contains(expected), "{url}: {}", stderr(&output));
    }
    // Error replies are counted, and the load continues.
    let output = bench(&scratch, &["stat", &url("/missing"), "--operations", "5"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stdout(&output).contains("5; the first: kXR_NotFound"), "{}", stdout(&output));
}

#[test]
fn where_no_server_is_the_refusal_is_told_once() {
    let scratch = Scratch::new("bench-nobody");
    // The listener is closed immediately, so the port has no listener.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let output = bench(&scratch, &["connect", &format!("root://127.0.0.1:{port}")]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output).matches("Connection refused").count(), 1, "{}", stderr(&output));
}

#[test]
fn a_server_that_goes_away_ends_the_load_with_an_error() {
    let (scratch, mut server) = served("bench-gone");
    let url = format!("root://localhost:{}//big", server.port);
    let mut load = support::program("scalla", &scratch);
    load.args(["bench", "read", &url, "-c", "4", "-t", "60s", "--warmup", "0s"]);
    let load =
        load.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    // The load is running when its connections have opened the file.
    while fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count() < 12 {
        std::thread::yield_now();
    }
    server.signal(rustix::process::Signal::KILL);
    server.wait();
    let output = load.wait_with_output().unwrap();
    assert!(matches!(output.status.code(), Some(1 | 3)), "{}", stdout(&output));
}
