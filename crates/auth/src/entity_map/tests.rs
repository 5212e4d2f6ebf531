//! Tests of maps of identities.

use super::*;
use crate::EntityFields;
use crate::entity::{TOKEN_ISSUER, TOKEN_SUBJECT};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

fn text(value: &str) -> Option<Box<str>> {
    (!value.is_empty()).then(|| value.into())
}

/// A client that logged in by a protocol with a name, organizations, roles and groups.
fn client(protocol: &str, name: &str, [vorg, role, groups]: [&str; 3]) -> Entity {
    Entity::new(EntityFields {
        protocol: protocol.into(),
        name: text(name),
        certificate_subject: text(name).filter(|_| protocol == "gsi"),
        vorg: text(vorg),
        role: text(role),
        groups: text(groups),
        uid: Some(0),
        ..EntityFields::default()
    })
}

fn map(rules: &str, refuses_others: bool) -> EntityMap {
    let rules = RwLock::new(Arc::new(parse(rules).unwrap()));
    EntityMap { path: "/map".into(), refuses_others, rules, failure: Mutex::default() }
}

/// Returns `NAME GROUPS line N` or the refusal of a client of a host.
fn at(map: &EntityMap, entity: &Entity, host: &str, address: &str) -> String {
    let outcome =
        map.apply(MappedClient { entity, protocol: &entity.protocol, host, address: address.parse().ok() });
    let line = outcome.line.map_or_else(String::new, |line| format!(" line {line}"));
    match outcome.entity {
        Err(reason) => reason,
        Ok(mapped) => {
            assert_eq!(mapped.map_line, outcome.line);
            let shown = |value: &Option<Box<str>>| value.as_deref().unwrap_or("-").to_owned();
            format!("{} {}{line}", shown(&mapped.name), shown(&mapped.groups))
        }
    }
}

fn outcome(rules: &str, entity: &Entity) -> String {
    at(&map(rules, false), entity, "c.example.org", "192.0.2.1")
}

const NONE: [&str; 3] = [""; 3];

#[test]
fn the_first_rule_whose_conditions_all_hold_counts() {
    let rules = "# users\n\n\
        protocol=gsi name=\"/O=Grid/CN=Ann Example\" -> user=ann groups=\"staff prod\"\n\
        protocol=krb5 name=bob -> keep\n\
        name=b* -> user=visitor\n\
        subject=/O=Grid/* -> user=grid\n\
        name=root -> refuse\n";
    for (protocol, name, expected) in [
        ("gsi", "/O=Grid/CN=Ann Example", "ann staff prod line 3"),
        ("krb5", "/O=Grid/CN=Ann Example", "/O=Grid/CN=Ann Example -"),
        ("gsi", "/O=Grid/CN=Ann", "grid - line 6"),
        ("krb5", "bob", "bob - line 4"),
        ("unix", "bob", "visitor - line 5"),
        ("unix", "Bob", "Bob -"),
        ("unix", "root", "/map:7: the rule refuses root (unix) at c.example.org"),
        ("unix", "", "- -"),
        ("unix", "carl", "carl -"),
    ] {
        assert_eq!(outcome(rules, &client(protocol, name, NONE)), expected, "{protocol} {name}");
    }
}

#[test]
fn a_client_without_a_rule_is_refused_if_configured() {
    let map = map("name=ann -> keep\n", true);
    assert_eq!(at(&map, &client("unix", "ann", NONE), "h", ""), "ann - line 1");
    let refused = at(&map, &client("unix", "b\n\u{1b}", NONE), "h", "");
    assert!(
        refused.starts_with("/map: no rule matches ") && !refused.contains(char::is_control),
        "{refused}"
    );
    assert!(at(&map, &client("unix", "", NONE), "h", "").contains("a client without a name (unix) at h"));
}

#[test]
fn a_new_name_does_not_keep_the_ids_and_new_groups_replace_all_attributes() {
    let member = client("sss", "ann", ["cms", "prod", "/cms"]);
    let apply = |rules: &str| {
        let map = map(rules, false);
        map.apply(MappedClient { entity: &member, protocol: "sss", host: "h", address: None }).entity.unwrap()
    };
    let named = apply("name=ann -> user=root\n");
    assert_eq!((named.name.as_deref(), named.uid, named.role.as_deref()), (Some("root"), None, Some("prod")));
    let grouped = apply("name=ann -> groups=staff\n");
    assert_eq!((grouped.name.as_deref(), grouped.uid), (Some("ann"), Some(0)));
    assert_eq!((grouped.vorg.as_deref(), grouped.role.as_deref()), (None, None));
    assert_eq!(grouped.groups.as_deref(), Some("staff"));
    let all = apply("name=ann -> vo=lab role=chief groups=\"a b\"\n");
    assert_eq!((all.vorg.as_deref(), all.role.as_deref()), (Some("lab"), Some("chief")));
}

