//! Property tests of the cms codecs: decoding never panics, messages survive encoding.
//!
//! Decoded messages must also encode to bytes that decode to the same message, because a relay
//! decodes and encodes.
#![allow(clippy::unwrap_used)]

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use wire::cms::flags::{
    HaveModifier, InventoryModifier, LocateOptions, Mode, PrepaddModifier, RelayModifier, ResponseModifier,
    SelectOptions, StateModifier, StatfsModifier, StatsModifier, StatusModifier,
};
use wire::cms::login::{Env, ExportLine, ExportLines, SystemId, SystemIdKind};
use wire::cms::message::{
    Avail, CellBatch, CellPlaces, Gone, Have, Lease, Load, Locate, ModeChange, Mv, NotHere, PathBatch,
    Prepadd, Prepdel, Removal, Select, SpaceSums, State, Statfs, Status, Trunc, TryHost, TryList,
};
use wire::cms::response::space_text::{SpaceText, TotalsText};
use wire::cms::response::{EncodedRedirect, MessageId, ParsedRedirect};
use wire::cms::{
    Code, ErrorCode, Extensions, FramePhase, FrameSplitter, Header, LoginAnswer, Message, NodeLogin,
    NodeLoginReply, Response, ResponseAnswer, StreamId, ToRedirector,
};
use wire::xroot::cgi::CgiText;
use wire::{Decode, Encode, FixedLayout};

type Text = Vec<u8>;

/// Generates a text without NUL, which may be empty.
fn text() -> impl Strategy<Value = Text> {
    vec(1u8.., 0..30)
}

/// Generates a text without NUL that is not empty.
fn filled() -> impl Strategy<Value = Text> {
    vec(1u8.., 1..30)
}

/// Generated values for all fields of messages; each kind of message uses a part of them.
#[derive(Debug, Clone)]
struct Parts {
    kind: u8,
    modifier: u8,
    options: u32,
    numbers: [u16; 4],
    texts: [Text; 5],
    path: Text,
    opaque: [Option<Text>; 2],
    cells: CellBatch,
}

/// Creates a report of one cell.
fn cells([level, free, parents, leaves]: [u16; 4], id: u32, cell: Option<&[u8]>) -> CellBatch {
    let mut batch = CellBatch::default();
    let gone = level % 2 == 1;
    let places =
        CellPlaces { level, id: id.into(), gone, free, parents, leaves, cell, ..CellPlaces::default() };
    assert!(batch.push(&places, &vec![id.into(); usize::from(free % 9)]).unwrap());
    batch
}

fn parts() -> impl Strategy<Value = Parts> {
    let texts = (text(), filled(), filled(), filled(), filled());
    let texts = texts.prop_map(|(a, b, c, d, e)| [a, b, c, d, e]);
    let opaque = (option::of(text()), option::of(text())).prop_map(|(a, b)| [a, b]);
    let words = (any::<u8>(), any::<u8>(), any::<u32>(), any::<[u16; 4]>());
    (words, texts, filled(), opaque).prop_map(|((kind, modifier, options, numbers), texts, path, opaque)| {
        Parts {
            cells: cells(numbers, options, opaque[0].as_deref()),
            kind,
            // The codec sets and removes the raw bit itself.
            modifier: modifier & !0x20,
            options,
            numbers,
            texts,
            path,
            opaque,
        }
    })
}

