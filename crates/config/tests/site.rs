//! A complete file of a site, evaluated for several programs and hosts, and its output in `config
//! show`.
//!
//! It exists because most interactions of directives appear only in a whole file.

use std::time::Duration;

use config::*;

const SITE: &str = include_str!("files/site.cfg");

fn request(program: &str, host: &str) -> ConfigInput {
    ConfigInput {
        file: Some("site.cfg".to_owned()),
        evaluation: Evaluation {
            program: program.to_owned(),
            instance: Some("data".to_owned()),
            host: host.to_owned(),
            environment: [("EXTRA".to_owned(), "1".to_owned())].into(),
        },
        strictness: Strictness::Legacy,
        ..ConfigInput::default()
    }
}

fn source() -> MemorySource {
    MemorySource::new()
        .with("site.cfg", SITE)
        .with("/etc/xrootd/config.d/10-more.cfg", "ofs.xattr maxvsz 4k\n")
        .with("/etc/xrootd/config.d/20-off.cfg.rpmsave", "xrd.port 1\n")
}

fn data_server() -> Loaded {
    load(&request("xrootd", "disk1.example.org"), &source())
}

#[test]
fn a_data_server_has_the_values_of_the_file() {
    let Loaded { effective, report } = data_server();
    let says: Vec<String> = report.errors().map(ToString::to_string).collect();
    assert_eq!(says, Vec::<String>::new());

    assert_eq!(effective.network.port.value, Port::Number(2094));
    assert_eq!(effective.network.port.origin.to_string(), "site.cfg:14:3");
    assert_eq!(effective.process.admin_path.mode(), 0o770);
    assert_eq!(effective.admin_directory().to_str(), Some("/var/spool/xrootd/data"));
    assert_eq!(
        effective.process.pid_file("xrootd", effective.instance.as_deref()).to_str(),
        Some("/var/run/xrootd/data/xrootd.pid")
    );
    assert_eq!(effective.process.site_name.as_deref(), Some("T2_XX_Example"));
    assert_eq!(effective.network.max_fd.value, MaxFd { limit: 65_536, strict: true });
    assert_eq!(
        effective.network.keepalive_parameters.value,
        KeepAlive {
            idle: Some(Duration::from_secs(1800)),
            interval: Some(Duration::from_secs(75)),
            count: Some(9),
        }
    );
    assert_eq!(effective.network.socket_buffer_bytes.value, Some(512 << 10));
    assert!(!effective.network.resolve_names.value);
    assert_eq!(effective.network.idle_timeout.value, Some(Duration::from_secs(4 * 3600)));
    assert_eq!(effective.network.allow.len(), 2);
    assert!(effective.network.allow[1].matches("192.168.7.9"));
    assert_eq!(effective.logical.delay_max.value, Duration::from_secs(120));
    assert_eq!(effective.logical.xattr.value_bytes_max, 4096);
    assert_eq!(effective.logical.xattr.origin.to_string(), "/etc/xrootd/config.d/10-more.cfg:1:1");
    assert_eq!(effective.logical.creation_modes.files.apply(0o666), 0o644);
    assert_eq!(effective.logical.creation_modes.directories.apply(0), 0o700);
    assert_eq!(effective.persist_directory().to_str(), Some("/srv/xrd/.posc/data/.ofs/posc"));
    assert!(!effective.protocol.sendfile.value);
    assert_eq!(effective.protocol.session_log.value, SessionLog { login: true, disconnect: false });
    assert_eq!(
        effective.protocol.checksums.offered,
        [ChecksumKind::Adler32, ChecksumKind::Crc32c, ChecksumKind::Md5]
    );
    assert_eq!(effective.environment[0].value, "/srv/xrd/tmp");
}

#[test]
fn options_of_exports_override_the_defaults() {
    let storage = data_server().effective.storage;
    let seen: Vec<_> = storage
        .exports
        .iter()
        .map(|e| (e.prefix.as_str(), e.attributes.read_only, e.attributes.lock))
        .collect();
    assert_eq!(seen, [("/store", false, false), ("/store/temp", false, true), ("/calib", true, false)]);
    assert_eq!(storage.export_of("/store/temp/x").map(|e| e.prefix.as_str()), Some("/store/temp"));
    assert_eq!(storage.export_of("/store/temporary").map(|e| e.prefix.as_str()), Some("/store"));
    assert_eq!(storage.export_of("/storage"), None);
    assert_eq!(storage.local_path("/store/x").to_str(), Some("/srv/xrd/store/x"));
}

