//! Records of the file stream `f`. The first one of a packet has the time.
//!
//! ```text
//! 0  u8   kind      2  u16  length of the record with these 8 bytes
//! 1  u8   flags     4  u32  id of the file, of the user for a disconnect; in the time record the
//!                           number of xfr records (u16) and of all other records (u16)
//! ```
//!
//! | record     | kind, flags                          | contents                                              |
//! |------------|--------------------------------------|-------------------------------------------------------|
//! | time       | 2: 1 has the id                      | begin i32, end i32, id of the server i64              |
//! | open       | 1: 1 has the name, 2 for writing     | size i64; with the name: user u32, name, NUL to 4      |
//! | close      | 0: 1 forced, 2 has counts, 4 squares | totals; counts; squares                               |
//! | xfr        | 3                                    | totals                                                |
//! | disconnect | 4                                    |                                                       |
//!
//! Totals are bytes of reads, of vector reads and of writes. Source: the description of XRootD's
//! monitoring, and packets of XRootD.

use super::SERVER_ID_MASK;
use crate::codec::{Decode, Encode};
use crate::cursor::{FieldReader, FieldWriter};
use crate::error::WireError;
use crate::newtypes::flags;

/// Length of the first part of each record in bytes.
pub const RECORD_HEADER_BYTES: usize = 8;
/// Length of a time record in bytes.
pub const TIME_BYTES: usize = 24;
/// Length of a record with totals in bytes.
pub const TRANSFER_BYTES: usize = 32;
/// Maximum length of a close record in bytes.
pub const CLOSE_BYTES_MAX: usize = 112;
/// Maximum length of a name in an open record in bytes.
pub const NAME_BYTES_MAX: usize = 1024;

const CLOSE: u8 = 0;
const OPEN: u8 = 1;
const TIME: u8 = 2;
const TRANSFER: u8 = 3;
const DISCONNECT: u8 = 4;

const TIME_HAS_ID: u8 = 1;
const OPEN_HAS_NAME: u8 = 1;
const OPEN_WRITES: u8 = 2;

flags! {
    /// The parts of a close record, and the kind of the close.
    FileCloseFlags(u8) {
        FORCED = 1 "forced";
        HAS_OPERATIONS = 2 "hasOPS";
        HAS_SQUARES = 4 "hasSSQ";
    }
}

/// Bytes that went through an open file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FileTotals {
    /// Bytes of reads.
    pub read: u64,
    /// Bytes of vector reads.
    pub vector_read: u64,
    /// Bytes of writes.
    pub written: u64,
}

/// Numbers of operations on an open file, and their sizes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FileOperations {
    /// Number of reads.
    pub reads: u32,
    /// Number of vector reads.
    pub vector_reads: u32,
    /// Number of writes.
    pub writes: u32,
    /// Least and largest number of elements of a vector read.
    pub elements: (u16, u16),
    /// Number of elements of all vector reads.
    pub all_elements: u64,
    /// Least and largest size of a read.
    pub read_sizes: (u32, u32),
    /// Least and largest size of a vector read.
    pub vector_sizes: (u32, u32),
    /// Least and largest size of a write.
    pub write_sizes: (u32, u32),
}

/// Sums of the squares of sizes, from which collectors compute deviations.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct FileSquares {
    /// Of bytes of reads.
    pub read: f64,
    /// Of bytes of vector reads.
    pub vector_read: f64,
    /// Of elements of vector reads.
    pub elements: f64,
    /// Of bytes of writes.
    pub written: f64,
}