impl Parts {
    fn message(&self) -> Message<'_> {
        if self.kind.is_multiple_of(2) { self.of_a_redirector() } else { self.of_a_node() }
    }

    fn opaque(&self) -> [Option<&[u8]>; 2] {
        self.opaque.each_ref().map(Option::as_deref)
    }

    fn of_a_redirector(&self) -> Message<'_> {
        let (path, modifier) = (self.path.as_slice(), RelayModifier(self.modifier));
        let [ident, a, b, c, d] = self.texts.each_ref().map(Vec::as_slice);
        let [opaque, second] = self.opaque();
        let mode_change = ModeChange { modifier, ident, mode: a, path, opaque };
        let removal = Removal { modifier, ident, path, opaque };
        let (locating, selecting) = (LocateOptions(self.options), SelectOptions(self.options));
        match self.kind / 2 % 13 {
            0 => Message::Chmod(mode_change),
            1 => Message::Mkdir(mode_change),
            2 => Message::Mkpath(mode_change),
            3 => Message::Locate(Locate { ident, options: locating, path, opaque, avoid: second }),
            4 => Message::Select(Select { ident, options: selecting, path, opaque, avoid: second }),
            5 => {
                Message::Mv(Mv { modifier, ident, old: path, new: a, old_opaque: opaque, new_opaque: second })
            }
            6 => Message::Prepadd(Prepadd {
                modifier: PrepaddModifier(self.modifier),
                ident,
                reqid: a,
                notify: b,
                priority: c,
                mode: d,
                path,
                opaque,
            }),
            7 => Message::Prepdel(Prepdel { modifier, ident, reqid: a }),
            8 => Message::Rm(removal),
            9 => Message::Rmdir(removal),
            10 => Message::Trunc(Trunc { modifier, ident, size: a, path, opaque }),
            11 => Message::Stats(StatsModifier(self.modifier)),
            _ => Message::Statfs(Statfs { modifier: StatfsModifier(self.modifier), path }),
        }
    }

    fn of_a_node(&self) -> Message<'_> {
        let Self { modifier, options, path, .. } = self;
        let percent = |number: u16| u8::try_from(number % 101).unwrap();
        let [n0, ..] = self.numbers;
        let [cpu, net, runq, mem] = self.numbers.map(percent);
        let free_mb = options >> 1;
        let suspends = StatusModifier::SUSPEND | StatusModifier::NOSTAGE;
        match self.kind / 2 % 15 {
            0 => {
                let sums = SpaceSums { total_mb: u64::from(n0) << 40, free_mb: u64::from(free_mb) };
                let sums = (mem > 50).then_some(sums);
                Message::Avail(Avail { free_mb, used_percent: cpu.into(), sums })
            }
            1 => Message::Load(Load { cpu, net, runq, mem, pag: 0, dsk: 100, free_mb }),
            2 => Message::Disc,
            3 => Message::Ping,
            4 => Message::Usage,
            5 => Message::Gone(Gone { path }),
            6 => Message::Have(Have { modifier: HaveModifier(*modifier), path }),
            7 => Message::State(State { modifier: StateModifier(*modifier), path }),
            8 => Message::Status(Status {
                modifier: StatusModifier::RESUME,
                port: Some(n0).filter(|&n| n != 0),
            }),
            9 => Message::Status(Status { modifier: suspends, port: None }),
            10 => Message::Xauth(path),
            11 => Message::NotHere(NotHere { path }),
            12 => Message::Occupancy(self.cells.message()),
            13 => Message::Lease(Lease { number: u64::from(n0) << 20, milliseconds: n0.into(), path }),
            _ => self.login(),
        }
    }

    fn login(&self) -> Message<'_> {
        let [n0, n1, n2, n3] = self.numbers;
        let [sid, paths] = self.opaque();
        Message::Login(NodeLogin {
            version: n0,
            mode: Mode(self.options | Mode::DIRECTOR.0),
            pid: self.options,
            total_mb: self.options >> 1,
            free_mb: 1,
            free_mb_min: 2,
            file_systems: n1,
            used_percent: n2,
            data_port: n3,
            node_port: n0,
            sid,
            paths,
            interfaces: Some(&self.path),
            env: Some(b""),
        })
    }
}

fn split(bytes: &[u8]) -> (Header, &[u8]) {
    let (header, payload) = bytes.split_first_chunk().unwrap();
    let header = Header::from_bytes(header);
    assert_eq!(header.payload_bytes(), payload.len());
    (header, payload)
}

