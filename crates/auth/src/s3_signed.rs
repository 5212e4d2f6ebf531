//! Verification of requests that a server of S3 receives (AWS Signature Version 4): by the header `Authorization`,
//! by the URL (presigned), and of the chunks of a body.
//!
//! The canonical form is computed from the decoded path and query, so that it does not matter which of the
//! possible escapes a client or a proxy has used. All headers `x-amz-…` must be covered, because each can change
//! the meaning of a request.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::entity::Entity;
use crate::s3::{
    ALGORITHM, DATE_HEADER, EMPTY_BODY_HASH, HASH_HEADER, S3SigningKey, SCOPE_END, SERVICE, TOKEN_HEADER,
    body_hash, canonical_text, text_to_sign,
};
use crate::s3_users::{S3Users, UserKey};
use crate::secret::Secret;

/// Maximum difference between the time of a request and that of this server.
const SKEW_MAX: Duration = Duration::from_secs(15 * 60);
/// Maximum validity of a presigned URL: 7 days.
const EXPIRY_SECONDS_MAX: u64 = 7 * 24 * 3600;
/// The hash of a body that is not covered.
const UNSIGNED_PAYLOAD: &str = "UNSIGNED-PAYLOAD";
/// Maximum number of covered headers.
const HEADERS_MAX: usize = 100;
/// The begin of the names of headers that must be covered.
const AMAZON_PREFIX: &str = "x-amz-";

const HOST: &str = "host";
const SIGNATURE_KEY: &[u8] = b"X-Amz-Signature";
const ALGORITHM_KEY: &[u8] = b"X-Amz-Algorithm";

/// A request as it was received.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedRequest<'a> {
    /// The method.
    pub method: &'a str,
    /// The path, percent-encoded.
    pub path: &'a str,
    /// The query, percent-encoded.
    pub query: &'a str,
    /// The headers, with names in lower case.
    pub headers: &'a [(&'a str, &'a [u8])],
}

