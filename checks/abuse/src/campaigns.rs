//! What hostile clients do. Each campaign returns after its clients have gone; that the server cuts
//! one off or refuses it is no failure.

use crate::half_open;
use crate::raw::{
    CLONE, CREATING, DIRLIST, FATTR, PGREAD, PING, PREPARE, QUERY, READ, READING, READV, RawClient, STATX,
    WRITE, WRITEV, announcing, handshake, login, open, range, request,
};
use crate::site::BIG_BYTES;
use anyhow::Result;
use std::path::Path;
use std::time::{Duration, Instant};

/// The longest argument of a request.
const ARGUMENT_BYTES: usize = 2 * 1024 * 1024;

/// How long clients that read nothing, or send next to nothing, stay.
pub(crate) const STAY: Duration = Duration::from_secs(2);

/// Latency of the well-behaved client, as a multiple of the control run.
const SLOWER_MAX: u32 = 3;

/// Resident memory of a half-open login by `gsi`: the session, its exchange and its received bytes.
const HALF_OPEN_BYTES_MAX: u64 = 6 << 10;

/// Memory that a flood of logins takes whatever its number: buffers, and the threads of logins.
const HALF_OPEN_BASE: u64 = 16 << 20;

/// A campaign against the server at a port.
pub(crate) struct Campaign {
    pub(crate) name: &'static str,
    /// Part of the run of one minute.
    pub(crate) is_quick: bool,
    pub(crate) run: fn(u16) -> Result<()>,
    /// Writes files into the directory of the server, and returns lines of its configuration.
    pub(crate) prepare: fn(&Path) -> Result<Vec<String>>,
    /// Maximum resident memory while the clients are connected; `None` if only the memory kept afterwards counts.
    pub(crate) peak_max: Option<u64>,
    /// Latency of the well-behaved client, as a multiple of the control run.
    pub(crate) slower_max: u32,
}

const fn campaign(name: &'static str, is_quick: bool, run: fn(u16) -> Result<()>) -> Campaign {
    Campaign { name, is_quick, run, prepare: |_| Ok(Vec::new()), peak_max: None, slower_max: SLOWER_MAX }
}

/// A campaign of this number of half-open logins.
const fn half_open(name: &'static str, is_quick: bool, count: u64, run: fn(u16) -> Result<()>) -> Campaign {
    let peak_max = Some(HALF_OPEN_BASE + count * HALF_OPEN_BYTES_MAX);
    Campaign { prepare: half_open::prepare, peak_max, slower_max: 2, ..campaign(name, is_quick, run) }
}

/// All campaigns. The quick ones are those that hold today.
pub(crate) const ALL: [Campaign; 21] = [
    campaign("statx-list", false, |port| long_list(port, STATX, 0)),
    campaign("prepare-list", true, |port| long_list(port, PREPARE, 0)),
    campaign("query-prepare-list", true, |port| long_list(port, QUERY, 2)),
    campaign("query-config-list", true, |port| long_list(port, QUERY, 7)),
    campaign("dirlist-unread", true, |port| unread(port, 16, 1000, |_| request(DIRLIST, [0; 16], b"/many"))),
    campaign("read-unread", true, |port| unread(port, 16, 200, |handle| read_of(READ, handle))),
    campaign("pgread-unread", true, |port| unread(port, 16, 200, |handle| read_of(PGREAD, handle))),
    campaign("readv-unread", true, |port| unread(port, 16, 50, vector)),
    campaign("fattr-set", true, attributes),
    campaign("opens-of-one-file", true, opens),
    campaign("half-sent-arguments", true, half_arguments),
    campaign("one-byte-at-a-time", true, slow_login),
    campaign("login-flood", true, login_flood),
    campaign("silent-flood", true, silent_flood),
    half_open("gsi-half-open-200", true, 200, |port| half_open::hold(port, 200, false)),
    half_open("gsi-half-open", false, 10_000, |port| half_open::hold(port, 10_000, true)),
    campaign("bound-streams-stall", true, bound_stall),
    campaign("clones-and-leave", true, clones),
    campaign("writev-and-leave", true, writev),
    campaign("missing-opens-and-leave", true, missing_opens),
    campaign("leave-at-each-point", true, leave_midway),
];

