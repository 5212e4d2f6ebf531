//! [`CachePin`]: a file or directory whose cached files stay, and the file with all pins.

use super::cache_key::OWN_DIRECTORY;
use super::{StoreContext, StoreError, found};
use crate::CacheKey;
use base::LogicalPath;
use digest::crc32c;
use std::fmt::Write as _;
use std::io;

/// Maximum number of pins of a cache.
pub const CACHE_PINS_MAX: usize = 256;

/// Maximum number of bytes of the paths of all pins, so that one answer of a server can have them.
const PATHS_BYTES_MAX: usize = 32 * 1024;

/// Maximum size of the file: each byte of a path has at most four characters.
const FILE_BYTES_MAX: u64 = (4 * PATHS_BYTES_MAX + 64 * (CACHE_PINS_MAX + 2)) as u64;
/// Seconds after its end in which a pin is not dropped from the file.
const ENDED_KEPT: i64 = 86_400;
/// The error of a damaged file.
const DAMAGED: &str = "the file .scalla-cache/pins is damaged; the next start of a server sets it aside, and pins are ordered anew";
/// Maximum number of damaged files that are kept.
const DAMAGED_MAX: u32 = 100;
/// The first line.
const HEAD: &str = "scalla cache pins 1";

/// A file or directory whose cached files stay until a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CachePin {
    /// The name in the cache.
    pub path: LogicalPath,
    /// The time of the order, in seconds since the epoch.
    pub created: i64,
    /// The end, in seconds since the epoch.
    pub expires: i64,
}

impl CachePin {
    /// Reports whether it still holds.
    #[must_use]
    pub const fn holds(&self, now: i64) -> bool {
        now < self.expires
    }

    /// Reports whether a cached file can be at or below its path.
    pub(crate) fn can_have_files(&self) -> bool {
        self.path.is_root() || CacheKey::new(&self.path).is_some()
    }

    /// Reports whether a file is at or below its path.
    #[must_use]
    pub fn covers(&self, key: &CacheKey) -> bool {
        key.data().is_within(&self.path)
    }
}

/// Adds or renews a pin. The order is that of the first orders. Returns whether there was room for it.
///
/// Pins that have ended stay until there is no room, because the clock can be wrong. Then the pins that ended first are
/// dropped, except for those that ended less than a day ago.
pub(crate) fn add(pins: &mut Vec<CachePin>, pin: CachePin, now: i64) -> bool {
    if let Some(known) = pins.iter_mut().find(|known| known.path == pin.path && known.holds(now)) {
        known.expires = pin.expires;
        return true;
    }
    let mut after: Vec<CachePin> = pins.iter().filter(|known| known.path != pin.path).cloned().collect();
    after.push(pin);
    let has_room = |pins: &[CachePin]| {
        let bytes: usize = pins.iter().map(|pin| pin.path.as_bytes().len()).sum();
        pins.len() <= CACHE_PINS_MAX && bytes <= PATHS_BYTES_MAX
    };
    while !has_room(&after) {
        let ended = after.iter().enumerate().filter(|(_, pin)| now.saturating_sub(pin.expires) >= ENDED_KEPT);
        let Some((at, _)) = ended.min_by_key(|(_, pin)| pin.expires) else { return false };
        after.remove(at);
    }
    *pins = after;
    true
}

fn path() -> io::Result<LogicalPath> {
    LogicalPath::parse(format!("{OWN_DIRECTORY}/pins").as_bytes())
        .map_err(|_| io::ErrorKind::InvalidFilename.into())
}

fn encode(pins: &[CachePin]) -> Vec<u8> {
    let mut text = format!("{HEAD}\n");
    for CachePin { path, created, expires } in pins {
        // Writing to a text cannot fail.
        writeln!(text, "{created} {expires} {}", path.escaped()).ok();
    }
    let sum = crc32c(text.as_bytes());
    writeln!(text, "{sum:08x}").ok();
    text.into_bytes()
}

/// Decodes a file; `None` if it is damaged.
fn decode(content: &[u8]) -> Option<Vec<CachePin>> {
    let text = std::str::from_utf8(content).ok()?.strip_suffix('\n')?;
    let (lines, sum) = text.rsplit_once('\n')?;
    if sum != format!("{:08x}", crc32c(format!("{lines}\n").as_bytes())) {
        return None;
    }
    let pin = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let (created, expires) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let path = LogicalPath::from_escaped(words.next()?).ok()?;
        Some(CachePin { path, created, expires })
    };
    let mut lines = lines.lines();
    if lines.next()? != HEAD {
        return None;
    }
    lines.map(pin).collect::<Option<Vec<_>>>().filter(|pins| pins.len() <= CACHE_PINS_MAX)
}

