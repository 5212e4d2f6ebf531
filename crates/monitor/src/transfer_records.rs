//! Records about transfers and purges of files with mass storage, in the binary form of XRootD's `frm.all.monitor`.
//!
//! ```text
//! 0  code: = identification, x transfer, p purge       4  start of the sender, seconds since the epoch
//! 1  sequence number of the records to a destination   8  zero
//! 2  length of the packet                              12 text
//! ```

use std::borrow::Cow;

/// Bytes before the text.
const HEADER_BYTES: usize = 12;
/// The place of the sequence number.
const SEQUENCE: usize = 1;
/// Maximum size of a packet.
const PACKET_BYTES_MAX: usize = 65_507;

/// The client of purges.
const PURGE_CLIENT: &str = "frm_purged";

/// The sender of records.
#[derive(Clone, Debug)]
pub struct RecordSender {
    /// Name of the site; empty if none is configured.
    pub site: String,
    /// Name of the host.
    pub host: String,
    /// Name of the instance; `anon` if none is configured.
    pub instance: String,
    /// Name of the program.
    pub program: String,
    /// Port of the server. It is part of the id, and not of the records.
    pub port: u16,
    /// User of the process.
    pub user: String,
    /// Number of the process.
    pub process: u32,
    /// Time of the start, in seconds since the epoch.
    pub started: u64,
}

/// The kind of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransferKind {
    /// A copy to mass storage.
    Migrate,
    /// A copy to mass storage, after which the file is removed.
    MigrateAndRemove,
    /// A copy from mass storage.
    Stage,
}

impl TransferKind {
    fn code(self) -> char {
        match self {
            Self::Migrate => '2',
            Self::MigrateAndRemove => '3',
            Self::Stage => '6',
        }
    }
}

/// A transfer that has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransferFigures {
    /// The client, `user.pid:fd@host`.
    pub client: String,
    /// The logical path.
    pub path: String,
    /// The end, in seconds since the epoch.
    pub ended: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Seconds in the queue.
    pub queued: u64,
    /// Seconds of the copy.
    pub copying: u64,
    /// The kind.
    pub kind: TransferKind,
    /// 0, or the reason of a failure: 2 if there is no such file.
    pub status: u8,
}

/// A file that was purged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PurgeFigures {
    /// The logical path.
    pub path: String,
    /// The time of the purge, in seconds since the epoch.
    pub removed: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Times of the last access, of the last change of the status and of the last modification.
    pub times: [i64; 3],
}

/// Makes records.
#[derive(Clone, Debug)]
pub struct TransferRecords {
    started: u32,
    id: u64,
    identification: String,
}

impl TransferRecords {
    /// Creates the records of a sender.
    pub fn new(sender: &RecordSender) -> Self {
        let id = sender_id(sender);
        let RecordSender { site, host, instance, program, user, process, started, .. } = sender;
        let identification = format!(
            "{}.{process}:{id}@{host}\n&site={}&port=0&inst={}&pgm={}",
            line(user),
            line(site),
            line(instance),
            line(program)
        );
        // The field has 32 bits.
        Self { started: (*started & u64::from(u32::MAX)) as u32, id, identification }
    }

    /// Returns the record that identifies the sender. It has no sequence number.
    pub fn identification(&self) -> Vec<u8> {
        self.packet(b'=', &self.identification)
    }

    /// Returns the record of a transfer.
    pub fn transfer(&self, transfer: &TransferFigures) -> Vec<u8> {
        let TransferFigures { client, path, ended, bytes, queued, copying, kind, status } = transfer;
        let (client, path, kind) = (self.client(client), line(path), kind.code());
        let text = format!(
            "{client}\n{path}\n&tod={ended}&sz={bytes}&qt={queued}&tm={copying}&op={kind}&rc={status}"
        );
        self.packet(b'x', &text)
    }

    /// Returns the record of a purge.
    pub fn purge(&self, purge: &PurgeFigures) -> Vec<u8> {
        let PurgeFigures { path, removed, bytes, times: [accessed, changed, modified] } = purge;
        let (path, id) = (line(path), self.id);
        let text = format!(
            "{PURGE_CLIENT}:{id}@localhost\n{path}\n&tod={removed}&sz={bytes}&at={accessed}&ct={changed}&mt={modified}&fn=l"
        );
        self.packet(b'p', &text)
    }

    /// Sets the sequence number of a record for its destination.
    pub fn set_sequence(record: &mut [u8], number: u8) {
        if let Some(sequence) = record.get_mut(SEQUENCE) {
            *sequence = number;
        }
    }

