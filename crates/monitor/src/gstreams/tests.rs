//! Tests of streams and their packets together, with collectors on this machine.

use super::*;
use config::{MonitorDestination, MonitorEvent, MonitorEvents};
use serde_json::Value;
use std::net::UdpSocket;
use wire::Decode;
use wire::monitoring::{Packet, PacketCode};

fn sender() -> RecordSender {
    RecordSender {
        site: "SITE".to_owned(),
        host: "vm".to_owned(),
        instance: "anon".to_owned(),
        program: "xrootd".to_owned(),
        port: 1094,
        user: "daemon".to_owned(),
        process: 9,
        started: 77,
    }
}

fn collector() -> (UdpSocket, String) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    (socket, address)
}

/// Returns the settings of `mongstream tpc use …` for this collector.
fn table(address: &str, form: config::GStreamForm, most: Option<u32>) -> GStreamTable {
    let destination = config::GStreamDestination {
        form,
        header: config::GStreamHeader::Site,
        is_identified: true,
        address: address.parse().unwrap(),
    };
    let mut table = GStreamTable::default();
    let settings = GStreamSettings {
        flush: Some(Duration::from_secs(5)),
        packet_bytes_max: most,
        destination: Some(destination),
    };
    table.set(GStream::ThirdPartyCopies, settings);
    table
}

fn received(socket: &UdpSocket) -> String {
    let mut bytes = vec![0; 65_536];
    let length = socket.recv(&mut bytes).unwrap();
    bytes.truncate(length);
    assert_eq!(bytes.pop(), Some(0), "a NUL ends a packet");
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_stream_that_nobody_gets_makes_no_records() {
    let (streams, writers) = GStreams::new(&GStreamTable::default(), None, &sender(), "v1");
    assert!(writers.is_empty() && !streams.has(GStream::ThirdPartyCopies));
    streams.add(GStream::ThirdPartyCopies, |_| panic!("a record is made"));
}

#[test]
fn records_are_lines_behind_a_head_in_text_form() {
    let (socket, address) = collector();
    let table = table(&address, config::GStreamForm::Json, None);
    let (streams, mut writers) = GStreams::new(&table, None, &sender(), "v1");
    assert!(streams.has(GStream::ThirdPartyCopies) && !streams.has(GStream::Http));
    let writer = writers.pop().unwrap();
    let thread = std::thread::spawn(move || writer.run());
    let identity: Value = serde_json::from_str(&received(&socket)).unwrap();
    assert_eq!((&identity["code"], &identity["src"]["ver"]), (&"=".into(), &"v1".into()));
    for number in 0..3 {
        streams.add(GStream::ThirdPartyCopies, |_| format!("{{\"n\":{number}}}"));
    }
    streams.flush(Duration::from_secs(60));
    let text = received(&socket);
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 4);
    assert_eq!((&lines[0]["pseq"], &lines[0]["src"]), (&1.into(), &serde_json::json!({"site": "SITE"})));
    assert_eq!(lines[0]["sid"], identity["sid"]);
    assert!(lines[1..].iter().map(|line| line["n"].as_u64().unwrap()).eq(0..3));
    // The end of the streams sends the waiting records, too.
    streams.add(GStream::ThirdPartyCopies, |_| "{\"n\":3}".to_owned());
    drop(streams);
    thread.join().unwrap();
    assert!(received(&socket).ends_with("\n{\"n\":3}"));
}

