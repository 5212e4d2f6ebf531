//! Tests of whole rule files: the recorded questions, files that are refused, renewal.

mod below;

use super::*;
use crate::Entity;
use crate::entity::EntityFields;
use base::LogicalPath;
use serde_json::Value;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

struct NoNetgroups;
impl NetgroupDatabase for NoNetgroups {
    fn members(&self, netgroup: &str) -> io::Result<Vec<NetgroupMember>> {
        match netgroup {
            "staff" => Ok(vec![NetgroupMember { user: Some("ann".into()), ..NetgroupMember::default() }]),
            "broken" => Err(io::Error::other("no answer")),
            "absent" => Err(io::Error::new(io::ErrorKind::NotFound, "netgroup absent does not exist")),
            _ => Ok(Vec::new()),
        }
    }
}

fn source(matching: PathMatch) -> AuthdbSource {
    AuthdbSource {
        path: "authdb".into(),
        encoding: AuthdbEncoding::default(),
        matching,
        netgroup_domain: None,
    }
}

fn load_as(text: &str, source: &AuthdbSource) -> Result<AccessDatabase, String> {
    AccessDatabase::from_text(text.as_bytes(), source, &NoNetgroups).map_err(|error| error.to_string())
}

fn load(text: &str) -> AccessDatabase {
    load_as(text, &source(PathMatch::Component)).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refusal(text: &str) -> String {
    load_as(text, &source(PathMatch::Component)).err().unwrap_or_else(|| panic!("accepted: {text}"))
}

fn path(text: &str) -> LogicalPath {
    LogicalPath::parse(text.as_bytes()).unwrap()
}

fn of(database: &AccessDatabase, principal: &Principal<'_>, at: &str) -> String {
    let client = database.records_of(principal).unwrap_or_default();
    database.privileges(&client, principal.name, &path(at)).to_string()
}

/// The principal `name@host` with groups, organizations and roles.
fn principal<'a>(who: &'a str, groups: &'a str, organizations: &'a str, roles: &'a str) -> Principal<'a> {
    let (name, host) = who.split_once('@').unwrap_or((who, ""));
    let name = (!name.is_empty()).then_some(name);
    Principal { protocol: "unix", name, host, groups, organizations, roles, ..Principal::default() }
}

#[test]
fn pairs_below_a_directory_are_found() {
    let database = load(
        "u * /a/b r /a/c/ r /ab r\ng g /g/d -\nu = /home/@=/x a /home/m@= r /deep/h-@=-t/y/z r /nomark r\n",
    );
    let is_below = |client: &Principal<'_>, at: &str| {
        let records = database.records_of(client).unwrap_or_default();
        database.has_pair_below(&records, client.name, &path(at))
    };
    let (bob, grouped, nobody) =
        (principal("bob@h", "", "", ""), principal("bob@h", "g", "", ""), principal("@h", "", "", ""));
    for at in ["/", "/a", "/a/", "/a/c"] {
        assert!(is_below(&nobody, at), "{at}");
    }
    for at in ["/a/b", "/ab", "/g", "/home", "/home/bob", "/nomark"] {
        assert!(!is_below(&nobody, at), "{at}");
    }
    assert!(is_below(&grouped, "/g") && !is_below(&bob, "/g") && !is_below(&grouped, "/g/d"));
    for at in ["/home", "/home/bob", "/deep", "/deep/h-bob-t", "/deep/h-bob-t/y"] {
        assert!(is_below(&bob, at), "{at}");
    }
    for at in ["/home/ann", "/home/mbob", "/home/bob/x", "/deep/h-ann-t", "/deep/h-bob-t/y/z", "/nomark"] {
        assert!(!is_below(&bob, at), "{at}");
    }
}

