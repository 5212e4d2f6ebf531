//! Tests of accounting: the file of another program, its changes, and files with several handles.

#![allow(clippy::unwrap_used)]

use super::*;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering};

struct Site(PathBuf);

static COUNT: AtomicU32 = AtomicU32::new(0);

impl Site {
    fn new() -> Self {
        let name =
            format!("scalla-accounts-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        Self(directory)
    }

    fn config(&self) -> config::SpaceAccounting {
        let log = config::UsageLogConfig { directory: self.0.clone(), instance: None, changes_per_sync: 0 };
        config::SpaceAccounting { log: Some(log), quota_file: Some(self.0.join("quotas")) }
    }

    fn accounts(&self) -> Arc<SpaceAccounts> {
        self.accounts_every(Duration::ZERO)
    }

    fn accounts_every(&self, interval: Duration) -> Arc<SpaceAccounts> {
        let spaces = ["public", "hot"].map(str::to_owned).to_vec();
        SpaceAccounts::new(&self.config(), interval, spaces).unwrap().unwrap()
    }

    /// Returns the numbers of a space in the log.
    fn numbers(&self, space: &str) -> [i64; 8] {
        let log = std::fs::read(self.0.join(".Usage")).unwrap();
        assert_eq!(log.len(), 16384);
        let mut entries = log.chunks(128);
        let entry = entries.find(|entry| entry.starts_with(format!("{space}\0").as_bytes())).unwrap();
        std::array::from_fn(|number| {
            let start = 64 + number * 8;
            i64::from_ne_bytes(entry[start..start + 8].try_into().unwrap())
        })
    }

    /// Sets the numbers 0 to 3 of the entry with this number.
    fn set(&self, entry: u64, numbers: [i64; 4]) {
        let file = File::options().write(true).open(self.0.join(".Usage")).unwrap();
        for (number, value) in numbers.into_iter().enumerate() {
            file.write_all_at(&value.to_ne_bytes(), entry * 128 + 64 + number as u64 * 8).unwrap();
        }
    }

    fn file(&self, name: &str, bytes: u64) -> File {
        let file = File::options().create(true).truncate(false).write(true).open(self.0.join(name)).unwrap();
        file.set_len(bytes).unwrap();
        file
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn used(accounts: &Arc<SpaceAccounts>, space: &str) -> Option<u64> {
    accounts.complete(SpaceUsage::default(), space).used
}

fn quota(accounts: &Arc<SpaceAccounts>, space: &str) -> Option<u64> {
    accounts.complete(SpaceUsage::default(), space).quota
}

#[test]
fn usage_survives_a_restart_and_changes_of_others_are_added() {
    let site = Site::new();
    let accounts = site.accounts();
    let file = site.file("a", 100);
    let account = accounts.open("public", &file).unwrap();
    file.set_len(5000).unwrap();
    account.close(|| Some(5000));
    assert_eq!(
        (used(&accounts, "public"), used(&accounts, "hot"), used(&accounts, "none")),
        (Some(4900), Some(0), None)
    );
    let numbers = site.numbers("public");
    assert_eq!(numbers[..7], [4900, 0, 0, 0, 0, 0, 0]);
    assert!(numbers[7] > 1_600_000_000, "the time of creation");
    // Entries are in the order of the names: hot, public.
    site.set(1, [4900, 1000, 200, 5]);
    assert_eq!(used(&accounts, "public"), Some(5705));
    assert_eq!(site.numbers("public")[..4], [5705, 0, 0, 0]);
    drop(accounts);
    site.set(0, [77, 0, 0, 0]);
    let accounts = site.accounts();
    assert_eq!((used(&accounts, "public"), used(&accounts, "hot")), (Some(5705), Some(77)));
    site.set(0, [77, 0, 1000, 0]);
    assert_eq!(used(&accounts, "hot"), Some(0), "never negative");
    assert_eq!(site.numbers("hot")[0], 0);
}

#[test]
fn a_file_counts_once_however_many_handles_it_has() {
    let site = Site::new();
    let accounts = site.accounts();
    let file = site.file("a", 0);
    let one = accounts.open("hot", &file).unwrap();
    file.set_len(1000).unwrap();
    let two = accounts.open("hot", &file).unwrap();
    file.set_len(3000).unwrap();
    one.close(|| Some(3000));
    assert_eq!(used(&accounts, "hot"), Some(3000));
    file.set_len(2000).unwrap();
    two.close(|| Some(2000));
    assert_eq!(used(&accounts, "hot"), Some(2000));
    // A handle outlives its file.
    let three = accounts.open("hot", &file).unwrap();
    file.set_len(9000).unwrap();
    accounts.remove("hot", &site.0.join("a")).unwrap();
    assert_eq!(used(&accounts, "hot"), Some(0));
    three.close(|| Some(9000));
    assert_eq!(used(&accounts, "hot"), Some(0));
    assert!(accounts.shared.lock().open.is_empty());
    // A file that was not open.
    let other = site.file("b", 0);
    let account = accounts.open("hot", &other).unwrap();
    other.set_len(50).unwrap();
    account.close(|| Some(50));
    accounts.remove("hot", &site.0.join("b")).unwrap();
    assert_eq!(used(&accounts, "hot"), Some(0));
    assert!(accounts.remove("hot", &site.0.join("b")).is_err());
    assert!(accounts.open("none", &other).is_none());
}

#[test]
fn quotas_are_read_again_when_their_file_changes() {
    let site = Site::new();
    let accounts = site.accounts();
    assert_eq!(quota(&accounts, "public"), None, "a missing file is no error");
    let write = |text: &str, seconds| {
        std::fs::write(site.0.join("quotas"), text).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        File::options().write(true).open(site.0.join("quotas")).unwrap().set_modified(time).unwrap();
    };
    write("# comment\n\npublic 4k\nhot  1.5m more\nnone 1\npublic wrong\nhot\n", 1000);
    assert_eq!((quota(&accounts, "public"), quota(&accounts, "hot")), (Some(4096), Some(1_572_864)));
    write("public 5", 1000);
    assert_eq!(quota(&accounts, "public"), Some(4096), "the same time");
    write("public 5", 2000);
    assert_eq!((quota(&accounts, "public"), quota(&accounts, "hot")), (Some(5), None));
    std::fs::remove_file(site.0.join("quotas")).unwrap();
    assert_eq!(quota(&accounts, "public"), Some(5), "the last ones remain");
}

#[test]
fn other_entries_of_the_log_stay_and_a_foreign_file_is_refused() {
    let site = Site::new();
    let mut log = vec![0; 16384];
    for entry in 0..127 {
        log[entry * 128] = b'a';
        log[entry * 128 + 1..entry * 128 + 4].copy_from_slice(format!("{entry:03}").as_bytes());
        log[entry * 128 + 64] = 9;
    }
    std::fs::write(site.0.join(".Usage"), &log).unwrap();
    let open = |spaces: &[&str]| {
        let spaces = spaces.iter().map(|name| (*name).to_owned()).collect();
        SpaceAccounts::new(&site.config(), Duration::ZERO, spaces)
    };
    drop(open(&["public", "a003"]).unwrap());
    let after = std::fs::read(site.0.join(".Usage")).unwrap();
    assert_eq!(after[..127 * 128], log[..127 * 128]);
    assert!(after[127 * 128..].starts_with(b"public\0"));
    let full = open(&["public", "more"]).map(drop).unwrap_err().to_string();
    assert!(full.contains("all 128 entries are in use, none is left for the space more"), "{full}");
    let long = open(&["x".repeat(64).as_str()]).map(drop).unwrap_err().to_string();
    assert!(long.contains("is too long"), "{long}");
    std::fs::write(site.0.join(".Usage"), "text").unwrap();
    let foreign = open(&["public"]).map(drop).unwrap_err().to_string();
    assert!(foreign.starts_with(&format!("oss.usage {}", site.0.join(".Usage").display())), "{foreign}");
    assert!(foreign.contains("it has 4 bytes and not 16384"), "{foreign}");
    assert_eq!(std::fs::read(site.0.join(".Usage")).unwrap(), b"text");
}

#[test]
fn a_log_that_cannot_be_written_delays_no_file() {
    let site = Site::new();
    let accounts = site.accounts();
    let file = site.file("a", 0);
    let account = accounts.open("public", &file).unwrap();
    // Another description of the file holds a lock, as another program would.
    let other = File::options().read(true).write(true).open(site.0.join(".Usage")).unwrap();
    let lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and the structure lives during the call.
    let locked = unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&other), libc::F_OFD_SETLK, &lock) };
    assert_eq!(locked, 0);
    file.set_len(700).unwrap();
    account.close(|| Some(700));
    assert_eq!(used(&accounts, "public"), Some(700), "in memory");
    assert_eq!(site.numbers("public")[0], 0);
    drop(other);
    // The next query writes it.
    let written = (0..10).any(|_| {
        used(&accounts, "public");
        site.numbers("public")[0] == 700
    });
    assert!(written);
    assert_eq!(used(&accounts, "public"), Some(700));
}

