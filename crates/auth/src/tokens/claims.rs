//! The claims of a token: its validity in time and for this server, and the identity of its bearer.

use super::fault::TokenFault;
use super::json::JsonObject;
use super::scopes::{SCOPES_MAX, Scope};
use serde_json::Value;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Maximum number of groups in one token.
pub(super) const GROUPS_MAX: usize = 256;
/// Maximum length of the name of a group in bytes.
const GROUP_BYTES_MAX: usize = 256;
/// Maximum length of a subject in bytes.
const SUBJECT_BYTES_MAX: usize = 256;
/// Maximum length of the name of a client in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Accepted difference of the clocks of issuer and server, for the begin of the validity only.
const CLOCK_SKEW: Duration = Duration::from_secs(30);

/// The audience of WLCG tokens for all services.
const WLCG_ANY: &str = "https://wlcg.cern.ch/jwt/v1/any";
/// The audience of SciTokens for all services.
const SCITOKENS_ANY: &str = "ANY";

/// The profile of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TokenProfile {
    /// WLCG, version 1.x.
    Wlcg,
    /// SciTokens without a version.
    SciTokens1,
    /// SciTokens, version 2.x.
    SciTokens2,
}

impl TokenProfile {
    fn of(claims: &JsonObject) -> Result<Self, TokenFault> {
        let starts = |value: &Value, beginnings: &[&str]| {
            let text = value.as_str().unwrap_or_default();
            beginnings
                .iter()
                .any(|beginning| text.strip_prefix(beginning).is_some_and(|rest| !rest.is_empty()))
        };
        match (claims.get("wlcg.ver"), claims.get("ver")) {
            (Some(version), _) if starts(version, &["1."]) => Ok(Self::Wlcg),
            (None, Some(version)) if starts(version, &["scitoken:2.", "scitokens:2."]) => {
                Ok(Self::SciTokens2)
            }
            (None, None) => Ok(Self::SciTokens1),
            _ => Err(TokenFault::Version),
        }
    }
}

/// The checked claims of a token.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Claims {
    pub(super) subject: Box<str>,
    pub(super) expires: SystemTime,
    pub(super) scopes: Vec<Scope>,
    object: JsonObject,
}

/// Returns the issuer that a token names.
pub(super) fn issuer(claims: &JsonObject) -> Option<&str> {
    claims.get("iss")?.as_str()
}

/// Returns the expiry that a token claims.
pub(super) fn expiry(claims: &JsonObject) -> Result<Option<SystemTime>, TokenFault> {
    let Some(expires) = claims.get("exp") else { return Ok(None) };
    time(expires).map(Some).ok_or(TokenFault::Malformed("exp is not a time"))
}

impl Claims {
    /// Checks the claims of a token of a known issuer, at this time, for a server with these
    /// audiences.
    pub(super) fn check(
        object: JsonObject,
        audiences: &[String],
        now: SystemTime,
    ) -> Result<Self, TokenFault> {
        let expires = expiry(&object)?.ok_or(TokenFault::NoExpiry)?;
        if expires <= now {
            return Err(TokenFault::Expired);
        }
        if let Some(begin) = object.get("nbf") {
            let begin = time(begin).ok_or(TokenFault::Malformed("nbf is not a time"))?;
            if begin > now + CLOCK_SKEW {
                return Err(TokenFault::NotYetValid);
            }
        }
        let profile = TokenProfile::of(&object)?;
        check_audience(profile, object.get("aud"), audiences)?;
        let subject = object.get("sub").and_then(Value::as_str).filter(|subject| !subject.is_empty());
        let subject = subject.ok_or(TokenFault::NoSubject)?;
        if subject.len() > SUBJECT_BYTES_MAX {
            return Err(TokenFault::Malformed("sub is too long"));
        }
        let scopes = scopes(object.get("scope"), profile)?;
        Ok(Self { subject: subject.into(), expires, scopes, object })
    }

    /// Returns the value of a claim that is a name; `None` for other values.
    pub(super) fn name(&self, claim: &str) -> Option<&str> {
        self.object.get(claim)?.as_str().filter(|name| is_name(name))
    }

    /// Returns the groups in a claim. Entries that are not words are skipped.
    pub(super) fn groups(&self, claim: &str) -> Result<Vec<Box<str>>, TokenFault> {
        let list = self.object.get(claim).and_then(Value::as_array);
        let words = list.into_iter().flatten().filter_map(Value::as_str).filter(|group| is_word(group));
        let groups: Vec<Box<str>> = words.map(Into::into).take(GROUPS_MAX + 1).collect();
        if groups.len() > GROUPS_MAX { Err(TokenFault::TooMany("groups")) } else { Ok(groups) }
    }
}