/// A record of the file stream.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum FileRecord<'a> {
    /// The time of the packet.
    Time {
        /// Number of xfr records.
        transfers: u16,
        /// Number of all records but this one.
        records: u16,
        /// Begin, in seconds since the epoch.
        begin: u32,
        /// End, in seconds since the epoch.
        end: u32,
        /// Id of the server, 48 bits; `None` from old servers.
        server: Option<u64>,
    },
    /// An open.
    Open {
        /// Id of the file.
        file: u32,
        /// Opened for writing.
        is_writable: bool,
        /// Size of the file.
        size: u64,
        /// Id of the user and the name of the file, if configured.
        name: Option<(u32, &'a [u8])>,
    },
    /// A close.
    Close {
        /// Id of the file.
        file: u32,
        /// The client did not close the file.
        is_forced: bool,
        /// Bytes.
        totals: FileTotals,
        /// Numbers of operations, if configured.
        operations: Option<FileOperations>,
        /// Squares, if configured.
        squares: Option<FileSquares>,
    },
    /// The totals of an open file up to now.
    Transfer {
        /// Id of the file.
        file: u32,
        /// Bytes.
        totals: FileTotals,
    },
    /// The end of a session.
    Disconnect {
        /// Id of the user.
        user: u32,
    },
    /// A record of an unknown kind.
    Unknown {
        /// Its kind.
        kind: u8,
        /// Its flags.
        flags: u8,
        /// Its contents, with the id.
        contents: &'a [u8],
    },
}

impl Encode for FileRecord<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let begin = out.len();
        match self {
            Self::Time { transfers, records, begin, end, server } => {
                let flags = if server.is_some() { TIME_HAS_ID } else { 0 };
                let mut fields = FieldWriter::new(out);
                fields.u8(TIME).u8(flags).u16(0).u16(*transfers).u16(*records).u32(*begin).u32(*end);
                if let Some(server) = server {
                    fields.u64(server & SERVER_ID_MASK);
                }
            }
            Self::Open { file, is_writable, size, name } => {
                let flags = if name.is_some() { OPEN_HAS_NAME } else { 0 }
                    | if *is_writable { OPEN_WRITES } else { 0 };
                let mut fields = FieldWriter::new(out);
                fields.u8(OPEN).u8(flags).u16(0).u32(*file).u64(*size);
                if let Some((user, name)) = name {
                    let name = name.get(..NAME_BYTES_MAX).unwrap_or(name);
                    // One NUL at least, and a whole number of words.
                    fields.u32(*user).bytes(name).bytes([0; 4].get(name.len() % 4..).unwrap_or_default());
                }
            }
            Self::Close { file, is_forced, totals, operations, squares } => {
                let mut flags = FileCloseFlags::default();
                for (is_set, flag) in [
                    (*is_forced, FileCloseFlags::FORCED),
                    (operations.is_some(), FileCloseFlags::HAS_OPERATIONS),
                    (squares.is_some(), FileCloseFlags::HAS_SQUARES),
                ] {
                    flags = if is_set { flags | flag } else { flags };
                }
                FieldWriter::new(out).u8(CLOSE).u8(flags.0).u16(0).u32(*file);
                totals.encode(out);
                operations.iter().for_each(|operations| operations.encode(out));
                squares.iter().for_each(|squares| squares.encode(out));
            }
            Self::Transfer { file, totals } => {
                FieldWriter::new(out).u8(TRANSFER).u8(0).u16(0).u32(*file);
                totals.encode(out);
            }
            Self::Disconnect { user } => {
                FieldWriter::new(out).u8(DISCONNECT).u8(0).u16(0).u32(*user);
            }
            Self::Unknown { kind, flags, contents } => {
                FieldWriter::new(out).u8(*kind).u8(*flags).u16(0).bytes(contents);
            }
        }
        let length = u16::try_from(out.len() - begin).unwrap_or(u16::MAX);
        if let Some(place) = out.get_mut(begin + 2..).and_then(<[u8]>::first_chunk_mut) {
            *place = length.to_be_bytes();
        }
    }
}

impl FileTotals {
    fn encode(&self, out: &mut Vec<u8>) {
        FieldWriter::new(out).u64(self.read).u64(self.vector_read).u64(self.written);
    }

    fn decode(fields: &mut FieldReader<'_>) -> Result<Self, WireError> {
        let mut next = || fields.u64("xfr");
        Ok(Self { read: next()?, vector_read: next()?, written: next()? })
    }
}

