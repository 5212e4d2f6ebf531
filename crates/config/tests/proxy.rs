//! Directives of a proxy.

use config::{
    CacheSpace, ConfigInput, Effective, Evaluation, Loaded, MemorySource, OriginProtocol, Overrides,
    ProblemKind, ProxyServer, Strictness, load, show,
};

const PROXY: &str = "ofs.osslib libXrdPss.so\n";

fn load_text(text: &str) -> Loaded {
    let strictness = Strictness::Strict;
    let request = ConfigInput { file: Some("f".to_owned()), strictness, ..ConfigInput::default() };
    load(&request, &MemorySource::new().with("f", text))
}

fn proxy(text: &str) -> Effective {
    let loaded = load_text(&format!("{PROXY}{text}"));
    assert!(loaded.report.is_ok(), "{text}: {}", loaded.report);
    loaded.effective
}

fn kinds(text: &str) -> Vec<ProblemKind> {
    load_text(text).report.problems().iter().map(|problem| problem.kind).collect()
}

#[test]
fn every_form_of_an_origin_is_read() {
    let server = |protocol, host: &str, port| Some(ProxyServer { protocol, host: host.to_owned(), port });
    use OriginProtocol::{Http, Https, Root, Roots};
    for (text, forwards, fixed) in [
        ("o:1", vec![], server(Root, "o", 1)),
        ("o 2", vec![], server(Root, "o", 2)),
        ("o+:3", vec![], server(Root, "o", 3)),
        ("root://o:4/", vec![], server(Root, "o", 4)),
        ("xroots://[::1]:5", vec![], server(Roots, "::1", 5)),
        ("http://o", vec![], server(Http, "o", 80)),
        ("https://o:8443/", vec![], server(Https, "o", 8443)),
        ("davs://o", vec![], server(Https, "o", 443)),
        ("=", vec![Root, Roots], None),
        ("=http,root,dav", vec![Http, Root], None),
        ("=davs o:6", vec![Https], server(Root, "o", 6)),
    ] {
        let origin = proxy(&format!("pss.origin {text}")).proxy.origin.value.unwrap();
        assert_eq!((origin.forwards, origin.fixed), (forwards, fixed), "{text}");
    }
    // The last one counts, and a missing port is the default one with a warning.
    let loaded = load_text(&format!("{PROXY}pss.origin o:1\npss.origin p"));
    assert_eq!(loaded.effective.proxy.origin.value.unwrap().fixed, server(Root, "p", 1094));
    assert!(loaded.report.to_string().contains("no port is given for p; using port 1094"));
}

