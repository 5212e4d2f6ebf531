//! [`MacaroonRequest`]: new macaroons.

use super::activity::Activity;
use super::caveats::before;
use super::packets::{MACAROON_BYTES_MAX, Macaroon};
use super::secret::{MacaroonSecret, code};
use crate::secret::Secret;
use base::{LogicalPath, Rng};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The last time that a caveat can express, in seconds since 1970: the end of the year 9999.
const EXPIRY_SECONDS_MAX: u64 = 253_402_300_799;

/// The form of a validity, for messages.
pub const VALIDITY_FORM: &str = "PT, then numbers with H, M and S, such as PT1H30M";

/// The contents of a new macaroon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MacaroonRequest {
    /// The name of the client, for logs.
    pub name: Option<String>,
    /// The allowed activities.
    pub activities: Vec<Activity>,
    /// The path; the macaroon is for it and everything below.
    pub path: LogicalPath,
    /// The time of expiry.
    pub expires: SystemTime,
}

/// A new macaroon with its identifier.
#[derive(Debug)]
pub struct NamedMacaroon {
    /// The identifier, for logs. It is not secret.
    pub identifier: String,
    /// The macaroon.
    pub text: Secret,
}

/// The reason why a macaroon cannot be issued.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MacaroonRequestError {
    /// The site name is missing or not text.
    #[error("the site name is empty or contains control characters")]
    Site,
    /// The name is not text.
    #[error("the name is empty or contains control characters")]
    Name,
    /// Nothing is allowed.
    #[error("no activity is named")]
    NoActivity,
    /// The expiry has no text.
    #[error("the validity is too long; a macaroon expires before the year 10000")]
    Expiry,
    /// No server would accept it.
    #[error("the macaroon would be longer than {MACAROON_BYTES_MAX} bytes")]
    TooLong,
}

impl MacaroonRequest {
    /// Returns a new macaroon with a random identifier, as text.
    ///
    /// # Errors
    /// [`MacaroonRequestError`].
    pub fn issue(
        &self,
        secret: &MacaroonSecret,
        site: &str,
        rng: &mut dyn Rng,
    ) -> Result<String, MacaroonRequestError> {
        self.issue_as(random_uuid(rng), secret, site)
    }

    /// Returns a new macaroon with this identifier, as text.
    pub(super) fn issue_as(
        &self,
        identifier: String,
        secret: &MacaroonSecret,
        site: &str,
    ) -> Result<String, MacaroonRequestError> {
        let is_text = |text: &str| !text.is_empty() && !text.chars().any(char::is_control);
        if !is_text(site) {
            return Err(MacaroonRequestError::Site);
        }
        if self.name.as_deref().is_some_and(|name| !is_text(name)) {
            return Err(MacaroonRequestError::Name);
        }
        let names = Activity::list(&self.activities);
        if names.is_empty() {
            return Err(MacaroonRequestError::NoActivity);
        }
        if self.expires > UNIX_EPOCH + Duration::from_secs(EXPIRY_SECONDS_MAX) {
            return Err(MacaroonRequestError::Expiry);
        }
        let name = self.name.as_ref().map(|name| format!("name:{name}").into_bytes());
        let path = [b"path:", self.path.as_bytes()].concat();
        let rest = [format!("activity:{names}").into_bytes(), path, before(self.expires).into_bytes()];
        let caveats: Vec<Vec<u8>> = name.into_iter().chain(rest).collect();
        let identifier = identifier.into_bytes();
        let signature = *secret.signature(&identifier, &caveats);
        let location = site.as_bytes().to_vec();
        let macaroon = Macaroon { location, identifier, caveats, has_third_party: false, signature };
        let text = macaroon.encode().filter(|text| text.len() <= MACAROON_BYTES_MAX);
        text.ok_or(MacaroonRequestError::TooLong)
    }
}

