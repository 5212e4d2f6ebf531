//! Handshakes whose records arrive in pieces.

use super::*;
use rustls::crypto::aws_lc_rs::{self, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

/// Returns a server, and the settings of a client that trusts it.
pub(super) fn server_and_client() -> (TlsServer, ClientConfig) {
    server_and_client_of(&[&rustls::version::TLS13, &rustls::version::TLS12])
}

/// Returns a server, and the settings of a client that trusts it and supports only these versions.
fn server_and_client_of(versions: &[&'static rustls::SupportedProtocolVersion]) -> (TlsServer, ClientConfig) {
    server_with_groups(&[kx_group::X25519, kx_group::SECP256R1], versions)
}

/// Returns a server with these key agreements. Its client prefers X25519.
fn server_with_groups(
    groups: &[&'static dyn SupportedKxGroup],
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> (TlsServer, ClientConfig) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let with_groups = |groups: &[&'static dyn SupportedKxGroup]| {
        Arc::new(CryptoProvider { kx_groups: groups.to_vec(), ..aws_lc_rs::default_provider() })
    };
    let provider = with_groups(&[kx_group::X25519, kx_group::SECP256R1]);
    let key = made.signing_key.serialize_der().try_into().unwrap();
    let server =
        ServerConfig::builder_with_provider(with_groups(groups)).with_safe_default_protocol_versions();
    let server = server.unwrap().with_no_client_auth();
    let server = server.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
    let client = client.with_root_certificates(roots).with_no_client_auth();
    let here = |_, step: Box<dyn FnOnce() + Send>| {
        step();
        true
    };
    (TlsServer::new(Arc::new(server), here, Duration::from_secs(60)), client)
}

/// Processes all that has arrived, like the handshake of a socket.
fn process(records: &mut TlsRecords) {
    while records.is_handshaking() && !records.wants_write() && records.has_record() {
        records.decrypt().unwrap();
    }
}

fn sent_by(client: &mut ClientConnection) -> Vec<u8> {
    let mut sent = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut sent).unwrap();
    }
    sent
}

/// Returns the first message of a client in two records, with the length of the first one.
fn hello_in_two_records(config: &ClientConfig, payload_of_first: usize) -> (Vec<u8>, usize) {
    let name = "localhost".try_into().unwrap();
    let mut client = ClientConnection::new(Arc::new(config.clone()), name).unwrap();
    let hello = sent_by(&mut client);
    let (header, message) = hello.split_at(RECORD_HEADER_BYTES);
    let record = |part: &[u8]| {
        let length = u16::try_from(part.len()).unwrap().to_be_bytes();
        [&header[..RECORD_LENGTH_AT], &length, part].concat()
    };
    let (first, second) = message.split_at(payload_of_first);
    let first = record(first);
    let length = first.len();
    ([first, record(second)].concat(), length)
}

#[test]
fn a_handshake_continues_wherever_its_records_are_split() {
    let (server, mut config) = server_and_client();
    // Looks like the header of a long record if the server looks for one there.
    config.alpn_protocols = vec![vec![22, 3, 3, 0x40, 0, 22, 3, 3, 0x40, 0]];
    for payload_of_first in [1, 4, 40] {
        let (hello, first) = hello_in_two_records(&config, payload_of_first);
        for split in 1..hello.len() {
            let mut records = server.begin(hello[..split].to_vec()).unwrap();
            process(&mut records);
            assert!(records.is_handshaking() && !records.wants_write());
            records.append(&hello[split..]);
            process(&mut records);
            assert!(records.wants_write(), "no answer: {first} bytes in the first record, split at {split}");
        }
    }
}

/// Only the end of a handshake is left to the loop, because signatures and key agreements take too long.
#[test]
fn the_end_of_a_handshake_needs_no_thread() {
    let (new, old) = (&rustls::version::TLS13, &rustls::version::TLS12);
    // The messages of a client, and whether each is cheap. In the last case the server requests another
    // key agreement, after which the second hello is not cheap.
    let cases: [(&'static dyn SupportedKxGroup, _, &[bool]); 3] = [
        (kx_group::X25519, new, &[false, true]),
        (kx_group::X25519, old, &[false, false]),
        (kx_group::SECP256R1, new, &[false; 3]),
    ];
    for (group, version, expected) in cases {
        let (server, config) = server_with_groups(&[group], &[version]);
        let mut client = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
        let mut records = server.begin(Vec::new()).unwrap();
        let mut found = Vec::new();
        while records.is_handshaking() {
            records.append(&sent_by(&mut client));
            found.push(records.is_cheap());
            process(&mut records);
            let mut sent = Vec::new();
            records.send(&mut sent).unwrap();
            let mut sent = &sent[..];
            while !sent.is_empty() {
                client.read_tls(&mut sent).unwrap();
                client.process_new_packets().unwrap();
            }
        }
        assert_eq!(found, expected, "{group:?} {version:?}");
    }
    // Many bytes may be a chain of certificates.
    let (server, config) = server_and_client_of(&[new]);
    let mut client = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    let mut records = server.begin(sent_by(&mut client)).unwrap();
    process(&mut records);
    records.send(&mut std::io::sink()).unwrap();
    // Processed bytes count: a change of ciphers.
    let change = [20, 3, 3, 0, 1, 1];
    records.append(&change);
    records.decrypt().unwrap();
    records.append(&vec![23; FINISH_BYTES_MAX - change.len()]);
    assert!(records.is_cheap());
    records.append(&[23]);
    assert!(!records.is_cheap());
}

/// Performs a handshake.
fn connected(server: &TlsServer, config: ClientConfig) -> (ClientConnection, Box<TlsRecords>) {
    let mut client = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    let mut records = server.begin(Vec::new()).unwrap();
    while client.is_handshaking() || records.is_handshaking() {
        records.append(&sent_by(&mut client));
        process(&mut records);
        let mut answer = Vec::new();
        records.send(&mut answer).unwrap();
        client.read_tls(&mut answer.as_slice()).unwrap();
        client.process_new_packets().unwrap();
    }
    (client, records)
}

#[test]
fn a_connection_holds_no_more_than_its_limit() {
    let (server, config) = server_and_client();
    let (mut client, mut records) = connected(&server, config);
    let idle = records.take_buffer();
    records.put_buffer(idle);
    records.received = Vec::new();
    assert_eq!(records.held_bytes(), 0, "an idle connection");
    // Part of a record, of which nothing can be decrypted.
    let content = [7; 16 * 1024];
    client.writer().write_all(&content).unwrap();
    let record = sent_by(&mut client);
    let mut buffer = records.take_buffer();
    buffer.extend_from_slice(&record[..record.len() - 1]);
    records.put_buffer(buffer);
    assert!(!records.decrypt().unwrap());
    records.settle();
    assert_eq!(records.held_bytes(), SMALL_BYTES, "part of a record");
    // Data that nobody reads.
    records.append(&record[record.len() - 1..]);
    assert!(records.decrypt().unwrap());
    let held = records.held_bytes();
    assert!(held >= content.len() && held <= HELD_BYTES_MAX, "{held}");
    // Data that the socket does not take.
    let block = vec![7; 1 << 20];
    while records.encrypt(&[IoSlice::new(&block)]).unwrap() > 0 {}
    let more = records.held_bytes() - held;
    assert!((ENCRYPTED_BYTES_MAX..HELD_BYTES_MAX - held).contains(&more), "{more}");
    records.send(&mut Vec::new()).unwrap();
    assert_eq!(records.held_bytes(), held);
    let mut place = [MaybeUninit::uninit(); 16 * 1024];
    assert_eq!(records.read(&mut place).unwrap(), Some(content.len()));
    let idle = records.take_buffer();
    records.put_buffer(idle);
    records.settle();
    assert_eq!(records.held_bytes(), 0, "idle again");
}

/// Encrypts the bytes of a handshake message of a client of TLS 1.3, as a record with this number.
fn handshake_record(secrets: &rustls::ConnectionTrafficSecrets, number: u64, message: &[u8]) -> Vec<u8> {
    use ::aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
    let rustls::ConnectionTrafficSecrets::Aes256Gcm { key, iv } = secrets else { panic!("another cipher") };
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.as_ref()).unwrap());
    let mut nonce: [u8; 12] = iv.as_ref().try_into().unwrap();
    for (byte, number) in nonce[4..].iter_mut().zip(number.to_be_bytes()) {
        *byte ^= number;
    }
    let mut content = [message, &[HANDSHAKE_MESSAGE]].concat();
    let length = u16::try_from(content.len() + AES_256_GCM.tag_len()).unwrap().to_be_bytes();
    let header = [23, 3, 3, length[0], length[1]];
    key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(header), &mut content)
        .unwrap();
    [&header[..], &content].concat()
}

