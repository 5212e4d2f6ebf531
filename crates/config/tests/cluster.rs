//! Cluster directives: one file read as both programs of a node, all values, and errors.

use std::time::Duration;

use config::*;

fn read(text: &str, instance: Option<&str>, strictness: Strictness) -> Loaded {
    let request = ConfigInput {
        file: Some("f".to_owned()),
        evaluation: Evaluation {
            program: "xrootd".to_owned(),
            instance: instance.map(str::to_owned),
            host: "disk1.example.org".to_owned(),
            ..Evaluation::default()
        },
        strictness,
        ..ConfigInput::default()
    };
    load(&request, &MemorySource::new().with("f", text).with("/id", "disk-17\n").with("/empty", "\n"))
}

fn good(text: &str) -> Effective {
    let Loaded { effective, report } = read(text, None, Strictness::Strict);
    let accepted = [ProblemKind::NoEffect, ProblemKind::NotYet];
    let problems: Vec<_> = report.problems().iter().filter(|p| !accepted.contains(&p.kind)).collect();
    assert!(problems.is_empty(), "{text}: {report}");
    effective
}

fn says(text: &str) -> Vec<String> {
    read(text, None, Strictness::Strict).report.problems().iter().map(ToString::to_string).collect()
}

/// A typical file of a site: one file for all nodes, two ports by program.
const FILE: &str = "\
all.manager redir.example.org:1213
all.manager redir2.example.org 1213
all.role server
all.role manager if redir*.example.org
all.export /store r/w
if exec cmsd
  xrd.port 3213
  cms.delay lookup 2 qdl 3 servers 2
  cms.allow host *.example.org
else
  xrd.port 2094
  cms.conwait 7
  cms.delay lookup 9
fi
";

#[test]
fn one_file_is_read_as_both_programs() {
    let effective = good(FILE);
    assert_eq!(effective.network.port.value, Port::Number(2094));
    let cluster = &effective.cluster;
    assert_eq!(cluster.role.value, NodeRole::Server);
    assert_eq!(cluster.port.value, Some(Port::Number(3213)));
    assert_eq!(cluster.port.origin.to_string(), "f:7:3");
    assert_eq!(cluster.delay.lookup.value, Duration::from_secs(2), "as cmsd reads it");
    assert_eq!(cluster.delay.silence.value, Some(Duration::from_secs(3)));
    assert_eq!(cluster.delay.quorum.value, Quorum::Count(2));
    assert_eq!(cluster.contact_wait.value, Duration::from_secs(7), "xrootd reads this one");
    let managers: Vec<String> = cluster.managers.iter().map(|m| m.value.to_string()).collect();
    assert_eq!(managers, ["redir.example.org:1213", "redir2.example.org:1213"]);
    assert!(cluster.is_cluster_node());
    assert_eq!(cluster.parents().len(), 2);
    assert!(!good("all.role server\n").cluster.is_cluster_node());
}

#[test]
fn errors_in_either_part_are_reported_once() {
    let both = "all.manager h:1\ncms.ping x\nxrd.port y\n";
    assert_eq!(says(both).len(), 2, "{:?}", says(both));
    let cmsd = "if exec cmsd\ncms.ping x\nxrootd.bogus\nfi\n";
    assert_eq!(says(cmsd), ["f:2:10: error: cms.ping: ping x is not a number; allowed: number[s|m|h|d]"]);
    let roles = "if exec cmsd\nall.role manager\nelse\nall.role supervisor\nfi\n";
    assert_eq!(
        says(roles),
        [
            "f:2:1: error: xrootd is supervisor and cmsd is manager; both are one process: give them one role (f:4:1)"
        ]
    );
    let one = good("if exec xrootd\nall.role manager\nfi\n");
    assert_eq!(one.cluster.role.value, NodeRole::Manager, "cmsd has no other role");
}

