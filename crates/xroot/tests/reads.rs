//! Reads of every kind, hot and cold, copied and not, compared with the content of the file.
//!
//! Each read runs on several servers, because each way of reading has code of its own.

#![allow(clippy::unwrap_used)]

mod support;

use std::io::Read;
use std::sync::Arc;
use storage::faulty::{FaultRule, FaultyCall, Gate, InjectedFault};
use support::client::{READING, read};
use support::*;

const SIZE: usize = 5 * 1024 * 1024 + 123;

/// Servers with different ways to read: with and without copying, with hot and cold data.
fn servers() -> Vec<(&'static str, Server)> {
    let make = |sendfile: bool, cold: bool, ring: bool| {
        let mut wish = Wish { ring, ..Wish::default() };
        wish.config.sendfile = sendfile;
        let server = Server::with(wish);
        if cold {
            server.rules.add(FaultRule::new(&[FaultyCall::Read], InjectedFault::WouldBlock));
        }
        server.put("/f", &pattern(SIZE));
        server
    };
    vec![
        ("sendfile", make(true, false, false)),
        ("copied", make(false, false, false)),
        ("cold", make(true, true, false)),
        ("ring", make(true, false, true)),
    ]
}

fn expected(content: &[u8], offset: usize, length: usize) -> &[u8] {
    let start = offset.min(content.len());
    &content[start..offset.saturating_add(length).min(content.len())]
}

#[test]
fn any_range_is_read_correctly() {
    let content = pattern(SIZE);
    for (way, server) in servers() {
        let mut client = server.client();
        let handle = client.open("/f", READING);
        let mut dice = Dice::new(1);
        for round in 0..150 {
            let most = [10, 5000, 70_000, 3_000_000][round % 4];
            if way == "ring" {
                server.evict("/f");
            }
            let (offset, length) = (dice.below(SIZE + 5000), dice.below(most));
            let got = client.read(handle, offset, length);
            assert!(got == expected(&content, offset, length), "{way}: {length} at {offset}");
        }
        for (offset, length) in
            [(0, SIZE), (0, i32::MAX as usize), (SIZE, 10), (SIZE - 1, 10), (SIZE, 0), (5, 0)]
        {
            let got = client.read(handle, offset, length);
            assert!(got == expected(&content, offset, length), "{way}: {length} at {offset}");
        }
    }
}

#[test]
fn many_reads_in_flight_are_each_answered_once() {
    let content = pattern(SIZE);
    for (way, server) in servers() {
        let mut client = server.client();
        let handle = client.open("/f", READING);
        let mut dice = Dice::new(2);
        let ranges: Vec<_> = (0..300).map(|i| (dice.below(SIZE), [100, 9000, 300_000][i % 3])).collect();
        let mut sender = client.stream.try_clone().unwrap();
        let requests: Vec<u8> = (ranges.iter().enumerate())
            .flat_map(|(id, &(offset, length))| read(handle, offset, length).stream(id as u16).bytes())
            .collect();
        let sending = std::thread::spawn(move || std::io::Write::write_all(&mut sender, &requests).unwrap());
        let mut bodies = vec![Vec::<u8>::new(); ranges.len()];
        let mut left = ranges.len();
        while left > 0 {
            let reply = client.reply();
            bodies[usize::from(reply.stream)].extend(&reply.body);
            left -= usize::from(reply.status == OK);
            assert!(reply.status == OK || reply.status == OKSOFAR);
        }
        sending.join().unwrap();
        for (body, &(offset, length)) in bodies.iter().zip(&ranges) {
            assert!(body == expected(&content, offset, length), "{way}: {length} at {offset}");
        }
    }
}