#[test]
fn wrong_values_are_errors_with_their_position() {
    for (text, error) in [
        ("pss.origin s3s://o", "f:2:12: error: pss.origin: origins with s3s are not in force yet"),
        ("pss.origin s3://o:1", "f:2:12: error: pss.origin: badly formed bucket"),
        ("pss.origin s3://b\nscalla.s3endpoint h:1", "f:3:19: error: scalla.s3endpoint: an object store"),
        ("pss.origin s3://b\nscalla.s3region a/b", "f:3:17: error: scalla.s3region: 'a/b' is not the name"),
        ("pss.origin s3://b\nscalla.s3credentials x", "f:3:22: error: scalla.s3credentials: non-absolute"),
        (
            "pss.origin s3://b\nscalla.s3credentials /x [a]",
            "f:3:25: error: scalla.s3credentials: invalid section",
        ),
        ("pss.origin s3://b\npss.hostarena /x", "f:3:1: error: pss.hostarena: a bucket has none"),
        ("pss.origin /data", "f:2:12: error: pss.origin: a directory as origin is not in force yet"),
        ("pss.origin root://o:1//data", "f:2:12: error: pss.origin: badly formed origin URL"),
        ("pss.origin ftp://o", "f:2:12: error: pss.origin: unknown protocol 'ftp' of the origin"),
        ("pss.origin o:70000", "f:2:12: error: pss.origin: tcp port 70000 may not be greater than 65535"),
        ("pss.origin =gopher", "f:2:12: error: pss.origin: unknown protocol 'gopher'"),
        ("pss.origin =s3", "f:1:1: error: the proxy has no origin"),
        ("pss.origin o:1\npss.hostarena arena", "f:3:15: error: pss.hostarena: non-absolute hostarena path"),
        ("pss.origin o:1\npss.localroot x", "f:3:15: error: pss.localroot: non-absolute localroot path"),
        (
            "pss.origin o:1\npss.setopt RequestTimeout 0",
            "f:3:27: error: pss.setopt: setopt 0 may not be less than 1",
        ),
        ("pss.origin o:1\npss.setopt StreamTimeout x", "f:3:26: error: pss.setopt: setopt x is not a number"),
        ("pss.origin o:1\npss.inetmode v5", "f:3:14: error: pss.inetmode: invalid inetmode value 'v5'"),
        ("pss.origin =\npss.permit a*b*", "f:3:12: error: pss.permit: invalid host pattern 'a*b*'"),
        ("pss.origin =\npss.permit @group", "f:3:12: error: pss.permit: netgroup '@group' is not supported"),
        ("pss.origin o:1\npss.persona client", "f:3:1: error: pss.persona client: clients do not log in"),
        (
            "pss.origin http://o\npss.persona client\nsec.protocol host\nxrootd.seclib libXrdSec.so",
            "f:3:1: error: pss.persona client: only for a fixed origin",
        ),
        (
            "pss.origin = o:1\npss.persona client\nsec.protocol host\nxrootd.seclib libXrdSec.so\npss.permit x",
            "f:3:1: error: pss.persona client: only for a fixed origin",
        ),
        (
            "pss.origin o:1\npss.persona client\nsec.protocol host\nxrootd.seclib libXrdSec.so\n\
            pss.cachelib libXrdPfc.so\noss.localroot /c",
            "f:3:1: error: pss.persona client: not with a cache",
        ),
        (
            "pss.origin o:1\npss.persona client\nsec.protocol host\nsec.protocol unix\nxrootd.seclib libXrdSec.so",
            "f:3:1: error: pss.persona client: no protocol of sec.protocol proves the names",
        ),
        ("pss.origin o:1\npss.namelib -lfn2pfn libX.so", "f:3:22: error: pss.namelib: unsupported library"),
        ("pss.origin o:1\npss.export /x r/o", "f:3:1: error: pss.export: restricts access"),
        (
            "pss.origin o:1\nofs.osslib ++ libXrdMultiuser.so",
            "f:3:1: error: ofs.osslib: a proxy cannot act as",
        ),
        ("pss.origin o:1\nall.manager m:1", "f:1:1: error: a proxy cannot be a server of a cluster"),
        ("", "f:1:1: error: the proxy has no origin; set pss.origin host:port"),
    ] {
        let report = load_text(&format!("{PROXY}{text}")).report;
        let first = report.errors().next().map(ToString::to_string).unwrap_or_default();
        assert!(first.starts_with(error), "{text}: {report}");
    }
}

#[test]
fn a_node_of_a_cluster_of_proxies_has_managers_of_its_own() {
    let managers = "all.manager m:1\nall.manager proxy all p:2\ncms.dfs lookup central retries 3\n";
    for (role, name) in [("server", "proxy server"), ("supervisor", "proxy supervisor")] {
        let cluster =
            load_text(&format!("{managers}all.role proxy {role}\npss.origin o:1")).effective.cluster;
        let parents: Vec<_> = cluster.parents().iter().map(|parent| (&*parent.host, parent.port)).collect();
        assert_eq!((parents.as_slice(), cluster.role_name().as_str()), ([("p", 2)].as_slice(), name));
        let shared = cluster.shared.value.unwrap();
        assert_eq!((shared.unchecked, shared.central, shared.retries), (true, false, 3));
    }
    let manager = load_text("all.role proxy manager\nall.manager proxy p:2\npss.origin o:1");
    assert!(manager.report.is_ok() && manager.report.problems().is_empty(), "{}", manager.report);
    assert!(!*manager.effective.proxy.enabled, "it has no files");
    assert_eq!(manager.effective.cluster.peers().len(), 1);
    // Others ignore these managers.
    let other = load_text(managers).effective.cluster;
    assert_eq!((other.parents().len(), other.parents()[0].port, other.of_proxies), (1, 1, false));
    let alone = "all.role proxy server\nall.manager m:1\npss.origin o:1";
    assert_eq!(kinds(alone), [ProblemKind::Doubtful], "it would wait for clients in vain");
}

