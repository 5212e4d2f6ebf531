//! The recorded realm for tests: its keys, its messages, a clock, and caches of tickets.

use super::library::KerberosContext;
use super::{ContextMaker, Krb5Client, Krb5ClientSettings, Krb5Server, Krb5ServerSettings};
use crate::client::ClientContext;
use crate::server::LoginPeer;
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// 2026-11-20 00:00 UTC, the day of the recording.
const DAY: i32 = 1_795_132_800;
pub(super) const SERVICE: &str = "xrootd/localhost@TEST.EXAMPLE";
pub(super) const ALICE: &str = "alice@TEST.EXAMPLE";

pub(super) fn recorded() -> Value {
    serde_json::from_str(include_str!("../../../../vectors/security/krb5.json")).unwrap()
}

pub(super) fn bytes(value: &Value) -> Vec<u8> {
    let hex = value.as_str().unwrap();
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// Returns the time of `20261120hhmmssZ`, or of the next day.
pub(super) fn seconds(value: &Value) -> i32 {
    let text = value.as_str().unwrap();
    let part = |at: usize| text[at..at + 2].parse::<i32>().unwrap();
    assert!(text.starts_with("2026112"), "{text}");
    DAY + (part(6) - 20) * 86_400 + part(8) * 3600 + part(10) * 60 + part(12)
}

pub(super) fn system_time(seconds: i32) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap())
}

/// Returns the payloads of the requests for authentication of a connection.
pub(super) fn credentials(connection: &Value) -> Vec<Vec<u8>> {
    let frames = connection["frames"].as_array().unwrap().iter();
    frames
        .filter(|frame| frame["request"] == "kXR_auth")
        .map(|frame| bytes(&frame["hex"])[24..].to_vec())
        .collect()
}

/// Returns the end of the element of DER at an offset whose length has two octets.
pub(super) fn end_of(message: &[u8], at: usize) -> usize {
    assert_eq!(message[at + 1], 0x82);
    at + 4 + usize::from(u16::from_be_bytes([message[at + 2], message[at + 3]]))
}

/// Returns the start and the end of the ticket in the credentials with an AP-REQ.
pub(super) fn ticket_range(credentials: &[u8]) -> std::ops::Range<usize> {
    let field = credentials.windows(2).position(|pair| pair == [0xa3, 0x82]).unwrap();
    let ticket = field + 4;
    assert_eq!(end_of(credentials, field), end_of(credentials, ticket));
    ticket..end_of(credentials, ticket)
}

/// A directory with the configuration of the realm. It is removed on drop.
pub(super) struct TestRealm {
    pub(super) directory: PathBuf,
    clock: Arc<AtomicI32>,
}

impl Drop for TestRealm {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.directory).unwrap();
    }
}

impl TestRealm {
    /// Creates the realm at a time.
    pub(super) fn at(seconds: i32) -> Self {
        Self::with_default_realm(seconds, "TEST.EXAMPLE")
    }