#[test]
fn attributes_of_one_rule_must_belong_together() {
    let rules = "vo=cms role=prod -> user=cmsprod\ngroup=/cms/* -> user=cms\nvo=* -> user=member\n";
    for (attributes, expected) in [
        (["cms atlas", "NULL prod", "/cms /atlas"], "member /cms /atlas line 3"),
        (["atlas cms", "NULL prod", "/atlas /cms"], "cmsprod /atlas /cms line 1"),
        (["cms", "", "/cms /cms/muon"], "cms /cms /cms/muon line 2"),
        (["", "prod", ""], "x -"),
    ] {
        assert_eq!(outcome(rules, &client("gsi", "x", attributes)), expected, "{attributes:?}");
    }
    // It is not certain which words belong together.
    let refused = outcome(rules, &client("sss", "x", ["a b", "p q r", "g h"]));
    assert!(refused.contains("the numbers of organizations, roles and groups of x (sss)"), "{refused}");
}

#[test]
fn patterns_of_names_and_of_addresses_are_not_mixed_up() {
    let map =
        map("host=10.0.* -> user=inside\nhost=2001:db8::* -> user=six\nhost=*.lab.org -> user=lab\n", false);
    let ann = client("unix", "ann", NONE);
    for (host, address, expected) in [
        ("a.LAB.org", "192.0.2.1", "lab - line 3"),
        ("a.other.org", "10.0.3.4", "inside - line 1"),
        ("[::ffff:10.0.3.4]", "::ffff:10.0.3.4", "inside - line 1"),
        ("[2001:db8::7]", "2001:db8::7", "six - line 2"),
        // The owner of an address chooses this name.
        ("10.0.evil.org", "192.0.2.1", "ann -"),
    ] {
        assert_eq!(at(&map, &ann, host, address), expected, "{host} {address}");
    }
    // Other spellings of addresses, such as those of the log.
    for pattern in ["[::ffff:10.0.3.4]", "::ffff:10.0.*", "10.0.3.4"] {
        let map = self::map(&format!("host={pattern} -> refuse\n"), false);
        assert!(at(&map, &ann, "h", "10.0.3.4").contains("the rule refuses ann"), "{pattern}");
    }
    let map = self::map("host=2001:0DB8:0:0::7 -> refuse\n", false);
    assert!(at(&map, &ann, "h", "2001:db8::7").contains("the rule refuses ann"));
    let map = self::map("host=*.org -> user=a\n", false);
    assert!(map.needs_host_name());
    assert!(!self::map("host=10.* -> user=a\nhost=* -> keep\n", false).needs_host_name());
}

#[test]
fn a_client_whose_host_has_no_name_does_not_avoid_rules_about_names() {
    let ann = client("unix", "ann", NONE);
    for (rules, expected) in [
        (
            "host=*.student.lab.org -> refuse\n-> keep\n",
            "/map:1: the host of ann (unix) at [::ffff:192.0.2.1] has no name",
        ),
        ("host=*.student.lab.org -> user=visitor\n-> keep\n", "/map:1: the host of ann"),
        // What only allows is passed over.
        ("host=*.lab.org -> keep\nname=ann -> refuse\n", "/map:2: the rule refuses ann"),
        // The other conditions do not hold, or an earlier rule counts.
        ("name=bob host=*.lab.org -> refuse\n-> keep\n", "ann - line 2"),
        ("name=ann -> user=a\nhost=*.lab.org -> refuse\n", "a - line 1"),
    ] {
        let found = at(&map(rules, false), &ann, "[::ffff:192.0.2.1]", "192.0.2.1");
        assert!(found.starts_with(expected), "{rules}: {found}");
        assert!(!at(&map(rules, false), &ann, "h.elsewhere.org", "192.0.2.1").contains("has no name"));
    }
}

