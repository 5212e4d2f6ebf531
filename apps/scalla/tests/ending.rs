//! Tests of the server's shutdown, and of the changes that it applies while it runs.

mod support;

use rustix::process::Signal;
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use support::{Client, Scratch, Server, run, status, stderr, stdout};

/// Much larger than the socket buffers of both ends.
const LARGE: usize = 64 << 20;

fn sample() -> Vec<u8> {
    let pattern: Vec<u8> = (0..=250).collect();
    let mut all = pattern.repeat(LARGE / pattern.len() + 1);
    all.truncate(LARGE);
    all
}

#[test]
fn a_drain_finishes_what_is_in_flight_and_closes_the_idle() {
    let scratch = Scratch::new("drain");
    scratch.write("data/large", sample());
    let mut server = Server::serve(&scratch, &[]);
    let idle = server.client();
    let mut busy = server.client();
    let handle = busy.open("/large");
    busy.send_read(handle, 0, LARGE as u32);
    // The reply has begun, so the server has received the request.
    let mut first = [0; 1];
    busy.stream.peek(&mut first).unwrap();
    server.signal(Signal::TERM);
    server.line(|line| line.contains("no new connections"));
    idle.closed();
    assert!(TcpStream::connect(("127.0.0.1", server.port)).is_err(), "the port is closed");
    assert!(busy.data() == sample(), "the reply in flight came whole");
    busy.closed();
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_write_whose_data_is_on_its_way_is_finished() {
    let scratch = Scratch::new("write");
    let mut server = Server::serve(&scratch, &[]);
    let mut client = server.client();
    let handle = client.create("/new");
    client.begin_write(handle, 8, b"1234");
    server.signal(Signal::TERM);
    server.line(|line| line.contains("no new connections"));
    client.stream.write_all(b"5678").unwrap();
    assert_eq!(client.reply(), (0, Vec::new()));
    client.closed();
    assert_eq!(server.wait().code(), Some(0));
    assert_eq!(scratch.read("data/new"), "12345678");
}

#[test]
fn a_connection_that_has_said_nothing_does_not_hold_up_a_drain() {
    let scratch = Scratch::new("silent");
    let mut server = Server::serve(&scratch, &[]);
    let _silent = Client::silent(server.port);
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn after_its_time_a_drain_cuts_off_and_says_whom() {
    let scratch = Scratch::new("cutoff");
    scratch.write("data/large", sample());
    let file = scratch.write("x.cfg", "scalla.drain 1\n");
    let mut server = Server::serve(&scratch, &["--config", file.to_str().unwrap()]);
    let mut stuck = server.client();
    let handle = stuck.open("/large");
    stuck.send_read(handle, 0, LARGE as u32);
    stuck.stream.peek(&mut [0; 1]).unwrap();
    server.signal(Signal::TERM);
    let line = server.line(|line| line.contains("cut off"));
    assert!(line.contains("test.7@"), "{line}");
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn told_twice_it_ends_at_once() {
    let scratch = Scratch::new("twice");
    scratch.write("data/large", sample());
    let mut server = Server::serve(&scratch, &[]);
    let mut stuck = server.client();
    let handle = stuck.open("/large");
    stuck.send_read(handle, 0, LARGE as u32);
    stuck.stream.peek(&mut [0; 1]).unwrap();
    server.signal(Signal::TERM);
    server.line(|line| line.contains("no new connections"));
    server.signal(Signal::TERM);
    let status = server.wait();
    assert_eq!((status.code(), status.signal()), (Some(1), None));
}

#[test]
fn a_bad_file_changes_nothing_and_a_good_one_what_it_can() {
    let scratch = Scratch::new("reload");
    let old = "xrd.allow host 127.0.0.1\nxrd.timeout hail 30\n";
    let file = scratch.write("x.cfg", old);
    let mut server = Server::serve(&scratch, &["--config", file.to_str().unwrap()]);
    server.client();
    fs::write(&file, "xrd.allow host 192.0.2.1\nxrd.timeout hail never\n").unwrap();
    server.signal(Signal::HUP);
    let line = server.line(|line| line.contains("stays as it was"));
    assert!(line.contains("x.cfg:2:"), "{line}");
    server.client();
    fs::write(&file, "xrd.allow host 192.0.2.1\nxrd.timeout hail 5\n").unwrap();
    server.signal(Signal::HUP);
    let line = server.line(|line| line.contains("changed now"));
    assert!(line.ends_with("xrd.allow"), "{line}");
    let line = server.line(|line| line.contains("needs a restart"));
    assert!(line.contains("xrd.timeout"), "{line}");
    // A host that is not allowed is disconnected without a reply.
    Client::connected(server.port).closed();
    assert_eq!(status(&scratch.path("admin"))["refused_denied"], 1);
}

#[test]
fn the_admin_command_looks_after_a_server() {
    let scratch = Scratch::new("admin");
    let log = scratch.text("server.log");
    let mut server = Server::serve(&scratch, &["--log", &log]);
    let admin = |arguments: &[&str]| {
        let mut all = vec!["admin", "--admin-path"];
        let path = scratch.text("admin");
        all.push(&path);
        all.extend(arguments);
        run("scalla", &scratch, &all)
    };
    let output = admin(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(status["port"], server.port);
    assert_eq!(status["pid"], server.pid());
    assert_eq!(status["exports"], serde_json::json!(["/"]));

    assert!(stdout(&admin(&["log-level"])).contains("info"));
    assert!(stdout(&admin(&["log-level", "info,net=debug"])).contains("info,net=debug"));
    let refused = admin(&["log-level", "loud"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("off, error, warn, info, debug, trace"), "{}", stderr(&refused));

    fs::rename(scratch.path("server.log"), scratch.path("moved.log")).unwrap();
    assert!(admin(&["reload"]).status.success());
    assert!(admin(&["drain"]).status.success());
    assert_eq!(server.wait().code(), Some(0));
    assert!(scratch.read("moved.log").contains("log level info,net=debug"));
    assert!(scratch.read("server.log").contains("admin drain"), "{}", scratch.read("server.log"));
    assert!(!scratch.read("server.log").contains("log level"));

    let gone = admin(&["status"]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(stderr(&gone).contains("no server is running"), "{}", stderr(&gone));
}

#[test]
fn logins_and_disconnects_are_logged_as_configured() {
    let scratch = Scratch::new("sessions");
    let file = scratch.write("x.cfg", "xrootd.log all\n");
    let mut server = Server::serve(&scratch, &["--config", file.to_str().unwrap()]);
    server.client();
    let line = server.line(|line| line.contains("test.7@"));
    assert!(line.contains(" login"), "{line}");
    let scratch = Scratch::new("sessions");
    let mut server = Server::serve(&scratch, &[]);
    server.client();
    let line = server.line(|line| line.contains("test.7@"));
    assert!(
        line.contains(" left after ") && line.contains(" B sent, ") && line.contains(" B received"),
        "{line}"
    );
}

#[test]
fn log_lines_can_be_json() {
    let scratch = Scratch::new("json");
    let mut server = Server::serve(&scratch, &["--log-format", "json"]);
    server.signal(Signal::TERM);
    let line = server.line(|line| line.contains("no new connections"));
    let value: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(value["level"], "INFO");
    assert!(value["timestamp"].as_str().is_some_and(|time| time.len() > 20), "{value}");
    assert_eq!(server.wait().code(), Some(0));
}
