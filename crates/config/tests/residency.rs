//! Tests of the directives of staging.

use config::*;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn loaded(text: &str) -> Loaded {
    let request = ConfigInput { file: Some("f".to_owned()), ..ConfigInput::default() };
    load(&request, &MemorySource::new().with("f", text))
}

fn problems(report: &ConfigReport) -> Vec<(ProblemKind, String)> {
    report.problems().iter().map(|problem| (problem.kind, problem.to_string())).collect()
}

fn program(path: &str, arguments: &[&str]) -> CopyProgram {
    CopyProgram { path: path.into(), arguments: arguments.iter().map(|text| (*text).to_owned()).collect() }
}

#[test]
fn copy_commands_are_kept_by_kind_and_their_variables_are_not_replaced() {
    let text = "set SRC = wrong\n\
        frm.xfr.copycmd in noalloc timeout 2h /bin/tape -c $SRC $DST\n\
        frm.xfr.copycmd url in /bin/far $SRC $DST\n\
        frm.xfr.copycmd out /bin/totape $SRC $DST\n\
        frm.xfr.migr.idlehold 3m\n\
        frm.xfr.migr.waittime 20m\n\
        frm.xfr.copymax split 7 3\n\
        frm.xfr.qcheck /var/queue\n\
        oss.remoteroot root://far.example.org/\n\
        oss.rsscmd /bin/mss -v\n\
        oss.xfr deny 10m\n\
        all.export /store stage\n";
    let Loaded { effective, report } = loaded(text);
    assert_eq!(problems(&report), []);
    let residency = &effective.residency;
    let tape = StageProgram {
        command: program("/bin/tape", &["-c", "$SRC", "$DST"]),
        timeout: Some(Duration::from_secs(7200)),
        creates_file: true,
    };
    let far =
        StageProgram { command: program("/bin/far", &["$SRC", "$DST"]), timeout: None, creates_file: false };
    assert_eq!((&residency.from_path.value, &residency.from_url.value), (&Some(tape), &Some(far)));
    let to_tape = StageProgram {
        command: program("/bin/totape", &["$SRC", "$DST"]),
        timeout: None,
        creates_file: false,
    };
    assert_eq!((&residency.to_path.value, &residency.to_url.value), (&Some(to_tape), &None));
    let times = (residency.migration_idle.as_secs(), residency.migration_interval.as_secs());
    assert_eq!(times, (180, 1200));
    assert_eq!(residency.slots.value, CopySlots { inward: 7, outward: 3 });
    assert_eq!(residency.remote_root.value.as_deref(), Some("root://far.example.org/"));
    assert_eq!(residency.catalog.value, Some(program("/bin/mss", &["-v"])));
    assert_eq!(residency.deny.value, Duration::from_secs(600));
    assert_eq!(effective.transfer_directory(), PathBuf::from("/var/queue"));
    // The values as they are shown have the same effect.
    let lines: Vec<String> = show(&effective)
        .into_iter()
        .filter(|line| line.directive.starts_with("frm.") || line.directive.starts_with("oss."))
        .filter_map(|line| Some(format!("{} {}\n", line.directive, line.value?)))
        .collect();
    let again = loaded(&format!("{}all.export /store stage\n", lines.concat()));
    assert_eq!(problems(&again.report), []);
    let values = |effective: &Effective| {
        let values = &effective.residency;
        let programs = [&values.from_path, &values.from_url, &values.to_path, &values.to_url];
        let times = [&values.deny, &values.migration_idle, &values.migration_interval];
        (
            programs.map(|setting| setting.value.clone()),
            times.map(|setting| setting.value),
            values.slots.value,
        )
    };
    assert_eq!(values(&again.effective), values(&effective));
}

