//! Tests of bearer tokens in front of a logical file system: where the token of a request is, the
//! verification on a thread, and rights to new files only.

#![allow(clippy::unwrap_used)]

mod support;

use auth::access::{AccessPolicy, AuditedDecisions, Authorizer, CredentialLayer};
use auth::tokens::{HOST_KEY_WAITERS_MAX, SESSION_KEY_WAITERS_MAX};
use base::{ErrorKind, Identity, LogicalPath, LoginNames};
use logical::{AuthorizationRole, AuthorizedFiles, ForwardedChanges};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime};
use support::issuer::{TestIssuer, login_with, rules};
use support::{Client, PATIENCE, Server, creating, reading, replacing, target, updating};
use vfs::{
    Answer, Caller, FileSystem, ListDetail, LocateOptions, OpenRequest, Operation, PrepareRequest, TargetList,
};

fn guarded(
    behind: Arc<dyn FileSystem>,
    issuer: &TestIssuer,
    rules: Option<Arc<Authorizer>>,
    role: AuthorizationRole,
) -> Client {
    let audit = AuditedDecisions { grants: true, denials: true };
    let policy = Arc::new(AccessPolicy::new(vec![CredentialLayer::Tokens(issuer.tokens())], rules, audit));
    let exports = vec![LogicalPath::parse(b"/data").unwrap()];
    let files = AuthorizedFiles::before(behind, Some(policy), (role, false), exports);
    let names = LoginNames { user: "u", host: "h.o", ..LoginNames::default() };
    Client::new(files, Arc::new(Caller::new(Identity::new(&names, 1, None, "host"), true, false)))
}

fn client(server: &Server, issuer: &TestIssuer) -> Client {
    guarded(server.logical.clone(), issuer, None, AuthorizationRole::Server)
}

fn server() -> Server {
    let server = Server::new();
    for name in ["/data/f", "/data/sub/f"] {
        server.memory.put(name, b"x");
    }
    server
}

fn open(name: &str, request: OpenRequest) -> Operation {
    Operation::Open(target(name), Box::new(request))
}

/// Returns the caller of a client that has logged in with a token of `ztn`.
fn logged_in(issuer: &TestIssuer, token: &str, at: SystemTime) -> Arc<Caller> {
    login_with(CredentialLayer::Tokens(issuer.tokens()), token, at)
}

const REFUSED: ErrorKind = ErrorKind::NotAuthorized;

#[test]
fn the_token_in_the_cgi_decides() {
    let (server, issuer) = (server(), TestIssuer::new());
    let client = client(&server, &issuer);
    let read = issuer.token("storage.read:/sub");
    let with = |path: &str, token: &str| open(&format!("{path}?authz=Bearer%20{token}"), reading());
    // The first use verifies on a thread, the second one recalls.
    for _ in 0..2 {
        client.call(with("/data/sub/f", &read)).file();
        assert_eq!(client.call(with("/data/f", &read)).error().kind, REFUSED);
    }
    client.call(open(&format!("/data/sub/f?x=1&authz={read}&y=2"), reading())).file();
    client.call(Operation::Stat(target(&format!("/data/sub?authz={read}")))).stat();
    client.call(Operation::List(target(&format!("/data/sub?authz={read}")), ListDetail::default())).done();
    // A request without a token has nothing of the one before.
    assert_eq!(client.call(open("/data/sub/f", reading())).error().kind, REFUSED);
    assert_eq!(client.call(Operation::Stat(target("/data/sub"))).error().kind, REFUSED);
    let other = TestIssuer::new().token("storage.read:/");
    let expired = issuer.token_for("storage.read:/", -1);
    for token in [other.as_str(), &expired, "abc", &read[..read.len() - 1]] {
        assert_eq!(client.call(with("/data/sub/f", token)).error().kind, REFUSED, "{token}");
    }
    let twice = client.call(open(&format!("/data/sub/f?authz={read}&authz={read}"), reading()));
    assert_eq!(twice.error().kind, ErrorKind::ArgInvalid);
}

