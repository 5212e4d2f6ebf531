//! Checksums as running state, page checksums, and the form in which checksums are stored beside a file. No I/O.
//!
//! | file | what it holds |
//! |---|---|
//! | `algorithm` | [`Algorithm`]: the types on offer and their names |
//! | `running` | [`Running`]: a checksum in the making; [`Checksum`]: its value |
//! | `pages` | checksums of 4096-byte pages, interleaved with their data as `kXR_pgread` and `kXR_pgwrite` have them |
//! | `record` | [`Record`]: the extended attribute in which a file's checksum is kept |

mod algorithm;
pub mod pages;
mod record;
mod running;

pub use algorithm::Algorithm;
pub use record::{ATTRIBUTE_PREFIX, RECORD_BYTES, Record};
pub use running::{CHECKSUM_BYTES_MAX, Checksum, Running};

/// CRC-32C (Castagnoli, reflected, initial value and final exclusive or `ffffffff`) of `data`.
pub fn crc32c(data: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(data)
}