#[test]
fn the_policy_of_purges_has_the_form_of_xrootd() {
    let rule = |text: &str| {
        let Loaded { effective, report } = loaded(text);
        assert_eq!(problems(&report), [], "{text}");
        // The value as it is shown has the same effect.
        let shown = show(&effective).into_iter().filter(|line| line.directive == "frm.purge.policy");
        let shown: String =
            shown.filter_map(|line| Some(format!("frm.purge.policy {}\n", line.value?))).collect();
        let values = |effective: &Effective| -> Vec<PurgeRule> {
            effective.residency.purge_rules().map(|rule| rule.value).collect()
        };
        let again = values(&loaded(&shown).effective);
        assert_eq!(again, values(&effective), "{text}");
        again
    };
    let (percent, bytes) = (FreeSpaceLimit::Percent, FreeSpaceLimit::Bytes);
    let hold = Duration::from_secs(20 * 3600);
    let all = |free| vec![PurgeRule { free, hold, asks_program: false }];
    assert_eq!(rule(""), all(None), "nothing is removed unasked");
    assert_eq!(rule("frm.purge.policy * 2% 3%\n"), all(Some((percent(2), percent(3)))));
    assert_eq!(rule("frm.purge.policy * 5%\n"), all(Some((percent(5), percent(6)))));
    assert_eq!(rule("frm.purge.policy * 10k\n"), all(Some((bytes(10_240), bytes(12_288)))));
    assert_eq!(rule("frm.purge.policy * nopurge\n"), all(None));
    assert_eq!(rule("frm.purge.policy * 1g 2g hold forever\n"), all(None));
    // Those of spaces have their own values, in any order.
    let public = PurgeRule {
        free: Some((percent(5), percent(9))),
        hold: Duration::from_secs(60),
        asks_program: false,
    };
    let lines = ["frm.purge.policy public 5% 9% hold 1m\n", "frm.purge.policy * nopurge\n"];
    let both = [all(None), vec![public]].concat();
    assert_eq!(rule(&lines.concat()), both);
    assert_eq!(rule(&[lines[1], lines[0]].concat()), both);
    for (line, kind) in [
        ("* 9% 5%", ProblemKind::BadValue),
        ("* 5% 5%", ProblemKind::BadValue),
        ("* 5% 5g", ProblemKind::BadValue),
        ("* 101%", ProblemKind::BadValue),
        ("* 5% soon", ProblemKind::BadValue),
        ("* 5% 7% polprog", ProblemKind::BadValue),
    ] {
        let Loaded { effective, report } = loaded(&format!("frm.purge.policy {line}\n"));
        let kinds: Vec<_> = report.problems().iter().map(|problem| problem.kind).collect();
        assert_eq!(kinds, [kind], "{line}: {report}");
        // A line that is not in force removes nothing, nor does a program that is not asked.
        assert_eq!(effective.residency.purge.free, None, "{line}");
    }
}

#[test]
fn a_program_selects_files_if_it_is_defined_before_its_policy() {
    let program = |text: &str| {
        let Loaded { effective, report } = loaded(text);
        assert!(report.is_ok(), "{text}: {report}");
        (effective.residency.purge_program.value.clone(), effective.residency.purge.asks_program)
    };
    let (found, asks) =
        program("frm.purge.polprog pfn fsize |/bin/select -v\nfrm.purge.policy * 5% 7% polprog\n");
    let found = found.unwrap();
    assert_eq!(
        (found.command.path.to_str(), &*found.command.arguments),
        (Some("/bin/select"), &["-v".to_owned()][..])
    );
    assert_eq!(found.variables, ["pfn", "fsize"]);
    assert!(asks);
    assert_eq!(
        program("frm.purge.policy = | /bin/select\n").0.map(|program| program.variables),
        Some(Vec::new())
    );
    for bad in ["frm.purge.polprog pfn\n", "frm.purge.polprog name |/bin/x\n", "frm.purge.polprog |bin/x\n"] {
        assert!(!loaded(bad).report.is_ok(), "{bad}");
    }
    // The values as they are shown have the same effect.
    let text =
        "frm.purge.dirhold 2h\nfrm.purge.polprog pfn |/bin/select -v\nfrm.purge.policy * 5% 7% polprog\n";
    let effective = loaded(text).effective;
    let shown = show(&effective).into_iter().filter(|line| line.directive.starts_with("frm.purge."));
    let shown: String =
        shown.filter_map(|line| Some(format!("{} {}\n", line.directive, line.value?))).collect();
    let again = loaded(&shown).effective;
    let values = |effective: &Effective| {
        let residency = &effective.residency;
        let (program, hold) = (&residency.purge_program.value, residency.purge_directories.value);
        (program.clone(), hold, residency.purge.value)
    };
    assert_eq!(values(&again), values(&effective), "{shown}");
    let hold = |text: &str| {
        loaded(&format!("frm.purge.dirhold {text}\n")).effective.residency.purge_directories.value
    };
    assert_eq!(hold("2h"), Some(Duration::from_secs(7200)));
    assert_eq!((hold("forever"), hold("-1")), (None, None));
}

