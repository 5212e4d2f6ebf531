//! Scopes of tokens, and the operations that they allow.

use super::claims::TokenProfile;
use crate::access::AccessOperation;
use base::LogicalPath;

/// Maximum number of scopes for storage in one token.
pub const SCOPES_MAX: usize = 256;
/// Maximum number of grants of one token: scopes, for each base path and restricted path.
pub(super) const GRANTS_MAX: usize = 1024;

/// A set of operations.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct OperationSet(u32);

impl OperationSet {
    pub(crate) const fn of(mut operations: &[AccessOperation]) -> Self {
        let mut bits = 0;
        while let [first, rest @ ..] = operations {
            bits |= Self::bit(*first);
            operations = rest;
        }
        Self(bits)
    }

    const fn bit(operation: AccessOperation) -> u32 {
        1 << operation as u32
    }

    /// Returns the operations in either set.
    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the operations in both sets.
    pub(crate) const fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Reports whether a right to these operations at and below `root` allows one on a path. The
    /// directories above `root` may be looked at and created, because clients create missing parents.
    pub(crate) fn allows_at(
        self,
        root: &LogicalPath,
        operation: AccessOperation,
        path: &LogicalPath,
    ) -> bool {
        let for_parents = matches!(operation, Op::Stat | Op::MakeDirectory);
        self.contains(operation) && (path.is_within(root) || for_parents && root.is_within(path))
    }

    /// Reports whether an operation is in the set. Every set that is not empty contains
    /// [`AccessOperation::Any`].
    #[must_use]
    pub const fn contains(self, operation: AccessOperation) -> bool {
        match operation {
            AccessOperation::Any => self.0 != 0,
            _ => self.0 & Self::bit(operation) != 0,
        }
    }
}

use AccessOperation as Op;

const READ: OperationSet = OperationSet::of(&[Op::Read, Op::ReadDirectory, Op::Stat]);
const CREATE: OperationSet =
    OperationSet::of(&[Op::ExclusiveCreate, Op::MakeDirectory, Op::Rename, Op::ExclusiveInsert, Op::Stat]);
const MODIFY: OperationSet = OperationSet::of(&[
    Op::Create,
    Op::MakeDirectory,
    Op::Rename,
    Op::Insert,
    Op::Update,
    Op::ChangeMode,
    Op::Stat,
    Op::Delete,
]);
const STAGE: OperationSet = OperationSet::of(&[Op::Stage, Op::Poll]);
const POLL: OperationSet = OperationSet::of(&[Op::Poll]);

/// A scope of a token with its path in the name space of its issuer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Scope {
    /// The scope as in the token.
    pub(super) text: Box<str>,
    pub(super) operations: OperationSet,
    pub(super) path: LogicalPath,
}

impl Scope {
    /// Parses a scope. `None` for scopes of other services, and for paths that are not absolute or
    /// contain `..`.
    pub(super) fn parse(text: &str, profile: TokenProfile) -> Option<Self> {
        let (name, path) = text.split_once(':').unwrap_or((text, ""));
        let operations = match (profile, name) {
            (TokenProfile::Wlcg, "storage.read")
            | (TokenProfile::SciTokens1 | TokenProfile::SciTokens2, "read") => READ,
            (TokenProfile::Wlcg, "storage.create") => CREATE,
            (TokenProfile::Wlcg, "storage.modify")
            | (TokenProfile::SciTokens1 | TokenProfile::SciTokens2, "write") => MODIFY,
            (TokenProfile::Wlcg, "storage.stage") => STAGE,
            (TokenProfile::Wlcg, "storage.poll") => POLL,
            _ => return None,
        };
        let path = if path.is_empty() { "/" } else { path };
        let path = LogicalPath::parse(path.as_bytes()).ok()?.without_slash();
        Some(Self { text: text.into(), operations, path })
    }
}

/// The rights of a scope in the name space of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScopeGrant {
    /// The scope as in the token.
    pub scope: Box<str>,
    /// The operations.
    pub operations: OperationSet,
    /// The path; the grant covers it and everything below.
    pub path: LogicalPath,
}

impl ScopeGrant {
    /// Reports whether the grant allows an operation on a path.
    #[must_use]
    pub fn allows(&self, operation: AccessOperation, path: &LogicalPath) -> bool {
        self.operations.allows_at(&self.path, operation, path)
    }
}

/// Returns the paths that remain of a scope path after the restriction to some paths. No
/// restrictions leave it as it is.
pub(super) fn restricted(path: &LogicalPath, restrictions: &[LogicalPath]) -> Vec<LogicalPath> {
    if restrictions.is_empty() {
        return vec![path.clone()];
    }
    let cut = |restriction: &LogicalPath| match (path.is_within(restriction), restriction.is_within(path)) {
        (true, _) => Some(path.clone()),
        (false, true) => Some(restriction.clone()),
        (false, false) => None,
    };
    let mut paths: Vec<LogicalPath> = restrictions.iter().filter_map(cut).collect();
    paths.dedup();
    paths
}

