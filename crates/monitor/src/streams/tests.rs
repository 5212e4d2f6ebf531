//! Tests of all parts of detailed monitoring together, without a network.

use super::shared::{QUEUE_BYTES_MAX, QUEUE_PACKETS_MAX};
use super::*;
use crate::RecordSender;
use config::{DetailedMonitoring, FileStreamSettings, MonitorDestination, MonitorEvent, MonitorEvents};
use std::rc::Rc;
use std::time::Duration;
use wire::Decode;
use wire::monitoring::{
    FileRecord, FileTotals, Packet, PacketCode, RedirectOperation, RedirectRecord, TraceRecord,
};

/// A server with collectors that want these events, its loop, and what its collectors would get.
struct Bench {
    streams: Rc<LoopStreams>,
    senders: Vec<StreamSender>,
    now: Seconds,
    age: Duration,
}

impl Bench {
    fn new(collectors: &[&[MonitorEvent]], change: impl FnOnce(&mut DetailedMonitoring)) -> Self {
        let destination = |events: &&[MonitorEvent]| MonitorDestination {
            events: events.iter().fold(MonitorEvents::NONE, |all, event| all.with(*event)),
            address: "127.0.0.1:9".parse().unwrap(),
        };
        let mut settings = DetailedMonitoring {
            destinations: collectors.iter().map(destination).collect(),
            files: FileStreamSettings {
                interval: Duration::from_secs(60),
                names: true,
                operations: true,
                squares: false,
                transfers: Some(2),
            },
            ..DetailedMonitoring::default()
        };
        change(&mut settings);
        let sender = RecordSender {
            site: String::new(),
            host: "vm".to_owned(),
            instance: "anon".to_owned(),
            program: "xrootd".to_owned(),
            port: 1094,
            user: "daemon".to_owned(),
            process: 9,
            started: 77,
        };
        let (shared, senders) = MonitorStreams::new(&settings, &sender, "v1");
        let streams = LoopStreams::new(&shared);
        let now = streams.now();
        Self { streams, senders, now, age: Duration::ZERO }
    }

    fn login(&self) -> SessionStreams {
        SessionStreams::new(&self.streams, &user::tests::user())
    }

    fn pass(&mut self, seconds: Seconds) {
        self.now += seconds;
        self.age += Duration::from_secs(seconds.into());
        self.streams.tick_at(self.now, self.age);
    }

    fn packets(&mut self, collector: usize) -> Vec<Vec<u8>> {
        self.senders[collector].waiting()
    }

    fn codes(&mut self, collector: usize) -> String {
        self.packets(collector).iter().map(|packet| char::from(packet[0])).collect()
    }
}

/// Returns id and text of a map packet.
fn map(packet: &[u8]) -> (PacketCode, u32, String) {
    match Packet::decode(packet) {
        Ok(Packet::Map(map)) => (map.code, map.id, String::from_utf8(map.text.to_vec()).unwrap()),
        other => panic!("{other:?}"),
    }
}

const ALL: &[MonitorEvent] = &[
    MonitorEvent::User,
    MonitorEvent::Info,
    MonitorEvent::Vectors,
    MonitorEvent::FileStream,
    MonitorEvent::Redirects,
];

