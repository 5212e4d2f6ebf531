//! The blocking client against a server on a runtime of its own.

#![allow(clippy::unwrap_used)]

mod support;

use client::xroot::RequestCode;
use client::{Bytes, Credentials, ListWith, OpenWith, Settings, Url, blocking};
use std::sync::mpsc;
use support::{Fake, SERVER, ok, opened, stat_text};

/// Starts a server on its own thread, which runs until the sender is dropped.
fn server() -> (Url, tokio::sync::oneshot::Sender<()>) {
    let (tell, told) = mpsc::channel();
    let (until, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let server = Fake::start(SERVER, |asked| match asked.code() {
                RequestCode::OPEN => opened(asked, 1, 4),
                RequestCode::READ => ok(asked, b"data"),
                RequestCode::DIRLIST => ok(asked, b"a\0"),
                RequestCode::STAT => ok(asked, &stat_text(4)),
                _ => ok(asked, b""),
            })
            .await;
            tell.send(server.url("/")).unwrap();
            let _ = end.await;
        });
    });
    (told.recv().unwrap(), until)
}

#[test]
fn threads_share_a_client_and_a_file() {
    let (url, _until) = server();
    let client = blocking::BlockingClient::with(Settings::default(), Credentials::none(), "test");
    let file = client.open(&url.with_user_path("/a").unwrap(), &OpenWith::update()).unwrap();
    assert_eq!(file.stat_at_open().unwrap().size, 4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut into = [0; 4];
                for _ in 0..20 {
                    assert_eq!(file.read_into(0, &mut into).unwrap(), 4);
                    assert_eq!(&into, b"data");
                    assert_eq!(client.file_system(&url).stat("/a").unwrap().size, 4);
                }
            });
        }
    });
    file.write(0, Bytes::from_static(b"x")).unwrap();
    file.close().unwrap();
    assert!(file.read(0, 1).is_err());
    let list = client.clone().file_system(&url).list("/", &ListWith::default()).unwrap();
    assert_eq!(list[0].name, "a");
}

#[test]
fn a_thread_of_a_runtime_may_block() {
    let (url, _until) = server();
    let client = blocking::BlockingClient::with(Settings::default(), Credentials::none(), "test");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        assert_eq!(client.file_system(&url).stat("/a").unwrap().size, 4);
    });
    let size = client.run(&url, |client| {
        let files = client.file_system(&url);
        async move { Ok(files.stat("/a").await?.size) }
    });
    assert_eq!(size.unwrap(), 4);
}

/// Checks at compile time that futures of the library may move between threads.
#[test]
fn futures_are_send() {
    fn sent<T: Send>(_: &T) {}
    let client = client::Client::with(Settings::default(), Credentials::none(), "test");
    let url = Url::parse("root://localhost//a").unwrap();
    let files = client.file_system(&url);
    sent(&client.open(&url, &OpenWith::read()));
    sent(&files.list("/", &ListWith::default()));
    sent(&files.mv("/a", "/b"));
    sent(&async {
        let file = client.open(&url, &OpenWith::read()).await?;
        file.write_vector(&[], true).await?;
        let reader = client::Reader::new(file, client::Caching::READ_AHEAD, true);
        reader.read(0, 1).await
    });
}
