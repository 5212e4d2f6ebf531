//! [`KeytabCopy`]: the keys of a key table file in memory.
//!
//! The library opens, locks and reads the file for each message, which is a quarter of the cost of a
//! verification. A copy in its memory has the same keys. The state of the file is compared for each
//! login, so that a new or a removed key counts at once.

use std::mem::ManuallyDrop;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use super::context::KerberosContext;
use super::functions::{KrbKeytabEntry, Raw};
use crate::krb5::ContextMaker;
use crate::trusted_file::FileStamp;

/// Time since the last change of a file after which it is copied. A second change within the resolution
/// of its times would not be seen.
const QUIET_TIME: Duration = Duration::from_secs(2);
/// The result of the library after the last key of a table.
const END_OF_TABLE: i32 = -1_765_328_202;

/// The copy of a file. Another key table than a file is never copied.
pub(in crate::krb5) struct KeytabCopy {
    make: ContextMaker,
    state: Mutex<KeptKeysState>,
}

#[derive(Default)]
struct KeptKeysState {
    file: Option<Arc<str>>,
    keys: Option<Arc<CopiedKeys>>,
}

/// The keys that a file had in a state.
pub(in crate::krb5) struct CopiedKeys {
    stamp: FileStamp,
    name: String,
    _table: Mutex<MemoryTable>,
}

impl CopiedKeys {
    /// Returns the name of the copy for the library. It is valid while this value exists.
    pub(in crate::krb5) fn name(&self) -> &str {
        &self.name
    }
}

/// A key table in the memory of the library. The keys are wiped when its last user closes it.
struct MemoryTable {
    context: KerberosContext,
    raw: Raw,
}

// SAFETY: The table may be used by any thread, by one at a time, like its context.
unsafe impl Send for MemoryTable {}

impl Drop for MemoryTable {
    fn drop(&mut self) {
        // SAFETY: The table was opened with this context, and is closed once.
        unsafe { (self.context.library.kt_close)(self.context.raw, self.raw) };
    }
}

impl KeytabCopy {
    pub(in crate::krb5) fn new(make: ContextMaker) -> Self {
        Self { make, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, KeptKeysState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the file, and forgets the copy.
    pub(in crate::krb5) fn set_file(&self, file: Option<&str>) {
        let file = file.map(Arc::from);
        let outdated = std::mem::replace(&mut *self.state(), KeptKeysState { file, keys: None });
        drop(outdated);
    }

    /// Returns a copy of the present keys. `None` if the library must read the key table itself. Blocks.
    pub(in crate::krb5) fn current(&self, now: SystemTime) -> Option<Arc<CopiedKeys>> {
        let (file, keys) = {
            let state = self.state();
            (state.file.clone()?, state.keys.clone())
        };
        let stamp = FileStamp::of(&std::fs::metadata(&*file).ok()?);
        if let Some(keys) = keys.filter(|keys| keys.stamp == stamp) {
            return Some(keys);
        }
        if !stamp.is_older(QUIET_TIME, now) {
            return None;
        }
        let copied = Arc::new(self.copy(&file, stamp)?);
        let mut state = self.state();
        if state.file.as_ref() == Some(&file) {
            state.keys = Some(Arc::clone(&copied));
        }
        Some(copied)
    }

    /// Copies the keys of a file in this state.
    fn copy(&self, file: &str, stamp: FileStamp) -> Option<CopiedKeys> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("MEMORY:scalla-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let context = (self.make)().ok()?;
        // The table closes it.
        let raw = ManuallyDrop::new(context.keytab(Some(&name)).ok()?).raw;
        let table = MemoryTable { context, raw };
        table.fill(file)?;
        let is_unchanged = FileStamp::of(&std::fs::metadata(file).ok()?) == stamp;
        is_unchanged.then_some(CopiedKeys { stamp, name, _table: Mutex::new(table) })
    }
}

impl MemoryTable {
    /// Adds all keys of a file. Returns `None` if it cannot be read.
    fn fill(&self, file: &str) -> Option<()> {
        let Self { context, raw } = self;
        let source = context.keytab(Some(&format!("FILE:{file}"))).ok()?;
        let mut cursor = null_mut();
        // SAFETY: The objects belong to this context. The cursor is that of the source and is released
        // once. An entry is read only if the function succeeded; it is wiped and released once, after the
        // table has copied it.
        unsafe {
            context
                .check((context.library.kt_start_seq_get)(context.raw, source.raw, &raw mut cursor))
                .ok()?;
            let last = loop {
                let mut entry = KrbKeytabEntry::empty();
                let next = context.library.kt_next_entry;
                let code = next(context.raw, source.raw, &raw mut entry, &raw mut cursor);
                if code != 0 {
                    break code;
                }
                let code = (context.library.kt_add_entry)(context.raw, *raw, &raw mut entry);
                (context.library.free_keytab_entry_contents)(context.raw, &raw mut entry);
                if code != 0 {
                    break code;
                }
            };
            (context.library.kt_end_seq_get)(context.raw, source.raw, &raw mut cursor);
            (last == END_OF_TABLE).then_some(())
        }
    }
}