/// Verifies each frame of a page read with an independent checksum, and returns the data.
fn pages(client: &mut Client, request: &Raw, mut offset: usize) -> Vec<u8> {
    client.send(request);
    let mut data = Vec::new();
    loop {
        let reply = client.reply();
        assert_eq!((reply.status, reply.body.len()), (STATUS, 24), "{:?}", reply.error());
        let number = |at: usize| u32::from_be_bytes(reply.body[at..at + 4].try_into().unwrap());
        assert_eq!(number(0), crc32c(&reply.body[4..]));
        assert_eq!(u16::from_be_bytes([reply.body[4], reply.body[5]]), reply.stream);
        assert_eq!((reply.body[6], &reply.body[8..12]), (30, &[0; 4][..]));
        assert_eq!(reply.body[16..24], (offset as u64).to_be_bytes());
        let mut rest = &reply.data[..];
        while !rest.is_empty() {
            let length = (4096 - offset % 4096).min(rest.len() - 4);
            let (sum, page) = rest[..4 + length].split_at(4);
            assert_eq!(sum, crc32c(page).to_be_bytes(), "page at {offset}");
            data.extend_from_slice(page);
            offset += length;
            rest = &rest[4 + length..];
        }
        match reply.body[7] {
            0 => return data,
            1 => {
                assert!(!reply.data.is_empty() && reply.data.len() <= 2_095_100);
                assert_eq!(offset % 4096, 0, "a part ends in the middle of a page");
            }
            other => panic!("response type {other}"),
        }
    }
}

fn pgread(handle: u32, offset: usize, length: usize) -> Raw {
    Raw::new(PGREAD).handle(handle).i64(8, offset as i64).i32(16, length as i32)
}

#[test]
fn any_range_is_read_with_page_checksums() {
    let content = pattern(SIZE);
    for (way, server) in servers() {
        let mut client = server.client();
        let handle = client.open("/f", READING);
        let mut dice = Dice::new(3);
        let mut ranges: Vec<_> =
            (0..60).map(|i| (dice.below(SIZE + 5000), 1 + dice.below([10, 5000, 600_000][i % 3]))).collect();
        ranges.extend([
            (0, 4096),
            (1, 4096),
            (4095, 2),
            (4096, 1),
            (100, 8192),
            (SIZE - 1, 9),
            (SIZE, 9),
            (0, SIZE),
        ]);
        for (offset, length) in ranges {
            if way == "ring" {
                server.evict("/f");
            }
            let request = pgread(handle, offset, length).stream(9).payload(&[0, dice.below(2) as u8]);
            let got = pages(&mut client, &request, offset);
            assert!(got == expected(&content, offset, length), "{way}: {length} at {offset}");
        }
    }
}

#[test]
fn page_reads_match_the_recording() {
    let server = Server::new();
    server.put("/f", &pattern(10_000));
    let mut client = server.client();
    let handle = client.open("/f", READING);
    let cases = [
        (4090, "a8d251b700141e0000000000000000120000000000000ffae739c53a9ea5acb3bac1a36710e2d5dce3ea"),
        (9999, "2e"),
        (10_000, ""),
    ];
    for (offset, recorded) in cases {
        client.send(&pgread(handle, offset, 10).stream(0x14));
        let reply = client.reply();
        let hex: String =
            [reply.body, reply.data].concat().iter().map(|byte| format!("{byte:02x}")).collect();
        if offset == 4090 {
            assert_eq!(hex, recorded);
        } else {
            assert_eq!(hex.len(), if offset == 9999 { 2 * (24 + 5) } else { 2 * 24 });
        }
    }
}

/// Sends a vector read and returns the data of its elements, whose headers must equal those of the
/// request.
fn vector(client: &mut Client, elements: &[(u32, usize, usize)]) -> Vec<Vec<u8>> {
    let list: Vec<u8> = elements
        .iter()
        .flat_map(|&(handle, offset, length)| segment(handle, length as i32, offset as i64))
        .collect();
    client.send(&Raw::new(READV).payload(&list));
    let mut parts = Vec::new();
    let mut wanted = elements.iter();
    loop {
        let reply = client.reply();
        assert!(reply.status == OK || reply.status == OKSOFAR, "{:?}", reply.error());
        assert!(reply.body.len() <= 2_097_152);
        // Frames end at the end of an element.
        let mut rest = &reply.body[..];
        while !rest.is_empty() {
            let &(handle, offset, length) = wanted.next().unwrap();
            assert_eq!(rest[..16], segment(handle, length as i32, offset as i64));
            parts.push(rest[16..16 + length].to_vec());
            rest = &rest[16 + length..];
        }
        if reply.status == OK {
            assert!(wanted.next().is_none());
            return parts;
        }
    }
}