/// The reason why a request is not that of a user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum S3SignatureFault {
    /// The header `Authorization` is malformed.
    MalformedHeader(&'static str),
    /// The parameters of a presigned URL are malformed.
    MalformedQuery(&'static str),
    /// Another method of authentication.
    Unsupported(&'static str),
    /// Nothing identifies the client, or the request is not allowed in this form.
    Denied(&'static str),
    /// No user has a key with this id.
    UnknownKey,
    /// The signature is that of another request or secret.
    Mismatch,
    /// The time differs too much from that of this server.
    Skewed,
    /// A token of temporary keys, which this server does not issue.
    Token,
}

/// A request whose signature is that of a user.
pub struct VerifiedRequest {
    key: Arc<UserKey>,
    /// What the request says about its body: its SHA-256 in hexadecimal, or the name of a form of signing.
    pub payload: String,
    /// The signature came with the URL.
    pub is_presigned: bool,
    chunks: ChunkSignatures,
}

impl std::fmt::Debug for VerifiedRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerifiedRequest").field("key_id", &self.key.id).finish_non_exhaustive()
    }
}

impl VerifiedRequest {
    /// Returns the user.
    #[must_use]
    pub fn user(&self) -> S3User {
        S3User(self.key.clone())
    }

    /// Returns the verifier of a body whose chunks are signed.
    #[must_use]
    pub fn into_chunks(self) -> ChunkSignatures {
        self.chunks
    }
}

/// A user who has signed a request.
#[derive(Clone, Debug)]
pub struct S3User(Arc<UserKey>);

impl S3User {
    /// Returns the identity of the user, at a host.
    #[must_use]
    pub fn entity(&self, host: &str) -> Entity {
        self.0.entity(host)
    }

    /// Reports whether both have signed with the same key, which was not replaced meanwhile.
    #[must_use]
    pub fn has_key_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Verifies the signatures of the chunks of a body, each of which covers the one before.
pub struct ChunkSignatures {
    key: S3SigningKey,
    time: String,
    scope: String,
    previous: String,
}

impl ChunkSignatures {
    /// Verifies the signature of the next chunk by its SHA-256 in hexadecimal.
    pub fn verify_chunk(&mut self, hash: &str, signature: &str) -> bool {
        let Self { time, scope, previous, .. } = self;
        let text = format!("{ALGORITHM}-PAYLOAD\n{time}\n{scope}\n{previous}\n{EMPTY_BODY_HASH}\n{hash}");
        self.verify(&text, signature)
    }

    /// Verifies the signature of the trailers by their canonical form: `name:value` and a line end for each.
    pub fn verify_trailers(&mut self, canonical: &str, signature: &str) -> bool {
        let hash = body_hash(canonical.as_bytes());
        let Self { time, scope, previous, .. } = self;
        let text = format!("{ALGORITHM}-TRAILER\n{time}\n{scope}\n{previous}\n{hash}");
        self.verify(&text, signature)
    }

    fn verify(&mut self, text: &str, signature: &str) -> bool {
        self.previous = self.key.sign(text);
        Secret::from(self.previous.as_bytes()).is_equal(signature.as_bytes())
    }
}

/// The parameters of a signature.
struct SignatureParameters {
    key_id: String,
    day: String,
    region: String,
    signed_headers: Vec<String>,
    signature: String,
    time: String,
    /// Seconds for which a presigned URL is valid.
    expires: Option<u64>,
}

/// A decoded element of the query.
type QueryElement = (Vec<u8>, Vec<u8>);

impl ReceivedRequest<'_> {
    /// Verifies the signature of the request.
    ///
    /// # Errors
    /// The request is not signed by a user at about this time.
    pub fn verify(&self, users: &S3Users, now: SystemTime) -> Result<VerifiedRequest, S3SignatureFault> {
        let query = self.elements()?;
        let is_presigned = query.iter().any(|(name, _)| name == ALGORITHM_KEY || name == SIGNATURE_KEY);
        let authorization = self.header("authorization")?;
        let parameters = match (&authorization, is_presigned) {
            (Some(_), true) => {
                return Err(S3SignatureFault::Unsupported("only one way of authentication is allowed"));
            }
            (Some(header), false) => self.parameters_of_header(header)?,
            (None, true) => parameters_of_query(&query)?,
            (None, false) => return Err(S3SignatureFault::Denied("the request is not signed")),
        };
        if self.header(TOKEN_HEADER)?.is_some()
            || query.iter().any(|(name, _)| name == b"X-Amz-Security-Token")
        {
            return Err(S3SignatureFault::Token);
        }
        check_time(&parameters, now)?;
        let covered = self.covered(&parameters.signed_headers)?;
        let payload = self.payload(&query, is_presigned)?;
        let key = users.key(&parameters.key_id).ok_or(S3SignatureFault::UnknownKey)?;
        let SignatureParameters { day, region, signed_headers, signature, time, .. } = parameters;
        let path = base::percent_decode(self.path.as_bytes()).ok_or(S3SignatureFault::Mismatch)?;
        let path = encoded(&path, b"/");
        let covered: Vec<(&str, &str)> =
            covered.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let query = canonical_query(query);
        let request = (self.method, path.as_str(), query.as_str());
        let canonical = canonical_text(request, &covered, &signed_headers.join(";"), &payload);
        let scope = format!("{day}/{region}/{SERVICE}/{SCOPE_END}");
        let signing_key = S3SigningKey::new(&key.secret, &day, &region);
        let expected = signing_key.sign(&text_to_sign(&time, &scope, canonical.as_bytes()));
        if !Secret::from(expected.as_bytes()).is_equal(signature.as_bytes()) {
            return Err(S3SignatureFault::Mismatch);
        }
        let chunks = ChunkSignatures { key: signing_key, time, scope, previous: expected };
        Ok(VerifiedRequest { key, payload, is_presigned, chunks })
    }

    /// Returns the value of a header that occurs at most once.
    fn header(&self, wanted: &str) -> Result<Option<String>, S3SignatureFault> {
        let mut found = self.headers.iter().filter(|(name, _)| *name == wanted).map(|(_, value)| *value);
        let Some(value) = found.next() else { return Ok(None) };
        let text = std::str::from_utf8(value).ok().filter(|_| found.next().is_none());
        let malformed = S3SignatureFault::MalformedHeader("a header occurs twice, or is not text");
        text.map(|text| Some(text.trim().to_owned())).ok_or(malformed)
    }

    fn elements(&self) -> Result<Vec<QueryElement>, S3SignatureFault> {
        let decode = |text: &str| {
            base::percent_decode(text.as_bytes())
                .ok_or(S3SignatureFault::MalformedQuery("the escapes of the query are malformed"))
        };
        let elements = self.query.split('&').filter(|element| !element.is_empty());
        elements
            .map(|element| {
                let (name, value) = element.split_once('=').unwrap_or((element, ""));
                Ok((decode(name)?, decode(value)?))
            })
            .collect()
    }

    fn parameters_of_header(&self, header: &str) -> Result<SignatureParameters, S3SignatureFault> {
        let malformed = S3SignatureFault::MalformedHeader;
        let rest = header
            .strip_prefix(ALGORITHM)
            .and_then(|rest| rest.strip_prefix(' '))
            .ok_or(S3SignatureFault::Unsupported("the only algorithm is AWS4-HMAC-SHA256"))?;
        let (mut credential, mut signed, mut signature) = (None, None, None);
        for part in rest.split(',') {
            let (name, value) = part.trim().split_once('=').ok_or(malformed("a part has no value"))?;
            let place = match name {
                "Credential" => &mut credential,
                "SignedHeaders" => &mut signed,
                "Signature" => &mut signature,
                _ => return Err(malformed("it has an unknown part")),
            };
            if place.replace(value).is_some() {
                return Err(malformed("a part occurs twice"));
            }
        }
        let time = self.header(DATE_HEADER)?;
        let time = time.ok_or(S3SignatureFault::Denied("the request has no header x-amz-date"))?;
        parameters(
            credential.ok_or(malformed("it has no Credential"))?,
            signed.ok_or(malformed("it has no SignedHeaders"))?,
            signature.ok_or(malformed("it has no Signature"))?,
            (time, None),
            malformed,
        )
    }

    /// Returns the covered headers with their values, in the order of their names. All that can change the
    /// meaning of the request must be among them.
    fn covered(&self, signed: &[String]) -> Result<Vec<(String, String)>, S3SignatureFault> {
        let is_signed = |name: &str| signed.iter().any(|signed| signed == name);
        let must = |name: &str| name == HOST || name.starts_with(AMAZON_PREFIX);
        let is_complete =
            is_signed(HOST) && self.headers.iter().all(|(name, _)| !must(name) || is_signed(name));
        if !is_complete {
            return Err(S3SignatureFault::Denied(
                "there are headers in the request that must be signed and are not",
            ));
        }
        let value = |name: &String| {
            let mut values = Vec::new();
            for (_, value) in self.headers.iter().filter(|(found, _)| found == name) {
                let text = std::str::from_utf8(value);
                let text =
                    text.map_err(|_| S3SignatureFault::MalformedHeader("a covered header is not text"))?;
                values.push(text.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" "));
            }
            Ok((name.clone(), values.join(",")))
        };
        signed.iter().map(value).collect()
    }

    /// Returns what the request says about its body.
    fn payload(&self, query: &[QueryElement], is_presigned: bool) -> Result<String, S3SignatureFault> {
        if let Some(header) = self.header(HASH_HEADER)? {
            return Ok(header);
        }
        if !is_presigned {
            return Err(S3SignatureFault::Denied("the request has no header x-amz-content-sha256"));
        }
        let named = query.iter().find(|(name, _)| name.eq_ignore_ascii_case(HASH_HEADER.as_bytes()));
        let named = named.map(|(_, value)| String::from_utf8_lossy(value).into_owned());
        Ok(named.unwrap_or_else(|| UNSIGNED_PAYLOAD.to_owned()))
    }
}