#[test]
fn what_has_no_effect_in_a_cluster_of_proxies_is_a_warning_at_its_line() {
    let proxy = "all.role proxy server\npss.origin o:1\nall.manager proxy p:2\n";
    for (text, expected) in [
        (
            format!("{proxy}cms.dfs lookup central"),
            "f:4:1: warning: cms.dfs: 'lookup central' has no effect in a cluster of proxies; remove it",
        ),
        (
            format!("{proxy}cms.dfs retries 3 redirect verify"),
            "f:4:1: warning: cms.dfs: 'redirect verify' has no effect in a cluster of proxies; remove it",
        ),
        (
            "all.manager proxy p:2".to_owned(),
            "f:1:1: warning: all.manager proxy has no effect, because the role is server; write all.role proxy server",
        ),
        (
            format!("{PROXY}pss.origin o:1\nall.manager proxy p:2"),
            "f:3:1: warning: all.manager proxy has no effect, because the role is server; write all.role proxy server",
        ),
        (
            "all.role manager\nall.manager proxy p:2".to_owned(),
            "f:2:1: warning: all.manager proxy has no effect, because the role is manager; write all.role proxy manager",
        ),
    ] {
        let report = load_text(&text).report;
        let problems: Vec<_> = report.problems().iter().map(ToString::to_string).collect();
        assert!(problems.len() == 1 && problems[0].starts_with(expected), "{text}: {report}");
    }
    for text in [format!("{proxy}cms.dfs redirect immed"), format!("{proxy}cms.dfs retries 3")] {
        assert_eq!(kinds(&text), [], "{text}");
    }
}

#[test]
fn only_servers_of_a_cluster_of_proxies_have_the_files_of_the_origin() {
    let end = "all.manager proxy p:2\npss.origin o:1\n";
    for (roles, is_proxy) in [
        ("all.role proxy server\n", true),
        // The role of cmsd is that of the node.
        ("all.role proxy server if exec cmsd\n", true),
        (
            "all.role proxy server\nall.role proxy manager if exec xrootd\nall.role proxy manager if exec cmsd\n",
            false,
        ),
        ("all.role proxy server\nall.role proxy supervisor\n", false),
        ("all.role proxy manager\nofs.osslib libXrdPss.so\n", false),
        ("all.role proxy server\nall.role server\nall.manager m:1\n", false),
    ] {
        let evaluation = Evaluation { program: "xrootd".to_owned(), ..Evaluation::default() };
        let request = ConfigInput { file: Some("f".to_owned()), evaluation, ..ConfigInput::default() };
        let loaded = load(&request, &MemorySource::new().with("f", format!("{roles}{end}")));
        assert!(loaded.report.is_ok(), "{roles}: {}", loaded.report);
        assert_eq!(*loaded.effective.proxy.enabled, is_proxy, "{roles}");
    }
}