/// Returns the time of a claim. Times before 1970 are those of 1970.
fn time(value: &Value) -> Option<SystemTime> {
    let seconds = match value.as_u64() {
        Some(seconds) => Duration::from_secs(seconds),
        None => Duration::try_from_secs_f64(value.as_f64()?.max(0.0)).ok()?,
    };
    UNIX_EPOCH.checked_add(seconds)
}

fn check_audience(
    profile: TokenProfile,
    claim: Option<&Value>,
    audiences: &[String],
) -> Result<(), TokenFault> {
    let named: Vec<&str> = match claim {
        None if profile == TokenProfile::SciTokens1 => return Ok(()),
        None => return Err(TokenFault::NoAudience),
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        Some(_) => return Err(TokenFault::Malformed("aud is neither a text nor a list")),
    };
    let is_for_all = |audience: &str| match profile {
        TokenProfile::Wlcg => audience == WLCG_ANY,
        TokenProfile::SciTokens2 => audience == SCITOKENS_ANY,
        TokenProfile::SciTokens1 => false,
    };
    let is_accepted = |audience: &&str| audiences.iter().any(|own| own == audience) || is_for_all(audience);
    if named.iter().any(is_accepted) { Ok(()) } else { Err(TokenFault::Audience) }
}

fn scopes(claim: Option<&Value>, profile: TokenProfile) -> Result<Vec<Scope>, TokenFault> {
    let text = match claim {
        None => "",
        Some(Value::String(text)) => text,
        Some(_) => return Err(TokenFault::Malformed("scope is not a text")),
    };
    let found = text.split(' ').filter_map(|scope| Scope::parse(scope, profile));
    let scopes: Vec<Scope> = found.take(SCOPES_MAX + 1).collect();
    if scopes.len() > SCOPES_MAX { Err(TokenFault::TooMany("scopes")) } else { Ok(scopes) }
}

/// Reports whether a text can be the name of a client: letters, digits and `._@-`, and it does not
/// begin with `-`, so that it is never taken for an option.
pub(super) fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._@-".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.starts_with('-') && text.bytes().all(is_plain)
}

