//! Requests to object stores with S3: their keys, and signatures (AWS Signature Version 4).

use std::fmt::Write;
use std::path::Path;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use zeroize::Zeroizing;

use crate::secret::Secret;
use crate::trusted_file::{FileTrust, TrustedOwner, read_trusted};

/// The hash of an empty body.
const EMPTY_BODY_HASH: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/// Maximum size of a file with keys.
const FILE_BYTES_MAX: u64 = 64 * 1024;
/// Maximum size of a value in it.
const VALUE_BYTES_MAX: usize = 8 * 1024;
const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const SERVICE: &str = "s3";
const DATE_HEADER: &str = "x-amz-date";
const HASH_HEADER: &str = "x-amz-content-sha256";
const TOKEN_HEADER: &str = "x-amz-security-token";

/// The keys of an account. `Debug` does not show the secret ones.
#[derive(Clone, Debug)]
pub struct S3Credentials {
    key_id: String,
    secret: Secret,
    /// The token of temporary keys.
    session_token: Option<Secret>,
}

/// The parts of a request that its signature covers.
#[derive(Clone, Copy, Debug)]
pub struct S3Request<'a> {
    /// The method.
    pub method: &'a str,
    /// Path and query, percent-encoded as they are sent.
    pub target: &'a str,
    /// The value of the header `Host`.
    pub host: &'a str,
    /// Other headers to cover, with names in lower case.
    pub headers: &'a [(&'a str, &'a str)],
    /// SHA-256 of the body, in hexadecimal.
    pub body_hash: &'a str,
    /// The time: `20130524T000000Z`.
    pub time: &'a str,
}

impl S3Credentials {
    /// Reads the keys of a section from a file in the form of `~/.aws/credentials`, which nobody else may
    /// read. Blocks.
    ///
    /// # Errors
    /// A text with the remedy, without the content of the file.
    pub fn read(path: &Path, profile: &str) -> Result<Self, String> {
        let trust =
            FileTrust::private(TrustedOwner::Own, "read the keys of the object store", FILE_BYTES_MAX);
        let (content, _) = read_trusted(path, &trust).map_err(|error| error.text_of(path))?;
        Self::parse(&content, profile).map_err(|why| format!("{}: {why}", path.display()))
    }

    /// Creates keys.
    #[must_use]
    pub fn new(key_id: &str, secret: Secret, session_token: Option<Secret>) -> Self {
        Self { key_id: key_id.to_owned(), secret, session_token }
    }

