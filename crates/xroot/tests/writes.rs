//! Writes of every kind compared with a model of the file in memory, and failing storage.
//!
//! Plain, paged and vector writes are mixed, because they share the code that receives payload.

#![allow(clippy::unwrap_used)]

mod support;

use storage::faulty::{FaultRule, FaultyCall, Gate, InjectedFault};
use support::client::{CREATING, READING, UPDATING, open, read, write};
use support::*;

/// Returns pages with checksums, those at `spoiled` with a wrong one.
fn paged(mut offset: usize, data: &[u8], spoiled: &[usize]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = data;
    let mut number = 0;
    while !rest.is_empty() {
        let (page, behind) = rest.split_at((4096 - offset % 4096).min(rest.len()));
        let sum = crc32c(page) ^ u32::from(spoiled.contains(&number));
        out.extend_from_slice(&sum.to_be_bytes());
        out.extend_from_slice(page);
        offset += page.len();
        rest = behind;
        number += 1;
    }
    out
}

fn pgwrite(handle: u32, offset: usize, payload: &[u8]) -> Raw {
    Raw::new(PGWRITE).handle(handle).i64(8, offset as i64).payload(payload)
}

fn writev(pieces: &[(u32, usize, &[u8])]) -> Raw {
    let list: Vec<u8> = pieces
        .iter()
        .flat_map(|(handle, offset, data)| segment(*handle, data.len() as i32, *offset as i64))
        .collect();
    let data: Vec<u8> = pieces.iter().flat_map(|(_, _, data)| data.iter().copied()).collect();
    Raw::new(WRITEV).payload(&list).data(&data)
}

/// The expected content of the file.
struct Model(Vec<u8>);

impl Model {
    fn write(&mut self, offset: usize, data: &[u8]) {
        let end = offset + data.len();
        if !data.is_empty() && self.0.len() < end {
            self.0.resize(end, 0);
        }
        if !data.is_empty() {
            self.0[offset..end].copy_from_slice(data);
        }
    }
}

#[test]
fn any_sequence_of_writes_matches_the_model() {
    for cold in [false, true] {
        let server = Server::new();
        if cold {
            server.rules.add(FaultRule::new(&[FaultyCall::Write], InjectedFault::WouldBlock));
        }
        let mut client = server.client();
        let handle = client.open("/f", CREATING);
        let mut model = Model(Vec::new());
        let mut dice = Dice::new(5);
        let source = pattern(2_000_000);
        for round in 0..150 {
            let length = dice.below([10, 5000, 100_000, 900_000][round % 4]);
            let from = dice.below(source.len() - length);
            let data = &source[from..from + length];
            let offset = dice.below(1_500_000);
            match dice.below(4) {
                0 | 1 => {
                    assert_eq!(client.ok(&write(handle, offset, data)), b"");
                    model.write(offset, data);
                }
                2 if length > 0 => {
                    let reply = client.call(&pgwrite(handle, offset, &paged(offset, data, &[])));
                    assert_eq!((reply.status, reply.data.len()), (STATUS, 0));
                    assert_eq!(reply.body[16..24], (offset as u64).to_be_bytes());
                    model.write(offset, data);
                }
                _ => {
                    let (left, right) = data.split_at(length / 3);
                    let pieces = [(handle, offset, left), (handle, 7, &[][..]), (handle, offset / 2, right)];
                    let options = dice.below(2) as u8;
                    assert_eq!(client.ok(&writev(&pieces).u8(4, options)), b"");
                    model.write(offset, left);
                    model.write(offset / 2, right);
                }
            }
        }
        assert!(client.read(handle, 0, 3_000_000) == model.0, "cold {cold}");
        client.ok(&Raw::new(SYNC).handle(handle));
        client.ok(&Raw::new(TRUNCATE).handle(handle).i64(8, 1234));
        client.ok(&Raw::new(CLOSE).handle(handle));
        assert!(server.content("/f") == model.0[..1234]);
    }
}