#[test]
fn a_session_has_records_in_all_streams() {
    let mut bench = Bench::new(&[ALL], |_| {});
    let mut session = bench.login();
    session.application(b"root.exe");
    session.opened(1, "/a", 1000, false);
    session.read(1, 10, 20);
    session.read_vector(&[(1, 5, 6), (1, 7, 8)]);
    session.opened(2, "/b", 0, true);
    session.write(2, 3, 4);
    session.closed(2, false);
    let info = session.info(b"about me");
    session.redirected(RedirectOperation::STAT, ("h.example.org", 1094), "/c");
    bench.pass(5);
    drop(session);
    bench.pass(1);
    let packets = bench.packets(0);
    let server = bench.streams.shared().server();
    let first = format!("xroot/root.7:{server}@h.example.org");
    let line = |text: &str| format!("{first}\n{text}");
    assert_eq!(map(&packets[0]), (PacketCode::USER, 1, line("&R=v5.5.3&x=xrdcp&y=&I=4")));
    assert_eq!(map(&packets[1]), (PacketCode::PATH, 2, line("/a")));
    assert_eq!(map(&packets[2]), (PacketCode::PATH, 3, line("/b")));
    assert_eq!((map(&packets[3]), info), ((PacketCode::INFO, 4, line("about me")), 4));
    // The tick after the end of a session sends its trace.
    let Ok(Packet::Trace(header, records)) = Packet::decode(&packets[4]) else { panic!("{packets:?}") };
    assert_eq!((header.sequence, header.started, packets.len()), (5, 77, 5));
    let io = |offset, length, file| TraceRecord::Io { offset, length, file };
    let expected = [
        TraceRecord::Application(*b"root.exe\0\0\0\0"),
        TraceRecord::Open { size: 1000, file: 2 },
        io(10, 20, 2),
        TraceRecord::Vector { unwound: true, vector: 1, elements: 2, length: 14, file: 2 },
        io(5, 6, 2),
        io(7, 8, 2),
        TraceRecord::Open { size: 0, file: 3 },
        io(3, -4, 3),
        TraceRecord::close(3, 0, 4),
        TraceRecord::close(2, 34, 0),
        TraceRecord::Disconnect { flags: 0, seconds: 5, user: 1 },
    ];
    assert_eq!(records.0[1..records.0.len() - 1], expected);
    bench.pass(594);
    let packets = bench.packets(0);
    assert_eq!(packets.len(), 2);
    check_files(&packets[0]);
    check_redirects(&packets[1]);
    assert_eq!(bench.packets(0).len(), 0);
}

/// Checks the file stream of the session above.
fn check_files(packet: &[u8]) {
    let Ok(Packet::Files(header, records)) = Packet::decode(packet) else { panic!("{packet:?}") };
    assert_eq!(header.sequence, 0);
    let [FileRecord::Time { transfers: 0, records: 5, .. }, rest @ ..] = &records.0[..] else {
        panic!("{records:?}")
    };
    let open = |file, is_writable, size, name| FileRecord::Open { file, is_writable, size, name };
    assert_eq!(rest[..2], [open(2, false, 1000, Some((1, &b"/a"[..]))), open(3, true, 0, Some((1, b"/b")))]);
    let ends: Vec<_> = rest[2..]
        .iter()
        .map(|record| match record {
            FileRecord::Close { file, is_forced, totals, operations, .. } => {
                let counts = operations.map(|counts| (counts.reads, counts.vector_reads, counts.writes));
                format!("{file} {is_forced} {totals:?} {counts:?}")
            }
            other => format!("{other:?}"),
        })
        .collect();
    let totals = |read, vector_read, written| FileTotals { read, vector_read, written };
    assert_eq!(
        ends,
        [
            format!("3 false {:?} Some((0, 0, 1))", totals(0, 0, 4)),
            format!("2 true {:?} Some((1, 1, 0))", totals(20, 14, 0)),
            "Disconnect { user: 1 }".to_owned()
        ]
    );
}

/// Checks the redirect stream of the session above.
fn check_redirects(packet: &[u8]) {
    let Ok(Packet::Redirects(header, records)) = Packet::decode(packet) else { panic!("{packet:?}") };
    assert_eq!((header.sequence, records.records.len()), (6, 3));
    assert!(matches!(
        records.records[1],
        RedirectRecord::Redirect { port: 1094, user: 1, target: b"h.example.org:/c", .. }
    ));
}

#[test]
fn long_names_fit_into_small_packets() {
    let mut bench = Bench::new(&[&[MonitorEvent::FileStream]], |settings| settings.file_buffer_bytes = 1024);
    let mut session = bench.login();
    for file in 0..5 {
        session.opened(file, &format!("/{}", "x".repeat(5000)), 1, false);
    }
    drop(session);
    bench.pass(60);
    let packets = bench.packets(0);
    assert_eq!(packets.len(), 6);
    assert!(packets.iter().all(|packet| packet.len() <= 1024));
}

#[test]
fn tokens_are_sent_only_with_auth() {
    for (authentication, expected) in [(true, "uT"), (false, "u")] {
        let mut bench = Bench::new(&[ALL], |settings| settings.authentication = authentication);
        let authenticated = AuthenticatedUser { token_subject: Some("sub"), ..AuthenticatedUser::default() };
        let user = MonitoredUser { authenticated: Some(authenticated), ..user::tests::user() };
        drop(SessionStreams::new(&bench.streams, &user));
        let packets = bench.packets(0);
        assert_eq!(packets.iter().map(|packet| char::from(packet[0])).collect::<String>(), expected);
        if authentication {
            let (_, _, text) = map(&packets[1]);
            assert!(text.ends_with("\n&Uc=1&s=sub&n=&o=&r=&g="), "{text}");
        }
    }
}