fn parameters_of_query(query: &[QueryElement]) -> Result<SignatureParameters, S3SignatureFault> {
    let malformed = S3SignatureFault::MalformedQuery;
    let value = |wanted: &'static str, missing: &'static str| {
        let mut found = query.iter().filter(|(name, _)| name == wanted.as_bytes());
        let (_, value) = found.next().ok_or(malformed(missing))?;
        if found.next().is_some() {
            return Err(malformed("a parameter occurs twice"));
        }
        String::from_utf8(value.clone()).map_err(|_| malformed("a parameter is not text"))
    };
    if value("X-Amz-Algorithm", "it has no X-Amz-Algorithm")? != ALGORITHM {
        return Err(S3SignatureFault::Unsupported("the only algorithm is AWS4-HMAC-SHA256"));
    }
    let expires = value("X-Amz-Expires", "it has no X-Amz-Expires")?;
    let expires = expires.parse().ok().filter(|seconds| (1..=EXPIRY_SECONDS_MAX).contains(seconds));
    let expires = expires.ok_or(malformed("X-Amz-Expires is 1 to 604800 seconds"))?;
    parameters(
        &value("X-Amz-Credential", "it has no X-Amz-Credential")?,
        &value("X-Amz-SignedHeaders", "it has no X-Amz-SignedHeaders")?,
        &value("X-Amz-Signature", "it has no X-Amz-Signature")?,
        (value("X-Amz-Date", "it has no X-Amz-Date")?, Some(expires)),
        malformed,
    )
}