#[test]
fn quotas_are_read_when_the_interval_is_over() {
    let site = Site::new();
    std::fs::write(site.0.join("quotas"), "public 5").unwrap();
    let accounts = site.accounts_every(Duration::from_secs(1 << 30));
    std::fs::write(site.0.join("quotas"), "public 77").unwrap();
    let file = site.file("a", 0);
    let account = accounts.open("public", &file).unwrap();
    file.set_len(10).unwrap();
    account.close(|| Some(10));
    while accounts.shared.lock().is_writing {
        std::thread::yield_now();
    }
    assert_eq!((site.numbers("public")[0], quota(&accounts, "public")), (10, Some(5)));
    // A file that cannot be read is reported once.
    let accounts = site.accounts();
    std::fs::remove_file(site.0.join("quotas")).unwrap();
    assert!(!accounts.shared.lock().has_quota_failed);
    accounts.shared.refresh_once();
    assert!(accounts.shared.lock().has_quota_failed);
    std::fs::write(site.0.join("quotas"), "public 8").unwrap();
    let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
    File::options().write(true).open(site.0.join("quotas")).unwrap().set_modified(changed).unwrap();
    // A round reads the quotas too, so a steady stream of changes does not delay them.
    accounts.shared.lock().pending[0] = 1;
    assert!(!accounts.shared.refresh_once());
    let state = accounts.shared.lock();
    assert_eq!((state.quotas.get("public"), state.has_quota_failed), (Some(&8), false));
}

