//! Conversion between messages about the tree and frames of the cms protocol.
//! A driver decodes each frame with `wire`. It passes messages about the tree to the node as a
//! [`NodeMessage`]. Messages about files go to other drivers; the node only records that it
//! received something, because any frame proves that the peer is alive.

use std::net::IpAddr;
use wire::Encode;
use wire::cms::flags::{Mode, StatusModifier};
use wire::cms::login::Env;
use wire::cms::message::{Avail, CellBatch, CellPlaces, Load as WireLoad, Occupancy, Status as WireStatus};
use wire::cms::message::{Try, TryHost, TryList};
use wire::cms::{
    Code, EncodeError, ErrorCode, Extensions, FramePhase, LoginAnswer, Message as Wire,
    NodeLogin as WireLogin, NodeLoginReply, PROTOCOL_VERSION, StreamId,
};

use super::address::Address;
use super::cell_directory::FreeSlots;
use super::limits::{CANDIDATES_MAX, INTERFACES_MAX};
use super::member::{LoadReport, SpaceReport};
use super::message::{CellReport, LoginMessage, LoginRefusal, NodeMessage, ParentReply, StatusMessage};

/// Converts a frame into a message about the tree. Returns `None` if the frame is about files or
/// unknown to this version.
pub fn from_frame(message: &Wire<'_>) -> Option<NodeMessage> {
    Some(match message {
        Wire::Login(login) => NodeMessage::Login(Box::new(from_login(login))),
        Wire::Status(status) => NodeMessage::Status(from_status(status)),
        Wire::Load(load) => NodeMessage::Load { load: from_load(load), free_mb: load.free_mb },
        Wire::Avail(avail) => NodeMessage::Avail {
            free_mb: avail.free_mb,
            used_percent: u8::try_from(avail.used_percent).unwrap_or(100).min(100),
            sums: avail.sums,
        },
        Wire::Disc => NodeMessage::Disc,
        Wire::Ping => NodeMessage::Ping,
        Wire::Pong => NodeMessage::Pong,
        Wire::Space => NodeMessage::Space,
        Wire::Usage => NodeMessage::Usage,
        Wire::Update => NodeMessage::Update,
        Wire::Try(hosts) => from_try(hosts),
        Wire::Occupancy(cells) => NodeMessage::Occupancy(from_occupancy(cells)),
        _ => return None,
    })
}

/// Converts the answer to the login of this node, or a frame that arrives before it. Returns `None`
/// as [`from_frame`] does.
pub fn from_answer(answer: &LoginAnswer<'_>) -> Option<NodeMessage> {
    Some(match answer {
        LoginAnswer::Accepted(reply) => NodeMessage::Reply(ParentReply {
            suspended: reply.is_suspended(),
            hold_ms: reply.hold_ms,
            id: text(reply.sid),
            site: reply.env().site.map(|site| text(Some(site))),
            door: reply.env().door.and_then(from_door),
            extensions: reply.env().extensions,
        }),
        LoginAnswer::Refused { code, text: why } => NodeMessage::Refusal(LoginRefusal {
            banned: *code == ErrorCode::NOT_PERMITTED,
            text: text(Some(why)),
        }),
        LoginAnswer::Try(hosts) => from_try(hosts),
        // A parent of our own sends pings while it delays the answer to a login.
        LoginAnswer::Other(Code::PING) => NodeMessage::Ping,
        LoginAnswer::Other(Code::DISC) => NodeMessage::Disc,
        _ => return None,
    })
}

/// Encodes a message for a peer with the protocol extensions `peer`: one frame, or several for a
/// long report.
///
/// # Errors
/// [`EncodeError`] if the peer does not support the message, or if a field is too long.
pub fn encode(message: &NodeMessage, peer: Extensions, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let send = |message: Wire<'_>, out: &mut Vec<u8>| message.encode(StreamId::NONE, peer, out);
    match message {
        NodeMessage::Login(login) => encode_login(login, out),
        NodeMessage::Reply(reply) => encode_reply(reply, out),
        NodeMessage::Refusal(refusal) => {
            let code = if refusal.banned { ErrorCode::NOT_PERMITTED } else { ErrorCode::INVALID };
            LoginAnswer::Refused { code, text: refusal.text.as_bytes() }.encode(out)
        }
        NodeMessage::Try { hosts, permanent } => encode_try(hosts, *permanent, out),
        NodeMessage::Status(status) => {
            let drains = status.drains.filter(|_| peer.is_own());
            let established = status.established && peer.contains(Extensions::NEWCOMER);
            send(Wire::Status(to_status(&StatusMessage { drains, established, ..*status })), out)
        }
        NodeMessage::Load { load, free_mb } => send(Wire::Load(to_load(load, *free_mb)), out),
        NodeMessage::Avail { free_mb, used_percent, sums } => {
            let sums = sums.filter(|_| peer.is_own());
            send(Wire::Avail(Avail { free_mb: *free_mb, used_percent: (*used_percent).into(), sums }), out)
        }
        NodeMessage::Ping => send(Wire::Ping, out),
        NodeMessage::Pong => send(Wire::Pong, out),
        NodeMessage::Usage => send(Wire::Usage, out),
        NodeMessage::Space => send(Wire::Space, out),
        NodeMessage::Update => send(Wire::Update, out),
        NodeMessage::Disc => send(Wire::Disc, out),
        NodeMessage::Occupancy(reports) => encode_occupancy(reports, peer, out),
    }
}