impl StoreContext {
    /// Reads the pins.
    ///
    /// # Errors
    /// Errors of the disk, and `InvalidData` for a damaged file.
    pub(crate) fn load_pins(&self) -> io::Result<Vec<CachePin>> {
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, DAMAGED);
        let file = match found(self.disk.open(&path()?)) {
            Ok(None) => return Ok(Vec::new()),
            Ok(Some(file)) => file,
            Err(StoreError::Foreign) => return Err(damaged()),
            Err(StoreError::Disk(error)) => return Err(error),
        };
        let size = file.status()?.size;
        let length = usize::try_from(size).ok().filter(|_| size <= FILE_BYTES_MAX).ok_or_else(damaged)?;
        let mut content = vec![0; length];
        let read = file.read_at(0, &mut content)?;
        decode(content.get(..read).unwrap_or_default()).ok_or_else(damaged)
    }

    /// Renames a damaged file, so that it can be looked at. Returns its new name.
    ///
    /// # Errors
    /// Errors of the disk.
    pub(crate) fn set_pins_aside(&self) -> io::Result<LogicalPath> {
        for number in 1..=DAMAGED_MAX {
            let aside = LogicalPath::parse(format!("{OWN_DIRECTORY}/pins.damaged-{number}").as_bytes())
                .map_err(|_| io::ErrorKind::InvalidFilename)?;
            if matches!(found(self.disk.open(&aside)), Ok(None)) {
                self.disk.rename(&path()?, &aside)?;
                self.sync_names(&aside.parent().unwrap_or_else(LogicalPath::root))?;
                return Ok(aside);
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Replaces the pins. They are durable afterwards.
    ///
    /// # Errors
    /// Errors of the disk. The earlier pins are there then, or the new ones.
    pub(crate) fn save_pins(&self, pins: &[CachePin]) -> io::Result<()> {
        self.replace(&path()?, &encode(pins), |_| {})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory_disk::MemoryDisk;
    use std::sync::Arc;

    fn pin(text: &str, created: i64, expires: i64) -> CachePin {
        CachePin { path: LogicalPath::parse(text.as_bytes()).unwrap(), created, expires }
    }

    fn context(disk: &MemoryDisk) -> StoreContext {
        StoreContext::new(Arc::new(disk.clone()), 1000)
    }

    #[test]
    fn pins_are_durable_and_one_of_two_states_after_a_stop_at_each_call() {
        let (before, after) = (vec![pin("/a", 1, 10)], vec![pin("/a", 1, 10), pin("/b c\n%", -2, i64::MAX)]);
        for calls in 0.. {
            let disk = MemoryDisk::default();
            context(&disk).save_pins(&before).unwrap();
            disk.stop_after(calls);
            let saved = context(&disk).save_pins(&after);
            for seed in 0..4 {
                let found = context(&disk.after_power_cut(seed)).load_pins().unwrap();
                assert!(found == after || (found == before && saved.is_err()), "{calls}: {found:?}");
            }
            let killed = context(&disk.after_kill()).load_pins().unwrap();
            assert!(killed == after || (killed == before && saved.is_err()), "{calls}");
            if saved.is_ok() {
                assert!(calls > 3);
                break;
            }
        }
    }

    #[test]
    fn a_damaged_file_is_noticed() {
        let content = encode(&[pin("/a", 1, 10), pin("/b", 2, 20)]);
        assert_eq!(decode(&content).map(|pins| pins.len()), Some(2));
        assert_eq!(decode(&encode(&[])), Some(Vec::new()));
        for at in 0..content.len() {
            assert_eq!(decode(&content[..at]), None, "cut at {at}");
            for bit in 0..8 {
                let mut changed = content.clone();
                changed[at] ^= 1 << bit;
                assert_eq!(decode(&changed), None, "bit {bit} of byte {at}");
            }
        }
        let disk = MemoryDisk::default();
        assert_eq!(context(&disk).load_pins().unwrap(), []);
        disk.put(&path().unwrap(), b"x");
        assert_eq!(context(&disk).load_pins().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_pin_is_renewed_at_its_place_and_the_number_is_limited() {
        let mut pins = vec![pin("/old", 1, 100), pin("/a", 2, 200), pin("/b", 3, 300)];
        assert!(add(&mut pins, pin("/a", 150, 900), 150));
        assert_eq!(pins, [pin("/old", 1, 100), pin("/a", 2, 900), pin("/b", 3, 300)]);
        assert!(add(&mut pins, pin("/old", 160, 910), 160));
        assert_eq!(pins, [pin("/a", 2, 900), pin("/b", 3, 300), pin("/old", 160, 910)], "a new one");
        for number in pins.len()..CACHE_PINS_MAX {
            assert!(add(&mut pins, pin(&format!("/{number}"), 160, 1000), 160));
        }
        assert!(!add(&mut pins, pin("/more", 160, 1000), 160) && pins.len() == CACHE_PINS_MAX);
        assert!(add(&mut pins, pin("/b", 170, 1000), 170), "a known one");
        assert!(!add(&mut pins, pin("/more", 950, 2000), 950), "two have ended just now");
        // The clock can be wrong, so no more than needed are dropped, and none that has just ended.
        assert!(!add(&mut pins, pin("/more", 950, 2000), 900 + ENDED_KEPT - 1));
        assert!(add(&mut pins, pin("/more", 950, 2000), 910 + ENDED_KEPT));
        let has = |name: &str| pins.iter().any(|pin| pin.path.text() == name);
        assert!(!has("/a") && has("/old") && has("/more"));
        let mut long = vec![pin(&format!("/{}", "x".repeat(PATHS_BYTES_MAX / 16 - 1)), 1, 10)];
        for number in 10..25 {
            let name = format!("/{number}{}", "x".repeat(PATHS_BYTES_MAX / 16 - 3));
            assert!(add(&mut long, pin(&name, 1, 10), 1));
        }
        assert!(!add(&mut long, pin("/more", 1, 10), 1), "the paths are too long");
        assert!(encode(&long).len() as u64 <= FILE_BYTES_MAX);
    }
}