/// Reports whether a text can be a group: no blanks, because lists of groups are separated by them,
/// and no control characters.
fn is_word(text: &str) -> bool {
    (1..=GROUP_BYTES_MAX).contains(&text.len())
        && !text.chars().any(|letter| letter.is_whitespace() || letter.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW: u64 = 1_800_000_000;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    /// Checks the claims of a valid WLCG token with these changes; `null` removes a claim.
    fn check(changes: Value) -> Result<Claims, TokenFault> {
        let mut claims = json!({"sub": "alice", "aud": "https://own", "exp": NOW + 1, "wlcg.ver": "1.0"});
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        let object = JsonObject::parse(claims.to_string().as_bytes()).unwrap();
        Claims::check(object, &["https://own".to_owned()], at(NOW))
    }

    fn fault(changes: Value) -> Option<TokenFault> {
        check(changes).err()
    }

    #[test]
    fn the_time_of_validity_is_checked() {
        assert_eq!(check(json!({})).unwrap().expires, at(NOW + 1));
        assert_eq!(fault(json!({"exp": null})), Some(TokenFault::NoExpiry));
        for expired in [json!(NOW), json!(0), json!(-1), json!(NOW as f64)] {
            assert_eq!(fault(json!({ "exp": expired })), Some(TokenFault::Expired));
        }
        assert_eq!(fault(json!({"exp": NOW as f64 + 0.5})), None);
        for malformed in [json!("1900000000"), json!(1e300), json!(u64::MAX), json!([NOW + 1])] {
            assert_eq!(fault(json!({ "exp": malformed })), Some(TokenFault::Malformed("exp is not a time")));
        }
        assert_eq!(fault(json!({"nbf": NOW + 30})), None);
        assert_eq!(fault(json!({"nbf": NOW + 31})), Some(TokenFault::NotYetValid));
        assert_eq!(fault(json!({"nbf": "0"})), Some(TokenFault::Malformed("nbf is not a time")));
    }

    #[test]
    fn the_audience_depends_on_the_profile() {
        let (wlcg, old, new) =
            (json!({}), json!({"wlcg.ver": null}), json!({"wlcg.ver": null, "ver": "scitoken:2.0"}));
        let ask = |profile: &Value, audience: Value| {
            let mut changes = profile.clone();
            changes["aud"] = audience;
            fault(changes)
        };
        for profile in [&wlcg, &old, &new] {
            assert_eq!(ask(profile, json!(["https://x", "https://own"])), None);
            assert_eq!(ask(profile, json!("https://own/")), Some(TokenFault::Audience));
            assert_eq!(ask(profile, json!([])), Some(TokenFault::Audience));
            assert_eq!(ask(profile, json!([7])), Some(TokenFault::Audience));
            let malformed = TokenFault::Malformed("aud is neither a text nor a list");
            assert_eq!(ask(profile, json!(7)), Some(malformed));
        }
        assert_eq!(ask(&wlcg, json!(null)), Some(TokenFault::NoAudience));
        assert_eq!(ask(&new, json!(null)), Some(TokenFault::NoAudience));
        assert_eq!(ask(&old, json!(null)), None);
        assert_eq!(ask(&wlcg, json!(WLCG_ANY)), None);
        assert_eq!(ask(&new, json!("ANY")), None);
        for (profile, other) in [(&wlcg, "ANY"), (&new, WLCG_ANY), (&old, "ANY"), (&old, WLCG_ANY)] {
            assert_eq!(ask(profile, json!(other)), Some(TokenFault::Audience), "{profile} {other}");
        }
    }

    #[test]
    fn unknown_versions_are_refused() {
        for (wlcg, scitokens) in
            [("2.0", None), ("1", None), ("1.", None), ("2.0", Some("scitoken:2.0")), ("", None)]
        {
            assert_eq!(
                fault(json!({"wlcg.ver": wlcg, "ver": scitokens})),
                Some(TokenFault::Version),
                "{wlcg}"
            );
        }
        for version in [json!("scitoken:1.0"), json!("2.0"), json!(2), json!("scitoken:2.")] {
            assert_eq!(
                fault(json!({"wlcg.ver": null, "ver": version})),
                Some(TokenFault::Version),
                "{version}"
            );
        }
        for version in ["scitoken:2.0", "scitokens:2.1"] {
            assert_eq!(fault(json!({"wlcg.ver": null, "ver": version})), None, "{version}");
        }
        assert_eq!(fault(json!({"wlcg.ver": "1.2", "ver": "x"})), None);
    }

    #[test]
    fn subjects_scopes_and_groups_are_limited() {
        for subject in [json!(null), json!(""), json!(7)] {
            assert_eq!(fault(json!({ "sub": subject })), Some(TokenFault::NoSubject));
        }
        let long = "x".repeat(SUBJECT_BYTES_MAX + 1);
        assert_eq!(fault(json!({"sub": long})), Some(TokenFault::Malformed("sub is too long")));
        let many = |count: usize| "storage.read:/a ".repeat(count) + &"other ".repeat(1000);
        assert_eq!(check(json!({"scope": many(SCOPES_MAX)})).unwrap().scopes.len(), SCOPES_MAX);
        assert_eq!(fault(json!({"scope": many(SCOPES_MAX + 1)})), Some(TokenFault::TooMany("scopes")));
        assert_eq!(
            fault(json!({"scope": ["storage.read:/"]})),
            Some(TokenFault::Malformed("scope is not a text"))
        );
        let groups = |value: Value| check(json!({ "g": value })).unwrap().groups("g");
        assert_eq!(groups(json!(["/cms", "a b", "", 7, "/cms\n", "x"])), Ok(vec!["/cms".into(), "x".into()]));
        assert_eq!(groups(json!("/cms")), Ok(Vec::new()));
        assert_eq!(groups(json!(vec!["g"; GROUPS_MAX])).map(|groups| groups.len()), Ok(GROUPS_MAX));
        assert_eq!(groups(json!(vec!["g"; GROUPS_MAX + 1])), Err(TokenFault::TooMany("groups")));
    }

    #[test]
    fn only_names_become_names() {
        let name = |value: Value| check(json!({ "n": value })).unwrap().name("n").map(str::to_owned);
        for accepted in ["alice", "a.b-c_d@e.org", "7f3a-b"] {
            assert_eq!(name(json!(accepted)), Some(accepted.to_owned()));
        }
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for refused in ["", "-rf", "a b", "a/b", "root\n", "ä", "a:b", &long] {
            assert_eq!(name(json!(refused)), None, "{refused}");
        }
        assert_eq!(name(json!(7)), None);
    }
}