#[test]
fn clients_without_any_privilege_are_known() {
    let database = load("u none /a - /b -r\nu taken /a r-r\ng g /a r\nu = /a r\nh h /a l-r\n");
    let grants = |who: &str, groups: &str| {
        let records = database.records_of(&principal(who, groups, "", "")).unwrap_or_default();
        database.grants_any(&records)
    };
    assert!(!grants("none@x", "") && !grants("taken@x", "") && !grants("@x", ""));
    assert!(grants("none@x", "g") && grants("@h", ""));
    assert!(
        load("u = /@= r\n")
            .grants_any(&load("u = /@= r\n").records_of(&principal("b@x", "", "", "")).unwrap())
    );
}

fn vectors() -> Value {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/security/authdb.json");
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

#[test]
fn the_recorded_questions_have_the_recorded_answers() {
    let vectors = vectors();
    let text = |value: &'_ Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let mut asked = 0;
    for (rules, cases) in [("authdb", "cases"), ("operations_authdb", "operation_cases")] {
        let database = load(vectors[rules].as_str().unwrap_or_else(|| vectors["authdb"].as_str().unwrap()));
        for case in vectors[cases].as_array().unwrap() {
            let entity = &case["entity"];
            let fields = ["name", "host", "grps", "vorg", "role"].map(|key| text(entity, key));
            let [name, host, groups, organizations, roles] = &fields;
            let name = (!name.is_empty()).then_some(name.as_str());
            let principal = Principal {
                protocol: "unix",
                name,
                host,
                groups,
                organizations,
                roles,
                ..Principal::default()
            };
            let at = text(case, "path");
            match case["operation"].as_str() {
                None => assert_eq!(of(&database, &principal, &at), text(case, "privileges"), "{case}"),
                Some(operation) => {
                    let operation = AccessOperation::of_name(operation).unwrap();
                    let found = database.explain(&principal, operation, &path(&at)).is_allowed;
                    assert_eq!(if found { "allowed" } else { "denied" }, text(case, "answer"), "{case}");
                }
            }
            asked += 1;
        }
    }
    assert!(asked >= 79, "only {asked} questions");
}

#[test]
fn files_with_an_error_are_refused_whole() {
    for file in vectors()["invalid_files"].as_array().unwrap() {
        refusal(file.as_str().unwrap());
    }
    let cases = [
        ("u bob /x q", "authdb:1:10: invalid privileges 'q'"),
        ("u bob /x", "authdb:1:7: path '/x' without privileges"),
        ("u a /x r\n\nq bob /x r", "authdb:3:1: unknown record type 'q'"),
        ("u bob /x r\nu bob /y r", "authdb:2:3: 'u bob' has a record in line 1"),
        ("u bob none", "authdb:1:7: 'none' is neither a path nor a template"),
        ("t t1 /t1 r\nu bob /t1", "authdb:2:7: path '/t1' without privileges"),
        ("s none /x r", "authdb:1:3: no '= none' record"),
        ("= a o: cms o: atlas", "authdb:1:12: 'o:' is given twice"),
        ("= a z: b", "authdb:1:5: unknown part 'z:'"),
        ("= a u:", "authdb:1:5: 'u:' without a value"),
        ("= a", "authdb:1:3: identity 'a' has no parts"),
        ("= a u: b\n= a u: c", "authdb:2:3: identity 'a' is defined in line 1"),
        ("= a u: b\ns a /x r\nx a /x r", "authdb:3:3: identity 'a' has a rule in line 2"),
        ("h .o /x r\nh .z.o /x r", "authdb:2:3: 'h .z.o' never applies, because 'h .o' in line 1"),
        ("u bob /x r\r\n", "authdb:1:10: 'r\\r' contains a control character"),
        ("u", "authdb:1:1: 'u' record without an identifier"),
        ("u bob \\ r", "authdb:1:7: empty object id"),
        ("n broken /x r", "authdb: cannot look up the netgroups"),
    ];
    for (text, expected) in cases {
        let found = refusal(text);
        assert!(found.starts_with(expected), "{text}\nexpected {expected}\nfound    {found}");
    }
    assert_eq!(refusal("q\nq\nu").lines().count(), 3, "each record is judged");
}

#[test]
fn templates_do_not_grow_without_bound() {
    let mut text = String::from("t t0 /a r /b r\n");
    for level in 1..40 {
        text += &format!("t t{level} t{0} t{0}\n", level - 1);
    }
    assert!(refusal(&text).contains("more than 1048576 paths"));
}

#[test]
fn the_first_pair_of_a_record_that_is_a_prefix_counts() {
    let bob = principal("bob", "", "", "");
    let database = load("u bob /store rw-d /store/sub l /a r /ab w\n");
    assert_eq!(of(&database, &bob, "/store/sub/x"), "rw");
    // The pair `/a` counts textually, but does not end at a component.
    assert_eq!(of(&database, &bob, "/ab/x"), "");
    let prefix = load_as("u bob /store rw-d /store/sub l /a r /ab w\n", &source(PathMatch::Prefix)).unwrap();
    assert_eq!(of(&prefix, &bob, "/ab/x"), "r");
    assert_eq!(of(&prefix, &bob, "/storefoo"), "rw");
    // Negative privileges apply to any prefix of the request path.
    let minus = load("u bob /a/bc/ rw\nu * /a/b -w\n");
    assert_eq!(of(&minus, &bob, "/a/bc/d"), "r");
}

#[test]
fn names_in_paths_need_a_name_record() {
    let database = load("u = /home/@=/ a /scr/@=-tmp/x rl /q r\nu bob /lit/@= r\n");
    let bob = principal("bob", "", "", "");
    for (at, expected) in [
        ("/home/bob/x", "diklnrw"),
        ("/home/bob", ""),
        ("/home/bobby/x", ""),
        ("/home/@=/x", ""),
        ("/scr/bob-tmp/x", "lr"),
        ("/scr/bob-tmp/xy", ""),
        ("/q", ""),
        ("/lit/@=", "r"),
        ("/lit/bob", ""),
    ] {
        assert_eq!(of(&database, &bob, at), expected, "{at}");
    }
    assert_eq!(of(&database, &principal("", "", "", ""), "/home//x"), "");
    assert_eq!(of(&database, &principal("bob/x", "", "", ""), "/home/bob/x/y"), "", "several components");
}

#[test]
fn exclusive_records_decide_alone_in_file_order() {
    let text = "= a g: x\n= b u: bob\n= c u: bob g: y\nx b /b w\nx a /a r\ns c /c l\nu * /b r /c r\n";
    let database = load(text);
    assert_eq!(of(&database, &principal("bob", "x", "", ""), "/b"), "w");
    assert_eq!(of(&database, &principal("bob", "x", "", ""), "/a"), "");
    assert_eq!(of(&database, &principal("eve", "x", "", ""), "/a"), "r");
    assert_eq!(of(&database, &principal("eve", "x", "", ""), "/b"), "");
    assert_eq!(of(&database, &principal("eve", "y", "", ""), "/b"), "r");
}

#[test]
fn compounds_need_all_parts_in_one_column() {
    let database = load("= a g: x o: cms\n= b h: .o u: ann\ns a /a r\ns b /b r\n");
    assert_eq!(of(&database, &principal("u", "w x", "atlas cms", ""), "/a"), "r");
    assert_eq!(of(&database, &principal("u", "x w", "atlas cms", ""), "/a"), "");
    assert_eq!(of(&database, &principal("u", "w x", "cms", ""), "/a"), "r");
    assert_eq!(of(&database, &principal("ann@Z.O", "", "", ""), "/b"), "r");
    assert_eq!(of(&database, &principal("ann@o", "", "", ""), "/b"), "");
}

#[test]
fn hosts_match_exactly_or_by_the_longest_domain() {
    let database = load("h .z.o /a r\nh .o /b r\nh H.z.o /c r\n");
    let at = |host: &'static str| {
        let principal = Principal { host, ..Principal::default() };
        ["/a", "/b", "/c"].map(|path| of(&database, &principal, path)).join("|")
    };
    assert_eq!(at("h.Z.o"), "r||r");
    assert_eq!(at("h.y.o"), "|r|");
    assert_eq!(at("o"), "||");
}

