//! Tests of connection setup.

use super::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wire::Encode;
use wire::xroot::StreamId;
use wire::xroot::header::HandshakeReply;
use wire::xroot::reply;

fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn ordered(texts: &[&str], change: impl FnOnce(&mut Settings)) -> Vec<String> {
    let mut settings = Settings::default();
    settings.ip_no_shuffle = 1;
    change(&mut settings);
    let ordered = order(addresses(texts), &settings, &mut SplitMix64::new(1));
    ordered.iter().map(ToString::to_string).collect()
}

#[test]
fn address_families_alternate() {
    let all = ["1.1.1.1:1", "1.1.1.2:1", "1.1.1.3:1", "[::1]:1", "1.1.1.1:1"];
    assert_eq!(ordered(&all, |_| ()), ["[::1]:1", "1.1.1.1:1", "1.1.1.2:1", "1.1.1.3:1"]);
    let ipv4_first = ordered(&all, |settings| settings.prefer_ipv4 = 1);
    assert_eq!(ipv4_first, ["1.1.1.1:1", "[::1]:1", "1.1.1.2:1", "1.1.1.3:1"]);
    assert_eq!(ordered(&all, |settings| settings.network_stack = "IPv6".into()), ["[::1]:1"]);
    assert_eq!(ordered(&all, |settings| settings.network_stack = "IPv4".into()).len(), 3);
}

/// Starts a server that accepts each login and then stays silent.
async fn server() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut out = HandshakeReply { protover: 0x520, role: HandshakeReply::DATA_SERVER }.encoded();
            let mut body = Vec::new();
            let flags = ServerFlags::IS_SERVER;
            ProtocolReply { pval: 0x520, flags, bind_interfaces: None, security: None }.encode(&mut body);
            reply::ok(&mut out, StreamId::default(), &body);
            reply::ok(&mut out, StreamId::default(), &[7; 16]);
            stream.write_all(&out).await.unwrap();
            tokio::spawn(async move { stream.read_to_end(&mut Vec::new()).await });
        }
    });
    address
}

fn login(url: &crate::url::Url) -> LoginRequest {
    let choice = crate::credentials::CredentialChoice::of(url);
    LoginRequest::new(
        &Login::of_process("test"),
        &crate::Credentials::none(),
        &choice,
        url,
        &TlsTrust::default(),
    )
}

#[test]
fn a_refusal_after_the_login_is_reported_as_such() {
    let mut after = Vec::new();
    let code = wire::xroot::ErrorCode::TLS_REQUIRED;
    reply::error(&mut after, StreamId::default(), code, "session requires TLS support");
    let text = unasked(&after).to_string();
    assert!(text.contains("refused kXR_login") && text.contains("session requires TLS support"), "{text}");
    let other = unasked(&after[..7]).to_string();
    assert!(other.contains("does not keep to the protocol"), "{other}");
}

#[tokio::test]
async fn dead_addresses_only_delay_the_connection() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = listener.local_addr().unwrap();
    drop(listener);
    let good = server().await;
    // An address without a route, one of a family that may be broken, and one without a
    // listener.
    let all = [addresses(&["192.0.2.1:9", "[2001:db8::1]:9"]), vec![closed, good]].concat();
    let until = Instant::now() + Duration::from_secs(60);
    let url = crate::url::Url::parse("root://localhost").unwrap();
    let login = login(&url);
    let made = connect_any(all, &login, &Settings::default(), until).await.unwrap();
    assert_eq!((made.peer, made.machine.is_ready()), (good, true));
}

#[tokio::test]
async fn a_silent_address_is_skipped() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let good = server().await;
    let all = vec![silent.local_addr().unwrap(), good];
    let until = Instant::now() + Duration::from_secs(2);
    let url = crate::url::Url::parse("root://localhost").unwrap();
    let login = login(&url);
    let made = connect_any(all, &login, &Settings::default(), until).await.unwrap();
    assert_eq!(made.peer, good);
}

#[tokio::test]
async fn a_lack_of_this_machine_is_not_a_failure_of_the_server() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = listener.local_addr().unwrap();
    drop(listener);
    // The broadcast address of no network, to which no stream socket connects.
    let local = addresses(&["255.255.255.255:9"]);
    let until = Instant::now() + Duration::from_secs(60);
    let login = login(&crate::url::Url::parse("root://localhost").unwrap());
    let failed = connect_any(local.clone(), &login, &Settings::default(), until).await.unwrap_err();
    assert!(matches!(failed, Cause::NoResources(_)), "{failed}");
    let both = [local, vec![closed]].concat();
    let failed = connect_any(both, &login, &Settings::default(), until).await.unwrap_err();
    assert!(matches!(failed, Cause::Unreachable(_)), "{failed}");
}

#[tokio::test]
async fn probes_also_bound_the_time_without_acknowledgements() {
    let timeout = |keep_alive| {
        let mut settings = Settings::default();
        settings.tcp_keep_alive = keep_alive;
        (settings.tcp_keep_alive_time, settings.tcp_keep_alive_interval) = (20, 10);
        settings.tcp_keep_alive_probes = 4;
        let socket = socket("127.0.0.1:1".parse().unwrap(), &settings).unwrap();
        socket2::SockRef::from(&socket).tcp_user_timeout().unwrap()
    };
    assert_eq!((timeout(0), timeout(1)), (None, Some(Duration::from_secs(60))));
}

#[test]
fn addresses_are_shuffled_and_limited() {
    let many: Vec<String> = (0..100).map(|last| format!("1.1.1.{last}:1")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let shuffled = ordered(&many, |settings| settings.ip_no_shuffle = 0);
    assert_eq!(shuffled.len(), ADDRESSES_MAX);
    assert_ne!(shuffled, many[..ADDRESSES_MAX]);
}