#[test]
fn any_vector_is_read_in_the_requested_order() {
    let content = pattern(SIZE);
    let other: Vec<u8> = content.iter().rev().copied().collect();
    for (way, server) in servers() {
        server.put("/g", &other);
        let mut client = server.client();
        let handles = [client.open("/f", READING), client.open("/g", READING)];
        let mut dice = Dice::new(4);
        for round in 0..25 {
            let count = [1, 3, 40, 1024][round % 4];
            let most = [2_097_136, 300_000, 5000, 4000][round % 4];
            let elements: Vec<_> = (0..count)
                .map(|_| {
                    let length = dice.below(most);
                    (handles[dice.below(2)], dice.below(SIZE - length + 1), length)
                })
                .collect();
            if way == "ring" {
                server.evict("/f");
                server.evict("/g");
            }
            let got = vector(&mut client, &elements);
            for (part, &(handle, offset, length)) in got.iter().zip(&elements) {
                let source = if handle == handles[0] { &content } else { &other };
                assert!(*part == source[offset..offset + length], "{way}: {length} at {offset}");
            }
        }
        let whole =
            vector(&mut client, &[(handles[0], 0, 2_097_136), (handles[0], SIZE, 0), (handles[0], 7, 0)]);
        assert!(whole[0] == content[..2_097_136]);
    }
}

#[test]
fn adjacent_elements_of_a_vector_are_read_in_one_call() {
    let content = pattern(SIZE);
    for (way, server) in servers() {
        let mut client = server.client();
        let handle = client.open("/f", READING);
        let mut dice = Dice::new(5);
        for _ in 0..20 {
            // Adjacent, sometimes distant, descending, overlapping, or empty.
            let mut at = dice.below(SIZE / 2);
            let mut elements = Vec::new();
            while elements.len() < 200 {
                let length = dice.below(3000);
                at = match dice.below(20) {
                    0 => dice.below(SIZE - 3000),
                    1 => at.saturating_sub(dice.below(5000)),
                    2 => at + 1024,
                    3 => at + 1025,
                    4..8 => at + dice.below(1200),
                    _ => at,
                };
                if at + length > SIZE {
                    at = 0;
                }
                elements.push((handle, at, length));
                at += length;
            }
            let got = vector(&mut client, &elements);
            for (part, &(_, offset, length)) in got.iter().zip(&elements) {
                assert!(*part == content[offset..offset + length], "{way}: {length} at {offset}");
            }
        }
    }
}

#[test]
fn a_vector_beyond_the_end_fails_as_a_whole() {
    for (way, server) in servers() {
        let mut client = server.client();
        let handle = client.open("/f", READING);
        for (offset, length) in [(SIZE, 1), (SIZE - 5, 6), (SIZE + 100, 1), (i64::MAX as usize, 1)] {
            let list = [segment(handle, 10, 0), segment(handle, length, offset as i64)].concat();
            let refusal = client.call(&Raw::new(READV).payload(&list)).error();
            if offset < i64::MAX as usize {
                assert_eq!(refusal, (3005, "Unable to readv /f; illegal seek".to_owned()), "{way}");
            }
        }
        assert_eq!(client.read(handle, 0, 3).len(), 3);
    }
}

#[test]
fn extreme_offsets_are_harmless() {
    for (_, server) in servers() {
        let mut client = server.client();
        let handle = client.open("/f", READING);
        for (offset, length) in
            [(i64::MAX, 1), (i64::MAX, i32::MAX), (i64::MAX - 4096, i32::MAX), (1 << 62, 100)]
        {
            for code in [READ, PGREAD] {
                client.send(&Raw::new(code).handle(handle).i64(8, offset).i32(16, length));
                let reply = client.reply();
                let nothing = matches!(reply.status, OK | STATUS) && reply.data.is_empty();
                assert!(nothing || reply.status == ERROR, "{reply:?}");
            }
        }
        assert_eq!(client.read(handle, 0, 3).len(), 3);
    }
}

