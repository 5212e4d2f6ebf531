//! [`AccessDatabase`]: an authorization database file, parsed and compiled.

use super::netgroups::{NetgroupDatabase, NetgroupTable};
use super::parse;
use super::principal::Principal;
use super::privileges::{AccessOperation, Privileges};
use super::records::{AUTHDB_BYTES_MAX, AuthdbEncoding, AuthdbProblem};
use super::rules::{AccessRules, ApplyingRecords, DecidingPair, PathMatch};
use crate::trusted_file::{
    ANY_MODE, FileStamp, FileTrust, NO_SHARED_WRITE, TrustedFileError, TrustedOwner, read_trusted,
};
use base::LogicalPath;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The form of a rule file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuthdbSource {
    /// The file.
    pub path: PathBuf,
    /// Spelling of identifiers and paths.
    pub encoding: AuthdbEncoding,
    /// Comparison of rule paths with request paths.
    pub matching: PathMatch,
    /// Domain of netgroups; `None` for all.
    pub netgroup_domain: Option<String>,
}

/// The users that may have written a rule file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuthdbCheck {
    /// Root and the user of this process. Servers need this, because the writer of the rules can
    /// grant itself all privileges.
    ForServer,
    /// The owner, who may be the user of a server that runs later.
    ForOwner,
    /// Anyone: for tests of rules that do not protect anything.
    None,
}

impl AuthdbCheck {
    pub(crate) fn owner(self) -> TrustedOwner {
        if self == Self::ForServer { TrustedOwner::Own } else { TrustedOwner::Any }
    }
}

/// The reason why a rule file is not used.
#[derive(Debug)]
pub enum AuthdbError {
    /// The file cannot be read, or is too large.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// Other users could have written the file.
    Unsafe {
        /// The file.
        path: PathBuf,
        /// The property that is not safe.
        reason: String,
        /// The action that makes it safe.
        remedy: String,
    },
    /// The file has errors.
    Invalid {
        /// The file.
        path: PathBuf,
        /// Its errors, at least one.
        problems: Vec<AuthdbProblem>,
    },
    /// A netgroup cannot be looked up.
    Netgroups {
        /// The file.
        path: PathBuf,
        /// The error of the database.
        error: io::Error,
    },
}

