//! Faults of servers and networks, played by a scripted server.
//!
//! No operation may hang, and no hostile input may be trusted.

#![allow(clippy::unwrap_used)]

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use client::{AddressFilter, Cause, Client, Credentials, OpenWith, Settings, Url};
use support::{Act, Fake, MANAGER, PLAIN, SERVER, client, close, ok, opened, send, silence, stat_text};
use tokio::net::TcpListener;
use tokio::time::Instant;
use wire::FixedLayout;
use wire::xroot::codes::Status;
use wire::xroot::reply::{self, Redirect};
use wire::xroot::{ErrorCode, RequestCode, ResponseHeader, StreamId};

/// Timeout in virtual time, longer than each successful operation of these tests.
const PATIENCE: Duration = Duration::from_secs(400);

fn says_missing(asked: &support::Asked) -> Act {
    send(|out| reply::error(out, asked.header.streamid, ErrorCode::NOT_FOUND, "not here"))
}

fn redirect_to(asked: &support::Asked, host: &str, port: u16) -> Act {
    send(|out| reply::redirect(out, asked.header.streamid, &Redirect::to_host(host.as_bytes(), port)))
}

#[tokio::test(start_paused = true)]
async fn a_refused_connection_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url =
        Url::parse(&format!("root://me:secret@{}//a?authz=secret", listener.local_addr().unwrap())).unwrap();
    drop(listener);
    let error = client(&[]).file_system(&url).stat("/a").await.unwrap_err();
    assert!(matches!(error.cause(), Cause::Unreachable(_)), "{error}");
    let text = error.to_string();
    assert!(text.contains("refused") && text.contains("check that the server runs"), "{text}");
    assert!(!text.contains("secret"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_server_without_a_login_reply_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("root://{}//a", listener.local_addr().unwrap())).unwrap();
    let begun = Instant::now();
    let error = client(&[]).file_system(&url).stat("/a").await.unwrap_err();
    assert!(error.to_string().contains("said nothing"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_times_out() {
    let server = Fake::start(SERVER, |_| silence()).await;
    let begun = Instant::now();
    let error = client(&[]).file_system(&server.url("/")).stat("/a").await.unwrap_err();
    assert!(matches!(error.cause(), Cause::Lost(_)), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(150), "{:?}", begun.elapsed());
    assert!(server.count(RequestCode::PING) > 0);
}

#[tokio::test(start_paused = true)]
async fn the_next_host_is_asked_after_the_first_silence() {
    let silent = Fake::start(SERVER, |_| silence()).await;
    let good = Fake::start(SERVER, |asked| ok(asked, &stat_text(7))).await;
    let url = Url::parse(&format!("root://{},{}//a", silent.address, good.address)).unwrap();
    let stat = client(&[]).file_system(&url).stat("/a").await.unwrap();
    assert_eq!((stat.size, silent.count(RequestCode::STAT)), (7, 1));
}

#[tokio::test(start_paused = true)]
async fn the_next_host_is_asked_if_the_balancer_is_silent_or_returns_a_silent_server() {
    let silent = Fake::start(SERVER, |_| silence()).await;
    let port = silent.address.port();
    let balancer = Fake::start(MANAGER, move |asked| redirect_to(asked, "127.0.0.1", port)).await;
    let alive = Fake::start(MANAGER, |asked| match asked.code() {
        RequestCode::PING => ok(asked, b""),
        _ => silence(),
    })
    .await;
    let good = Fake::start(SERVER, |asked| ok(asked, &stat_text(7))).await;
    for (first, asked) in [(&balancer, 2), (&alive, 1)] {
        let url = Url::parse(&format!("root://{},{}//a", first.address, good.address)).unwrap();
        let stat = client(&[]).file_system(&url).stat("/a").await.unwrap();
        assert_eq!((stat.size, first.count(RequestCode::STAT)), (7, asked));
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_reply_of_a_live_server_times_out() {
    let server = Fake::start(SERVER, |asked| match asked.code() {
        RequestCode::PING => ok(asked, b""),
        _ if asked.text() == "/good" => ok(asked, &stat_text(1)),
        _ => silence(),
    })
    .await;
    let files = client(&[]).file_system(&server.url("/"));
    let begun = Instant::now();
    let error = files.stat("/never").await.unwrap_err();
    assert!(matches!(error.cause(), Cause::TimedOut(_)), "{error}");
    assert!(begun.elapsed() <= Duration::from_secs(61));
    // The connection is still alive.
    files.stat("/good").await.unwrap();
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_requested_wait_extends_the_deadline() {
    let mut pings = 0;
    let mut first = None;
    let server = Fake::start(SERVER, move |asked| {
        if asked.code() == RequestCode::PING {
            pings += 1;
            let mut out = Vec::new();
            reply::ok(&mut out, asked.header.streamid, b"");
            // About 200 s later.
            if pings == 14 {
                reply::attn::deferred(&mut out, |out| reply::ok(out, first.unwrap(), &stat_text(9)));
            }
            return Act::Send(out);
        }
        first = Some(asked.header.streamid);
        send(|out| reply::waitresp(out, asked.header.streamid, 600, "staging"))
    })
    .await;
    let stat = client(&[]).file_system(&server.url("/")).stat("/a").await.unwrap();
    assert_eq!(stat.size, 9);
}

#[tokio::test(start_paused = true)]
async fn waits_end_at_the_deadline_of_the_operation() {
    let server = Fake::start(SERVER, |asked| {
        send(|out| reply::wait(out, asked.header.streamid, 7, "staging from tape"))
    })
    .await;
    let begun = Instant::now();
    let files = client(&[("RequestTimeout", "100")]).file_system(&server.url("/"));
    let error = files.stat("/a").await.unwrap_err();
    let text = "staging from tape".to_owned();
    assert_eq!(error.cause(), &Cause::Expired { seconds: 7, text });
    assert!(begun.elapsed() > Duration::from_secs(90) && begun.elapsed() <= Duration::from_secs(100));
}

#[tokio::test(start_paused = true)]
async fn servers_of_a_redirect_loop_are_named() {
    let port = Arc::new(AtomicU32::new(0));
    let other = port.clone();
    let one = Fake::start(MANAGER, move |asked| {
        redirect_to(asked, "127.0.0.1", u16::try_from(other.load(Ordering::SeqCst)).unwrap())
    })
    .await;
    let back = one.address.port();
    let two = Fake::start(MANAGER, move |asked| redirect_to(asked, "127.0.0.1", back)).await;
    port.store(two.address.port().into(), Ordering::SeqCst);
    let error = client(&[]).file_system(&one.url("/")).stat("/a").await.unwrap_err();
    assert_eq!(error.cause(), &Cause::RedirectLoop);
    assert!(error.failure().hops.len() >= 2);
    assert!(error.failure().hops.contains(&two.address.to_string()), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_address_filter_can_replace_the_address() {
    let server = Fake::start(SERVER, |asked| ok(asked, &stat_text(7))).await;
    let filter = AddressFilter::new(|_, address| match address.to_string().as_str() {
        "127.0.0.2" => Ok(vec!["127.0.0.1".parse().unwrap()]),
        other => Err(format!("{other} was asked for")),
    });
    let client = Client::for_server(Settings::default(), "test", filter, None, Credentials::none());
    let url = Url::parse(&server.url("/").to_string().replace("127.0.0.1", "127.0.0.2")).unwrap();
    assert_eq!(client.file_system(&url).stat("/a").await.unwrap().size, 7);
}

#[tokio::test(start_paused = true)]
async fn a_filtered_redirect_fails_with_the_reason() {
    let forbidden = TcpListener::bind("127.0.0.2:0").await.unwrap();
    let port = forbidden.local_addr().unwrap().port();
    // This manager redirects to the same server on each request.
    let server = Fake::start(MANAGER, move |asked| redirect_to(asked, "127.0.0.2", port)).await;
    let filter = AddressFilter::new(|_, address| match address.to_string().as_str() {
        "127.0.0.2" => Err("127.0.0.2 is forbidden".to_owned()),
        _ => Ok(vec![address]),
    });
    let client = Client::for_server(Settings::default(), "test", filter, None, Credentials::none());
    let error = client.file_system(&server.url("/")).stat("/a").await.unwrap_err();
    assert_eq!(error.cause(), &Cause::NotAllowed("127.0.0.2 is forbidden".to_owned()));
    assert_eq!(error.cause().to_string(), "no address that is allowed: 127.0.0.2 is forbidden");
    let accepted = tokio::time::timeout(Duration::ZERO, forbidden.accept()).await;
    assert!(accepted.is_err(), "a connection was made");
}

#[tokio::test(start_paused = true)]
async fn the_number_of_redirects_is_limited() {
    // Each redirect leads to the same server with another cgi.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut count = 0;
    let server = Fake::listening(listener, MANAGER, move |asked| {
        count += 1;
        redirect_to(asked, &format!("127.0.0.1?n={count}"), port)
    });
    let files = client(&[("RedirectLimit", "5")]).file_system(&server.url("/"));
    let error = files.stat("/a").await.unwrap_err();
    assert_eq!(error.cause(), &Cause::RedirectLimit(5));
    assert_eq!(server.count(RequestCode::STAT), 6);
}

#[tokio::test(start_paused = true)]
async fn the_balancer_receives_tried_servers_and_reasons() {
    let bad = Fake::start(SERVER, |asked| {
        send(|out| reply::error(out, asked.header.streamid, ErrorCode::IO_ERROR, "disk"))
    })
    .await;
    let good = Fake::start(SERVER, |asked| ok(asked, &stat_text(3))).await;
    let (first, second) = (bad.address.port(), good.address.port());
    let manager = Fake::start(MANAGER, move |asked| {
        redirect_to(asked, "127.0.0.1", if asked.text().contains("tried=") { second } else { first })
    })
    .await;
    let files = client(&[]).file_system(&manager.url("/"));
    assert_eq!(files.stat("/a").await.unwrap().size, 3);
    assert_eq!(manager.texts(RequestCode::STAT), ["/a", "/a?tried=127.0.0.1&triedrc=ioerr"]);
    // A dead server is left in the same way. A failure that the balancer cannot resolve is
    // reported.
    let address = good.stop().await;
    let error = files.stat("/a").await.unwrap_err();
    assert!(error.failure().hops.len() >= 2, "{error} {address}");
}

#[tokio::test(start_paused = true)]
async fn garbage_ends_only_the_connection() {
    let frames: [Vec<u8>; 4] = [
        // A reply to a request that was not sent.
        frame([9, 9], Status::OK, 0),
        // A negative length.
        frame([0, 1], Status::OK, -5),
        // More data than was requested.
        [frame([0, 1], Status::OK, 1 << 30), vec![0; 100_000]].concat(),
        // An unknown status.
        frame([0, 1], Status(4999), 0),
    ];
    for garbage in frames {
        let broken = garbage.clone();
        let server = Fake::start(PLAIN, move |asked| match asked.code() {
            RequestCode::OPEN => opened(asked, 1, 10),
            RequestCode::STAT => ok(asked, &stat_text(1)),
            RequestCode::READ => Act::Send(broken.clone()),
            _ => ok(asked, b""),
        })
        .await;
        let client = client(&[("ReadRecovery", "false")]);
        let file = client.open(&server.url("/a"), &OpenWith::read()).await.unwrap();
        let error = file.read(0, 10).await.unwrap_err();
        assert!(
            matches!(error.cause(), Cause::Connection(_) | Cause::Lost(_)),
            "{error} after {:?}",
            garbage.get(..8)
        );
        assert_eq!(client.file_system(&server.url("/")).stat("/a").await.unwrap().size, 1);
    }
}

fn frame(streamid: [u8; 2], status: Status, dlen: i32) -> Vec<u8> {
    ResponseHeader { streamid: StreamId(streamid), status, dlen }.to_bytes().to_vec()
}

#[tokio::test(start_paused = true)]
async fn a_reader_continues_at_another_server() {
    let dead = Fake::start(PLAIN, |asked| match asked.code() {
        RequestCode::OPEN => opened(asked, 1, 8),
        RequestCode::READ if asked.header.body[11] == 0 => ok(asked, b"abcd"),
        _ => close(),
    })
    .await;
    let good = Fake::start(PLAIN, |asked| match asked.code() {
        RequestCode::OPEN => opened(asked, 2, 8),
        RequestCode::READ => {
            assert_eq!(asked.header.body[0], 2);
            ok(asked, b"efgh")
        }
        _ => ok(asked, b""),
    })
    .await;
    let (first, second) = (dead.address.port(), good.address.port());
    let manager = Fake::start(MANAGER, move |asked| {
        redirect_to(asked, "127.0.0.1", if asked.text().contains("tried=") { second } else { first })
    })
    .await;
    let file = client(&[]).open(&manager.url("/a?x=1"), &OpenWith::read()).await.unwrap();
    assert_eq!(file.read(0, 4).await.unwrap(), &b"abcd"[..]);
    assert_eq!(file.read(4, 4).await.unwrap(), &b"efgh"[..]);
    assert_eq!((file.recoveries(), file.location().port), (1, second));
    let opens = manager.asked.lock().unwrap();
    assert_eq!(opens[1].text(), "/a?tried=127.0.0.1&triedrc=srverr&x=1");
    assert_eq!(opens[1].header.body[2..4], [0x04, 0x10]);
}

#[tokio::test(start_paused = true)]
async fn a_changed_file_is_not_reopened() {
    let mut opens = 0;
    let server = Fake::start(PLAIN, move |asked| match asked.code() {
        RequestCode::OPEN => {
            opens += 1;
            opened(asked, 1, if opens == 1 { 8 } else { 7 })
        }
        RequestCode::READ => close(),
        _ => ok(asked, b""),
    })
    .await;
    let file = client(&[]).open(&server.url("/a"), &OpenWith::read()).await.unwrap();
    let error = file.read(0, 4).await.unwrap_err();
    assert!(matches!(error.cause(), Cause::Changed(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_writer_reconnects_and_ends_its_old_session() {
    let died = Arc::new(AtomicBool::new(false));
    let dies = died.clone();
    let server = Fake::start(PLAIN, move |asked| match asked.code() {
        RequestCode::OPEN => opened(asked, 1, if dies.load(Ordering::SeqCst) { 4 } else { 0 }),
        RequestCode::WRITE if asked.text() == "efgh" && !dies.swap(true, Ordering::SeqCst) => close(),
        _ => ok(asked, b""),
    })
    .await;
    let with = OpenWith::create().persist_on_successful_close();
    let file = client(&[]).open(&server.url("/a"), &with).await.unwrap();
    file.write(0, &b"abcd"[..]).await.unwrap();
    file.write(4, &b"efgh"[..]).await.unwrap();
    file.close().await.unwrap();
    assert!(died.load(Ordering::SeqCst));
    let asked = server.asked.lock().unwrap();
    let codes: Vec<_> = asked.iter().map(|asked| (asked.connection, asked.code())).collect();
    let expected = [
        (0, RequestCode::OPEN),
        (0, RequestCode::WRITE),
        (0, RequestCode::WRITE),
        (1, RequestCode::ENDSESS),
        (1, RequestCode::OPEN),
        (1, RequestCode::WRITE),
        (1, RequestCode::CLOSE),
    ];
    assert_eq!(codes, expected);
    assert_eq!(asked[3].header.body, [1; 16]);
    assert_eq!(asked[4].header.body[2..4], [0x14, 0x20]);
}

#[tokio::test(start_paused = true)]
async fn lost_acknowledged_writes_are_an_error() {
    let server = Fake::start(PLAIN, |asked| match asked.code() {
        RequestCode::OPEN => opened(asked, 1, 0),
        RequestCode::SYNC => close(),
        _ => ok(asked, b""),
    })
    .await;
    let file = client(&[]).open(&server.url("/a"), &OpenWith::create()).await.unwrap();
    file.write(0, &b"abcd"[..]).await.unwrap();
    let error = file.sync().await.unwrap_err();
    assert!(matches!(error.cause(), Cause::Changed(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn one_host_of_several_is_enough() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dead = listener.local_addr().unwrap();
    drop(listener);
    let good = Fake::start(SERVER, |asked| ok(asked, &stat_text(3))).await;
    let url = Url::parse(&format!("root://{dead},{}//a", good.address)).unwrap();
    assert_eq!(client(&[]).file_system(&url).stat("/a").await.unwrap().size, 3);
}

/// Builds the URL of a file at several hosts.
fn at_hosts(hosts: &[SocketAddr]) -> Url {
    let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    Url::parse(&format!("root://{}//a", hosts.join(","))).unwrap()
}

#[tokio::test(start_paused = true)]
async fn each_host_of_a_url_gets_its_turn() {
    let good = Fake::start(SERVER, |asked| ok(asked, &stat_text(3))).await;
    let mut closed = Vec::new();
    for _ in 0..20 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        closed.push(listener.local_addr().unwrap());
    }
    let missing = Fake::start(SERVER, says_missing).await;
    let lost = Fake::start(SERVER, |_| close()).await;
    for bad in [&closed[..], &[missing.address; 20], &[lost.address; 20]] {
        let url = at_hosts(&[bad, &[good.address]].concat());
        assert_eq!(client(&[]).file_system(&url).stat("/a").await.unwrap().size, 3);
    }
}

#[tokio::test(start_paused = true)]
async fn hosts_without_a_login_reply_leave_time_for_the_others() {
    let good = Fake::start(SERVER, |asked| ok(asked, &stat_text(3))).await;
    let mut silent = Vec::new();
    for _ in 0..9 {
        silent.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
    }
    let mut hosts: Vec<_> = silent.iter().map(|listener| listener.local_addr().unwrap()).collect();
    hosts.push(good.address);
    // Two rounds of 10 s at each would take 180 s.
    let files = client(&[("RequestTimeout", "60")]).file_system(&at_hosts(&hosts));
    assert_eq!(files.stat("/a").await.unwrap().size, 3);
}

#[tokio::test(start_paused = true)]
async fn a_manager_whose_servers_fail_is_followed_by_the_next_host() {
    let good = Fake::start(SERVER, |asked| ok(asked, &stat_text(3))).await;
    let mut lost = Vec::new();
    for _ in 0..6 {
        lost.push(Fake::start(SERVER, |_| close()).await);
    }
    let ports: Vec<u16> = lost.iter().map(|server| server.address.port()).collect();
    let first = ports[0];
    let mut next = ports.into_iter().cycle();
    let many = Fake::start(MANAGER, move |asked| redirect_to(asked, "127.0.0.1", next.next().unwrap())).await;
    let one = Fake::start(MANAGER, move |asked| redirect_to(asked, "127.0.0.1", first)).await;
    for manager in [many.address, one.address] {
        let url = at_hosts(&[manager, good.address]);
        assert_eq!(client(&[]).file_system(&url).stat("/a").await.unwrap().size, 3);
    }
}

#[tokio::test(start_paused = true)]
async fn unsupported_demands_fail_at_once() {
    for (url, word) in [("https://localhost/a", "not possible over HTTP"), ("/a", "local")] {
        let error = client(&[]).file_system(&Url::parse(url).unwrap()).truncate("/a", 1).await.unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_and_reopened() {
    let server = Fake::start(SERVER, |asked| ok(asked, &stat_text(3))).await;
    let files = client(&[("DataServerTTL", "5")]).file_system(&server.url("/"));
    files.stat("/a").await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    files.stat("/a").await.unwrap();
    assert_eq!(server.connections.load(Ordering::SeqCst), 2);
    let _ = tokio::time::timeout(PATIENCE, server.stop()).await;
}

#[tokio::test(start_paused = true)]
async fn a_restarting_server_is_retried() {
    let serve = |asked: &support::Asked| match asked.code() {
        RequestCode::OPEN => opened(asked, 1, 4),
        RequestCode::READ => ok(asked, b"data"),
        _ => ok(asked, b""),
    };
    let server = Fake::start(PLAIN, serve).await;
    let client = client(&[]);
    let file = client.open(&server.url("/a"), &OpenWith::read()).await.unwrap();
    let address = server.stop().await;
    // A caller with fewer rounds fails first, which does not end the attempts of the reader.
    let url = Url::parse(&format!("root://{address}//a")).unwrap();
    client.file_system(&url).stat("/a").await.unwrap_err();
    let again = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Fake::listening(TcpListener::bind(address).await.unwrap(), PLAIN, serve)
    };
    let (read, _server) = tokio::join!(file.read(0, 4), again);
    assert_eq!(read.unwrap(), &b"data"[..]);
    assert_eq!(file.recoveries(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_dead_server_is_tried_once_for_all_callers() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tries = Arc::new(AtomicU32::new(0));
    let count = tries.clone();
    tokio::spawn(async move {
        loop {
            drop(listener.accept().await.unwrap());
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    let url = Url::parse(&format!("root://{address}//a")).unwrap();
    let client = client(&[]);
    let mut all = tokio::task::JoinSet::new();
    for number in 0..100 {
        let files = client.file_system(&url);
        all.spawn(async move { files.stat(&format!("/{number}")).await.unwrap_err() });
    }
    let errors = all.join_all().await;
    assert!(errors.iter().all(|error| matches!(error.cause(), Cause::Lost(_))), "{}", errors[0]);
    assert_eq!(tries.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_reader_follows_a_redirect_in_mid_file() {
    let other = Fake::start(PLAIN, |asked| match asked.code() {
        RequestCode::OPEN => opened(asked, 2, 4),
        RequestCode::READ => ok(asked, b"data"),
        _ => ok(asked, b""),
    })
    .await;
    let port = other.address.port();
    let draining = Fake::start(PLAIN, move |asked| match asked.code() {
        RequestCode::OPEN => opened(asked, 1, 4),
        RequestCode::READ => redirect_to(asked, "127.0.0.1?tried=me", port),
        _ => ok(asked, b""),
    })
    .await;
    let file = client(&[]).open(&draining.url("/a?x=1"), &OpenWith::read()).await.unwrap();
    assert_eq!(file.read(0, 4).await.unwrap(), &b"data"[..]);
    assert_eq!((file.location().port, file.recoveries()), (port, 1));
    assert_eq!(other.texts(RequestCode::OPEN), ["/a?tried=me&x=1"]);
}

#[tokio::test(start_paused = true)]
async fn a_reader_continues_at_another_host_of_its_url() {
    let dies = Fake::start(PLAIN, |asked| match asked.code() {
        RequestCode::OPEN => opened(asked, 1, 4),
        RequestCode::READ => close(),
        RequestCode::ENDSESS => ok(asked, b""),
        _ => send(|out| reply::error(out, asked.header.streamid, ErrorCode::NOT_FOUND, "not here")),
    })
    .await;
    let good = Fake::start(PLAIN, |asked| match asked.code() {
        RequestCode::OPEN => opened(asked, 2, 4),
        RequestCode::READ => ok(asked, b"data"),
        RequestCode::STAT => ok(asked, &stat_text(4)),
        _ => send(|out| reply::error(out, asked.header.streamid, ErrorCode::NOT_FOUND, "not here either")),
    })
    .await;
    let url = Url::parse(&format!("root://{},{}//a", dies.address, good.address)).unwrap();
    let client = client(&[]);
    let file = client.open(&url, &OpenWith::read()).await.unwrap();
    assert_eq!(file.read(0, 4).await.unwrap(), &b"data"[..]);
    assert_eq!(file.location().port, good.address.port());
    // A missing file on one host may exist on another. Requests that must not be repeated go to one
    // host.
    assert_eq!(client.file_system(&url).stat("/a").await.unwrap().size, 4);
    client.file_system(&url).rm("/a").await.unwrap_err();
    assert_eq!(good.count(RequestCode::RM), 0);
}

#[tokio::test(start_paused = true)]
async fn another_file_of_the_same_name_is_not_a_replica() {
    let dies = Fake::start(PLAIN, |asked| match asked.code() {
        RequestCode::OPEN => opened(asked, 1, 4),
        RequestCode::READ => close(),
        _ => ok(asked, b""),
    })
    .await;
    let other = Fake::start(PLAIN, |asked| match asked.code() {
        RequestCode::OPEN => opened(asked, 1, 5),
        _ => ok(asked, b"wrong"),
    })
    .await;
    let url = Url::parse(&format!("root://{},{}//a", dies.address, other.address)).unwrap();
    let file = client(&[]).open(&url, &OpenWith::read()).await.unwrap();
    let error = file.read(0, 4).await.unwrap_err();
    assert!(matches!(error.cause(), Cause::Changed(_)), "{error}");
}