#[test]
fn each_collector_gets_what_it_wants_with_numbers_of_its_own() {
    let mut bench =
        Bench::new(&[&[MonitorEvent::FileStream], &[MonitorEvent::User, MonitorEvent::Io]], |_| {});
    for _ in 0..300 {
        let mut session = bench.login();
        assert_eq!(session.info(b"nobody wants this"), 0);
        session.redirected(RedirectOperation::STAT, ("h", 1), "/c");
        session.opened(1, "/a", 1, false);
        drop(session);
        bench.pass(0);
    }
    bench.pass(60);
    assert_eq!(bench.codes(0), "f");
    let packets = bench.packets(1);
    assert_eq!(packets.len(), 900);
    assert!(packets.iter().zip(1..).all(|(packet, number)| packet[1] == (number % 256) as u8));
    assert!(packets.chunks(3).all(|packets| packets.iter().map(|packet| packet[0]).eq(*b"udt")));
}

#[test]
fn a_collector_of_opens_and_closes_gets_no_reads() {
    let mut bench = Bench::new(&[&[MonitorEvent::Files], &[MonitorEvent::Io]], |_| {});
    let mut session = bench.login();
    session.opened(1, "/a", 9, false);
    session.application(b"x");
    session.read(1, 0, 5);
    session.read_vector(&[(1, 2, 3)]);
    session.closed(1, false);
    drop(session);
    bench.pass(1000);
    let mut records = |collector| {
        let packets = bench.packets(collector);
        assert_eq!((packets.len(), packets[0][0], packets[1][0]), (2, b'd', b't'));
        match Packet::decode(&packets[1]) {
            Ok(Packet::Trace(_, records)) => records.0[1..records.0.len() - 1].to_vec(),
            other => panic!("{other:?}"),
        }
    };
    let (open, close) = (TraceRecord::Open { size: 9, file: 2 }, TraceRecord::close(2, 8, 0));
    let end = TraceRecord::Disconnect { flags: 0, seconds: 0, user: 1 };
    assert_eq!(records(0), [open, close, end]);
    let all = records(1);
    assert_eq!((all.len(), all[0], all[4], all[5]), (6, open, close, end));
    let vector = TraceRecord::Vector { unwound: false, vector: 1, elements: 1, length: 3, file: 2 };
    assert_eq!(all[3], vector);
}

#[test]
fn a_client_can_end_the_trace_of_its_files() {
    let mut bench = Bench::new(&[ALL], |_| {});
    let mut session = bench.login();
    session.opened(1, "/a", 1, false);
    session.set_traced(false);
    session.application(b"x");
    session.read(1, 0, 1);
    session.opened(2, "/b", 1, false);
    session.read(2, 0, 2);
    session.set_traced(true);
    session.read(2, 0, 4);
    session.read(1, 0, 8);
    session.closed(2, false);
    drop(session);
    bench.pass(0);
    let packets = bench.packets(0);
    assert_eq!(packets.iter().map(|packet| packet[0]).collect::<Vec<_>>(), *b"udt");
    let Ok(Packet::Trace(_, records)) = Packet::decode(&packets[2]) else { panic!("{packets:?}") };
    let (open, read) =
        (TraceRecord::Open { size: 1, file: 2 }, TraceRecord::Io { offset: 0, length: 8, file: 2 });
    let end = TraceRecord::Disconnect { flags: 0, seconds: 0, user: 1 };
    assert_eq!(records.0[1..records.0.len() - 1], [open, read, TraceRecord::close(2, 9, 0), end]);
    // The file stream has all files.
    bench.pass(1000);
    let packets = bench.packets(0);
    let Ok(Packet::Files(_, records)) = Packet::decode(&packets[0]) else { panic!("{packets:?}") };
    assert_eq!((packets.len(), records.0.len()), (1, 6));
}

#[test]
fn sessions_that_end_together_share_packets_of_the_trace() {
    let mut bench = Bench::new(&[&[MonitorEvent::Io]], |settings| settings.flush = None);
    let sessions: Vec<_> = (0..500).map(|_| bench.login()).collect();
    bench.pass(1);
    drop(sessions);
    assert_eq!(bench.codes(0), "");
    bench.pass(1);
    assert_eq!(bench.codes(0), "t");
    bench.pass(1);
    assert_eq!(bench.codes(0), "");
}

