//! The layers of authorization (`ofs.authlib`): their order, and combinations that stop the start.

use config::*;

fn read(text: &str) -> Loaded {
    let request = ConfigInput { file: Some("f".to_owned()), ..ConfigInput::default() };
    load(&request, &MemorySource::new().with("f", text))
}

/// Returns the line of `ofs.authlib` as it is shown, and whether the rules decide.
fn layers(lines: &str) -> (Option<String>, bool) {
    let loaded = read(&format!("ofs.authorize\n{lines}\n"));
    assert!(loaded.report.is_ok(), "{lines}: {}", loaded.report);
    let shown = show(&loaded.effective);
    let line = shown.into_iter().find(|line| line.directive == "ofs.authlib").and_then(|line| line.value);
    (line, loaded.effective.authorization.layers.rules)
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
