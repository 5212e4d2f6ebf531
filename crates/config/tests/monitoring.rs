//! Directives of monitoring.

use config::*;
use std::time::Duration;

fn read(text: &str) -> Loaded {
    let request = ConfigInput { file: Some("f".to_owned()), ..ConfigInput::default() };
    load(&request, &MemorySource::new().with("f", text))
}

fn reports(text: &str) -> SummaryReports {
    let loaded = read(text);
    assert_eq!(loaded.report.to_string(), "", "{text}");
    loaded.effective.monitoring.reports.value.expect("reports")
}

/// The parts with these names.
fn parts(names: &str) -> ReportParts {
    names
        .split_whitespace()
        .fold(ReportParts::NONE, |parts, name| parts.with(ReportPart::named(name).expect(name)))
}

#[test]
fn without_options_a_report_has_all_parts() {
    assert_eq!(*read("").effective.monitoring.reports, None);
    let found = reports("xrd.report c.example.org:9931");
    let host = ReportDestination::Host { host: "c.example.org".to_owned(), port: 9931 };
    assert_eq!((found.destinations, found.interval), (vec![host], Duration::from_secs(600)));
    assert_eq!((found.xml, found.json), (ReportParts::all(), ReportParts::NONE));
}

#[test]
fn options_choose_the_parts_of_each_kind_of_report() {
    let all = ReportParts::all();
    for (options, xml, json) in [
        ("all", all, ReportParts::NONE),
        ("link process", parts("link process"), ReportParts::NONE),
        ("all -link -poll", all.without(ReportPart::Links).without(ReportPart::Polls), ReportParts::NONE),
        ("prot sgen sync", parts("protocols sgen"), ReportParts::NONE),
        // Options that leave nothing.
        ("-link", all.without(ReportPart::Info), ReportParts::NONE),
        ("json", all, parts("addons plugins")),
        ("json plugins syncwp", all, parts("plugins")),
        ("off json all -plugins", ReportParts::NONE, parts("addons")),
        ("info json off", parts("info"), ReportParts::NONE),
    ] {
        let found = reports(&format!("xrd.report h:1 every 1m {options}"));
        assert_eq!((found.xml, found.json), (xml, json), "{options}");
        assert_eq!(found.interval, Duration::from_secs(60));
    }
}

#[test]
fn values_are_shown_as_directives_with_the_same_effect() {
    for text in ["h:1,[::1]:2 every 5s info link", "/run/collector all json plugins", "h:1 off json"] {
        let found = reports(&format!("xrd.report {text}"));
        let shown: Vec<String> = show(&read(&format!("xrd.report {text}")).effective)
            .iter()
            .filter(|line| line.directive == "xrd.report")
            .filter_map(|line| line.value.clone())
            .collect();
        assert_eq!(shown.len(), 1);
        assert_eq!(reports(&format!("xrd.report {}", shown[0])), found);
    }
    // The last one counts, and equal destinations are one.
    let found = reports("xrd.report a:1\nxrd.report b:2,b:2");
    assert_eq!(found.destinations.iter().map(ToString::to_string).collect::<Vec<_>>(), ["b:2"]);
}

#[test]
fn wrong_values_stop_the_start() {
    for (text, expected) in [
        ("xrd.report", "report destination not specified"),
        ("xrd.report collector", "invalid report destination 'collector'; allowed: host:port"),
        ("xrd.report a:1,b:2,c:3", "3 destinations of reports, but there can be 2"),
        ("xrd.report h:1 every 0", "report every"),
        ("xrd.report h:1 links", "invalid report option 'links'"),
        ("xrd.report h:1 json link", "invalid report option 'link'"),
    ] {
        let report = read(text).report.to_string();
        assert!(report.contains(expected) && report.contains("error"), "{text}: {report}");
    }
}

fn detailed(text: &str) -> DetailedMonitoring {
    let loaded = read(text);
    assert_eq!(loaded.report.to_string(), "", "{text}");
    loaded.effective.monitoring.detailed.value.expect("detailed monitoring")
}

fn events(names: &str) -> MonitorEvents {
    names.split_whitespace().fold(MonitorEvents::NONE, |events, name| {
        events.with(MonitorEvent::ALL.iter().find(|(known, _)| *known == name).expect(name).1)
    })
}

