//! Tests of the privileges that a server keeps when it switches from root to its user.

#![allow(clippy::unwrap_used)] // a test fails where it is

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use support::{Scratch, Server, is_root};

/// User and group of the servers.
const NOBODY: u32 = 65534;

/// Sets of capabilities of a thread, as in `/proc/PID/status`.
const SETS: [&str; 5] = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];

/// Starts a server as root, which switches to `nobody`.
fn serve(scratch: &Scratch, lines: &str) -> Server {
    fs::create_dir_all(scratch.path("admin")).unwrap();
    for name in ["data", "admin"] {
        chown(scratch.path(name), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let config = scratch.write("site.cfg", lines);
    Server::serve(scratch, &["--user", "nobody", "--config", config.to_str().unwrap()])
}

/// Returns the fields of each thread of a process.
fn threads(pid: u32) -> Vec<BTreeMap<String, String>> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let fields = |text: String| {
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
    };
    // A thread of a pool can end meanwhile.
    tasks
        .filter_map(|task| fs::read_to_string(task.unwrap().path().join("status")).ok())
        .map(fields)
        .collect()
}

#[test]
fn no_thread_keeps_privileges_of_root() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new("privileges");
    let server = serve(&scratch, "");
    let threads = threads(server.pid());
    assert!(threads.len() > 1, "{threads:?}");
    for thread in threads {
        let name = &thread["Name"];
        for set in SETS {
            assert_eq!(u64::from_str_radix(&thread[set], 16), Ok(0), "{name}: {set}");
        }
        assert_eq!(thread["NoNewPrivs"], "1", "{name}");
        // Real, effective and saved ids, and that for file systems.
        for ids in ["Uid", "Gid"] {
            assert!(thread[ids].split_whitespace().all(|id| id == "65534"), "{name}: {ids} {}", thread[ids]);
        }
        assert!(
            thread["Groups"].split_whitespace().all(|group| group != "0"),
            "{name}: {}",
            thread["Groups"]
        );
    }
}

#[test]
fn programs_of_the_configuration_keep_the_privileges_of_their_files() {
    if !is_root() {
        return;
    }
    let example = |directive: &config::Directive| match directive.names[0] {
        // The example of this one has no program.
        "ofs.tpc" => "ofs.tpc pgm /bin/true\n".to_owned(),
        name => format!("{name} {}\n", directive.example),
    };
    let lines: Vec<_> = config::every_directive().filter(|one| one.names_program()).map(example).collect();
    assert!(lines.len() > 2, "{lines:?}");
    for line in lines {
        let scratch = Scratch::new("privileges-program");
        let server = serve(&scratch, &line);
        for thread in threads(server.pid()) {
            let name = &thread["Name"];
            assert_eq!(thread["NoNewPrivs"], "0", "{line}: {name}");
            for set in SETS.into_iter().filter(|set| *set != "CapBnd") {
                assert_eq!(u64::from_str_radix(&thread[set], 16), Ok(0), "{line}: {name}: {set}");
            }
        }
    }
}

/// Reports whether the user of the server can open a file or directory.
fn is_accessible(path: &Path) -> bool {
    let Ok(found) = fs::metadata(path) else { return false };
    let bits = match (found.uid(), found.gid()) {
        (NOBODY, _) => 0o400,
        (_, NOBODY) => 0o040,
        _ => 0o004,
    };
    found.mode() & bits != 0
}

#[test]
fn descriptors_from_before_the_switch_are_those_of_the_user() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new("privileges-files");
    let server = serve(&scratch, "");
    for entry in fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap() {
        let entry = entry.unwrap();
        // One that is closed meanwhile is none of the start.
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        // Others are sockets, pipes and events, which have no path. The first three are inherited.
        let is_inherited = ["0", "1", "2"].iter().any(|number| entry.file_name() == *number);
        if target.is_absolute() && !is_inherited {
            assert!(is_accessible(&target), "{}", target.display());
        }
    }
}
