//! The record files in which XRootD's transfer daemon keeps its queues.
//!
//! A file consists of slots of 4096 bytes. The first one is a header with the begin of two chains. They are not
//! followed, because the daemon takes a request out of its chain when the copy begins, and keeps the slot until
//! the end. A slot is in use if its name is not empty; a cancel empties the name.

use crate::entry::{Priority, TransferDirection};
use std::ops::Range;

/// The size of a slot in bytes.
pub(crate) const SLOT_BYTES: usize = 4096;

/// The fields of a record.
const NAME: Range<usize> = 0..3072;
const CLIENT: Range<usize> = 3072..3328;
const ID: Range<usize> = 3328..3368;
const NOTIFY: Range<usize> = 3368..3880;
const ADDED: usize = 4064;
const OWN_OFFSET: usize = 4072;
const PATH_OFFSET: usize = 4084;
const OPAQUE_OFFSET: usize = 4086;
const OPERATION: usize = 4090;
const PRIORITY: usize = 4091;

/// The notification of requests without one.
const NO_NOTIFICATION: &[u8] = b"-";

/// A request in a record file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TransferRecord {
    pub(crate) direction: TransferDirection,
    /// The local file is to be removed after its copy.
    pub(crate) removes: bool,
    /// The path.
    pub(crate) path: Vec<u8>,
    /// The URL, if the request has one.
    pub(crate) url: Option<Vec<u8>>,
    pub(crate) client: String,
    pub(crate) id: String,
    pub(crate) priority: Priority,
    /// The time of the request, in seconds since the epoch.
    pub(crate) added: u64,
    /// Somebody waits for a notification.
    pub(crate) notifies: bool,
}

/// Parses the slot at a place in its file. `None` if it has no request for a file.
pub(crate) fn parse_slot(slot: &[u8; SLOT_BYTES], place: u64) -> Result<Option<TransferRecord>, String> {
    if slot.first() == Some(&0) {
        return Ok(None);
    }
    if number::<4>(slot, OWN_OFFSET).map(i32::from_ne_bytes).map(i64::from) != i64::try_from(place).ok() {
        return Err("the slot does not contain its own place".to_owned());
    }
    let (direction, removes) = match slot[OPERATION] {
        b'+' | b'<' => (TransferDirection::In, false),
        b'&' | b'>' => (TransferDirection::Out, false),
        b'^' | b'=' => (TransferDirection::Out, true),
        // An agent that has registered itself.
        b'@' => return Ok(None),
        other => return Err(format!("unknown operation {:?}", char::from(other))),
    };
    let name = name(slot).ok_or("the name has no end, or a part outside of it")?;
    let begin = offset(slot, PATH_OFFSET).ok_or("negative offset of the path")?;
    let path = name.get(begin..).ok_or("the offset of the path is outside of the name")?;
    let text = |field: Range<usize>| String::from_utf8_lossy(until_end(field_of(slot, field))).into_owned();
    let added = number::<8>(slot, ADDED).map(i64::from_ne_bytes).unwrap_or_default();
    let notify = until_end(field_of(slot, NOTIFY));
    Ok(Some(TransferRecord {
        direction,
        removes,
        path: path.to_vec(),
        url: (begin > 0).then(|| name.to_vec()),
        client: text(CLIENT),
        id: text(ID),
        priority: Priority::new(u8::try_from(slot[PRIORITY].cast_signed().max(0)).unwrap_or_default()),
        added: u64::try_from(added).unwrap_or_default(),
        notifies: !notify.is_empty() && notify != NO_NOTIFICATION,
    }))
}

/// Returns what identifies the request in a slot: all that its client has given, and its time. The daemon moves requests to
/// other slots when it starts, and changes the links between them.
pub(crate) fn request_identity(slot: &[u8; SLOT_BYTES]) -> Vec<u8> {
    let mut identity = vec![slot[OPERATION], slot[PRIORITY]];
    identity.extend(number::<8>(slot, ADDED).unwrap_or_default());
    identity.extend(slot.get(PATH_OFFSET..OPAQUE_OFFSET + 2).unwrap_or_default());
    for field in [NAME, CLIENT, ID] {
        let field = field_of(slot, field);
        let length = field.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        identity.extend(length.to_ne_bytes());
        identity.extend(field.iter().take(length));
    }
    identity
}

/// Returns the name without opaque data: a path, or a URL.
fn name(slot: &[u8; SLOT_BYTES]) -> Option<&[u8]> {
    let field = field_of(slot, NAME);
    match offset(slot, OPAQUE_OFFSET)? {
        0 => field.contains(&0).then(|| until_end(field)),
        // A separator comes before opaque data: a zero, or a question mark.
        opaque => field.get(..opaque - 1).map(until_end),
    }
}

fn field_of(slot: &[u8; SLOT_BYTES], field: Range<usize>) -> &[u8] {
    slot.get(field).unwrap_or_default()
}

fn offset(slot: &[u8], at: usize) -> Option<usize> {
    usize::try_from(number::<2>(slot, at).map(i16::from_ne_bytes)?).ok()
}

fn number<const N: usize>(slot: &[u8], at: usize) -> Option<[u8; N]> {
    slot.get(at..)?.first_chunk().copied()
}