/// Stays for a while with connections that do nothing more, then leaves all at once.
fn stay(clients: Vec<RawClient>) {
    std::thread::sleep(STAY);
    clients.into_iter().for_each(RawClient::vanish);
}

/// Eight connections send a list of a million paths; each waits for the answer or the end.
fn long_list(port: u16, code: u16, kind: u8) -> Result<()> {
    let list = b"/\n".repeat(ARGUMENT_BYTES / 2 - 1);
    let mut body = [0; 16];
    body[1] = kind;
    let mut clients = Vec::new();
    for _ in 0..8 {
        let mut client = RawClient::login(port)?;
        client.stream.set_write_timeout(Some(Duration::from_secs(20)))?;
        client.push(&request(code, body, &list));
        clients.push(client);
    }
    for client in &mut clients {
        // Refused, cut off or answered.
        client.reply().ok();
    }
    clients.into_iter().for_each(RawClient::vanish);
    Ok(())
}

fn read_of(code: u16, handle: [u8; 4]) -> Vec<u8> {
    request(code, range(handle, 0, 16 * 1024 * 1024), b"")
}

/// A vector read with as many elements as there may be, all over the large file.
fn vector(handle: [u8; 4]) -> Vec<u8> {
    let step = BIG_BYTES / 1024;
    let mut list = Vec::new();
    for number in 0..1024 {
        list.extend(handle);
        list.extend(64_000u32.to_be_bytes());
        list.extend(((number * 997 % 1024 * step) as u64).to_be_bytes());
    }
    request(READV, [0; 16], &list)
}

/// Connections send requests as long as the server takes them, and read no reply.
fn unread(port: u16, connections: usize, requests: usize, one: fn([u8; 4]) -> Vec<u8>) -> Result<()> {
    let mut clients = Vec::new();
    for _ in 0..connections {
        let mut client = RawClient::login(port)?;
        let handle = client.open("/big", READING)?;
        let bytes = one(handle);
        let _took = (0..requests).take_while(|_| client.push(&bytes)).count();
        clients.push(client);
    }
    stay(clients);
    Ok(())
}

/// Sets 16 attributes of 64 KiB, again and again.
fn attributes(port: u16) -> Result<()> {
    let (mut names, mut values) = (Vec::new(), Vec::new());
    for number in 0..16 {
        names.extend([0, 0]);
        names.extend(format!("name-{number}\0").bytes());
        values.extend(65_536u32.to_be_bytes());
        values.extend([7; 65_536]);
    }
    let payload = [b"/small\0".as_slice(), &names, &values].concat();
    let mut body = [0; 16];
    (body[4], body[5]) = (3, 16);
    let bytes = request(FATTR, body, &payload);
    let mut clients = Vec::new();
    for _ in 0..8 {
        let mut client = RawClient::login(port)?;
        let _took = (0..50).take_while(|_| client.push(&bytes)).count();
        clients.push(client);
    }
    stay(clients);
    Ok(())
}

/// One client opens one file as often as the server lets it.
fn opens(port: u16) -> Result<()> {
    let mut client = RawClient::login(port)?;
    let bytes = open("/small", READING);
    'all: for _ in 0..65_536 / 64 {
        if !client.push(&bytes.repeat(64)) {
            break;
        }
        for _ in 0..64 {
            if client.reply().is_err() {
                break 'all;
            }
        }
    }
    client.vanish();
    Ok(())
}

/// 200 connections send half of a long argument.
fn half_arguments(port: u16) -> Result<()> {
    let half = vec![b'/'; ARGUMENT_BYTES / 2];
    let mut clients = Vec::new();
    for _ in 0..200 {
        let mut client = RawClient::login(port)?;
        client.push(&announcing(STATX, [0; 16], ARGUMENT_BYTES, &half));
        clients.push(client);
    }
    stay(clients);
    Ok(())
}

/// 200 connections send their login byte by byte, one each second.
fn slow_login(port: u16) -> Result<()> {
    let bytes = [handshake(), login()].concat();
    let mut clients = Vec::new();
    for _ in 0..200 {
        clients.push(RawClient::silent(port)?);
    }
    for byte in bytes.chunks(1).take(3) {
        for client in &mut clients {
            client.push(byte);
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    stay(clients);
    Ok(())
}

/// Logins by eight threads, each left at once.
fn login_flood(port: u16) -> Result<()> {
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(move || {
                (0..250).filter_map(|_| RawClient::login(port).ok()).for_each(RawClient::vanish);
            });
        }
    });
    Ok(())
}