/// Of overlapping elements of one vector the later one takes effect, even if an earlier one waits
/// for its disk.
#[test]
fn the_later_element_of_a_vector_takes_effect() {
    let server = Server::with(Wish { loops: 1, ..Wish::default() });
    let (mut client, mut other) = (server.client(), server.client());
    let (handle, second) = (client.open("/f", CREATING), client.open("/g", CREATING));
    let (a, b, c) = ([b'a'; 1000], [b'b'; 1000], [b'c'; 1000]);
    for (name, pieces, expected) in [
        ("the same place", [(handle, 0, &a[..]), (handle, 0, &b[..])], [&b[..]].concat()),
        ("before it", [(handle, 500, &a[..]), (handle, 0, &b[..])], [&b[..], &a[..500]].concat()),
        ("within it", [(handle, 0, &a[..]), (handle, 500, &b[..])], [&a[..500], &b[..]].concat()),
    ] {
        client.ok(&Raw::new(TRUNCATE).handle(handle).i64(8, 0));
        // The first waits in the pool; the next could be written in place.
        let gate = Gate::new();
        server.rules.add(FaultRule::new(&[FaultyCall::Write], InjectedFault::WouldBlock).times(1));
        let hangs = server
            .rules
            .add(FaultRule::new(&[FaultyCall::Write], InjectedFault::Hang(gate.clone())).times(1));
        // An element of another file between them changes nothing.
        let pieces = [pieces[0], (second, 0, &c[..]), pieces[1]];
        client.send_bytes(&writev(&pieces).bytes());
        gate.wait_for(1);
        // The loop has processed all input.
        for _ in 0..2 {
            other.ok(&Raw::new(PING));
        }
        gate.open();
        assert_eq!(client.reply().status, OK, "{name}");
        server.rules.remove(hangs);
        assert!(client.read(handle, 0, 10_000) == expected, "{name}");
        assert!(client.read(second, 0, 10_000) == c, "{name}");
    }
}

#[test]
fn requests_after_a_write_wait_only_for_their_turn() {
    for cold in [false, true] {
        let server = Server::new();
        if cold {
            server.rules.add(FaultRule::new(&[FaultyCall::Write], InjectedFault::WouldBlock));
        }
        let mut client = server.client();
        let handle = client.open("/f", CREATING);
        let content = pattern(3_000_000);
        let mut bytes = Vec::new();
        for (number, piece) in content.chunks(100_000).enumerate() {
            bytes.extend(write(handle, number * 100_000, piece).stream(number as u16).bytes());
        }
        bytes.extend(Raw::new(CLOSE).stream(99).handle(handle).bytes());
        bytes.extend(Raw::new(STAT).stream(100).payload(b"/f").bytes());
        client.send_bytes(&bytes);
        let mut seen: Vec<u16> = (0..32)
            .map(|_| client.reply())
            .map(|reply| {
                assert_eq!(reply.status, OK);
                reply.stream
            })
            .collect();
        let closed = seen.iter().position(|&stream| stream == 99).unwrap();
        assert!(seen[..closed].iter().filter(|&&stream| stream < 99).count() == 30, "{seen:?}");
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 32);
        assert!(server.content("/f") == content);
    }
}