impl FileOperations {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = FieldWriter::new(out);
        fields.u32(self.reads).u32(self.vector_reads).u32(self.writes);
        fields.u16(self.elements.0).u16(self.elements.1).u64(self.all_elements);
        for (least, largest) in [self.read_sizes, self.vector_sizes, self.write_sizes] {
            fields.u32(least).u32(largest);
        }
    }

    fn decode(fields: &mut FieldReader<'_>) -> Result<Self, WireError> {
        let (reads, vector_reads, writes) = (fields.u32("read")?, fields.u32("readv")?, fields.u32("write")?);
        let elements = (fields.u16("rsMin")?, fields.u16("rsMax")?);
        let all_elements = fields.u64("rsegs")?;
        let mut sizes = || Ok((fields.u32("least")?, fields.u32("largest")?));
        let (read_sizes, vector_sizes, write_sizes) = (sizes()?, sizes()?, sizes()?);
        Ok(Self {
            reads,
            vector_reads,
            writes,
            elements,
            all_elements,
            read_sizes,
            vector_sizes,
            write_sizes,
        })
    }
}

impl FileSquares {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = FieldWriter::new(out);
        for square in [self.read, self.vector_read, self.elements, self.written] {
            fields.u64(square.to_bits());
        }
    }

    fn decode(fields: &mut FieldReader<'_>) -> Result<Self, WireError> {
        let mut next = || fields.u64("ssq").map(f64::from_bits);
        Ok(Self { read: next()?, vector_read: next()?, elements: next()?, written: next()? })
    }
}

impl<'a> FileRecord<'a> {
    /// Decodes the next record.
    fn decode_next(records: &mut FieldReader<'a>) -> Result<Self, WireError> {
        let (kind, flags) = (records.u8("recType")?, records.u8("recFlag")?);
        let length = records.u16("recSize")?;
        let bad = WireError::BadLength { field: "recSize", bytes: length.into() };
        let contents = usize::from(length).checked_sub(4).filter(|&length| length >= 4).ok_or(bad)?;
        let contents = records.bytes(contents, "record")?;
        let mut fields = FieldReader::new(contents);
        let unknown = Self::Unknown { kind, flags, contents };
        let record = match (kind, flags) {
            (TIME, 0 | TIME_HAS_ID) => {
                let (transfers, records) = (fields.u16("nRecs")?, fields.u16("nRecs")?);
                let (begin, end) = (fields.u32("tBeg")?, fields.u32("tEnd")?);
                let server = if flags == TIME_HAS_ID { Some(fields.u64("sID")?) } else { None };
                if server.is_some_and(|server| server & !SERVER_ID_MASK != 0) {
                    return Ok(unknown);
                }
                Self::Time { transfers, records, begin, end, server }
            }
            (OPEN, 0..=3) => {
                let (file, size) = (fields.u32("fileID")?, fields.u64("fsize")?);
                let is_writable = flags & OPEN_WRITES != 0;
                let name = match flags & OPEN_HAS_NAME {
                    0 => None,
                    _ => {
                        let user = fields.u32("user")?;
                        let padded = fields.take_rest();
                        let name = padded.split(|&byte| byte == 0).next().unwrap_or_default();
                        // Also a record with more NULs than needed is valid. It is kept as it is.
                        if name.len() > NAME_BYTES_MAX || padded.len() != (name.len() / 4 + 1) * 4 {
                            return Ok(unknown);
                        }
                        if padded.iter().skip(name.len()).any(|&byte| byte != 0) {
                            return Ok(unknown);
                        }
                        Some((user, name))
                    }
                };
                Self::Open { file, is_writable, size, name }
            }
            (CLOSE, 0..=7) => {
                let flags = FileCloseFlags(flags);
                let (file, totals) = (fields.u32("fileID")?, FileTotals::decode(&mut fields)?);
                let operations = match flags.contains(FileCloseFlags::HAS_OPERATIONS) {
                    true => Some(FileOperations::decode(&mut fields)?),
                    false => None,
                };
                let squares = match flags.contains(FileCloseFlags::HAS_SQUARES) {
                    true => Some(FileSquares::decode(&mut fields)?),
                    false => None,
                };
                let is_forced = flags.contains(FileCloseFlags::FORCED);
                Self::Close { file, is_forced, totals, operations, squares }
            }
            (TRANSFER, 0) => {
                Self::Transfer { file: fields.u32("fileID")?, totals: FileTotals::decode(&mut fields)? }
            }
            (DISCONNECT, 0) => Self::Disconnect { user: fields.u32("userID")? },
            _ => return Ok(unknown),
        };
        // A later version may append fields.
        Ok(if fields.is_empty() { record } else { unknown })
    }
}