#[test]
fn an_export_that_purges_needs_a_way_back() {
    let reported = |text: &str| {
        let report = check(&loaded(text).effective, &Directories, Strictness::Strict);
        let all = problems(&report).into_iter().map(|(_, text)| text);
        all.filter(|text| text.contains("purge")).collect::<Vec<_>>()
    };
    let policy = "frm.purge.policy * 2% 3%\n";
    let copy = format!("{policy}all.adminpath /var/spool/xrootd\nfrm.xfr.copycmd /bin/tape $SRC $DST\n");
    let found = reported("all.export /store stage purge\n");
    assert!(found.len() == 1 && found[0].contains("nothing is purged without frm.purge.policy"), "{found:?}");
    for text in [format!("{policy}all.export /store purge\n"), format!("{copy}all.export /store purge\n")] {
        let found = reported(&text);
        assert!(found.len() == 1 && found[0].contains("a purged file cannot come back"), "{found:?}");
    }
    assert_eq!(reported(&format!("{copy}all.export /store stage purge\n")), Vec::<String>::new());
    let spaces = format!("{copy}oss.space public /disks\n");
    assert_eq!(reported(&format!("{spaces}all.export /store stage purge\n")), Vec::<String>::new());
    let unknown = format!("{spaces}frm.purge.policy data 5% 7%\nall.export /store stage purge\n");
    let found = reported(&unknown);
    assert!(found.len() == 1 && found[0].contains("there is no such space"), "{found:?}");
    let known = unknown.replace("oss.space public", "oss.space data");
    assert_eq!(reported(&known), Vec::<String>::new());
    let users = format!("{copy}ofs.osslib ++ libXrdMultiuser.so\n");
    let found = reported(&format!("{users}all.export /store stage purge\n"));
    assert!(found.iter().any(|text| text.contains("files of other users are not purged")), "{found:?}");
    let kept = "frm.purge.policy * nopurge\nall.export /store purge\n";
    assert_eq!(reported(kept), Vec::<String>::new());
}

#[test]
fn the_queue_of_an_instance_is_its_own() {
    let of = |text: &str, instance: Option<&str>| {
        let request = ConfigInput {
            file: Some("f".to_owned()),
            evaluation: Evaluation { instance: instance.map(str::to_owned), ..Evaluation::default() },
            ..ConfigInput::default()
        };
        load(&request, &MemorySource::new().with("f", text)).effective.transfer_directory()
    };
    assert_eq!(of("all.adminpath /a\n", None), PathBuf::from("/a/frm"));
    assert_eq!(of("all.adminpath /a\n", Some("one")), PathBuf::from("/a/one/frm"));
    assert_eq!(of("frm.xfr.qcheck 60s /q\n", Some("one")), PathBuf::from("/q/one"));
}