/// After large writes the next request is received together with its payload, directly into its
/// final buffer. Whatever arrives instead, and however it is split, no data may be lost or
/// misplaced.
#[test]
fn large_writes_may_be_split_anywhere_and_followed_by_any_request() {
    for cold in [false, true] {
        let server = Server::new();
        if cold {
            server.rules.add(FaultRule::new(&[FaultyCall::Write], InjectedFault::WouldBlock));
        }
        let (mut client, mut other) = (server.client(), server.client());
        let handle = client.open("/f", CREATING);
        let mut model = Model(Vec::new());
        let mut dice = Dice::new(11);
        let source = pattern(700_000);
        for round in 0..120 {
            let (mut bytes, mut count) = (Vec::new(), 0_u16);
            // Writes of one batch do not overlap, because the pool may execute them in any order.
            let mut offset = dice.below(200_000);
            while count <= dice.below(4) as u16 {
                let length = [65_536, 65_536, 20_000, 262_144, 262_145, 300_000, 9, 0][dice.below(8)];
                let from = dice.below(source.len() - length);
                let data = &source[from..from + length];
                let (request, writes) = match dice.below(8) {
                    0 => (Raw::new(PING), false),
                    1 => (Raw::new(STAT).payload(b"/f"), false),
                    2 => (writev(&[(handle, offset, data)]), true),
                    3 if length > 0 => (pgwrite(handle, offset, &paged(offset, data, &[])), true),
                    _ => (write(handle, offset, data), true),
                };
                bytes.extend(request.stream(count).bytes());
                if writes {
                    model.write(offset, data);
                    offset += length;
                }
                count += 1;
            }
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let most = [1, 30, 3_000, 70_000, 600_000][dice.below(5)];
                let (now, later) = rest.split_at(rest.len().min(1 + dice.below(most)));
                client.send_bytes(now);
                rest = later;
                if dice.below(3) == 0 {
                    // The sent bytes arrive meanwhile.
                    other.ok(&Raw::new(PING));
                }
            }
            let mut seen: Vec<u16> = (0..count)
                .map(|_| client.reply())
                .map(|reply| {
                    assert!(
                        reply.status == OK || reply.status == STATUS,
                        "round {round}: {:?}",
                        reply.error()
                    );
                    reply.stream
                })
                .collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..count).collect::<Vec<_>>(), "round {round}");
        }
        assert!(client.read(handle, 0, 3_000_000) == model.0, "cold {cold}");
        client.ok(&Raw::new(CLOSE).handle(handle));
        assert!(server.content("/f") == model.0);
    }
}

#[test]
fn requests_are_found_after_errors_between_large_writes() {
    let server = Server::new();
    server.put("/g", b"as it was");
    let mut client = server.client();
    let (handle, reading) = (client.open("/f", CREATING), client.open("/g", READING));
    let content = pattern(700_000);
    let large = |offset: usize| write(handle, offset, &content[offset..offset + 65_536]);
    client.ok(&large(0));
    assert_eq!(client.call(&write(reading, 0, &content[..65_536])).error().0, 3004);
    client.ok(&large(0));
    // This handle is not open.
    assert_eq!(client.call(&write(77, 0, &content[..65_536])).error().0, 3004);
    client.ok(&large(65_536));
    server.rules.add(FaultRule::new(&[FaultyCall::Write], InjectedFault::Error(28)).times(1));
    assert_eq!(client.call(&large(131_072)).error().0, 3009);
    client.ok(&large(131_072));
    server.rules.set_room(Some(100_000));
    assert_eq!(client.call(&write(handle, 196_608, &content[196_608..])).error().0, 3009);
    server.rules.set_room(None);
    client.ok(&write(handle, 196_608, &content[196_608..]));
    assert!(client.read(handle, 0, 1_000_000) == content);
    // Part of the last payload arrives, or part of its header.
    for part in [24 + 30_000, 24, 11] {
        let mut client = server.client();
        let name = format!("/part-{part}");
        let handle = client.open(&name, CREATING);
        client.ok(&write(handle, 0, &content[..65_536]));
        client.send_bytes(&write(handle, 65_536, &content[65_536..131_072]).bytes()[..part]);
        drop(client);
        server.until_sessions(1);
        let left = server.content(&name);
        assert!(left.len() >= 65_536 && left == content[..left.len()], "{part}: {}", left.len());
    }
    client.ok(&Raw::new(CLOSE).handle(handle));
    assert!(server.content("/f") == content);
    assert_eq!((server.content("/g").as_slice(), server.totals().panics), (&b"as it was"[..], 0));
}

