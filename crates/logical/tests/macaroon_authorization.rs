//! Tests of macaroons in front of a logical file system: the operations that activities allow, paths,
//! expiry, and the layers behind.

#![allow(clippy::unwrap_used)]

mod support;

use auth::SystemRng;
use auth::access::{AccessPolicy, AuditedDecisions, AuthdbCheck, Authorizer, CredentialLayer};
use auth::macaroons::{
    Activity, MacaroonPolicy, MacaroonRequest, MacaroonSecret, MacaroonSettings, with_caveat,
};
use auth::tokens::OnMissing;
use base::{ErrorKind, Identity, LogicalPath, LoginNames};
use logical::{AuthorizationRole, AuthorizedFiles};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use support::issuer::{TestIssuer, login_with, rules};
use support::{Call, Client, Server, creating, path, reading, replacing, target, updating};
use vfs::{Answer, Caller, ListDetail, OpenRequest, Operation};

const SITE: &str = "Test-Site";

fn secret() -> MacaroonSecret {
    MacaroonSecret::new(&[7; 64])
}

fn macaroons(on_missing: OnMissing) -> CredentialLayer {
    let settings = MacaroonSettings {
        secret: "/s".into(),
        check: AuthdbCheck::None,
        site: SITE.to_owned(),
        lifetime_max: Some(Duration::from_secs(86_400)),
        on_missing,
    };
    CredentialLayer::Macaroons(Arc::new(MacaroonPolicy::new(settings, secret())))
}

/// Returns a macaroon of a site for activities below a path, which expires in `seconds`.
fn issued(site: &str, secret: &MacaroonSecret, activities: &str, at: &str, seconds: i64) -> String {
    let span = Duration::from_secs(seconds.unsigned_abs());
    let now = SystemTime::now();
    let request = MacaroonRequest {
        name: Some("alice".to_owned()),
        activities: activities.split(',').map(|name| Activity::of_name(name).unwrap()).collect(),
        path: path(at),
        expires: if seconds < 0 { now - span } else { now + span },
    };
    request.issue(secret, site, &mut SystemRng).unwrap()
}

fn macaroon(activities: &str, at: &str) -> String {
    issued(SITE, &secret(), activities, at, 600)
}

fn server() -> Server {
    let server = Server::new();
    for name in ["/data/f", "/data/sub/f", "/data/subx/f", "/data/public/f"] {
        server.memory.put(name, b"x");
    }
    server
}

fn guarded(server: &Server, layers: Vec<CredentialLayer>, rules: Option<Arc<Authorizer>>) -> Client {
    let audit = AuditedDecisions { grants: true, denials: true };
    let policy = Arc::new(AccessPolicy::new(layers, rules, audit));
    let exports = vec![LogicalPath::parse(b"/data").unwrap()];
    let files = AuthorizedFiles::before(
        server.logical.clone(),
        Some(policy),
        (AuthorizationRole::Server, false),
        exports,
    );
    let names = LoginNames { user: "u", host: "h.o", ..LoginNames::default() };
    Client::new(files, Arc::new(Caller::new(Identity::new(&names, 1, None, "host"), true, false)))
}

fn client(server: &Server) -> Client {
    guarded(server, vec![macaroons(OnMissing::PassThrough)], None)
}

fn open(name: &str, request: OpenRequest) -> Operation {
    Operation::Open(target(name), Box::new(request))
}

/// Reports whether an operation was not refused for want of rights.
fn is_allowed(call: Call) -> bool {
    !matches!(call.answer(), Answer::Error(error) if error.kind == ErrorKind::NotAuthorized)
}

fn make_directory(name: &str) -> Operation {
    Operation::MakeDirectory { target: target(name), mode: 0o755, parents: false, existing_parent: None }
}