#[test]
fn doubtful_combinations_are_warnings() {
    for text in [
        "pss.origin o:1".to_owned(),
        format!("{PROXY}pss.origin ="),
        format!("{PROXY}pss.origin o:1\npss.permit x"),
        format!("{PROXY}pss.origin o:1\nofs.tpc pgm /bin/true"),
        format!("{PROXY}pss.origin =\npss.permit x\npss.localroot /x"),
        format!("{PROXY}pss.origin s3://b\npss.permit x"),
        format!("{PROXY}pss.origin http://o\nscalla.s3endpoint http://h"),
        format!("{PROXY}pss.origin http://o\nscalla.s3region x"),
        format!("{PROXY}pss.origin http://o\nscalla.s3credentials /x"),
    ] {
        assert_eq!(kinds(&text), [ProblemKind::Doubtful], "{text}");
    }
    let redirects = "pss.origin https://o\npss.permit x";
    assert_eq!(kinds(&format!("{PROXY}{redirects}")), [], "the permit is for redirects");
    assert_eq!(kinds(&format!("{PROXY}pss.origin o:1\nofs.tpc ttl 7")), []);
    for text in ["pss.setopt ReadAheadSize 1", "pss.setopt Nothing 1"] {
        assert_eq!(kinds(&format!("{PROXY}pss.origin o:1\n{text}")), [ProblemKind::Ignored], "{text}");
    }
}

const CACHE: &str = "pss.origin o:1\noss.localroot /cache\npss.cachelib libXrdPfc.so\n";

#[test]
fn the_cache_has_its_values() {
    let cache =
        proxy(&format!("{CACHE}pfc.ram 2g\npfc.blocksize 65000\npfc.prefetch 0\npfc.diskusage 0.5 0.75"))
            .proxy
            .cache;
    assert_eq!((*cache.memory, *cache.block_bytes, *cache.prefetch), (2 << 30, 64 << 10, 0));
    assert_eq!((cache.usage.low.bytes(1000), cache.usage.high.bytes(1000)), (500, 750));
    assert_eq!((cache.usage.files, cache.usage.cold, cache.usage.interval.as_secs()), (None, None, 300));
    let text = "100g 1t files 1g 0.2 50g purgeinterval 5m purgecoldfiles 3d 12";
    let cache =
        proxy(&format!("{CACHE}pfc.diskusage {text}\npfc.purgelib libXrdPfcPurgeQuota.so /q")).proxy.cache;
    let sizes = [1, 50, 100, 1024].map(|gib| CacheSpace::Bytes(gib << 30));
    assert_eq!((cache.usage.low, cache.usage.high), (sizes[2], sizes[3]));
    assert_eq!(cache.usage.files, Some([sizes[0], CacheSpace::Share(200_000), sizes[1]]));
    assert_eq!(cache.usage.cold.map(|(age, every)| (age.as_secs(), every)), Some((259_200, 12)));
    assert_eq!(cache.quota_file.value, Some("/q".into()));
    let cache = proxy("pss.origin o:1\noss.localroot /c\npss.cachelib default").proxy.cache;
    assert_eq!(
        (*cache.enabled, *cache.memory, *cache.block_bytes, *cache.prefetch),
        (true, 1 << 30, 128 << 10, 10)
    );
    assert!(!*proxy("pss.origin o:1\npfc.ram 2g").proxy.cache.enabled);
}

#[test]
fn values_of_the_cache_can_be_shown_and_read_again() {
    for usage in ["0.9 0.95", "100g 1t", "123k 1.5m files 1k 2k 0.3 sleep 61 purgecoldfiles 90m 1"] {
        let effective = proxy(&format!(
            "{CACHE}pfc.ram 3g\npfc.purgelib libXrdPfcPurgeQuota-5.so /q\npfc.diskusage {usage}"
        ));
        let is_cache =
            |name: &str| name.starts_with("pfc.") || name.starts_with("pss.") || name == "oss.localroot";
        let lines: Vec<String> = show(&effective)
            .iter()
            .filter(|line| is_cache(line.directive))
            .map(|line| format!("{} {}", line.directive, line.value.clone().unwrap_or_default()))
            .filter(|line| !line.ends_with(' '))
            .collect();
        let (again, cache) = (proxy(&lines.join("\n")).proxy.cache, effective.proxy.cache);
        assert_eq!(again.usage.value, cache.usage.value, "{lines:?}");
        assert_eq!(again.quota_file.value, cache.quota_file.value, "{lines:?}");
    }
}