#[test]
fn detailed_monitoring_has_the_settings_of_its_options() {
    assert_eq!(*read("").effective.monitoring.detailed, None);
    let found = detailed("xrootd.monitor dest h:1");
    let only = MonitorDestination { events: events("files"), address: "h:1".parse().unwrap() };
    let defaults = DetailedMonitoring { destinations: vec![only], ..DetailedMonitoring::default() };
    assert_eq!(found, defaults);
    let found = detailed(
        "xrootd.monitor all auth flush io 30s fstat 1m lfn ops xfr 5 fbsz 2k gbuff 1k ident 5m mbuff 1030 rbuff 2k \
         rnums 8 window 5s dest fstat info user redir a:1 dest iov b:2",
    );
    assert_eq!((found.all_clients, found.authentication, found.flushes_io), (true, true, true));
    let seconds = Duration::from_secs;
    assert_eq!((found.flush, found.identification), (Some(seconds(30)), Some(seconds(300))));
    let files = FileStreamSettings {
        interval: seconds(60),
        names: true,
        operations: true,
        squares: false,
        transfers: Some(5),
    };
    assert_eq!((found.files, found.window), (files, seconds(5)));
    assert_eq!((found.file_buffer_bytes, found.plugin_buffer_bytes), (2048, 1024));
    // Whole records fill a buffer of the trace stream.
    assert_eq!(
        (found.trace_buffer_bytes, found.redirect_buffer_bytes, found.redirect_buffers),
        (1024, 2048, 8)
    );
    let chosen: Vec<_> = found.destinations.iter().map(|destination| destination.events).collect();
    assert_eq!(chosen, [events("fstat info user redir"), events("files io iov")]);
    // Squares need the numbers, and both of `off` and 0 are values.
    let found = detailed("xrootd.monitor ident off flush off fstat 0 ssq dest h:1");
    assert!(found.files.operations && found.files.squares && found.files.interval.is_zero());
    assert_eq!((found.identification, found.flush), (None, None));
    assert_eq!(detailed("xrootd.monitor ident 0 dest h:1").identification, Some(Duration::ZERO));
}

#[test]
fn a_later_line_of_detailed_monitoring_replaces_or_continues() {
    let first = "xrootd.monitor all fstat 60 lfn dest user a:1\n";
    let found = detailed(&format!("{first}xrootd.monitor dest io b:2"));
    assert!(!found.all_clients && found.destinations.len() == 1);
    let found = detailed(&format!("{first}xrootd.monitor ... auth dest io b:2 dest info a:1"));
    assert!(found.all_clients && found.authentication && found.files.names);
    let shown: Vec<_> =
        found.destinations.iter().map(|one| format!("{} {}", one.events, one.address)).collect();
    assert_eq!(shown, ["info user a:1", "files io b:2"]);
}

#[test]
fn detailed_monitoring_is_shown_as_a_directive_with_the_same_effect() {
    for text in [
        "dest h:1",
        "all auth flush io 5s fstat 60 lfn ops ssq xfr 2 ident off dest iov info [::1]:2 dest redir user h:1",
        "flush off ident 0 window 3s mbuff 1k rbuff 2k rnums 1 fbuff 1k gbuff 1k dest fstat h:1",
    ] {
        let loaded = read(&format!("xrootd.monitor {text}"));
        let lines = show(&loaded.effective);
        let shown = lines.iter().find(|line| line.directive == "xrootd.monitor").expect("a line");
        let shown = shown.value.as_ref().expect("a value");
        let again = detailed(&format!("xrootd.monitor {shown}"));
        assert_eq!(Some(again), loaded.effective.monitoring.detailed.value, "{shown}");
    }
}

#[test]
fn wrong_values_of_detailed_monitoring_stop_the_start() {
    for (text, expected) in [
        ("", "monitor dest not specified"),
        ("all", "monitor dest not specified"),
        ("dest", "monitor dest not specified"),
        ("dest files", "monitor dest not specified"),
        ("dest files collector", "invalid monitor event or destination 'collector'"),
        ("dest /run/socket", "invalid monitor event or destination"),
        ("dest a:1 dest b:2 dest c:3", "there can be 2 destinations"),
        ("sometimes dest a:1", "invalid monitor option 'sometimes'"),
        ("mbuff 1023 dest a:1", "monitor mbuff"),
        ("fbuff 64k dest a:1", "monitor fbuff"),
        ("rbuff 2047 dest a:1", "monitor rbuff"),
        ("rnums 9 dest a:1", "monitor rnums"),
        ("window 0 dest a:1", "monitor window"),
        ("fstat 60 xfr 0 dest a:1", "monitor xfr"),
    ] {
        let report = read(&format!("xrootd.monitor {text}")).report.to_string();
        assert!(report.contains(expected) && report.contains("error"), "{text}: {report}");
    }
}