#[test]
fn defaults_apply_to_the_exports_below_them() {
    // As the real server behaves: whether the export is read-only.
    for (text, read_only) in [
        ("oss.defaults r/o\nall.export /\noss.defaults r/w", true),
        ("all.export /\noss.defaults r/o", false),
        ("oss.defaults r/o\noss.defaults nolock\nall.export /", true),
        ("all.export /\noss.defaults r/o\nall.export /", true),
        ("oss.defaults r/o\nall.export / nolock", true),
        ("all.export / r/o\nall.export / nolock", true),
        ("all.export / r/o\nall.export / r/w", false),
        ("oss.defaults r/o", true),
    ] {
        let request = ConfigInput { file: Some("x.cfg".into()), ..ConfigInput::default() };
        let loaded = load(&request, &MemorySource::new().with("x.cfg", text));
        let exports = loaded.effective.storage.exports;
        assert_eq!(exports.iter().map(|e| e.attributes.read_only).collect::<Vec<_>>(), [read_only], "{text}");
    }
}

#[test]
fn directives_not_in_force_are_reported_with_a_position() {
    let report = data_server().report;
    let says = |what: &str| report.problems().iter().any(|problem| problem.to_string() == what);
    for what in [
        "site.cfg:25:1: note: xrd.sched has no effect here",
        "site.cfg:33:30: warning: all.export: unknown export option '#'; see Export options in the manual",
        "site.cfg:37:40: warning: xrootd.chksum: '/usr/bin/xrdadler32.sh' is not run; the checksums before it \
         are built in",
        "site.cfg:38:19: note: xrootd.async: 'segsize' has no effect here",
    ] {
        assert!(says(what), "{what}\nin\n{report}");
    }
}

#[test]
fn conditions_select_by_host_and_program() {
    let Loaded { effective, report } = load(&request("xrootd", "redir1.example.org"), &source());
    let errors: Vec<String> = report.errors().map(ToString::to_string).collect();
    assert_eq!(errors, Vec::<String>::new());
    assert_eq!(effective.cluster.role.value, NodeRole::Manager);
    assert_eq!(effective.network.port.value, Port::Number(2094));
    assert_eq!(effective.cluster.port.value, Some(Port::Number(1213)), "where nodes log in");
    let cmsd = load(&request("cmsd", "disk1.example.org"), &source());
    assert_eq!(cmsd.effective.network.port.value, Port::Number(1213));
    assert_eq!(cmsd.effective.logical.delay_max.value, Duration::from_secs(60));
}

#[test]
fn the_shown_configuration_has_the_same_effect() {
    let effective = data_server().effective;
    let lines = show(&effective);
    let text: String = lines
        .iter()
        .filter(|line| line.directive != "-I")
        .filter_map(|line| Some(format!("{} {}\n", line.directive, line.value.as_deref()?)))
        .collect();
    let again = ConfigInput { file: Some("shown".to_owned()), ..request("xrootd", "disk1.example.org") };
    let again = load(&again, &MemorySource::new().with("shown", &text));
    let new = again.report.problems().iter().filter(|problem| problem.kind != ProblemKind::NoEffect);
    assert_eq!(new.count(), 0, "{text}{}", again.report);
    let values = |effective: &Effective| -> Vec<_> {
        show(effective).into_iter().map(|line| (line.directive, line.value)).collect()
    };
    assert_eq!(values(&again.effective), values(&effective));
    assert_eq!(changes(&again.effective, &effective).needs_restart.len(), 1, "only setenv");
    let shown: Vec<String> = lines.iter().map(ToString::to_string).collect();
    let at = shown.iter().find(|line| line.starts_with("xrd.port")).unwrap();
    assert!(at.starts_with("xrd.port 2094  ") && at.ends_with("  # site.cfg:14:3"), "{at}");
}

