//! Tests of acting for users: the account of each operation, its look-up, and what users share. The
//! directory `/data/of-UID` of the storage in memory is accessible to that user only.

#![allow(clippy::unwrap_used)]

mod support;

use auth::access::{AccessPolicy, AuditedDecisions, AuthdbCheck, CredentialLayer};
use auth::macaroons::{Activity, MacaroonPolicy, MacaroonRequest, MacaroonSecret, MacaroonSettings};
use auth::tokens::OnMissing;
use auth::unix::UnixServer;
use auth::{AccountDatabase, LoginPeer, ServerProtocol, ServerStep, SystemRng, UserAccount};
use base::{ErrorKind, Identity, LogicalPath, LoginNames};
use logical::{
    AccountLimits, AuthorizationRole, AuthorizedFiles, ClearOutcome, UnfinishedState, UserAccounts,
};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, UNIX_EPOCH};
use support::issuer::{TestIssuer, login_with};
use support::{Client, Server, caller, creating, path, posc, reading, replacing, target, updating};
use vfs::{Caller, CheckpointWork, FileOperation, ListDetail, Operation, Value};

const ALICE: u32 = 7001;
const REFUSED: ErrorKind = ErrorKind::NotAuthorized;

/// Accounts whose look-ups are counted, and wait while `hangs` is set.
#[derive(Default)]
struct TestAccounts {
    lookups: AtomicUsize,
    is_broken: AtomicBool,
    hangs: Mutex<bool>,
    changed: Condvar,
}

impl TestAccounts {
    fn count(&self) -> usize {
        self.lookups.load(Ordering::SeqCst)
    }

    fn hang(&self, hangs: bool) {
        *self.hangs.lock().unwrap() = hangs;
        self.changed.notify_all();
    }
}

impl AccountDatabase for TestAccounts {
    fn user(&self, name: &str) -> io::Result<Option<UserAccount>> {
        self.lookups.fetch_add(1, Ordering::SeqCst);
        if name == "alice" {
            drop(self.changed.wait_while(self.hangs.lock().unwrap(), |hangs| *hangs).unwrap());
        }
        if self.is_broken.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let ids = [("alice", ALICE, 7001), ("bob", 7002, 7002), ("low", 499, 7003), ("group", 7004, 499)];
        let ids = ids.into_iter().chain([("root", 0, 0), ("wheel", 7005, 0)]);
        let mut named = ids.filter(|(known, ..)| *known == name);
        Ok(named.next().map(|(_, uid, gid)| UserAccount { uid, gid }))
    }

    fn group(&self, _: &str) -> io::Result<Option<u32>> {
        Ok(None)
    }

    fn groups_of(&self, _: &str) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn group_ids_of(&self, _: &str, gid: u32) -> io::Result<Vec<u32>> {
        Ok(vec![gid])
    }
}

fn server() -> (Server, Arc<TestAccounts>) {
    let database = Arc::new(TestAccounts::default());
    let limits = AccountLimits { uid_min: 500, gid_min: 500 };
    let server = Server::for_users(UserAccounts { database: database.clone(), limits });
    server.memory.put("/data/of-7001/file", b"of alice");
    (server, database)
}

/// Returns the caller of a client that has logged in under a name.
fn user(name: &str) -> Arc<Caller> {
    let (address, login_id) = (([192, 0, 2, 1], 1).into(), String::new());
    let peer = LoginPeer { address, host: "h.o".to_owned(), login_id, is_tls: false };
    let step = UnixServer.begin(&peer).step(format!("unix\0{name}\0").as_bytes(), UNIX_EPOCH);
    let ServerStep::Done(entity) = step else { panic!("{name}") };
    let names = LoginNames { user: "u", host: "h.o", ..LoginNames::default() };
    Arc::new(Caller::new(Identity::new(&names, 1, None, "unix"), true, false).with_entity(entity))
}

fn stat() -> Operation {
    Operation::Stat(target("/data/of-7001/file"))
}