fn text(bytes: Option<&[u8]>) -> String {
    String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
}

fn from_login(login: &WireLogin<'_>) -> LoginMessage {
    let env = login.env();
    LoginMessage {
        version: login.version,
        mode: login.mode,
        process: login.pid,
        space: SpaceReport {
            total_mb: login.total_mb,
            free_mb: login.free_mb,
            minimum_mb: login.free_mb_min,
            used_percent: u8::try_from(login.used_percent).unwrap_or(100).min(100),
            file_systems: login.file_systems,
        },
        data_port: login.data_port,
        cluster_port: login.node_port,
        id: text(login.sid),
        paths: text(login.paths),
        interfaces: login.interfaces().filter_map(interface).take(INTERFACES_MAX).collect(),
        host: env.host.map(|host| text(Some(host))),
        site: env.site.map(|site| text(Some(site))),
        software: env.software.map(|software| text(Some(software))),
        instance: env.instance.map(|instance| text(Some(instance))),
        extensions: env.extensions,
    }
}

/// Parses an address in the list of a login: `[v6]`, IPv4 as `[::a.b.c.d]` or bare. Returns `None`
/// for an address that other hosts cannot reach.
fn interface(token: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(token).ok()?;
    let ip = base::written_ip(text)?;
    let local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    (!local && !ip.is_loopback() && !ip.is_unspecified() && !ip.is_multicast()).then_some(ip)
}

fn encode_login(login: &LoginMessage, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let mut env = Vec::new();
    let interfaces: Vec<String> = login
        .interfaces
        .iter()
        .map(|ip| Address::new(&ip.to_string(), 0).written_host().into_owned())
        .collect();
    let interfaces = interfaces.join(" ");
    let host = login.host.as_deref().map(str::as_bytes);
    let site = login.site.as_deref().map(str::as_bytes);
    let software = login.software.as_deref().map(str::as_bytes);
    let instance = login.instance.as_deref().map(str::as_bytes);
    Env { host, site, software, instance, door: None, extensions: login.extensions }.encode(&mut env);
    let message = WireLogin {
        version: login.version,
        mode: login.mode,
        pid: login.process,
        total_mb: login.space.total_mb,
        free_mb: login.space.free_mb,
        free_mb_min: login.space.minimum_mb,
        file_systems: login.space.file_systems,
        used_percent: login.space.used_percent.into(),
        data_port: login.data_port,
        node_port: login.cluster_port,
        sid: (!login.id.is_empty()).then_some(login.id.as_bytes()),
        paths: (!login.paths.is_empty()).then_some(login.paths.as_bytes()),
        interfaces: (!interfaces.is_empty()).then_some(interfaces.as_bytes()),
        env: (!env.is_empty()).then_some(&env),
    };
    Wire::Login(message).encode(StreamId::NONE, Extensions::NONE, out)
}

fn encode_reply(reply: &ParentReply, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let mut env = Vec::new();
    let site = reply.site.as_deref().map(str::as_bytes);
    let door = reply.door.as_ref().map(Address::to_string);
    let door = door.as_ref().map(String::as_bytes);
    Env { site, door, extensions: reply.extensions, ..Env::default() }.encode(&mut env);
    let message = NodeLoginReply {
        version: PROTOCOL_VERSION,
        mode: if reply.suspended { Mode::SUSPEND } else { Mode::NONE },
        hold_ms: reply.hold_ms,
        sid: (!reply.id.is_empty()).then_some(reply.id.as_bytes()),
        env: (!env.is_empty()).then_some(&env),
    };
    LoginAnswer::Accepted(message).encode(out)
}

fn from_door(text: &[u8]) -> Option<Address> {
    let host = TryHost::parse(text)?;
    Some(Address::new(&String::from_utf8_lossy(host.host), host.port?))
}