#[test]
fn bad_pages_are_written_reported_and_corrected() {
    let server = Server::new();
    let mut client = server.client();
    let handle = client.open("/f", CREATING);
    let data = pattern(500_000);
    let mut dice = Dice::new(6);
    for offset in [0, 100, 4095, 123_456] {
        let count = (offset % 4096 + data.len()).div_ceil(4096);
        let mut spoiled: Vec<usize> = (0..5).map(|_| dice.below(count)).collect();
        spoiled.sort_unstable();
        spoiled.dedup();
        let reply = client.call(&pgwrite(handle, offset, &paged(offset, &data, &spoiled)));
        assert_eq!(reply.status, STATUS);
        let start = |number: usize| if number == 0 { offset } else { (offset / 4096 + number) * 4096 };
        let length = |number: usize| (start(number + 1).min(offset + data.len())) - start(number);
        let offsets: Vec<u8> =
            spoiled.iter().flat_map(|&number| (start(number) as u64).to_be_bytes()).collect();
        assert_eq!(reply.data[0..4], crc32c(&reply.data[4..]).to_be_bytes());
        let ends = [length(spoiled[0]), length(*spoiled.last().unwrap())];
        assert_eq!(reply.data[4..8], ends.map(|length| (length as u16).to_be_bytes()).concat());
        assert_eq!(reply.data[8..], offsets);
        assert_eq!(client.read(handle, offset, data.len()), data);
        for &number in &spoiled {
            let at = start(number) - offset;
            let page = paged(start(number), &data[at..at + length(number)], &[]);
            let retry = client.call(&pgwrite(handle, start(number), &page).u8(17, 1));
            assert_eq!((retry.status, retry.data.len()), (STATUS, 0));
        }
    }
    assert_eq!(client.ok(&Raw::new(CLOSE).handle(handle)), b"");
    // One page that stays bad.
    let handle = client.open("/f", UPDATING);
    client.call(&pgwrite(handle, 0, &paged(0, &data[..4096], &[0])));
    let refusal = client.call(&Raw::new(CLOSE).handle(handle)).error();
    assert_eq!(refusal, (3019, "1 uncorrected checksum errors".to_owned()));
    assert_eq!(client.call(&read(handle, 0, 1)).error().0, 3004);
    // The handle is closed, and its lock released.
    client.open("/f", UPDATING);
}

#[test]
fn too_many_bad_pages_are_an_error_and_cost_no_memory() {
    let server = Server::new();
    let mut client = server.client();
    let handle = client.open("/f", CREATING);
    let data = pattern(4096 * 1000);
    let all: Vec<usize> = (0..1000).collect();
    let reply = client.call(&pgwrite(handle, 0, &paged(0, &data[..4096 * 127], &all)));
    assert_eq!((reply.status, reply.data.len()), (STATUS, 8 + 127 * 8));
    let refusal = client.call(&pgwrite(handle, 0, &paged(0, &data, &all))).error();
    assert_eq!(refusal, (3033, "Too many checksum errors in request".to_owned()));
    assert_eq!(client.read(handle, 0, data.len()), data);
    assert_eq!(client.call(&Raw::new(CLOSE).handle(handle)).error().0, 3019);
}

