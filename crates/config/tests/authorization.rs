//! The layers of authorization (`ofs.authlib`): their order, and combinations that stop the start.

use config::*;

fn read(text: &str) -> Loaded {
    let request = ConfigInput { file: Some("f".to_owned()), ..ConfigInput::default() };
    load(&request, &MemorySource::new().with("f", text))
}

/// Returns the lines of `ofs.authlib` as they are shown, and whether the rules decide. The shown lines
/// must have the same effect.
fn layers(lines: &str) -> (Option<String>, bool) {
    let head = "ofs.authorize\nall.sitename S\nmacaroons.secretkey /s\n";
    let load = |lines: &str| {
        let loaded = read(&format!("{head}{lines}\n"));
        assert!(loaded.report.is_ok(), "{lines}: {}", loaded.report);
        loaded.effective
    };
    let effective = load(lines);
    let shown = show(&effective).into_iter().filter(|line| line.directive == "ofs.authlib");
    let shown: Vec<String> = shown.filter_map(|line| line.value).collect();
    let again: Vec<String> = shown.iter().map(|line| format!("ofs.authlib {line}\n")).collect();
    assert_eq!(load(&again.concat()).authorization.layers.value, effective.authorization.layers.value);
    (Some(shown.join(", ")).filter(|shown| !shown.is_empty()), effective.authorization.layers.rules)
}

fn error(lines: &str) -> String {
    let loaded = read(&format!("ofs.authorize\n{lines}\n"));
    let errors: Vec<String> = loaded.report.errors().map(ToString::to_string).collect();
    assert_eq!(errors.len(), 1, "{lines}: {errors:?}");
    errors.concat()
}

#[test]
fn plus_puts_tokens_on_top_of_the_rules() {
    let tokens = |stacked: &str, file: &str| Some(format!("{stacked}libXrdAccSciTokens.so config={file}"));
    assert_eq!(layers(""), (None, true));
    assert_eq!(layers("ofs.authlib default"), (None, true));
    let stacked = "ofs.authlib ++ /usr/lib64/libXrdAccSciTokens-5.so config=/c";
    assert_eq!(layers(stacked), (tokens("++ ", "/c"), true));
    assert_eq!(layers(&format!("ofs.authlib libXrdAcc.so\n{stacked}")), (tokens("++ ", "/c"), true));
    assert_eq!(layers("ofs.authlib libXrdAccSciTokens.so"), (tokens("", ISSUER_FILE_DEFAULT), false));
    // A line without `++` replaces what is there.
    assert_eq!(
        layers(&format!("{stacked}\nofs.authlib libXrdAccSciTokens.so config=/d")),
        (tokens("", "/d"), false)
    );
    assert_eq!(layers(&format!("{stacked}\nofs.authlib default")), (None, true));
}

#[test]
fn macaroons_are_on_top_of_the_layers_that_are_there() {
    let mine = |text: &str| Some(text.to_owned());
    let macaroons = "ofs.authlib ++ /usr/lib64/libXrdMacaroons-5.so";
    let tokens = "ofs.authlib ++ libXrdAccSciTokens.so config=/c";
    assert_eq!(layers(macaroons), (mine("++ libXrdMacaroons.so"), true));
    assert_eq!(layers("ofs.authlib libXrdMacaroons.so"), (mine("++ libXrdMacaroons.so"), true));
    for rules in ["default", "libXrdAcc.so"] {
        let found = layers(&format!("{tokens}\nofs.authlib libXrdMacaroons.so {rules}"));
        assert_eq!(found, (mine("++ libXrdMacaroons.so"), true), "{rules}");
    }
    let over = mine("++ libXrdAccSciTokens.so config=/c, ++ libXrdMacaroons.so");
    assert_eq!(layers(&format!("{tokens}\n{macaroons}")), (over, true));
    let below = mine("++ libXrdMacaroons.so, ++ libXrdAccSciTokens.so config=/c");
    assert_eq!(layers(&format!("{macaroons}\n{tokens}")), (below, true));
    // The older form names the layer below.
    let old = layers("ofs.authlib libXrdMacaroons.so libXrdAccSciTokens.so config=/d");
    assert_eq!(old, (mine("libXrdAccSciTokens.so config=/d, ++ libXrdMacaroons.so"), false));
    assert_eq!(layers(&format!("{macaroons}\nofs.authlib default")), (None, true));
    let twice = error(&format!("all.sitename S\nmacaroons.secretkey /s\n{macaroons}\n{macaroons}"));
    assert!(twice.contains("macaroons are named twice"), "{twice}");
    let stacked = error(&format!(
        "all.sitename S\nmacaroons.secretkey /s\n{tokens}\n{macaroons} libXrdAccSciTokens.so"
    ));
    assert!(stacked.contains("with ++, name the layer below in a line before"), "{stacked}");
    let parameter = error("ofs.authlib libXrdMacaroons.so libXrdAccSciTokens.so x=y");
    assert!(parameter.contains("allowed: config=/path"), "{parameter}");
}