/// The type of records with handshake messages.
const HANDSHAKE_MESSAGE: u8 = 22;
/// The type of a message that a client may send after the handshake.
const KEY_UPDATE: u8 = 24;

#[test]
fn an_unfinished_message_is_part_of_the_memory() {
    let (server, mut config) = server_and_client();
    config.enable_secret_extraction = true;
    let (client, mut records) = connected(&server, config);
    let secrets = client.dangerous_extract_secrets().unwrap();
    let (number, secrets) = secrets.tx;
    let length = 60_000_u32.to_be_bytes();
    let message = [&[KEY_UPDATE, length[1], length[2], length[3]][..], &[0; 50_000]].concat();
    for (number, part) in (number..).zip(message.chunks(10_000)) {
        records.append(&handshake_record(&secrets, number, part));
        assert!(!records.decrypt().unwrap());
        records.received = Vec::new();
        records.settle();
    }
    let held = records.held_bytes();
    assert!(held >= message.len() && held <= HELD_BYTES_MAX, "{held}");
}

#[test]
fn an_announced_end_is_an_end() {
    let (server, config) = server_and_client();
    let (mut client, mut records) = connected(&server, config);
    client.writer().write_all(b"last").unwrap();
    client.send_close_notify();
    records.append(&sent_by(&mut client));
    let mut place = [MaybeUninit::uninit(); 16];
    assert!(records.decrypt().unwrap());
    assert_eq!(records.read(&mut place).unwrap(), Some(4));
    assert_eq!(records.read(&mut place).unwrap(), None);
    assert!(records.decrypt().unwrap(), "the end is to be read");
    assert_eq!(records.read(&mut place).unwrap(), Some(0));
}

