//! Files `cinfo` of XRootD 5.5.3 and 6, and damaged ones.

#![allow(clippy::unwrap_used)] // a panic is the failure of a test

use cache::{BlockMap, CacheAccess, CacheChecks, Cinfo, CinfoError, CinfoVersion};
use digest::{Algorithm, RunningChecksum};

/// A file of 1 byte after one read.
const ONE_BYTE: &str = "04000000 0000020000000000 0100000000000000 668c036b00000000 0000000000000000 \
    0100000000000000 02000000 01000000 3f26f429 01 668c036b00000000 668c036b00000000 01000000 00000000 \
    00000000 00000000 0100000000000000 0000000000000000 0000000000000000 aa6737d3";

/// An empty file that was not read.
const EMPTY: &str = "04000000 0000020000000000 0000000000000000 668c036b00000000 0000000000000000 \
    0000000000000000 02000000 00000000 52947ddb 00 51537d52";

/// A file of 3,000,000 bytes that two clients have read, the second without checksums.
const TWO_OPENS: &[u8] = include_bytes!("vectors/two-opens.cinfo");

fn bytes(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

const ACCESS: CacheAccess = CacheAccess {
    attached: 0x6b03_8c66,
    detached: 0x6b03_8c66,
    opens: 1,
    duration: 0,
    merged: 0,
    bytes_hit: 1,
    bytes_missed: 0,
    bytes_bypassed: 0,
};

#[test]
fn recorded_files_decode_and_encode() {
    let one = Cinfo::decode(&bytes(ONE_BYTE)).unwrap();
    assert_eq!((one.block_bytes, one.file_bytes, one.opens), (128 << 10, 1, 1));
    assert_eq!((one.created, one.unverified_since, one.checks), (0x6b03_8c66, None, CacheChecks::Network));
    assert!(one.is_complete());
    assert_eq!(one.accesses, [ACCESS]);
    assert_eq!(one.encode(), bytes(ONE_BYTE));
    let empty = Cinfo::decode(&bytes(EMPTY)).unwrap();
    assert_eq!((empty.blocks.len(), empty.blocks.present(), empty.is_complete()), (1, 0, true));
    assert_eq!(empty.encode(), bytes(EMPTY));
    let two = Cinfo::decode(TWO_OPENS).unwrap();
    assert_eq!((two.block_bytes, two.file_bytes), (64 << 10, 3_000_000));
    assert_eq!((two.blocks.len(), two.blocks.present()), (46, 46));
    assert_eq!((two.checks, two.unverified_since), (CacheChecks::None, Some(two.created + 12)));
    let [access] = two.accesses.as_slice() else { panic!("{:?}", two.accesses) };
    assert_eq!((access.opens, access.duration), (2, 31));
    assert!((access.attached..access.attached + 60).contains(&access.detached));
    assert_eq!((access.bytes_hit, access.bytes_missed), (3_084_756, 575_168));
    assert!(TWO_OPENS.starts_with(&two.encode()));
}

/// A file is rewritten in place, so a longer state may follow.
#[test]
fn bytes_behind_the_last_checksum_are_ignored() {
    let whole = bytes(ONE_BYTE);
    let longer = [whole.as_slice(), &[0xff; 100]].concat();
    assert_eq!(Cinfo::decode(&longer), Cinfo::decode(&whole));
}

#[test]
fn each_changed_bit_and_each_cut_is_noticed() {
    let whole = bytes(ONE_BYTE);
    for at in 0..whole.len() * 8 {
        let mut changed = whole.clone();
        changed[at / 8] ^= 1 << (at % 8);
        assert!(Cinfo::decode(&changed).is_err(), "bit {at}");
    }
    for length in 0..whole.len() {
        assert_eq!(Cinfo::decode(&whole[..length]), Err(CinfoError::Short), "{length} bytes");
    }
}

/// Makes a file of version 2 or 3.
fn old(version: i32, map: &[u8], records: &[u8]) -> Vec<u8> {
    let mut file = version.to_le_bytes().to_vec();
    file.extend(4096_i64.to_le_bytes());
    file.extend(40_000_i64.to_le_bytes());
    file.extend(map);
    file.extend(RunningChecksum::of(Algorithm::Md5, map).bytes());
    file.extend(1000_i64.to_le_bytes());
    file.extend(7_u64.to_le_bytes());
    file.extend(records);
    file
}

#[test]
fn older_versions_are_read_and_become_version_4() {
    let numbers = |list: &[i64]| list.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    // The second record has impossible times, and the third one was cut off.
    let records = numbers(&[2000, 2005, 10, 20, 30, 2000, 1999, 1, 1, 1, 9]);
    let two = Cinfo::decode(&old(2, &[0b0101, 0b10], &records)).unwrap();
    let access = CacheAccess {
        attached: 2000,
        detached: 2005,
        opens: 1,
        duration: 5,
        merged: 0,
        bytes_hit: 10,
        bytes_missed: 20,
        bytes_bypassed: 30,
    };
    assert_eq!(
        (two.version, two.created, two.opens, two.checks),
        (CinfoVersion::Two, 1000, 7, CacheChecks::None)
    );
    assert_eq!(two.accesses, [access]);
    assert_eq!(two.blocks, BlockMap::new(vec![0b0101, 0b10], 10).unwrap());
    let mut record = numbers(&[2000, 2005]);
    record.extend([3_i32, 9, 2, 0].iter().flat_map(|number| number.to_le_bytes()));
    record.extend(numbers(&[10, 20, 30]));
    let without_opens = [&record[..16], &[0; 40]].concat();
    let three = Cinfo::decode(&old(3, &[0xff, 0b11], &[record, without_opens].concat())).unwrap();
    assert_eq!(three.accesses, [CacheAccess { opens: 3, duration: 9, merged: 2, ..access }]);
    assert!(three.is_complete());
    for cinfo in [two, three] {
        let again = Cinfo::decode(&cinfo.encode()).unwrap();
        assert_eq!(again, Cinfo { version: CinfoVersion::Four, ..cinfo });
    }
    let mut damaged = old(3, &[0xff, 0b11], &[]);
    damaged[20] ^= 1;
    assert_eq!(Cinfo::decode(&damaged), Err(CinfoError::Checksum("blocks")));
}

#[test]
fn sizes_that_are_impossible_are_refused() {
    for version in [0_i32, 1, 5, -1] {
        assert_eq!(Cinfo::decode(&version.to_le_bytes()), Err(CinfoError::Version(version)));
    }
    let cinfo = Cinfo::decode(&bytes(ONE_BYTE)).unwrap();
    let changed = |change: &dyn Fn(&mut Cinfo)| {
        let mut changed = cinfo.clone();
        change(&mut changed);
        Cinfo::decode(&changed.encode())
    };
    let range = |what| Err(CinfoError::Range(what));
    assert_eq!(changed(&|cinfo| cinfo.block_bytes = 0), range("size of a block"));
    assert_eq!(changed(&|cinfo| cinfo.block_bytes = u64::MAX), range("size of a block"));
    assert_eq!(changed(&|cinfo| cinfo.file_bytes = u64::MAX), range("size of the cached file"));
    // The map of such a file would be longer than any file.
    assert_eq!(changed(&|cinfo| cinfo.file_bytes = 1 << 60), Err(CinfoError::Short));
}
