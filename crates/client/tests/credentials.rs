//! Credentials are those of the user; servers neither choose them nor lead a server to use its own.

#![allow(clippy::unwrap_used)]

mod support;

use client::{AddressFilter, Cause, Client, ConnectionError, Credentials, Demand, OpenWith, Settings, Url};
use support::{Act, Asked, Fake, MANAGER, PLAIN, ok, opened, send};
use tokio::net::TcpListener;
use wire::xroot::RequestCode;
use wire::xroot::flags::ServerFlags;
use wire::xroot::reply::{self, Redirect};

/// Starts a server with a file that demands authentication.
async fn demanding(security: &'static [u8]) -> Fake {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    Fake::offering(listener, PLAIN, security, |asked| match asked.code() {
        RequestCode::OPEN => opened(asked, 1, 7),
        _ => ok(asked, b""),
    })
}

/// Redirects to a URL.
fn redirect_to(asked: &Asked, url: &str) -> Act {
    send(|out| {
        reply::redirect(out, asked.header.streamid, &Redirect::to_url(url.as_bytes(), ServerFlags::default()))
    })
}

/// Redirects to a server, with cgi.
fn redirect_with(asked: &Asked, host: &str, port: u16) -> Act {
    send(|out| reply::redirect(out, asked.header.streamid, &Redirect::to_host(host.as_bytes(), port)))
}

/// Returns protocol and payload of each request for authentication.
fn authentications(server: &Fake) -> Vec<(String, String)> {
    let asked = server.asked.lock().unwrap();
    let requests = asked.iter().filter(|asked| asked.code() == RequestCode::AUTH);
    let id = |asked: &Asked| String::from_utf8_lossy(&asked.header.body[12..16]).into_owned();
    requests.map(|asked| (id(asked), asked.text())).collect()
}

fn of_server() -> Client {
    let filter = AddressFilter::new(|_, address| Ok(vec![address]));
    Client::for_server(Settings::default(), "test", filter, None, Credentials::none())
}

#[tokio::test(start_paused = true)]
async fn a_client_of_a_server_does_not_authenticate() {
    let victim = demanding(b"&P=sss,0.+13:&P=unix&P=host").await;
    let place = victim.address;
    let source = Fake::start(PLAIN, move |asked| {
        redirect_to(asked, &format!("root://alice@{place}//secret?tpc.key=&tpc.org="))
    })
    .await;
    let error = of_server().open(&source.url("/z?tpc.key=k&tpc.org=o"), &OpenWith::read()).await.unwrap_err();
    let demand = Demand::Authentication("sss, unix, host".to_owned());
    assert_eq!(error.cause(), &Cause::Connection(ConnectionError::Demands(demand)));
    assert!(victim.asked.lock().unwrap().is_empty(), "{:?}", victim.asked);
}

#[tokio::test(start_paused = true)]
async fn a_redirect_of_a_client_of_a_server_changes_only_the_place() {
    let source = Fake::start(PLAIN, |asked| opened(asked, 1, 7)).await;
    let place = source.address;
    for first in [format!("root://alice@{place}//secret?tpc.key=&tpc.dst=h&y=2"), String::new()] {
        let manager = Fake::start(MANAGER, move |asked| match first.as_str() {
            "" => redirect_with(asked, "127.0.0.1?tpc.org=x&tpc.dst=h&y=2", place.port()),
            url => redirect_to(asked, url),
        })
        .await;
        let url = manager.url("/z?tpc.key=k&tpc.org=o");
        of_server().open(&url, &OpenWith::read()).await.unwrap();
        let opens = source.texts(RequestCode::OPEN);
        assert_eq!(opens.last().unwrap(), "/z?tpc.key=k&tpc.org=o&y=2");
    }
}

/// The clock is not paused: a step of an exchange runs on a thread of its own, and a paused clock
/// would jump to the next timeout meanwhile.
#[tokio::test]
async fn a_redirect_does_not_choose_credentials() {
    let server = demanding(b"&P=host&P=unix").await;
    let (place, port) = (server.address, server.address.port());
    for number in 0..2 {
        let manager = Fake::start(MANAGER, move |asked| match number {
            0 => redirect_to(asked, &format!("root://alice@{place}//a?xrd.wantprot=host&xrd.sss=/k")),
            _ => redirect_with(asked, "127.0.0.1?xrd.wantprot=host&xrd.sss=/k", port),
        })
        .await;
        let url = format!("root://{}//a?xrd.wantprot=unix", manager.address);
        let client = Client::with(Settings::default(), Credentials::of_user(), "test");
        client.open(&Url::parse(&url).unwrap(), &OpenWith::read()).await.unwrap();
        let made = authentications(&server);
        assert_eq!(made.len(), number + 1, "one for each client");
        assert!(made.iter().all(|(id, text)| id == "unix" && text.starts_with("unix\0")), "{made:?}");
        assert_eq!(server.texts(RequestCode::OPEN).last().unwrap(), "/a?xrd.wantprot=unix");
    }
}