#[test]
fn netgroups_are_records_too() {
    let database = load("n staff /a r\nn empty /a w\n");
    assert_eq!(of(&database, &principal("ann@h", "", "", ""), "/a"), "r");
    assert_eq!(of(&database, &principal("bob@h", "", "", ""), "/a"), "");
}

#[test]
fn a_netgroup_that_does_not_exist_stops_only_rules_that_deny() {
    let database = load("t read /a r\nn absent read /b lr\n");
    assert_eq!(of(&database, &principal("ann@h", "", "", ""), "/a"), "");
    for denial in ["n absent /a -r", "n absent /b r /a a-d", "t no /a -r\nn absent no"] {
        let expected = "authdb: cannot look up the netgroups of the rules: netgroup absent does not exist";
        assert_eq!(refusal(denial), expected, "{denial}");
    }
}

#[test]
fn encodings_of_blanks_and_paths() {
    let encoding = AuthdbEncoding { space: Some(b'+'), decode_paths: true };
    let source = AuthdbSource { encoding, ..source(PathMatch::Component) };
    let database = load_as("u a+b /c%20d%4 r /e%2zf w\n", &source).unwrap();
    let client = principal("a b", "", "", "");
    assert_eq!(of(&database, &client, "/c d%4"), "r");
    assert_eq!(of(&database, &client, "/e%2zf"), "w");
    assert!(load_as("u a /c%00 r\n", &source).unwrap_err().contains("NUL"));
}

