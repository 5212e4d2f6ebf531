//! The turns of requests: how long a server may work on a request, as the program learns it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod support;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::{Client, Error, OpenWith, RequestPacing, StatInfo, Url};
use support::{Act, Asked, Fake, SERVER, client, close, ok, opened, silence, stat_text};
use tokio::sync::{Notify, oneshot};
use wire::xroot::RequestCode;
use wire::xroot::flags::OpenOptions;

type Stat = Pin<Box<dyn Future<Output = Result<StatInfo, Error>> + Send>>;

/// Counts the requests that the server works on.
#[derive(Default)]
struct Turn {
    sent: AtomicUsize,
    ended: AtomicUsize,
    /// Notified by each call.
    changed: Notify,
    resumed: AtomicUsize,
    /// The request has no turn for its second attempt.
    is_short: bool,
    /// A request whose caller leaves while it is sent.
    leaving: Mutex<Option<Stat>>,
}

impl RequestPacing for Turn {
    fn sent(&self) {
        self.sent.fetch_add(1, Ordering::SeqCst);
        drop(self.leaving.lock().unwrap().take());
        self.changed.notify_one();
    }

    fn ended(&self) {
        self.ended.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_one();
    }

    fn pause(&self) {}

    fn resume(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let number = self.resumed.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_one();
        match self.is_short && number > 0 {
            true => Box::pin(std::future::pending()),
            false => Box::pin(std::future::ready(())),
        }
    }
}

impl Turn {
    fn counts(&self) -> (usize, usize) {
        (self.sent.load(Ordering::SeqCst), self.ended.load(Ordering::SeqCst))
    }

    async fn reaches(&self, counts: (usize, usize)) {
        while self.counts() != counts {
            self.changed.notified().await;
        }
    }
}

fn stat(client: &Client, url: &Url, turn: &Arc<Turn>) -> Stat {
    let files = client.paced(turn.clone()).file_system(url);
    Box::pin(async move { files.stat("/a").await })
}

/// Starts a server whose first reply to a request of a kind waits for the signal.
async fn slow(code: RequestCode) -> (Fake, oneshot::Sender<()>) {
    let (signal, told) = oneshot::channel();
    let mut told = Some(told);
    let server = Fake::start(SERVER, move |asked: &Asked| {
        let reply = match asked.code() {
            RequestCode::OPEN => opened(asked, 1, 100),
            RequestCode::STAT => ok(asked, &stat_text(1)),
            _ => ok(asked, b"data"),
        };
        match told.take_if(|_| asked.code() == code) {
            Some(told) => Act::when(reply, told),
            None => reply,
        }
    })
    .await;
    (server, signal)
}

#[tokio::test]
async fn a_turn_lasts_until_the_server_answers_also_without_a_caller() {
    let (server, answer) = slow(RequestCode::STAT).await;
    let (client, turn) = (client(&[]), Arc::new(Turn::default()));
    let request = tokio::spawn(stat(&client, &server.url("a"), &turn));
    turn.reaches((1, 0)).await;
    request.abort();
    assert!(request.await.unwrap_err().is_cancelled());
    assert_eq!(turn.counts(), (1, 0));
    answer.send(()).unwrap();
    turn.reaches((1, 1)).await;
}

#[tokio::test]
async fn requests_about_an_open_file_have_turns() {
    let (server, answer) = slow(RequestCode::READ).await;
    let (client, turn) = (client(&[]), Arc::new(Turn::default()));
    let file = client.open(&server.url("a"), &OpenWith::read()).await.unwrap();
    let paced = file.paced(turn.clone());
    let request = tokio::spawn(async move { paced.read(0, 4).await });
    turn.reaches((1, 0)).await;
    request.abort();
    assert!(request.await.unwrap_err().is_cancelled());
    assert_eq!((turn.counts(), server.count(RequestCode::CLOSE)), ((1, 0), 0), "the file is still open");
    answer.send(()).unwrap();
    turn.reaches((1, 1)).await;
    assert_eq!(file.read(0, 4).await.unwrap(), &b"data"[..]);
    assert_eq!(turn.counts(), (1, 1), "other requests have their own");
}