/// TLS 1.2 and 1.3, each alone.
const VERSIONS: [&rustls::SupportedProtocolVersion; 2] = [&rustls::version::TLS12, &rustls::version::TLS13];

#[test]
fn a_record_that_ends_anywhere_gives_none_of_its_bytes() {
    for version in VERSIONS {
        let (server, config) = server_and_client_of(&[version]);
        let (mut client, mut records) = connected(&server, config);
        assert_eq!(client.protocol_version(), Some(version.version));
        client.writer().write_all(&[7; 100]).unwrap();
        let record = sent_by(&mut client);
        let mut place = [MaybeUninit::uninit(); 200];
        for byte in &record[..record.len() - 1] {
            records.append(&[*byte]);
            assert!(!records.decrypt().unwrap(), "a part of a record gives data");
            assert_eq!(records.read(&mut place).unwrap(), None);
        }
        records.append(&record[record.len() - 1..]);
        assert!(records.decrypt().unwrap());
        assert_eq!(records.read(&mut place).unwrap(), Some(100));
    }
}

#[test]
fn a_changed_byte_in_a_record_never_changes_the_data() {
    for version in VERSIONS {
        let (server, config) = server_and_client_of(&[version]);
        let (mut client, _) = connected(&server, config.clone());
        client.writer().write_all(b"a request").unwrap();
        let length = sent_by(&mut client).len();
        // A longer length waits for bytes that do not come.
        for at in (0..length).filter(|at| !(RECORD_LENGTH_AT..RECORD_HEADER_BYTES).contains(at)) {
            let (mut client, mut records) = connected(&server, config.clone());
            client.writer().write_all(b"a request").unwrap();
            let mut record = sent_by(&mut client);
            record[at] ^= 1;
            records.append(&record);
            let mut place = [MaybeUninit::new(0_u8); 200];
            if records.decrypt().is_err() {
                continue;
            }
            // Kind and version of a record are constants, and not protected in each version of TLS.
            if let Some(bytes) = records.read(&mut place).unwrap() {
                assert!(at < RECORD_HEADER_BYTES, "byte {at} of {version:?}");
                // SAFETY: all bytes were initialized.
                let read = place.map(|byte| unsafe { byte.assume_init() });
                assert_eq!(&read[..bytes], b"a request", "byte {at} of {version:?}");
            }
        }
    }
}