impl fmt::Display for AuthdbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, error } => {
                write!(f, "cannot read {}: {}", path.display(), base::errno_text(error))?;
                match error.kind() {
                    io::ErrorKind::NotFound => f.write_str("; create the file, or name another one"),
                    _ => Ok(()),
                }
            }
            Self::Unsafe { path, reason, remedy } => {
                write!(f, "{} is not used: {reason}; {remedy}", path.display())
            }
            Self::Netgroups { path, error } => {
                let (path, error) = (path.display(), base::errno_text(error));
                write!(f, "{path}: cannot look up the netgroups of the rules: {error}")
            }
            Self::Invalid { path, problems } => {
                for (index, problem) in problems.iter().enumerate() {
                    let separator = if index == 0 { "" } else { "\n" };
                    write!(f, "{separator}{}:{problem}", path.display())?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for AuthdbError {}

/// An authorization database, compiled.
#[derive(Debug)]
pub struct AccessDatabase {
    pub(super) stamp: Option<FileStamp>,
    path: PathBuf,
    rules: AccessRules,
    netgroups: NetgroupTable,
    records: usize,
    warnings: Vec<AuthdbProblem>,
}

/// The records that apply to one client, for several decisions.
#[derive(Clone, Debug, Default)]
pub struct ClientRecords(ApplyingRecords);

/// A decision and its reasons.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessExplanation {
    /// Privileges of the client on the path.
    pub privileges: Privileges,
    /// The operation is allowed.
    pub is_allowed: bool,
    /// The attributes of the client have different lengths, so that it has no privilege at all.
    pub is_inconsistent: bool,
    /// The pairs that contributed, in file order.
    pub pairs: Vec<DecidingPair>,
}

impl AccessDatabase {
    /// Loads a file whose writers are checked. Blocks.
    ///
    /// # Errors
    /// The file or a netgroup cannot be read, the file fails the check, or it has errors.
    pub fn load(
        source: &AuthdbSource,
        check: AuthdbCheck,
        netgroups: &dyn NetgroupDatabase,
    ) -> Result<Self, AuthdbError> {
        let (text, stamp) = read(&source.path, check)?;
        Ok(Self { stamp: Some(stamp), ..Self::from_text(&text, source, netgroups)? })
    }

    /// Compiles the text of a file. `source` names the file in messages.
    ///
    /// # Errors
    /// The text has errors, or a netgroup cannot be looked up.
    pub fn from_text(
        text: &[u8],
        source: &AuthdbSource,
        netgroups: &dyn NetgroupDatabase,
    ) -> Result<Self, AuthdbError> {
        let mut parsed = parse::parse(text, source.encoding)
            .map_err(|problems| AuthdbError::Invalid { path: source.path.clone(), problems })?;
        let (records, warnings) = (parsed.records, std::mem::take(&mut parsed.warnings));
        let rules = AccessRules::compile(parsed, source.matching);
        let netgroups = NetgroupTable::load(netgroups, rules.netgroups(), source.netgroup_domain.as_deref())
            .map_err(|error| AuthdbError::Netgroups { path: source.path.clone(), error })?;
        Ok(Self { stamp: None, path: source.path.clone(), rules, netgroups, records, warnings })
    }

    /// Returns the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of records of all types.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records
    }

    /// Reports whether the file has no records, so that nothing is allowed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Returns the records and paths that have no effect.
    #[must_use]
    pub fn warnings(&self) -> &[AuthdbProblem] {
        &self.warnings
    }

    /// Reports whether any rule depends on the name of a host.
    #[must_use]
    pub fn needs_hosts(&self) -> bool {
        self.rules.needs_hosts()
    }

    /// Reports whether any rule that depends on the name of a host takes privileges away.
    pub(super) fn denies_by_host(&self) -> bool {
        self.rules.denies_by_host()
    }

    /// Reports whether the rules name netgroups, which change independently of the file.
    pub(super) fn uses_netgroups(&self) -> bool {
        self.rules.netgroups().next().is_some()
    }

    /// Returns the records that apply to a client. Returns `None` if the attributes of the client
    /// are inconsistent; then it has no privilege.
    #[must_use]
    pub fn records_of(&self, principal: &Principal<'_>) -> Option<ClientRecords> {
        let is_member = |netgroup: &str| self.netgroups.contains(netgroup, principal.name, principal.host);
        self.rules.applying(principal, is_member).map(ClientRecords)
    }

    /// Returns the records that apply to a client wherever it is: none that names hosts, and none for
    /// everybody. Returns `None` if the attributes of the client are inconsistent.
    #[must_use]
    pub fn records_anywhere(&self, principal: &Principal<'_>) -> Option<ClientRecords> {
        self.rules.applying_anywhere(principal).map(ClientRecords)
    }

    /// Returns the privileges of a client on a path. `name` is that of the principal of `client`.
    #[must_use]
    pub fn privileges(&self, client: &ClientRecords, name: Option<&str>, path: &LogicalPath) -> Privileges {
        self.rules.privileges(&client.0, name, path.as_bytes())
    }

    /// Reports whether a rule grants a client any privilege.
    #[must_use]
    pub fn grants_any(&self, client: &ClientRecords) -> bool {
        self.rules.grants_any(&client.0)
    }

    /// Reports whether a record of a client has a pair for a path below `directory`, so that its
    /// privileges may differ there. `name` is that of the principal of `client`.
    #[must_use]
    pub fn has_pair_below(
        &self,
        client: &ClientRecords,
        name: Option<&str>,
        directory: &LogicalPath,
    ) -> bool {
        self.rules.has_pair_below(&client.0, name, directory.as_bytes())
    }

    /// Returns the privileges that a client has on `directory` and on every path below; none if there are too
    /// many rules to tell. `name` is that of the principal of `client`.
    #[must_use]
    pub fn privileges_throughout(
        &self,
        client: &ClientRecords,
        name: Option<&str>,
        directory: &LogicalPath,
    ) -> Privileges {
        self.rules.privileges_throughout(&client.0, name, directory.as_bytes())
    }

    /// Decides whether a client may perform an operation, with the reasons.
    #[must_use]
    pub fn explain(
        &self,
        principal: &Principal<'_>,
        operation: AccessOperation,
        path: &LogicalPath,
    ) -> AccessExplanation {
        self.explain_with(self.records_of(principal).as_ref(), principal.name, operation, path)
    }

    /// Decides with the result of [`records_of`](Self::records_of) for a client of this name.
    pub(super) fn explain_with(
        &self,
        client: Option<&ClientRecords>,
        name: Option<&str>,
        operation: AccessOperation,
        path: &LogicalPath,
    ) -> AccessExplanation {
        let (privileges, pairs) = match client {
            Some(client) => {
                (self.privileges(client, name, path), self.rules.explain(&client.0, name, path.as_bytes()))
            }
            None => (Privileges::NONE, Vec::new()),
        };
        AccessExplanation {
            privileges,
            is_allowed: operation.is_granted_by(privileges),
            is_inconsistent: client.is_none(),
            pairs,
        }
    }
}

/// Reads the file.
fn read(path: &Path, check: AuthdbCheck) -> Result<(Vec<u8>, FileStamp), AuthdbError> {
    let trust = FileTrust {
        owner: check.owner(),
        modes: if check == AuthdbCheck::None { ANY_MODE } else { NO_SHARED_WRITE },
        danger: "change the rules",
        bytes_max: AUTHDB_BYTES_MAX,
    };
    match read_trusted(path, &trust) {
        Ok((mut text, stamp)) => Ok((std::mem::take(&mut *text), stamp)),
        Err(TrustedFileError::Unreadable(error)) => {
            Err(AuthdbError::Unreadable { path: path.to_owned(), error })
        }
        Err(TrustedFileError::Untrusted { reason, remedy }) => {
            Err(AuthdbError::Unsafe { path: path.to_owned(), reason, remedy })
        }
    }
}
