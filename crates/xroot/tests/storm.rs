//! A randomized load test.
//!
//! Clients read and write in every way, over several connections, with many requests in flight, and
//! disconnect at any moment, while the storage is sometimes slow. Each client knows the data that
//! it must read, so that any loss or mix-up is detected. `STORM_SEED=number` selects other
//! sequences.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use storage::faulty::{FaultRule, FaultyCall, InjectedFault};
use support::client::{CREATING, READING, UPDATING, read, write};
use support::*;

const CLIENTS: usize = 6;
const LIVES: usize = 12;
const BATCHES: usize = 12;
/// Range of the file, in bytes, that each request of a batch has for itself. A batch fits the
/// buffers of the sockets, because the client does not read while it writes.
const STRETCH: usize = 60_000;
const BATCH: usize = 10;
const SHARED: usize = 3_000_000;

/// One client: its file, and the expected content.
struct Storm {
    address: SocketAddr,
    name: String,
    dice: Dice,
    model: Vec<u8>,
    shared: Arc<Vec<u8>>,
}

/// A session with two bound connections, and its open files.
struct Life {
    main: Client,
    paths: Vec<(Client, u8)>,
    own: u32,
    shared: u32,
}

/// The expected result of a request in flight: its connection (0 is the control connection) and
/// data.
struct Wanted {
    link: usize,
    body: Option<Vec<u8>>,
}

impl Storm {
    fn begin(&mut self) -> Life {
        let mut main = Client::login(self.address);
        let exists = if self.model.is_empty() { CREATING } else { UPDATING };
        // The previous session may still hold the lock for a moment.
        let mut own = None;
        until("the file is free", || {
            let reply = main.call(&client::open(&self.name, exists));
            own = (reply.status == OK).then(|| u32::from_le_bytes(reply.body[..4].try_into().unwrap()));
            assert!(own.is_some() || reply.error().0 == 3003, "{:?}", reply.error());
            own.is_some()
        });
        let shared = main.open("/shared", READING);
        let paths = (0..self.dice.below(3)).map(|_| Client::bound(&main, self.address)).collect();
        let mut life = Life { main, paths, own: own.unwrap(), shared };
        // Data acknowledged in earlier sessions is present.
        let there = life.main.read(life.own, 0, self.model.len() + 10);
        assert!(there.len() >= self.model.len() && there[..self.model.len()] == self.model, "{}", self.name);
        life
    }

    /// Sends one request on its own range. Returns the expected result.
    fn ask(&mut self, life: &mut Life, stream: u16, stretch: usize) -> Wanted {
        let length = 1 + self.dice.below(STRETCH);
        let offset = stretch * STRETCH + self.dice.below(STRETCH - length + 1);
        let link = self.dice.below(life.paths.len() + 1);
        let path = if link == 0 { 0 } else { life.paths[link - 1].1 };
        let from = self.dice.below(SHARED - length);
        let data = self.shared[from..from + length].to_vec();
        let (request, link, body) = match self.dice.below(6) {
            0 => (read(life.shared, from, length).payload(&[path, 0, 0, 0, 0, 0, 0, 0]), link, Some(data)),
            1 => {
                let request = Raw::new(READV).payload(&segment(life.shared, length as i32, from as i64));
                (request, 0, Some([segment(life.shared, length as i32, from as i64), data].concat()))
            }
            2 => (Raw::new(STAT).payload(b"/shared"), 0, None),
            3 => (Raw::new(DIRLIST).u8(19, 2).payload(b"/"), 0, None),
            _ => {
                self.remember(offset, &data);
                let request = write(life.own, offset, &data).u8(16, path);
                if link == 0 {
                    (request, 0, Some(Vec::new()))
                } else {
                    life.main.send_bytes(&request.stream(stream).bytes()[..24]);
                    life.paths[link - 1].0.send_bytes(&data);
                    return Wanted { link, body: Some(Vec::new()) };
                }
            }
        };
        life.main.send(&request.stream(stream));
        Wanted { link, body }
    }