    pub(super) fn with_default_realm(seconds: i32, default: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("auth-krb5-realm-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory).unwrap();
        // Each realm has a replay cache of its own. There is no KDC.
        let text = format!(
            "[libdefaults]\n default_realm = {default}\n dns_lookup_kdc = false\n rdns = false\n \
             default_rcache_name = file2:{}/replays\n[realms]\n TEST.EXAMPLE = {{\n  kdc = 127.0.0.1:9\n }}\n",
            directory.display()
        );
        fs::write(directory.join("krb5.conf"), text).unwrap();
        let realm = Self { directory, clock: Arc::new(AtomicI32::new(seconds)) };
        let recorded = recorded();
        let key = bytes(&recorded["keys"]["aes256-cts-hmac-sha1-96"]);
        realm.write_keytab(&["xrootd", "localhost"], 2, &key);
        realm
    }

    /// Writes the key table with one key.
    pub(super) fn write_keytab(&self, service: &[&str], version: u8, key: &[u8]) {
        self.write_keytabs(&[(service, version, key)]);
    }

    /// Writes the key table with keys: service, version, key.
    pub(super) fn write_keytabs(&self, keys: &[(&[&str], u8, &[u8])]) {
        let mut text = vec![5, 2];
        for (service, version, key) in keys {
            let mut entry = u16::try_from(service.len()).unwrap().to_be_bytes().to_vec();
            for part in ["TEST.EXAMPLE"].iter().chain(*service) {
                entry.extend_from_slice(&u16::try_from(part.len()).unwrap().to_be_bytes());
                entry.extend_from_slice(part.as_bytes());
            }
            // Type of the name, time, version; 18 is AES with 256 bits.
            entry.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 0, *version, 0, 18, 0, 32]);
            entry.extend_from_slice(key);
            text.extend_from_slice(&u32::try_from(entry.len()).unwrap().to_be_bytes());
            text.extend_from_slice(&entry);
        }
        let path = self.keytab();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    }

    pub(super) fn keytab(&self) -> PathBuf {
        self.directory.join("keytab")
    }

    pub(super) fn set_time(&self, seconds: i32) {
        self.clock.store(seconds, Ordering::Relaxed);
    }

    pub(super) fn contexts(&self) -> ContextMaker {
        let (path, clock) = (self.directory.join("krb5.conf"), Arc::clone(&self.clock));
        Arc::new(move || Ok(KerberosContext::of_test(&path, clock.load(Ordering::Relaxed))))
    }

    /// Returns a server of the realm.
    pub(super) fn server(&self, change: impl FnOnce(&mut Krb5ServerSettings)) -> Result<Krb5Server, String> {
        let mut settings = Krb5ServerSettings::new(SERVICE);
        settings.keytab = Some(self.keytab());
        change(&mut settings);
        Krb5Server::with_contexts(settings, None, self.contexts())
    }

    /// Returns a client of the realm with the cache of [`TestRealm::write_cache`].
    pub(super) fn client(&self) -> Krb5Client {
        let cache = Some(format!("FILE:{}", self.cache().display()));
        Krb5Client::with_contexts(
            Krb5ClientSettings { cache, ..Krb5ClientSettings::default() },
            self.contexts(),
        )
    }

    pub(super) fn cache(&self) -> PathBuf {
        self.directory.join("cache")
    }

    /// Writes the cache of alice with one ticket.
    pub(super) fn write_cache(&self, service: &[&str], key: &[u8], times: [i32; 4], ticket: &[u8]) {
        let mut text = vec![5, 4, 0, 0];
        let data = |out: &mut Vec<u8>, bytes: &[u8]| {
            out.extend_from_slice(&u32::try_from(bytes.len()).unwrap().to_be_bytes());
            out.extend_from_slice(bytes);
        };
        let name = |out: &mut Vec<u8>, parts: &[&str]| {
            out.extend_from_slice(&[0, 0, 0, 1]);
            out.extend_from_slice(&u32::try_from(parts.len()).unwrap().to_be_bytes());
            for part in ["TEST.EXAMPLE"].iter().chain(parts) {
                data(out, part.as_bytes());
            }
        };
        name(&mut text, &["alice"]);
        name(&mut text, &["alice"]);
        name(&mut text, service);
        text.extend_from_slice(&[0, 18]);
        data(&mut text, key);
        times.iter().for_each(|time| text.extend_from_slice(&time.to_be_bytes()));
        // No session key, flags, addresses and authorization data.
        text.extend_from_slice(&[0; 13]);
        data(&mut text, ticket);
        data(&mut text, b"");
        fs::write(self.cache(), text).unwrap();
    }
}

pub(super) fn peer() -> LoginPeer {
    LoginPeer {
        address: "[::ffff:127.0.0.1]:4711".parse().unwrap(),
        host: "h.o".to_owned(),
        login_id: "u".to_owned(),
        is_tls: true,
    }
}

pub(super) fn client_context(is_tls: bool) -> ClientContext {
    ClientContext { is_tls, ..ClientContext::new("127.0.0.1:1".parse().unwrap(), "h.o", "h.o") }
}
