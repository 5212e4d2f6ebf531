//! Fuzz target for authorization databases: a file is refused with positions inside it, or its
//! rules answer questions consistently.

use auth::access::{
    AccessDatabase, AccessOperation, AuthdbEncoding, AuthdbError, AuthdbSource, NetgroupDatabase,
    NetgroupMember, PathMatch, Principal, Privileges,
};
use base::LogicalPath;
use std::io;

/// Netgroups with one member each.
struct OneMember;

impl NetgroupDatabase for OneMember {
    fn members(&self, netgroup: &str) -> io::Result<Vec<NetgroupMember>> {
        Ok(vec![NetgroupMember { user: Some(netgroup.to_owned()), ..NetgroupMember::default() }])
    }
}

const PATHS: [&str; 5] = ["/", "/a", "/a/b", "/home/bob/x", "/store"];

const CLIENTS: [(&str, &str, &str, &str); 4] =
    [("", "", "", ""), ("bob", "g", "cms", "p"), ("eve", "g h", "cms atlas", ""), ("x", "g h", "cms", "p q")];

/// Checks `data` as a rule file.
pub fn target(data: &[u8]) {
    let lines = data.iter().filter(|&&byte| byte == b'\n').count() + 1;
    for encoding in [AuthdbEncoding::default(), AuthdbEncoding { space: Some(b'+'), decode_paths: true }] {
        let source = |matching| AuthdbSource { path: "f".into(), encoding, matching, netgroup_domain: None };
        let load = |matching| AccessDatabase::from_text(data, &source(matching), &OneMember);
        let (component, prefix) = match (load(PathMatch::Component), load(PathMatch::Prefix)) {
            (Ok(component), Ok(prefix)) => (component, prefix),
            (Err(AuthdbError::Invalid { problems, .. }), Err(_)) => {
                assert!(!problems.is_empty());
                for problem in problems {
                    assert!(problem.at.line as usize <= lines && problem.at.column > 0, "{problem}");
                }
                continue;
            }
            (component, prefix) => panic!("{:?} and {:?}", component.err(), prefix.err()),
        };
        for warning in component.warnings() {
            assert!(warning.at.line as usize <= lines, "{warning}");
        }
        for (name, groups, organizations, roles) in CLIENTS {
            let name = (!name.is_empty()).then_some(name);
            let client = Principal {
                protocol: "x",
                name,
                host: "h.a.org",
                groups,
                organizations,
                roles,
                ..Principal::default()
            };
            ask(&component, &prefix, &client);
        }
    }
}

/// Asks both forms of the same rules. The explained pairs must give the answer, and a comparison by
/// component must never grant more.
fn ask(component: &AccessDatabase, prefix: &AccessDatabase, client: &Principal<'_>) {
    for path in PATHS {
        let Ok(path) = LogicalPath::parse(path.as_bytes()) else { continue };
        let explain = |rules: &AccessDatabase| rules.explain(client, AccessOperation::Read, &path);
        let (strict, loose) = (explain(component), explain(prefix));
        for found in [&strict, &loose] {
            let sum = |part: fn(&auth::access::DecidingPair) -> Privileges| {
                found.pairs.iter().fold(Privileges::NONE, |sum, pair| sum.with(part(pair)))
            };
            assert_eq!(found.privileges, sum(|pair| pair.positive).without(sum(|pair| pair.negative)));
            assert!(!found.is_inconsistent || found.privileges.is_empty());
        }
        assert!(loose.privileges.contains(strict.privileges), "{strict:?} {loose:?}");
    }
}