fn until_end(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns a slot as XRootD's agent writes it.
    pub(crate) fn slot(operation: u8, name: &[u8], place: u64) -> [u8; SLOT_BYTES] {
        let mut slot = [0; SLOT_BYTES];
        slot[..name.len()].copy_from_slice(name);
        for (at, text) in [(CLIENT, &b"me.1:2@h"[..]), (ID, b"ID1"), (NOTIFY, b"-")] {
            slot[at.start..at.start + text.len()].copy_from_slice(text);
        }
        slot[ADDED..ADDED + 8].copy_from_slice(&1_795_969_056i64.to_ne_bytes());
        slot[OWN_OFFSET..OWN_OFFSET + 4].copy_from_slice(&i32::try_from(place).unwrap().to_ne_bytes());
        slot[OPERATION] = operation;
        slot[PRIORITY] = 1;
        slot
    }

    fn set_offset(slot: &mut [u8; SLOT_BYTES], at: usize, offset: i16) {
        slot[at..at + 2].copy_from_slice(&offset.to_ne_bytes());
    }

    #[test]
    fn a_record_has_its_request() {
        let record = parse_slot(&slot(b'+', b"/store/s2", 4096), 4096).unwrap().unwrap();
        let wanted = TransferRecord {
            direction: TransferDirection::In,
            removes: false,
            path: b"/store/s2".to_vec(),
            url: None,
            client: "me.1:2@h".to_owned(),
            id: "ID1".to_owned(),
            priority: Priority::new(1),
            added: 1_795_969_056,
            notifies: false,
        };
        assert_eq!(record, wanted);
        let of = |operation| {
            let record = parse_slot(&slot(operation, b"/f", 4096), 4096).unwrap().unwrap();
            (record.direction, record.removes)
        };
        assert_eq!([b'<', b'&', b'>'].map(of).map(|(_, removes)| removes), [false; 3]);
        assert_eq!([b'^', b'='].map(of), [(TransferDirection::Out, true); 2]);
    }

    #[test]
    fn opaque_data_and_hosts_are_no_part_of_the_path() {
        for name in [&b"/store/s1?x=y"[..], b"/store/s1\0x=y"] {
            let mut slot = slot(b'+', name, 8192);
            set_offset(&mut slot, OPAQUE_OFFSET, 10);
            assert_eq!(parse_slot(&slot, 8192).unwrap().unwrap().path, b"/store/s1");
        }
        let mut slot = slot(b'=', b"root://h//store/p2", 4096);
        set_offset(&mut slot, PATH_OFFSET, 9);
        let record = parse_slot(&slot, 4096).unwrap().unwrap();
        assert_eq!((record.path, record.url), (b"/store/p2".to_vec(), Some(b"root://h//store/p2".to_vec())));
    }

    #[test]
    fn slots_without_a_request_are_not_errors_and_others_are() {
        for empty in [slot(b'+', b"", 4096), slot(b'&', b"\0store/m1", 4096), slot(b'@', b"cluster", 4096)] {
            assert_eq!(parse_slot(&empty, 4096), Ok(None));
        }
        let mut no_end = slot(b'+', b"/f", 4096);
        no_end[NAME].fill(b'x');
        let (mut outside, mut negative) = (slot(b'+', b"/f", 4096), slot(b'+', b"/f", 4096));
        set_offset(&mut outside, PATH_OFFSET, 3);
        set_offset(&mut negative, OPAQUE_OFFSET, -1);
        for bad in [slot(b'x', b"/f", 4096), slot(b'+', b"/f", 8192), no_end, outside, negative] {
            assert!(parse_slot(&bad, 4096).is_err());
        }
    }

    #[test]
    fn the_identity_of_a_request_does_not_depend_on_its_slot() {
        let one = slot(b'+', b"/store/s2", 4096);
        let identity = request_identity(&one);
        let mut linked = one;
        // What the daemon changes: its own place, the next one, and the state.
        linked[OWN_OFFSET..PATH_OFFSET].fill(7);
        linked[PRIORITY + 1..].fill(7);
        assert_eq!(request_identity(&linked), identity);
        let with = |at: usize, byte: u8| {
            let mut other = one;
            other[at] = byte;
            request_identity(&other)
        };
        let others = [
            with(NAME.start + 9, b'x'),
            with(CLIENT.start, b'x'),
            with(ID.start, b'x'),
            with(ADDED, 1),
            with(OPERATION, b'&'),
            with(PRIORITY, 2),
        ];
        for (number, other) in others.iter().enumerate() {
            assert_ne!(other, &identity, "{number}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// The result for any bytes is a request or a reason, and never a panic.
        #[test]
        fn any_slot_is_read(bytes in prop::collection::vec(any::<u8>(), SLOT_BYTES), operation in 0..8usize) {
            let mut slot: [u8; SLOT_BYTES] = bytes.try_into().unwrap();
            slot[OWN_OFFSET..OWN_OFFSET + 4].copy_from_slice(&4096i32.to_ne_bytes());
            slot[OPERATION] = b"+<&>^=@x"[operation];
            if let Ok(Some(record)) = parse_slot(&slot, 4096) {
                prop_assert!(record.path.len() < NAME.end);
                prop_assert!(!record.path.contains(&0));
            }
        }
    }
}
