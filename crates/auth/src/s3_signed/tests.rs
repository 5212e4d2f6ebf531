//! Tests of the signatures of requests, with the published examples.

use super::*;
use crate::s3::{S3Credentials, S3Request};

const USERS: &str = "[alice]\naws_access_key_id = AKIAIOSFODNN7EXAMPLE\n\
                     aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY\n";
const TIME: u64 = 1_369_353_600;
const SCOPE: &str = "AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request";
const HOST: (&str, &[u8]) = ("host", b"examplebucket.s3.amazonaws.com");
const DATE: (&str, &[u8]) = ("x-amz-date", b"20130524T000000Z");

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn verify(
    (method, path, query): (&str, &str, &str),
    headers: &[(&str, &[u8])],
    now: u64,
) -> Result<VerifiedRequest, S3SignatureFault> {
    ReceivedRequest { method, path, query, headers }.verify(&S3Users::of(USERS), at(now))
}

/// The example of the documentation of the signature by a header.
fn verify_get(path: &str, signature: &str, more: &[(&str, &[u8])], now: u64) -> Option<S3SignatureFault> {
    let value = format!(
        "AWS4-HMAC-SHA256 Credential={SCOPE},SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,\
         Signature={signature}"
    );
    let mut headers = vec![
        HOST,
        ("range", &b"bytes=0-9"[..]),
        ("x-amz-content-sha256", EMPTY_BODY_HASH.as_bytes()),
        DATE,
        ("authorization", value.as_bytes()),
    ];
    headers.extend(more);
    verify(("GET", path, ""), &headers, now).err()
}

const GET: &str = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";

#[test]
fn a_published_request_is_that_of_its_user_only_as_it_was_signed() {
    assert_eq!(verify_get("/test.txt", GET, &[], TIME), None);
    // Any escape of the same path, and a header that is not covered and not of S3.
    assert_eq!(verify_get("/%74est.txt", GET, &[("user-agent", b"x")], TIME), None);
    for path in ["/test.tx", "/test.txt/", "/Test.txt", "/%"] {
        assert_eq!(verify_get(path, GET, &[], TIME), Some(S3SignatureFault::Mismatch), "{path}");
    }
    let other = GET.replace("f0e8", "f0e9");
    assert_eq!(verify_get("/test.txt", &other, &[], TIME), Some(S3SignatureFault::Mismatch));
    assert_eq!(verify_get("/test.txt", "", &[], TIME), Some(S3SignatureFault::Mismatch));
    // A second value of a covered header.
    assert_eq!(
        verify_get("/test.txt", GET, &[("range", b"bytes=1-2")], TIME),
        Some(S3SignatureFault::Mismatch)
    );
    for header in [("x-amz-copy-source", &b"/b/k"[..]), ("x-amz-acl", b"private")] {
        let found = verify_get("/test.txt", GET, &[header], TIME);
        assert!(matches!(found, Some(S3SignatureFault::Denied(_))), "{header:?}: {found:?}");
    }
    let token = ("x-amz-security-token", &b"t"[..]);
    assert_eq!(verify_get("/test.txt", GET, &[token], TIME), Some(S3SignatureFault::Token));
}

#[test]
fn a_request_counts_for_a_quarter_of_an_hour() {
    let skew = SKEW_MAX.as_secs();
    for (now, expected) in [
        (TIME + skew, None),
        (TIME + skew + 1, Some(S3SignatureFault::Skewed)),
        (TIME - skew, None),
        (TIME - skew - 1, Some(S3SignatureFault::Skewed)),
        (0, Some(S3SignatureFault::Skewed)),
    ] {
        assert_eq!(verify_get("/test.txt", GET, &[], now), expected, "{now}");
    }
}

