//! Detailed monitoring of a server whose storage hangs or whose clients move.

#![allow(clippy::unwrap_used)]

mod support;

use config::{DetailedMonitoring, MonitorDestination, MonitorEvent, MonitorEvents};
use logical::Logical;
use monitor::{MonitorStreams, RecordSender};
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;
use storage::faulty::{FaultRule, FaultyCall, Gate, InjectedFault};
use support::client::{READING, login_request, read};
use support::*;
use vfs::{Caller, FileSystem, OpenFile, Operation, RedirectAnswer, ReplyTo, Started};
use wire::Decode;
use wire::monitoring::{FileRecord, Packet};

/// The collector of a server.
struct Collector(UdpSocket);

impl Collector {
    /// Returns a collector, and the options of a server that sends it the file stream at the end of each loop only.
    fn new() -> (Self, Wish) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let address = socket.local_addr().unwrap().to_string().parse().unwrap();
        let events = MonitorEvents::NONE.with(MonitorEvent::FileStream);
        let mut settings = DetailedMonitoring {
            destinations: vec![MonitorDestination { events, address }],
            ..DetailedMonitoring::default()
        };
        settings.files.interval = Duration::from_secs(86_400);
        let sender = RecordSender {
            site: String::new(),
            host: "h".to_owned(),
            instance: "anon".to_owned(),
            program: "xrootd".to_owned(),
            port: 1094,
            user: "daemon".to_owned(),
            process: 9,
            started: 77,
        };
        let (streams, senders) = MonitorStreams::new(&settings, &sender, "v1");
        for sender in senders {
            // It ends with the server.
            std::thread::spawn(move || sender.run());
        }
        let mut wish = Wish { loops: 1, ..Wish::default() };
        wish.config.streams = Some(streams);
        wish.config.settings.has_monitoring = true;
        (Self(socket), wish)
    }

    /// Returns the closes until the first disconnect: bytes read in all, and whether they were forced.
    fn closes(&self) -> Vec<(u64, bool)> {
        let (mut bytes, mut closes) = (vec![0; 65_536], Vec::new());
        loop {
            let length = self.0.recv(&mut bytes).unwrap();
            let Ok(Packet::Files(_, records)) = Packet::decode(&bytes[..length]) else { continue };
            for record in records.0 {
                match record {
                    FileRecord::Close { totals, is_forced, .. } => {
                        closes.push((totals.read + totals.vector_read, is_forced));
                    }
                    FileRecord::Disconnect { .. } => return closes,
                    _ => {}
                }
            }
        }
    }
}

/// Ends the server at once. Operations in flight may last longer.
fn stop(server: &Server) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(server.door.drain(server.loops.handles(), Duration::ZERO));
}

#[test]
fn the_last_records_of_a_client_do_not_wait_for_a_disk_that_hangs() {
    let (collector, wish) = Collector::new();
    let server = Server::with(wish);
    server.put("/f", &pattern(3_000_000));
    let gate = Gate::new();
    server.rules.add(FaultRule::new(&[FaultyCall::Read], InjectedFault::Hang(gate.clone())));
    let mut client = server.client();
    let handle = client.open("/f", READING);
    client.send(&read(handle, 0, 3_000_000));
    gate.wait_for(1);
    stop(&server);
    assert_eq!(collector.closes(), [(3_000_000, true)]);
    gate.open();
    server.until_sessions(0);
}

/// A file system that redirects reads of `/gone`.
struct Leaving(Arc<Logical>);

impl FileSystem for Leaving {
    fn start(&self, caller: &Arc<Caller>, operation: Operation, reply: &ReplyTo) -> Started {
        self.0.start(caller, operation, reply)
    }

    fn read_redirect(&self, _: &Caller, file: &dyn OpenFile) -> Option<RedirectAnswer> {
        let is_gone = file.path().text() == "/gone";
        is_gone.then(|| RedirectAnswer { host: "over.there".into(), port: 1094, cgi: String::new() })
    }
}

#[test]
fn reads_that_are_redirected_are_not_counted() {
    let (collector, wish) = Collector::new();
    let server = Server::with(Wish { wrap: |logical| Arc::new(Leaving(logical)), ..wish });
    server.put("/gone", &pattern(1000));
    server.put("/here", &pattern(1000));
    // The client accepts a redirect as the answer to a read.
    let mut client = Client::login_as(server.address, &login_request().u8(17, 0x04));
    let gone = client.open("/gone", READING);
    client.call(&read(gone, 0, 100));
    client.call(&Raw::new(READV).payload(&segment(gone, 10, 0)));
    client.ok(&Raw::new(CLOSE).handle(gone));
    let here = client.open("/here", READING);
    client.call(&read(here, 0, 100));
    client.call(&Raw::new(READV).payload(&segment(here, 10, 0)));
    client.ok(&Raw::new(CLOSE).handle(here));
    stop(&server);
    assert_eq!(collector.closes(), [(0, false), (110, false)]);
}