#[test]
fn activities_allow_their_operations() {
    let allowed = |activities: &str| {
        let server = server();
        let client = client(&server);
        let authz = format!("?authz=Bearer%20{}", macaroon(activities, "/data/sub"));
        let at = |name: &str| format!("{name}{authz}");
        let operations = [
            ("stat", Operation::Stat(target(&at("/data/sub/f")))),
            ("list", Operation::List(target(&at("/data/sub")), ListDetail::default())),
            ("read", open(&at("/data/sub/f"), reading())),
            ("new", open(&at("/data/sub/new"), creating())),
            ("update", open(&at("/data/sub/f"), updating())),
            ("replace", open(&at("/data/sub/f"), replacing())),
            ("mkdir", make_directory(&at("/data/sub/d"))),
            ("chmod", Operation::ChangeMode { target: target(&at("/data/sub/f")), mode: 0o600 }),
            ("rm", Operation::Remove(target(&at("/data/sub/f")))),
        ];
        let allowed = operations.into_iter().filter_map(|(name, operation)| {
            let answer = client.call(operation);
            is_allowed(answer).then_some(name)
        });
        let allowed = allowed.collect::<Vec<_>>().join(" ");
        let is_kept = server.memory.content("/data/sub/f").is_some();
        assert_eq!(is_kept, !allowed.contains("rm"), "{activities}");
        allowed
    };
    for (activities, expected) in [
        ("READ_METADATA", "stat"),
        ("LIST", "stat list"),
        ("DOWNLOAD", "stat read"),
        ("DOWNLOAD,LIST", "stat list read"),
        ("UPLOAD", "stat new"),
        ("MANAGE", "stat new update replace mkdir"),
        ("UPDATE_METADATA", "stat chmod"),
        ("DELETE", "stat rm"),
    ] {
        assert_eq!(allowed(activities), expected, "{activities}");
    }
}

#[test]
fn a_right_to_upload_replaces_nothing() {
    let server = server();
    let client = client(&server);
    let upload = macaroon("UPLOAD", "/data/sub");
    let at = |name: &str| format!("{name}?authz={upload}");
    assert_eq!(client.call(open(&at("/data/sub/f"), replacing())).error().kind, ErrorKind::NotAuthorized);
    assert_eq!(server.memory.content("/data/sub/f").as_deref(), Some(&b"x"[..]));
    let file = client.call(open(&at("/data/sub/new"), replacing())).file();
    client.write(&file, 0, b"new").done();
    client.close(&file).done();
    assert_eq!(server.memory.content("/data/sub/new").as_deref(), Some(&b"new"[..]));
    // Missing directories need another activity.
    let deep = || OpenRequest { make_path: true, ..replacing() };
    client.call(open(&at("/data/sub/a/new"), deep())).error();
    assert_eq!(server.memory.content("/data/sub/a/new"), None);
    let manage = macaroon("MANAGE", "/data/sub");
    client.call(open(&format!("/data/sub/a/new?authz={manage}"), deep())).file();
}

#[test]
fn a_macaroon_is_for_its_path_and_below() {
    let server = server();
    let client = client(&server);
    let all = macaroon("DOWNLOAD,LIST,MANAGE", "/data/sub");
    let deeper = with_caveat(all.as_bytes(), b"path:/data/sub/deep").unwrap();
    let reads =
        |name: &str, token: &str| is_allowed(client.call(open(&format!("{name}?authz={token}"), reading())));
    assert!(reads("/data/sub/f", &all) && reads("/data//sub//f", &all));
    for outside in ["/data/subx/f", "/data/f", "/data/su", "/data"] {
        assert!(!reads(outside, &all), "{outside}");
    }
    assert!(!reads("/data/sub/f", &deeper) && reads("/data/sub/deep/none", &deeper));
    let stats = |name: &str| is_allowed(client.call(Operation::Stat(target(&format!("{name}?authz={all}")))));
    assert!(stats("/data") && stats("/data/sub") && !stats("/data/subx") && !stats("/data/f"));
    assert!(is_allowed(client.call(make_directory(&format!("/data?authz={all}")))));
    assert!(!is_allowed(client.call(make_directory(&format!("/data/other?authz={all}")))));
    // The macaroon of one request gives no rights to the next request.
    assert!(!is_allowed(client.call(open("/data/sub/f", reading()))));
}

#[test]
fn an_invalid_macaroon_does_not_fall_back_to_rules() {
    let server = server();
    let rules = Some(rules("u * /data/public rl\n"));
    let client = guarded(&server, vec![macaroons(OnMissing::PassThrough)], rules);
    let reads =
        |token: &str| is_allowed(client.call(open(&format!("/data/public/f?authz={token}"), reading())));
    let other_secret = MacaroonSecret::new(&[8; 64]);
    let valid = macaroon("DOWNLOAD", "/data/sub");
    for refused in [
        issued(SITE, &secret(), "DOWNLOAD", "/data", -1),
        issued(SITE, &secret(), "DOWNLOAD", "/data", 90_000),
        issued(SITE, &other_secret, "DOWNLOAD", "/data", 600),
        with_caveat(valid.as_bytes(), b"ip:192.0.2.1").unwrap(),
        with_caveat(valid.as_bytes(), b"name:root").unwrap(),
        // Valid, but not for this path: its caveats decide.
        valid.clone(),
    ] {
        assert!(!reads(&refused), "{refused}");
    }
    // Credentials of other kinds and of other sites count as none.
    for none in ["abc", &valid[..valid.len() - 1], &issued("Test", &secret(), "DOWNLOAD", "/data", -1), ""] {
        assert!(reads(none), "{none}");
    }
    let twice = client.call(open(&format!("/data/public/f?authz={valid}&authz={valid}"), reading()));
    assert_eq!(twice.error().kind, ErrorKind::ArgInvalid);
}

