//! Tests of the `cmsd` program: a stand-in beside our server, started before or after it.

mod support;

use rustix::process::Signal;
use std::os::unix::net::UnixListener;
use support::{Background, Scratch, Server, names, program, run, status, stderr};

/// Returns the configuration of a node with its data below the scratch directory, as both programs
/// read it.
fn configuration(scratch: &Scratch) -> String {
    let text = format!(
        "all.adminpath {}\nall.pidpath {}\nall.export {}\nif exec xrootd\nxrd.port any\nelse\nxrd.port 1213\nfi\n",
        scratch.text("adm"),
        scratch.text("run"),
        scratch.text("data")
    );
    scratch.write("x.cfg", text).display().to_string()
}

fn cmsd(scratch: &Scratch, more: &[&str]) -> Background {
    let log = scratch.text("log/cmsd.log");
    let output = run("cmsd", scratch, &[&["-b", "-l", &log, "-s", &scratch.text("cmsd.pid")], more].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let Ok(pid) = scratch.read("cmsd.pid").parse() else { panic!("no pid file") };
    Background(pid)
}

/// Waits until the log of the stand-in contains a text.
fn wait_for(scratch: &Scratch, log: &str, text: &str) {
    let until = std::time::Instant::now() + support::PATIENCE;
    while !scratch.read(log).contains(text) {
        assert!(std::time::Instant::now() < until, "no `{text}` in\n{}", scratch.read(log));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn version_and_usage_have_its_name() {
    let scratch = Scratch::new("cmsd-usage");
    assert!(stderr(&run("cmsd", &scratch, &["-h"])).starts_with("Usage: cmsd "));
    assert!(stderr(&run("cmsd", &scratch, &["-v"])).starts_with('v'));
    let output = run("cmsd", &scratch, &["-Q"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("cmsd: error: there is no option -Q"), "{}", stderr(&output));
}

#[test]
fn started_after_the_server_it_stays_and_changes_nothing() {
    let scratch = Scratch::new("cmsd-after");
    let file = configuration(&scratch);
    let server = Server::start(program("xrootd", &scratch).args(["-c", &file, "-n", "foo"]));
    let directory = || names(scratch.path("adm/foo")).into_iter().filter(|name| !name.starts_with("cmsd."));
    let before: Vec<_> = directory().collect();
    let stand_in = cmsd(&scratch, &["-c", &file, "-n", "foo"]);
    // The log of an instance is in a directory of its own, like its pid file.
    wait_for(&scratch, "log/foo/cmsd.log", "is the cluster node");
    assert_eq!(scratch.read("run/foo/cmsd.pid"), stand_in.0.to_string());
    assert_eq!(scratch.read("run/foo/xrootd.pid"), server.pid().to_string());
    assert_eq!(status(&scratch.path("adm/foo"))["pid"], server.pid());
    stand_in.signal(Signal::TERM);
    stand_in.wait();
    assert!(scratch.read("log/foo/cmsd.log").contains("good bye"));
    assert_eq!(names(scratch.path("run/foo")), ["xrootd.foo.env", "xrootd.pid"]);
    assert_eq!(status(&scratch.path("adm/foo"))["pid"], server.pid(), "the server goes on");
    assert_eq!(directory().collect::<Vec<_>>(), before);
}

#[test]
fn started_before_the_server_it_waits_for_it() {
    let scratch = Scratch::new("cmsd-before");
    let file = configuration(&scratch);
    let stand_in = cmsd(&scratch, &["-c", &file]);
    wait_for(&scratch, "log/cmsd.log", "waiting for the scalla server of this instance");
    let server = Server::start(program("xrootd", &scratch).args(["-c", &file]));
    wait_for(&scratch, "log/cmsd.log", &format!("scalla (pid {}", server.pid()));
    drop(server);
    // A restart of the server does not affect the stand-in.
    let again = Server::start(program("xrootd", &scratch).args(["-c", &file]));
    assert_eq!(scratch.read("run/cmsd.pid"), stand_in.0.to_string());
    stand_in.signal(Signal::INT);
    stand_in.wait();
    assert_eq!(status(&scratch.path("adm"))["pid"], again.pid());
}

#[test]
fn beside_a_daemon_of_somebody_else_it_ends_with_an_error() {
    let scratch = Scratch::new("cmsd-other");
    let file = configuration(&scratch);
    scratch.write("adm/.xrootd/x", "");
    let _listener = UnixListener::bind(scratch.path("adm/.xrootd/admin")).unwrap();
    let output = run("cmsd", &scratch, &["-c", &file]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("XRootD's own xrootd runs on this instance"), "{said}");
    assert!(said.contains("run XRootD's own cmsd beside it"), "{said}");
    assert!(said.contains("initialization failed."), "{said}");
    assert!(!scratch.path("run/cmsd.pid").exists(), "no pid file is left");
}

#[test]
fn a_wrong_configuration_is_said() {
    let scratch = Scratch::new("cmsd-wrong");
    let file = scratch.write("x.cfg", "all.role manager\nif exec cmsd\ncms.ping often\nfi\n");
    let output = run("cmsd", &scratch, &["-c", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("x.cfg:3:10: error: cms.ping: ping often is not a number"));
}