#[test]
fn packets_have_at_most_their_size_and_numbers_without_gaps() {
    let (socket, address) = collector();
    let table = table(&address, config::GStreamForm::Json, Some(1024));
    let (_streams, mut writers) = GStreams::new(&table, None, &sender(), "v1");
    let mut writer = writers.pop().unwrap();
    let now = Instant::now();
    let record = |number: usize| format!("{{\"n\":{number:090}}}");
    let (mut numbers, mut expected) = (Vec::new(), 0);
    socket.set_nonblocking(true).unwrap();
    let mut take = || {
        let mut bytes = [0; 2048];
        // The buffer of the socket has no room for all packets.
        while let Ok(length) = socket.recv(&mut bytes) {
            let text = std::str::from_utf8(&bytes[..length - 1]).unwrap();
            assert!(length <= 1024 && length > 900, "{length}");
            let head: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
            numbers.push(head["pseq"].as_u64().unwrap());
            for line in text.lines().skip(1) {
                assert_eq!(line, record(expected));
                expected += 1;
            }
        }
    };
    for number in 0..1001 * 9 {
        writer.add(&record(number), 5, now);
        take();
    }
    // A packet that is sent to this machine has arrived.
    writer.flush();
    take();
    socket.set_nonblocking(false).unwrap();
    assert_eq!(expected, 1001 * 9);
    assert!(numbers.len() > 1000, "{}", numbers.len());
    assert!(numbers.iter().enumerate().all(|(place, number)| *number == (place as u64 + 1) % 1000));
    // A record that is longer than a packet is lost, which a gap shows.
    writer.add(&"x".repeat(1024), 5, now);
    writer.add("{\"n\":1}", 5, now);
    writer.flush();
    let head: Value = serde_json::from_str(received(&socket).lines().next().unwrap()).unwrap();
    assert_eq!(head["pseq"].as_u64().unwrap(), (numbers.len() as u64 + 2) % 1000);
    assert_eq!(writer.state_lost(), 1);
}

#[test]
fn a_packet_that_is_not_full_is_sent_when_its_time_has_come() {
    let (socket, address) = collector();
    let table = table(&address, config::GStreamForm::Bare, None);
    let (_streams, mut writers) = GStreams::new(&table, None, &sender(), "v1");
    let mut writer = writers.pop().unwrap();
    let start = Instant::now();
    let after = |seconds| start + Duration::from_secs(seconds);
    writer.add("{\"n\":1}", 5, start);
    writer.add("{\"n\":2}", 6, after(4));
    writer.send_due(after(4));
    assert!(!writer.is_empty());
    writer.send_due(after(5));
    assert!(writer.is_empty());
    assert_eq!(received(&socket), "{\"n\":1}\n{\"n\":2}");
    // A sample is sent at once.
    let mut samples = vec![vec!["{\"s\":1}".to_owned(), "{\"s\":2}".to_owned()]].into_iter();
    let mut writer = writer.sampling(move |_| samples.next().unwrap_or_default());
    let later = Instant::now() + Duration::from_secs(6);
    writer.send_due(later);
    assert_eq!(received(&socket), "{\"s\":1}\n{\"s\":2}");
    writer.send_due(later + Duration::from_secs(6));
    assert!(writer.is_empty());
}

#[test]
fn collectors_of_detailed_monitoring_get_the_binary_form() {
    let events = MonitorEvents::NONE.with(MonitorEvent::ThirdPartyCopies);
    let destination = MonitorDestination { events, address: "127.0.0.1:9".parse().unwrap() };
    let other =
        MonitorDestination { events: MonitorEvents::NONE.with(MonitorEvent::User), ..destination.clone() };
    let settings = DetailedMonitoring { destinations: vec![destination, other], ..Default::default() };
    let (shared, mut senders) = MonitorStreams::new(&settings, &sender(), "v1");
    let table = GStreamTable::default();
    let (streams, mut writers) = GStreams::new(&table, Some((&settings, &shared)), &sender(), "v1");
    assert!(!streams.has(GStream::FileCache));
    let mut writer = writers.pop().unwrap();
    for number in 1..=2 {
        writer.add("{\"n\":1}", 5, Instant::now());
        writer.add("{\"n\":2}", 6, Instant::now());
        writer.flush();
        let packets = senders[0].waiting();
        let [packet] = &packets[..] else { panic!("{packets:?}") };
        let Ok(Packet::Records(header, contents)) = Packet::decode(packet) else { panic!("{packet:?}") };
        assert_eq!((header.code, header.sequence, header.started), (PacketCode::GSTREAM, number, 77));
        assert_eq!((contents.begin, contents.end, contents.letter), (5, 6, b'P'));
        assert_eq!(contents.server, shared.server());
        assert_eq!(contents.records, b"{\"n\":1}\n{\"n\":2}");
    }
    assert!(senders[1].waiting().is_empty());
}