#[test]
fn rules_without_effect_are_reported() {
    let warnings =
        |text: &str| -> Vec<String> { load(text).warnings().iter().map(ToString::to_string).collect() };
    let cases = [
        (
            "u bob /store r /store/sub l",
            "1:16: /store/sub never applies, because the path at 1:7 is a prefix",
        ),
        ("= a u: b", "1:3: identity 'a' is not used"),
        ("u = /home r", "1:5: /home never applies, because paths of 'u =' records need '@='"),
        ("u a /x//y r", "1:5: /x//y never applies, because requests have no"),
        (
            "= a o: cms\n= b o: cms r: prod\nx a /x r\nx b /x w",
            "4:3: 'x b' never applies, because 'x a' in line 3 decides for all of its clients",
        ),
    ];
    for (text, expected) in cases {
        let found = warnings(text);
        assert!(found.len() == 1 && found[0].starts_with(expected), "{text}: {found:?}");
    }
    assert!(warnings("u bob /store/sub r /store l /store2 r\nu = /h/@=/ a").len() == 1, "/store2 only");
    let identities = "= a o: cms\n= b o: cms r: prod\n= c o: atlas\n";
    for rest in
        ["x b /x w\nx a /x r\nx c /x r", "s a /x r\nx b /x w\nx c /x r", "x a /x r\ns b /x w\nx c /x r"]
    {
        assert_eq!(warnings(&format!("{identities}{rest}")), [""; 0], "{rest}");
    }
}

#[test]
fn a_decision_names_the_rules() {
    let database = load("t tt /a/b r\nu * /a l\nu bob tt\ng x /a -l\n");
    let found = database.explain(&principal("bob", "x", "", ""), AccessOperation::Stat, &path("/a/b/c"));
    assert!(!found.is_allowed && found.privileges == Privileges::READ);
    let pairs: Vec<String> = found
        .pairs
        .iter()
        .map(|pair| {
            let letter = pair.kind.letter();
            format!(
                "{letter} {} {} {} {}-{}",
                pair.id, pair.record_at, pair.path_at, pair.positive, pair.negative
            )
        })
        .collect();
    assert_eq!(pairs, ["u * 2:3 2:5 l-", "u bob 3:3 1:6 r-", "g x 4:3 4:5 -l"]);
    let columns = database.explain(&principal("bob", "x", "a b", ""), AccessOperation::Any, &path("/a"));
    assert!(columns.is_inconsistent && !columns.is_allowed);
}

fn entity(name: &str) -> Entity {
    let fields = EntityFields { protocol: "unix".into(), name: Some(name.into()), ..EntityFields::default() };
    Entity::new(fields)
}