#[test]
fn a_cache_that_would_do_something_else_does_not_start() {
    for (text, error) in [
        ("pfc.cschk cache", "pfc.cschk is not in force yet"),
        ("pfc.writethrough off", "pfc.writethrough is not in force yet"),
        ("pfc.spaces data meta", "pfc.spaces is not in force yet"),
        ("pfc.diskusage 0.5 0.4", "the low value must be less than the high one"),
        ("pfc.diskusage 0.5 1.5", "diskusage 1.5 is neither a fraction nor a size"),
        ("pfc.diskusage 0.5 0.6 files 1g 3g 2g", "the nominal value must be less than the max one"),
        ("pfc.diskusage 0.5 0.6 files 1g 2g", "diskusage files max value not specified"),
        ("pfc.diskusage 0.5 0.6 files 0.1 0.2 0.5", "the max value must be less than the low one"),
        ("pfc.diskusage 0.5 0.6 purgeinterval 59", "purgeinterval 59 may not be less than"),
        ("pfc.diskusage 0.5 0.6 purgecoldfiles 10m 1", "purgecoldfiles age 10m may not be less than"),
        ("pfc.diskusage 0.5 0.6 purgecoldfiles 1d", "purgecoldfiles n value not specified"),
        ("pfc.purgelib libOther.so /f", "pfc.purgelib is not in force yet"),
        ("pfc.purgelib libXrdPfcPurgeQuota.so", "purge quota file path not specified"),
        ("pfc.ram 100m", "ram"),
        ("pfc.blocksize 1k", "blocksize"),
        ("pss.cachelib libOther.so", "unsupported library 'libOther.so'"),
    ] {
        let report = load_text(&format!("{PROXY}{CACHE}{text}")).report;
        assert!(!report.is_ok() && report.to_string().contains(error), "{text}: {report}");
    }
    let report = load_text(&format!("{PROXY}pss.origin o:1\npss.cachelib libXrdPfc.so")).report;
    assert!(!report.is_ok() && report.to_string().contains("set oss.localroot"), "{report}");
    // Without a cache they only have no effect.
    assert!(load_text(&format!("{PROXY}pss.origin o:1\npfc.spaces data meta")).report.is_ok());
}

#[test]
fn direct_reads_need_a_disk_cache_without_logins_and_an_authorization() {
    let read = |text: &str| load_text(&format!("{PROXY}{CACHE}{text}"));
    for (text, expected, without_effect) in [
        ("", false, None),
        ("pss.dca", true, None),
        ("pss.dca group", true, Some("group")),
        ("pss.dca world", true, Some("world")),
        ("pss.dca recheck off", true, Some("recheck")),
        ("pss.dca\npss.dca recheck 30 group", true, Some("recheck")),
    ] {
        let loaded = read(text);
        assert_eq!(loaded.effective.has_direct_reads(), expected, "{text}");
        let report = loaded.report.to_string();
        let note = |word: &str| report.contains(&format!("'{word}' is accepted without effect"));
        let noted = without_effect.map_or(!report.contains("without effect"), note);
        assert!(loaded.report.is_ok() && noted, "{text}: {report}");
        let lines = show(&loaded.effective);
        let shown = lines.iter().find(|line| line.directive == "pss.dca");
        let again = shown.and_then(|line| line.value.clone()).map(|value| read(&format!("pss.dca {value}")));
        assert_eq!(again.is_some_and(|again| again.effective.has_direct_reads()), expected, "{text}");
    }
    for text in ["recheck 9", "recheck", "recheck soon"] {
        let report = read(&format!("pss.dca {text}")).report;
        assert!(!report.is_ok() && report.to_string().contains("recheck"), "{text}: {report}");
    }
    for (text, why) in [
        (format!("{PROXY}pss.origin o:1\npss.dca"), "without a disk cache"),
        (format!("{PROXY}{CACHE}ofs.authorize\npss.dca world"), "with ofs.authorize"),
        (
            format!("{PROXY}{CACHE}xrootd.seclib libXrdSec.so\nsec.protocol unix\npss.dca"),
            "with xrootd.seclib",
        ),
    ] {
        let loaded = load_text(&text);
        let expected = format!("pss.dca has no effect {why}");
        assert!(loaded.report.is_ok() && loaded.report.to_string().contains(&expected), "{}", loaded.report);
        assert!(!loaded.effective.has_direct_reads());
    }
}