#[test]
fn a_queue_that_is_full_drops_records() {
    let (_socket, address) = collector();
    let table = table(&address, config::GStreamForm::Json, None);
    for length in [10, 60_000] {
        let (streams, writers) = GStreams::new(&table, None, &sender(), "v1");
        for _ in 0..10_000 {
            streams.add(GStream::ThirdPartyCopies, |_| "x".repeat(length));
        }
        let taken = 10_000 - writers[0].state_lost();
        let least = (QUEUE_BYTES_MAX / length - 1).min(QUEUE_RECORDS_MAX) as u64;
        assert!(taken >= least && taken <= QUEUE_RECORDS_MAX as u64, "{taken}");
        assert!(taken * length as u64 <= QUEUE_BYTES_MAX as u64, "{taken}");
    }
}

#[test]
fn a_collector_whose_name_has_no_address_is_looked_up_at_intervals() {
    let table = table("nobody.invalid:9", config::GStreamForm::Json, None);
    let (_streams, mut writers) = GStreams::new(&table, None, &sender(), "v1");
    let mut writer = writers.pop().unwrap();
    let looks = Arc::<AtomicU64>::default();
    let counted = looks.clone();
    writer.look_up_by(Box::new(move |_, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        Err(std::io::Error::other("no name server"))
    }));
    for _ in 0..100 {
        writer.add("{\"n\":1}", 5, Instant::now());
        writer.flush();
    }
    assert!(writer.is_empty());
    assert_eq!((writer.state_lost(), looks.load(Ordering::Relaxed)), (100, 1));
}

/// A look-up that does not answer: the thread of the stream stands still, and nobody waits for it.
#[test]
fn a_collector_that_does_not_answer_delays_nobody() {
    let table = table("nobody.invalid:9", config::GStreamForm::Json, None);
    let (streams, mut writers) = GStreams::new(&table, None, &sender(), "v1");
    let mut writer = writers.pop().unwrap();
    let (go_on, waits) = sync_channel::<()>(0);
    let (asked, is_asked) = sync_channel::<()>(1);
    writer.look_up_by(Box::new(move |_, _| {
        asked.try_send(()).ok();
        waits.recv().ok();
        Err(std::io::Error::other("no name server"))
    }));
    let state = streams.queues[0].1.state.clone();
    let thread = std::thread::spawn(move || writer.run());
    is_asked.recv().unwrap();
    for _ in 0..10_000 {
        streams.add(GStream::ThirdPartyCopies, |_| "{\"n\":1}".to_owned());
    }
    assert_eq!(state.lost.load(Ordering::Relaxed), 10_000 - QUEUE_RECORDS_MAX as u64);
    // The end of the server waits for its time only.
    streams.flush(Duration::from_millis(50));
    drop((go_on, streams));
    thread.join().unwrap();
}

#[test]
fn a_packet_that_the_system_refuses_is_lost() {
    let directory = std::env::temp_dir().join(format!("scalla-gstream-{}", std::process::id()));
    let table = table(&directory.join("none").display().to_string(), config::GStreamForm::Json, None);
    let (_streams, mut writers) = GStreams::new(&table, None, &sender(), "v1");
    let mut writer = writers.pop().unwrap();
    for lost in 1..=2 {
        writer.add("{\"n\":1}", 5, Instant::now());
        writer.flush();
        assert_eq!(writer.state_lost(), lost);
    }
}

#[test]
fn a_packet_has_room_for_a_record_whatever_its_head_is() {
    let (_socket, address) = collector();
    let table = table(&address, config::GStreamForm::Json, Some(1024));
    let sender = RecordSender { site: "S".repeat(1000), ..sender() };
    let (streams, _writers) = GStreams::new(&table, None, &sender, "v1");
    let mut room = 0;
    streams.add(GStream::ThirdPartyCopies, |most| {
        room = most;
        String::new()
    });
    assert_eq!(room, records::RECORD_ROOM);
}