#[test]
fn a_published_url_counts_until_it_expires() {
    let query = |signature: &str, expires: &str| {
        format!(
            "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2F\
             aws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires={expires}&X-Amz-SignedHeaders=host&\
             X-Amz-Signature={signature}"
        )
    };
    let signature = "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
    let fault =
        |query: &str, headers: &[(&str, &[u8])], now| verify(("GET", "/test.txt", query), headers, now).err();
    let whole = query(signature, "86400");
    assert_eq!(fault(&whole, &[HOST], TIME + 86_400), None);
    let verified = verify(("GET", "/test.txt", &whole), &[HOST], TIME).unwrap();
    assert!(verified.is_presigned && verified.payload == UNSIGNED_PAYLOAD);
    assert_eq!(
        fault(&whole, &[HOST], TIME + 86_401),
        Some(S3SignatureFault::Denied("the request has expired"))
    );
    assert_eq!(fault(&whole, &[HOST], TIME - 901), Some(S3SignatureFault::Skewed));
    assert_eq!(fault(&query(signature, "86401"), &[HOST], TIME), Some(S3SignatureFault::Mismatch));
    for query in [
        query(signature, "604801"),
        query(signature, "0"),
        query(signature, "x"),
        format!("{whole}&X-Amz-Date=1"),
    ] {
        assert!(matches!(fault(&query, &[HOST], TIME), Some(S3SignatureFault::MalformedQuery(_))), "{query}");
    }
    assert_eq!(
        fault(&format!("{whole}&response-content-type=x"), &[HOST], TIME),
        Some(S3SignatureFault::Mismatch)
    );
    let both = [HOST, ("authorization", &b"AWS4-HMAC-SHA256 x"[..])];
    assert!(matches!(fault(&whole, &both, TIME), Some(S3SignatureFault::Unsupported(_))));
    let other = [("host", &b"other.example.org"[..])];
    assert_eq!(fault(&whole, &other, TIME), Some(S3SignatureFault::Mismatch));
}

fn put(
    hash: &[u8],
    encoding: &[u8],
    (decoded, length): (&[u8], &[u8]),
    more: &[(&str, &[u8])],
    authorization: &str,
) -> ChunkSignatures {
    let mut headers = vec![
        ("content-encoding", encoding),
        ("content-length", length),
        ("host", &b"s3.amazonaws.com"[..]),
        ("x-amz-content-sha256", hash),
        DATE,
        ("x-amz-decoded-content-length", decoded),
        ("x-amz-storage-class", &b"REDUCED_REDUNDANCY"[..]),
        ("authorization", authorization.as_bytes()),
    ];
    headers.extend(more);
    verify(("PUT", "/examplebucket/chunkObject.txt", ""), &headers, TIME).unwrap().into_chunks()
}

#[test]
fn chunks_of_a_published_body_are_verified_in_their_order() {
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={SCOPE},SignedHeaders=content-encoding;content-length;host;\
         x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class,\
         Signature=4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"
    );
    let begin = || {
        let hash = b"STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
        put(hash, b"aws-chunked", (b"66560", b"66824"), &[], &authorization)
    };
    let first = body_hash(&[b'a'; 65536]);
    let second = body_hash(&[b'a'; 1024]);
    let signatures = [
        "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
        "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
        "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
    ];
    let mut chunks = begin();
    assert!(chunks.verify_chunk(&first, signatures[0]));
    assert!(chunks.verify_chunk(&second, signatures[1]));
    assert!(chunks.verify_chunk(EMPTY_BODY_HASH, signatures[2]));
    let mut chunks = begin();
    assert!(!chunks.verify_chunk(&second, signatures[1]), "the first chunk is missing");
    let mut chunks = begin();
    assert!(!chunks.verify_chunk(&second, signatures[0]), "other bytes");
}

