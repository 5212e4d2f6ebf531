//! Checksums without I/O: incremental computation, page checksums, and the form stored with a file.
//!
//! Client and server share this crate, so that both compute the same values.
//!
//! | file        | contents                                                              |
//! |-------------|-----------------------------------------------------------------------|
//! | `algorithm` | [`Algorithm`]: the supported types and their names                    |
//! | `running`   | [`RunningChecksum`]: an incremental computation; [`Checksum`]: its value      |
//! | `pages`     | checksums of 4096-byte pages, as in `kXR_pgread` and `kXR_pgwrite`    |
//! | `record`    | [`ChecksumRecord`]: the extended attribute that stores the checksum of a file |

mod algorithm;
pub mod pages;
mod record;
mod running;

pub use algorithm::Algorithm;
pub use record::{ATTRIBUTE_PREFIX, ChecksumRecord, RECORD_BYTES};
pub use running::{CHECKSUM_BYTES_MAX, Checksum, RunningChecksum};

/// Computes the CRC-32C (Castagnoli, reflected, initial value and final exclusive or `ffffffff`) of
/// `data`.
pub fn crc32c(data: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(data)
}
