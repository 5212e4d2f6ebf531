//! Hostile servers: records that are empty, too long, damaged, truncated or without end.

use super::*;
use aws_lc_rs::aead;
use rustls::{ConnectionTrafficSecrets, RootCertStore, ServerConfig, ServerConnection};
use std::io::Read;
use std::net::TcpListener;
use std::time::Duration;

/// Limit for all that must end by itself.
const PATIENCE: Duration = Duration::from_secs(30);

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
const CLOSE_NOTIFY: [u8; 2] = [1, 0];

/// Encrypts the records of a server, whatever they contain.
struct Sealer {
    key: aead::LessSafeKey,
    iv: [u8; 12],
    number: u64,
}

impl Sealer {
    fn record(&mut self, content: &[u8], kind: u8) -> Vec<u8> {
        let length = u16::try_from(content.len() + 1 + 16).unwrap().to_be_bytes();
        let header = [DATA, 3, 3, length[0], length[1]];
        let mut nonce = self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(self.number.to_be_bytes()) {
            *byte ^= number;
        }
        self.number += 1;
        let mut sealed = [content, &[kind]].concat();
        let nonce = aead::Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(nonce, aead::Aad::from(header), &mut sealed).unwrap();
        [&header[..], &sealed].concat()
    }
}

fn configs() -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.cipher_suites = vec![rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256];
    let provider = Arc::new(provider);
    let key = made.signing_key.serialize_der().try_into().unwrap();
    let versions = [&rustls::version::TLS13];
    let server =
        ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(&versions).unwrap();
    let server = server.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key);
    let mut server = server.unwrap();
    server.enable_secret_extraction = true;
    server.send_tls13_tickets = 0;
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(provider).with_protocol_versions(&versions).unwrap();
    (Arc::new(server), Arc::new(client.with_root_certificates(roots).with_no_client_auth()))
}

/// Returns a listening socket and a client that is connected to it.
async fn connected() -> (std::net::TcpStream, ServerStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (listener.accept().unwrap().0, client.into())
}