#[test]
fn the_next_request_is_found_after_a_partial_write() {
    for cold in [false, true] {
        for (errno, code) in [(28, 3009), (5, 3007), (122, 3021)] {
            // One thread only: several would take the pieces in any order, and a failed one could
            // leave a hole before a successful one.
            let server = Server::with(Wish { pools: vec!["/own"], ..Wish::default() });
            if cold {
                server.rules.add(FaultRule::new(&[FaultyCall::Write], InjectedFault::WouldBlock));
            }
            let mut client = server.client();
            let handle = client.open("/own/f", CREATING);
            let content = pattern(2_000_000);
            let bad =
                server.rules.add(FaultRule::new(&[FaultyCall::Write], InjectedFault::Error(errno)).after(2));
            let requests = [
                write(handle, 0, &content).stream(1),
                pgwrite(handle, 0, &paged(0, &content, &[])).stream(2),
                writev(&[(handle, 0, &content[..1_000_000]), (handle, 0, &content[..500_000])]).stream(3),
                Raw::new(PING).stream(4),
            ];
            let bytes: Vec<u8> = requests.iter().flat_map(Raw::bytes).collect();
            client.send_bytes(&bytes);
            let mut replies: Vec<Reply> = (0..4).map(|_| client.reply()).collect();
            replies.sort_by_key(|reply| reply.stream);
            for reply in &replies[..3] {
                let (got, text) = reply.error();
                assert_eq!(got, code, "cold {cold}: {text}");
                assert!(text.starts_with("Unable to write /own/f; "), "{text}");
            }
            assert_eq!(replies[3].status, OK);
            server.rules.remove(bad);
            // The content equals the data sent.
            let left = client.read(handle, 0, 3_000_000);
            assert!(left == content[..left.len()]);
            assert_eq!(client.ok(&write(handle, 0, b"again")), b"");
        }
    }
}

#[test]
fn a_full_disk_is_reported_and_keeps_the_written_part() {
    let server = Server::new();
    let mut client = server.client();
    let handle = client.open("/f", CREATING);
    let content = pattern(1_000_000);
    server.rules.set_room(Some(300_000));
    assert_eq!(client.call(&write(handle, 0, &content)).error().0, 3009);
    assert_eq!(client.call(&write(handle, 0, &content[..10])).error().0, 3009);
    server.rules.set_room(None);
    let left = client.read(handle, 0, 2_000_000);
    assert!(left == content[..left.len()]);
    client.ok(&write(handle, 0, &content));
    client.ok(&Raw::new(CLOSE).handle(handle));
    assert!(server.content("/f") == content);
}

#[test]
fn a_read_handle_rejects_writes() {
    let server = Server::new();
    server.put("/f", b"as it was");
    let mut client = server.client();
    let handle = client.open("/f", READING);
    let refusal = (3004, "Unable to write /f; bad file descriptor".to_owned());
    assert_eq!(client.call(&write(handle, 0, &pattern(300_000))).error(), refusal);
    assert_eq!(client.call(&pgwrite(handle, 0, &paged(0, &pattern(9000), &[]))).error(), refusal);
    assert_eq!(client.call(&writev(&[(handle, 0, b"xyz")])).error().0, 3004);
    let truncate = client.call(&Raw::new(TRUNCATE).handle(handle)).error();
    assert_eq!(truncate, (3000, "Unable to truncate /f; invalid argument".to_owned()));
    assert_eq!(server.content("/f"), b"as it was");
}

#[test]
fn acknowledged_data_of_a_lost_client_is_kept() {
    for cold in [false, true] {
        let server = Server::new();
        if cold {
            server.rules.add(FaultRule::new(&[FaultyCall::Write], InjectedFault::WouldBlock));
        }
        let content = pattern(1_000_000);
        let mut other = server.client();
        let mut client = server.client();
        let handle = client.open("/f", CREATING);
        client.ok(&write(handle, 0, &content[..400_000]));
        client.send(&write(handle, 400_000, &content[400_000..]).dlen(1_000_000));
        assert_eq!(other.call(&open("/f", READING)).error().0, 3003);
        drop(client);
        server.until_sessions(1);
        // Its lock is released.
        let handle = other.open("/f", UPDATING);
        let left = other.read(handle, 0, 2_000_000);
        assert!(left.len() >= 400_000 && left == content[..left.len()], "cold {cold}: {}", left.len());
        assert_eq!(server.totals().panics, 0);
    }
}

