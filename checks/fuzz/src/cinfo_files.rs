//! Fuzz target for the state files of a disk cache.
//!
//! Decoding must not panic or use memory beyond the size of the file, and a file must be equal after it
//! was written and read again.

use cache::{Cinfo, CinfoVersion};

/// Checks `data` as the content of a file.
pub fn target(data: &[u8]) {
    let Ok(cinfo) = Cinfo::decode(data) else { return };
    assert!(cinfo.blocks.as_bytes().len() + cinfo.accesses.len() * 40 <= data.len());
    assert!(cinfo.blocks.present() <= cinfo.blocks.len());
    let written = cinfo.encode();
    let again = Cinfo::decode(&written);
    assert_eq!(again.as_ref(), Ok(&Cinfo { version: CinfoVersion::Four, ..cinfo.clone() }));
    assert_eq!(again.map(|again| again.encode()), Ok(written));
}