#[test]
fn streams_of_missing_parts_are_not_in_force() {
    for (text, name) in [
        ("xrootd.monitor dest throttle user h:1", "monitor dest throttle"),
        ("xrootd.mongstream throttle use flush 1s", "mongstream throttle"),
        ("xrootd.mongstream oss use flush 1s", "mongstream oss"),
    ] {
        let report = read(text).report.to_string();
        assert!(report.contains(name) && report.contains("it sends no records about it"), "{report}");
    }
    let found = read("xrootd.monitor dest throttle user h:1").effective.monitoring.detailed.value;
    assert_eq!(found.expect("detailed monitoring").destinations[0].events, events("throttle user"));
    let quiet = read("xrootd.monitor dest http pfc tpc h:1\nxrootd.mongstream all use flush 1s");
    assert_eq!(quiet.report.to_string(), "");
}

fn streams(text: &str) -> GStreamTable {
    let loaded = read(text);
    assert_eq!(loaded.report.to_string(), "", "{text}");
    loaded.effective.monitoring.gstreams.value
}

#[test]
fn a_stream_has_the_settings_of_its_last_line() {
    let table = streams(
        "xrootd.mongstream all use flush 5s maxlen 2k send json sitehdr noident h:1\n\
         xrootd.mongstream TPC pfc use send cgi h:2\n\
         xrootd.mongstream http use maxlen 1k send nohdr [::1]:3",
    );
    let all = table.get(GStream::Connections).expect("of all");
    assert_eq!((all.flush, all.packet_bytes_max), (Some(Duration::from_secs(5)), Some(2048)));
    let shown = |stream| table.get(stream).and_then(|one| one.destination.as_ref()).map(ToString::to_string);
    assert_eq!(shown(GStream::CacheContext).as_deref(), Some("json sitehdr noident h:1"));
    for stream in [GStream::ThirdPartyCopies, GStream::FileCache] {
        assert_eq!(shown(stream).as_deref(), Some("cgi dflthdr h:2"));
        assert_eq!(table.get(stream).and_then(|one| one.flush), None, "a later line replaces");
    }
    assert_eq!(shown(GStream::Http).as_deref(), Some("nohdr [::1]:3"));
    assert!(table.get(GStream::Storage).is_none(), "not in all");
    let effective =
        read("xrootd.mongstream pfc use flush 2s\nxrootd.mongstream http tpc use send json fullhdr h:1")
            .effective;
    let lines: String = show(&effective)
        .iter()
        .filter(|line| line.directive == "xrootd.mongstream")
        .map(|line| format!("xrootd.mongstream {}\n", line.value.as_deref().expect("a value")))
        .collect();
    assert_eq!(streams(&lines), effective.monitoring.gstreams.value, "{lines}");
}

#[test]
fn wrong_values_of_streams_stop_the_start() {
    for (text, expected) in [
        ("", "mongstream 'use' not specified"),
        ("tpc", "mongstream 'use' not specified"),
        ("use flush 1s", "invalid mongstream stream 'use'"),
        ("tpc use", "mongstream option not specified"),
        ("disk use flush 1s", "invalid mongstream stream 'disk'"),
        ("tpc use flush 0", "mongstream flush"),
        ("tpc use maxlen 1023", "mongstream maxlen"),
        ("tpc use maxlen 64k", "mongstream maxlen"),
        ("tpc use sometimes", "invalid mongstream option 'sometimes'"),
        ("tpc use send", "mongstream send format not specified"),
        ("tpc use send xml h:1", "invalid mongstream send format 'xml'"),
        ("tpc use send json", "mongstream send endpoint not specified"),
        ("tpc use send json /run/x", "invalid mongstream send endpoint"),
        ("tpc use send nohdr noident h:1", "invalid mongstream send endpoint 'noident'"),
    ] {
        let report = read(&format!("xrootd.mongstream {text}")).report.to_string();
        assert!(report.contains(expected) && report.contains("error"), "{text}: {report}");
    }
}

