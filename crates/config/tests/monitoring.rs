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