#[test]
fn defaults_equal_those_of_the_reference() {
    let cluster = Effective::default().cluster;
    let delay = &cluster.delay;
    assert_eq!(delay.lookup.value.as_secs(), 5);
    assert_eq!(delay.silence.value, None);
    assert_eq!(delay.hold.value.as_millis(), 178);
    assert_eq!(delay.service.value.as_secs(), 15);
    assert_eq!(delay.suspend.value.as_secs(), 30);
    assert_eq!(delay.quorum.value, Quorum::Percent(80));
    assert_eq!((delay.drop.value, delay.stagers.value), (None, 3));
    assert_eq!(cluster.sched.weights.value, LoadWeights::default());
    assert_eq!((cluster.sched.fuzz.value, cluster.sched.load_max.value), (20, None));
    assert_eq!(cluster.sched.reset.value.as_secs(), 3600);
    assert_eq!(cluster.space.least.value, FreeSpace { percent: 2, bytes: 10 << 30 });
    assert_eq!(cluster.space.enough.value, FreeSpace { percent: 5, bytes: 11 << 30 });
    assert_eq!(cluster.space.recalculate.value.as_secs(), 12);
    assert_eq!((cluster.ping.value.as_secs(), cluster.ping_usage.value), (60, 10));
    assert_eq!(cluster.location_hold.value.as_secs(), 8 * 3600);
    assert_eq!(cluster.contact_wait.value.as_secs(), 10);
    assert_eq!(cluster.load_interval.value.as_secs(), 180);
}

#[test]
fn managers_are_read_in_every_form() {
    for (line, shown) in [
        ("h.org:1213", "h.org:1213"),
        ("h.org 1213", "h.org:1213"),
        ("all h.org+:1213", "all h.org+:1213"),
        ("any h.org+ 1213", "h.org+:1213"),
        ("[::1]:1213", "[::1]:1213"),
        ("[fe80::2]+:1213", "[fe80::2]+:1213"),
        ("10.0.0.1:1213%a@SITE", "10.0.0.1:1213%a@SITE"),
        ("h.org 1213@SITE", "h.org:1213@SITE"),
        ("h.org%a 1213", "h.org:1213%a"),
    ] {
        let effective = good(&format!("all.manager {line}\n"));
        let manager = &effective.cluster.managers[0];
        assert_eq!(manager.value.to_string(), shown, "{line}");
        assert!(!manager.host.contains('['));
    }
    let meta = good("all.role manager\nall.manager meta m:1\nall.manager h:2\n");
    assert_eq!(meta.cluster.parents()[0].value, ManagerAddress::new("m", 1));
    assert_eq!(meta.cluster.peers()[0].value, ManagerAddress::new("h", 2));
    let many: String = (1..=17).map(|n| format!("all.manager h{n}:1\n")).collect();
    assert!(says(&many)[0].contains("more than 16 managers"));
    assert!(
        says("all.manager h:1\nall.manager h:1\n")[0]
            .contains("duplicate manager h:1, first defined at f:1:1")
    );
    assert_eq!(good("all.subcluster of top:1213\n").cluster.subcluster.as_ref().map(|m| m.port), Some(1213));
}