fn marking(text: &str) -> PacketMarking {
    let loaded = read(text);
    assert_eq!(loaded.report.to_string(), "", "{text}");
    loaded.effective.monitoring.marking.value.expect("packet marking")
}

#[test]
fn lines_of_packet_marking_add_to_each_other() {
    assert_eq!(*read("").effective.monitoring.marking, None);
    let found = marking(
        "xrootd.pmark domain any ffdest h,origin:7 ffecho 40 use noscitag\n\
         xrootd.pmark map2exp path /at atlas map2exp vo cms cms map2exp default cms\n\
         xrootd.pmark map2act atlas role boss prod map2act atlas user anna user defsfile /registry\n\
         xrootd.pmark map2exp default atlas",
    );
    assert_eq!((found.domain, found.origin_port), (MarkedDomain::Any, Some(7)));
    assert_eq!(found.collector, "h:10514".parse().ok());
    assert_eq!(found.echo, Some(Duration::from_secs(40)));
    assert!(found.ignores_tags && !found.is_silent && found.is_in_force());
    let path = ExperimentRule::Path("/at".to_owned());
    let expected = [
        (path, "atlas".to_owned()),
        (ExperimentRule::Organization("cms".to_owned()), "cms".to_owned()),
        (ExperimentRule::Default, "atlas".to_owned()),
    ];
    assert_eq!(found.experiments, expected);
    let names = ["atlas", "prod", "user"].map(str::to_owned);
    let [atlas, prod, user] = names;
    let expected = [
        (atlas.clone(), ActivityRule::Role("boss".to_owned()), prod),
        (atlas, ActivityRule::User("anna".to_owned()), user),
    ];
    assert_eq!(found.activities, expected);
    assert_eq!(found.registry.as_deref(), Some("/registry"));
    let found = marking("xrootd.pmark ffdest origin ffecho 29");
    assert_eq!((found.collector, found.origin_port, found.echo), (None, Some(10_514), None));
    assert_eq!(found.domain, MarkedDomain::Remote);
    assert_eq!(marking("xrootd.pmark ffdest [::1]:9").collector, "[::1]:9".parse().ok());
}

#[test]
fn packet_marking_is_shown_as_a_directive_with_the_same_effect() {
    for text in [
        "ffdest origin",
        "domain local ffdest [::1]:5,origin ffecho 60 use nofirefly map2exp path /a x map2exp vo v y \
         map2exp default x map2act x default p map2act x role r q map2act y user u p defsfile fail /f",
    ] {
        let loaded = read(&format!("xrootd.pmark {text}"));
        let lines = show(&loaded.effective);
        let shown = lines.iter().find(|line| line.directive == "xrootd.pmark").expect("a line");
        let again = marking(&format!("xrootd.pmark {}", shown.value.as_ref().expect("a value")));
        assert_eq!(Some(again), loaded.effective.monitoring.marking.value, "{text}");
    }
}

#[test]
fn wrong_values_of_packet_marking_stop_the_start() {
    for (text, expected) in [
        ("", "pmark option not specified"),
        ("sometimes", "invalid pmark option 'sometimes'"),
        ("domain here", "invalid pmark domain 'here'"),
        ("ffdest", "pmark ffdest not specified"),
        ("ffdest h:1,i:2", "invalid pmark ffdest"),
        ("ffdest /run/x", "invalid pmark ffdest"),
        ("use", "pmark use not specified"),
        ("use smoke", "invalid pmark use 'smoke'"),
        ("map2exp project a b", "invalid pmark experiment determinant 'project'"),
        ("map2act a default", "pmark activity not specified"),
        ("map2act a group x y", "invalid pmark activity determinant 'group'"),
    ] {
        let report = read(&format!("xrootd.pmark {text}")).report.to_string();
        assert!(report.contains(expected) && report.contains("error"), "{text}: {report}");
    }
    for text in
        ["use flowlabel", "defsfile curl http://h/f", "defsfile nofail wget 10 https://h/f use scitag"]
    {
        let loaded = read(&format!("xrootd.pmark ffdest h {text}"));
        let report = loaded.report.to_string();
        assert!(report.contains("not in force") && !report.contains("error"), "{text}: {report}");
        assert_eq!(loaded.effective.monitoring.marking.value.expect("it").registry, None, "{text}");
    }
}