#[test]
fn parts_that_are_not_in_force_are_reported() {
    for (line, kinds) in [
        ("oss.stagecmd | /usr/bin/frm_xfragent -c cfg", &[ProblemKind::NoEffect][..]),
        ("oss.stagecmd bin/stage", &[ProblemKind::BadValue]),
        ("frm.xfr.copycmd rmerr stats mdp /bin/tape", &[ProblemKind::NoEffect; 3]),
        ("frm.xfr.qcheck 60s", &[ProblemKind::NoEffect]),
        ("oss.xfr 4 9m 30 deny 1h", &[ProblemKind::NoEffect; 2]),
        ("oss.xfr 0", &[ProblemKind::BadValue]),
        ("oss.xfr keep 20m fdir /x up", &[ProblemKind::NoEffect, ProblemKind::NoEffect, ProblemKind::NotYet]),
        ("frm.xfr.copycmd in fast /bin/tape", &[ProblemKind::BadValue]),
        ("frm.xfr.copymax 0", &[ProblemKind::BadValue]),
        ("oss.remoteroot relative", &[ProblemKind::BadValue]),
    ] {
        let report = loaded(line).report;
        let found: Vec<ProblemKind> = report.problems().iter().map(|problem| problem.kind).collect();
        assert_eq!(found, kinds, "{line}: {report}");
    }
    let residency = loaded("oss.stagecmd sync /bin/stage -v \\$x\noss.xfr 7 1m\n").effective.residency;
    assert_eq!(residency.stage_program.value, Some(program("/bin/stage", &["-v", "$x"])));
    assert_eq!((residency.stage_threads.value, residency.has_copy_program()), (Some(7), true));
    // A program for the other direction does not stage, and one without a direction does both.
    for (direction, wanted) in [("in", (true, false)), ("out", (false, true)), ("", (true, true))] {
        let residency = loaded(&format!("frm.xfr.copycmd {direction} /bin/tape $SRC")).effective.residency;
        assert_eq!((residency.has_copy_program(), residency.has_migration_program()), wanted);
    }
}

#[test]
fn a_program_that_is_run_for_each_file_is_not_asynchronous() {
    for line in ["oss.stagecmd async /bin/stage", "oss.stagecmd async creates /bin/stage"] {
        // Nor does an earlier program stay in force in its place.
        let loaded = loaded(&format!("oss.stagecmd async creates |/bin/earlier\n{line}\n"));
        let problems = loaded.report.problems();
        assert_eq!(problems.len(), 1, "{line}: {}", loaded.report);
        assert!(problems[0].severity == Severity::Error, "{line}");
        assert!(problems[0].allowed.contains("frm.xfr.copycmd in"), "{line}: {}", problems[0].allowed);
        let residency = &loaded.effective.residency;
        assert!(!residency.has_copy_program() && !residency.stage_creates, "{line}");
        assert!(!residency.stage_form.reads_lines(), "{line}");
    }
    for line in ["oss.stagecmd |/usr/bin/frm_xfragent", "oss.stagecmd async | /usr/bin/frm_xfragent -c cfg"] {
        let agent = loaded(&format!("oss.stagecmd creates /bin/earlier\n{line}\n"));
        assert!(!agent.effective.residency.has_copy_program(), "{line}");
        assert!(!agent.effective.residency.stage_creates, "{line}");
    }
    let agent = loaded("oss.stagecmd creates |/usr/bin/frm_xfragent").effective;
    let shown =
        show(&agent).into_iter().find(|line| line.directive == "oss.stagecmd").unwrap().value.unwrap();
    for values in [agent.residency, loaded(&format!("oss.stagecmd {shown}")).effective.residency] {
        assert!(values.stage_creates && values.stage_program.is_none());
    }
}