/// Generates payloads that resemble packed arguments, including truncated and damaged ones.
fn payload() -> impl Strategy<Value = Vec<u8>> {
    let argument = prop_oneof![
        3 => text().prop_map(|text| {
            let length = u8::try_from(text.len() + 1).unwrap();
            [&[0, length], &text[..], &[0]].concat()
        }),
        1 => Just(vec![0, 0]),
        2 => any::<[u8; 4]>().prop_map(|n| [&[0xa0], &n[..]].concat()),
        1 => any::<[u8; 3]>().prop_map(|n| [&[0xb7], &n[..]].concat()),
        2 => any::<[u8; 2]>().prop_map(|n| [&[0x80], &n[..]].concat()),
        1 => any::<u8>().prop_map(|n| vec![0x91, n]),
        1 => vec(any::<u8>(), 0..10),
    ];
    let record = any::<[u8; 4]>().prop_map(|n| {
        let long = [&[0xa0], &n[..]].concat();
        let short = [&[0x80], &n[..2]].concat();
        [short.clone(), long.repeat(5), short.repeat(4)].concat()
    });
    (option::of(record), vec(argument, 0..9)).prop_map(|(record, arguments)| {
        let mut payload = record.unwrap_or_default();
        arguments.iter().for_each(|argument| payload.extend_from_slice(argument));
        payload
    })
}

fn header() -> impl Strategy<Value = Header> {
    let code = prop_oneof![6 => 0u8..29, 2 => 223u8..228, 1 => any::<u8>()];
    let modifier = prop_oneof![3 => Just(0u8), 1 => Just(0x20), 2 => any::<u8>()];
    (any::<[u8; 4]>(), code, modifier).prop_map(|(streamid, code, modifier)| Header {
        streamid: StreamId(streamid),
        code: Code(code),
        modifier,
        datalen: 0,
    })
}