#[test]
fn the_memory_cache_has_its_values() {
    let memory = |text: &str| proxy(&format!("pss.origin o:1\n{text}")).proxy.memory_cache;
    let cache = memory("pss.cache");
    assert_eq!(
        (*cache.enabled, cache.size(), *cache.page_bytes, cache.read_bytes_max()),
        (true, 100 << 20, 32 << 10, 32 << 10)
    );
    let cache =
        memory("pss.cache size 1g pagesize 5000 minpages 9 max2cache 1m r/w logstats debug 1 sfiles .root");
    assert_eq!((cache.size(), *cache.page_bytes, cache.read_bytes_max()), (1 << 30, 8192, 1 << 20));
    let cache = memory("pss.memcache size 1m minpages 1000 max2cache 10 preread 4 1k perf 50 1m");
    assert_eq!((cache.size(), cache.read_bytes_max()), (1000 * (32 << 10), 32 << 10));
    // The last directive counts, with all default values.
    let cache = memory("pss.cache size 1g\npss.memcache pagesize 64k");
    assert_eq!((cache.size(), *cache.page_bytes), (100 << 20, 64 << 10));
    assert!(!*memory("").enabled);
}

#[test]
fn wrong_values_of_the_memory_cache_are_errors() {
    for (text, error) in [
        ("size 10k", "size 10k may not be less than"),
        ("size", "size value not specified"),
        ("size x", "size x"),
        ("pagesize 1k", "pagesize 1k may not be less than"),
        ("pagesize 32m", "pagesize 32m may not be greater than"),
        ("minpages 0", "minpages 0 may not be less than"),
        ("max2cache 0", "max2cache 0 may not be less than"),
        ("debug 4", "debug 4 may not be greater than"),
        ("sfiles root", "invalid sfiles 'root'"),
        ("preread 4 1k perf 101", "preread perf 101 may not be greater than"),
        ("preread perf", "preread perf value not specified"),
    ] {
        let report = load_text(&format!("{PROXY}pss.origin o:1\npss.cache {text}")).report;
        assert!(!report.is_ok() && report.to_string().contains(error), "{text}: {report}");
    }
    let note = |text: &str| load_text(&format!("{PROXY}{text}")).report;
    let report = note("pss.origin o:1\npss.cache sometimes");
    assert!(report.to_string().contains("unknown option 'sometimes'"), "{report}");
    let report = note(&format!("{CACHE}pss.cache size 1g"));
    assert!(
        report.is_ok() && report.to_string().contains("pss.cache has no effect beside a disk cache"),
        "{report}"
    );
    let report = note("pss.origin o:1\npss.persona client\npss.cache size 1g");
    assert!(!report.is_ok() && report.to_string().contains("not with a cache"), "{report}");
}

#[test]
fn values_of_the_memory_cache_can_be_shown_and_read_again() {
    for options in ["size 3g pagesize 4k max2cache 5m", "minpages 7", ""] {
        let effective = proxy(&format!("pss.origin o:1\npss.cache {options}"));
        let lines = show(&effective);
        let line = lines.iter().find(|line| line.directive == "pss.cache").unwrap();
        let again =
            proxy(&format!("pss.origin o:1\npss.cache {}", line.value.clone().unwrap())).proxy.memory_cache;
        let first = effective.proxy.memory_cache;
        assert_eq!(
            (again.size(), *again.page_bytes, again.read_bytes_max()),
            (first.size(), *first.page_bytes, first.read_bytes_max())
        );
    }
}

