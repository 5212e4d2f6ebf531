//! Tests of the `xrootd` program: its command line, its files, and detaching.

mod support;

use rustix::process::Signal;
use std::fs;
use support::{Background, Client, Scratch, Server, names, program, run, status, stderr, stdout};

#[test]
fn version_help_and_licence_go_where_scripts_look() {
    let scratch = Scratch::new("version");
    let output = run("xrootd", &scratch, &["-v"]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), String::new()));
    let version = stderr(&output);
    let numbers: Vec<_> = version.trim_end().strip_prefix('v').unwrap().split('.').collect();
    assert!(numbers.len() == 3 && numbers.iter().all(|n| n.parse::<u32>().is_ok()), "{version}");
    assert!(stderr(&run("xrootd", &scratch, &["-h"])).starts_with("Usage: xrootd "));
    assert!(stderr(&run("xrootd", &scratch, &["-H"])).contains("Apache License"));
    let output = run("xrootd", &scratch, &["-Q"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("there is no option -Q"));
}

#[test]
fn a_path_argument_is_exported_under_its_own_name() {
    let scratch = Scratch::new("path");
    scratch.write("data/x", "12345");
    let server = Server::xrootd(&scratch, &[&scratch.text("data")]);
    let mut client = server.client();
    assert_eq!(client.stat(&scratch.text("data/x")).0, 0);
    assert_eq!(client.stat("/x").0, 4003);
    assert_eq!(client.stat("/etc/passwd").0, 4003);
}