proptest! {
    #[test]
    fn a_message_survives_encoding(parts in parts(), streamid: [u8; 4]) {
        let message = parts.message();
        let mut out = Vec::new();
        prop_assert_eq!(message.encode(StreamId(streamid), Extensions::ALL, &mut out), Ok(()));
        let (header, payload) = split(&out);
        prop_assert_eq!(header.code, message.code());
        if !matches!(message, Message::Status(_)) {
            prop_assert_eq!(header.streamid, StreamId(streamid));
        }
        prop_assert_eq!(Message::decode(&header, payload), Ok(message));
        // A text that contains a NUL or exceeds the limit appends no bytes.
        let mut long = parts.clone();
        long.path.push(0);
        long.path.push(1);
        let mut nothing = Vec::new();
        let kind = long.message();
        if kind.encode(StreamId(streamid), Extensions::ALL, &mut nothing).is_err() {
            prop_assert!(nothing.is_empty());
        }
    }

    #[test]
    fn decoding_a_truncated_message_never_panics(parts in parts()) {
        let message = parts.message();
        let mut out = Vec::new();
        message.encode(StreamId::NONE, Extensions::ALL, &mut out).unwrap();
        let (header, payload) = split(&out);
        for end in 0..payload.len() {
            let _ = Message::decode(&header, &payload[..end]);
        }
    }

    #[test]
    fn decoded_messages_encode_to_equal_messages(header in header(), payload in payload()) {
        if let Ok(message) = Message::decode(&header, &payload) {
            let mut first = Vec::new();
            if message.encode(header.streamid, Extensions::ALL, &mut first).is_ok() {
                let (again_header, again) = split(&first);
                let again = Message::decode(&again_header, again).unwrap();
                let mut second = Vec::new();
                prop_assert_eq!(again.encode(header.streamid, Extensions::ALL, &mut second), Ok(()));
                prop_assert_eq!(&first, &second);
                // These messages limit some of their numbers when they are encoded.
                let cut = matches!(message, Message::Login(_) | Message::Load(_) | Message::Avail(_));
                prop_assert!(cut || again == message, "{:?} {:?}", message, again);
            } else {
                prop_assert!(first.is_empty());
            }
            examine(&message);
        }
        if let Ok(answer) = LoginAnswer::decode(&header, &payload) {
            let mut first = Vec::new();
            if answer.encode(&mut first).is_ok() {
                let (header, again) = split(&first);
                prop_assert_eq!(LoginAnswer::decode(&header, again), Ok(answer));
            }
        }
        if let Ok(ToRedirector::Response(response)) = ToRedirector::decode(&header, &payload) {
            let mut first = Vec::new();
            if response.encode(header.streamid, &mut first).is_ok() {
                let (header, again) = split(&first);
                prop_assert_eq!(Response::decode(&header, again), Ok(response));
            }
        }
    }

    #[test]
    fn a_response_survives_encoding(value in 1u32..0x8000_0000, text in option::of(text()), kind in 0u8..5, later: bool) {
        let id = MessageId::of_streamid(StreamId([0, 7, 7, 0])).unwrap();
        let port = u16::try_from(value % 65_535 + 1).unwrap();
        let answer = match kind {
            0 => ResponseAnswer::Data { value, text: text.as_deref() },
            1 => ResponseAnswer::Error { code: ErrorCode(value), text: text.as_deref().unwrap_or_default() },
            2 => ResponseAnswer::Redirect(EncodedRedirect::host(b"[2001:db8::1]?x=1", port)),
            3 => ResponseAnswer::Wait { seconds: value },
            _ => ResponseAnswer::Waitresp { id: id.value() },
        };
        let later = later && kind != 4;
        let response = Response {
            modifier: if later { ResponseModifier::ASYNC } else { ResponseModifier::NONE },
            answer,
        };
        let mut out = Vec::new();
        prop_assert_eq!(response.encode(id.streamid(), &mut out), Ok(()));
        let (header, payload) = split(&out);
        prop_assert_eq!(ToRedirector::decode(&header, payload), Ok(ToRedirector::Response(response)));
        if let ResponseAnswer::Redirect(redirect) = response.answer {
            let expected = ParsedRedirect::Host { host: b"[2001:db8::1]", port, cgi: Some(b"x=1") };
            prop_assert_eq!(redirect.target(), Some(expected));
        }
        for end in 0..payload.len() {
            let cut = Response::decode(&header, &payload[..end]);
            prop_assert_eq!(cut.is_err(), end < 4);
        }
    }

    #[test]
    fn a_login_reply_survives_encoding(version in 0u16..6, suspended: bool, hold: u32, instance in "[!-~]{1,20}", site in "[a-z]{0,9}") {
        let login = NodeLogin { version, ..NodeLogin::default() };
        let sid = format!("m-{instance} 1213man");
        let env = format!("site={site}&scalla=77");
        let reply = NodeLoginReply::to(&login, suspended, hold, sid.as_bytes(), env.as_bytes());
        let mut out = Vec::new();
        prop_assert_eq!(LoginAnswer::Accepted(reply).encode(&mut out), Ok(()));
        let (header, payload) = split(&out);
        prop_assert_eq!(LoginAnswer::decode(&header, payload), Ok(LoginAnswer::Accepted(reply)));
        let expected = if version < 3 { Extensions::NONE } else { Extensions::ALL };
        prop_assert_eq!(reply.granted(Extensions::ALL), expected);
    }

    #[test]
    fn encoded_texts_parse_to_equal_values(
        exports in vec((any::<bool>(), any::<bool>(), "/[ -~]{0,20}"), 1..9),
        instance in "[!-~]{1,9}( [!-~]{1,9})?", cluster in "[!-~]{1,20}", anywhere: bool, proxy: bool,
        host in option::of("[!-%'-~]{0,9}"), site in option::of("[!-%'-~]{0,9}"), extensions: u32,
    ) {
        let exports: Vec<_> = exports
            .iter()
            .map(|(writable, stageable, prefix)| ExportLine {
                writable: *writable,
                stageable: *stageable,
                prefix: prefix.as_bytes(),
            })
            .collect();
        let mut out = Vec::new();
        exports.iter().for_each(|&export| ExportLines::append(&mut out, export));
        prop_assert_eq!(ExportLines::parse(&out).collect::<Result<Vec<_>, _>>(), Ok(exports));

        let (instance, cluster) = (instance.as_bytes(), cluster.as_bytes());
        let id = SystemId { anywhere, kind: SystemIdKind::Supervisor, proxy, instance, cluster };
        let out = id.encoded();
        prop_assert_eq!(SystemId::decode(&out), Ok(id));
        prop_assert_eq!(SystemId::cluster_of(&out), Some(cluster));

        let env = Env {
            host: host.as_deref().map(str::as_bytes),
            site: site.as_deref().map(str::as_bytes),
            software: site.as_deref().map(str::as_bytes),
            instance: site.as_deref().map(str::as_bytes),
            door: site.as_deref().map(str::as_bytes).filter(|_| extensions != 0),
            extensions: Extensions(extensions),
        };
        let out = env.encoded();
        prop_assert_eq!(Env::parse(CgiText::new(&out)), env);
    }

    #[test]
    fn a_try_list_decodes_to_its_hosts(hosts in vec(("[a-z0-9.]{1,30}|[0-9a-f]{1,4}::[0-9a-f]{1,4}", 1u16..), 0..70)) {
        let own = TryHost::new(b"own.example.org", 1213);
        let mut expected: Vec<_> = Vec::new();
        for (host, port) in &hosts {
            let host = TryHost::new(host.as_bytes(), *port);
            if !expected.contains(&host) {
                expected.push(host);
            }
        }
        let list = TryList::new(FramePhase::Login, expected.iter().copied(), own).unwrap();
        let mut out = Vec::new();
        LoginAnswer::Try(list.message()).encode(&mut out).unwrap();
        let (header, payload) = split(&out);
        let Ok(LoginAnswer::Try(decoded)) = LoginAnswer::decode(&header, payload) else { panic!("no try") };
        expected.push(own);
        prop_assert_eq!(decoded.hosts().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn an_inventory_decodes_to_its_paths(paths in vec(filled(), 0..100)) {
        let mut batch = PathBatch::default();
        for path in &paths {
            prop_assert_eq!(batch.push(path), Ok(true));
        }
        let message = Message::Inventory(batch.message(InventoryModifier::FIRST | InventoryModifier::LAST));
        let mut out = Vec::new();
        prop_assert_eq!(message.encode(StreamId::NONE, Extensions::INVENTORY, &mut out), Ok(()));
        let (header, payload) = split(&out);
        let Ok(Message::Inventory(inventory)) = Message::decode(&header, payload) else { panic!("no inventory") };
        prop_assert!(inventory.paths().eq(paths.iter().map(Vec::as_slice)));
    }

    #[test]
    fn arbitrary_streams_end_in_frames_or_errors(bytes in vec(any::<u8>(), 0..300), phase in 0u8..3) {
        let phase = [FramePhase::Login, FramePhase::Established, FramePhase::Redirector][usize::from(phase)];
        let mut splitter = FrameSplitter::new(phase);
        splitter.push(&bytes);
        let mut taken = 0;
        while let Ok(Some(frame)) = splitter.next_frame() {
            taken += 8 + frame.payload.len();
        }
        prop_assert_eq!(taken + splitter.unread().len(), bytes.len());
    }
}

/// Checks that messages of an extension are encoded only for peers with the bit of that extension.
#[test]
fn extensions_are_encoded_only_for_peers_that_support_them() {
    let batch = PathBatch::default();
    let cells = CellBatch::default();
    let cases = [
        (Message::NotHere(NotHere { path: b"/f" }), Extensions::NOT_HERE),
        (Message::Occupancy(cells.message()), Extensions::OCCUPANCY),
        (Message::Inventory(batch.message(InventoryModifier::LAST)), Extensions::INVENTORY),
        (Message::Lease(Lease { number: 1, milliseconds: 15_000, path: b"/f" }), Extensions::LEASES),
        (Message::Status(Status { modifier: StatusModifier::ESTABLISHED, port: None }), Extensions::NEWCOMER),
    ];
    for (message, needed) in cases {
        for peer in [Extensions::NONE, Extensions::ALL.without(needed)] {
            let mut out = Vec::new();
            assert!(message.encode(StreamId::NONE, peer, &mut out).is_err(), "{message:?}");
            assert!(out.is_empty());
        }
        assert_eq!(message.encode(StreamId::NONE, needed, &mut Vec::new()), Ok(()));
    }
    let prepdel = Message::Prepdel(Prepdel { modifier: RelayModifier::NONE, ident: b"", reqid: b"1" });
    assert!(prepdel.encode(StreamId::NONE, Extensions::NONE, &mut Vec::new()).is_err());
}

/// The limit of a packed text is 2047 bytes with its NUL.
#[test]
fn texts_and_paths_over_2046_bytes_are_not_sent() {
    for bytes in [2046, 2047] {
        let path = vec![b'a'; bytes];
        let options = SelectOptions::READ;
        let messages = [
            Message::State(State { modifier: StateModifier::NONE, path: &path }),
            Message::Have(Have { modifier: HaveModifier::ONLINE, path: &path }),
            Message::Gone(Gone { path: &path }),
            Message::NotHere(NotHere { path: &path }),
            Message::Statfs(Statfs { modifier: StatfsModifier::NONE, path: &path }),
            Message::Select(Select { ident: b"", options, path: &path, opaque: None, avoid: None }),
            Message::Select(Select { ident: b"", options, path: b"/f", opaque: Some(&path), avoid: None }),
            Message::Rm(Removal { modifier: RelayModifier::NONE, ident: &path, path: b"/f", opaque: None }),
        ];
        for message in messages {
            let sent = message.encode(StreamId::NONE, Extensions::ALL, &mut Vec::new());
            assert_eq!(sent.is_ok(), bytes == 2046, "{bytes} bytes in {}", message.code());
        }
    }
}

/// A query or report without a path has no meaning.
#[test]
fn messages_without_a_path_are_not_sent() {
    let messages = [
        Message::State(State { modifier: StateModifier::NONE, path: b"" }),
        Message::Have(Have { modifier: HaveModifier::ONLINE, path: b"" }),
        Message::Gone(Gone { path: b"" }),
        Message::Rm(Removal { modifier: RelayModifier::NONE, ident: b"", path: b"", opaque: None }),
    ];
    for message in messages {
        assert!(message.encode(StreamId::NONE, Extensions::ALL, &mut Vec::new()).is_err(), "{message:?}");
    }
}

#[test]
fn a_status_with_contradictory_bits_is_not_sent() {
    let sent = |modifier| {
        let status = Message::Status(Status { modifier: StatusModifier(modifier), port: None });
        status.encode(StreamId::NONE, Extensions::NONE, &mut Vec::new()).is_ok()
    };
    let fine: Vec<_> = (0..=0x1f).filter(|&modifier| sent(modifier)).collect();
    assert_eq!(fine, [0, 1, 2, 4, 5, 6, 8, 9, 10, 16]);
}

/// Calls every accessor that a parent or node uses on a decoded message.
fn examine(message: &Message<'_>) {
    match message {
        Message::Login(login) => {
            login.exports().for_each(drop);
            login.interfaces().for_each(drop);
            let _ = (login.env(), login.sid.map(SystemId::decode));
        }
        Message::Select(select) => select.avoided().for_each(drop),
        Message::Locate(locate) => drop(locate.scope()),
        Message::Try(hosts) => hosts.hosts().for_each(drop),
        Message::Inventory(inventory) => inventory.paths().for_each(|path| assert!(!path.is_empty())),
        Message::Chmod(change) => drop(change.permissions()),
        Message::Trunc(trunc) => drop(trunc.size_bytes()),
        Message::Statfs(statfs) => {
            let _ = (SpaceText::decode(statfs.path), TotalsText::decode(statfs.path));
        }
        _ => {}
    }
}