#[test]
fn each_operation_has_the_rights_of_the_account_of_its_client() {
    let (server, _) = server();
    let (alice, bob) = (user("alice"), user("bob"));
    server.call_as(&alice, stat()).stat();
    server.open_as(&alice, "/data/of-7001/file", reading()).file();
    let list = || Operation::List(target("/data/of-7001"), ListDetail::default());
    server.call_as(&alice, list()).done();
    for other in [&bob, &caller("alice", 1)] {
        assert_eq!(server.call_as(other, stat()).error().kind, REFUSED);
        assert_eq!(server.open_as(other, "/data/of-7001/file", reading()).error().kind, REFUSED);
        assert_eq!(server.open_as(other, "/data/of-7001/file", updating()).error().kind, REFUSED);
        assert_eq!(server.call_as(other, list()).error().kind, REFUSED);
    }
    // The name in the token of a request takes precedence.
    server.call_as(&Arc::new(bob.with_request_name("alice")), stat()).stat();
    assert_eq!(server.call_as(&Arc::new(alice.with_request_name("bob")), stat()).error().kind, REFUSED);
}

#[test]
fn accounts_that_may_not_be_used_are_refused() {
    let (server, database) = server();
    for (name, why) in [
        ("nobody-here", "its name is not that of an account here"),
        ("low", "its account is below the lowest user or group id (multiuser.minuid, multiuser.mingid)"),
        ("group", "its account is below the lowest user or group id (multiuser.minuid, multiuser.mingid)"),
        ("root", "its account is that of the superuser"),
        ("wheel", "its account is that of the superuser"),
    ] {
        let before = database.count();
        for _ in 0..3 {
            let refusal = server.call_as(&user(name), Operation::Stat(target("/data/x"))).refusal();
            assert_eq!(refusal, (REFUSED, format!("Unable to act for the client; {why}")), "{name}");
        }
        assert_eq!(database.count(), before + 1, "a refusal is cached for a short time");
    }
}

#[test]
fn a_login_without_a_name_has_no_rights() {
    let (server, _) = server();
    let issuer = TestIssuer::new();
    let layer = || CredentialLayer::Tokens(issuer.tokens());
    let bearer = login_with(layer(), &issuer.token("storage.read:/"), std::time::SystemTime::now());
    let refusal = server.call_as(&bearer, Operation::Stat(target("/data/x"))).refusal();
    assert_eq!(refusal, (REFUSED, "Unable to act for the client; its token names no account".to_owned()));
    let named = Arc::new(bearer.with_request_name("alice"));
    server.call_as(&named, stat()).stat();
}

/// With authorization in front, the issuer of the token of a request names the account.
#[test]
fn the_token_of_a_request_names_the_account() {
    let (server, _) = server();
    let issuer = TestIssuer { settings: "default_user = alice\n", ..TestIssuer::new() };
    let layers = vec![CredentialLayer::Tokens(issuer.tokens())];
    let audit = AuditedDecisions { grants: false, denials: false };
    let policy = Some(Arc::new(AccessPolicy::new(layers, None, audit)));
    let exports = vec![LogicalPath::parse(b"/data").unwrap()];
    let guarded = |names_users| {
        let role = (AuthorizationRole::Server, names_users);
        let files = AuthorizedFiles::before(server.logical.clone(), policy.clone(), role, exports.clone());
        Client::new(files, user("bob"))
    };
    let token = issuer.token("storage.read:/ storage.stage:/");
    let file = format!("/data/of-7001/file?authz={token}");
    guarded(true).open(&file, reading()).file();
    guarded(true).call(Operation::Stat(target(&file))).stat();
    assert_eq!(guarded(false).open(&file, reading()).error().kind, REFUSED, "bob has no rights there");
}