#[test]
fn requests_without_a_macaroon_depend_on_onmissing() {
    let server = server();
    let own = macaroon("DOWNLOAD", "/data/sub");
    for (on_missing, public, other) in [
        (OnMissing::PassThrough, true, false),
        (OnMissing::Allow, true, true),
        (OnMissing::Deny, false, false),
    ] {
        let client = guarded(&server, vec![macaroons(on_missing)], Some(rules("u * /data/public rl\n")));
        let reads = |name: &str| is_allowed(client.call(open(name, reading())));
        for token in ["", "?authz=abc"] {
            assert_eq!(reads(&format!("/data/public/f{token}")), public, "{on_missing:?}");
            assert_eq!(reads(&format!("/data/f{token}")), other, "{on_missing:?}");
        }
        assert!(reads(&format!("/data/sub/f?authz={own}")) && !reads(&format!("/data/f?authz={own}")));
    }
}

#[test]
fn each_layer_decides_by_its_own_credentials() {
    let (server, issuer) = (server(), TestIssuer::new());
    let tokens = || CredentialLayer::Tokens(issuer.tokens());
    let rules = rules("u * /data/public rl\n");
    let macaroon = macaroon("DOWNLOAD", "/data/sub");
    let (token, expired) = (issuer.token("storage.read:/subx"), issuer.token_for("storage.read:/", -1));
    let orders = [
        vec![macaroons(OnMissing::PassThrough), tokens()],
        vec![tokens(), macaroons(OnMissing::PassThrough)],
    ];
    for layers in orders {
        let client = guarded(&server, layers, Some(rules.clone()));
        let reads = |name: &str, token: &str| {
            is_allowed(client.call(open(&format!("{name}?authz={token}"), reading())))
        };
        // The first use of a token verifies on a thread, the second one recalls.
        for _ in 0..2 {
            assert!(reads("/data/sub/f", &macaroon) && !reads("/data/subx/f", &macaroon));
            assert!(reads("/data/subx/f", &token) && !reads("/data/sub/f", &token));
            assert!(reads("/data/public/f", "") && !reads("/data/sub/f", ""));
            assert!(reads("/data/public/f", &token), "the rules allow what no scope allows");
            assert!(!reads("/data/public/f", &macaroon) && !reads("/data/public/f", &expired));
        }
    }
}

#[test]
fn the_macaroon_of_the_login_counts_until_it_expires() {
    let server = server();
    let rules = Some(rules("u alice /data rl\nu * /data/public rl\n"));
    let client = guarded(&server, vec![macaroons(OnMissing::PassThrough)], rules);
    let login = |token: &str, at: SystemTime| login_with(macaroons(OnMissing::PassThrough), token, at);
    let reads = |caller: &Arc<Caller>, name: &str| is_allowed(client.open_as(caller, name, reading()));
    let caller = login(&macaroon("DOWNLOAD", "/data/sub"), SystemTime::now());
    assert!(reads(&caller, "/data/sub/f"));
    assert!(!reads(&caller, "/data/f"), "its name is not one for the rules");
    // A macaroon of the request counts instead.
    let other = macaroon("DOWNLOAD", "/data/subx");
    assert!(reads(&caller, &format!("/data/subx/f?authz={other}")));
    assert!(!reads(&caller, &format!("/data/sub/f?authz={other}")));
    // The login was earlier.
    let expired = issued(SITE, &secret(), "DOWNLOAD", "/data", -1);
    let caller = login(&expired, SystemTime::now() - Duration::from_secs(60));
    assert!(!reads(&caller, "/data/sub/f") && reads(&caller, "/data/public/f"));
    assert!(!reads(&caller, "/data/f"), "nor is it after the end");
}