#[test]
fn escapes_of_certificate_subjects_are_characters() {
    let rules = "name=\"/O=Grid/*/CN=root\" -> user=root\n";
    assert_eq!(outcome(rules, &client("gsi", "/O=Grid/OU=a/CN=root", NONE)), "root - line 1");
    assert_eq!(outcome(rules, &client("gsi", r"/O=Grid/CN=x\/CN=root", NONE)), r"/O=Grid/CN=x\/CN=root -");
    let quoted = r#"name="/CN=\"A\" \/ b\\" -> user=a"#;
    assert_eq!(outcome(quoted, &client("gsi", r#"/CN="A" \/ b\\"#, NONE)), "a - line 1");
}

#[test]
fn names_of_tokens_are_those_of_their_issuers() {
    let token = [(TOKEN_ISSUER, "https://issuer.example.org"), (TOKEN_SUBJECT, "ann")];
    let attributes = token.map(|(key, value)| (key.into(), value.into())).into();
    let bearer = Entity::new(EntityFields {
        protocol: "ztn".into(),
        name: text("ann"),
        attributes,
        ..EntityFields::default()
    });
    assert_eq!(outcome("name=ann -> user=root groups=wheel\n", &bearer), "ann - line 1");
    // An identity that a proxy server forwards has no token here.
    let forwarded = client("ztn", "ann", ["cms", "", "/admin"]);
    assert_eq!(
        outcome("protocol=ztn -> user=visitor groups=visitors\n", &forwarded),
        "visitor visitors line 1"
    );
    assert_eq!(
        outcome("protocol=ztn name=bob -> keep\nprotocol=ztn -> refuse\n", &bearer),
        "/map:2: the rule refuses ann (ztn) at c.example.org"
    );
}

#[test]
fn malformed_lines_are_named() {
    for (rule, expected) in [
        ("protocol=gsi", "a rule has the form CONDITIONS -> RESULT"),
        ("-> keep -> keep", "a rule has the form"),
        ("-> ", "the result is missing"),
        ("gsi -> keep", "unknown condition 'gsi'; conditions are"),
        ("user=a -> keep", "unknown condition 'user'"),
        ("name= -> keep", "the value of 'name' is empty"),
        ("name=\"\" -> keep", "the value of 'name' is empty"),
        ("name=a name=b -> keep", "there are two conditions 'name'"),
        ("protocol=kerberos5 -> keep", "there is no protocol 'kerberos5'"),
        ("name=\"a -> keep", "the closing '\"' is missing"),
        ("name=\"a\"b -> keep", "'b' follows the closing"),
        ("name=a\u{7} -> keep", "a control character"),
        ("-> user=", "the user is not 1 to 64"),
        ("-> user=-x", "the user is not 1 to 64"),
        ("-> user=\"a b\"", "the user is not 1 to 64"),
        ("-> user=a user=b", "the result has two words 'user'"),
        ("-> keep user=a", "unknown result 'keep'"),
        ("-> name=a", "unknown result 'name'"),
        ("-> vo=\"a b\" groups=\"a b c\"", "different numbers of words"),
    ] {
        let (line, what) = parse(&format!("# head\n{rule}\n")).unwrap_err();
        assert!(line == 2 && what.contains(expected), "{rule}: {what}");
    }
    let many = "-> keep\n".repeat(RULES_MAX);
    assert!(parse(&many).is_ok());
    assert_eq!(parse(&format!("{many}-> keep")).unwrap_err().1, "more than 10000 rules");
}

#[test]
fn rules_that_never_apply_are_found() {
    let rules = "protocol=gsi name=/O=Grid/* -> user=grid\n\
        protocol=gsi name=\"/O=Grid/CN=A*\" -> user=a\n\
        protocol=krb5 name=/O=Grid/x -> keep\n\
        host=*.org vo=cms -> user=o\n\
        host=a.*.org vo=cms group=/cms -> user=o\n\
        host=10.1.* -> user=ten\n\
        host=10.* -> user=ten\n\
        protocol=pwd -> keep\n\
        -> keep\n\
        name=z -> refuse\n";
    let found = map(rules, false).warnings(|protocol| protocol != "pwd", true);
    let expected = [
        "/map:2: the rule never applies, because the rule in line 1 holds wherever it does; move it before that rule",
        "/map:5: the rule never applies, because the rule in line 4 holds wherever it does; move it before that rule",
        "/map:8: the rule never applies, because no client can log in by pwd here",
        "/map:10: the rule never applies, because the rule in line 9 holds wherever it does; move it before that rule",
    ];
    assert_eq!(found, expected);
    let nameless = map("host=*.org -> keep\nhost=10.* -> keep\n", false).warnings(|_| true, false);
    assert!(nameless.len() == 1 && nameless[0].contains("/map:1:"), "{nameless:?}");
}

#[test]
fn a_damaged_file_leaves_the_earlier_rules_in_force() {
    let path = std::env::temp_dir().join(format!("auth-entity-map-{}", std::process::id()));
    std::fs::write(&path, "name=ann -> user=a\n").unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let map = Arc::new(EntityMap::open(&path, false).unwrap());
    let ann = client("unix", "ann", NONE);
    assert_eq!(at(&map, &ann, "h", ""), "a - line 1");
    std::fs::write(&path, "\nname=ann -> user=b\n").unwrap();
    map.periodic_refresh().read().unwrap();
    assert_eq!(at(&map, &ann, "h", ""), "b - line 2");
    std::fs::write(&path, "name=ann -> user=c\nname\n").unwrap();
    let error = map.refresh().unwrap_err();
    assert!(error.starts_with(&format!("{}:2: ", path.display())), "{error}");
    assert_eq!(at(&map, &ann, "h", ""), "b - line 2");
    assert!(map.state().contains("1 rules of ") && map.state().ends_with(&error), "{}", map.state());
    std::fs::write(&path, "# nobody\n").unwrap();
    map.refresh().unwrap();
    assert!(at(&map, &ann, "h", "") == "ann -" && !map.state().contains("read earlier"));
    std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    assert!(map.refresh().unwrap_err().contains("allow others to map clients to users"));
    std::fs::remove_file(&path).unwrap();
}