#[test]
fn a_broken_file_keeps_the_rules() {
    let directory = std::env::temp_dir().join(format!("scalla-authdb-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("authdb");
    let write = |text: &str| {
        std::fs::write(directory.join("new"), text).unwrap();
        std::fs::rename(directory.join("new"), &file).unwrap();
    };
    let settings = AuthorizerSettings {
        source: AuthdbSource { path: file.clone(), ..source(PathMatch::Component) },
        audit: AuditedDecisions { grants: true, denials: true },
        netgroup_lifetime: Duration::from_secs(60),
    };
    let start = Duration::ZERO;
    let missing = Authorizer::new(settings.clone(), Arc::new(NoNetgroups), start).err().unwrap();
    let expected = format!("cannot read {}: no such file or directory; ", file.display());
    assert_eq!(missing.to_string(), expected + "create the file, or name another one");
    write("u bob /a r\n");
    let authorizer = Authorizer::new(settings, Arc::new(NoNetgroups), start).unwrap();
    let bob = entity("bob");
    let may =
        |operation, at: &str| authorizer.allows(AccessClient::Entity(&bob), operation, &path(at), &"trace");
    assert!(may(AccessOperation::Read, "/a/x") && !may(AccessOperation::Update, "/a/x"));
    assert!(matches!(authorizer.refresh(start, false), RulesRefresh::Unchanged));
    write("u bob /a r\nu eve\n");
    assert!(matches!(authorizer.refresh(start, false), RulesRefresh::Kept(_)));
    assert!(may(AccessOperation::Read, "/a/x"));
    write("u bob /a rw\n");
    assert!(matches!(authorizer.refresh(start, false), RulesRefresh::Replaced(_)));
    assert!(may(AccessOperation::Update, "/a/x"), "the cached records of the client are renewed");
    std::fs::remove_file(&file).unwrap();
    assert!(matches!(authorizer.refresh(start, false), RulesRefresh::Kept(_)));
    assert!(may(AccessOperation::Update, "/a/x"));
    write("n staff /a r\n");
    assert!(matches!(authorizer.refresh(start, false), RulesRefresh::Replaced(_)));
    assert!(matches!(authorizer.refresh(start, false), RulesRefresh::Unchanged));
    let later = Duration::from_secs(60);
    assert!(matches!(authorizer.refresh(later, false), RulesRefresh::Replaced(_)), "netgroups are old");
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn rules_that_others_can_write_are_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let directory = std::env::temp_dir().join(format!("scalla-authdb-mode-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("authdb");
    std::fs::write(&file, "u bob /a r\n").unwrap();
    let set_mode = |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    let settings = AuthorizerSettings {
        source: AuthdbSource { path: file.clone(), ..source(PathMatch::Component) },
        audit: AuditedDecisions::default(),
        netgroup_lifetime: Duration::MAX,
    };
    let start = || Authorizer::new(settings.clone(), Arc::new(NoNetgroups), Duration::ZERO);
    set_mode(0o666);
    let error = start().err().unwrap().to_string();
    assert!(error.contains("0666 allow others to change the rules; run chmod 644 "), "{error}");
    let check = |check| AccessDatabase::load(&settings.source, check, &NoNetgroups).is_ok();
    assert!(!check(AuthdbCheck::ForOwner) && check(AuthdbCheck::None));
    set_mode(0o644);
    let authorizer = start().unwrap();
    set_mode(0o646);
    std::fs::write(&file, "u eve /a r\n").unwrap();
    assert!(matches!(authorizer.refresh(Duration::ZERO, false), RulesRefresh::Kept(_)));
    assert!(authorizer.failure().unwrap().contains("run chmod"), "{:?}", authorizer.failure());
    let eve = entity("eve");
    assert_eq!(authorizer.privileges(AccessClient::Entity(&eve), &path("/a")), Privileges::NONE);
    set_mode(0o644);
    assert!(matches!(authorizer.refresh(Duration::ZERO, false), RulesRefresh::Replaced(_)));
    assert_eq!(authorizer.failure(), None);
    std::fs::remove_dir_all(&directory).unwrap();
}

/// A database of netgroups whose first look-up waits until the test lets it go on.
struct SlowNetgroups {
    is_asked: std::sync::mpsc::SyncSender<()>,
    go_on: std::sync::Mutex<std::sync::mpsc::Receiver<()>>,
}
impl NetgroupDatabase for SlowNetgroups {
    fn members(&self, netgroup: &str) -> io::Result<Vec<NetgroupMember>> {
        if netgroup == "slow" {
            self.is_asked.send(()).map_err(io::Error::other)?;
            self.go_on.lock().unwrap().recv().map_err(io::Error::other)?;
        }
        NoNetgroups.members(netgroup)
    }
}

/// Returns a directory with a rule file, the file, and the settings that name it.
fn rules_of_bob(name: &str) -> (PathBuf, PathBuf, AuthorizerSettings) {
    let directory = std::env::temp_dir().join(format!("scalla-authdb-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("authdb");
    std::fs::write(&file, "u bob /a r\n").unwrap();
    let settings = AuthorizerSettings {
        source: AuthdbSource { path: file.clone(), ..source(PathMatch::Component) },
        audit: AuditedDecisions::default(),
        netgroup_lifetime: Duration::MAX,
    };
    (directory, file, settings)
}

#[test]
fn a_file_that_is_read_again_is_a_change_only_if_it_differs() {
    let (directory, file, settings) = rules_of_bob("again");
    let authorizer = Authorizer::new(settings, Arc::new(NoNetgroups), Duration::ZERO).unwrap();
    assert!(matches!(authorizer.refresh(Duration::ZERO, true), RulesRefresh::Unchanged));
    std::fs::write(&file, "u bob /a rw\n").unwrap();
    assert!(matches!(authorizer.refresh(Duration::ZERO, true), RulesRefresh::Replaced(_)));
    assert!(matches!(authorizer.refresh(Duration::ZERO, true), RulesRefresh::Unchanged));
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_slow_renewal_does_not_bring_back_older_rules() {
    let (directory, file, settings) = rules_of_bob("order");
    let (is_asked, asked) = std::sync::mpsc::sync_channel(0);
    let (proceed, go_on) = std::sync::mpsc::channel();
    let netgroups = Arc::new(SlowNetgroups { is_asked, go_on: std::sync::Mutex::new(go_on) });
    let authorizer = Authorizer::new(settings, netgroups, Duration::ZERO).unwrap();
    std::thread::scope(|scope| {
        std::fs::write(&file, "n slow /a r\nu bob /a rw\n").unwrap();
        let first = scope.spawn(|| authorizer.refresh(Duration::ZERO, true));
        asked.recv().unwrap();
        // The first renewal has read its text; this one must wait for it.
        std::fs::write(&file, "u bob /a l\n").unwrap();
        let second = scope.spawn(|| authorizer.refresh(Duration::ZERO, true));
        proceed.send(()).unwrap();
        assert!(matches!(first.join().unwrap(), RulesRefresh::Replaced(_)));
        assert!(matches!(second.join().unwrap(), RulesRefresh::Replaced(_)));
    });
    let bob = entity("bob");
    assert_eq!(authorizer.privileges(AccessClient::Entity(&bob), &path("/a")), Privileges::LOOKUP);
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn many_clients_do_not_grow_the_cache() {
    let directory = std::env::temp_dir().join(format!("scalla-authdb-many-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("authdb");
    std::fs::write(&file, "u u7 /a r\n").unwrap();
    let settings = AuthorizerSettings {
        source: AuthdbSource { path: file, ..source(PathMatch::Component) },
        audit: AuditedDecisions::default(),
        netgroup_lifetime: Duration::MAX,
    };
    let authorizer = Authorizer::new(settings, Arc::new(NoNetgroups), Duration::ZERO).unwrap();
    let count = 16 * 1024 + 5000;
    let clients: Vec<Entity> = (0..count).map(|number| entity(&format!("u{number}"))).collect();
    for (number, client) in clients.iter().enumerate() {
        let expected = if number == 7 { Privileges::READ } else { Privileges::NONE };
        assert_eq!(authorizer.privileges(AccessClient::Entity(client), &path("/a")), expected, "{number}");
    }
    assert!(authorizer.cached_clients() <= 16 * 1024);
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn paths_of_many_records_have_the_same_answers_as_those_of_few() {
    // Records without the shared path lie between those with it: none, few, and so many that no
    // table by record is made.
    for gap in [0, 3, 40] {
        let mut text = String::new();
        for number in 0..40 {
            text +=
                &format!("g g{number} /own{number} w /shared {}\n", if number == 17 { "r-l" } else { "l" });
            for other in 0..gap {
                text += &format!("u other{number}-{other} /else r\n");
            }
        }
        let database = load(&text);
        let at = |groups: &str, path: &str| of(&database, &principal("u", groups, "", ""), path);
        assert_eq!(at("g0 g39", "/shared/x"), "l", "{gap}");
        assert_eq!(at("g17", "/shared/x"), "r", "{gap}");
        assert_eq!(at("g1 g17 g2", "/shared/x"), "r", "{gap}");
        assert_eq!(at("g40 none", "/shared/x"), "", "{gap}");
        assert_eq!(at("g3 g4", "/own4"), "w", "{gap}");
        let all: Vec<String> = (0..40).map(|number| format!("g{number}")).collect();
        assert_eq!(at(&all.join(" "), "/shared/x"), "r", "{gap}");
    }
}

#[test]
fn rules_say_whether_they_need_hosts() {
    let cases = [
        ("u * /a a", false),
        ("h [::ffff:192.0.2.7] /a a", false),
        ("h 192.0.2.7 /a a", false),
        ("h h1 /a a", true),
        ("h .example.org /a a", true),
        ("n staff /a a", true),
        ("= me u: bob h: h1\ns me /a a", true),
        ("= me u: bob\ns me /a a", false),
    ];
    for (text, expected) in cases {
        assert_eq!(load(text).needs_hosts(), expected, "{text}");
    }
}

#[test]
fn a_client_whose_host_is_uncertain_gets_nothing_where_rules_deny_by_host() {
    let uncertain = Principal {
        name: Some("bob"),
        host: "[::ffff:192.0.2.7]",
        address: "[::ffff:192.0.2.7]",
        is_host_uncertain: true,
        ..Principal::default()
    };
    let certain = Principal { host: "h2.example.org", is_host_uncertain: false, ..uncertain };
    let denials = [
        "h h1 /data -r",
        "h .bad.org /data -r",
        "n staff /data -r",
        "= other h: h1\ns other /data -r",
        "= other h: .bad.org\nx other /data l",
    ];
    for denial in denials {
        let database = load(&format!("u * /data a\n{denial}"));
        assert_eq!(
            of(&database, &uncertain, "/data"),
            of(&load("u * /x a"), &uncertain, "/data"),
            "{denial}"
        );
        assert_eq!(of(&database, &certain, "/data"), of(&load("u * /data a"), &certain, "/data"));
    }
    let database = load("u * /data a\nh h1 /data r\nu bob /data -d");
    assert_ne!(of(&database, &uncertain, "/data"), of(&load("u * /x a"), &uncertain, "/data"));
}

#[test]
fn rules_for_addresses_apply_in_each_spelling_and_with_a_name() {
    let client = Principal { host: "h1", address: "[::ffff:192.0.2.7]", ..Principal::default() };
    let unnamed = Principal { host: client.address, is_host_uncertain: true, ..client };
    for spelling in ["192.0.2.7", "[::ffff:192.0.2.7]", "::ffff:192.0.2.7", "[192.0.2.7]"] {
        let database = load(&format!("u * /data lr\nh {spelling} /data -r"));
        assert_eq!(
            [of(&database, &client, "/data"), of(&database, &unnamed, "/data")],
            ["l", "l"],
            "{spelling}"
        );
    }
}