/// Connections that send nothing.
fn silent_flood(port: u16) -> Result<()> {
    let mut clients = Vec::new();
    for _ in 0..800 {
        clients.push(RawClient::silent(port)?);
    }
    stay(clients);
    Ok(())
}

/// Sessions whose bound connections read nothing; the control connection leaves first.
fn bound_stall(port: u16) -> Result<()> {
    let (mut mains, mut others) = (Vec::new(), Vec::new());
    for _ in 0..8 {
        let mut main = RawClient::login(port)?;
        let handle = main.open("/big", READING)?;
        let mut paths = Vec::new();
        for _ in 0..4 {
            let (client, path) = RawClient::bound(&main, port)?;
            others.push(client);
            paths.push(path);
        }
        for path in paths.iter().cycle().take(64) {
            let argument = [*path, 0, 0, 0, 0, 0, 0, 0];
            main.push(&request(READ, range(handle, 0, 8 * 1024 * 1024), &argument));
        }
        mains.push(main);
    }
    mains.into_iter().for_each(RawClient::vanish);
    stay(others);
    Ok(())
}

/// Clones of 16 GiB in one request, many at once, and away.
fn clones(port: u16) -> Result<()> {
    let mut clients = Vec::new();
    for number in 0..8 {
        let mut client = RawClient::login(port)?;
        let source = client.open("/big", READING)?;
        let target = client.open(&format!("/clone-{number}"), CREATING)?;
        let mut list = Vec::new();
        for item in 0..1024u64 {
            list.extend(source);
            list.extend([0; 4]);
            for value in [(item % 16) << 24, 16 << 20, (item % 16) << 24] {
                list.extend(value.to_be_bytes());
            }
        }
        for _ in 0..4 {
            client.push(&request(CLONE, range(target, 0, 0), &list));
        }
        clients.push(client);
    }
    clients.into_iter().for_each(RawClient::vanish);
    Ok(())
}

/// Vector writes with as many elements as there may be, and away in the middle of one.
fn writev(port: u16) -> Result<()> {
    for number in 0..16 {
        let mut client = RawClient::login(port)?;
        let handle = client.open(&format!("/vector-{number}"), CREATING)?;
        let mut list = Vec::new();
        for item in 0..1024u64 {
            list.extend(handle);
            list.extend(1000u32.to_be_bytes());
            list.extend((item * 1000).to_be_bytes());
        }
        let data = vec![7; 500_000];
        client.push(&[request(WRITEV, [0; 16], &list), data].concat());
        client.vanish();
    }
    Ok(())
}

/// Crowds that open missing names without a pause, and leave at once.
fn missing_opens(port: u16) -> Result<()> {
    let bytes = open("/missing/name", READING).repeat(64);
    let until = Instant::now() + STAY;
    while Instant::now() < until {
        let mut clients = Vec::new();
        for _ in 0..100 {
            clients.push(RawClient::login(port)?);
        }
        for _ in 0..5 {
            for client in &mut clients {
                client.push(&bytes);
            }
        }
        clients.into_iter().for_each(RawClient::vanish);
    }
    Ok(())
}

/// A whole conversation, left at each of its bytes.
fn leave_midway(port: u16) -> Result<()> {
    // The first file of a session has the handle 0.
    let handle = [0; 4];
    let conversation = [
        handshake(),
        login(),
        request(PING, [0; 16], b""),
        open("/big", READING),
        request(READ, range(handle, 0, 1_000_000), b""),
        request(DIRLIST, [0; 16], b"/many"),
        open("/midway", CREATING),
        request(WRITE, range([0, 0, 0, 1], 0, 0), &[7; 100]),
    ]
    .concat();
    for _ in 0..3 {
        for end in 1..=conversation.len() {
            let mut client = RawClient::silent(port)?;
            client.push(conversation.get(..end).unwrap_or_default());
            client.vanish();
        }
    }
    Ok(())
}