const BAD: [(&str, &str); 33] = [
    ("all.role king", "1:10: error: all.role: invalid role - king"),
    ("all.role peer manager", "1:10: error: all.role: invalid role - peer manager"),
    ("all.role proxy king", "1:10: error: all.role: invalid role - proxy king"),
    ("all.manager h", "1:13: error: all.manager: manager port not specified for h"),
    ("all.manager h:", "1:13: error: all.manager: unable to find tcp service"),
    ("all.manager h:0", "1:13: error: all.manager: tcp port 0 may not be less than 1"),
    ("all.manager h:70000", "1:13: error: all.manager: tcp port 70000 may not be greater than 65535"),
    ("all.manager ::1:1213", "1:13: error: all.manager: invalid manager '::1:1213'"),
    ("all.manager [::1:1213", "1:13: error: all.manager: invalid manager '[::1:1213'"),
    ("all.manager *.org:1213", "1:13: error: all.manager: invalid manager '*.org:1213'"),
    ("all.manager meta", "1:1: error: all.manager: manager host not specified"),
    ("cms.delay lookup 0", "1:18: error: cms.delay: delay lookup 0 may not be less than 1s"),
    ("cms.delay qdl 0", "1:15: error: cms.delay: delay qdl 0 may not be less than 1s"),
    ("cms.delay full -1", "1:16: error: cms.delay: delay full -1 is not a number"),
    ("cms.delay servers 200%", "1:19: error: cms.delay: delay servers 200% may not be greater than 100"),
    ("cms.delay rw 5", "1:14: error: cms.delay: delay rw 5 may not be greater than 2"),
    ("cms.delay bogus", "1:11: error: cms.delay: unknown option 'bogus'"),
    ("cms.sched cpu 101", "1:15: error: cms.sched: sched cpu 101 may not be greater than 100"),
    ("cms.sched affinity much", "1:20: error: cms.sched: invalid sched affinity 'much'"),
    ("cms.sched maxretries 3@h", "1:22: error: cms.sched: invalid sched redirect target 'h'"),
    ("cms.space min 5% 3%", "1:15: error: cms.space: absolute space min value not specified"),
    ("cms.space 5%", "1:11: error: cms.space: absolute space min value not specified"),
    ("cms.ping 1x", "1:10: error: cms.ping: ping 1x is not a number"),
    ("cms.fxhold 30", "1:12: error: cms.fxhold: fxhold 30 may not be less than 1m"),
    ("cms.blacklist check 0", "1:21: error: cms.blacklist: check 0 may not be less than 1s"),
    ("cms.cidtag abcdefghijklmnopq", "1:12: error: cms.cidtag: tag is > 16 characters"),
    ("cms.vnid x", "1:10: error: cms.vnid: invalid vnid 'x'"),
    ("cms.vnid </empty", "1:10: error: cms.vnid: vnid '' is invalid"),
    ("cms.perf pgm x", "1:14: error: cms.perf: perf program x is not an absolute path"),
    ("scalla.clusterkey k", "1:19: error: scalla.clusterkey: non-absolute clusterkey path - k"),
    ("scalla.clusterkey /k except", "1:1: error: scalla.clusterkey: clusterkey except host not specified"),
    ("scalla.clusterkey /k except *.*", "1:29: error: scalla.clusterkey: invalid host pattern '*.*'"),
    ("cms.fsxeq rm", "1:1: error: cms.fsxeq: fsxeq program not specified"),
];

#[test]
fn errors_have_a_position() {
    for (line, expected) in BAD {
        let said = says(line);
        assert_eq!(said.len(), 1, "{line}: {said:?}");
        assert!(said[0].starts_with(&format!("f:{expected}")), "{line}: {}", said[0]);
    }
    assert!(says("cms.ping 2")[0].contains("ping 2 is raised to 3s"));
    let wide = read("all.seclib libXrdSec.so\n", None, Strictness::Legacy).report;
    assert!(!wide.is_ok(), "nodes must not join unauthenticated: {wide}");
}

const EVERYTHING: &str = "\
all.role supervisor
all.manager all redir+:1213
all.manager h:1213%i@S
all.export /store r/w
xrd.port 1094
xrd.allow host a
if exec cmsd
  xrd.port 1300
  xrd.allow host b
fi
cms.superport 2131
cms.allow host *.x
scalla.clusterkey /etc/k.keytab except real.x 10.*
cms.whitelist check 2m /w
cms.cidtag tag
cms.vnid </id
cms.delay lookup 4 qdl 6 hold 200 service 9 servers 70% suspend 8 drop 1m full * overload 3 nostage 2
cms.sched cpu 1 io 2 runq 3 mem 4 pag 5 space 6 fuzz 7 maxload 90 refreset 30m gshr 5 gsdflt 6
cms.sched affinity default randomized affpath last 2 tryhname 0 maxretries 3@[::1]:5 nomultisrc@h:6
cms.space linger 3 recalc 20 min 3% 4g 5% 6g mwfiles
cms.fxhold noloc 2m 3h
cms.mode r/w
cms.ping 20 usage 3
cms.perf int 30 pgm /bin/p a b
cms.dfs lookup central redirect immed retries 4 limit central =5 mdhold 2m qmax 10
cms.fsxeq rm rmdir /bin/x -f
cms.conwait 4
ofs.forward 2way rm mv
ofs.forward 1way trunc
cms.trace debug
";

#[test]
fn all_values_are_shown_as_they_were_read() {
    let effective = good(EVERYTHING);
    let cluster = &effective.cluster;
    assert_eq!(cluster.virtual_id.as_deref(), Some("disk-17"));
    assert_eq!(cluster.connect.len(), 2);
    assert_eq!(
        cluster.forwarding.value,
        Forwarding {
            rm: ForwardWay::TwoWay,
            mv: ForwardWay::TwoWay,
            trunc: ForwardWay::OneWay,
            ..Forwarding::default()
        }
    );
    let text: String = show(&effective)
        .iter()
        .filter(|line| line.directive != "-I")
        .filter_map(|line| Some(format!("{} {}\n", line.directive, line.value.as_deref()?)))
        .collect();
    let again = good(&text);
    let values = |effective: &Effective| -> Vec<_> {
        show(effective).into_iter().map(|line| (line.directive, line.value)).collect()
    };
    assert_eq!(values(&again), values(&effective), "{text}");
    assert!(changes(&again, &effective).is_empty());
    let alone = show(&good("all.export /store r/w\n"));
    assert!(
        alone.iter().all(|line| !line.directive.starts_with("cms.")),
        "a standalone server shows no cluster values"
    );
}