#[test]
fn what_identifies_nobody_is_refused() {
    let date = DATE;
    let value =
        |text: &str| verify(("GET", "/", ""), &[HOST, date, ("authorization", text.as_bytes())], TIME).err();
    for (text, is_expected) in [
        ("AWS AKID:signature", (|fault| matches!(fault, S3SignatureFault::Unsupported(_))) as fn(_) -> bool),
        ("AWS4-ECDSA-P256-SHA256 Credential=x", |fault| matches!(fault, S3SignatureFault::Unsupported(_))),
        ("AWS4-HMAC-SHA256 Credential=a/20130524/r/s3/aws4_request", |fault| {
            matches!(fault, S3SignatureFault::MalformedHeader(_))
        }),
        (
            "AWS4-HMAC-SHA256 Credential=a/20130525/r/s3/aws4_request,SignedHeaders=host,Signature=x",
            |fault| matches!(fault, S3SignatureFault::MalformedHeader(_)),
        ),
        (
            "AWS4-HMAC-SHA256 Credential=a/20130524/r/ec2/aws4_request,SignedHeaders=host,Signature=x",
            |fault| matches!(fault, S3SignatureFault::MalformedHeader(_)),
        ),
        (
            "AWS4-HMAC-SHA256 Credential=a/20130524/r/s3/aws4_request,SignedHeaders=x-amz-date;host,Signature=x",
            |fault| matches!(fault, S3SignatureFault::MalformedHeader(_)),
        ),
        (
            "AWS4-HMAC-SHA256 Credential=a/20130524/r/s3/aws4_request,SignedHeaders=x-amz-date,Signature=x",
            |fault| matches!(fault, S3SignatureFault::Denied(_)),
        ),
        (
            "AWS4-HMAC-SHA256 Credential=a/20130524/r/s3/aws4_request,SignedHeaders=host;x-amz-date,Signature=x",
            |fault| matches!(fault, S3SignatureFault::Denied(_)),
        ),
    ] {
        let found = value(text).unwrap();
        assert!(is_expected(found.clone()), "{text}: {found:?}");
    }
    assert!(matches!(verify(("GET", "/", ""), &[HOST], TIME).err(), Some(S3SignatureFault::Denied(_))));
    let unknown = "AWS4-HMAC-SHA256 Credential=a/20130524/r/s3/aws4_request,SignedHeaders=host;x-amz-content-sha256;x-amz-date,Signature=x";
    let headers = [
        HOST,
        DATE,
        ("x-amz-content-sha256", &b"UNSIGNED-PAYLOAD"[..]),
        ("authorization", unknown.as_bytes()),
    ];
    assert_eq!(verify(("GET", "/", ""), &headers, TIME).err(), Some(S3SignatureFault::UnknownKey));
    for text in [
        "20130524T000000",
        "2013-05-24T00:00Z",
        "20131324T000000Z",
        "20130524T006000Z",
        "19691231T235959Z",
        "+0130524T000000Z",
    ] {
        assert_eq!(seconds(text), None, "{text}");
    }
    assert_eq!(seconds("20130524T000000Z"), Some(TIME));
}

/// What our own client signs is what a server verifies, with all kinds of characters.
#[test]
fn requests_of_our_client_are_verified() {
    let secret = Secret::from(&b"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"[..]);
    let client = S3Credentials::new("AKIAIOSFODNN7EXAMPLE", secret, None);
    for target in
        ["/b/a%20b%2B%26%C3%BC%25?x=%2F%20&a=&list-type=2", "/", "/b?uploads=", "/b/k?b=2&a=1&a-b=3"]
    {
        let request = S3Request {
            method: "PUT",
            target,
            host: "h:1",
            headers: &[],
            body_hash: UNSIGNED_PAYLOAD,
            time: "20130524T000000Z",
        };
        let added = client.sign("r", &request);
        let mut headers = vec![("host", &b"h:1"[..])];
        headers.extend(added.iter().map(|(name, value)| (*name, value.as_bytes())));
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let found = verify(("PUT", path, query), &headers, TIME);
        assert!(found.is_ok(), "{target}: {found:?}");
    }
}
