//! Encoders of replies that translate types of `vfs` into types of `wire`.
//!
//! They are here so that the mapping of each type exists once.

use crate::settings::Signing;
use crate::step::BadPage;
use base::Error;
use vfs::{BriefStat, FileKind, FileStat, RedirectAnswer, SpaceFigures};
use wire::FixedLayout;
use wire::xroot::codes::{ErrorCode, Status};
use wire::xroot::flags::{ServerFlags, StatFlags};
use wire::xroot::header::{ResponseHeader, StreamId};
use wire::xroot::reply::protocol::ProtocolReply;
use wire::xroot::reply::stat_text::{StatExtended, StatText, VfsText};
use wire::xroot::reply::{BadPages, Redirect, frame, status};

pub(crate) use wire::xroot::reply::frame::{ok, ok_text};

/// Appends a kXR_error reply.
pub(crate) fn error(out: &mut Vec<u8>, streamid: StreamId, code: ErrorCode, text: &str) {
    wire::xroot::reply::error::encode(out, streamid, code, text);
}

/// Appends a kXR_error reply for an error of our own crates.
pub(crate) fn fail(out: &mut Vec<u8>, streamid: StreamId, failure: &Error) {
    error(out, streamid, crate::wire_code(failure.kind), &failure.text);
}

/// Appends a kXR_redirect reply.
pub(crate) fn redirect(out: &mut Vec<u8>, streamid: StreamId, to: &RedirectAnswer) {
    let with_cgi;
    let host = if to.cgi.is_empty() {
        &*to.host
    } else {
        with_cgi = format!("{}?{}", to.host, to.cgi);
        &with_cgi
    };
    wire::xroot::reply::redirect(out, streamid, &Redirect { port: to.port, host: host.as_bytes() });
}

/// Returns the header of a reply with file data: final, or partial.
pub(crate) fn read_header(streamid: StreamId, last: bool, length: usize) -> [u8; 8] {
    let status = if last { Status::OK } else { Status::OKSOFAR };
    let dlen = i32::try_from(length).unwrap_or(i32::MAX);
    ResponseHeader { streamid, status, dlen }.to_bytes()
}

pub(crate) fn protocol(out: &mut Vec<u8>, streamid: StreamId, flags: u32, signing: Option<&Signing>) {
    let security = signing.map(Signing::announced);
    let reply = ProtocolReply {
        pval: wire::xroot::PROTOCOL_VERSION,
        flags: ServerFlags(flags),
        bind_interfaces: None,
        security,
    };
    frame(out, streamid, Status::OK, &reply);
}

/// Returns the status in the text form of the protocol.
pub(crate) fn stat_text(stat: &FileStat) -> StatText<'_> {
    StatText {
        id: stat.id,
        size: stat.size,
        flags: stat_flags(stat),
        mtime: stat.modified,
        extended: Some(StatExtended {
            ctime: stat.changed,
            atime: stat.accessed,
            mode: stat.mode,
            owner: stat.owner.as_bytes(),
            group: stat.group.as_bytes(),
        }),
    }
}

/// Returns the flags that a kXR_statx reply carries.
pub(crate) fn brief_flags(stat: BriefStat) -> StatFlags {
    let kind = if stat.kind() == FileKind::Directory { StatFlags::IS_DIR } else { StatFlags::NONE };
    if stat.is_offline() { kind.with(StatFlags::OFFLINE) } else { kind }
}

pub(crate) fn stat_flags(stat: &FileStat) -> StatFlags {
    let mut flags = match stat.kind {
        FileKind::File => StatFlags::NONE,
        FileKind::Directory => StatFlags::IS_DIR,
        FileKind::Other => StatFlags::OTHER,
    };
    let bits = [
        (stat.executable, StatFlags::XSET),
        (stat.offline, StatFlags::OFFLINE),
        (stat.readable, StatFlags::READABLE),
        (stat.writable, StatFlags::WRITABLE),
        (stat.posc_pending, StatFlags::POSCPEND),
    ];
    for (set, bit) in bits {
        if set {
            flags = flags.with(bit);
        }
    }
    flags
}

/// Returns the space for new files in the units of the vfs form of kXR_stat.
pub(crate) fn space_text(space: &SpaceFigures) -> VfsText {
    const MB: u64 = 1 << 20;
    let used = space.total.saturating_sub(space.free);
    let percent = (used.saturating_mul(100)).checked_div(space.total).unwrap_or(0);
    VfsText {
        writable_nodes: space.writable_nodes.into(),
        free_mb: space.largest_free / MB,
        used_percent: percent,
        staging_nodes: space.staging_nodes.into(),
        staging_free_mb: if space.staging_nodes == 0 { 0 } else { space.largest_free / MB },
        staging_used_percent: if space.staging_nodes == 0 { 0 } else { percent },
    }
}

/// Appends the reply to a kXR_pgwrite: success, or the list of pages with wrong checksums.
pub(crate) fn pages_written(out: &mut Vec<u8>, streamid: StreamId, offset: u64, bad: &[BadPage]) {
    let offset = i64::try_from(offset).unwrap_or(i64::MAX);
    let length = |page: &BadPage| i16::try_from(page.length).unwrap_or(i16::MAX);
    let place = |page: &BadPage| i64::try_from(page.offset).unwrap_or(i64::MAX).to_be_bytes();
    let offsets: Vec<_> = bad.iter().map(place).collect();
    let list = bad.first().zip(bad.last()).map(|(first, last)| BadPages {
        first_bytes: length(first),
        last_bytes: length(last),
        offsets: &offsets,
    });
    status::pgwrite_done(out, streamid, offset, list.as_ref());
}