/// The records of a packet.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct FileRecords<'a>(pub Vec<FileRecord<'a>>);

impl<'a> Decode<'a> for FileRecords<'a> {
    /// Decodes the contents of a packet.
    ///
    /// # Errors
    /// A record is incomplete.
    fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        let (mut records, mut found) = (FieldReader::new(bytes), Vec::new());
        while !records.is_empty() {
            found.push(FileRecord::decode_next(&mut records)?);
        }
        Ok(Self(found))
    }
}

impl Encode for FileRecords<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.iter().for_each(|record| record.encode(out));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOTALS: FileTotals = FileTotals { read: 1, vector_read: 2, written: 3 };

    fn close(operations: Option<FileOperations>, squares: Option<FileSquares>) -> FileRecord<'static> {
        FileRecord::Close { file: 7, is_forced: false, totals: TOTALS, operations, squares }
    }

    #[test]
    fn records_have_the_sizes_of_their_description() {
        let time = FileRecord::Time { transfers: 1, records: 2, begin: 3, end: 4, server: Some(5) };
        let open = |name| FileRecord::Open { file: 7, is_writable: true, size: 9, name };
        let squares = FileSquares { read: 1.5, ..FileSquares::default() };
        for (record, head, length) in [
            (time, [2, 1, 0, 24], 24),
            (open(None), [1, 2, 0, 16], 16),
            (open(Some((3, b"/abc"))), [1, 3, 0, 28], 28),
            (open(Some((3, b"/ab"))), [1, 3, 0, 24], 24),
            (close(None, None), [0, 0, 0, 32], 32),
            (close(Some(FileOperations::default()), None), [0, 2, 0, 80], 80),
            (close(Some(FileOperations::default()), Some(squares)), [0, 6, 0, 112], CLOSE_BYTES_MAX),
            (FileRecord::Transfer { file: 7, totals: TOTALS }, [3, 0, 0, 32], TRANSFER_BYTES),
            (FileRecord::Disconnect { user: 7 }, [4, 0, 0, 8], 8),
        ] {
            let bytes = record.encoded();
            assert_eq!((&bytes[..4], bytes.len()), (&head[..], length), "{record:?}");
            assert_eq!(FileRecords::decode(&bytes), Ok(FileRecords(vec![record])));
            for end in 1..bytes.len() {
                assert!(FileRecords::decode(&bytes[..end]).is_err(), "{record:?} {end}");
            }
        }
    }

    #[test]
    fn fields_are_at_their_places() {
        let operations = FileOperations {
            reads: 1,
            vector_reads: 2,
            writes: 3,
            elements: (4, 5),
            all_elements: 6,
            read_sizes: (7, 8),
            vector_sizes: (9, 10),
            write_sizes: (11, 12),
        };
        let bytes = close(Some(operations), Some(FileSquares { written: 1.0, ..FileSquares::default() }));
        let words: Vec<u32> =
            bytes.encoded().as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word)).collect();
        let totals = [0x0006_0070, 7, 0, 1, 0, 2, 0, 3];
        let counts = [1, 2, 3, 4 << 16 | 5, 0, 6, 7, 8, 9, 10, 11, 12];
        assert_eq!(words, [&totals[..], &counts, &[0; 6], &[0x3ff0_0000, 0]].concat());
    }

    #[test]
    fn long_names_are_cut_and_unknown_records_are_kept() {
        let long = [b'n'; 5000];
        let record = FileRecord::Open { file: 1, is_writable: false, size: 0, name: Some((2, &long)) };
        let bytes = record.encoded();
        assert_eq!(bytes.len(), 20 + NAME_BYTES_MAX + 4);
        for bytes in [&[9, 0, 0, 8, 0, 0, 0, 1][..], &[4, 1, 0, 8, 0, 0, 0, 1], &[4, 0, 0, 9, 0, 0, 0, 1, 1]]
        {
            let records = FileRecords::decode(bytes).unwrap();
            assert!(matches!(records.0[..], [FileRecord::Unknown { .. }]), "{records:?}");
            assert_eq!(records.encoded(), bytes);
        }
        for length in 0..8 {
            assert!(FileRecords::decode(&[4, 0, 0, length, 0, 0, 0, 1]).is_err(), "{length}");
        }
    }
}
