//! Tests of authorization in front of a logical file system: the privileges that each operation
//! needs, and the answers to refused operations.

#![allow(clippy::unwrap_used)]

mod support;

use auth::access::{
    AccessPolicy, AuditedDecisions, AuthdbEncoding, AuthdbSource, Authorizer, AuthorizerSettings,
    NetgroupDatabase, NetgroupMember, PathMatch,
};
use base::LogicalPath;
use base::{ErrorKind, Identity, LoginNames};
use logical::config::ExportConfig;
use logical::{AuthorizationRole, AuthorizedFiles, ForwardedChanges, Prepares};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use support::memory::Memory;
use support::{Client, Server, creating, reading, replacing, target, targets, updating};
use vfs::{
    Answer, AttributeWork, CachedFileCommand, Caller, FileSystem, ListDetail, LocateOptions, OpenRequest,
    Operation, PrepareRequest, ReplyTo, Started,
};

struct NoNetgroups;
impl NetgroupDatabase for NoNetgroups {
    fn members(&self, _: &str) -> std::io::Result<Vec<NetgroupMember>> {
        Ok(Vec::new())
    }
}

/// A rule file, removed at the end of the test.
struct RuleFile(PathBuf);

impl RuleFile {
    fn new(text: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("scalla-authorization-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    fn policy(&self) -> Arc<AccessPolicy> {
        let settings = AuthorizerSettings {
            source: AuthdbSource {
                path: self.0.clone(),
                encoding: AuthdbEncoding::default(),
                matching: PathMatch::Component,
                netgroup_domain: None,
            },
            audit: AuditedDecisions { grants: true, denials: true },
            netgroup_lifetime: Duration::from_secs(60),
        };
        let audit = settings.audit;
        let rules = Authorizer::new(settings, Arc::new(NoNetgroups), Duration::ZERO).unwrap();
        Arc::new(AccessPolicy::new(Vec::new(), Some(Arc::new(rules)), audit))
    }
}

impl Drop for RuleFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn caller_at(host: &str) -> Arc<Caller> {
    let names = LoginNames { user: "u", host, ..LoginNames::default() };
    Arc::new(Caller::new(Identity::new(&names, 1, None, "host"), true, false))
}

/// Returns a client at a host, of a server with these rules.
fn client(server: &Server, rules: &str, host: &str) -> Client {
    client_of(server, AuthorizationRole::Server, rules, host)
}

/// Returns a client at a host, of a server or redirector with these rules and the export `/data`.
fn client_of(server: &Server, role: AuthorizationRole, rules: &str, host: &str) -> Client {
    exporting(server, role, rules, host, "/data")
}

fn exporting(server: &Server, role: AuthorizationRole, rules: &str, host: &str, export: &str) -> Client {
    let policy = RuleFile::new(rules).policy();
    let exports = vec![path(export)];
    let files = AuthorizedFiles::before(server.logical.clone(), Some(policy), (role, false), exports);
    Client::new(files, caller_at(host))
}

fn path(text: &str) -> LogicalPath {
    LogicalPath::parse(text.as_bytes()).unwrap()
}

fn open(name: &str, request: OpenRequest) -> Operation {
    Operation::Open(target(name), Box::new(request))
}

fn rename(from: &str, to: &str) -> Operation {
    Operation::rename(target(from), target(to))
}

fn mkdir(name: &str, parents: bool) -> Operation {
    Operation::make_directory(target(name), 0o755, parents)
}

fn set_attribute() -> AttributeWork {
    AttributeWork::Set { pairs: vec![(b"a".to_vec(), b"b".to_vec())], new: false }
}

/// A privilege or privileges, and an operation on `/data/f` or `/data/new` that needs them.
type NeededPrivileges = (&'static str, fn() -> Operation);

const NEEDS: [NeededPrivileges; 25] = [
    ("r", || open("/data/f", reading())),
    ("rw", || open("/data/f", updating())),
    ("rw", || open("/data/f", OpenRequest { append: true, ..OpenRequest::default() })),
    ("irw", || open("/data/new", creating())),
    ("irw", || open("/data/f", replacing())),
    ("l", || Operation::Stat(target("/data/f"))),
    ("l", || Operation::StatSpace(target("/data/f"))),
    ("l", || Operation::QuerySpace(target("/data/f"))),
    ("l", || Operation::StatMany(targets(&["/data/f"]))),
    ("l", || Operation::Locate(Some(target("/data/f")), LocateOptions::default())),
    ("r", || Operation::List(target("/data"), ListDetail::default())),
    ("i", || mkdir("/data/new", false)),
    ("d", || Operation::Remove(target("/data/f"))),
    ("d", || Operation::RemoveDirectory(target("/data/none"))),
    ("in", || rename("/data/f", "/data/new")),
    ("dirw", || Operation::ChangeMode { target: target("/data/f"), mode: 0o600 }),
    ("rw", || Operation::Truncate { target: target("/data/f"), size: 0 }),
    ("r", || Operation::Prepare(PrepareRequest { stage: true, ..Default::default() }, targets(&["/data/f"]))),
    ("r", || Operation::Attributes(target("/data/f"), AttributeWork::List { values: false })),
    ("rw", || Operation::Attributes(target("/data/f"), set_attribute())),
    ("l", || Operation::QueryAttributes(target("/data/f"))),
    ("l", || Operation::Checksum(target("/data/f"))),
    ("d", || Operation::Cache(target("/data/f"), CachedFileCommand::Evict)),
    ("d", || Operation::Cache(target("/data/f"), CachedFileCommand::EvictOpen)),
    ("l", || Operation::Cache(target("/data/f"), CachedFileCommand::IsCached)),
];

fn is_refused(answer: &Answer) -> bool {
    matches!(answer, Answer::Error(error) if error.kind == ErrorKind::NotAuthorized)
}

#[test]
fn each_operation_needs_its_privileges() {
    for (number, (letters, operation)) in NEEDS.iter().enumerate() {
        let answer_with = |privileges: &str| {
            let server = Server::new();
            server.memory.put("/data/f", b"content");
            client(&server, &format!("u * /data {privileges}\n"), "h.o").call(operation()).answer()
        };
        let says = |answer: &Answer| support::tell(answer);
        let granted = answer_with(letters);
        assert!(!is_refused(&granted), "{number} with {letters}: {}", says(&granted));
        // Without any one of the privileges, and with all others, the operation is refused.
        for letter in letters.chars() {
            let without = answer_with(&format!("a-{letter}"));
            assert!(is_refused(&without), "{number} without {letter}: {}", says(&without));
        }
        assert!(is_refused(&answer_with("-")), "{number} without privileges");
    }
}

#[test]
fn a_rename_needs_privileges_on_both_names() {
    let rules =
        [("/data/a n /data/b i", true), ("/data/a n /data/b a-i", false), ("/data/a a-n /data/b a", false)];
    for (rules, is_allowed) in rules {
        let server = Server::new();
        server.memory.put("/data/a", b"x");
        let answer =
            client(&server, &format!("u * {rules}\n"), "h.o").call(rename("/data/a", "/data/b")).answer();
        assert_eq!(!is_refused(&answer), is_allowed, "{rules}: {}", support::tell(&answer));
    }
}

#[test]
fn a_refusal_reveals_nothing_about_the_object() {
    let server = Server::new();
    server.memory.put("/data/secret/there", b"x");
    let client = client(&server, "u * /data/open a\n", "h.o");
    let operations: [fn(&str) -> Operation; 6] = [
        |name| open(name, reading()),
        |name| open(name, creating()),
        |name| Operation::Stat(target(name)),
        |name| Operation::List(target(name), ListDetail::default()),
        |name| Operation::Remove(target(name)),
        |name| Operation::Checksum(target(name)),
    ];
    for operation in operations {
        let refusal = |name: &str| {
            let (kind, text) = client.call(operation(name)).refusal();
            (kind, text.replace(name, "NAME"))
        };
        let (there, none) = (refusal("/data/secret/there"), refusal("/data/secret/none"));
        assert_eq!(there, none);
        assert_eq!(there.0, ErrorKind::NotAuthorized);
    }
    let (_, text) = client.call(open("/data/secret/there", reading())).refusal();
    assert_eq!(text, "Unable to open /data/secret/there; permission denied");
}

#[test]
fn the_decision_stays_with_the_open_file() {
    let server = Server::new();
    server.memory.put("/data/f", b"x");
    let client = client(&server, "h full.o /data a\nu * /data r\n", "full.o");
    let file = client.open("/data/f", updating()).file();
    client.write(&file, 0, b"y").done();
    client.close(&file).done();
    let reader = caller_at("other.o");
    let (kind, _) = client.open_as(&reader, "/data/f", updating()).refusal();
    assert_eq!(kind, ErrorKind::NotAuthorized);
    client.open_as(&reader, "/data/f", reading()).file();
}

#[test]
fn each_path_of_a_list_is_decided() {
    let server = Server::new();
    for name in ["/data/a", "/data/b", "/data/c"] {
        server.memory.put(name, b"x");
    }
    let client = client(&server, "u * /data/b a-lr /data a\n", "h.o");
    client.call(Operation::StatMany(targets(&["/data/a", "/data/c"]))).done();
    for list in [["/data/a", "/data/b", "/data/c"], ["/data/b", "/data/a", "/data/c"]] {
        let refusal = client.call(Operation::StatMany(targets(&list))).refusal();
        assert_eq!(refusal, (ErrorKind::NotAuthorized, "Unable to locate /data/b; permission denied".into()));
        let request = PrepareRequest { stage: true, ..Default::default() };
        let (kind, _) = client.call(Operation::Prepare(request, targets(&list))).refusal();
        assert_eq!(kind, ErrorKind::NotAuthorized);
    }
}

#[test]
fn missing_parents_are_created_only_where_directories_may_be_made() {
    let server = Server::new();
    server.memory.put("/data/bob/f", b"x");
    let client = client(&server, "u * /data/bob/ a /data/ann/ a /data/eve a-i\n", "h.o");
    let with_parents = |name: &str| open(name, OpenRequest { make_path: true, ..creating() });
    // The directory `/data/bob` may not be created, but exists.
    client.call(with_parents("/data/bob/d/e/f")).file();
    client.call(mkdir("/data/bob/g/h", true)).done();
    client.call(rename("/data/bob/f", "/data/bob/i/f")).done();
    for operation in
        [with_parents("/data/ann/d/f"), mkdir("/data/ann/d", true), rename("/data/bob/i/f", "/data/ann/f")]
    {
        let refusal = client.call(operation).refusal();
        assert_eq!(
            refusal,
            (ErrorKind::NotAuthorized, "Unable to mkdir /data/ann; permission denied".into())
        );
    }
    assert_eq!(server.stat("/data/ann").error().kind, ErrorKind::NotFound);
    server.stat("/data/bob/i/f").stat();
}

/// A file system before whose changes another process removes a directory.
struct RemovedMeanwhile {
    behind: Arc<dyn FileSystem>,
    memory: Memory,
    directory: &'static str,
}

impl FileSystem for RemovedMeanwhile {
    fn start(&self, caller: &Arc<Caller>, operation: Operation, reply: &ReplyTo) -> Started {
        if !matches!(operation, Operation::Stat(_)) {
            self.memory.take(self.directory);
        }
        self.behind.start(caller, operation, reply)
    }
}

#[test]
fn a_directory_that_is_removed_meanwhile_is_not_created_again() {
    let changes: [fn() -> Operation; 3] = [
        || open("/data/ann/d/f", OpenRequest { make_path: true, ..creating() }),
        || mkdir("/data/ann/d/e", true),
        || rename("/data/bob/f", "/data/ann/d/f"),
    ];
    for change in changes {
        let server = Server::new();
        server.memory.put("/data/bob/f", b"x");
        server.call(mkdir("/data/ann", false)).done();
        let behind = Arc::new(RemovedMeanwhile {
            behind: server.logical.clone(),
            memory: server.memory.clone(),
            directory: "/data/ann",
        });
        let policy = RuleFile::new("u * /data/ann/ a /data/bob a\n").policy();
        let role = AuthorizationRole::Server;
        let files = AuthorizedFiles::before(behind, Some(policy), (role, false), vec![path("/data")]);
        let client = Client::new(files, caller_at("h.o"));
        assert_eq!(
            client.call(change()).refusal(),
            (ErrorKind::NotAuthorized, "Unable to mkdir /data/ann; permission denied".into())
        );
        assert_eq!(server.stat("/data/ann").error().kind, ErrorKind::NotFound);
    }
}

#[test]
fn an_export_below_the_root_counts_as_existing() {
    let server = Server::with(|config| config.exports = vec![ExportConfig::new(path("/data/pool"))]);
    server.memory.put("/data/pool/f", b"x");
    let role = AuthorizationRole::Server;
    let client = exporting(&server, role, "u * /data/pool/ a\n", "h.o", "/data/pool");
    client.call(open("/data/pool/d/e", OpenRequest { make_path: true, ..creating() })).file();
    client.call(open("/data/pool/e", OpenRequest { make_path: true, ..creating() })).file();
    client.call(mkdir("/data/pool/g/h", true)).done();
    client.call(rename("/data/pool/f", "/data/pool/i/f")).done();
}

#[test]
fn a_forwarding_redirector_does_not_have_directories_created_that_the_client_may_not_make() {
    let forwarded = ForwardedChanges { make_directory: true, rename: true };
    let rules = "u * /data/bob/ a /data/a/b/c i /data/f n /data/open a\n";
    let refused_by = |forwarded, operation: Operation| {
        let server = Server::new();
        for name in ["/data/bob/f", "/data/f"] {
            server.memory.put(name, b"x");
        }
        let client = client_of(&server, AuthorizationRole::Redirector(forwarded), rules, "h.o");
        is_refused(&client.call(operation).answer())
    };
    let changes: [fn() -> Operation; 3] =
        [|| mkdir("/data/a/b/c", true), || rename("/data/f", "/data/a/b/c"), || mkdir("/data/bob/d/e", true)];
    for change in changes {
        assert!(refused_by(forwarded, change()));
        // The server to which the client is redirected decides.
        assert!(!refused_by(ForwardedChanges::default(), change()));
    }
    let allowed: [fn() -> Operation; 5] = [
        || mkdir("/data/bob/d", false),
        || mkdir("/data/open/d/e", true),
        || rename("/data/f", "/data/open/d/e"),
        || rename("/data/bob/f", "/data/bob/d/g"),
        || rename("/data/bob/f", "/data/open/g"),
    ];
    for (number, change) in allowed.iter().enumerate() {
        assert!(!refused_by(forwarded, change()), "{number}");
    }
}

#[test]
fn operations_without_a_path_need_any_privilege() {
    let operations: [fn() -> Operation; 2] = [
        || Operation::QueryOpaque { code: 16, argument: b"id".to_vec() },
        || Operation::Locate(None, LocateOptions::default()),
    ];
    let roles = [AuthorizationRole::Server, AuthorizationRole::Redirector(ForwardedChanges::default())];
    for (number, operation) in operations.iter().enumerate() {
        for role in roles {
            let server = Server::new();
            let refused_with =
                |rules| is_refused(&client_of(&server, role, rules, "h.o").call(operation()).answer());
            assert!(refused_with("h other.o /data a\nu * /data - /data/x -r\n"), "{number} {role:?}");
            assert!(!refused_with("u * /data/x r\n"), "{number} {role:?}");
        }
    }
}

#[test]
fn a_prepare_request_belongs_to_the_client_that_made_it() {
    let rules = "h h.o /data lr\nh other.o /data lr\nh look.o /data l\nh revoked.o /data -\nh admin.o / a\n";
    let server = Server::new();
    server.memory.put("/data/f", b"x");
    let stage = PrepareRequest { stage: true, ..Default::default() };
    let request = |host| {
        let operation = Operation::Prepare(stage.clone(), targets(&["/data/f"]));
        client(&server, rules, host).call(operation).text().into_bytes()
    };
    let operations: [fn(Vec<u8>) -> Operation; 3] = [
        |id| Operation::CancelPrepare { id },
        |id| Operation::QueryPrepare { id, targets: None },
        |id| Operation::QueryPrepare { id, targets: Some(targets(&["/data/f"])) },
    ];
    let id = request("h.o");
    let without_owner = id[..id.iter().rposition(|byte| *byte == b'.').unwrap()].to_vec();
    for role in [AuthorizationRole::Server, AuthorizationRole::Redirector(ForwardedChanges::default())] {
        let may = |host, id: &[u8]| {
            let client = client_of(&server, role, rules, host);
            operations.map(|operation| !is_refused(&client.call(operation(id.to_vec())).answer()))
        };
        assert_eq!(may("h.o", &id), [true; 3], "{role:?}");
        assert_eq!(may("other.o", &id), [false, false, true], "{role:?}");
        assert_eq!(may("look.o", &id), [false; 3], "{role:?}");
        assert_eq!(may("admin.o", &id), [true; 3], "{role:?}");
        assert_eq!(may("h.o", &without_owner), [false, false, true], "{role:?}");
        assert_eq!(may("admin.o", &without_owner), [true; 3], "{role:?}");
        // The privileges of the owner were revoked meanwhile.
        let revoked = Prepares::new("s:1", server.clock.as_ref()).issue(&caller_at("revoked.o"));
        assert_eq!(may("revoked.o", revoked.as_bytes()), [false; 3], "{role:?}");
    }
}

#[test]
fn a_rename_does_not_carry_objects_out_of_their_rules() {
    let rules = "u * /data/secret -rl /data/low/x r /data a\nh other.o /data/d/x r\n";
    let server = Server::new();
    for name in ["/data/d/x", "/data/dir/low/x/f", "/data/f"] {
        server.memory.put(name, b"x");
    }
    let client = client(&server, &format!("u * /data/dir/secret -rl {}", &rules[4..]), "h.o");
    for (from, to) in [("/data/dir", "/data/e"), ("/data/f", "/data/low"), ("/data/dir/", "/data/e")] {
        let answer = client.call(rename(from, to)).answer();
        assert!(is_refused(&answer), "{from} {to}: {}", support::tell(&answer));
    }
    // Rules of others do not matter, nor do those for similar names.
    client.call(rename("/data/d", "/data/e")).done();
    client.call(rename("/data/f", "/data/lo")).done();
}

#[test]
fn a_trailing_slash_does_not_extend_a_rule_to_the_directory() {
    let server = Server::new();
    server.memory.put("/data/bob/f", b"x");
    let client = client(&server, "u * /data/bob/ a\n", "h.o");
    client.call(Operation::List(target("/data/bob/"), ListDetail::default())).done();
    let changes = [
        Operation::RemoveDirectory(target("/data/bob/")),
        Operation::ChangeMode { target: target("/data/bob/"), mode: 0 },
        rename("/data/bob/", "/data/bob/x"),
    ];
    for change in changes {
        assert_eq!(client.call(change).error().kind, ErrorKind::NotAuthorized);
    }
}

#[test]
fn a_redirector_leaves_only_opens_to_the_servers() {
    let server = Server::new();
    server.memory.put("/data/f", b"x");
    let role = AuthorizationRole::Redirector(ForwardedChanges::default());
    let client = client_of(&server, role, "u * /none a\n", "h.o");
    client.call(open("/data/f", reading())).file();
    let locate = Operation::Locate(Some(target("/data/f")), LocateOptions::default());
    assert!(is_refused(&client.call(locate).answer()));
    assert!(is_refused(&client.call(Operation::Stat(target("/data/f"))).answer()));
    assert!(is_refused(&client.call(mkdir("/data/new", true)).answer()));
}

#[test]
fn the_grant_of_a_third_party_copy_decides_at_the_source() {
    let server = Server::new();
    server.memory.put("/data/f", b"x");
    let client = client(&server, "u * /none a\n", "h.o");
    // Without third-party copies the file system behind refuses.
    let (kind, text) = client.call(open("/data/f?tpc.key=k&tpc.org=u.1@h", reading())).refusal();
    assert_eq!(kind, ErrorKind::Unsupported, "{text}");
    for cgi in
        ["tpc.key=k&tpc.dst=h", "tpc.key=k&tpc.org=u.1@h&tpc.dst=h", "tpc.org=u.1@h", "tpc.key=&tpc.org=u"]
    {
        let answer = client.call(open(&format!("/data/f?{cgi}"), reading())).answer();
        assert!(is_refused(&answer), "{cgi}: {}", support::tell(&answer));
    }
    let writing = client.call(open("/data/f?tpc.key=k&tpc.org=u.1@h", updating())).answer();
    assert!(is_refused(&writing));
}

/// Counts the audit lines about files below `/data/counted`.
struct AuditCounter;

static COUNTED: AtomicU32 = AtomicU32::new(0);

struct CountedText;
impl tracing::field::Visit for CountedText {
    fn record_debug(&mut self, _: &tracing::field::Field, text: &dyn std::fmt::Debug) {
        let text = format!("{text:?}");
        COUNTED.fetch_add(u32::from(text.contains(" /data/counted/")), Ordering::SeqCst);
    }
}

impl tracing::Subscriber for AuditCounter {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut CountedText);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn each_path_of_a_list_is_decided_once() {
    // For all threads, because long lists and renewals of access times run in pools.
    tracing::subscriber::set_global_default(AuditCounter).unwrap();
    let server = Server::new();
    let names: Vec<String> = (0..100).map(|number| format!("/data/counted/{number}")).collect();
    names.iter().for_each(|name| server.memory.put(name, b"x"));
    let client = client(&server, "u * /data a\n", "h.o");
    let id = client.call(Operation::Prepare(
        PrepareRequest { stage: true, ..Default::default() },
        targets(&["/data/other"]),
    ));
    let id = id.text();
    for count in [1, 3, 100] {
        let list = || targets(&names[..count].iter().map(String::as_str).collect::<Vec<_>>());
        let prepare = |fresh| Operation::Prepare(PrepareRequest { fresh, ..Default::default() }, list());
        let query = Operation::QueryPrepare { id: id.clone().into(), targets: Some(list()) };
        let operations = [Operation::StatMany(list()), prepare(false), prepare(true), query];
        for (number, operation) in operations.into_iter().enumerate() {
            let text = format!("operation {number} on {count} paths");
            let before = COUNTED.load(Ordering::SeqCst);
            let answer = client.call(operation).answer();
            assert!(!matches!(answer, Answer::Error(_)), "{text}");
            server.settle();
            assert_eq!((COUNTED.load(Ordering::SeqCst) - before) as usize, count, "{text}");
        }
    }
}