/// Runs a client against a server that sends what `hostile` returns after the handshake, and then
/// again what it returns until it returns nothing. Returns what the client reads, and its error.
async fn read_from(
    hostile: impl FnMut(&mut Sealer) -> Vec<u8> + Send + 'static,
) -> (Vec<u8>, io::Result<()>) {
    let mut hostile = hostile;
    let (server, client) = configs();
    let (mut socket, mut stream) = connected().await;
    let peer = std::thread::spawn(move || {
        let mut tls = ServerConnection::new(server).unwrap();
        while tls.is_handshaking() {
            tls.complete_io(&mut socket).unwrap();
        }
        let secrets = tls.dangerous_extract_secrets().unwrap();
        let (number, ConnectionTrafficSecrets::Aes128Gcm { key, iv }) = secrets.tx else { panic!() };
        let key = aead::UnboundKey::new(&aead::AES_128_GCM, key.as_ref()).unwrap();
        let iv = iv.as_ref().try_into().unwrap();
        let mut sealer = Sealer { key: aead::LessSafeKey::new(key), iv, number };
        loop {
            let bytes = hostile(&mut sealer);
            // The client may have disconnected.
            if bytes.is_empty() || socket.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let _ = socket.read_to_end(&mut Vec::new());
    });
    let read = async {
        stream.encrypt(&client, "localhost").await.unwrap();
        let mut all = Vec::new();
        loop {
            match stream.try_read_buf(&mut all) {
                Ok(0) => return (all, Ok(())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => stream.readable().await.unwrap(),
                Err(error) => return (all, Err(error)),
            }
        }
    };
    let result = tokio::time::timeout(PATIENCE, read).await.expect("an end");
    drop(stream);
    peer.join().unwrap();
    result
}

/// Returns a function that sends these bytes once.
fn once(make: impl Fn(&mut Sealer) -> Vec<u8> + Send + 'static) -> impl FnMut(&mut Sealer) -> Vec<u8> + Send {
    let mut is_done = false;
    move |sealer| if std::mem::replace(&mut is_done, true) { Vec::new() } else { make(sealer) }
}

#[tokio::test]
async fn only_whole_and_genuine_records_are_read() {
    type Make = fn(&mut Sealer) -> Vec<u8>;
    let cases: [(&str, Make, bool); 8] = [
        (
            "an empty record between",
            |s| [s.record(b"fi", DATA), s.record(b"", DATA), s.record(b"rst", DATA)].concat(),
            true,
        ),
        (
            "the end",
            |s| [s.record(b"first", DATA), s.record(&CLOSE_NOTIFY, ALERT), b"more".to_vec()].concat(),
            true,
        ),
        (
            "a truncated record",
            |s| {
                let mut second = s.record(b"first", DATA);
                second.extend(s.record(b"second", DATA));
                second.pop();
                second
            },
            true,
        ),
        (
            "a damaged record",
            |s| {
                let first = s.record(b"first", DATA);
                let mut second = s.record(b"second", DATA);
                second[9] ^= 1;
                [first, second].concat()
            },
            false,
        ),
        (
            "more content than a record may have",
            |s| [s.record(b"first", DATA), s.record(&[7; 16 * 1024 + 1], DATA)].concat(),
            false,
        ),
        (
            "a longer record than any",
            |s| [s.record(b"first", DATA), vec![DATA, 3, 3, 0x60, 0, 1]].concat(),
            false,
        ),
        (
            "clear text",
            |s| [s.record(b"first", DATA), b"\0\0\0\0\0\0\0\x08clear text".to_vec()].concat(),
            false,
        ),
        ("a repeated record", |s| s.record(b"first", DATA).repeat(2), false),
    ];
    for (name, make, is_end) in cases {
        let (read, end) = read_from(once(make)).await;
        // Data that arrives together with a record that is refused may be dropped.
        assert!(read == b"first" || (!is_end && read.is_empty()), "{name}: {read:?}");
        assert_eq!(end.as_ref().map_err(io::Error::kind).is_ok(), is_end, "{name}: {end:?}");
        if let Err(error) = end {
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{name}");
        }
    }
}

#[tokio::test]
async fn a_flood_of_alerts_ends_the_connection() {
    const USER_CANCELED: [u8; 2] = [1, 90];
    let (read, end) = read_from(|sealer| sealer.record(&USER_CANCELED, ALERT)).await;
    assert_eq!((read.len(), end.unwrap_err().kind()), (0, io::ErrorKind::InvalidData));
}

#[tokio::test]
async fn empty_records_without_end_end_the_connection() {
    let (read, end) = read_from(|sealer| sealer.record(b"", DATA)).await;
    assert_eq!((read.len(), end.unwrap_err().kind()), (0, io::ErrorKind::InvalidData));
}

/// The test has one thread, so a read that does not return would stop it.
#[tokio::test]
async fn records_without_data_delay_no_other_task() {
    let ticket = [4, 0, 0, 15, 0, 0, 0, 60, 0, 0, 0, 0, 1, 7, 0, 1, 7, 0, 0];
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_done = done.clone();
    let flood = read_from(move |sealer| match is_done.load(std::sync::atomic::Ordering::SeqCst) {
        false => (0..2000).flat_map(|_| sealer.record(&ticket, HANDSHAKE)).collect(),
        true => Vec::new(),
    });
    let other = async move {
        // Other tasks have their turn while the flood lasts.
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        done.store(true, std::sync::atomic::Ordering::SeqCst);
    };
    let (_, (read, end)) = tokio::join!(tokio::spawn(other), flood);
    assert!(read.is_empty() && end.is_ok(), "{end:?}");
}

#[tokio::test]
async fn a_handshake_without_end_is_refused() {
    let (_, client) = configs();
    let certificates = [22, 3, 3, 0x10, 0].into_iter().chain(vec![0; 0x1000]).collect::<Vec<u8>>();
    let alerts = [ALERT, 3, 3, 0, 2, 1, 90].repeat(1000);
    let ciphers = [20, 3, 3, 0, 1, 1].repeat(1000);
    let empty = [22, 3, 3, 0, 0].repeat(1000);
    for bytes in [certificates, alerts, ciphers, empty, b"\0\0\0\0 in clear text".repeat(100)] {
        let (mut socket, mut stream) = connected().await;
        let peer = std::thread::spawn(move || while socket.write_all(&bytes).is_ok() {});
        let handshake = tokio::time::timeout(PATIENCE, stream.encrypt(&client, "localhost"));
        let error = handshake.await.expect("an end").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        drop(stream);
        peer.join().unwrap();
    }
}

#[tokio::test]
async fn a_handshake_may_arrive_byte_by_byte() {
    let (server, client) = configs();
    let (mut socket, mut stream) = connected().await;
    socket.set_nodelay(true).unwrap();
    let peer = std::thread::spawn(move || {
        let mut tls = ServerConnection::new(server).unwrap();
        while tls.is_handshaking() {
            let mut flight = Vec::new();
            while tls.wants_write() {
                tls.write_tls(&mut flight).unwrap();
            }
            flight.iter().for_each(|byte| socket.write_all(&[*byte]).unwrap());
            if tls.is_handshaking() {
                tls.read_tls(&mut socket).unwrap();
                tls.process_new_packets().unwrap();
            }
        }
    });
    tokio::time::timeout(PATIENCE, stream.encrypt(&client, "localhost")).await.expect("an end").unwrap();
    peer.join().unwrap();
}

#[tokio::test]
async fn a_record_that_ends_anywhere_gives_none_of_its_bytes() {
    // Header, content, kind and tag.
    const RECORD_BYTES: usize = 5 + 6 + 1 + 16;
    for cut in 0..RECORD_BYTES {
        let make =
            move |s: &mut Sealer| [s.record(b"first", DATA), s.record(b"second", DATA)[..cut].to_vec()];
        let (read, end) = read_from(once(move |sealer| make(sealer).concat())).await;
        assert!(read == b"first" && end.is_ok(), "{cut} bytes: {read:?} {end:?}");
    }
}

#[tokio::test]
async fn a_handshake_that_ends_anywhere_is_an_error() {
    /// Distance of the positions: each would take long, because they need a handshake each.
    const STEP: usize = 13;
    let (server, client) = configs();
    let mut cut = 0;
    loop {
        let (mut socket, mut stream) = connected().await;
        let server = server.clone();
        let peer = std::thread::spawn(move || {
            let mut tls = ServerConnection::new(server).unwrap();
            while !tls.wants_write() {
                tls.read_tls(&mut socket).unwrap();
                tls.process_new_packets().unwrap();
            }
            let mut flight = Vec::new();
            while tls.wants_write() {
                tls.write_tls(&mut flight).unwrap();
            }
            let part = flight.get(..cut);
            socket.write_all(part.unwrap_or_default()).unwrap();
            socket.shutdown(std::net::Shutdown::Write).unwrap();
            let _ = socket.read_to_end(&mut Vec::new());
            part.is_some()
        });
        let handshake = tokio::time::timeout(PATIENCE, stream.encrypt(&client, "localhost"));
        let result = handshake.await.expect("an end");
        drop(stream);
        // With the whole flight the handshake is complete for the client.
        if !peer.join().unwrap() {
            break;
        }
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "{cut} bytes");
        cut += STEP;
    }
    assert!(cut > 300, "the flight of a server has a certificate");
}