/// The requests of one client occupy a part of the places for requests that wait for keys.
#[test]
fn a_client_with_many_sessions_leaves_places_to_other_hosts() {
    let (server, issuer) = (server(), TestIssuer::new());
    let tokens = issuer.tokens();
    // A verification can be at work while the keys arrive, and waits only after that: the wait for such
    // a request ends at once, as by a second fetch.
    let (arrived, issuers) = (Arc::new(AtomicBool::new(false)), Arc::downgrade(&tokens));
    let (keys_are_here, address) = (arrived.clone(), issuer.address);
    tokens.on_missing_key(move || {
        if let (true, Some(issuers)) = (keys_are_here.load(Ordering::SeqCst), issuers.upgrade()) {
            issuers.end_wait_for_keys(address);
        }
    });
    tokens.set_keys(issuer.address, None);
    let layers = vec![CredentialLayer::Tokens(tokens.clone())];
    let policy = Arc::new(AccessPolicy::new(layers, None, AuditedDecisions::default()));
    let role = (AuthorizationRole::Server, false);
    let exports = vec![LogicalPath::parse(b"/data").unwrap()];
    let files = AuthorizedFiles::before(server.logical.clone(), Some(policy), role, exports);
    let session = |host: u8| {
        let names = LoginNames { user: "u", host: "h.o", ..LoginNames::default() };
        let identity = Identity::new(&names, 1, Some([192, 0, 2, host].into()), "host");
        Client::new(files.clone(), Arc::new(Caller::new(identity, true, false)))
    };
    let path = format!("/data/f?authz={}", issuer.token("storage.read:/"));
    std::thread::scope(|scope| {
        let (send, answers) = mpsc::channel();
        let request = |client: &Client| {
            let (call, send) = (client.open(&path, reading()), send.clone());
            scope.spawn(move || send.send(matches!(call.answer(), Answer::Error(_))));
        };
        let sessions = HOST_KEY_WAITERS_MAX / SESSION_KEY_WAITERS_MAX + 1;
        for client in (0..sessions).map(|_| session(1)) {
            (0..SESSION_KEY_WAITERS_MAX).for_each(|_| request(&client));
        }
        // These are refused while the others wait.
        let refused = (0..SESSION_KEY_WAITERS_MAX).all(|_| answers.recv_timeout(PATIENCE).unwrap());
        assert!(refused, "there are no keys");
        request(&session(2));
        // Its verification begins after that of the other host.
        request(&session(1));
        assert!(answers.recv_timeout(PATIENCE).unwrap(), "the first host has its share");
        tokens.set_keys(issuer.address, Some(issuer.keys()));
        arrived.store(true, Ordering::SeqCst);
        tokens.end_wait_for_keys(issuer.address);
        for _ in 0..=HOST_KEY_WAITERS_MAX {
            assert!(!answers.recv_timeout(PATIENCE).unwrap(), "a request that waited is refused");
        }
    });
}

#[test]
fn the_token_of_the_login_counts_until_it_expires() {
    let (server, issuer) = (server(), TestIssuer::new());
    let client = client(&server, &issuer);
    let caller = logged_in(&issuer, &issuer.token("storage.read:/sub"), SystemTime::now());
    client.open_as(&caller, "/data/sub/f", reading()).file();
    assert_eq!(client.open_as(&caller, "/data/f", reading()).error().kind, REFUSED);
    // A token of the request counts instead.
    let other = issuer.token("storage.read:/f");
    client.open_as(&caller, &format!("/data/f?authz={other}"), reading()).file();
    assert_eq!(
        client.open_as(&caller, &format!("/data/sub/f?authz={other}"), reading()).error().kind,
        REFUSED
    );
    // The login was earlier.
    let expired = issuer.token_for("storage.read:/", -1);
    let caller = logged_in(&issuer, &expired, SystemTime::now() - Duration::from_secs(60));
    assert_eq!(client.open_as(&caller, "/data/f", reading()).error().kind, REFUSED);
    let rules = Some(rules("u * /data/sub r\n"));
    let client = guarded(server.logical.clone(), &issuer, rules, AuthorizationRole::Server);
    client.open_as(&caller, "/data/sub/f", reading()).file();
    client.open_as(&caller, &format!("/data/f?authz={other}"), reading()).file();
}

#[test]
fn the_name_of_a_login_is_that_which_its_issuer_gives_now() {
    let (server, issuer) = (server(), TestIssuer::new());
    let token = issuer.token("storage.read:/f");
    let caller = logged_in(&issuer, &token, SystemTime::now());
    let opened = |issuer: &TestIssuer, path: &str| {
        let rules = Some(rules("u alice /data/sub r\n"));
        let client = guarded(server.logical.clone(), issuer, rules, AuthorizationRole::Server);
        match client.open_as(&caller, path, reading()).answer() {
            Answer::Error(error) => Some(error.kind),
            _ => None,
        }
    };
    assert_eq!(opened(&issuer, "/data/sub/f"), Some(REFUSED), "the issuer file names nobody");
    let issuer = TestIssuer { settings: "map_subject = true\n", ..issuer };
    assert_eq!(opened(&issuer, "/data/sub/f"), None);
    assert_eq!(opened(&issuer, "/data/f"), None, "by the scope");
    let own = issuer.token("storage.read:/other");
    assert_eq!(opened(&issuer, &format!("/data/sub/f?authz={own}")), Some(REFUSED));
    assert_eq!(opened(&issuer, "/data/sub/f?authz=abc"), Some(REFUSED));
    let other = TestIssuer { address: "https://other", ..issuer };
    for path in ["/data/sub/f", "/data/f"] {
        assert_eq!(opened(&other, path), Some(REFUSED), "{path}: the issuer is removed");
    }
}

#[test]
fn a_refused_token_does_not_fall_back_to_rules() {
    let (server, issuer) = (server(), TestIssuer::new());
    let rules = Some(rules("u * /data/sub rl\n"));
    let client = guarded(server.logical.clone(), &issuer, rules, AuthorizationRole::Server);
    let with = |token: &str| client.call(open(&format!("/data/sub/f?authz={token}"), reading()));
    client.call(open("/data/sub/f", reading())).file();
    // Credentials of other kinds and of other issuers count as none.
    with("not-a-token").file();
    with(&issuer.token("storage.poll:/x")).file();
    assert_eq!(with(&TestIssuer::new().token("storage.read:/")).error().kind, REFUSED);
    assert_eq!(with(&issuer.token_for("storage.read:/", -1)).error().kind, REFUSED);
}