#[test]
fn the_words_of_stagecmd_select_the_form_of_its_program() {
    for (line, form, creates) in [
        ("oss.stagecmd |/opt/agent -v", StageForm::Silent, false),
        ("oss.stagecmd sync creates | /opt/agent -v", StageForm::Silent, true),
        ("oss.stagecmd async sync |/opt/agent -v", StageForm::Silent, false),
        ("oss.stagecmd sync async |/opt/agent -v", StageForm::Reporting, false),
        ("oss.stagecmd creates async |/opt/agent -v", StageForm::Reporting, true),
        ("oss.stagecmd creates |/bin/earlier\noss.stagecmd /opt/agent -v", StageForm::PerFile, false),
        ("oss.stagecmd creates /opt/agent -v", StageForm::PerFile, true),
    ] {
        let effective = loaded(line).effective;
        let values = &effective.residency;
        assert_eq!(values.stage_program.value, Some(program("/opt/agent", &["-v"])), "{line}");
        assert_eq!((values.stage_form, values.stage_creates), (form, creates), "{line}");
        let shown = show(&effective);
        let shown =
            shown.iter().find(|line| line.directive == "oss.stagecmd").unwrap().value.clone().unwrap();
        let again = loaded(&format!("oss.stagecmd {shown}")).effective.residency;
        assert_eq!((again.stage_form, again.stage_creates), (form, creates), "{shown}");
    }
}

#[test]
fn failures_of_prepare_requests_are_kept_for_a_time() {
    let keep = |text: &str| loaded(text).effective.residency.prepare_keep.value;
    assert_eq!(keep(""), Duration::from_secs(86_400));
    assert_eq!(keep("xrootd.prep keep 10m"), Duration::from_secs(600));
    let all = loaded("xrootd.prep scrub 5 keep 3d logdir /var/prep");
    assert_eq!(all.effective.residency.prepare_keep.value, Duration::from_secs(3 * 86_400));
    let kinds: Vec<_> = all.report.problems().iter().map(|problem| problem.kind).collect();
    assert_eq!(kinds, [ProblemKind::NoEffect; 2]);
    for line in ["xrootd.prep", "xrootd.prep keep", "xrootd.prep keep often", "xrootd.prep logdir prep"] {
        let report = loaded(line).report;
        assert!(
            report.problems().iter().any(|problem| problem.severity == Severity::Error),
            "{line}: {report}"
        );
    }
}

#[test]
fn the_name_space_daemon_gets_events_below_a_directory() {
    use NameSpaceDaemon::{Ignored, Optional, Required};
    for (line, daemon, directory) in [
        ("", Ignored, None),
        ("frm.all.cnsd auto", Optional, None),
        ("frm.all.cnsd ignore", Ignored, None),
        ("frm.all.cnsd require", Required, None),
        ("frm.all.cnsd require apath /a\nfrm.all.cnsd auto apath /b", Optional, Some("/b")),
    ] {
        let effective = loaded(line).effective;
        let wanted = NameSpaceTarget { daemon, directory: directory.map(PathBuf::from) };
        assert_eq!(effective.residency.name_space.value, wanted, "{line}");
        let shown = show(&effective);
        let shown =
            shown.iter().find(|line| line.directive == "frm.all.cnsd").unwrap().value.clone().unwrap();
        let again = loaded(&format!("frm.all.cnsd {shown}")).effective.residency.name_space;
        assert_eq!(again.value, wanted, "{shown}");
    }
    for line in ["frm.all.cnsd", "frm.all.cnsd maybe", "frm.all.cnsd auto apath", "frm.all.cnsd auto apath b"]
    {
        let report = loaded(line).report;
        assert!(
            report.problems().iter().any(|problem| problem.severity == Severity::Error),
            "{line}: {report}"
        );
    }
}