#[test]
fn the_last_option_of_each_name_counts_and_the_values_are_shown() {
    let text = "pss.origin = roots://o:1\npss.permit * a\npss.permit / b\npss.setopt ConnectTimeout 2\n\
        pss.setopt RedirectLimit 3\npss.setopt connecttimeout 4\npss.localroot /l\npss.hostarena /h\npss.inetmode v4";
    let effective = proxy(text);
    let options: Vec<_> =
        effective.proxy.options.iter().map(|option| (option.setting, option.number)).collect();
    assert_eq!(options, [("RedirectLimit", 3), ("ConnectionWindow", 4)]);
    let lines: Vec<String> = show(&effective)
        .iter()
        .filter(|line| line.directive.starts_with("pss.") || line.directive == "ofs.osslib")
        .map(|line| format!("{} {}", line.directive, line.value.clone().unwrap_or_default()))
        .collect();
    let again = load_text(&lines.join("\n")).effective;
    assert_eq!(lines.len(), 10);
    assert_eq!(
        show(&again).iter().map(|line| &line.value).collect::<Vec<_>>(),
        show(&effective).iter().map(|line| &line.value).collect::<Vec<_>>()
    );
}

#[test]
fn a_bucket_is_an_origin_and_its_values_are_shown() {
    let text = "pss.origin s3://b/a/\nscalla.s3endpoint http://h:9000\nscalla.s3region r\n\
        scalla.s3credentials /etc/keys site";
    let effective = proxy(text);
    let lines: Vec<String> = show(&effective)
        .iter()
        .filter(|line| line.directive.starts_with("scalla.s3") || line.directive == "pss.origin")
        .map(|line| format!("{} {}", line.directive, line.value.clone().unwrap_or_default()))
        .collect();
    assert_eq!(
        lines,
        [
            "pss.origin s3://b/a",
            "scalla.s3endpoint http://h:9000",
            "scalla.s3region r",
            "scalla.s3credentials /etc/keys site",
        ]
    );
    let values = |text: &str| show(&proxy(text)).iter().map(|line| line.value.clone()).collect::<Vec<_>>();
    assert_eq!(values(&lines.join("\n")), values(text));
    assert_eq!(proxy("pss.origin s3://b").proxy.store.url(), "https://s3.us-east-1.amazonaws.com:443");
}

#[test]
fn a_bucket_of_the_command_line_needs_no_file() {
    let overrides = Overrides {
        origin: Some("s3://b/a".parse().unwrap()),
        store_endpoint: Some("http://h:9000".parse().unwrap()),
        store_region: Some("r".to_owned()),
        store_keys: Some("/etc/keys".into()),
        ..Overrides::default()
    };
    let loaded = load(&ConfigInput { overrides, ..ConfigInput::default() }, &MemorySource::new());
    assert!(loaded.report.is_ok(), "{}", loaded.report);
    let proxy = loaded.effective.proxy;
    assert_eq!(proxy.origin.value.unwrap().bucket.unwrap().url(), "s3://b/a");
    assert_eq!((proxy.store.url().as_str(), proxy.store.region.as_str()), ("http://h:9000", "r"));
    assert_eq!(proxy.store.keys.value.unwrap().section, "default");
}

#[test]
fn an_origin_of_the_command_line_needs_no_file() {
    let origin = Some("root://o".parse().unwrap());
    let overrides = Overrides { origin, read_only: true, ..Overrides::default() };
    let loaded = load(&ConfigInput { overrides, ..ConfigInput::default() }, &MemorySource::new());
    assert!(loaded.report.is_ok(), "{}", loaded.report);
    let effective = loaded.effective;
    assert!(*effective.proxy.enabled && effective.storage.exports[0].attributes.read_only);
    assert_eq!(effective.storage.exports[0].prefix, "/");
    let origin = Some("https://o/a/b".parse().unwrap());
    let overrides = Overrides { origin, ..Overrides::default() };
    let loaded = load(&ConfigInput { overrides, ..ConfigInput::default() }, &MemorySource::new());
    assert!(loaded.report.is_ok(), "{}", loaded.report);
    let proxy = loaded.effective.proxy;
    assert_eq!(proxy.origin.value.unwrap().fixed.unwrap().url(), "https://o:443");
    assert_eq!(proxy.local_root.value.as_deref(), Some("/a/b"));
}