/// A macaroon can be the one that a user got at a manager, which has no accounts.
#[test]
fn a_macaroon_does_not_act_as_the_server() {
    let (server, _) = server();
    server.memory.put("/data/file", b"of the server");
    let (check, on_missing) = (AuthdbCheck::None, OnMissing::PassThrough);
    let settings =
        MacaroonSettings { secret: "/s".into(), check, site: "S".to_owned(), lifetime_max: None, on_missing };
    let macaroons = Arc::new(MacaroonPolicy::new(settings, MacaroonSecret::new(&[7; 64])));
    let issuer = TestIssuer { settings: "default_user = alice\n", ..TestIssuer::new() };
    let layers =
        vec![CredentialLayer::Macaroons(macaroons.clone()), CredentialLayer::Tokens(issuer.tokens())];
    let policy = Some(Arc::new(AccessPolicy::new(layers, None, AuditedDecisions::default())));
    let client = |names_users, of: Arc<Caller>| {
        let role = (AuthorizationRole::Server, names_users);
        let exports = vec![path("/data")];
        Client::new(AuthorizedFiles::before(server.logical.clone(), policy.clone(), role, exports), of)
    };
    let request = MacaroonRequest {
        name: Some("alice".to_owned()),
        activities: Activity::ALL.into_iter().map(|(_, one)| one).collect(),
        path: path("/data"),
        expires: std::time::SystemTime::now() + Duration::from_secs(600),
    };
    let text = macaroons.issue(&request, &mut SystemRng).unwrap().text;
    let text = String::from_utf8(text.expose().to_vec()).unwrap();
    let file = format!("/data/file?authz={text}");
    let nobody = || caller("x", 1);
    client(false, nobody()).open(&file, reading()).file();
    client(true, user("bob")).open(&file, reading()).file();
    let refused = client(true, nobody());
    let why = (REFUSED, "Unable to act for the client; its macaroon names no account".to_owned());
    assert_eq!(refused.open(&file, reading()).refusal(), why);
    for operation in [
        Operation::Stat(target(&file)),
        Operation::Remove(target(&file)),
        Operation::List(target(&format!("/data?authz={text}")), ListDetail::default()),
    ] {
        assert_eq!(refused.call(operation).refusal(), why);
    }
    assert!(server.memory.content("/data/file").is_some());
    // Here none is issued.
    let at = format!("/data?authz={}", issuer.token("storage.read:/"));
    let ask = || Operation::IssueMacaroon(target(&at), Box::default());
    assert!(matches!(client(false, nobody()).call(ask()).value(), Value::Macaroon(_)));
    assert_eq!(refused.call(ask()).error().kind, REFUSED);
}

#[test]
fn one_look_up_serves_all_operations_that_wait_for_it() {
    let (server, database) = server();
    database.hang(true);
    let alice = user("alice");
    let waiting: Vec<_> = (0..20).map(|_| server.call_as(&alice, stat())).collect();
    // Others do not wait.
    assert_eq!(server.call_as(&user("bob"), stat()).error().kind, REFUSED);
    assert!(waiting.iter().all(|call| !call.was_on_the_spot()));
    database.hang(false);
    waiting.into_iter().for_each(|call| drop(call.stat()));
    assert_eq!(database.count(), 2);
    server.after(59);
    server.call_as(&alice, stat()).stat();
    assert_eq!(database.count(), 2);
    server.after(1);
    server.call_as(&alice, stat()).stat();
    assert_eq!(database.count(), 3, "accounts are looked up again after a minute");
}

#[test]
fn an_operation_does_not_wait_for_a_look_up_that_hangs() {
    let (server, database) = server();
    database.hang(true);
    let late = server.call_as(&user("alice"), stat());
    server.after(10);
    let why = "Unable to act for the client; the look-up of its account takes too long";
    assert_eq!(late.refusal(), (REFUSED, why.to_owned()));
    // The next operation waits for the same look-up.
    let next = server.call_as(&user("alice"), stat());
    database.hang(false);
    next.stat();
    assert_eq!(database.count(), 1);
}

#[test]
fn a_failed_look_up_refuses_and_is_repeated() {
    let (server, database) = server();
    database.is_broken.store(true, Ordering::SeqCst);
    let refusal = server.call_as(&user("alice"), stat()).refusal();
    let why = "Unable to act for the client; the database of accounts does not answer";
    assert_eq!(refusal, (REFUSED, why.to_owned()));
    database.is_broken.store(false, Ordering::SeqCst);
    server.after(5);
    server.call_as(&user("alice"), stat()).stat();
}

