//! The token of a request: the element `authz` of the cgi of its path, else the credential with which
//! the client logged in.
//!
//! The element is removed from the operation, so that no log, event, redirect, or part of the storage
//! sees it. A request with a token of its own has nothing of the login's token, so that the rights
//! of two tokens never add up.

use auth::Secret;
use auth::access::TokenOrigin;
use auth::tokens::TOKEN_KEY;
use base::{Cgi, Error, ErrorKind};
use vfs::{Caller, Operation, Target};

/// Texts in front of a token, as in an HTTP header.
const PREFIXES: [&[u8]; 2] = [b"Bearer%20", b"Bearer "];
/// The protocol whose credential is a token.
const TOKEN_PROTOCOL: &str = "ztn";

/// The token of a request before its verification.
pub(super) struct UnverifiedToken {
    pub(super) text: Secret,
    pub(super) origin: TokenOrigin,
}

/// Removes the token from an operation and returns it, or else that of the login.
pub(super) fn of(caller: &Caller, operation: &mut Operation) -> Result<Option<UnverifiedToken>, Error> {
    let own = take(operation)?.map(|text| UnverifiedToken { text, origin: TokenOrigin::Request });
    Ok(own.or_else(|| of_login(caller)))
}

/// Removes the token from an operation and returns it. For a list of paths it is that of the first
/// path; for a rename that of either path.
fn take(operation: &mut Operation) -> Result<Option<Secret>, Error> {
    match operation {
        Operation::Open(target, _)
        | Operation::Stat(target)
        | Operation::StatSpace(target)
        | Operation::List(target, _)
        | Operation::MakeDirectory { target, .. }
        | Operation::RemoveDirectory(target)
        | Operation::Remove(target)
        | Operation::ChangeMode { target, .. }
        | Operation::Truncate { target, .. }
        | Operation::Attributes(target, _)
        | Operation::Locate(Some(target), _)
        | Operation::Checksum(target)
        | Operation::CancelChecksum(target)
        | Operation::QueryAttributes(target)
        | Operation::QuerySpace(target)
        | Operation::Cache(target, _)
        | Operation::IssueMacaroon(target, _) => take_from(target),
        Operation::Rename { from, to, .. } => match (take_from(from)?, take_from(to)?) {
            (Some(one), Some(other)) if !one.is_equal(other.expose()) => {
                Err(ambiguous("the two paths of a rename have different tokens"))
            }
            (one, other) => Ok(one.or(other)),
        },
        Operation::StatMany(list)
        | Operation::Prepare(_, list)
        | Operation::QueryPrepare { targets: Some(list), .. } => {
            let token = token(&list.first().cgi)?;
            *list = list.clone().without_element(TOKEN_KEY);
            Ok(token)
        }
        Operation::Tape(request) => {
            let token = token(&request.cgi)?;
            request.cgi = request.cgi.without(TOKEN_KEY);
            Ok(token)
        }
        Operation::ListMore(_)
        | Operation::Locate(None, _)
        | Operation::CancelPrepare { .. }
        | Operation::QueryPrepare { targets: None, .. }
        | Operation::QueryOpaque { .. } => Ok(None),
    }
}

fn take_from(target: &mut Target) -> Result<Option<Secret>, Error> {
    let token = token(&target.cgi)?;
    if !target.cgi.is_empty() {
        target.cgi = target.cgi.without(TOKEN_KEY);
    }
    Ok(token)
}

/// Returns the token of a cgi. An element without a value counts as missing.
fn token(cgi: &Cgi) -> Result<Option<Secret>, Error> {
    let mut values = cgi.pairs().filter(|(key, _)| *key == TOKEN_KEY.as_bytes()).map(|(_, value)| value);
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(ambiguous("the request has several tokens (authz)"));
    }
    let plain = PREFIXES.iter().find_map(|prefix| value.strip_prefix(*prefix)).unwrap_or(value);
    Ok(Some(plain).filter(|plain| !plain.is_empty()).map(Secret::from))
}

fn ambiguous(what: &str) -> Error {
    Error::new(ErrorKind::ArgInvalid, format!("{what}; send one token"))
}