#[test]
fn a_short_read_is_reported_as_end_of_file() {
    let server = Server::new();
    server.put("/f", &pattern(100_000));
    let mut client = server.client();
    let handle = client.open("/f", READING);
    client.send(&read(handle, 99_990, 100));
    let reply = client.reply();
    assert_eq!((reply.status, reply.body.len()), (OK, 10));
    // Sent from the page cache.
    client.send(&read(handle, 10, 100_000));
    let reply = client.reply();
    assert_eq!((reply.status, reply.body.len()), (OK, 99_990));
    // Storage that returns less than the size of the file.
    server.rules.add(FaultRule::new(&[FaultyCall::Read], InjectedFault::Short(1000)));
    assert_eq!(client.read(handle, 0, 50_000), pattern(1000));
    assert_eq!(pages(&mut client, &pgread(handle, 100, 50_000), 100), pattern(1100)[100..]);
    let vector = client.call(&Raw::new(READV).payload(&segment(handle, 1001, 0)));
    assert_eq!(vector.error().0, 3005);
    assert_eq!(client.read(handle, 0, 1000), pattern(1000));
}

#[test]
fn a_read_that_fails_in_the_middle_ends_with_its_error() {
    for cold in [false, true] {
        let mut wish = Wish::default();
        wish.config.sendfile = false;
        let server = Server::with(wish);
        server.put("/f", &pattern(SIZE));
        let mut client = server.client();
        let handle = client.open("/f", READING);
        let bad = server.rules.add(FaultRule::new(&[FaultyCall::Read], InjectedFault::Error(5)).after(3));
        let slow =
            cold.then(|| server.rules.add(FaultRule::new(&[FaultyCall::Read], InjectedFault::WouldBlock)));
        for request in [read(handle, 0, SIZE), pgread(handle, 0, SIZE)] {
            client.send(&request.stream(5));
            let last = loop {
                let reply = client.reply();
                assert_eq!(reply.stream, 5);
                let goes_on = reply.status == OKSOFAR || reply.status == STATUS;
                if !goes_on {
                    break reply;
                }
            };
            assert_eq!(
                last.error(),
                (3007, "Unable to read /f; input/output error".to_owned()),
                "cold {cold}"
            );
        }
        server.rules.remove(bad);
        slow.into_iter().for_each(|rule| server.rules.remove(rule));
        assert_eq!(client.read(handle, 0, 10), pattern(10));
    }
}

#[test]
fn a_close_after_reads_waits_for_them() {
    let content = pattern(SIZE);
    let server = Server::new();
    server.put("/f", &content);
    let gate = Gate::new();
    server.rules.add(FaultRule::new(&[FaultyCall::Read], InjectedFault::Hang(gate.clone())));
    let mut client = server.client();
    let handle = client.open("/f", READING);
    let list =
        [segment(handle, 10, 0), segment(handle, 2_000_000, 5), segment(handle, 2_000_000, 9)].concat();
    client.send(&Raw::new(READV).stream(1).payload(&list));
    client.send(&read(handle, 0, 1_000_000).stream(2));
    client.send(&pgread(handle, 0, 1_000_000).stream(3));
    client.send(&Raw::new(CLOSE).stream(4).handle(handle));
    client.send(&read(handle, 0, 10).stream(5));
    // The close was processed: new requests are refused, and no earlier one has ended.
    let late = client.reply();
    assert_eq!((late.stream, late.error().0), (5, 3004));
    gate.wait_for(3);
    gate.open();
    let mut bytes = [0; 6];
    let mut ended = Vec::new();
    while ended.len() < 4 {
        let reply = client.reply();
        assert_ne!(reply.status, ERROR, "stream {}: {:?}", reply.stream, reply.error());
        bytes[usize::from(reply.stream)] += reply.body.len() + reply.data.len();
        if reply.status == OK || (reply.status == STATUS && reply.body[7] == 0) {
            ended.push(reply.stream);
        }
    }
    assert_eq!(ended[3], 4, "{ended:?}");
    assert_eq!((bytes[1], bytes[2]), (4_000_010 + 3 * 16, 1_000_000));
}

