//! Tests of the check pass with simulated disks, and once with a real one.
//!
//! Simulated disks have permissions that a test cannot create on a real disk, because it may run as
//! root.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use config::*;

/// Paths with their types; all others are missing.
#[derive(Default)]
struct Paths(BTreeMap<PathBuf, Result<PathAccess, io::ErrorKind>>);

impl Paths {
    fn with(mut self, path: &str, readable: bool, writable: bool) -> Self {
        self.0.insert(path.into(), Ok(PathAccess::Directory { readable, writable }));
        self
    }

    fn file(mut self, path: &str) -> Self {
        self.0.insert(path.into(), Ok(PathAccess::Other));
        self
    }

    fn denied(mut self, path: &str) -> Self {
        self.0.insert(path.into(), Err(io::ErrorKind::PermissionDenied));
        self
    }
}

impl Disk for Paths {
    fn look(&self, path: &Path) -> io::Result<PathAccess> {
        match self.0.get(path) {
            Some(look) => look.map_err(io::Error::from),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

fn problems(text: &str, disk: &dyn Disk) -> Vec<String> {
    let request = ConfigInput { file: Some("f".to_owned()), ..ConfigInput::default() };
    let loaded = load(&request, &MemorySource::new().with("f", text));
    assert!(loaded.report.is_ok(), "{}", loaded.report);
    check(&loaded.effective, disk, Strictness::Strict).problems().iter().map(ToString::to_string).collect()
}

fn disk() -> Paths {
    Paths::default()
        .with("/", true, false)
        .with("/tmp", true, true)
        .with("/srv", true, true)
        .with("/srv/data", true, true)
        .with("/run", true, true)
}

const GOOD: &str = "all.adminpath /run/a\nall.pidpath /run\noss.localroot /srv\nall.export /data\n";

#[test]
fn a_good_configuration_has_no_problems() {
    assert_eq!(problems(GOOD, &disk()), Vec::<String>::new());
    assert_eq!(problems("", &disk()), Vec::<String>::new(), "the defaults have no problems either");
}

#[test]
fn the_directory_of_a_cache_must_be_writable() {
    let cache = |root: &str| {
        let proxy = "ofs.osslib libXrdPss.so\npss.origin o:1\npss.cachelib libXrdPfc.so\nall.export /data";
        problems(&format!("all.adminpath /run/a\nall.pidpath /run\noss.localroot {root}\n{proxy}\n"), &disk())
    };
    assert_eq!(cache("/srv/data"), Vec::<String>::new());
    let expected =
        "f:3:1: error: oss.localroot: the directory of the cache, /missing: no such file or directory";
    assert!(cache("/missing")[0].starts_with(expected), "{:?}", cache("/missing"));
    assert!(cache("/")[0].contains("cannot be read and written"), "{:?}", cache("/"));
}

#[test]
fn missing_and_inaccessible_exports_are_found() {
    for (disk, expected) in [
        (
            Paths::default().with("/", true, true),
            vec!["f:3:1: error: oss.localroot: /srv: no such file or directory; name an existing directory"],
        ),
        (
            Paths::default().with("/srv", true, true).with("/run", true, true),
            vec!["f:4:1: error: all.export /data: /srv/data: no such file or directory; create it"],
        ),
        (disk().file("/srv/data"), vec!["f:4:1: error: all.export /data: /srv/data is not a directory"]),
        (
            disk().with("/srv/data", false, false),
            vec!["f:4:1: error: all.export /data: /srv/data cannot be read; give the server's user access"],
        ),
        (
            disk().with("/srv/data", true, false),
            vec![
                "f:4:1: warning: all.export /data: /srv/data cannot be written; \
             give the server's user access, or export it r/o",
            ],
        ),
    ] {
        assert_eq!(problems(GOOD, &disk), expected);
    }
    let read_only = GOOD.replace("/data", "/data r/o");
    assert_eq!(problems(&read_only, &disk().with("/srv/data", true, false)), Vec::<String>::new());
}

#[test]
fn directories_that_cannot_be_created_are_found() {
    let closed = disk().with("/run", true, false);
    let found = problems(GOOD, &closed);
    assert!(
        found[0].starts_with("f:1:1: error: all.adminpath: /run/a cannot be created: /run cannot be written")
    );
    assert!(found[1].starts_with("f:2:1: error: all.pidpath: /run cannot be written"), "{found:?}");
    let found = problems(GOOD, &disk().denied("/run/a"));
    assert!(found[0].contains("/run/a cannot be used: permission denied"), "{found:?}");
    let found = problems(&format!("{GOOD}ofs.chkpnt enable /srv/data/x/y\n"), &disk().file("/srv/data/x"));
    assert!(
        found[0].starts_with(
            "f:5:1: error: ofs.chkpnt: /srv/data/x/y cannot be created: /srv/data/x is not a dir"
        ),
        "{found:?}"
    );
}

#[test]
fn contradictions_are_found() {
    for (lines, expected) in [
        (
            "all.export /data r/o\nofs.persist auto",
            "f:6:1: warning: ofs.persist auto: every export is read-only; no file can be created",
        ),
        (
            "xrd.network nodnr\nxrd.allow host *.cern.ch\nxrd.allow host 10.*\nxrd.allow host a.cern.ch",
            "f:6:1: warning: xrd.allow host *.cern.ch: names are not looked up; \
             remove xrd.network nodnr, or name hosts or addresses",
        ),
        (
            "ofs.chkpnt enable /tmp/c",
            "f:5:1: warning: ofs.chkpnt enable: the checkpoints are under /tmp; \
             a reboot may lose them; name another directory",
        ),
        ("xrootd.redirect h:1 /else", "f:5:1: warning: xrootd.redirect: /else is not exported"),
        ("scalla.namerule /data/x /elsewhere", {
            "f:5:1: error: scalla.namerule /data/x: /srv/elsewhere: no such file or directory; create it"
        }),
        ("scalla.namerule /other /data", { "f:5:1: warning: scalla.namerule: /other is not exported" }),
        ("oss.space fast /tmp\noss.space slow assign /data", {
            "f:6:1: error: oss.space: there is no space 'slow'; define it with oss.space name path"
        }),
        (
            "oss.space fast /tmp\noss.space fast assign /else",
            "f:6:1: warning: oss.space fast: /else is not exported",
        ),
        (
            "oss.space fast /nope",
            "f:5:1: error: oss.space fast: /nope: no such file or directory; create it, or mount it",
        ),
        ("oss.space fast /nope chkmount x nofail", {
            "f:5:1: warning: oss.space fast: /nope: no such file or directory; the space starts without it"
        }),
        ("all.adminpath /srv/data/adm", {
            "f:5:1: warning: all.adminpath: /srv/data/adm is inside the export /data; \
             clients can see it; name another directory"
        }),
    ] {
        assert_eq!(problems(&format!("{GOOD}{lines}\n"), &disk()), [expected], "{lines}");
    }
    assert_eq!(problems(&format!("{GOOD}oss.space fast /srv/d*\n"), &disk()), Vec::<String>::new());
}

#[test]
fn existing_files_start_despite_missing_paths() {
    let request = ConfigInput { file: Some("f".to_owned()), ..ConfigInput::default() };
    let loaded = load(&request, &MemorySource::new().with("f", GOOD));
    let report = check(&loaded.effective, &Paths::default(), Strictness::Legacy);
    assert!(report.is_ok() && report.warnings().count() > 0, "{report}");
}

#[test]
fn the_real_disk_is_checked() {
    let directory = std::env::temp_dir().join(format!("scalla-config-check-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("file");
    std::fs::write(&file, "").unwrap();
    assert_eq!(LocalDisk.look(&directory).unwrap(), PathAccess::Directory { readable: true, writable: true });
    assert_eq!(LocalDisk.look(&file).unwrap(), PathAccess::Other);
    assert_eq!(LocalDisk.look(&directory.join("nope")).unwrap_err().kind(), io::ErrorKind::NotFound);
    let continued = directory.join("a.cfg");
    std::fs::write(&continued, format!("continue {}/d\n", directory.display())).unwrap();
    std::fs::create_dir_all(directory.join("d")).unwrap();
    std::fs::write(directory.join("d/x.cfg"), "xrd.port 7\n").unwrap();
    let request = ConfigInput { file: Some(continued.display().to_string()), ..ConfigInput::default() };
    assert_eq!(load(&request, &LocalFiles).effective.network.port.value, Port::Number(7));
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_program_for_identities_that_is_missing_is_reported() {
    let disk = disk().file("/srv/map");
    let found = |path: &str| {
        let text = format!("{GOOD}xrootd.seclib default\nsec.protocol unix\nsec.entityprogram {path} x\n");
        problems(&text, &disk)
    };
    assert_eq!(found("/srv/map"), [""; 0]);
    let missing = found("/srv/none");
    assert!(
        missing.len() == 1 && missing[0].starts_with("f:7:1: error: sec.entityprogram: /srv/none: "),
        "{missing:?}"
    );
}

#[test]
fn a_cluster_key_that_is_missing_or_protects_nothing_is_reported() {
    let disk = disk().file("/srv/k").denied("/srv/hidden");
    let found = |text: &str| problems(&format!("{GOOD}{text}"), &disk);
    assert_eq!(found("all.manager h:1\nscalla.clusterkey /srv/k except a\n"), [""; 0]);
    for (text, expected) in [
        ("scalla.clusterkey /srv/k\n", "f:5:1: warning: scalla.clusterkey: this server is in no cluster"),
        ("all.manager h:1\nscalla.clusterkey /srv/none\n", "f:6:1: error: scalla.clusterkey: /srv/none: "),
        (
            "all.manager h:1\nscalla.clusterkey /srv/hidden\n",
            "f:6:1: error: scalla.clusterkey: /srv/hidden: ",
        ),
        (
            "all.manager h:1\nscalla.clusterkey /srv/k except a *\n",
            "f:6:1: warning: scalla.clusterkey: 'except *'",
        ),
    ] {
        let found = found(text);
        assert!(found.len() == 1 && found[0].starts_with(expected), "{text}: {found:?}");
    }
}

/// An export is looked for where the rule stores it, and an admin directory there is visible.
#[test]
fn exports_are_checked_after_name_rules() {
    let text = "all.adminpath /srv/store/run\nall.pidpath /run\noss.localroot /srv\nall.export /data\n\
                scalla.namerule /data /store\n";
    let disk = Paths::default().with("/srv", true, true).with("/run", true, true).with("/", true, false);
    let found = problems(text, &disk.with("/srv/store", true, true));
    assert_eq!(
        found,
        ["f:1:1: warning: all.adminpath: /srv/store/run is inside the export /data; \
          clients can see it; name another directory"]
    );
}

#[test]
fn the_directory_of_a_usage_log_must_exist() {
    let found = problems(&format!("{GOOD}oss.usage log /nope\n"), &disk());
    assert_eq!(found, ["f:5:1: error: oss.usage log /nope: not a directory; create it"]);
    assert_eq!(problems(&format!("{GOOD}oss.usage log /tmp\n"), &disk()), Vec::<String>::new());
}

#[test]
fn rules_about_copies_that_no_client_can_fit_are_found() {
    let found = |lines: &str| problems(&format!("{GOOD}{lines}"), &disk());
    for (lines, expected) in [
        ("ofs.tpc require client sss", "ofs.tpc require sss: no client can log in by it here"),
        ("ofs.tpc allow group cms", "ofs.tpc allow group: clients have it only after a login"),
        (
            "xrootd.seclib default\nsec.protocol unix\nofs.tpc require dest gsi+",
            "ofs.tpc require gsi: no client can log in by it here",
        ),
    ] {
        let problems = found(lines);
        assert!(problems.iter().any(|problem| problem.contains(expected)), "{lines}: {problems:?}");
    }
    for lines in [
        "ofs.tpc require all host allow host *.example.org",
        "xrootd.seclib default\nsec.protocol unix\nofs.tpc require client unix allow dn alice",
    ] {
        assert_eq!(found(lines), Vec::<String>::new(), "{lines}");
    }
}

#[test]
fn a_file_stream_needs_an_interval_and_a_collector() {
    let found = |monitor: &str| problems(&format!("{GOOD}xrootd.monitor {monitor}\n"), &disk()).join("\n");
    assert_eq!(found("fstat 60 dest fstat h:1"), "");
    assert_eq!(found("dest user h:1"), "");
    for (monitor, expected) in [
        ("dest fstat h:1", "dest fstat, but no packets of it are sent"),
        ("fstat 0 lfn dest user fstat h:1", "dest fstat, but no packets of it are sent"),
        ("fstat 60 lfn ops dest user h:1", "fstat is set, but no collector gets it"),
    ] {
        let text = found(monitor);
        assert!(text.contains(expected) && text.contains("warning"), "{monitor}: {text}");
    }
    // The event may be in a line that follows.
    assert_eq!(found("fstat 60 dest user h:1\nxrootd.monitor ... dest fstat i:1"), "");
}