#[test]
fn a_clock_that_is_set_back_stops_nothing() {
    let mut bench = Bench::new(&[ALL], |settings| settings.flush = Some(Duration::from_secs(60)));
    let session = bench.login();
    bench.pass(10);
    bench.packets(0);
    bench.now -= 86_400;
    bench.pass(1);
    session.redirected(RedirectOperation::STAT, ("h", 1), "/c");
    drop(session);
    bench.pass(60);
    let packets = bench.packets(0);
    assert_eq!(packets.iter().map(|packet| packet[0]).collect::<Vec<_>>(), *b"tfr");
    let Ok(Packet::Trace(_, records)) = Packet::decode(&packets[0]) else { panic!("{packets:?}") };
    assert_eq!(records.0[1], TraceRecord::Disconnect { flags: 0, seconds: 11, user: 1 });
}

#[test]
fn totals_of_open_files_come_with_each_second_packet_if_they_change() {
    let mut bench = Bench::new(&[&[MonitorEvent::FileStream]], |_| {});
    let mut session = bench.login();
    session.opened(1, "/a", 1, false);
    session.opened(2, "/b", 1, false);
    session.read(2, 0, 5);
    let transfers = |bench: &mut Bench| {
        bench.pass(60);
        let packets = bench.packets(0);
        let of = |packet: &Vec<u8>| match Packet::decode(packet) {
            Ok(Packet::Files(_, records)) => {
                let of = |record: &FileRecord<'_>| match record {
                    FileRecord::Transfer { file, totals } => Some((*file, totals.read)),
                    _ => None,
                };
                records.0.iter().filter_map(of).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        };
        packets.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(transfers(&mut bench), [vec![]]);
    assert_eq!(transfers(&mut bench), [vec![(3, 5)]]);
    session.read(1, 0, 3);
    session.read(2, 0, 3);
    // Packets without records are not sent.
    assert_eq!(transfers(&mut bench), Vec::<Vec<_>>::new());
    assert_eq!(transfers(&mut bench), [vec![(2, 3), (3, 8)]]);
    assert_eq!(transfers(&mut bench), Vec::<Vec<_>>::new());
    assert_eq!(transfers(&mut bench), Vec::<Vec<_>>::new());
}

#[test]
fn a_queue_that_is_full_drops_packets_and_counts_them() {
    for length in [0, 65_000] {
        let mut bench = Bench::new(&[ALL, ALL], |_| {});
        let text = vec![b'x'; length];
        let send = |bench: &Bench, number, code| {
            let shared = bench.streams.shared();
            (0..number).for_each(|_| shared.send_map(MonitorEvent::User, code, 1, &text));
        };
        send(&bench, 10_000, PacketCode::INFO);
        let dropped = bench.streams.shared().dropped();
        // There are places that only essential packets have.
        send(&bench, 10_000, PacketCode::USER);
        let all_dropped = bench.streams.shared().dropped();
        let packets = bench.packets(0);
        let bytes: usize = packets.iter().map(Vec::capacity).sum();
        let infos = packets.iter().filter(|packet| packet[0] == b'i').count();
        assert!(packets.len() <= QUEUE_PACKETS_MAX && bytes <= QUEUE_BYTES_MAX, "{} {bytes}", packets.len());
        assert!(infos < packets.len() * 4 / 5 && infos > packets.len() / 2, "{infos} {}", packets.len());
        assert!(packets.len() == QUEUE_PACKETS_MAX || bytes > QUEUE_BYTES_MAX / 10 * 9);
        assert_eq!(dropped[0], 10_000 - infos as u64);
        assert_eq!(all_dropped[0], 20_000 - packets.len() as u64);
        assert_eq!(all_dropped[1], all_dropped[0]);
        // There is room again, for one collector.
        send(&bench, 1, PacketCode::INFO);
        assert_eq!(bench.packets(0).len(), 1);
        assert_eq!(bench.streams.shared().dropped(), [all_dropped[0], all_dropped[1] + 1]);
    }
}

#[test]
fn packets_that_wait_have_no_spare_memory() {
    let mut bench = Bench::new(&[ALL], |settings| settings.trace_buffer_bytes = 65_535);
    for _ in 0..50 {
        let mut session = bench.login();
        session.opened(1, "/a", 1, false);
        session.redirected(RedirectOperation::STAT, ("h", 1), "/c");
        drop(session);
        bench.streams.flush();
    }
    let packets = bench.packets(0);
    assert_eq!(packets.len(), 250);
    let spare: usize = packets.iter().map(|packet| packet.capacity() - packet.len()).sum();
    assert!(spare < 250 * 256, "{spare}");
}

#[test]
fn a_client_that_sends_many_texts_gets_no_ids_for_them() {
    let mut bench = Bench::new(&[ALL], |_| {});
    let session = bench.login();
    for _ in 0..2 {
        let ids: Vec<_> = (0..1000).map(|_| session.info(b"x")).collect();
        assert!(ids[..16].iter().all(|id| *id > 0) && ids[16..].iter().all(|id| *id == 0));
        bench.pass(1);
    }
    assert_eq!(bench.codes(0), format!("u{}", "i".repeat(32)));
}

#[test]
fn packets_that_found_no_place_are_gaps_in_the_numbers() {
    for lost in [1, 200, 256, 300] {
        let mut bench = Bench::new(&[ALL], |_| {});
        let send = |bench: &Bench, number| {
            let shared = bench.streams.shared();
            (0..number).for_each(|_| shared.send_map(MonitorEvent::Info, PacketCode::INFO, 1, b"x"));
        };
        send(&bench, 5000);
        let taken = 5000 - bench.streams.shared().dropped()[0];
        bench.packets(0);
        send(&bench, 1);
        let last = bench.packets(0)[0][1];
        send(&bench, taken + lost);
        let numbers: Vec<_> = bench.packets(0).iter().map(|packet| packet[1]).collect();
        assert_eq!(numbers.len() as u64, taken);
        // Before the first packet that is sent after the loss.
        let gap = numbers[0].wrapping_sub(last.wrapping_add(1));
        assert_eq!(u64::from(gap), if lost == 256 { 1 } else { lost % 256 });
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0].wrapping_add(1)));
    }
}