#[test]
fn a_file_that_shrinks_under_its_reply_closes_the_connection() {
    let mut wish = Wish::default();
    wish.socket.buffer_bytes = Some(64 * 1024);
    let server = Server::with(wish);
    let content = vec![0xa5; 32 * 1024 * 1024];
    server.put("/f", &content);
    let mut client = server.client();
    let handle = client.open("/f", READING);
    let before = server.totals().bytes_out;
    client.send(&read(handle, 0, content.len()));
    // The reply is in progress and exceeds the buffers of both ends.
    until("the reply begins", || server.totals().bytes_out > before);
    let file = std::fs::File::options().write(true).open(server.path("/f")).unwrap();
    // Not within a page: the kernel zeroes the rest of that page, even if it is being sent.
    file.set_len(0).unwrap();
    let mut got = Vec::new();
    // End of stream or reset, depending on the kernel.
    let _ = client.stream.read_to_end(&mut got);
    let promised = u32::from_be_bytes(got[4..8].try_into().unwrap()) as usize;
    assert!(got.len() < 8 + promised, "{} of {promised}", got.len());
    assert!(got[8..].iter().all(|&byte| byte == 0xa5), "the reply was padded");
    server.until_sessions(0);
    assert_eq!(server.totals().panics, 0);
}

#[test]
fn hints_are_accepted_and_not_answered() {
    let server = Server::new();
    server.put("/f", &pattern(100_000));
    let mut client = server.client();
    let handle = client.open("/f", READING);
    let hints =
        [vec![0; 8], segment(handle, 1000, 5000), segment(77, 1, 1), segment(handle, -1, -1)].concat();
    client.send(&read(handle, 10, 5).payload(&hints));
    assert_eq!(client.reply().body, pattern(100)[10..15]);
    assert_eq!(client.call(&Raw::new(PING).stream(2)).stream, 2);
}

#[test]
fn one_client_reading_does_not_starve_another() {
    let server = Server::with(Wish { loops: 1, ..Wish::default() });
    server.put("/f", &pattern(SIZE));
    let address = server.address;
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stop = done.clone();
    let busy = std::thread::spawn(move || {
        let mut client = Client::login(address);
        let handle = client.open("/f", READING);
        let many: Vec<u8> = (0..1000).flat_map(|_| read(handle, 0, 50_000).bytes()).collect();
        let mut sender = client.stream.try_clone().unwrap();
        let mut rounds = 0;
        while rounds == 0 || !stop.load(std::sync::atomic::Ordering::Relaxed) {
            let many = many.clone();
            let mut sender = sender.try_clone().unwrap();
            let sending = std::thread::spawn(move || std::io::Write::write_all(&mut sender, &many).unwrap());
            for _ in 0..1000 {
                assert_eq!(client.reply().body.len(), 50_000);
            }
            sending.join().unwrap();
            rounds += 1;
        }
        std::io::Write::flush(&mut sender).unwrap();
        rounds
    });
    let mut calm = server.client();
    for _ in 0..200 {
        assert_eq!(calm.call(&Raw::new(PING)).status, OK);
    }
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(busy.join().unwrap() > 0);
}

#[test]
fn clients_that_disconnect_during_kernel_reads_harm_no_other() {
    let server = Server::with(Wish { ring: true, loops: 1, ..Wish::default() });
    let content = pattern(SIZE);
    server.put("/f", &content);
    let mut other = server.client();
    let handle = other.open("/f", READING);
    for round in 0..40 {
        server.evict("/f");
        let mut client = server.client();
        let own = client.open("/f", READING);
        let mut bytes = Vec::new();
        for number in 0..20 {
            bytes.extend(read(own, number * 250_000, 200_000).bytes());
            bytes.extend(pgread(own, number * 250_000, 200_000).bytes());
            bytes.extend(Raw::new(READV).payload(&segment(own, 3000, 1_000_000).repeat(20)).bytes());
        }
        client.send_bytes(&bytes);
        drop(client);
        assert!(other.read(handle, round * 1000, 100_000) == content[round * 1000..round * 1000 + 100_000]);
    }
    server.until_sessions(1);
    other.ok(&Raw::new(CLOSE).handle(handle));
    other.open("/f", 0x20);
    assert_eq!(server.totals().panics, 0);
}