#[test]
fn a_right_to_create_replaces_nothing() {
    let (server, issuer) = (server(), TestIssuer::new());
    let client = client(&server, &issuer);
    let (create, modify) = (issuer.token("storage.create:/"), issuer.token("storage.modify:/"));
    let with = |path: &str, token: &str| format!("{path}?authz={token}");
    for request in [replacing, creating] {
        let existing = client.call(open(&with("/data/f", &create), request()));
        let refusal = existing.error();
        assert!(matches!(refusal.kind, ErrorKind::NotAuthorized | ErrorKind::ItExists), "{refusal:?}");
    }
    assert_eq!(client.call(open(&with("/data/f", &create), replacing())).error().kind, REFUSED);
    server.open("/data/f", reading()).file();
    assert_eq!(server.memory.content("/data/f").as_deref(), Some(&b"x"[..]));
    // An upload that would replace an existing file creates a new one.
    let file = client.call(open(&with("/data/new", &create), replacing())).file();
    client.write(&file, 0, b"new").done();
    client.close(&file).done();
    let deep = OpenRequest { make_path: true, ..replacing() };
    client.call(open(&with("/data/a/b/new", &create), deep)).file();
    assert_eq!(client.call(open(&with("/data/new", &create), reading())).error().kind, REFUSED);
    assert_eq!(client.call(open(&with("/data/new", &create), updating())).error().kind, REFUSED);
    let remove = |token: &str| Operation::Remove(target(&with("/data/new", token)));
    assert_eq!(client.call(remove(&create)).error().kind, REFUSED);
    let rename = |token: &str| Operation::rename(target(&with("/data/new", token)), target("/data/n2"));
    // It could replace a file.
    assert_eq!(client.call(rename(&create)).error().kind, REFUSED);
    client.call(open(&with("/data/f", &modify), replacing())).file();
    client.call(rename(&modify)).done();
}

#[test]
fn the_token_of_a_list_counts_for_its_paths() {
    let (server, issuer) = (server(), TestIssuer::new());
    let client = client(&server, &issuer);
    let token = issuer.token("storage.read:/sub");
    let prepare = |text: String| {
        let list = TargetList::parse(text.as_bytes(), "Preparing").unwrap().unwrap();
        client.call(Operation::Prepare(PrepareRequest { stage: true, ..Default::default() }, list))
    };
    prepare(format!("/data/sub/f?authz={token}\n/data/sub/f\n")).text();
    assert_eq!(prepare(format!("/data/sub/f?authz={token}\n/data/f?authz={token}\n")).error().kind, REFUSED);
    assert_eq!(prepare(format!("/data/sub/f\n/data/sub/f?authz={token}\n")).error().kind, REFUSED);
    let read = client.call(Operation::Locate(
        Some(target(&format!("/data/sub/f?authz={token}"))),
        LocateOptions::default(),
    ));
    read.done();
    // Operations without a path have no token.
    assert_eq!(client.call(Operation::CancelPrepare { id: b"x".to_vec() }).error().kind, REFUSED);
}

#[test]
fn a_prepare_request_belongs_to_the_bearer_of_a_token() {
    let (server, issuer) = (server(), TestIssuer::new());
    let client = client(&server, &issuer);
    let caller = |subject: &str| {
        logged_in(&issuer, &issuer.token_of(subject, "storage.read:/", 600), SystemTime::now())
    };
    let list = TargetList::parse(b"/data/f\n", "Preparing").unwrap().unwrap();
    let request = PrepareRequest { stage: true, ..Default::default() };
    let id = client.call_as(&caller("alice"), Operation::Prepare(request, list)).text();
    let query = |subject: &str| {
        let id = id.clone().into_bytes();
        client.call_as(&caller(subject), Operation::QueryPrepare { id, targets: None }).answer()
    };
    let is_refused = |answer: Answer| matches!(answer, Answer::Error(error) if error.kind == REFUSED);
    // The issuer names neither of them, and both are at the same host.
    assert!(is_refused(query("bob")));
    assert!(!is_refused(query("alice")), "another login of the same bearer");
}

#[test]
fn a_redirector_leaves_the_tokens_of_opens_to_the_servers() {
    let (server, issuer) = (server(), TestIssuer::new());
    let role = AuthorizationRole::Redirector(ForwardedChanges::default());
    let client = guarded(server.logical.clone(), &issuer, None, role);
    client.call(open("/data/f?authz=a.b.c", reading())).file();
    assert_eq!(client.call(Operation::Stat(target("/data/f?authz=a.b.c"))).error().kind, REFUSED);
    let token = issuer.token("storage.read:/");
    client.call(Operation::Stat(target(&format!("/data/f?authz={token}")))).stat();
}