/// Returns a path of an issuer in the name space of the server; `None` if it is too long.
pub(super) fn below(base: &LogicalPath, path: &LogicalPath) -> Option<LogicalPath> {
    let joined = [base.as_bytes(), path.as_bytes()].concat();
    LogicalPath::parse(&joined).ok().map(|joined| joined.without_slash())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> LogicalPath {
        LogicalPath::parse(text.as_bytes()).unwrap()
    }

    fn grant(scope: &str, profile: TokenProfile) -> ScopeGrant {
        let Scope { text, operations, path } = Scope::parse(scope, profile).unwrap();
        ScopeGrant { scope: text, operations, path }
    }

    #[test]
    fn scopes_allow_the_operations_of_the_profile() {
        let cases = [
            (TokenProfile::Wlcg, "storage.read:/", "any read readdir stat"),
            (TokenProfile::SciTokens2, "read:/", "any read readdir stat"),
            (TokenProfile::SciTokens1, "read:/", "any read readdir stat"),
            (TokenProfile::Wlcg, "storage.create:/", "any mkdir rename stat excl_create excl_insert"),
            (
                TokenProfile::Wlcg,
                "storage.modify:/",
                "any chmod create delete insert mkdir rename stat update",
            ),
            (TokenProfile::SciTokens2, "write:/", "any chmod create delete insert mkdir rename stat update"),
            (TokenProfile::Wlcg, "storage.stage:/", "any stage poll"),
            (TokenProfile::Wlcg, "storage.poll:/", "any poll"),
        ];
        for (profile, scope, expected) in cases {
            let grant = grant(scope, profile);
            let allowed = AccessOperation::ALL.into_iter().filter(|op| grant.allows(*op, &path("/x")));
            let allowed: Vec<&str> = allowed.map(AccessOperation::name).collect();
            assert_eq!(allowed.join(" "), expected, "{scope}");
        }
        for (profile, scope) in [
            (TokenProfile::Wlcg, "read:/"),
            (TokenProfile::Wlcg, "storage.write:/"),
            (TokenProfile::Wlcg, "compute.read"),
            (TokenProfile::Wlcg, "storage.read:relative"),
            (TokenProfile::Wlcg, "storage.read:/a/../b"),
            (TokenProfile::Wlcg, "storage.read/:x"),
            (TokenProfile::SciTokens2, "storage.read:/"),
            (TokenProfile::SciTokens2, "Read:/"),
            (TokenProfile::SciTokens2, "openid"),
        ] {
            assert_eq!(Scope::parse(scope, profile), None, "{scope}");
        }
    }

    #[test]
    fn a_scope_covers_whole_components() {
        let sub = grant("storage.read:/sub//x/", TokenProfile::Wlcg);
        for covered in ["/sub/x", "/sub/x/", "/sub/x/y"] {
            assert!(sub.allows(Op::Read, &path(covered)), "{covered}");
        }
        for other in ["/sub/xy", "/sub", "/", "/Sub/x"] {
            assert!(!sub.allows(Op::Read, &path(other)), "{other}");
        }
        let all = grant("storage.read", TokenProfile::Wlcg);
        assert!(all.allows(Op::Read, &path("/")) && all.allows(Op::Read, &path("/a/b")));
    }

    #[test]
    fn parents_may_be_looked_at_and_created() {
        let modify = grant("storage.modify:/a/b/c", TokenProfile::Wlcg);
        for parent in ["/a/b", "/a/", "/"] {
            assert!(
                modify.allows(Op::Stat, &path(parent)) && modify.allows(Op::MakeDirectory, &path(parent))
            );
            assert!(
                !modify.allows(Op::Delete, &path(parent)) && !modify.allows(Op::ReadDirectory, &path(parent))
            );
        }
        assert!(!modify.allows(Op::Stat, &path("/a/x")) && !modify.allows(Op::MakeDirectory, &path("/a/bc")));
        let read = grant("storage.read:/a/b", TokenProfile::Wlcg);
        assert!(read.allows(Op::Stat, &path("/a")) && !read.allows(Op::MakeDirectory, &path("/a")));
    }

    #[test]
    fn restrictions_only_take_away() {
        let cut = |scope: &str, restrictions: &[&str]| {
            let restrictions: Vec<LogicalPath> = restrictions.iter().map(|text| path(text)).collect();
            let cut = restricted(&path(scope), &restrictions);
            cut.iter().map(|path| path.text().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(cut("/a", &[]), ["/a"]);
        assert_eq!(cut("/", &["/a", "/b"]), ["/a", "/b"]);
        assert_eq!(cut("/a/x", &["/a", "/b"]), ["/a/x"]);
        assert_eq!(cut("/a", &["/a"]), ["/a"]);
        assert_eq!(cut("/c", &["/a", "/b"]), [""; 0]);
        assert_eq!(cut("/ab", &["/a"]), [""; 0]);
        assert_eq!(cut("/a", &["/ab"]), [""; 0]);
        let joined =
            |base, below_it| below(&path(base), &path(below_it)).map(|path| path.text().into_owned());
        assert_eq!(joined("/base/", "/"), Some("/base".to_owned()));
        assert_eq!(joined("/", "/x"), Some("/x".to_owned()));
        assert_eq!(joined("/a", &format!("/{}", "x".repeat(4093))), None);
    }
}