fn from_try(hosts: &Try<'_>) -> NodeMessage {
    let address =
        |host: TryHost<'_>| Address::new(&String::from_utf8_lossy(host.host), host.port.unwrap_or(0));
    NodeMessage::Try {
        hosts: hosts.hosts().take(CANDIDATES_MAX).map(address).collect(),
        permanent: hosts.is_permanent(),
    }
}

fn encode_try(hosts: &[Address], permanent: bool, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let entries: Vec<TryHost<'_>> =
        hosts.iter().map(|address| TryHost::new(address.host().as_bytes(), address.port())).collect();
    // In place of a reply the list must be shorter than later. The lists of this node are always
    // short enough.
    let list = match entries.split_last() {
        None => return Wire::Try(Try::NOWHERE).encode(StreamId::NONE, Extensions::NONE, out),
        Some(_) if permanent => TryList::permanent(FramePhase::Login, entries)?,
        Some((last, others)) => TryList::new(FramePhase::Login, others.iter().copied(), *last)?,
    };
    Wire::Try(list.message()).encode(StreamId::NONE, Extensions::NONE, out)
}

fn from_status(status: &WireStatus) -> StatusMessage {
    let has = |bit| status.modifier.contains(bit);
    // If a peer sends both, the restriction takes precedence.
    let either = |yes, no| if has(no) { Some(false) } else { has(yes).then_some(true) };
    StatusMessage {
        serves: either(StatusModifier::RESUME, StatusModifier::SUSPEND),
        data_port: status.port,
        stages: either(StatusModifier::STAGE, StatusModifier::NOSTAGE),
        drains: either(StatusModifier::UNDRAIN, StatusModifier::DRAIN).map(|works| !works),
        established: has(StatusModifier::ESTABLISHED),
        reset: has(StatusModifier::RESET),
    }
}

fn to_status(status: &StatusMessage) -> WireStatus {
    if status.reset {
        return WireStatus { modifier: StatusModifier::RESET, port: None };
    }
    let mut modifier = StatusModifier::NONE;
    if let Some(serves) = status.serves {
        modifier |= if serves { StatusModifier::RESUME } else { StatusModifier::SUSPEND };
    }
    if let Some(stages) = status.stages {
        modifier |= if stages { StatusModifier::STAGE } else { StatusModifier::NOSTAGE };
    }
    if let Some(drains) = status.drains {
        modifier |= if drains { StatusModifier::DRAIN } else { StatusModifier::UNDRAIN };
    }
    if status.established {
        modifier |= StatusModifier::ESTABLISHED;
    }
    WireStatus { modifier, port: status.data_port.filter(|_| status.serves == Some(true)) }
}

fn from_load(load: &WireLoad) -> LoadReport {
    LoadReport::from_parts([load.cpu, load.net, load.runq, load.mem, load.pag, load.dsk])
}

fn to_load(load: &LoadReport, free_mb: u32) -> WireLoad {
    let [cpu, net, runq, mem, pag, dsk] = load.parts();
    WireLoad { cpu, net, runq, mem, pag, dsk, free_mb }
}

/// Converts the reports of cells. A cell with addresses of both families is listed twice, with the
/// preferred address last.
fn from_occupancy(cells: &Occupancy<'_>) -> Vec<CellReport> {
    let mut reports: Vec<CellReport> = Vec::new();
    for mut report in cells.cells().map_while(Result::ok).filter_map(|cell| from_cell(&cell)) {
        let same = |before: &mut CellReport| {
            before.id == report.id && before.depth == report.depth && before.places == report.places
        };
        if let Some(before) = reports.pop_if(same) {
            let other: Option<IpAddr> = before.address.host().parse().ok();
            report.address = report.address.beside(other.as_slice());
            report.joined.splice(0..0, before.joined);
        }
        reports.push(report);
    }
    reports
}

/// Converts one report. Returns `None` if it is malformed: more places than a cell has, or an
/// invalid address.
fn from_cell(cell: &CellPlaces<'_>) -> Option<CellReport> {
    let small = |number: u16| u8::try_from(number).ok().filter(|n| usize::from(*n) <= crate::CELL_SLOTS);
    let places =
        FreeSlots { free: small(cell.free)?, parents: small(cell.parents)?, leaves: small(cell.leaves)? };
    let host = cell.cell.and_then(TryHost::parse);
    let address = match host {
        Some(host) => Address::new(&String::from_utf8_lossy(host.host), host.port?),
        None if cell.level == 0 || cell.gone => Address::new("", 0),
        None => return None,
    };
    Some(CellReport {
        id: cell.id,
        address,
        depth: u8::try_from(cell.level).ok()?,
        places: (!cell.gone).then_some(places),
        joined: cell.joined().collect(),
    })
}