#[test]
fn a_cluster_key_counts_whichever_program_reads_it() {
    let key = |text: &str| {
        let effective = good(&format!("all.manager h:1\n{text}"));
        effective.cluster.key.as_ref().map(ToString::to_string)
    };
    assert_eq!(key(""), None);
    for program in ["cmsd", "xrootd"] {
        let text = format!("if exec {program}\nscalla.clusterkey /k except a 10.*\nfi\n");
        assert_eq!(key(&text).as_deref(), Some("/k except a 10.*"), "{program}");
    }
    let both = "if exec cmsd\nscalla.clusterkey /c\nelse\nscalla.clusterkey /x\nfi\n";
    assert_eq!(key(both).as_deref(), Some("/c"));
    let other = "scalla.clusterkey /k\nscalla.clusterkey /k2 except A.org\n";
    assert_eq!(key(other).as_deref(), Some("/k2 except a.org"), "the last one counts");
}

#[test]
fn the_second_space_limit_follows_the_first() {
    let space = |line: &str| good(&format!("cms.space {line}\n")).cluster.space;
    let limits = |line: &str| {
        let space = space(line);
        (space.least.value, space.enough.value)
    };
    let free = |percent, gigabytes: u64| FreeSpace { percent, bytes: gigabytes << 30 };
    assert_eq!(limits("min 5g"), (free(0, 5), free(0, 6)));
    assert_eq!(limits("3% 5g"), (free(3, 5), free(3, 6)));
    assert_eq!(limits("min 3% 5g 4% 8g linger 2"), (free(3, 5), free(4, 8)));
    assert_eq!(space("recalc 1").recalculate.value.as_secs(), 5);
}

#[test]
fn minimum_free_space_can_be_set_on_the_command_line() {
    let with = |min_free: &str| {
        let file = MemorySource::new().with("f", "all.manager h:1\ncms.space linger 3 min 3% 4g 5% 6g\n");
        let overrides = Overrides { min_free: Some(min_free.parse().unwrap()), ..Overrides::default() };
        let request = ConfigInput { file: Some("f".to_owned()), overrides, ..ConfigInput::default() };
        load(&request, &file).effective
    };
    let effective = with("10g");
    let shown: Vec<_> = show(&effective).into_iter().filter(|line| line.directive == "cms.space").collect();
    let shown: Vec<_> = shown
        .iter()
        .map(|line| (line.value.as_deref().unwrap_or_default(), line.origin.to_string()))
        .collect();
    assert_eq!(shown[0], ("linger 3", "f:2:1".to_owned()), "the other values are those of the file");
    assert_eq!(shown[2], ("min 10g 11g", "command line".to_owned()), "percentages are replaced");
    let limits = |min_free: &str| {
        let space = with(min_free).cluster.space;
        assert_eq!((space.least.percent, space.enough.percent), (0, 0));
        (space.least.bytes, space.enough.bytes)
    };
    // A tenth more, in whole MB.
    for (said, least, enough) in [("1m", 1 << 20, 2 << 20), ("500m", 500 << 20, 550 << 20), ("1", 1, 1 << 20)]
    {
        assert_eq!(limits(said), (least, enough), "{said}");
    }
    assert_eq!(limits("1.5g").1, 1690 << 20);
    for (text, why) in [
        (
            "",
            "no manager places files on this server; it is standalone; name its manager (--manager HOST), or omit the \
             option",
        ),
        (
            "all.role manager\nall.manager h:1\n",
            "a manager has no files of its own; set it on the servers below it",
        ),
    ] {
        let overrides = Overrides { min_free: "1g".parse().ok(), ..Overrides::default() };
        let request = ConfigInput { file: Some("f".to_owned()), overrides, ..ConfigInput::default() };
        let Loaded { report, .. } = load(&request, &MemorySource::new().with("f", text));
        assert_eq!(report.to_string(), format!("command line: error: --min-free: {why}\n"));
    }
    for (wrong, why) in [
        ("0", "free space 0 may not be less than 1; allowed: number[k|m|g|t], 1 to 4294967295m"),
        ("5%", "free space 5% is not a number; allowed: number[k|m|g|t]"),
        ("5000t", "free space 5000t may not be greater than 4294967295m"),
    ] {
        let said = wrong.parse::<FreeSpace>().unwrap_err();
        assert!(said.starts_with(why), "{said}");
    }
}