/// The pages of a listing have the rights of its first one, also if a later request names nobody.
#[test]
fn a_listing_keeps_the_rights_of_its_first_page() {
    let (server, _) = server();
    for number in 0..1500 {
        server.memory.put(&format!("/data/of-7001/many/{number:04}"), b"");
    }
    let bob = user("bob");
    let list =
        Operation::List(target("/data/of-7001/many"), ListDetail { stat: true, ..ListDetail::default() });
    let mut next = server.call_as(&Arc::new(bob.with_request_name("alice")), list).value();
    let mut count = 0;
    while let Value::Listing { entries, rest } = next {
        count += entries.len();
        let Some(rest) = rest else { break };
        next = server.call_as(&bob, Operation::ListMore(rest)).value();
    }
    assert_eq!(count, 1500);
}

#[test]
fn an_unfinished_file_belongs_to_its_account() {
    let (server, _) = server();
    let (alice, bob) = (user("alice"), user("bob"));
    let file = server.open_as(&alice, "/data/new", posc(creating())).file();
    server.write(&file, 0, b"begun").done();
    server.abandon(&file).done();
    // The creator is the same by name, process and host; only the account differs.
    for request in [updating(), posc(updating()), posc(replacing())] {
        assert_eq!(server.open_as(&bob, "/data/new", request).error().kind, ErrorKind::InProgress);
    }
    let file = server.open_as(&alice, "/data/new", posc(updating())).file();
    server.write(&file, 5, b" and ended").done();
    server.close(&file).done();
    assert_eq!(server.memory.content("/data/new").as_deref(), Some(&b"begun and ended"[..]));
    // In a private directory, others do not learn of it.
    let file = server.open_as(&alice, "/data/of-7001/new", posc(creating())).file();
    assert_eq!(server.open_as(&bob, "/data/of-7001/new", reading()).error().kind, REFUSED);
    assert_eq!(server.open("/data/of-7001/new", reading()).error().kind, REFUSED);
    server.abandon(&file).done();
    // The server itself may not enter the directory, and removes the file with the account's rights.
    server.after(600);
    assert_eq!(server.memory.content("/data/of-7001/new"), None);
}

#[test]
fn records_keep_the_account_over_a_restart() {
    let (server, _) = server();
    let private = path("/data/of-7001/new");
    let file = server.open_as(&user("alice"), "/data/of-7001/new", posc(creating())).file();
    server.write(&file, 0, b"begun").done();
    server.abandon(&file).done();
    // The server itself may not look at the path. The record is neither lost nor taken for absent.
    let next = server.restarted();
    let found = next.logical.unfinished();
    assert_eq!(found.len(), 1);
    assert!(matches!(found[0].state, UnfinishedState::Held { .. }), "{:?}", found[0].state);
    assert_eq!(found[0].path, private);
    // The command of an administrator has the rights of the account, too.
    assert!(matches!(next.logical.clear_unfinished(&private, false), Ok(ClearOutcome::Whole)));
    assert!(next.logical.unfinished().is_empty());
    assert_eq!(server.memory.content("/data/of-7001/new").as_deref(), Some(&b"begun"[..]));
}

/// A crash during a checkpoint of a file in a private directory.
#[test]
fn a_checkpoint_is_undone_with_the_rights_of_its_account() {
    let (server, _) = server();
    let alice = user("alice");
    let file = server.open_as(&alice, "/data/of-7001/file", updating()).file();
    let work = |work| FileOperation::Checkpoint(work);
    server.on_file(&file, work(CheckpointWork::Begin)).done();
    server.write(&file, 0, b"xx").done();
    assert_eq!(server.memory.content("/data/of-7001/file").as_deref(), Some(&b"xx alice"[..]));
    let next = server.restarted();
    assert!(next.logical.blocked_files().is_empty());
    assert_eq!(next.memory.content("/data/of-7001/file").as_deref(), Some(&b"of alice"[..]));
}