#[test]
fn in_the_background_the_parent_waits_until_the_port_is_open() {
    let scratch = Scratch::new("background");
    let directory = |name: &str| scratch.text(name);
    let config = scratch.write(
        "x.cfg",
        format!(
            "all.adminpath {}\nall.pidpath {}\nxrd.port any\nall.export {}\n",
            directory("adm"),
            directory("run"),
            directory("data")
        ),
    );
    let arguments = [
        "-b",
        "-c",
        config.to_str().unwrap(),
        "-n",
        "foo",
        "-l",
        &directory("log/x.log"),
        "-s",
        &directory("my.pid"),
        "-w",
        &directory("home"),
    ];
    let output = run("xrootd", &scratch, &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let pid: u32 = scratch.read("my.pid").parse().unwrap();
    let server = Background(pid);
    // All files exist when the parent returns.
    assert_eq!(scratch.read("run/foo/xrootd.pid"), pid.to_string());
    let status = status(&scratch.path("adm/foo"));
    assert_eq!((status["pid"].as_u64(), status["instance"].as_str()), (Some(u64::from(pid)), Some("foo")));
    let port = u16::try_from(status["port"].as_u64().unwrap()).unwrap();
    assert_eq!(Client::login(port).stat(&directory("data")).0, 0);
    let link = |name: &str| fs::read_link(format!("/proc/{pid}/{name}")).unwrap().display().to_string();
    assert_eq!(link("cwd"), directory("home/foo"));
    for descriptor in ["fd/0", "fd/1", "fd/2"] {
        assert_eq!(link(descriptor), "/dev/null");
    }
    let fields = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let session = fields.rsplit(") ").next().unwrap().split_whitespace().nth(3).unwrap().to_owned();
    assert_eq!(session, pid.to_string(), "a session of its own");
    assert!(fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap().starts_with("xrootd\0-b\0-c\0"));
    assert_eq!(fs::read_to_string(format!("/proc/{pid}/comm")).unwrap(), "xrootd\n");
    let environment = scratch.read("xrootd.foo.env");
    let expected = format!("pid={pid}&host=");
    assert!(environment.starts_with(&expected), "{environment}");
    for field in [
        "&inst=foo",
        "&ver=v",
        &format!("&home={}&", directory("home/foo")),
        &format!("&logfn={}", directory("log/foo/x.log")),
    ] {
        assert!(environment.contains(field), "{field} in {environment}");
    }
    server.signal(Signal::TERM);
    server.wait();
    let log = scratch.read("log/foo/x.log");
    assert!(log.contains("++++++ xrootd foo@") && log.contains("initialization completed."), "{log}");
    assert!(!scratch.path("my.pid").exists() && !scratch.path("run/foo/xrootd.pid").exists());
}

#[test]
fn in_the_background_a_failure_is_told_and_is_the_exit_status() {
    let scratch = Scratch::new("failure");
    let server = Server::xrootd(&scratch, &[&scratch.text("data")]);
    let port = server.port.to_string();
    let arguments = [
        "-b",
        "-p",
        &port,
        "-a",
        &scratch.text("other"),
        "-l",
        &scratch.text("x.log"),
        "-s",
        &scratch.text("pid"),
        "/tmp",
    ];
    let output = run("xrootd", &scratch, &arguments);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.contains(&format!("port {port} is in use by")), "{text}");
    assert!(text.contains("initialization failed."), "{text}");
    assert!(!scratch.path("pid").exists());
    // Errors after the log was opened are logged too.
    let arguments = [
        "-b",
        "-p",
        "any",
        "-a",
        &scratch.text("admin"),
        "-l",
        &scratch.text("x.log"),
        &scratch.text("data"),
    ];
    let output = run("xrootd", &scratch, &arguments);
    assert_eq!(output.status.code(), Some(1));
    for text in [stderr(&output), scratch.read("x.log")] {
        assert!(text.contains(&format!("pid {}, port {port}", server.pid())), "{text}");
    }
    let output = run("xrootd", &scratch, &["-b", "-c", "/no/such/file"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("/no/such/file"), "{}", stderr(&output));
}

#[test]
fn whatever_restricts_access_and_is_not_in_force_stops_the_start() {
    let scratch = Scratch::new("guards");
    for line in [
        "sec.protocol unix",
        "sec.protocol pwd",
        "ofs.authlib libXrdAccSciTokens.so",
        "acc.authdb /etc/authdb",
        "xrootd.tls all",
        "xrd.tls /etc/cert.pem",
        "xrd.allow netgroup workers",
    ] {
        let file = scratch.write("x.cfg", format!("xrd.port any\nall.export /tmp\n{line}\n"));
        let output = run("xrootd", &scratch, &["-c", file.to_str().unwrap(), "-a", &scratch.text("admin")]);
        assert_eq!(output.status.code(), Some(1), "{line}");
        let name = line.split(' ').next().unwrap();
        assert!(
            stderr(&output).contains(name) && stderr(&output).contains("x.cfg:3:"),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn an_old_file_with_unknown_directives_starts_and_says_so() {
    let scratch = Scratch::new("old");
    let file = scratch.write("x.cfg", format!("all.export {}\nxrootd.chsum adler32\n", scratch.text("data")));
    let mut server = Server::xrootd(&scratch, &["-c", file.to_str().unwrap()]);
    assert_eq!(server.client().stat(&scratch.text("data")).0, 0);
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
    let output =
        program("scalla", &scratch).args(["serve", "--config", file.to_str().unwrap()]).output().unwrap();
    assert!(stderr(&output).contains("x.cfg:2:"), "{}", stderr(&output));
}

#[test]
fn the_log_of_an_instance_lies_in_its_directory_unless_told_otherwise() {
    let scratch = Scratch::new("log");
    for (argument, expected) in [("log/a", "log/foo/a"), ("=log/b", "log/b")] {
        let mut command = program("xrootd", &scratch);
        command.args([
            "-b",
            "-n",
            "foo",
            "-p",
            "any",
            "-a",
            &scratch.text("admin"),
            "-l",
            argument,
            "-s",
            "pid",
            "-w",
            "home",
        ]);
        assert!(command.arg(scratch.path("data")).status().unwrap().success());
        let server = Background(scratch.read("home/foo/pid").parse().unwrap());
        server.signal(Signal::TERM);
        server.wait();
        assert!(scratch.read(expected).contains("good bye"), "{argument}: {:?}", names(scratch.path("log")));
    }
}

#[test]
fn setenv_reaches_the_process() {
    let scratch = Scratch::new("setenv");
    let file =
        scratch.write("x.cfg", format!("setenv SITE_COLOUR = blue\nall.export {}\n", scratch.text("data")));
    let server = Server::xrootd(&scratch, &["-c", file.to_str().unwrap()]);
    let environment = fs::read(format!("/proc/{}/environ", server.pid())).unwrap();
    assert!(environment.split(|&b| b == 0).any(|entry| entry == b"SITE_COLOUR=blue"));
}

#[test]
fn an_admin_directory_of_the_real_server_will_do() {
    let scratch = Scratch::new("swapped");
    // XRootD leaves its own journal of unfinished files there, as a file.
    scratch.write("admin/.ofs/posc.log", [0; 64]);
    scratch.write("data/x", "12345");
    let server = Server::xrootd(&scratch, &[&scratch.text("data")]);
    assert_eq!(server.client().stat(&scratch.text("data/x")).0, 0);
    drop(server);
    assert_eq!(scratch.read("admin/.ofs/posc.log"), "\0".repeat(64));
}

#[test]
fn that_nobody_reads_the_error_output_changes_nothing() {
    let scratch = Scratch::new("deaf");
    let file = scratch.write("x.cfg", format!("xrd.nothing 1\nall.export {}\n", scratch.text("data")));
    let bad = scratch.write("bad.cfg", "xrd.port x\n");
    let deaf = |arguments: &[&str]| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        program("xrootd", &scratch).args(arguments).stderr(writer).status().unwrap().code()
    };
    assert_eq!(deaf(&["-Q"]), Some(1));
    assert_eq!(deaf(&["-v"]), Some(0));
    assert_eq!(deaf(&["-c", bad.to_str().unwrap()]), Some(1));
    let admin = scratch.text("admin");
    let start = ["-b", "-y", "-c", file.to_str().unwrap(), "-p", "any", "-a", &admin, "-s", "pid"];
    assert_eq!(deaf(&start), Some(0));
    let server = Background(scratch.read("pid").parse().unwrap());
    assert!(status(&scratch.path("admin"))["pid"].as_u64().is_some());
    server.signal(Signal::TERM);
    server.wait();
}
