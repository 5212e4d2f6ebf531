//! Operations on paths and files over real sockets, against a scripted server without faults.

#![allow(clippy::unwrap_used)]

mod support;

use client::xroot::flags::{LocateOptions, OpenOptions, SecurityOptions};
use client::{Bytes, Caching, ListWith, OpenWith, Reader};
use support::{Act, Fake, MANAGER, PLAIN, SERVER, client, ok, opened, send, silence, stat_text};
use wire::FixedLayout;
use wire::xroot::codes::{ResponseType, SecurityLevel, Status};
use wire::xroot::reply::{self, Attn, Redirect, SecurityRequirements, StatusFrame, attn};
use wire::xroot::{ErrorCode, RequestCode, StreamId};

#[tokio::test]
async fn callers_share_a_connection_with_replies_in_any_order() {
    let mut first = None;
    let server = Fake::start(SERVER, move |asked| match asked.text().as_str() {
        "/slow" => {
            first = Some(asked.clone());
            silence()
        }
        _ => {
            let mut out = Vec::new();
            reply::ok(&mut out, asked.header.streamid, &stat_text(2));
            reply::ok(&mut out, first.take().unwrap().header.streamid, &stat_text(1));
            Act::Send(out)
        }
    })
    .await;
    let files = client(&[]).file_system(&server.url("/"));
    let (slow, fast) = tokio::join!(files.stat("/slow"), files.stat("/fast"));
    assert_eq!((slow.unwrap().size, fast.unwrap().size), (1, 2));
    assert_eq!(server.connections.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[tokio::test]
async fn redirects_keep_their_cgi_and_waits_are_followed() {
    let mut waited = false;
    let server = Fake::start(SERVER, move |asked| {
        if !std::mem::replace(&mut waited, true) {
            return send(|out| reply::wait(out, asked.header.streamid, 0, "busy"));
        }
        ok(asked, &stat_text(5))
    })
    .await;
    let there = server.address;
    let manager = Fake::start(MANAGER, move |asked| {
        let host = "127.0.0.1?from=m&x=2";
        send(|out| {
            reply::redirect(out, asked.header.streamid, &Redirect::to_host(host.as_bytes(), there.port()))
        })
    })
    .await;
    let files = client(&[]).file_system(&manager.url("/"));
    let (files, path) = files.at("/a?x=1&y=3").unwrap();
    let stat = files.stat(&path).await.unwrap();
    assert_eq!((stat.size, stat.more.unwrap().owner.as_str()), (5, "me"));
    assert_eq!(server.texts(RequestCode::STAT), ["/a?from=m&x=2&y=3", "/a?from=m&x=2&y=3"]);
}

#[tokio::test]
async fn a_deferred_reply_is_received() {
    let server = Fake::start(SERVER, |asked| {
        let mut out = Vec::new();
        reply::waitresp(&mut out, asked.header.streamid, 600, "computing");
        let actnum = client::xroot::codes::AttnCode::ASYNCMS;
        let message = Attn::Other { actnum, rest: b"\0\0\0\0hello" };
        reply::frame(&mut out, StreamId::default(), Status::ATTN, &message);
        attn::deferred(&mut out, |out| reply::ok(out, asked.header.streamid, b"adler32 0A0b\0"));
        Act::Send(out)
    })
    .await;
    let files = client(&[]).file_system(&server.url("/"));
    let checksum = files.checksum("/a", Some("adler32")).await.unwrap();
    assert_eq!((checksum.kind.as_str(), checksum.value.as_str()), ("adler32", "0a0b"));
    assert_eq!(server.texts(RequestCode::QUERY), ["/a?cks.type=adler32\0"]);
}

#[tokio::test]
async fn listings_with_and_without_status() {
    let server = Fake::start(SERVER, |asked| match (asked.code(), asked.text().as_str()) {
        (RequestCode::DIRLIST, "/old") => ok(asked, b"a\nb\0"),
        (RequestCode::DIRLIST, _) => {
            let mut out = Vec::new();
            let streamid = asked.header.streamid;
            reply::oksofar(&mut out, streamid, b".\n0 0 0 0\na\n1 2 48 3 [ adler32:x ]\n");
            reply::ok(&mut out, streamid, b"b\n1 3 51 3 4 5 0755 me us [ adler32:12 ]\0");
            Act::Send(out)
        }
        (_, "/old/a") => ok(asked, &stat_text(7)),
        _ => send(|out| reply::error(out, asked.header.streamid, ErrorCode::NOT_FOUND, "gone")),
    })
    .await;
    let files = client(&[]).file_system(&server.url("/"));
    let with = ListWith { stat: true, ..ListWith::default() };
    let list = files.list("/new", &with).await.unwrap();
    assert_eq!((list[0].name.as_str(), list[0].stat.as_ref().unwrap().size), ("a", 2));
    assert!(list[1].stat.as_ref().unwrap().is_dir());
    assert_eq!(list[1].checksum.as_ref().unwrap().value, "12");
    // For a server without status in listings, the status is requested by name. A removed file has
    // none.
    let list = files.list("/old", &with).await.unwrap();
    assert_eq!(list.iter().map(|entry| entry.stat.is_some()).collect::<Vec<_>>(), [true, false]);
}

#[tokio::test]
async fn a_deep_locate_queries_the_managers() {
    let server = Fake::start(SERVER, |asked| ok(asked, b"Sw[::127.0.0.1]:7 sr[::127.0.0.1]:8\0")).await;
    let port = server.address.port();
    let manager = Fake::start(MANAGER, move |asked| {
        ok(asked, format!("Mr[::127.0.0.1]:{port} Xr? Sr[::127.0.0.1]:7\0").as_bytes())
    })
    .await;
    let files = client(&[]).file_system(&manager.url("/"));
    let found = files.locate_deep("/a", LocateOptions::NONE).await.unwrap();
    let mut found: Vec<_> = found.iter().map(|found| (found.address.as_str(), found.pending)).collect();
    found.sort_unstable();
    assert_eq!(found, [("[::127.0.0.1]:7", false), ("[::127.0.0.1]:8", true)]);
}

#[tokio::test]
async fn configuration_values_are_returned_by_key() {
    let server = Fake::start(SERVER, |asked| ok(asked, b"2097136\ntpcdlg\n1024\n")).await;
    let files = client(&[]).file_system(&server.url("/"));
    let values = files.config(&["readv_ior_max", "tpcdlg", "readv_iov_max"]).await.unwrap();
    assert_eq!(values, [Some("2097136".to_owned()), None, Some("1024".to_owned())]);
}

#[tokio::test]
async fn reads_of_any_size_and_split_are_complete() {
    let server = Fake::start(PLAIN, |asked| match asked.code() {
        RequestCode::OPEN => opened(asked, 1, 1 << 20),
        RequestCode::READ => {
            let mut out = Vec::new();
            let streamid = asked.header.streamid;
            reply::oksofar(&mut out, streamid, &vec![1; 700_000]);
            reply::oksofar(&mut out, streamid, &[2; 100]);
            reply::oksofar(&mut out, streamid, &vec![3; 200_000]);
            reply::ok(&mut out, streamid, &[]);
            Act::Send(out)
        }
        _ => ok(asked, b""),
    })
    .await;
    let file = client(&[]).open(&server.url("/a"), &OpenWith::read()).await.unwrap();
    assert_eq!(file.stat_at_open().unwrap().size, 1 << 20);
    for data in [file.read(0, 1_000_000).await.unwrap(), file.read_pages(0, 1_000_000).await.unwrap()] {
        assert_eq!(data.len(), 900_100);
        assert_eq!((data[699_999], data[700_000], data[700_100]), (1, 2, 3));
    }
    file.close().await.unwrap();
    assert_eq!(
        file.read(0, 1).await.unwrap_err().to_string(),
        format!("read root://{}//a: the file is closed", server.address)
    );
    assert_eq!(server.count(RequestCode::CLOSE), 1);
    assert_eq!(server.asked.lock().unwrap()[0].header.body[2..4], [0x04, 0x50]);
}

/// Builds a frame of page data of the file `offset % 251`, optionally with a damaged first page.
fn page_frame(asked: &support::Asked, offset: u64, length: usize, last: bool, damaged: bool) -> Vec<u8> {
    let room = client::pages::checksums_length(offset, length);
    let mut data = vec![0; room];
    data.extend((0..length as u64).map(|byte| ((offset + byte) % 251) as u8));
    client::pages::interleave(offset, &mut data, room, length).unwrap();
    if damaged {
        data[4] ^= 1;
    }
    let frame = StatusFrame {
        streamid: asked.header.streamid,
        request: RequestCode::PGREAD,
        resptype: if last { ResponseType::FINAL } else { ResponseType::PARTIAL },
        dlen: i32::try_from(data.len()).unwrap(),
        offset: i64::try_from(offset).unwrap(),
    };
    let mut out = frame.to_bytes().to_vec();
    out.extend(data);
    out
}

#[tokio::test]
async fn a_damaged_page_is_read_again() {
    let server = Fake::start(SERVER, |asked| match asked.code() {
        RequestCode::OPEN => opened(asked, 1, 100_000),
        RequestCode::PGREAD if asked.payload[1] == 1 => {
            assert_eq!(asked.header.body[4..], [0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0x10, 0]);
            Act::Send(page_frame(asked, 8192, 4096, true, false))
        }
        RequestCode::PGREAD => {
            let first = page_frame(asked, 100, 8092, false, false);
            Act::Send([first, page_frame(asked, 8192, 50_000, true, true)].concat())
        }
        _ => ok(asked, b""),
    })
    .await;
    let file = client(&[]).open(&server.url("/a"), &OpenWith::read()).await.unwrap();
    let data = file.read_pages(100, 58_092).await.unwrap();
    let expected: Vec<u8> = (100..58_192_u64).map(|byte| (byte % 251) as u8).collect();
    assert!(data == expected);
    assert_eq!(server.count(RequestCode::PGREAD), 2);
}

#[tokio::test]
async fn a_permanently_damaged_page_is_an_error() {
    let server = Fake::start(SERVER, |asked| match asked.code() {
        RequestCode::OPEN => opened(asked, 1, 4096),
        RequestCode::PGREAD => Act::Send(page_frame(asked, 0, 4096, true, true)),
        _ => ok(asked, b""),
    })
    .await;
    let file = client(&[]).open(&server.url("/a"), &OpenWith::read()).await.unwrap();
    let error = file.read_pages(0, 4096).await.unwrap_err();
    assert_eq!(error.cause(), &client::Cause::Corrupt { offset: 0, pages: 1 });
}

#[tokio::test]
async fn vectors_are_read_in_one_request() {
    let server = Fake::start(SERVER, |asked| match asked.code() {
        RequestCode::OPEN => opened(asked, 1, 100_000),
        RequestCode::READV => {
            let mut body = Vec::new();
            for segment in wire::xroot::request::SegmentList::new(&asked.payload) {
                body.extend(segment.to_bytes());
                body.extend((0..segment.length).map(|byte| (segment.offset + i64::from(byte)) as u8));
            }
            ok(asked, &body)
        }
        _ => ok(asked, b""),
    })
    .await;
    let file = client(&[]).open(&server.url("/a"), &OpenWith::read()).await.unwrap();
    let data = file.read_vector(&[(0, 3), (3, 2), (70_000, 4)]).await.unwrap();
    assert_eq!(data, [&[0_u8, 1, 2][..], &[3, 4], &[0x70, 0x71, 0x72, 0x73]]);
    assert_eq!(server.asked.lock().unwrap()[1].payload.len(), 2 * 16);
}

#[tokio::test]
async fn damaged_pages_of_a_write_are_sent_again() {
    let mut bad = true;
    let server = Fake::start(SERVER, move |asked| match asked.code() {
        RequestCode::OPEN => opened(asked, 1, 0),
        RequestCode::PGWRITE => {
            let retry = asked.header.body[13] == 1;
            assert_eq!(retry, !bad);
            let offset = if retry { 4096 } else { 0 };
            assert_eq!(client::pages::bad_pages(offset, &asked.payload).count(), 0);
            send(|out| {
                if std::mem::take(&mut bad) {
                    let offsets = [4096_i64.to_be_bytes()];
                    let bad = reply::BadPages { first_bytes: 904, last_bytes: 904, offsets: &offsets };
                    reply::status::pgwrite_done(out, asked.header.streamid, 0, Some(&bad));
                } else {
                    reply::status::pgwrite_done(out, asked.header.streamid, 4096, None);
                }
            })
        }
        _ => ok(asked, b""),
    })
    .await;
    let with = OpenWith::overwrite().persist_on_successful_close().expected_size(5000);
    let file = client(&[]).open(&server.url("/a"), &with).await.unwrap();
    file.write_pages(0, vec![7; 5000]).await.unwrap();
    assert_eq!(server.count(RequestCode::PGWRITE), 2);
    file.write(5000, Bytes::from_static(b"plain")).await.unwrap();
    file.write_vector(&[(0, Bytes::from_static(b"ab")), (9, Bytes::from_static(b"c"))], true).await.unwrap();
    assert_eq!(server.texts(RequestCode::WRITE), ["plain"]);
    assert!(server.texts(RequestCode::WRITEV)[0].ends_with("abc"));
    assert_eq!(server.texts(RequestCode::OPEN), ["/a?oss.asize=5000"]);
    file.sync().await.unwrap();
    file.close().await.unwrap();
}

/// The signature of a vector write cannot cover its data.
#[tokio::test]
async fn vector_writes_are_plain_writes_where_data_must_be_signed() {
    for (covers, codes) in [
        (SecurityOptions::DATA, &[RequestCode::WRITE, RequestCode::WRITE, RequestCode::SYNC][..]),
        (SecurityOptions::NONE, &[RequestCode::WRITEV]),
    ] {
        let secopt = SecurityOptions::FORCE.with(covers);
        let requirements =
            SecurityRequirements { secver: 0, secopt, seclvl: SecurityLevel::INTENSE, overrides: &[] };
        let server = Fake::signing(requirements, |asked| match asked.code() {
            RequestCode::SIGVER => silence(),
            RequestCode::OPEN => opened(asked, 1, 0),
            _ => ok(asked, b""),
        })
        .await;
        let file = client(&[]).open(&server.url("/a"), &OpenWith::overwrite()).await.unwrap();
        let pieces = [(0, Bytes::from_static(b"ab")), (9, Bytes::from_static(b"c"))];
        file.write_vector(&pieces, true).await.unwrap();
        let asked: Vec<_> = server.asked.lock().unwrap().iter().map(|asked| asked.code()).collect();
        let changes: Vec<_> = asked[1..].iter().filter(|code| **code != RequestCode::SIGVER).collect();
        assert_eq!(changes[0], &RequestCode::OPEN);
        assert_eq!(changes[1..], codes.iter().collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn dropping_a_file_closes_it_unless_it_is_persisted_on_close() {
    let server = Fake::start(SERVER, |asked| match asked.code() {
        RequestCode::OPEN => opened(asked, 1, 0),
        _ => ok(asked, &stat_text(1)),
    })
    .await;
    let client = client(&[]);
    drop(client.open(&server.url("/a"), &OpenWith::read()).await.unwrap());
    drop(client.open(&server.url("/b"), &OpenWith::create().persist_on_successful_close()).await.unwrap());
    client.file_system(&server.url("/")).stat("/a").await.unwrap();
    let codes: Vec<_> = server.asked.lock().unwrap().iter().map(|asked| asked.code()).collect();
    assert_eq!(codes, [RequestCode::OPEN, RequestCode::CLOSE, RequestCode::OPEN, RequestCode::STAT]);
    assert_eq!(OpenWith::create().options, OpenOptions::NEW | OpenOptions::UPDT);
}

#[tokio::test]
async fn a_close_that_nobody_waits_for_is_not_repeated() {
    let server = Fake::start(SERVER, |asked| match asked.code() {
        RequestCode::OPEN => opened(asked, 1, 0),
        RequestCode::CLOSE => silence(),
        _ => ok(asked, &stat_text(1)),
    })
    .await;
    let client = client(&[]);
    let file = client.open(&server.url("/a"), &OpenWith::read()).await.unwrap();
    tokio::select! {
        biased;
        closed = file.close() => panic!("{closed:?}"),
        () = async { while server.count(RequestCode::CLOSE) == 0 { tokio::task::yield_now().await } } => {}
    }
    drop(file);
    // The server could have given the handle to another file by now.
    client.file_system(&server.url("/")).stat("/a").await.unwrap();
    assert_eq!(server.count(RequestCode::CLOSE), 1);
}

#[tokio::test]
async fn attributes_of_paths_and_files() {
    let server = Fake::start(SERVER, |asked| match asked.code() {
        RequestCode::OPEN => opened(asked, 1, 0),
        _ => match asked.header.body[4] {
            1 => ok(asked, b"\x01\x02\0\0a\0\x0b\xd3b\0\0\0\0\x01x\0\0\0\0"),
            2 => ok(asked, b"a\0\0\0\0\x01x"),
            _ => ok(asked, b"\x01\x01\x0b\xcaa\0"),
        },
    })
    .await;
    let client = client(&[]);
    let files = client.file_system(&server.url("/"));
    let values = files.attribute_values("/f", &["a", "b"]).await.unwrap();
    assert_eq!(values, [("a".to_owned(), Some(b"x".to_vec())), ("b".to_owned(), None)]);
    assert_eq!(server.texts(RequestCode::FATTR), ["/f\0\0\0a\0\0\0b\0"]);
    assert_eq!(files.list_attributes("/f").await.unwrap()[0].value, b"x");
    let file = client.open(&server.url("/f"), &OpenWith::update()).await.unwrap();
    let error = file.set_attributes(&[("a", b"v")], true).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::IT_EXISTS));
    assert!(server.texts(RequestCode::FATTR)[2].starts_with("\0\0\0a\0"));
}

#[tokio::test]
async fn large_data_alternates_between_the_bound_streams() {
    let server = Fake::start(PLAIN, |asked| match asked.code() {
        RequestCode::OPEN => opened(asked, 1, 1 << 20),
        RequestCode::READ => ok(asked, &vec![asked.payload[0]; 100_000]),
        _ => ok(asked, b""),
    })
    .await;
    let client = client(&[("SubStreamsPerChannel", "3")]);
    let file = client.open(&server.url("/a"), &OpenWith::overwrite()).await.unwrap();
    assert_eq!(file.channel().streams(), 3);
    let mut read = tokio::task::JoinSet::new();
    for chunk in 0..8 {
        let file = file.clone();
        read.spawn(async move { file.read(chunk * 100_000, 100_000).await.unwrap() });
    }
    let mut paths: Vec<u8> = read.join_all().await.iter().map(|data| data[99_999]).collect();
    paths.sort_unstable();
    assert_eq!(paths, [1, 1, 1, 1, 2, 2, 2, 2]);
    file.write(0, vec![7; 200_000]).await.unwrap();
    file.write(0, vec![8; 200]).await.unwrap();
    file.close().await.unwrap();
    let asked = server.asked.lock().unwrap();
    let written: Vec<_> = asked.iter().filter(|asked| asked.code() == RequestCode::WRITE).collect();
    assert_eq!((written[0].header.body[12], written[0].payload.len()), (1, 200_000));
    assert_eq!((written[1].header.body[12], written[1].payload.len()), (0, 200));
}

/// Starts a server of one file of `size` bytes `offset % 251`, with vector reads.
async fn counting_server(size: u64) -> Fake {
    Fake::start(PLAIN, move |asked| {
        let data = |offset: i64, length: i32| {
            let from = u64::try_from(offset).unwrap();
            let end = size.min(from + u64::try_from(length).unwrap());
            (from..end).map(|byte| (byte % 251) as u8).collect::<Vec<u8>>()
        };
        match asked.code() {
            RequestCode::OPEN => opened(asked, 1, size),
            RequestCode::READ => {
                let (offset, length) = asked.header.body[4..].split_at(8);
                let offset = i64::from_be_bytes(offset.try_into().unwrap());
                ok(asked, &data(offset, i32::from_be_bytes(length.try_into().unwrap())))
            }
            RequestCode::READV => {
                let mut body = Vec::new();
                for segment in wire::xroot::request::SegmentList::new(&asked.payload) {
                    body.extend(segment.to_bytes());
                    body.extend(data(segment.offset, segment.length));
                }
                ok(asked, &body)
            }
            _ => ok(asked, b""),
        }
    })
    .await
}

#[tokio::test]
async fn cached_reads_return_the_bytes_of_the_file() {
    const SIZE: u64 = 300_000;
    let ways = [
        Caching::None,
        Caching::ReadAhead { least_bytes: 1000, most_bytes: 50_000 },
        Caching::Blocks { block_bytes: 4096, blocks: 7 },
        Caching::Vector,
    ];
    for caching in ways {
        let server = counting_server(SIZE).await;
        let file = client(&[]).open(&server.url("/a"), &OpenWith::read()).await.unwrap();
        let reader = Reader::new(file, caching, true);
        reader.prefetch(&[(0, 50_000), (200_000, 100_000)]);
        let mut ranges: Vec<(u64, usize)> = (0..80).map(|step| (step * 3701, 3701)).collect();
        ranges.extend((0..116).map(|step| ((step * 7919) % 299_000, 3000)));
        ranges.extend([(SIZE, 10), (SIZE - 5, 10), (0, 0), (0, 400_000)]);
        for (offset, length) in ranges {
            let end = SIZE.min(offset + length as u64);
            let expected: Vec<u8> = (offset..end.max(offset)).map(|byte| (byte % 251) as u8).collect();
            assert!(reader.read(offset, length).await.unwrap() == expected, "{caching:?} {offset} {length}");
        }
        let statistics = reader.statistics();
        assert_eq!((statistics.algorithm, statistics.reads), (caching.name(), 200));
        assert_eq!(statistics.hits > 0, caching != Caching::None, "{statistics:?}");
    }
}

#[tokio::test]
async fn sequential_reads_need_few_requests() {
    let server = counting_server(1_000_000).await;
    let file = client(&[]).open(&server.url("/a"), &OpenWith::read()).await.unwrap();
    let reader = Reader::new(file, Caching::ReadAhead { least_bytes: 20_000, most_bytes: 200_000 }, false);
    for step in 0..1000 {
        assert_eq!(reader.read(step * 1000, 1000).await.unwrap().len(), 1000);
    }
    assert!(server.count(RequestCode::READ) < 40, "{}", server.count(RequestCode::READ));
    let statistics = reader.statistics();
    assert_eq!((statistics.bytes_given, statistics.bytes_fetched), (1_000_000, 1_000_000));
    assert_eq!(statistics.bytes_wasted, 0);
}

#[tokio::test]
async fn checkpointed_writes_and_clones_follow_the_protocol() {
    let server = Fake::start(PLAIN, |asked| match asked.code() {
        RequestCode::OPEN => opened(asked, 1, 10),
        RequestCode::CHKPOINT if asked.header.body[15] == 2 => ok(asked, &[0, 0, 1, 0, 0, 0, 0, 9]),
        _ => ok(asked, b""),
    })
    .await;
    let client = client(&[]);
    let file = client.open(&server.url("/a"), &OpenWith::update()).await.unwrap();
    file.begin_checkpoint().await.unwrap();
    assert_eq!(file.checkpoint_sizes().await.unwrap().max_bytes, 256);
    file.truncate_checkpointed(4).await.unwrap();
    file.commit_checkpoint().await.unwrap();
    let other = client.open(&server.url("/b"), &OpenWith::read()).await.unwrap();
    file.clone_ranges(&other, &[base::CopyRange { from: 0, to: 7, length: 5 }]).await.unwrap();
    let asked = server.asked.lock().unwrap();
    let truncate = asked.iter().find(|asked| asked.header.body[15] == 4).unwrap();
    // The nested header has the stream id of the outer one.
    assert_eq!(truncate.payload[..2], truncate.header.streamid.0);
    let clone = asked.iter().find(|asked| asked.code() == RequestCode::CLONE).unwrap();
    assert_eq!(clone.payload[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(clone.payload[31], 7);
}