    fn parse(content: &[u8], profile: &str) -> Result<Self, String> {
        let text = std::str::from_utf8(content).map_err(|_| "it is not UTF-8 text".to_owned())?;
        let (mut is_section, mut was_found) = (false, false);
        let (mut key_id, mut secret, mut token) = (None, None, None);
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                let name = name.trim();
                is_section = name.strip_prefix("profile ").unwrap_or(name).trim() == profile;
                was_found |= is_section;
                continue;
            }
            let number = number + 1;
            let (key, value) =
                line.split_once('=').ok_or_else(|| format!("line {number} is not NAME = VALUE"))?;
            if !is_section {
                continue;
            }
            let (key, value) = (key.trim(), value.trim());
            let is_value = (1..=VALUE_BYTES_MAX).contains(&value.len())
                && value.bytes().all(|byte| byte.is_ascii_graphic());
            let place = match key {
                "aws_access_key_id" => &mut key_id,
                "aws_secret_access_key" => &mut secret,
                "aws_session_token" => &mut token,
                // Other settings of such files, such as the region.
                _ => continue,
            };
            if !is_value || (key == "aws_access_key_id" && value.contains(['/', ',', '='])) {
                return Err(format!("line {number}: the value of {key} is malformed"));
            }
            *place = Some(value);
        }
        if !was_found {
            return Err(format!("it has no section [{profile}]"));
        }
        let missing = |name: &str| format!("section [{profile}] has no {name}");
        let key_id = key_id.ok_or_else(|| missing("aws_access_key_id"))?;
        let secret = secret.ok_or_else(|| missing("aws_secret_access_key"))?;
        let secret_of = |text: &str| Secret::from(text.as_bytes());
        Ok(Self::new(key_id, secret_of(secret), token.map(secret_of)))
    }

    /// Returns the headers that a request needs in addition to those that it covers. Values with secrets are
    /// those of `authorization` and `x-amz-security-token`.
    #[must_use]
    pub fn sign(&self, region: &str, request: &S3Request<'_>) -> Vec<(&'static str, Zeroizing<String>)> {
        let plain = |text: &str| Zeroizing::new(text.to_owned());
        let mut added = vec![(HASH_HEADER, plain(request.body_hash)), (DATE_HEADER, plain(request.time))];
        if let Some(token) = &self.session_token {
            let text = String::from_utf8_lossy(token.expose()).into_owned();
            added.push((TOKEN_HEADER, Zeroizing::new(text)));
        }
        let mut covered: Vec<(&str, &str)> = vec![("host", request.host)];
        covered.extend(request.headers);
        covered.extend(added.iter().map(|(name, value)| (*name, value.as_str())));
        covered.sort_unstable_by_key(|(name, _)| *name);
        let names: Vec<&str> = covered.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let canonical = Zeroizing::new(canonical_request(request, &covered, &names));
        let day = request.time.get(..8).unwrap_or_default();
        let scope = format!("{day}/{region}/{SERVICE}/aws4_request");
        let hash = hexadecimal(digest(&SHA256, canonical.as_bytes()).as_ref());
        let to_sign = format!("{ALGORITHM}\n{}\n{scope}\n{hash}", request.time);
        let signature = hexadecimal(self.mac(day, region, to_sign.as_bytes()).as_ref());
        let value = format!(
            "{ALGORITHM} Credential={}/{scope},SignedHeaders={names},Signature={signature}",
            self.key_id
        );
        added.push(("authorization", Zeroizing::new(value)));
        added
    }

    /// Returns the message authentication code with the key of a day and a region.
    fn mac(&self, day: &str, region: &str, text: &[u8]) -> aws_lc_rs::hmac::Tag {
        let mac = |key: &[u8], text: &[u8]| sign(&Key::new(HMAC_SHA256, key), text);
        let first = Zeroizing::new([b"AWS4", self.secret.expose()].concat());
        let mut key = mac(&first, day.as_bytes());
        for part in [region, SERVICE, "aws4_request"] {
            key = mac(key.as_ref(), part.as_bytes());
        }
        mac(key.as_ref(), text)
    }
}

/// Returns the text whose hash is signed.
fn canonical_request(request: &S3Request<'_>, headers: &[(&str, &str)], names: &str) -> String {
    let (path, query) = request.target.split_once('?').unwrap_or((request.target, ""));
    let elements = query.split('&').filter(|element| !element.is_empty());
    let mut elements: Vec<(&str, &str)> =
        elements.map(|element| element.split_once('=').unwrap_or((element, ""))).collect();
    elements.sort_unstable();
    let query: Vec<String> = elements.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let mut text = format!("{}\n{path}\n{}\n", request.method, query.join("&"));
    for (name, value) in headers {
        writeln!(text, "{name}:{}", value.trim()).ok();
    }
    write!(text, "\n{names}\n{}", request.body_hash).ok();
    text
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        write!(text, "{byte:02x}").ok();
        text
    })
}