#[test]
fn the_command_line_takes_precedence_and_adds_exports() {
    let mut request = request("xrootd", "disk1.example.org");
    request.overrides = Overrides {
        port: Some(Port::Any),
        exports: vec!["/extra//data/".to_owned(), "relative".to_owned()],
        admin_path: Some(DirectorySetting { path: "/run/a".into(), group: false }),
        read_only: true,
        debug: true,
        ..Overrides::default()
    };
    let Loaded { effective, report } = load(&request, &source());
    assert_eq!(effective.network.port, Setting::from_command_line(Port::Any));
    assert_eq!(effective.admin_directory().to_str(), Some("/run/a/data"));
    let last = effective.storage.exports.last().unwrap();
    assert_eq!((last.prefix.as_str(), &last.origin), ("/extra/data", &Origin::CommandLine));
    assert!(!last.attributes.lock, "oss.defaults apply to it too");
    assert!(effective.storage.exports.iter().all(|export| export.attributes.read_only));
    assert_eq!(effective.logical.trace.level(), LogLevel::Trace);
    let errors: Vec<String> = report.errors().map(ToString::to_string).collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].starts_with("command line: error: non-absolute export path - relative"), "{errors:?}");
}

#[test]
fn a_directory_is_served_as_root_instead_of_the_exports() {
    let mut request = request("xrootd", "disk1.example.org");
    request.overrides.directory = Some("/home/me/data".into());
    let Loaded { effective, report } = load(&request, &source());
    assert!(report.is_ok());
    let prefixes: Vec<_> = effective.storage.exports.iter().map(|e| e.prefix.as_str()).collect();
    assert_eq!(prefixes, ["/"]);
    assert_eq!(effective.storage.local_path("/x").to_str(), Some("/home/me/data/x"));
    let has_note = |what: &str, advice: &str| {
        report.problems().iter().any(|one| one.what == what && one.allowed == advice)
    };
    assert!(has_note("/store is not exported", "/home/me/data is served as / instead"), "{report}");
    assert_eq!(effective.protocol.checksums.offered.len(), 3, "the checksums of the file apply");

    let bare = ConfigInput { overrides: request.overrides, ..ConfigInput::default() };
    let bare = load(&bare, &MemorySource::new());
    assert_eq!(bare.report.problems(), []);
    assert_eq!(bare.effective.protocol.checksums.offered, ChecksumKind::ALL);
    let direct = Effective::for_directory("/home/me/data".as_ref(), false);
    assert_eq!(direct.storage, bare.effective.storage);
}

#[test]
fn tmp_is_exported_by_default() {
    let loaded = load(&ConfigInput::default(), &MemorySource::new());
    assert_eq!(loaded.effective.storage.exports[0].prefix, "/tmp");
    assert!(loaded.effective.storage.exports[0].origin.is_default());
    assert_eq!(loaded.effective.checkpoint_directory(), None, "they would be under /tmp");
    assert!(loaded.effective.protocol.checksums.offered.is_empty());
}

#[test]
fn each_instance_has_its_own_journals_in_any_directory() {
    let directories = |line: &str, instance: Option<&str>| {
        let source = MemorySource::new().with("x.cfg", format!("all.adminpath /adm\n{line}\n"));
        let evaluation = Evaluation { instance: instance.map(str::to_owned), ..Evaluation::default() };
        let effective =
            load(&ConfigInput { file: Some("x.cfg".into()), evaluation, ..ConfigInput::default() }, &source)
                .effective;
        [effective.persist_directory(), effective.checkpoint_path()].map(|path| path.display().to_string())
    };
    // Not `.ofs/posc.log`, which is a file of XRootD, because its admin directory must work for us
    // too.
    assert_eq!(directories("", None), ["/adm/.ofs/posc", "/adm/.ofs/chkpnt"]);
    assert_eq!(directories("", Some("a")), ["/adm/a/.ofs/posc", "/adm/a/.ofs/chkpnt"]);
    let lines = "ofs.persist auto logdir /log\nofs.chkpnt disable /saved";
    assert_eq!(directories(lines, None), ["/log/.ofs/posc", "/saved"]);
    assert_eq!(directories(lines, Some("a")), ["/log/a/.ofs/posc", "/saved/a"]);
}