#[test]
fn an_identification_that_is_lost_is_repeated_soon() {
    for interval in [Duration::ZERO, Duration::from_secs(3600)] {
        // The system refuses this address.
        let mut bench = Bench::new(&[ALL], |settings| {
            settings.identification = Some(interval);
            settings.destinations[0].address = "255.255.255.255:9".parse().unwrap();
        });
        let now = std::time::Instant::now() + Duration::from_secs(1);
        bench.senders[0].identify(now);
        assert_eq!(bench.streams.shared().dropped(), [1]);
        assert_eq!(bench.senders[0].wait(now), Duration::from_secs(10));
        let mut bench = Bench::new(&[ALL], |settings| settings.identification = Some(interval));
        bench.senders[0].identify(now);
        assert_eq!(bench.streams.shared().dropped(), [0]);
        assert_eq!(bench.senders[0].wait(now), Duration::from_secs(3600));
    }
}

#[test]
fn texts_of_clients_are_cut_and_have_no_control_characters() {
    let mut bench = Bench::new(&[ALL], |settings| settings.flush = None);
    let mut session = bench.login();
    bench.packets(0);
    session.info(&[b'\n'; 100_000]);
    session.application(&[b'x'; 100_000]);
    session.opened(1, &format!("/a\n{}\u{e9}\u{e9}", "\u{1}".repeat(1021)), u64::MAX, true);
    session.opened(1, &format!("/{}", "b".repeat(100_000)), 0, false);
    session.redirected(RedirectOperation::MV, (&"h".repeat(5000), 1), &"\0".repeat(5000));
    session.read(1, u64::MAX, usize::MAX);
    session.write(3, 0, 1);
    session.closed(7, false);
    session.read_vector(&[]);
    drop(session);
    bench.streams.flush();
    let packets = bench.packets(0);
    assert_eq!(packets.len(), 6);
    for packet in &packets {
        match Packet::decode(packet).unwrap() {
            Packet::Map(map) => {
                let text = String::from_utf8(map.text.to_vec()).unwrap();
                assert_eq!(text.matches(char::is_control).collect::<String>(), "\n", "{text}");
                assert!(map.code != PacketCode::INFO || text.len() < 1200);
            }
            Packet::Files(_, records) => {
                let is_open = |record: &&FileRecord<'_>| matches!(record, FileRecord::Open { .. });
                assert_eq!(records.0.iter().filter(is_open).count(), 2);
                for record in records.0 {
                    if let FileRecord::Open { name: Some((_, name)), .. } = record {
                        let name = str::from_utf8(name).unwrap();
                        assert!(name.len() <= 1024 && !name.contains(char::is_control));
                    }
                }
            }
            _ => {}
        }
    }
}