/// Returns SHA-256 of a body, in hexadecimal.
#[must_use]
pub fn body_hash(body: &[u8]) -> String {
    if body.is_empty() {
        return EMPTY_BODY_HASH.to_owned();
    }
    hexadecimal(digest(&SHA256, body).as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
    const HOST: &str = "examplebucket.s3.amazonaws.com";

    fn signature(request: &S3Request<'_>) -> String {
        let credentials = S3Credentials::new("AKIAIOSFODNN7EXAMPLE", Secret::from(SECRET.as_bytes()), None);
        let headers = credentials.sign("us-east-1", request);
        headers.into_iter().find(|(name, _)| *name == "authorization").unwrap().1.to_string()
    }

    /// The examples of the documentation of Signature Version 4 for S3.
    #[test]
    fn published_examples_have_their_signatures() {
        let get = |target, headers| S3Request {
            method: "GET",
            target,
            host: HOST,
            headers,
            body_hash: EMPTY_BODY_HASH,
            time: "20130524T000000Z",
        };
        let range: &[(&str, &str)] = &[("range", "bytes=0-9")];
        let signed = signature(&get("/test.txt", range));
        assert_eq!(
            signed,
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
             SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,\
             Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        for (target, expected) in [
            ("/?lifecycle", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
            ("/?prefix=J&max-keys=2", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
        ] {
            let signed = signature(&get(target, &[]));
            assert!(signed.ends_with(&format!("Signature={expected}")), "{target}: {signed}");
        }
        let put = S3Request {
            method: "PUT",
            headers: &[
                ("date", "Fri, 24 May 2013 00:00:00 GMT"),
                ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
            ],
            body_hash: &body_hash(b"Welcome to Amazon S3."),
            ..get("/test%24file.text", &[])
        };
        let signed = signature(&put);
        let expected = "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd";
        assert!(signed.ends_with(expected), "{signed}");
        assert_eq!(body_hash(b""), EMPTY_BODY_HASH);
    }

    #[test]
    fn the_token_of_temporary_keys_is_covered() {
        let token = Secret::from(&b"tok"[..]);
        let credentials = S3Credentials::new("A", Secret::from(&b"s"[..]), Some(token));
        let request = S3Request {
            method: "GET",
            target: "/",
            host: "h",
            headers: &[],
            body_hash: EMPTY_BODY_HASH,
            time: "20130524T000000Z",
        };
        let headers = credentials.sign("r", &request);
        let value = |wanted| &*headers.iter().find(|(name, _)| *name == wanted).unwrap().1;
        assert_eq!(value("x-amz-security-token").as_str(), "tok");
        assert!(value("authorization").contains("x-amz-date;x-amz-security-token,"));
    }

    #[test]
    fn sections_of_files_have_keys() {
        let text =
            b"# comment\n[default]\naws_access_key_id = A1\nregion = x\naws_secret_access_key=s/1+=\n\n\
            [profile other]\naws_access_key_id = A2\naws_secret_access_key = s2\naws_session_token = t2\n\
            [half]\naws_access_key_id = A3\n";
        let keys = |profile| {
            S3Credentials::parse(text, profile).map(|keys| {
                let token = keys.session_token.map(|token| token.expose().to_vec());
                (keys.key_id, keys.secret.expose().to_vec(), token)
            })
        };
        assert_eq!(keys("default"), Ok(("A1".to_owned(), b"s/1+=".to_vec(), None)));
        assert_eq!(keys("other"), Ok(("A2".to_owned(), b"s2".to_vec(), Some(b"t2".to_vec()))));
        assert_eq!(keys("half").unwrap_err(), "section [half] has no aws_secret_access_key");
        assert_eq!(keys("none").unwrap_err(), "it has no section [none]");
        let printed = format!("{:?}", S3Credentials::parse(text, "default").unwrap());
        assert!(!printed.contains("s/1"), "{printed}");
    }

    #[test]
    fn no_error_has_a_value_of_the_file() {
        for text in [
            "[default]\naws_secret_access_key hunter2\n",
            "[default]\naws_secret_access_key = hunter2 hunter2\n",
            "[default]\naws_access_key_id = hunter2/x\n",
            "[default]\naws_secret_access_key = hunter2\n",
            "aws_secret_access_key = hunter2\n",
        ] {
            let error = S3Credentials::parse(text.as_bytes(), "default").unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
        assert!(S3Credentials::parse(b"[default]\n\xff", "default").is_err());
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let directory = std::env::temp_dir().join(format!("scalla-s3-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("keys");
        std::fs::write(&path, "[default]\naws_access_key_id = A\naws_secret_access_key = hunter2\n").unwrap();
        let read = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            S3Credentials::read(&path, "default").map(drop)
        };
        let (open, closed) = (read(0o640), read(0o600));
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!(closed, Ok(()));
        let open = open.unwrap_err();
        assert!(open.contains("keys of the object store") && !open.contains("hunter2"), "{open}");
    }
}