#[test]
fn contradictions_are_found() {
    struct NoDisk;
    impl Disk for NoDisk {
        fn look(&self, _: &std::path::Path) -> std::io::Result<PathAccess> {
            Ok(PathAccess::Directory { readable: true, writable: true })
        }
    }
    let checked = |text: &str| -> Vec<String> {
        let effective = read(text, None, Strictness::Strict).effective;
        check(&effective, &NoDisk, Strictness::Strict).problems().iter().map(ToString::to_string).collect()
    };
    assert!(checked("all.role supervisor\n")[0].contains("no manager is configured"));
    let ports = "all.role manager\nxrd.port 1213 if exec cmsd\nxrd.port 1213\n";
    assert_eq!(
        checked(ports),
        Vec::<String>::new(),
        "xrootd and cmsd read one number: the cluster port is another"
    );
    let ports = "all.role supervisor\nall.manager h:1\nxrd.port 2000\ncms.superport 2000\n";
    assert!(checked(ports)[0].contains("port 2000 is used for clients (f:3:1) and for nodes"));
    let ports = "all.role supervisor\nall.manager h:1\ncms.superport 2000\nxrd.protocol http:2000 *\n";
    assert!(checked(ports)[0].contains("port 2000 is used for clients (f:4:1) and for nodes"));
    assert!(checked("all.manager meta h:1\n")[0].contains("standalone"));
    assert_eq!(checked("all.role manager\nall.export /nowhere\n"), Vec::<String>::new());
}

#[test]
fn the_command_line_takes_precedence() {
    let request = ConfigInput {
        overrides: Overrides {
            role: Some(NodeRole::Supervisor),
            managers: vec![ManagerAddress::new("h", 5)],
            cluster_port: Some(Port::Number(7)),
            ..Overrides::default()
        },
        ..ConfigInput::default()
    };
    let Loaded { effective, report } = load(&request, &MemorySource::new());
    assert!(report.problems().is_empty());
    assert_eq!(effective.cluster.role, Setting::from_command_line(NodeRole::Supervisor));
    assert_eq!(effective.cluster.parents()[0].host, "h");
    assert_eq!(effective.cluster.supervisor_port.value, Port::Number(7));
    assert_eq!(effective.storage.exports[0].prefix, "/", "a redirector without exports has all of them");
}

#[test]
fn options_without_effect_are_reported_with_the_reason() {
    let text = "cms.dfs lookup central limit 5 mdhold 2m qmax 10 retries 3\nofs.forward 3way local:1 mv\n\
                cms.sched refreset 30m gshr 5 gsdflt 6\ncms.delay startup 9 rw 1 qdn 2 discard 3 delnode 5m peer 1\n\
                cms.sched tryhname 0\nall.role manager\nall.manager h:1213\nofs.authorize off\n";
    let problems = read(text, None, Strictness::Strict).report.problems().to_vec();
    let idle: Vec<_> = problems.iter().filter(|problem| problem.kind == ProblemKind::NoEffect).collect();
    assert!(!idle.iter().any(|problem| problem.what.contains("cms.dfs")), "{problems:?}");
    for word in ["3way", "startup", "rw", "qdn", "discard", "delnode", "peer", "tryhname"] {
        let said = idle.iter().find(|problem| problem.what.contains(&format!("'{word}'")));
        let said = said.unwrap_or_else(|| panic!("{word}: {problems:?}"));
        assert!(said.what.ends_with("is accepted without effect") && !said.allowed.is_empty(), "{said}");
    }
    assert!(problems.iter().all(|problem| problem.kind != ProblemKind::NotYet), "{problems:?}");
    let sched = problems.iter().filter(|problem| problem.what.contains("cms.sched"));
    assert_eq!(sched.count(), 1, "{problems:?}");
}