fn encode_occupancy(reports: &[CellReport], peer: Extensions, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let mut batch = CellBatch::default();
    for report in reports {
        let named = report.depth > 0 && report.places.is_some();
        let places = report.places.unwrap_or_default();
        let cell = CellPlaces {
            level: report.depth.into(),
            id: report.id,
            gone: report.places.is_none(),
            free: places.free.into(),
            parents: places.parents.into(),
            leaves: places.leaves.into(),
            cell: None,
            joined: b"",
        };
        let address = report.address.to_string();
        let other = report.address.other().filter(|_| named).map(|other| other.to_string());
        // Both addresses must be in one frame.
        let push = |batch: &mut CellBatch| {
            if let Some(other) = &other
                && !batch.push(&CellPlaces { cell: Some(other.as_bytes()), ..cell }, &[])?
            {
                return Ok(false);
            }
            batch.push(&CellPlaces { cell: named.then_some(address.as_bytes()), ..cell }, &report.joined)
        };
        let before = other.is_some().then(|| batch.clone());
        if !push(&mut batch)? {
            batch = before.unwrap_or(batch);
            Wire::Occupancy(batch.message()).encode(StreamId::NONE, peer, out)?;
            batch.clear();
            push(&mut batch)?;
        }
    }
    if batch.is_empty() {
        return Ok(());
    }
    Wire::Occupancy(batch.message()).encode(StreamId::NONE, peer, out)
}

#[cfg(test)]
mod tests {
    use wire::cms::FrameSplitter;
    use wire::cms::message::SpaceSums;

    use super::*;

    fn read(bytes: &[u8], unanswered: bool) -> Vec<NodeMessage> {
        let mut splitter = FrameSplitter::new(FramePhase::Established);
        splitter.push(bytes);
        let mut messages = Vec::new();
        while let Some(frame) = splitter.next_frame().expect("frames") {
            messages.extend(if unanswered {
                from_answer(&LoginAnswer::decode(&frame.header, frame.payload).expect("an answer"))
            } else {
                from_frame(&Wire::decode(&frame.header, frame.payload).expect("a message"))
            });
        }
        messages
    }

    fn travels(message: &NodeMessage, unanswered: bool) {
        let mut bytes = Vec::new();
        encode(message, Extensions::ALL, &mut bytes).expect("a frame");
        assert_eq!(read(&bytes, unanswered), std::slice::from_ref(message));
    }

    fn login() -> LoginMessage {
        LoginMessage {
            version: 3,
            mode: Mode::SERVER | Mode::BLREDIR | Mode::NOSTAGE,
            process: 17,
            space: SpaceReport {
                total_mb: 1000,
                free_mb: 500,
                minimum_mb: 10,
                used_percent: 50,
                file_systems: 2,
            },
            data_port: 1094,
            cluster_port: 22001,
            id: "s-srv1@vm 22001localhost".to_owned(),
            paths: "w /\nrs /tape".to_owned(),
            interfaces: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
            host: Some("vm".to_owned()),
            site: Some("here".to_owned()),
            software: Some("scalla v1.2.3".to_owned()),
            instance: Some("disk1".to_owned()),
            extensions: Extensions::ALL,
        }
    }

    #[test]
    fn messages_travel() {
        let hosts = vec![Address::new("sup1", 22003), Address::new("::1", 22004), Address::new("root", 1213)];
        let status = |serves, data_port, stages| StatusMessage {
            serves,
            data_port,
            stages,
            ..StatusMessage::default()
        };
        for message in [
            NodeMessage::Login(Box::new(login())),
            NodeMessage::Try { hosts: hosts.clone(), permanent: false },
            NodeMessage::Try { hosts: hosts.clone(), permanent: true },
            NodeMessage::Try { hosts: hosts[..1].to_vec(), permanent: false },
            NodeMessage::Try { hosts: Vec::new(), permanent: false },
            NodeMessage::Status(status(Some(true), Some(1094), Some(false))),
            NodeMessage::Status(status(Some(false), None, None)),
            NodeMessage::Status(StatusMessage { reset: true, ..StatusMessage::default() }),
            NodeMessage::Load { load: LoadReport::from_parts([1, 2, 3, 4, 5, 100]), free_mb: 7 },
            NodeMessage::Status(StatusMessage { drains: Some(true), ..StatusMessage::default() }),
            NodeMessage::Status(StatusMessage { drains: Some(false), ..StatusMessage::default() }),
            NodeMessage::Avail { free_mb: 7, used_percent: 3, sums: None },
            NodeMessage::Avail {
                free_mb: 7,
                used_percent: 3,
                sums: Some(SpaceSums { total_mb: 1 << 40, free_mb: 5 }),
            },
            NodeMessage::Ping,
            NodeMessage::Pong,
            NodeMessage::Usage,
            NodeMessage::Space,
            NodeMessage::Update,
            NodeMessage::Disc,
        ] {
            travels(&message, false);
        }
        let id = "m-man@vm 22000localhost".to_owned();
        let extensions = Extensions::ALL;
        let door = Some(Address::new("::1", 1094));
        travels(
            &NodeMessage::Reply(ParentReply { id: id.clone(), door, extensions, ..ParentReply::default() }),
            true,
        );
        travels(
            &NodeMessage::Reply(ParentReply {
                suspended: true,
                hold_ms: 178,
                id,
                site: None,
                door: None,
                extensions,
            }),
            true,
        );
        travels(&NodeMessage::Reply(ParentReply::default()), true);
        travels(&NodeMessage::Refusal(LoginRefusal { banned: true, text: "no".to_owned() }), true);
        travels(&NodeMessage::Try { hosts, permanent: false }, true);
        travels(&NodeMessage::Ping, true);
    }