#[test]
fn a_reply_does_not_wait_for_a_log_that_hangs() {
    let site = Site::new();
    let accounts = site.accounts();
    let mut state = accounts.shared.lock();
    assert_eq!(state.patience(), REFRESH_WAIT);
    (state.is_writing, state.begun) = (true, Some(Instant::now()));
    assert_eq!(state.patience(), REFRESH_WAIT);
    state.begun = Instant::now().checked_sub(REFRESH_WAIT);
    assert_eq!(state.patience(), Duration::ZERO);
    state.is_writing = false;
}

/// The log is written again and again while files are closed.
#[test]
fn a_reply_waits_for_two_rounds_at_most() {
    let site = Site::new();
    let accounts = site.accounts();
    let shared = &accounts.shared;
    let state = std::thread::scope(|scope| {
        let mut state = shared.lock();
        (state.is_writing, state.begun) = (true, Some(Instant::now()));
        scope.spawn(|| {
            for _ in 0..2 {
                shared.lock().rounds += 1;
                shared.written.notify_all();
            }
        });
        let (state, in_time) = shared.wait(state);
        assert!(in_time && state.is_writing);
        state
    });
    drop(state);
    shared.lock().is_writing = false;
}

/// The size is that at the end of the close or of the removal, and not the one before it.
#[test]
fn sizes_are_read_under_the_lock() {
    let site = Site::new();
    let accounts = site.accounts();
    let file = site.file("a", 0);
    let account = accounts.open("public", &file).unwrap();
    account.close(|| {
        assert!(accounts.shared.state.try_lock().is_err());
        Some(1000)
    });
    assert_eq!(used(&accounts, "public"), Some(1000));
    // The file grew between the look-up of its name and its removal.
    file.set_len(1000).unwrap();
    let account = accounts.open("public", &file).unwrap();
    file.set_len(1500).unwrap();
    std::fs::remove_file(site.0.join("a")).unwrap();
    account.close(|| Some(1500));
    assert_eq!(used(&accounts, "public"), Some(1500));
    assert!(accounts.open("public", &file).is_none(), "growth of a removed file does not count");
    accounts.removed(1, &file, 1);
    assert_eq!(used(&accounts, "public"), Some(0));
    // A file with other names stays in the usage.
    let file = site.file("b", 0);
    let account = accounts.open("public", &file).unwrap();
    file.set_len(70).unwrap();
    account.close(|| Some(70));
    std::fs::hard_link(site.0.join("b"), site.0.join("c")).unwrap();
    accounts.remove("public", &site.0.join("b")).unwrap();
    assert_eq!(used(&accounts, "public"), Some(70));
}