#[test]
fn a_stage_program_may_read_lines() {
    let message = "oss.stagemsg + $RID  $NOTIFY \\$x $LFN $DST\n";
    for (line, arguments) in
        [("oss.stagecmd async |/opt/agent", &[][..]), ("oss.stagecmd async | /opt/agent -v", &["-v"])]
    {
        let residency = loaded(&format!("{line}\n{message}")).effective.residency;
        assert_eq!(residency.stage_program.value, Some(program("/opt/agent", arguments)));
        assert!(residency.stage_form == StageForm::Reporting && residency.has_copy_program());
        assert_eq!(residency.stage_message.as_deref(), Some("+ $RID $NOTIFY \\$x $LFN $DST"));
    }
    let shown = show(&loaded(&format!("oss.stagecmd async | /opt/agent -v\n{message}")).effective);
    let value = |name: &str| shown.iter().find(|line| line.directive == name).unwrap().value.clone().unwrap();
    assert!(value("oss.stagecmd").ends_with("async |/opt/agent -v"), "{}", value("oss.stagecmd"));
    assert!(value("oss.stagemsg").ends_with("$LFN $DST"), "{}", value("oss.stagemsg"));

    let reported_with = |options: &str, text: &str, word: &str| {
        let text = format!("all.adminpath /var/spool/xrootd\nall.export /store stage {options}\n{text}");
        let report = check(&loaded(&text).effective, &Directories, Strictness::Strict);
        let texts = problems(&report).into_iter().map(|(_, text)| text);
        texts.filter(|text| text.contains(word)).collect::<Vec<_>>()
    };
    let reported = |text: &str| reported_with("", text, "stagemsg");
    let agent = "oss.stagecmd async |/opt/agent\n";
    assert_eq!(reported(&format!("{agent}{message}")), Vec::<String>::new());
    // XRootD's own line names no file to write.
    for without in ["", "oss.stagemsg + $RID $NOTIFY 0 wfn $LFN\n"] {
        let found = reported(&format!("{agent}{without}"));
        assert!(found.len() == 1 && found[0].contains("error") && found[0].contains("$DST"), "{found:?}");
    }
    let wordless = reported(&format!("{agent}oss.stagemsg $LFN $DST\n"));
    assert!(wordless.len() == 1 && wordless[0].contains("$RID"), "{wordless:?}");
    let unread = reported(&format!("oss.stagecmd /bin/stage\n{message}"));
    assert!(unread.len() == 1 && unread[0].contains("no program reads lines"), "{unread:?}");
    // A program that reports nothing needs no word, but the checksums of files.
    let silent = "oss.stagecmd |/opt/agent\noss.stagemsg $LFN $DST\n";
    assert_eq!(reported_with("", &format!("{silent}oss.rsscmd /opt/names\n"), "stage"), Vec::<String>::new());
    let found = reported_with("", silent, "stagecmd");
    assert!(found.len() == 1 && found[0].contains("error") && found[0].contains("async |"), "{found:?}");
    // Only one program makes the files of clients, and not for other users.
    let creates = "oss.stagecmd creates /opt/agent\n";
    assert_eq!(reported_with("", creates, "creates"), Vec::<String>::new());
    assert_eq!(
        reported_with("", &format!("oss.stagecmd creates async |/opt/agent\n{message}"), "creates"),
        Vec::<String>::new()
    );
    for (options, program, more) in [
        ("rcreate", creates, ""),
        ("", creates, "ofs.osslib ++ libXrdMultiuser.so\n"),
        // It would never be asked for a new file, because mass storage does not have that.
        ("", creates, "oss.rsscmd /opt/names\n"),
        ("", "oss.stagecmd creates |/opt/agent\n", "oss.stagemsg $LFN $DST\noss.rsscmd /opt/names\n"),
        ("", "oss.stagecmd creates |/opt/agent\n", "oss.stagemsg $LFN $DST\n"),
    ] {
        let found = reported_with(options, &format!("{program}{more}"), "remove creates");
        assert!(found.len() == 1 && found[0].contains("error"), "{options} {program}{more}: {found:?}");
    }
}

/// A disk on which everything is a directory.
struct Directories;
impl Disk for Directories {
    fn look(&self, _: &Path) -> io::Result<PathAccess> {
        Ok(PathAccess::Directory { readable: true, writable: true })
    }
}

