//! Tests of issuer files: errors with their lines, and changes of the files.

use super::*;

#[test]
fn errors_of_an_issuer_file_have_lines() {
    let problems = |text: &str| {
        let mut read = |_: &Path, _| Err("no files here".to_owned());
        match IssuerFile::parse(text.as_bytes(), Path::new("/f"), &mut read) {
            Err(error) => error.to_string(),
            Ok(_) => "accepted".to_owned(),
        }
    };
    let issuer = "[Issuer a]\nissuer = https://a\nbase_path = /a\n";
    assert_eq!(problems(issuer), "accepted");
    assert_eq!(problems(&issuer.to_uppercase().replace("HTTPS://A", "https://a")), "accepted");
    for (text, expected) in [
        ("", "/f:1: the file has no [Issuer NAME] section, so no token would be accepted"),
        ("[Issuer a]\nbase_path = /a", "/f:1: section [Issuer a] has no issuer"),
        ("[Issuer a]\nissuer = https://a", "/f:1: section [Issuer a] has no base_path"),
        ("[Issuer a]\nissuer = http://a\nbase_path = /a", "/f:1: keys are fetched over https only"),
        ("[other]\n", "/f:1: unknown section [other]; allowed: [Global], [Issuer NAME]"),
        ("[Issuer]\n", "/f:1: unknown section [Issuer]"),
        ("[Global]\nonmissing = maybe", "/f:2: invalid onmissing 'maybe'; allowed: passthrough, allow, deny"),
        ("[Global]\naudience_json = [7]", "/f:2: audience_json is neither"),
        (
            "[Global]\naudiences = a",
            "/f:2: unknown key 'audiences'; allowed: audience, audience_json, onmissing",
        ),
        ("[Issuer a]\nbase_path = a/b", "/f:2: base_path: 'a/b' is not an absolute path"),
        ("[Issuer a]\nrestricted_path = /a/../b", "/f:2: restricted_path: '/a/../b' is not an absolute path"),
        ("[Issuer a]\nmap_subject = maybe", "/f:2: invalid map_subject 'maybe'; allowed: true, false"),
        ("[Issuer a]\ndefault_user = -x", "/f:2: invalid default_user '-x'"),
        ("[Issuer a]\nauthorization_strategy = any", "/f:2: invalid authorization_strategy 'any'"),
        ("[Issuer a]\nauthorization_strategy =", "/f:2: invalid authorization_strategy ''"),
        ("[Issuer a]\nname_mapfile = /m", "/f:2: name_mapfile /m is not used: no files here"),
        ("[Issuer a]\njwks_file = keys", "/f:2: invalid jwks_file 'keys'; allowed: an absolute path"),
        (&"\n".repeat(100_001), "/f:100001: the file has more than 100000 lines"),
        ("[Issuer a]\nkey = x", "/f:2: unknown key 'key'; allowed: issuer, base_path"),
        (
            &format!("{issuer}[Issuer b]\nissuer = https://a\nbase_path = /b"),
            "/f:4: the issuer https://a is already in section [Issuer a] (line 1)",
        ),
    ] {
        let found = problems(text);
        assert!(found.contains(expected), "{text}: {found}");
    }
    // Of a repeated key the last value counts.
    let mut read = |_: &Path, _| Err(String::new());
    let twice = "[Issuer a]\nissuer = https://a\nbase_path = /a\n[ISSUER A]\nbase_path = /b\n[Global]\nonmissing=deny\nonmissing = Allow";
    let file = IssuerFile::parse(twice.as_bytes(), Path::new("/f"), &mut read).unwrap();
    assert_eq!((file.issuers[0].base_paths.clone(), file.on_missing), (vec![path("/b")], OnMissing::Allow));
}

#[test]
fn changed_files_come_into_force_and_bad_ones_do_not() {
    let scratch = Scratch::new();
    let keys = scratch.write("keys", &vector("ztn.json")["keys"]["jwks"].to_string());
    let text = |base: &str| {
        format!(
            "[Global]\naudience = https://localhost:23040\n[Issuer one]\nissuer = {ISSUER}\nbase_path = {base}\njwks_file = {}\n",
            keys.display()
        )
    };
    let file = scratch.write("cfg", &text("/protected"));
    let source = TokenPolicySource { path: file.clone(), check: AuthdbCheck::ForServer };
    let policy = Arc::new(TokenPolicy::load(source.clone()).unwrap());
    let token = token(&json!({}));
    let reads = |at| permits(&policy, None, Some(&token), (AccessOperation::Read, at));
    assert!(reads("/protected/f") && !reads("/other/f"));
    assert!(matches!(policy.refresh(false), IssuersRefresh::Unchanged));
    scratch.write("cfg", &text("/other/longer"));
    assert!(matches!(policy.refresh(false), IssuersRefresh::Replaced(1)));
    assert!(!reads("/protected/f") && reads("/other/longer/f"));
    scratch.write("cfg", "[Issuer one]\n");
    assert!(matches!(policy.refresh(false), IssuersRefresh::Kept(_)));
    assert!(reads("/other/longer/f") && policy.state().contains("not in force"), "{}", policy.state());
    scratch.write("cfg", &text("/protected"));
    assert!(matches!(policy.refresh(false), IssuersRefresh::Replaced(1)));
    assert!(reads("/protected/f") && !policy.state().contains("not in force"));
    // A change of a file that the issuer file names.
    let other = json!({"keys": [Signer::rs256().public_key("test-1")]});
    scratch.write("keys", &other.to_string());
    assert!(matches!(policy.refresh(false), IssuersRefresh::Replaced(1)));
    assert_eq!(fault(&policy, &token), Some(TokenFault::UnknownKey));
    // Writers of the files decide who is trusted.
    for name in ["keys", "cfg"] {
        let changed = scratch.0.join(name);
        let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&changed, mode(0o666)).unwrap();
        let refused = TokenPolicy::load(source.clone()).err().unwrap().to_string();
        assert!(refused.contains("0666 allow others to change who is trusted"), "{refused}");
        std::fs::set_permissions(&changed, mode(0o644)).unwrap();
    }
}

/// The time after which fetched keys are outdated is forgotten with the issuer.
#[test]
fn fetched_keys_are_removed_with_their_issuer() {
    let scratch = Scratch::new();
    let issuer = |url: &str| {
        format!(
            "[Global]\naudience = https://localhost:23040\n[Issuer one]\nissuer = {url}\nbase_path = /protected\n"
        )
    };
    let file = scratch.write("cfg", &issuer(ISSUER));
    let source = TokenPolicySource { path: file, check: AuthdbCheck::ForServer };
    let policy = Arc::new(TokenPolicy::load(source).unwrap());
    policy.set_keys(ISSUER, Some(recorded_keys()));
    let token = token(&json!({}));
    assert_eq!(fault(&policy, &token), None);
    scratch.write("cfg", &issuer("https://another.example.org"));
    assert!(matches!(policy.refresh(false), IssuersRefresh::Replaced(1)));
    // A fetch that ends after the removal.
    policy.set_keys(ISSUER, Some(recorded_keys()));
    scratch.write("cfg", &issuer(ISSUER));
    assert!(matches!(policy.refresh(false), IssuersRefresh::Replaced(1)));
    assert_eq!(fault(&policy, &token), Some(TokenFault::NoKeys));
}