#[test]
fn a_lost_client_with_data_in_flight_waits_only_for_its_disk() {
    let server = Server::with(Wish { pools: vec!["/slow"], ..Wish::default() });
    let gate = Gate::new();
    let slow = logical_path("/slow");
    let mut client = server.client();
    let handle = client.open("/slow/f", CREATING);
    client.ok(&write(handle, 0, b"acknowledged"));
    server.rules.add(FaultRule::new(&[FaultyCall::Write], InjectedFault::Hang(gate.clone())).below(&slow));
    client.send(&write(handle, 0, &pattern(300_000)));
    gate.wait_for(1);
    drop(client);
    // Clients on other file systems are not affected; the file is still locked.
    let mut other = server.client();
    let handle = other.open("/g", CREATING);
    other.ok(&write(handle, 0, b"fine"));
    gate.open();
    server.until_sessions(1);
    let handle = other.open("/slow/f", UPDATING);
    assert!(other.read(handle, 0, 12).len() == 12);
}

fn checkpoint(handle: u32, opcode: u8) -> Raw {
    Raw::new(CHKPOINT).handle(handle).u8(19, opcode)
}

fn under_checkpoint(handle: u32, embedded: &Raw) -> Raw {
    let bytes = embedded.bytes();
    checkpoint(handle, 4).payload(&bytes[..24]).data(&bytes[24..])
}

/// Writes in every way under a checkpoint of a file of 10,000 bytes.
fn change_everything(client: &mut Client, handle: u32) {
    let writes = [
        write(handle, 0, b"XXXXX"),
        writev(&[(handle, 5000, b"ZZZZ"), (handle, 20_000, b"far behind")]),
        Raw::new(TRUNCATE).handle(handle).i64(8, 768),
        write(handle, 100, &[b'w'; 300_000]),
    ];
    for embedded in &writes {
        assert_eq!(client.ok(&under_checkpoint(handle, embedded)), b"", "{embedded:?}");
    }
    let page = paged(9, b"YYYYY", &[]);
    assert_eq!(client.call(&under_checkpoint(handle, &pgwrite(handle, 9, &page))).status, STATUS);
}

#[test]
fn a_checkpoint_is_rolled_back_committed_or_lost_as_a_whole() {
    let server = Server::new();
    let content = pattern(10_000);
    server.put("/f", &content);
    let mut client = server.client();
    let handle = client.open("/f", UPDATING);
    assert_eq!(client.call(&under_checkpoint(handle, &write(handle, 0, b"x"))).error().0, 3011);
    client.ok(&checkpoint(handle, 0));
    change_everything(&mut client, handle);
    let sizes = client.ok(&checkpoint(handle, 2));
    assert_eq!(sizes[..4], (1u32 << 20).to_be_bytes());
    client.ok(&checkpoint(handle, 3));
    assert!(client.read(handle, 0, 400_000) == content);

    client.ok(&checkpoint(handle, 0));
    change_everything(&mut client, handle);
    // The client disconnects: the file is unchanged.
    drop(client);
    server.until_sessions(0);
    assert!(server.content("/f") == content);

    let mut client = server.client();
    let handle = client.open("/f", UPDATING);
    client.ok(&checkpoint(handle, 0));
    change_everything(&mut client, handle);
    client.ok(&checkpoint(handle, 1));
    client.ok(&Raw::new(CLOSE).handle(handle));
    let after = server.content("/f");
    assert_eq!((after.len(), &after[..14]), (300_100, &b"XXXXX\x28\x2f\x36\x3dYYYYY"[..]));
}

#[test]
fn the_next_request_is_found_after_an_error_under_a_checkpoint() {
    let server = Server::new();
    let content = pattern(10_000);
    server.put("/f", &content);
    let mut client = server.client();
    let handle = client.open("/f", UPDATING);
    client.ok(&checkpoint(handle, 0));
    client.ok(&under_checkpoint(handle, &write(handle, 0, b"before")));
    server.rules.add(FaultRule::new(&[FaultyCall::Write], InjectedFault::Error(28)).times(1));
    let large = under_checkpoint(handle, &write(handle, 0, &pattern(700_000)));
    assert_eq!(client.call(&large).error().0, 3009);
    client.ok(&checkpoint(handle, 3));
    assert!(client.read(handle, 0, 20_000) == content);
}