#[test]
fn an_export_that_stages_needs_a_program() {
    let reported = |text: &str| {
        let report = check(&loaded(text).effective, &Directories, Strictness::Strict);
        problems(&report)
            .into_iter()
            .map(|(_, text)| text)
            .filter(|text| text.contains("stage"))
            .collect::<Vec<_>>()
    };
    let without = reported("all.export /store stage\n");
    assert!(
        without.len() == 1 && without[0].contains("there is no program that copies files"),
        "{without:?}"
    );
    let copy = "frm.xfr.copycmd /bin/tape $SRC $DST\n";
    let in_tmp = reported(&format!("{copy}all.export /store stage\n"));
    assert!(in_tmp.len() == 1 && in_tmp[0].contains("would be in /tmp/frm"), "{in_tmp:?}");
    for place in ["all.adminpath /var/spool/xrootd", "frm.xfr.qcheck /var/spool/frm"] {
        assert_eq!(reported(&format!("{place}\n{copy}all.export /store stage\n")), Vec::<String>::new());
    }
    let copy = format!("all.adminpath /var/spool/xrootd\n{copy}");
    assert_eq!(reported(&format!("{copy}all.export /store stage\n")), Vec::<String>::new());
    let both = reported(&format!("{copy}oss.stagecmd /bin/stage\nall.export /store stage\n"));
    assert!(both.len() == 1 && both[0].contains("two programs stage files"), "{both:?}");
    let spaces = format!("{copy}oss.space public /disks\n");
    assert_eq!(reported(&format!("{spaces}all.export /store stage\n")), Vec::<String>::new());
}

#[test]
fn an_export_that_checks_needs_a_catalog() {
    let reported = |text: &str| {
        let text = format!("all.adminpath /var/spool/xrootd\nfrm.xfr.copycmd /bin/tape $SRC $DST\n{text}");
        let report = check(&loaded(&text).effective, &Directories, Strictness::Strict);
        let texts = problems(&report).into_iter().map(|(_, text)| text);
        texts.filter(|text| ["check:", "dread:", "rcreate:"].iter().any(|word| text.contains(word))).collect()
    };
    for asked in ["check", "dread", "rcreate"] {
        let without: Vec<String> = reported(&format!("all.export /store stage {asked}\n"));
        assert!(without.len() == 1 && without[0].contains("there is no program"), "{without:?}");
        let catalog = "oss.rsscmd /bin/names\n";
        let plain = reported(&format!("{catalog}all.export /store {asked}\n"));
        assert!(plain.len() == 1 && plain[0].contains("neither staged nor migrated"), "{plain:?}");
        for option in ["stage", "mig"] {
            let text = format!("{catalog}all.export /store {option} {asked}\n");
            // Nothing copies the content of a file that was created there.
            let stays_empty = (option, asked) == ("stage", "rcreate");
            let found = reported(&text);
            assert_eq!(found.len(), usize::from(stays_empty), "{found:?}");
        }
    }
    let users = "oss.rsscmd /bin/names\nofs.osslib ++ libXrdMultiuser.so\nall.export /store stage rcreate\n";
    assert!(reported(users).iter().any(|text| text.contains("only the disk knows")));
    let both = reported("oss.rsscmd /bin/names\nall.export /store mig rcreate check\n");
    assert!(both.len() == 1 && both[0].contains("the file that it has created itself"), "{both:?}");
}