#[test]
fn macaroons_need_a_secret_and_a_site() {
    let layer = "ofs.authlib ++ libXrdMacaroons.so\n";
    let secret = error(&format!("{layer}all.sitename S"));
    assert!(
        secret.contains("f:2:1: error: ofs.authlib: macaroons have no secret; make one with"),
        "{secret}"
    );
    let site = error(&format!("{layer}macaroons.secretkey /s"));
    assert!(site.contains("f:2:1: error: ofs.authlib: macaroons have no site; add all.sitename"), "{site}");
    let read_site = |lines: &str| {
        let loaded = read(&format!("ofs.authorize\n{layer}macaroons.secretkey /s\n{lines}\n"));
        assert!(loaded.report.is_ok(), "{lines}: {}", loaded.report);
        loaded.effective.macaroon_site().map(str::to_owned)
    };
    assert_eq!(read_site("all.sitename S"), Some("S".to_owned()));
    assert_eq!(read_site("macaroons.sitename T"), Some("T".to_owned()));
    assert_eq!(read_site("macaroons.sitename T\nall.sitename S"), Some("T".to_owned()));
    // Another site name needs a restart, because macaroons of the earlier one are accepted.
    let changed = |lines: &str| {
        let load = |site: &str| read(&format!("ofs.authorize\n{lines}all.sitename {site}\n")).effective;
        let found = changes(&load("S"), &load("T"));
        (found.safe.len(), found.needs_restart.len())
    };
    assert_eq!(changed(""), (1, 0));
    assert_eq!(changed(&format!("{layer}macaroons.secretkey /s\n")), (0, 1));
    // Without the layer, the settings are only doubtful: sites issue macaroons with them elsewhere.
    for lines in ["macaroons.secretkey /s", "macaroons.onmissing deny", "macaroons.maxduration 1h"] {
        let loaded = read(&format!("ofs.authorize\n{lines}\n"));
        assert!(loaded.report.is_ok(), "{lines}");
        assert!(
            loaded.report.to_string().contains("has no effect, because macaroons do not count"),
            "{lines}"
        );
    }
}

#[test]
fn macaroons_have_limits() {
    let values = |line: &str| {
        let loaded = read(&format!("{line}\n"));
        assert!(loaded.report.is_ok(), "{line}: {}", loaded.report);
        loaded.effective.authorization.macaroons
    };
    let lifetime = |text: &str| values(&format!("macaroons.maxduration {text}")).lifetime_max.value;
    let seconds = |seconds| Some(std::time::Duration::from_secs(seconds));
    assert_eq!(values("").lifetime_max.value, seconds(86_400));
    assert_eq!(
        (lifetime("90"), lifetime("1h"), lifetime("2d")),
        (seconds(90), seconds(3600), seconds(172_800))
    );
    assert_eq!((lifetime("0"), lifetime("-1"), lifetime("-86400")), (None, None, None));
    for (name, expected) in MissingMacaroon::ALL {
        assert_eq!(values(&format!("macaroons.onmissing {name}")).on_missing.value, expected);
    }
    let level = |text: &str| values(&format!("macaroons.trace {text}")).trace.level();
    for (text, expected) in [
        ("all", LogLevel::Trace),
        ("debug", LogLevel::Debug),
        ("error warning info", LogLevel::Info),
        ("all -debug", LogLevel::Info),
        ("none", LogLevel::Info),
        ("off", LogLevel::Info),
    ] {
        assert_eq!(level(text), expected, "{text}");
    }
    for (line, expected) in [
        ("macaroons.maxduration 1w", "f:1:23: error: macaroons.maxduration: maxduration 1w"),
        ("macaroons.maxduration 11y", "f:1:23: error: macaroons.maxduration: maxduration 11y"),
        ("macaroons.maxduration -", "f:1:23: error: macaroons.maxduration: maxduration -"),
        ("macaroons.maxduration 4000d", "f:1:23: error: macaroons.maxduration: maxduration 4000d"),
        ("macaroons.maxduration", "f:1:1: error: macaroons.maxduration: maxduration value not specified"),
        ("macaroons.onmissing never", "f:1:21: error: macaroons.onmissing: invalid onmissing value 'never'"),
        ("macaroons.secretkey s", "f:1:21: error: macaroons.secretkey: non-absolute secretkey path"),
        ("macaroons.trace loud", "f:1:17: error: macaroons.trace: unknown option 'loud'"),
    ] {
        let report = read(line).report;
        let found: Vec<String> = report.errors().map(ToString::to_string).collect();
        assert!(found.len() == 1 && found[0].starts_with(expected), "{line}: {found:?}");
    }
}

#[test]
fn layers_that_would_not_decide_stop_the_start() {
    let stacked = "ofs.authlib ++ libXrdAccSciTokens.so";
    assert!(
        error(&format!("{stacked}\n{stacked}"))
            .contains("tokens are named twice; name all issuers in one file")
    );
    assert!(
        error(&format!("{stacked}\nofs.authlib ++ default")).contains("the rules cannot be on top of tokens")
    );
    for parameter in ["/etc/x", "config=x", "config=", "config=/a debug"] {
        let found = error(&format!("{stacked} {parameter}"));
        assert!(found.contains("allowed: config=/path"), "{parameter}: {found}");
    }
    let replaced = error("ofs.authlib libXrdAccSciTokens.so\nacc.authdb /x");
    assert!(
        replaced.contains("acc.authdb: restricts access") && replaced.contains("ofs.authlib ++"),
        "{replaced}"
    );
    assert!(read("ofs.authorize\nofs.authlib libXrdAccSciTokens.so\nacc.audit deny\n").report.is_ok());
}