#[tokio::test]
async fn a_request_whose_caller_leaves_while_it_is_sent_is_not_made() {
    let server = Fake::start(SERVER, |asked| ok(asked, &stat_text(1))).await;
    let (client, turn) = (client(&[]), Arc::new(Turn::default()));
    // The connection exists, so that the request is given to it at once.
    stat(&client, &server.url("a"), &Arc::default()).await.unwrap();
    let mut leaving = stat(&client, &server.url("a"), &turn);
    std::future::poll_fn(|context| {
        assert!(leaving.as_mut().poll(context).is_pending());
        std::task::Poll::Ready(())
    })
    .await;
    *turn.leaving.lock().unwrap() = Some(leaving);
    turn.reaches((1, 1)).await;
    stat(&client, &server.url("a"), &Arc::default()).await.unwrap();
    assert_eq!(server.count(RequestCode::STAT), 2);
}

/// Starts a server that answers only the first request of its first connection.
async fn server_that_falls_silent() -> Fake {
    let mut is_first = true;
    Fake::start(SERVER, move |asked| match asked.connection == 0 && !is_first {
        true => silence(),
        false => {
            is_first = false;
            ok(asked, &stat_text(1))
        }
    })
    .await
}

#[tokio::test]
async fn a_connection_with_a_request_that_is_never_answered_is_replaced() {
    let server = server_that_falls_silent().await;
    let (client, turn) =
        (client(&[("RequestTimeout", "40"), ("StreamTimeout", "1000")]), Arc::new(Turn::default()));
    stat(&client, &server.url("a"), &turn).await.unwrap();
    tokio::time::pause();
    stat(&client, &server.url("a"), &turn).await.unwrap_err();
    tokio::time::resume();
    // The connection ends, because nobody uses it any longer.
    turn.reaches((2, 2)).await;
    stat(&client, &server.url("a"), &turn).await.unwrap();
    assert_eq!(server.connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_file_that_was_reopened_is_closed_although_the_lost_handle_was() {
    let server = Fake::start(SERVER, |asked| match (asked.code(), asked.connection) {
        (RequestCode::OPEN, _) => opened(asked, 1, 100),
        (RequestCode::CLOSE, 0) => close(),
        _ => ok(asked, b""),
    })
    .await;
    let (client, turn) = (client(&[]), Arc::new(Turn { is_short: true, ..Turn::default() }));
    let file = client.open(&server.url("a"), &OpenWith::options(OpenOptions::UPDT)).await.unwrap();
    let paced = file.paced(turn.clone());
    let closing = tokio::spawn(async move { paced.close().await });
    // The close is lost with its connection, the file is open again, and nobody waits for the second close.
    while turn.resumed.load(Ordering::SeqCst) < 2 {
        turn.changed.notified().await;
    }
    closing.abort();
    assert!(closing.await.unwrap_err().is_cancelled());
    drop(file);
    let closed_again = async {
        while server.count(RequestCode::CLOSE) < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), closed_again).await.expect("the file stays open");
    assert_eq!(server.asked.lock().unwrap().last().unwrap().connection, 1);
}

#[tokio::test]
async fn a_connection_whose_stream_ids_are_all_abandoned_is_replaced() {
    const STREAM_IDS: usize = 65_535;
    let server = server_that_falls_silent().await;
    let client = client(&[("RequestTimeout", "1000"), ("StreamTimeout", "1000")]);
    let turn = Arc::new(Turn::default());
    stat(&client, &server.url("a"), &turn).await.unwrap();
    let mut abandoned: Vec<_> = (0..STREAM_IDS).map(|_| stat(&client, &server.url("a"), &turn)).collect();
    std::future::poll_fn(|context| {
        abandoned.iter_mut().for_each(|request| assert!(request.as_mut().poll(context).is_pending()));
        std::task::Poll::Ready(())
    })
    .await;
    turn.reaches((1 + STREAM_IDS, 1)).await;
    drop(abandoned);
    // The first of these find no stream id, and wait. The next one uses another connection.
    let mut requests = tokio::task::JoinSet::new();
    let found = loop {
        requests.spawn(stat(&client, &server.url("a"), &Arc::default()));
        tokio::task::yield_now().await;
        if let Some(found) = requests.try_join_next() {
            break found.unwrap();
        }
    };
    found.unwrap();
    assert_eq!(server.connections.load(Ordering::SeqCst), 2);
}