#[test]
fn an_export_that_migrates_needs_a_program_for_copies_out() {
    let reported = |text: &str| {
        let place = "all.adminpath /var/spool/xrootd\n";
        let report = check(&loaded(&format!("{place}{text}")).effective, &Directories, Strictness::Strict);
        let texts = problems(&report).into_iter().map(|(_, text)| text);
        texts.filter(|text| text.contains("mig:")).collect::<Vec<_>>()
    };
    for program in ["", "frm.xfr.copycmd in /bin/tape $SRC $DST\n"] {
        let without = reported(&format!("{program}all.export /store mig\n"));
        assert!(without.len() == 1 && without[0].contains("set frm.xfr.copycmd out"), "{without:?}");
    }
    for program in ["out", ""] {
        let text = format!("frm.xfr.copycmd {program} /bin/tape $SRC $DST\nall.export /store mig\n");
        assert_eq!(reported(&text), Vec::<String>::new());
    }
    // What a client removes is staged again by the next one.
    let both = "frm.xfr.copycmd /bin/tape $SRC $DST\nall.export /store stage mig\n";
    let with = |more: &str| loaded(&format!("all.adminpath /var/spool/xrootd\n{more}{both}"));
    let warned = problems(&check(&with("").effective, &Directories, Strictness::Strict));
    let (_, text) = warned.iter().find(|(_, text)| text.contains("mig stage")).expect("a warning");
    assert!(text.contains("remove or rename come back") && text.contains("use nostage"), "{text}");
    // With such a program, it is removed from mass storage.
    let warned =
        problems(&check(&with("oss.rsscmd /bin/names\n").effective, &Directories, Strictness::Strict));
    assert!(!warned.iter().any(|(_, text)| text.contains("mig stage")), "{warned:?}");
}

#[test]
fn a_catalog_program_may_read_lines() {
    for (line, reads_lines, shown) in [
        ("oss.rsscmd /bin/mss -v", false, "/bin/mss -v"),
        ("oss.rsscmd |/bin/mss -v", true, "|/bin/mss -v"),
        ("oss.rsscmd | /bin/mss -v", true, "|/bin/mss -v"),
        ("oss.rsscmd |/bin/mss\noss.rsscmd /bin/mss -v", false, "/bin/mss -v"),
    ] {
        let Loaded { effective, .. } = loaded(&format!("{line}\n"));
        assert_eq!(effective.residency.catalog.value, Some(program("/bin/mss", &["-v"])), "{line}");
        assert_eq!(effective.residency.catalog_reads_lines, reads_lines, "{line}");
        let text = show(&effective).into_iter().find(|line| line.directive == "oss.rsscmd").unwrap();
        assert_eq!(text.value.as_deref(), Some(shown));
    }
    for wrong in ["|", "|mss", "mss"] {
        assert!(!loaded(&format!("oss.rsscmd {wrong}\n")).report.is_ok(), "{wrong}");
    }
}

#[test]
fn records_of_transfers_have_collectors_with_their_events() {
    let line = "frm.all.monitor ident 5m dest stage migr [::1]:9930 dest purge c.example.org:9931\n";
    let Loaded { effective, report } = loaded(line);
    assert_eq!(problems(&report), []);
    let destination = |events: [bool; 3], address: &str| RecordDestination {
        migrations: events[0],
        purges: events[1],
        stages: events[2],
        address: address.parse().unwrap(),
    };
    let destinations = vec![
        destination([true, false, true], "[::1]:9930"),
        destination([false, true, false], "c.example.org:9931"),
    ];
    let wanted = TransferMonitoring { interval: Duration::from_secs(300), destinations };
    assert_eq!(effective.residency.monitoring.value, Some(wanted));
    let shown = show(&effective).into_iter().find(|line| line.directive == "frm.all.monitor").unwrap();
    let again = loaded(&format!("frm.all.monitor {}\n", shown.value.unwrap()));
    assert_eq!(again.effective.residency.monitoring.value, effective.residency.monitoring.value);
    for (wrong, text) in [
        ("", "monitor option"),
        ("ident 5m", "no destination"),
        ("dest h:1", "nothing is sent to h:1"),
        ("dest stage", "monitor dest"),
        ("dest stage /run/socket", "monitor event or destination"),
        ("dest stage h", "monitor event or destination"),
        ("flush 30 dest stage h:1", "monitor option"),
        ("dest stage h:1 dest stage h:2 dest stage h:3", "there can be 2 destinations"),
    ] {
        let report = loaded(&format!("frm.all.monitor {wrong}\n")).report;
        assert!(!report.is_ok() && report.to_string().contains(text), "{wrong}: {report}");
    }
}
