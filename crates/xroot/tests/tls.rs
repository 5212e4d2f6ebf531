//! TLS over sockets: both switch points, bound connections, data of all sizes, and hostile clients.

#![allow(clippy::unwrap_used)]

mod support;

use config::{TlsOperations, TlsRequirements};
use net::TlsServer;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use storage::Pool;
use support::client::{CREATING, HANDSHAKE, READING, login_request, write};
use support::*;

const CAPABLE: u8 = 0x0b;
const WANTS: u8 = 0x0f;
const EXPECT_BIND: u8 = 1;
const EXPECT_LOGIN: u8 = 3;
const TLS_REQUIRED: u16 = 3028;
const GOTO_TLS: u32 = 0x4000_0000;

/// The result of a handshake that the server cannot perform.
const REFUSED: Result<(), rustls::Error> =
    Err(rustls::Error::AlertReceived(rustls::AlertDescription::InternalError));

/// Level of an alert.
const FATAL: u8 = 2;

/// A certificate for `localhost` that clients trust.
struct Trust {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

fn trust() -> Trust {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = made.signing_key.serialize_der().try_into().unwrap();
    let server = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    let server = server.unwrap().with_no_client_auth();
    let server = server.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let client = client.with_root_certificates(roots).with_no_client_auth();
    Trust { server: Arc::new(server), client: Arc::new(client) }
}

fn wish(trust: &Trust, all: TlsOperations, limit: Duration) -> Wish {
    let mut wish = Wish::default();
    let pool = Pool::new("tls", 2);
    let run = move |owner, step| pool.run(owner, step).is_ok();
    wish.config.tls = Some(Arc::new(TlsServer::new(trust.server.clone(), run, limit)));
    wish.config.settings.tls = Some(TlsRequirements { all, ..TlsRequirements::default() });
    wish
}

fn server(trust: &Trust, all: TlsOperations) -> Server {
    Server::with(wish(trust, all, PATIENCE))
}

fn protocol(flags: u8, expect: u8) -> Raw {
    Raw::new(PROTOCOL).i32(4, 0x520).u8(8, flags).u8(9, expect)
}

/// Sends kXR_protocol. Reports whether the connection switches to TLS.
fn negotiate(client: &mut Client, flags: u8, expect: u8) -> bool {
    let reply = client.call(&protocol(flags, expect));
    u32::from_be_bytes(reply.body[4..8].try_into().unwrap()) & GOTO_TLS != 0
}

/// Returns a connection that is encrypted before its login.
fn encrypted(server: &Server, trust: &Trust) -> Client {
    let mut client = Client::greeted(server.address);
    assert!(negotiate(&mut client, WANTS, EXPECT_LOGIN));
    client.encrypt(&trust.client).unwrap();
    client
}

fn logged_in(mut client: Client) -> Client {
    let reply = client.call(&login_request());
    assert_eq!(reply.status, OK, "{reply:?}");
    client.session = reply.body.try_into().unwrap();
    client
}

#[test]
fn data_of_all_sizes_passes_through_an_encrypted_connection() {
    let trust = trust();
    let server = server(&trust, TlsOperations::default());
    let content = pattern(3_000_000);
    server.put("/a", &content);
    let mut client = logged_in(encrypted(&server, &trust));
    let handle = client.open("/a", READING);
    for (offset, length) in [(0, 1), (5, 16_384), (1, 16_385), (0, 3_000_000), (2_999_999, 10), (7, 300_000)]
    {
        let end = content.len().min(offset + length);
        assert_eq!(client.read(handle, offset, length), &content[offset..end], "{offset} {length}");
    }
    // Many requests whose replies do not fit into the socket while nothing is read.
    for _ in 0..20 {
        client.send(&support::client::read(handle, 0, 1_000_000));
    }
    for _ in 0..20 {
        assert_eq!(client.whole(), &content[..1_000_000]);
    }
    let handle = client.open("/b", CREATING);
    client.ok(&write(handle, 0, &content));
    client.ok(&write(handle, 10, b"abc"));
    assert_eq!(client.read(handle, 8, 6), [&content[8..10], b"abc", &content[13..14]].concat());
    assert_eq!(server.content("/b")[13..], content[13..]);
    // A connection in clear text on the same port.
    let mut plain = server.client();
    let handle = plain.open("/a", READING);
    assert_eq!(plain.read(handle, 0, 100_000), &content[..100_000]);
}

#[test]
fn a_session_is_encrypted_after_its_login() {
    let trust = trust();
    let server = server(&trust, TlsOperations { session: true, ..TlsOperations::default() });
    server.put("/a", b"content");
    let mut client = Client::greeted(server.address);
    assert!(!negotiate(&mut client, CAPABLE, EXPECT_LOGIN));
    let mut client = logged_in(client);
    client.encrypt(&trust.client).unwrap();
    let handle = client.open("/a", READING);
    assert_eq!(client.read(handle, 0, 10), b"content");
    // A client that cannot is refused after its login.
    let mut plain = logged_in(Client::greeted(server.address));
    assert_eq!(plain.reply().error().0, TLS_REQUIRED);
    plain.is_closed();
}

#[test]
fn bound_connections_are_encrypted_if_data_must_be() {
    let trust = trust();
    let server = server(&trust, TlsOperations { login: true, data: true, ..TlsOperations::default() });
    let content = pattern(500_000);
    server.put("/a", &content);
    let mut main = logged_in(encrypted(&server, &trust));
    let handle = main.open("/a", READING);
    // In clear text.
    let mut plain = Client::greeted(server.address);
    let reply = plain.call(&Raw::new(BIND).at(4, &main.session));
    assert_eq!(reply.error(), (TLS_REQUIRED, "bind requires TLS".to_owned()));
    for _ in 0..3 {
        let mut bound = Client::greeted(server.address);
        assert!(negotiate(&mut bound, CAPABLE, EXPECT_BIND));
        bound.encrypt(&trust.client).unwrap();
        let path = bound.call(&Raw::new(BIND).at(4, &main.session)).body[0];
        // The data arrives on the bound connection.
        let request = support::client::read(handle, 3, 400_000);
        main.send(&request.payload(&[path, 0, 0, 0, 0, 0, 0, 0]));
        assert_eq!(bound.whole(), &content[3..400_003]);
        // And leaves through it.
        let written = main.open("/b", CREATING);
        main.send(&write(written, 0, &[]).u8(16, path).dlen(300_000));
        bound.send_bytes(&content[..300_000]);
        assert_eq!(bound.reply().status, OK);
        assert_eq!(server.content("/b"), &content[..300_000]);
        main.ok(&Raw::new(CLOSE).handle(written));
    }
}

#[test]
fn other_bytes_than_a_handshake_end_the_connection() {
    let trust = trust();
    let server = server(&trust, TlsOperations::default());
    let request = login_request().bytes();
    let too_long = [0x16, 3, 1, 0xff, 0xff, 1, 2, 3];
    let empty_records: Vec<u8> = [0x16, 3, 1, 0, 0].repeat(100);
    let no_hello = [&[0x16, 3, 1, 0, 100][..], &[7; 100]].concat();
    let other: [&[u8]; 6] =
        [b"GET / HTTP/1.1\r\n\r\n", &request, &too_long, &empty_records, &no_hello, &[0; 64]];
    for bytes in other {
        // Together with the request, and after the reply.
        for pipelined in [true, false] {
            let mut client = Client::connect(server.address);
            let ask = protocol(WANTS, EXPECT_LOGIN).bytes();
            if pipelined {
                client.send_bytes(&[&HANDSHAKE[..], &ask, bytes].concat());
            } else {
                client.send_bytes(&[&HANDSHAKE[..], &ask].concat());
            }
            assert_eq!(client.bytes(16).len(), 16);
            assert_eq!(client.reply().status, OK);
            if !pipelined {
                client.send_bytes(bytes);
            }
            let mut rest = Vec::new();
            client.stream.read_to_end(&mut rest).unwrap();
            // The alert that reports the reason, and nothing else. The library sends none for a message
            // that it does not take because of its length.
            let is_alert = matches!(rest[..], [0x15, 3, _, 0, 2, FATAL, _]);
            assert!(is_alert || (bytes == no_hello && rest.is_empty()), "{bytes:?}: {rest:?}");
        }
    }
    server.until_sessions(0);
    assert_eq!(server.totals().failed_handshakes, 12);
    logged_in(encrypted(&server, &trust));
}

#[test]
fn stalled_handshakes_end_by_themselves_and_delay_nobody() {
    const STALLED: usize = 300;
    let trust = trust();
    let server = Server::with(wish(&trust, TlsOperations::default(), Duration::from_secs(2)));
    server.put("/a", b"content");
    // Half of them sent nothing, the others part of a record.
    let stalled: Vec<Client> = (0..STALLED)
        .map(|number| {
            let mut client = Client::greeted(server.address);
            assert!(negotiate(&mut client, WANTS, EXPECT_LOGIN));
            if number % 2 == 0 {
                client.send_bytes(&[0x16, 3, 1, 1, 0, 1, 0, 0, 0xfc]);
            }
            client
        })
        .collect();
    // All handshakes are in progress, or the first have ended; others are served.
    let mut client = logged_in(encrypted(&server, &trust));
    let handle = client.open("/a", READING);
    assert_eq!(client.read(handle, 0, 10), b"content");
    server.until_sessions(1);
    assert_eq!(server.totals().failed_handshakes, STALLED as u64);
    drop(stalled);
}

#[test]
fn a_handshake_without_a_free_thread_is_refused() {
    let trust = trust();
    let mut wish = wish(&trust, TlsOperations::default(), PATIENCE);
    let never = |_, _: Box<dyn FnOnce() + Send>| false;
    wish.config.tls = Some(Arc::new(TlsServer::new(trust.server.clone(), never, PATIENCE)));
    let server = Server::with(wish);
    let mut client = Client::greeted(server.address);
    assert!(negotiate(&mut client, WANTS, EXPECT_LOGIN));
    assert_eq!(client.encrypt(&trust.client), REFUSED);
    server.until_sessions(0);
}

#[test]
fn a_new_certificate_applies_to_new_connections() {
    let (old, new) = (trust(), trust());
    let mut wish = wish(&old, TlsOperations::default(), PATIENCE);
    let pool = Pool::new("tls", 1);
    let run = move |owner, step| pool.run(owner, step).is_ok();
    let tls = Arc::new(TlsServer::new(old.server.clone(), run, PATIENCE));
    wish.config.tls = Some(tls.clone());
    let server = Server::with(wish);
    server.put("/a", b"content");
    let mut before = logged_in(encrypted(&server, &old));
    tls.replace(new.server.clone());
    let handle = before.open("/a", READING);
    assert_eq!(before.read(handle, 0, 10), b"content");
    logged_in(encrypted(&server, &new));
    let mut client = Client::greeted(server.address);
    assert!(negotiate(&mut client, WANTS, EXPECT_LOGIN));
    assert!(matches!(client.encrypt(&old.client), Err(rustls::Error::InvalidCertificate(_))));
}

#[test]
fn damaged_and_truncated_records_end_the_connection_and_change_nothing() {
    let trust = trust();
    let server = server(&trust, TlsOperations::default());
    type Damage = fn(&mut Vec<u8>);
    let cases: [(&str, Damage, &[u8]); 4] = [
        ("whole", |_| (), b"content"),
        ("truncated", |record| record.truncate(record.len() - 1), b""),
        ("changed", |record| record[8] ^= 1, b""),
        ("the last byte changed", |record| *record.last_mut().unwrap() ^= 1, b""),
    ];
    for (name, damage, written) in cases {
        let mut client = logged_in(encrypted(&server, &trust));
        let path = format!("/{}", name.len());
        let handle = client.open(&path, CREATING);
        let mut record = client.record(&write(handle, 0, b"content").bytes());
        assert!(!record.windows(7).any(|window| window == b"content"), "it is encrypted");
        damage(&mut record);
        client.stream.write_all(&record).unwrap();
        if name == "truncated" {
            client.stream.shutdown(std::net::Shutdown::Write).unwrap();
            assert!(client.try_reply().is_none(), "{name}");
        } else if written.is_empty() {
            assert_eq!(client.alert(), rustls::AlertDescription::BadRecordMac, "{name}");
        } else {
            assert_eq!(client.reply().status, OK, "{name}");
        }
        drop(client);
        server.until_sessions(0);
        assert_eq!(server.content(&path), written, "{name}");
    }
}

/// A client may announce its end and leave the connection open.
#[test]
fn an_announced_end_of_the_data_ends_the_session() {
    let trust = trust();
    let server = server(&trust, TlsOperations::default());
    let mut client = logged_in(encrypted(&server, &trust));
    client.announce_end();
    server.until_sessions(0);
    assert!(client.try_reply().is_none());
}

#[test]
fn the_memory_of_encryption_is_charged_to_the_session() {
    const BOUND: usize = 12;
    let trust = trust();
    let server = server(&trust, TlsOperations::default());
    server.put("/a", &pattern(1000));
    let mut main = logged_in(encrypted(&server, &trust));
    let handle = main.open("/a", READING);
    let mut bound: Vec<Client> = (0..BOUND)
        .map(|_| {
            let mut client = Client::greeted(server.address);
            assert!(negotiate(&mut client, WANTS, EXPECT_BIND));
            client.encrypt(&trust.client).unwrap();
            assert_eq!(client.call(&Raw::new(BIND).at(4, &main.session)).status, OK);
            client
        })
        .collect();
    assert_eq!(main.read(handle, 0, 10).len(), 10);
    until("idle connections hold no memory", || server.door.memory_claimed() == 0);
    // A record that is not complete, on each connection: more than a session has for free.
    let mut ends = Vec::new();
    for client in &mut bound {
        let record = client.record(&[0; 16 * 1024]);
        client.stream.write_all(&record[..record.len() - 1]).unwrap();
        ends.push(record[record.len() - 1]);
    }
    until("the parts of records are charged", || server.door.memory_claimed() > 0);
    let claimed = server.door.memory_claimed();
    assert!(claimed <= BOUND * net::HELD_BYTES_MAX, "{claimed}");
    assert_eq!(main.read(handle, 0, 10).len(), 10);
    drop(bound);
    until("the memory has returned", || server.door.memory_claimed() == 0);
}

/// Returns a connection from another address of this machine.
fn connected_from(own: &str, server: std::net::SocketAddr) -> Client {
    let mut client = Client::connect(server);
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&std::net::SocketAddr::new(own.parse().unwrap(), 0).into()).unwrap();
    socket.connect(&server.into()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    client.stream = socket.into();
    client.send_bytes(&HANDSHAKE);
    assert_eq!(client.bytes(16).len(), 16);
    client
}

#[test]
fn handshakes_count_by_host_as_logins_do() {
    let trust = trust();
    let mut wish = wish(&trust, TlsOperations { session: true, ..TlsOperations::default() }, PATIENCE);
    let (pool, owners) = (Pool::new("tls", 2), Arc::new(Mutex::new(Vec::new())));
    let seen = owners.clone();
    let run = move |owner, step| {
        seen.lock().unwrap().push(owner);
        pool.run(owner, step).is_ok()
    };
    wish.config.tls = Some(Arc::new(TlsServer::new(trust.server.clone(), run, PATIENCE)));
    let logins = wish.config.settings.pending_logins.clone();
    let server = Server::with(wish);
    let host = Some("127.0.0.1".parse().unwrap());
    let mut others: Vec<_> = (0..session::PENDING_LOGINS_PER_HOST_MAX).map(|_| logins.enter(host)).collect();
    // Before the login, and after it.
    for after_login in [false, true] {
        let mut client = Client::greeted(server.address);
        assert_eq!(
            negotiate(&mut client, if after_login { CAPABLE } else { WANTS }, EXPECT_LOGIN),
            !after_login
        );
        if after_login {
            client = logged_in(client);
        }
        assert_eq!(client.encrypt(&trust.client), REFUSED);
    }
    assert_eq!(owners.lock().unwrap().len(), 0, "no thread works for a host at its limit");
    let mut client = connected_from("127.0.0.2", server.address);
    assert!(negotiate(&mut client, WANTS, EXPECT_LOGIN));
    client.encrypt(&trust.client).unwrap();
    logged_in(client);
    let other = owners.lock().unwrap().drain(..).next().unwrap();
    // As many as the limit are possible, and they share the threads as one.
    let owner = others.pop().unwrap().unwrap().owner();
    let client = encrypted(&server, &trust);
    assert!(owner != other && owners.lock().unwrap().iter().all(|seen| *seen == owner));
    let counted = others.len();
    until("a handshake counts until it ends", || logins.count() == counted);
    drop(others);
    logged_in(client);
    assert_eq!(logins.count(), 0);
    assert_eq!(server.totals().failed_handshakes, 2);
}