    #[test]
    fn a_long_report_takes_several_frames_of_which_none_is_too_long() {
        let other: std::net::IpAddr = "fd00::1".parse().expect("an address");
        let report = |id: u64| CellReport {
            id,
            address: match id % 3 {
                0 => Address::new("10.0.0.1", 1213).beside(&[other]),
                _ => Address::new(&format!("supervisor{id}.a.long.name.example.org"), 1213),
            },
            depth: 1,
            places: (id != 9).then_some(FreeSlots { free: 1, parents: 2, leaves: 61 }),
            joined: (0..id % 200).collect(),
        };
        let reports: Vec<CellReport> = (0..300).map(report).collect();
        let mut bytes = Vec::new();
        encode(&NodeMessage::Occupancy(reports.clone()), Extensions::ALL, &mut bytes).expect("frames");
        let read: Vec<CellReport> = read(&bytes, false)
            .into_iter()
            .flat_map(|message| match message {
                NodeMessage::Occupancy(reports) => reports,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(read.len(), reports.len());
        for (read, sent) in read.iter().zip(&reports) {
            assert_eq!((read.id, read.places, &read.joined), (sent.id, sent.places, &sent.joined));
            assert!(read.places.is_none() || read.address == sent.address);
        }
    }

    #[test]
    fn what_real_nodes_must_not_get_is_not_sent() {
        let mut bytes = Vec::new();
        let report =
            CellReport { id: 1, address: Address::new("a", 1), depth: 0, places: None, joined: vec![] };
        assert!(encode(&NodeMessage::Occupancy(vec![report]), Extensions::NONE, &mut bytes).is_err());
        let nobody = LoginMessage { version: 3, mode: Mode::SERVER, ..LoginMessage::default() };
        assert!(encode(&NodeMessage::Login(Box::new(nobody)), Extensions::NONE, &mut bytes).is_err());
        assert_eq!(bytes, []);
    }

    #[test]
    fn cells_that_are_none_are_left_out() {
        let places = CellPlaces { level: 1, free: 65, cell: Some(b"a:1"), ..CellPlaces::default() };
        assert_eq!(from_cell(&places), None);
        assert_eq!(from_cell(&CellPlaces { free: 64, cell: None, ..places }), None);
        assert_eq!(from_cell(&CellPlaces { free: 64, cell: Some(b"a"), ..places }), None);
        assert!(from_cell(&CellPlaces { free: 64, ..places }).is_some());
        assert_eq!(from_cell(&CellPlaces { free: 0, level: 300, ..places }), None);
    }

    #[test]
    fn addresses_of_a_node_that_lead_somewhere() {
        let read = |text: &str| interface(text.as_bytes()).map(|ip| ip.to_string());
        for (text, ip) in [
            ("10.0.0.1", "10.0.0.1"),
            ("[::10.0.0.1]", "10.0.0.1"),
            ("[::ffff:10.0.0.1]", "10.0.0.1"),
            ("[fd00::1]", "fd00::1"),
            ("fd00::1", "fd00::1"),
        ] {
            assert_eq!(read(text).as_deref(), Some(ip), "{text}");
        }
        for text in [
            "",
            "host",
            "[::1]",
            "127.0.0.1",
            "::",
            "0.0.0.0",
            "fe80::1",
            "169.254.1.1",
            "ff02::1",
            "[10.0.0.1",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
