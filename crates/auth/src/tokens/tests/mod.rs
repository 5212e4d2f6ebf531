//! Tests of whole tokens: recorded answers, refusals, decisions, and the cache.

mod issuer_files;
mod logins;

use super::test_issuer::*;
use super::*;
use crate::access::{
    AccessClient, AccessOperation, AccessPolicy, AuditedDecisions, AuthdbCheck, AuthdbEncoding, AuthdbSource,
    Authorizer, AuthorizerSettings, CredentialLayer, LayerDecision, NetgroupDatabase, NetgroupMember,
    PathMatch, RequestToken, TokenOrigin,
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

fn fault(policy: &TokenPolicy, token: &str) -> Option<TokenFault> {
    match policy.verify(token.as_bytes(), now()) {
        TokenVerdict::Valid(_) => None,
        TokenVerdict::Refused(fault) | TokenVerdict::NotRecognized(fault) => Some(fault),
    }
}

struct NoNetgroups;
impl NetgroupDatabase for NoNetgroups {
    fn members(&self, _: &str) -> std::io::Result<Vec<NetgroupMember>> {
        Ok(Vec::new())
    }
}

/// A directory that is removed at the end of a test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("auth-tokens-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        Self(directory)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let file = self.0.join(name);
        std::fs::write(&file, text).unwrap();
        file
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn rules(text: &str) -> Arc<Authorizer> {
    let scratch = Scratch::new();
    let source = AuthdbSource {
        path: scratch.write("authdb", text),
        encoding: AuthdbEncoding::default(),
        matching: PathMatch::Component,
        netgroup_domain: None,
    };
    let settings =
        AuthorizerSettings { source, audit: AuditedDecisions::default(), netgroup_lifetime: Duration::MAX };
    Arc::new(Authorizer::new(settings, Arc::new(NoNetgroups), Duration::ZERO).unwrap())
}

/// Asks tokens over rules for a client of which only the host is known.
fn permits(
    tokens: &Arc<TokenPolicy>,
    rules: Option<&Arc<Authorizer>>,
    token: Option<&str>,
    (operation, at): (AccessOperation, &str),
) -> bool {
    let policy = AccessPolicy::new(
        vec![CredentialLayer::Tokens(tokens.clone())],
        rules.cloned(),
        AuditedDecisions::default(),
    );
    let token = token.map(|token| RequestToken {
        macaroon: None,
        token: Some(tokens.verify(token.as_bytes(), now())),
        origin: TokenOrigin::Request,
    });
    policy.request(AccessClient::Host("h"), token.as_ref()).permits(operation, &path(at))
}

/// Recorded: `scitokens.json`.
#[test]
fn the_recorded_tokens_have_the_recorded_answers() {
    let recorded = vector("scitokens.json");
    let (tokens, rules) = (recorded_policy(""), rules(recorded["authdb"].as_str().unwrap()));
    let mut answers = 0;
    for case in recorded["cases"].as_array().unwrap() {
        let token = recorded_token(case);
        let is_valid = matches!(tokens.verify(token.as_bytes(), now()), TokenVerdict::Valid(_));
        assert_eq!(is_valid, case["auth"] == "ok", "{case}");
        for (question, answer) in case["ops"].as_object().into_iter().flatten() {
            let question = match question.as_str() {
                "stat /protected/f" => (AccessOperation::Stat, "/protected/f"),
                "read f" => (AccessOperation::Read, "/protected/f"),
                "read sub/g" => (AccessOperation::Read, "/protected/sub/g"),
                "read protectedX/x" => (AccessOperation::Read, "/protectedX/x"),
                "read public/p" => (AccessOperation::Read, "/public/p"),
                "create new" => (AccessOperation::Create, "/protected/new"),
                "update f" => (AccessOperation::Update, "/protected/f"),
                "mkdir" => (AccessOperation::MakeDirectory, "/protected/d"),
                other => panic!("{other}"),
            };
            // With a right to create new files only, the open must be exclusive.
            let exclusive = (AccessOperation::ExclusiveCreate, question.1);
            let is_allowed = permits(&tokens, Some(&rules), Some(&token), question)
                || question.0 == AccessOperation::Create
                    && permits(&tokens, Some(&rules), Some(&token), exclusive);
            assert_eq!(is_allowed, answer == "allowed", "{}: {question:?}", case["case"]);
            answers += 1;
        }
    }
    assert!(answers >= 70, "{answers}");
}

#[test]
fn tokens_that_must_be_refused_are_refused() {
    let policy = recorded_policy("");
    let expected = [
        (json!({"iss": format!("{ISSUER}/")}), TokenFault::UnknownIssuer),
        (json!({"iss": "https://localhost:23050"}), TokenFault::UnknownIssuer),
        (json!({ "iss": null }), TokenFault::UnknownIssuer),
        (json!({ "exp": NOW }), TokenFault::Expired),
        (json!({ "exp": null }), TokenFault::NoExpiry),
        (json!({"nbf": NOW + 600}), TokenFault::NotYetValid),
        (json!({ "aud": null }), TokenFault::NoAudience),
        (json!({"aud": "https://localhost:2304"}), TokenFault::Audience),
        (json!({ "sub": null }), TokenFault::NoSubject),
        (json!({"wlcg.ver": "2.0"}), TokenFault::Version),
    ];
    for (changes, expected) in expected {
        assert_eq!(fault(&policy, &token(&changes)), Some(expected), "{changes}");
    }
    let signed = |header: Value| Signer::recorded().token(&header, &claims(&json!({})));
    for algorithm in ["none", "HS256", "ES384", "RS512", "PS256"] {
        let text = signed(json!({"alg": algorithm, "kid": "test-1"}));
        assert_eq!(fault(&policy, &text), Some(TokenFault::Algorithm), "{algorithm}");
    }
    // A key of another kind than the algorithm, and other ids.
    assert_eq!(
        fault(&policy, &signed(json!({"alg": "RS256", "kid": "test-1"}))),
        Some(TokenFault::UnknownKey)
    );
    assert_eq!(
        fault(&policy, &signed(json!({"alg": "ES256", "kid": "test-2"}))),
        Some(TokenFault::UnknownKey)
    );
    assert_eq!(fault(&policy, &signed(json!({"alg": "ES256"}))), None, "the only key");
    let valid = token(&json!({}));
    let (signed, signature) = valid.rsplit_once('.').unwrap();
    for text in [
        format!("{signed}."),
        format!("{signed}.{}", &signature[..84]),
        format!("{signed}.{}", encode([0; 64])),
    ] {
        assert_eq!(fault(&policy, &text), Some(TokenFault::Signature), "{text}");
    }
    // Claims of one token with the signature of another one.
    let other = token(&json!({"sub": "bob"}));
    let mixed = format!("{}.{signature}", other.rsplit_once('.').unwrap().0);
    assert_eq!(fault(&policy, &mixed), Some(TokenFault::Signature));
    assert_eq!(fault(&policy, &valid), None);
}

#[test]
fn no_changed_character_leaves_a_token_valid() {
    let policy = recorded_policy("");
    let valid = token(&json!({}));
    for at in 0..valid.len() {
        for change in [1, 2, 16] {
            let mut changed = valid.clone().into_bytes();
            changed[at] ^= change;
            assert!(!matches!(policy.verify(&changed, now()), TokenVerdict::Valid(_)), "{at} {change}");
        }
        assert!(!matches!(policy.verify(&valid.as_bytes()[..at], now()), TokenVerdict::Valid(_)), "{at}");
    }
}

#[test]
fn each_issuer_has_its_own_keys() {
    let text = "[Global]\naudience = https://localhost:23040\n\
                [Issuer a]\nissuer = https://a\nbase_path = /a\n[Issuer b]\nissuer = https://b\nbase_path = /b\n";
    let policy = policy_of(text);
    let (a, b) = (Signer::recorded(), Signer::rs256());
    let set = |signer: &Signer, id: &str| {
        KeySet::parse(json!({"keys": [signer.public_key(id)]}).to_string().as_bytes())
    };
    let of = |signer: &Signer, issuer: &str, id: &str| {
        signer.token(&json!({"alg": signer.algorithm(), "kid": id}), &claims(&json!({ "iss": issuer })))
    };
    assert_eq!(policy.remote_issuers(), ["https://a", "https://b"]);
    assert_eq!(fault(&policy, &of(&a, "https://a", "k")), Some(TokenFault::NoKeys));
    policy.set_keys("https://a", Some(set(&a, "k").unwrap()));
    policy.set_keys("https://b", Some(set(&b, "k").unwrap()));
    assert_eq!(fault(&policy, &of(&a, "https://a", "k")), None);
    assert_eq!(fault(&policy, &of(&b, "https://b", "k")), None);
    assert_eq!(fault(&policy, &of(&a, "https://b", "k")), Some(TokenFault::UnknownKey));
    assert_eq!(fault(&policy, &of(&b, "https://a", "k")), Some(TokenFault::UnknownKey));
    // Removed and exchanged keys count at once, also for tokens that were verified with them.
    policy.set_keys("https://a", Some(set(&a, "new").unwrap()));
    assert_eq!(fault(&policy, &of(&a, "https://a", "k")), Some(TokenFault::UnknownKey));
    policy.set_keys("https://b", None);
    assert_eq!(fault(&policy, &of(&b, "https://b", "k")), Some(TokenFault::NoKeys));
    assert!(policy.state().contains("no keys of https://b"), "{}", policy.state());
}

/// Returns the layer that decides about a request with a token, as text.
fn layer(tokens: &Arc<TokenPolicy>, token: &str, at: &str) -> String {
    layer_of(tokens, (token, TokenOrigin::Request), AccessClient::Host("h"), at)
}

fn layer_of(
    tokens: &Arc<TokenPolicy>,
    (token, origin): (&str, TokenOrigin),
    client: AccessClient<'_>,
    at: &str,
) -> String {
    let policy =
        AccessPolicy::new(vec![CredentialLayer::Tokens(tokens.clone())], None, AuditedDecisions::default());
    let token = RequestToken { macaroon: None, token: Some(tokens.verify(token.as_bytes(), now())), origin };
    let request = policy.request(client, Some(&token));
    match request.layer(AccessOperation::Read, &path(at)) {
        LayerDecision::Scope(token, grant) => {
            format!("{} {}", grant.scope, token.name(&path(at)).unwrap_or("*"))
        }
        LayerDecision::InvalidToken(fault) => fault.to_string(),
        LayerDecision::OnMissing { is_allowed, token, .. } => {
            format!("onmissing {is_allowed} {}", token.is_some())
        }
        LayerDecision::Macaroon { .. } | LayerDecision::InvalidMacaroon(_) => "macaroon".to_owned(),
        LayerDecision::Rules(AccessClient::Bearer(principal, _)) => {
            let name = principal.name.unwrap_or("*");
            format!("rules {name} [{}] [{}]", principal.organizations, principal.groups)
        }
        LayerDecision::Rules(client) => match client.principal().name {
            Some(name) => format!("rules of the session for {name}"),
            None => "rules".to_owned(),
        },
    }
}

#[test]
fn the_strategies_name_the_client() {
    let scratch = Scratch::new();
    let map = scratch
        .write("map", r#"[{"group": "/cms/prod", "result": "prod"}, {"sub": "carol", "result": "carol2"}]"#);
    let keys = scratch.write("keys", &vector("ztn.json")["keys"]["jwks"].to_string());
    let load = |lines: &str| {
        let text = format!(
            "[Global]\naudience = https://localhost:23040\n[Issuer one]\nissuer = {ISSUER}\nbase_path = /protected\njwks_file = {}\n{lines}\n",
            keys.display()
        );
        let source = TokenPolicySource { path: scratch.write("cfg", &text), check: AuthdbCheck::ForServer };
        Arc::new(TokenPolicy::load(source).unwrap())
    };
    let map = format!("name_mapfile = {}\n", map.display());
    let (plain, groups) = (json!({}), json!({"wlcg.groups": ["/cms/prod", "/cms"]}));
    let none = json!({"scope": null});
    let both = json!({"scope": null, "wlcg.groups": ["/cms/prod", "/cms"], "sub": "carol"});
    let cases = [
        ("", &plain, "storage.read:/ *"),
        ("map_subject = true", &plain, "storage.read:/ alice"),
        ("default_user = pool", &plain, "storage.read:/ pool"),
        ("map_subject = true\ndefault_user = pool", &plain, "storage.read:/ alice"),
        ("username_claim = sub\ndefault_user = pool", &plain, "storage.read:/ alice"),
        ("username_claim = none\ndefault_user = pool", &plain, "storage.read:/ pool"),
        (&map, &groups, "storage.read:/ prod"),
        ("", &none, "rules"),
        ("default_user = pool", &none, "rules"),
        ("", &both, "rules * [https://localhost:23050/one] [/cms/prod /cms]"),
        (&map, &both, "rules prod [https://localhost:23050/one] [/cms/prod /cms]"),
        (&(map.clone() + "authorization_strategy = mapping"), &both, "rules prod [] []"),
        (&(map.clone() + "authorization_strategy = Mapping capability"), &groups, "storage.read:/ prod"),
        (
            &(map.clone() + "authorization_strategy = group"),
            &groups,
            "rules * [https://localhost:23050/one] [/cms/prod /cms]",
        ),
        ("authorization_strategy = mapping", &groups, "rules"),
        ("groups_claim = g", &groups, "storage.read:/ *"),
    ];
    for (lines, changes, expected) in cases {
        assert_eq!(layer(&load(lines), &token(changes), "/protected/f"), expected, "{lines} {changes}");
    }
}

/// A rename of a directory would move objects away from the rules for their name.
#[test]
fn a_map_rule_below_a_directory_counts_as_a_rule_below() {
    let scratch = Scratch::new();
    let map = scratch.write(
        "map",
        r#"[{"path": "/a/b", "result": "bob"}, {"path": "/x", "sub": "other", "result": "other"},
            {"group": "/cms", "result": "cms"}]"#,
    );
    let keys = scratch.write("keys", &vector("ztn.json")["keys"]["jwks"].to_string());
    let below = |lines: &str, changes: &serde_json::Value, directory: &str| {
        let text = format!(
            "[Global]\naudience = https://localhost:23040\n{lines}\n[Issuer one]\nissuer = {ISSUER}\nbase_path = /protected\njwks_file = {}\nname_mapfile = {}\n",
            keys.display(),
            map.display()
        );
        let source = TokenPolicySource { path: scratch.write("cfg", &text), check: AuthdbCheck::ForServer };
        let tokens = Arc::new(TokenPolicy::load(source).unwrap());
        let token = Some(tokens.verify(token(changes).as_bytes(), now()));
        let token = RequestToken { macaroon: None, token, origin: TokenOrigin::Request };
        let policy = AccessPolicy::new(
            vec![CredentialLayer::Tokens(tokens)],
            Some(rules("u bob / a\n")),
            AuditedDecisions::default(),
        );
        let request = policy.request(AccessClient::Host("h"), Some(&token));
        request.has_rule_below(AccessOperation::Rename, &path(directory))
    };
    let named = json!({"scope": null, "wlcg.groups": ["/cms"]});
    let unnamed = json!({ "scope": null });
    for changes in [&named, &unnamed] {
        for lines in ["", "onmissing = allow"] {
            assert!(below(lines, changes, "/protected/a") && below(lines, changes, "/"), "{lines}");
            assert!(!below(lines, changes, "/protected/a/b"), "the rule is for the directory itself");
            assert!(!below(lines, changes, "/protected/x"), "the rule is for another subject");
        }
    }
    assert!(!below("", &json!({"scope": "storage.modify:/"}), "/protected/a"), "a scope decides");
}

/// Returns the policy of an issuer whose tokens have their names from this map file.
fn with_map(scratch: &Scratch, map: &str) -> TokenPolicy {
    let map = scratch.write("map", map);
    let keys = scratch.write("keys", &vector("ztn.json")["keys"]["jwks"].to_string());
    let text = format!(
        "[Global]\naudience = https://localhost:23040\n[Issuer one]\nissuer = {ISSUER}\nbase_path = /protected\njwks_file = {}\nname_mapfile = {}\n",
        keys.display(),
        map.display()
    );
    let source = TokenPolicySource { path: scratch.write("cfg", &text), check: AuthdbCheck::ForServer };
    TokenPolicy::load(source).unwrap()
}

#[test]
fn rules_know_the_bearer_also_where_another_operation_is_asked_for() {
    let scratch = Scratch::new();
    let tokens = Arc::new(with_map(&scratch, r#"[{"sub": "carol", "result": "carol"}]"#));
    let policy = AccessPolicy::new(
        vec![CredentialLayer::Tokens(tokens.clone())],
        Some(rules("u carol /protected/tape rl\nu * /protected/open rl\n")),
        AuditedDecisions::default(),
    );
    let may_stage = |changes: &serde_json::Value, at: &str| {
        let token = Some(tokens.verify(token(changes).as_bytes(), now()));
        let token = RequestToken { macaroon: None, token, origin: TokenOrigin::Request };
        let request = policy.request(AccessClient::Host("h"), Some(&token));
        request.allows_by_rules_as((AccessOperation::Stage, AccessOperation::Read), &path(at), &"")
    };
    let named = json!({"scope": null, "sub": "carol"});
    assert!(may_stage(&named, "/protected/tape/f"), "rules are for the bearer, not for the host");
    assert!(!may_stage(&json!({"scope": null}), "/protected/tape/f"));
    // A scope to read is none to stage, but does not take what rules allow all.
    let reads = json!({"scope": "storage.read:/"});
    assert!(!may_stage(&reads, "/protected/tape/f") && may_stage(&reads, "/protected/open/f"));
    assert!(may_stage(&json!({"scope": "storage.stage:/"}), "/protected/tape/f"));
    assert!(!may_stage(&json!({"exp": NOW}), "/protected/open/f"), "an invalid token allows nothing");
}

#[test]
fn requests_without_an_authorizing_token_depend_on_onmissing() {
    let file = |value: &str| {
        let policy = policy_of(&format!(
            "[Global]\naudience = https://localhost:23040\nonmissing = {value}\n[Issuer one]\nissuer = {ISSUER}\nbase_path = /protected\n"
        ));
        policy.set_keys(ISSUER, Some(recorded_keys()));
        Arc::new(policy)
    };
    let rules = rules("u * /public r\n");
    let (read_public, read_other) = ((AccessOperation::Read, "/public/x"), (AccessOperation::Read, "/other"));
    let sub = token(&json!({"scope": "storage.read:/sub"}));
    let unknown = token(&json!({"iss": "https://other"}));
    let bad = token(&json!({ "exp": NOW }));
    for (value, public, other) in
        [("passthrough", true, false), ("allow", true, true), ("Deny", false, false)]
    {
        let tokens = file(value);
        for token in [None, Some(sub.as_str()), Some("no-token"), Some("MDAx"), Some(unknown.as_str())] {
            assert_eq!(permits(&tokens, Some(&rules), token, read_public), public, "{value} {token:?}");
            assert_eq!(permits(&tokens, Some(&rules), token, read_other), other, "{value} {token:?}");
        }
        // A token that is recognized and not valid ends the decision.
        for question in [read_public, read_other, (AccessOperation::Any, "/")] {
            assert!(!permits(&tokens, Some(&rules), Some(&bad), question), "{value}");
        }
        let inside = (AccessOperation::Read, "/protected/sub/x");
        assert!(permits(&tokens, Some(&rules), Some(&sub), inside), "{value}");
    }
    // Without rules behind, what no token authorizes is denied.
    assert!(!permits(&file("passthrough"), None, Some(&sub), read_public));
    assert!(permits(&file("allow"), None, Some(&sub), read_public));
}

#[test]
fn several_base_paths_and_restrictions_apply() {
    let policy = policy_of(&format!(
        "[Global]\naudience_json = [\"https://localhost:23040\"]\n\
         [Issuer one]\nissuer = {ISSUER}\nbase_path = /x, /y\nrestricted_path = /a /b\n"
    ));
    policy.set_keys(ISSUER, Some(recorded_keys()));
    let tokens = Arc::new(policy);
    let all = token(&json!({}));
    let reads = |token: &str, at| permits(&tokens, None, Some(token), (AccessOperation::Read, at));
    for inside in ["/x/a/f", "/y/a", "/x/b/f"] {
        assert!(reads(&all, inside), "{inside}");
    }
    for outside in ["/x/c", "/x", "/a/f", "/y/ab", "/z/a"] {
        assert!(!reads(&all, outside), "{outside}");
    }
    let outside = token(&json!({"scope": "storage.read:/c storage.read:/a/../c storage.modify:/a"}));
    assert!(!reads(&outside, "/x/c") && !reads(&outside, "/x/a/f"));
}

#[test]
fn verified_tokens_are_kept_for_a_while() {
    let policy = recorded_policy("");
    let text = token(&json!({"exp": NOW + 70}));
    let recall = |seconds| policy.recall(text.as_bytes(), at(NOW + seconds)).is_some();
    assert!(!recall(0));
    assert_eq!(fault(&policy, &text), None);
    assert!(recall(59) && !recall(60));
    let _ = policy.verify(text.as_bytes(), at(NOW + 60));
    // Not beyond its expiry.
    assert!(recall(69) && !recall(70));
    let refused = policy.verify(text.as_bytes(), at(NOW + 70));
    assert!(matches!(refused, TokenVerdict::Refused(TokenFault::Expired)));
    assert!(matches!(policy.recall(b"abc", now()), Some(TokenVerdict::NotRecognized(_))));
    let bad = token(&json!({"aud": "https://other"}));
    assert!(fault(&policy, &bad).is_some() && policy.recall(bad.as_bytes(), now()).is_none());
}

#[test]
fn the_cache_is_bounded_in_bytes() {
    let policy = recorded_policy("");
    let TokenVerdict::Valid(large) =
        policy.verify(token(&json!({"wlcg.groups": vec!["g".repeat(30); 200]})).as_bytes(), now())
    else {
        panic!("refused");
    };
    let bytes = large.bytes();
    assert!(bytes > 10_000, "{bytes}");
    for number in 0..2 * verified_cache::VerifiedCache::BYTES_MAX / bytes {
        policy.cache().insert(&number.to_le_bytes(), large.clone(), 1, now());
    }
    let (tokens, size) = policy.cache().size();
    assert!(size <= verified_cache::VerifiedCache::BYTES_MAX && tokens * bytes <= size, "{tokens} {size}");
    assert!(tokens > 0);
}

/// A token that is not cached is verified for each request.
#[test]
fn a_token_with_as_many_map_rules_as_possible_is_cached() {
    let scratch = Scratch::new();
    let rule = |number| json!({"path": format!("/{number:060}"), "result": format!("u{number}")});
    let rules: Vec<Value> = (0..MAP_RULES_MAX).map(rule).collect();
    let policy = with_map(&scratch, &serde_json::to_string(&rules).unwrap());
    let token = token(&json!({}));
    assert_eq!(fault(&policy, &token), None);
    let Some(TokenVerdict::Valid(cached)) = policy.recall(token.as_bytes(), now()) else {
        panic!("not cached")
    };
    let last = MAP_RULES_MAX - 1;
    let path = path(&format!("/protected/{last:060}/f"));
    assert_eq!(cached.mapped_name(&path).map(|(name, _)| name.to_owned()), Some(format!("u{last}")));
}

#[test]
fn no_message_contains_a_token() {
    let policy = recorded_policy("");
    for changes in [json!({}), json!({ "exp": NOW }), json!({"iss": "https://x"})] {
        let text = token(&changes);
        let shown = format!("{:?} {}", policy.verify(text.as_bytes(), now()), policy.state());
        assert!(text.split('.').all(|part| !shown.contains(part)), "{shown}");
    }
}