fn parameters(
    credential: &str,
    signed: &str,
    signature: &str,
    (time, expires): (String, Option<u64>),
    malformed: fn(&'static str) -> S3SignatureFault,
) -> Result<SignatureParameters, S3SignatureFault> {
    let mut parts = credential.split('/').map(str::to_owned);
    let mut part = || parts.next().ok_or(malformed("the credential has too few parts"));
    let (key_id, day, region, service, end) = (part()?, part()?, part()?, part()?, part()?);
    if parts.next().is_some() || service != SERVICE || end != SCOPE_END {
        return Err(malformed("the credential is not KEY/DAY/REGION/s3/aws4_request"));
    }
    if time.get(..8) != Some(day.as_str()) {
        return Err(malformed("the day of the credential is not that of the request"));
    }
    let signed_headers: Vec<String> = signed.split(';').map(str::to_owned).collect();
    let is_sorted = signed_headers.windows(2).all(|pair| pair.first() < pair.last());
    let is_name = |name: &String| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic() && !b.is_ascii_uppercase())
    };
    if !is_sorted || signed_headers.len() > HEADERS_MAX || !signed_headers.iter().all(is_name) {
        return Err(malformed("the signed headers are not a sorted list of names in lower case"));
    }
    Ok(SignatureParameters {
        key_id,
        day,
        region,
        signed_headers,
        signature: signature.to_owned(),
        time,
        expires,
    })
}

fn check_time(parameters: &SignatureParameters, now: SystemTime) -> Result<(), S3SignatureFault> {
    let time = seconds(&parameters.time).ok_or(S3SignatureFault::Denied("the date is malformed"))?;
    let now = now.duration_since(UNIX_EPOCH).map_err(|_| S3SignatureFault::Skewed)?.as_secs();
    let skew = SKEW_MAX.as_secs();
    if time > now.saturating_add(skew) {
        return Err(S3SignatureFault::Skewed);
    }
    match parameters.expires {
        Some(expires) if now > time.saturating_add(expires) => {
            Err(S3SignatureFault::Denied("the request has expired"))
        }
        None if now > time.saturating_add(skew) => Err(S3SignatureFault::Skewed),
        Some(_) | None => Ok(()),
    }
}

/// Returns the seconds since the epoch of a time such as `20130524T000000Z`.
fn seconds(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    let is_form = bytes.len() == 16 && bytes.get(8) == Some(&b'T') && bytes.get(15) == Some(&b'Z');
    let number = |from: usize, to: usize| {
        let digits = text.get(from..to).filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?;
        digits.parse::<u16>().ok()
    };
    let small = |from: usize| u8::try_from(number(from, from + 2)?).ok();
    if !is_form {
        return None;
    }
    let month = time::Month::try_from(small(4)?).ok()?;
    let day = time::Date::from_calendar_date(i32::from(number(0, 4)?), month, small(6)?).ok()?;
    let time = day.with_hms(small(9)?, small(11)?, small(13)?).ok()?;
    u64::try_from(time.assume_utc().unix_timestamp()).ok()
}

fn encoded(bytes: &[u8], kept: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    base::percent_encode(&mut text, bytes, kept);
    text
}

/// Returns the canonical form of a query: sorted, without the signature.
fn canonical_query(query: Vec<QueryElement>) -> String {
    let elements = query.into_iter().filter(|(name, _)| name != SIGNATURE_KEY);
    let mut elements: Vec<(String, String)> =
        elements.map(|(name, value)| (encoded(&name, b""), encoded(&value, b""))).collect();
    elements.sort_unstable();
    elements.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests;