    fn remember(&mut self, offset: usize, data: &[u8]) {
        let end = offset + data.len();
        if self.model.len() < end {
            self.model.resize(end, 0);
        }
        self.model[offset..end].copy_from_slice(data);
    }

    /// Sends a batch of requests and verifies each answer.
    fn batch(&mut self, life: &mut Life) {
        let wanted: HashMap<u16, Wanted> =
            (0..BATCH).map(|n| (n as u16, self.ask(life, n as u16, n))).collect();
        for link in 0..=life.paths.len() {
            let mut left = wanted.values().filter(|wanted| wanted.link == link).count();
            let mut bodies: HashMap<u16, Vec<u8>> = HashMap::new();
            while left > 0 {
                let client = if link == 0 { &mut life.main } else { &mut life.paths[link - 1].0 };
                let reply = client.reply();
                assert!(reply.status == OK || reply.status == OKSOFAR, "{:?}", reply.error());
                assert_eq!(wanted[&reply.stream].link, link);
                bodies.entry(reply.stream).or_default().extend(&reply.body);
                left -= usize::from(reply.status == OK);
            }
            for (stream, body) in bodies {
                assert!(
                    wanted[&stream].body.as_ref().is_none_or(|wanted| *wanted == body),
                    "stream {stream}"
                );
            }
        }
    }

    /// Runs sessions one after another, most of which end by a disconnect.
    fn live(&mut self) {
        for _ in 0..LIVES {
            let mut life = self.begin();
            for _ in 0..self.dice.below(BATCHES) {
                self.batch(&mut life);
            }
            match self.dice.below(4) {
                0 => drop(life.main.ok(&Raw::new(CLOSE).handle(life.own))),
                1 => drop(life.paths),
                2 => {
                    // During reads, and during a write that is never acknowledged.
                    life.main.send(&read(life.shared, 0, SHARED));
                    life.main.send(&write(life.own, 2 * BATCH * STRETCH, b"lost").dlen(100_000));
                }
                _ => {}
            }
        }
    }
}

#[test]
fn acknowledged_data_survives_a_random_load() {
    // A lent descriptor must stay lent, so rules on reads are changed only where none is lent.
    storm(true, &[FaultyCall::Write]);
    storm(false, &[FaultyCall::Read, FaultyCall::Write]);
}

fn storm(sendfile: bool, slow: &[FaultyCall]) {
    let mut wish = Wish { ring: true, loops: 3, ..Wish::default() };
    wish.config.sendfile = sendfile;
    let server = Server::with(wish);
    let seed = std::env::var("STORM_SEED").map_or(100, |seed| seed.parse().unwrap());
    println!("STORM_SEED={seed}");
    let shared = Arc::new(pattern(SHARED));
    server.put("/shared", &shared);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let mut storm = Storm {
                address: server.address,
                name: format!("/own-{number}"),
                dice: Dice::new(seed + number as u64),
                model: Vec::new(),
                shared: shared.clone(),
            };
            std::thread::spawn(move || {
                storm.live();
                (storm.name, storm.model)
            })
        })
        .collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let weather = scope.spawn(|| {
            let mut dice = Dice::new(99);
            while !over.load(Ordering::Relaxed) {
                let call = slow[dice.below(slow.len())];
                let rule = server.rules.add(FaultRule::new(&[call], InjectedFault::WouldBlock));
                server.evict("/shared");
                std::thread::sleep(std::time::Duration::from_millis(dice.below(20) as u64));
                server.rules.remove(rule);
            }
        });
        let models: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        over.store(true, Ordering::Relaxed);
        weather.join().unwrap();
        server.until_sessions(0);
        for (name, model) in models.into_iter().map(Result::unwrap) {
            let content = server.content(&name);
            assert!(content.len() >= model.len() && content[..model.len()] == model, "{name}");
        }
    });
    let totals = server.totals();
    assert_eq!((totals.panics, totals.connections), (0, totals.disconnections));
}