/// Returns a macaroon with another caveat, as everybody who has it can append one. `None` if the text is
/// not a macaroon, or the caveat is too long.
#[must_use]
pub fn with_caveat(text: &[u8], caveat: &[u8]) -> Option<String> {
    let mut macaroon = Macaroon::decode(text).ok()?;
    macaroon.signature = *code(&macaroon.signature, caveat);
    macaroon.caveats.push(caveat.to_vec());
    macaroon.encode().filter(|text| text.len() <= MACAROON_BYTES_MAX)
}

/// Returns the text of a random UUID (version 4).
pub(super) fn random_uuid(rng: &mut dyn Rng) -> String {
    let mut bytes = [0; 16];
    rng.fill(&mut bytes);
    let bits = u128::from_be_bytes(bytes);
    let version = bits & !(0xf << 76 | 0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let digits = format!("{version:032x}");
    let parts = [(0, 8), (8, 12), (12, 16), (16, 20), (20, 32)];
    let parts = parts.map(|(from, to)| digits.get(from..to).unwrap_or_default());
    parts.join("-")
}

/// Parses a validity: `PT1H30M`. `None` for other texts and for no time at all.
#[must_use]
pub fn validity(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix("PT")?;
    let mut seconds: u64 = 0;
    for (unit, length) in [('H', 3600), ('M', 60), ('S', 1)] {
        let Some((number, behind)) = rest.split_once(unit) else { continue };
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        seconds = seconds.checked_add(number.parse::<u64>().ok()?.checked_mul(length)?)?;
        rest = behind;
    }
    (rest.is_empty() && seconds > 0).then(|| Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counting(u8);
    impl Rng for Counting {
        fn fill(&mut self, into: &mut [u8]) {
            into.iter_mut().for_each(|byte| {
                *byte = self.0;
                self.0 = self.0.wrapping_add(0x11);
            });
        }
    }

    #[test]
    fn identifiers_are_random_uuids() {
        assert_eq!(random_uuid(&mut Counting(0)), "00112233-4455-4677-8899-aabbccddeeff");
        assert_eq!(random_uuid(&mut Counting(0xff)), "ff102132-4354-4576-8798-a9bacbdcedfe");
    }

    #[test]
    fn a_request_that_no_server_would_accept_is_refused() {
        let request = MacaroonRequest {
            name: Some("alice".to_owned()),
            activities: vec![Activity::Download],
            path: LogicalPath::parse(b"/a").unwrap(),
            expires: SystemTime::now(),
        };
        let secret = MacaroonSecret::new(&[7; 32]);
        let issue = |request: MacaroonRequest, site| request.issue(&secret, site, &mut Counting(0)).err();
        assert_eq!(issue(request.clone(), "S"), None);
        assert_eq!(issue(request.clone(), ""), Some(MacaroonRequestError::Site));
        let named = |name: &str| MacaroonRequest { name: Some(name.to_owned()), ..request.clone() };
        assert_eq!(issue(named("a\nb"), "S"), Some(MacaroonRequestError::Name));
        assert_eq!(issue(named(""), "S"), Some(MacaroonRequestError::Name));
        assert_eq!(issue(named(&"x".repeat(9000)), "S"), Some(MacaroonRequestError::TooLong));
        assert_eq!(issue(named(&"x".repeat(70_000)), "S"), Some(MacaroonRequestError::TooLong));
        let until = |expires| MacaroonRequest { expires, ..request.clone() };
        let last = UNIX_EPOCH + Duration::from_secs(EXPIRY_SECONDS_MAX);
        assert_eq!(issue(until(last), "S"), None);
        for late in [last + Duration::from_secs(1), last + Duration::from_secs(1 << 40)] {
            assert_eq!(issue(until(late), "S"), Some(MacaroonRequestError::Expiry));
        }
        let nothing = MacaroonRequest { activities: Vec::new(), ..request };
        assert_eq!(issue(nothing, "S"), Some(MacaroonRequestError::NoActivity));
    }
}