/// Returns the token with which a client logged in, until it expires. A token that the login did not
/// verify names nobody, as if each request had it.
fn of_login(caller: &Caller) -> Option<UnverifiedToken> {
    let entity =
        caller.entity().filter(|entity| &*entity.protocol == TOKEN_PROTOCOL && !entity.has_expired())?;
    let is_verified = entity.verified_bearer().is_some();
    let origin = if is_verified { TokenOrigin::Login } else { TokenOrigin::Request };
    Some(UnverifiedToken { text: entity.credentials.clone()?, origin })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::LogicalPath;
    use vfs::{PrepareRequest, TargetList};

    fn target(text: &str) -> Target {
        Target::parse(text.as_bytes(), "Testing").unwrap()
    }

    fn taken(text: &str) -> (Result<Option<Vec<u8>>, ErrorKind>, String) {
        let mut operation = Operation::Stat(target(text));
        let token = take(&mut operation).map_err(|error| error.kind);
        let Operation::Stat(left) = operation else { panic!("another operation") };
        let token = token.map(|token| token.map(|token| token.expose().to_vec()));
        (token, String::from_utf8_lossy(left.cgi.as_bytes()).into_owned())
    }

    #[test]
    fn the_token_is_removed_from_the_cgi() {
        let token = || Ok(Some(b"a.b.c".to_vec()));
        assert_eq!(taken("/f?authz=a.b.c"), (token(), String::new()));
        assert_eq!(taken("/f?x=1&authz=Bearer%20a.b.c&y=2?z"), (token(), "x=1&y=2?z".to_owned()));
        assert_eq!(taken("/f?authz=Bearer a.b.c&&x"), (token(), "x".to_owned()));
        assert_eq!(taken("/f?x=authz&authzx=a"), (Ok(None), "x=authz&authzx=a".to_owned()));
        for empty in ["/f?authz=", "/f?authz", "/f?authz=Bearer%20", "/f"] {
            assert_eq!(taken(empty), (Ok(None), String::new()), "{empty}");
        }
        assert_eq!(taken("/f?authz=a&authz=b").0, Err(ErrorKind::ArgInvalid));
        assert_eq!(taken("/f?authz=a&authz=a").0, Err(ErrorKind::ArgInvalid));
    }

    #[test]
    fn a_rename_has_one_token() {
        let rename = |from: &str, to: &str| {
            let mut operation = Operation::rename(target(from), target(to));
            let token = take(&mut operation).map_err(|error| error.kind)?;
            let Operation::Rename { from, to, .. } = operation else { panic!("another operation") };
            assert!(from.cgi.is_empty() && to.cgi.is_empty());
            Ok(token.map(|token| token.expose().to_vec()))
        };
        assert_eq!(rename("/a?authz=t", "/b"), Ok(Some(b"t".to_vec())));
        assert_eq!(rename("/a", "/b?authz=t"), Ok(Some(b"t".to_vec())));
        assert_eq!(rename("/a?authz=t", "/b?authz=Bearer%20t"), Ok(Some(b"t".to_vec())));
        assert_eq!(rename("/a?authz=t", "/b?authz=u"), Err(ErrorKind::ArgInvalid));
    }

    #[test]
    fn no_path_of_a_list_keeps_a_token() {
        let list = TargetList::parse(b"/a?authz=t&x=1\n/b?authz=u\n/c?y=1&authz=t&authz=v\n", "Testing");
        let mut operation = Operation::Prepare(PrepareRequest::default(), list.unwrap().unwrap());
        let token = take(&mut operation).unwrap().unwrap();
        assert_eq!(token.expose(), b"t");
        let Operation::Prepare(_, list) = operation else { panic!("another operation") };
        let left: Vec<String> = list
            .cursor()
            .map(|target| target.unwrap())
            .map(|Target { path, cgi }| {
                format!("{}?{}", path.text(), String::from_utf8_lossy(cgi.as_bytes()))
            })
            .collect();
        assert_eq!(left, ["/a?x=1", "/b?", "/c?y=1"]);
        assert_eq!(list.first().path, LogicalPath::parse(b"/a").unwrap());
    }
}