    /// Returns the name of a client with the id of the sender in place of its descriptor.
    fn client<'c>(&self, client: &'c str) -> Cow<'c, str> {
        let client = line(client);
        let parts = client.split_once(':').and_then(|(user, rest)| Some((user, rest.split_once('@')?.1)));
        match parts {
            Some((user, host)) => format!("{user}:{}@{host}", self.id).into(),
            None => client,
        }
    }

    fn packet(&self, code: u8, text: &str) -> Vec<u8> {
        let text = text.as_bytes();
        let text = text.get(..PACKET_BYTES_MAX - HEADER_BYTES).unwrap_or(text);
        let length = u16::try_from(HEADER_BYTES + text.len()).unwrap_or(u16::MAX);
        let mut packet = Vec::with_capacity(length.into());
        packet.extend([code, 0]);
        packet.extend(length.to_be_bytes());
        packet.extend(self.started.to_be_bytes());
        packet.extend([0; 4]);
        packet.extend(text);
        packet
    }
}

/// Returns a text that cannot begin another line of a record.
pub(crate) fn line(text: &str) -> Cow<'_, str> {
    // The separators of lines and paragraphs end lines for some readers.
    let ends_line = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    match text.contains(ends_line) {
        true => text.replace(ends_line, "?").into(),
        false => text.into(),
    }
}

/// Returns the id of a sender, of 48 bits, which is the same after each start.
pub(crate) fn sender_id(sender: &RecordSender) -> u64 {
    let port = sender.port.to_string();
    let names = [&sender.site, &sender.host, &port, &sender.instance, &sender.program];
    // A zero ends each name, so that no two senders have the same text.
    let hash = base::stable_hash(names.into_iter().flat_map(|name| name.as_bytes().iter().chain(&[0])));
    (hash ^ hash >> 48) & 0xffff_ffff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender() -> RecordSender {
        RecordSender {
            site: "TESTSITE".to_owned(),
            host: "vm".to_owned(),
            instance: "anon".to_owned(),
            program: "frm_xfrd".to_owned(),
            port: 1094,
            user: "root".to_owned(),
            process: 10675,
            started: 0x6b0c_518d,
        }
    }

    fn transfer(client: &str, path: &str) -> TransferFigures {
        TransferFigures {
            client: client.to_owned(),
            path: path.to_owned(),
            ended: 1_795_969_421,
            bytes: 2,
            queued: 5,
            copying: 1,
            kind: TransferKind::Stage,
            status: 0,
        }
    }

    /// Records of XRootD's programs 5.5.3, with the id of this sender.
    #[test]
    fn records_have_the_form_of_xrootd() {
        let records = TransferRecords { id: 640_708_181_035, ..TransferRecords::new(&sender()) };
        let mut found = records.transfer(&transfer("me.1:2@h", "/store/s2"));
        TransferRecords::set_sequence(&mut found, 9);
        let text = "me.1:640708181035@h\n/store/s2\n&tod=1795969421&sz=2&qt=5&tm=1&op=6&rc=0";
        assert_eq!(found, [b"x\x09\x00Rk\x0cQ\x8d\x00\x00\x00\x00", text.as_bytes()].concat());
        let purge = PurgeFigures {
            path: "/store/new1".to_owned(),
            removed: 1_795_969_403,
            bytes: 3,
            times: [1_795_969_394, 1_795_969_394, 1_795_969_393],
        };
        let text = "frm_purged:640708181035@localhost\n/store/new1\n\
            &tod=1795969403&sz=3&at=1795969394&ct=1795969394&mt=1795969393&fn=l";
        let wanted = [b"p\x00\x00\x7dk\x0cQ\x8d\x00\x00\x00\x00", text.as_bytes()].concat();
        assert_eq!(records.purge(&purge), wanted);
    }

    #[test]
    fn the_sender_identifies_itself_by_an_id_that_stays() {
        let record = TransferRecords::new(&sender()).identification();
        let id = sender_id(&sender());
        let text = format!("root.10675:{id}@vm\n&site=TESTSITE&port=0&inst=anon&pgm=frm_xfrd");
        assert_eq!(record[..4], [b'=', 0, 0, u8::try_from(12 + text.len()).unwrap()]);
        assert_eq!(&record[12..], text.as_bytes());
        assert!(id < 1 << 48);
        assert_eq!(id, sender_id(&RecordSender { process: 1, started: 2, ..sender() }));
        assert_ne!(id, sender_id(&RecordSender { port: 1095, ..sender() }));
        // The end of one name is not the begin of the next one.
        let moved = RecordSender { site: "TESTSIT".to_owned(), host: "Evm".to_owned(), ..sender() };
        assert_ne!(id, sender_id(&moved));
    }

    #[test]
    fn names_of_clients_add_no_lines() {
        let records = TransferRecords::new(&sender());
        for client in ["frm_xfrd", "n@h", "a:b"] {
            assert_eq!(records.client(client), client);
        }
        let record = records.transfer(&transfer("u\n.1:2@h", "/a\n&rc=1"));
        assert_eq!(record.iter().filter(|byte| **byte == b'\n').count(), 2);
        let long = "x".repeat(100_000);
        let record = records.transfer(&transfer("u", &long));
        assert_eq!(record.len(), usize::from(u16::from_be_bytes([record[2], record[3]])));
    }
}
