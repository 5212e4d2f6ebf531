//! The tables of the durable queue, and their upgrade from earlier versions.

use crate::tape_schema::TAPE_REQUESTS;
use rusqlite::{Connection, ErrorCode};
use std::time::{Duration, Instant};

/// The version of the tables, which the database stores as `user_version`.
pub(crate) const VERSION: i64 = 3;

/// The time for which a command waits for another process that writes, such as a tool.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause before another try where SQLite itself does not wait.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// Pages that SQLite keeps in memory, in KiB.
const CACHE_KIB: i64 = 2048;

/// Prepared statements that are kept.
const STATEMENTS_MAX: usize = 48;

/// Version 1. `state`: 0 queued, 1 active, 2 stopping, 3 failed. `time`: when a queued entry becomes
/// ready, or until when a failed one denies requests. `reason`: 0 not found, 1 permanent, 2 temporary.
/// `number` is the order of addition.
const TABLES: &str = "
CREATE TABLE entries (
    number INTEGER PRIMARY KEY,
    direction INTEGER NOT NULL CHECK (direction IN (0, 1)),
    path BLOB NOT NULL,
    priority INTEGER NOT NULL CHECK (priority IN (0, 1, 2)),
    source TEXT NOT NULL,
    id TEXT NOT NULL,
    client TEXT NOT NULL,
    added INTEGER NOT NULL,
    tries INTEGER NOT NULL,
    anonymous INTEGER NOT NULL,
    state INTEGER NOT NULL CHECK (state IN (0, 1, 2, 3)),
    time INTEGER,
    reason INTEGER,
    text TEXT,
    UNIQUE (direction, path)
) STRICT;
CREATE INDEX ready_entries ON entries (direction, priority, source, time, number) WHERE state = 0;
CREATE INDEX ready_times ON entries (time) WHERE state = 0;
CREATE INDEX running_entries ON entries (state) WHERE state IN (1, 2);
CREATE INDEX failed_entries ON entries (time) WHERE state = 3;
CREATE TABLE requests (
    request TEXT NOT NULL,
    direction INTEGER NOT NULL,
    path BLOB NOT NULL,
    PRIMARY KEY (request, direction, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX requests_of_entry ON requests (direction, path);
";

/// Version 2: the owner of an entry, who shares slots and places with others; the number of unfinished
/// entries of each owner, and of all; files of requests that failed; rows that cannot be read.
const UPGRADE_1: &str = "
ALTER TABLE entries ADD COLUMN owner TEXT NOT NULL DEFAULT '';
DROP INDEX ready_entries;
CREATE INDEX ready_entries ON entries (direction, priority, source, owner, time, number) WHERE state = 0;
CREATE TABLE owners (owner TEXT PRIMARY KEY, entries INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO owners SELECT owner, count(*) FROM entries WHERE state < 3 GROUP BY owner;
CREATE TABLE totals (id INTEGER PRIMARY KEY CHECK (id = 0), entries INTEGER NOT NULL) STRICT;
INSERT INTO totals SELECT 0, count(*) FROM entries WHERE state < 3;
CREATE TRIGGER entry_added AFTER INSERT ON entries WHEN new.state < 3 BEGIN
    INSERT INTO owners VALUES (new.owner, 1) ON CONFLICT DO UPDATE SET entries = entries + 1;
    UPDATE totals SET entries = entries + 1;
END;
CREATE TRIGGER entry_removed AFTER DELETE ON entries WHEN old.state < 3 BEGIN
    UPDATE owners SET entries = entries - 1 WHERE owner = old.owner;
    DELETE FROM owners WHERE owner = old.owner AND entries <= 0;
    UPDATE totals SET entries = entries - 1;
END;
CREATE TRIGGER entry_ended AFTER UPDATE OF state ON entries WHEN old.state < 3 AND new.state >= 3 BEGIN
    UPDATE owners SET entries = entries - 1 WHERE owner = old.owner;
    DELETE FROM owners WHERE owner = old.owner AND entries <= 0;
    UPDATE totals SET entries = entries - 1;
END;
CREATE TRIGGER entry_begun AFTER UPDATE OF state ON entries WHEN old.state >= 3 AND new.state < 3 BEGIN
    INSERT INTO owners VALUES (new.owner, 1) ON CONFLICT DO UPDATE SET entries = entries + 1;
    UPDATE totals SET entries = entries + 1;
END;
CREATE TABLE failed_files (
    request TEXT NOT NULL,
    direction INTEGER NOT NULL,
    path BLOB NOT NULL,
    time INTEGER NOT NULL,
    client TEXT NOT NULL,
    priority INTEGER NOT NULL,
    added INTEGER NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (request, direction, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX failed_files_times ON failed_files (time);
CREATE TABLE unreadable_entries (
    number INTEGER, direction, path, priority, source, id, client, added, tries, anonymous, state, time,
    reason, text, owner, why TEXT
);
";

/// Version 3: whether a file is removed from the disk after its copy.
const UPGRADE_2: &str = "
ALTER TABLE entries ADD COLUMN removes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE unreadable_entries ADD COLUMN removes INTEGER NOT NULL DEFAULT 0;
";

/// An index for [`crate::SqliteStore::failed_migrations`], also in databases of an earlier start.
const FAILED_MIGRATIONS: &str =
    "CREATE INDEX IF NOT EXISTS failed_migrations ON entries (number) WHERE state = 3 AND direction = 1;";

/// The numbers of entries by direction and state, also in databases of an earlier start. So they are known
/// without a look at all entries.
const COUNTS: &str = "
CREATE TABLE IF NOT EXISTS entry_counts (
    direction INTEGER NOT NULL,
    state INTEGER NOT NULL,
    entries INTEGER NOT NULL,
    PRIMARY KEY (direction, state)
) STRICT, WITHOUT ROWID;
INSERT INTO entry_counts SELECT direction, state, count(*) FROM entries
    WHERE NOT EXISTS (SELECT 1 FROM entry_counts) GROUP BY direction, state;
CREATE TRIGGER IF NOT EXISTS entry_counted AFTER INSERT ON entries BEGIN
    INSERT INTO entry_counts VALUES (new.direction, new.state, 1)
        ON CONFLICT DO UPDATE SET entries = entries + 1;
END;
CREATE TRIGGER IF NOT EXISTS entry_discounted AFTER DELETE ON entries BEGIN
    UPDATE entry_counts SET entries = entries - 1 WHERE direction = old.direction AND state = old.state;
END;
CREATE TRIGGER IF NOT EXISTS entry_recounted AFTER UPDATE OF state ON entries WHEN old.state <> new.state BEGIN
    UPDATE entry_counts SET entries = entries - 1 WHERE direction = old.direction AND state = old.state;
    INSERT INTO entry_counts VALUES (new.direction, new.state, 1)
        ON CONFLICT DO UPDATE SET entries = entries + 1;
END;
";

/// The requests of record files of XRootD's daemon that were taken over, also in databases of an earlier start.
const IMPORTED_REQUESTS: &str =
    "CREATE TABLE IF NOT EXISTS imported_requests (request BLOB PRIMARY KEY) STRICT, WITHOUT ROWID;";

/// The notifications that requests want, also in databases of an earlier start.
const NOTICES: &str =
    "CREATE TABLE IF NOT EXISTS notices (request TEXT PRIMARY KEY, destinations TEXT NOT NULL,
    success INTEGER NOT NULL, failure INTEGER NOT NULL) STRICT, WITHOUT ROWID;";

/// Sets the connection up, and creates or upgrades the tables. Returns their version. Another process may do
/// the same at this moment.
pub(crate) fn prepare(connection: &Connection) -> Result<i64, rusqlite::Error> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    connection.pragma_update(None, "trusted_schema", false)?;
    write_ahead(connection)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    let version = || connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0));
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let changes = match version()? {
        0 => format!("{TABLES} {UPGRADE_1} {UPGRADE_2}"),
        1 => format!("{UPGRADE_1} {UPGRADE_2}"),
        2 => UPGRADE_2.to_owned(),
        VERSION => String::new(),
        newer => {
            connection.execute_batch("ROLLBACK")?;
            return Ok(newer);
        }
    };
    connection.execute_batch(&format!(
        "{changes} {FAILED_MIGRATIONS} {COUNTS} {IMPORTED_REQUESTS} {NOTICES} {TAPE_REQUESTS} PRAGMA user_version = {VERSION}; COMMIT"
    ))?;
    version()
}

/// Sets the write-ahead log. SQLite does not wait for another process that does the same.
fn write_ahead(connection: &Connection) -> Result<(), rusqlite::Error> {
    let since = Instant::now();
    loop {
        match connection.pragma_update(None, "journal_mode", "WAL") {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && since.elapsed() < BUSY_TIMEOUT =>
            {
                std::thread::sleep(BUSY_PAUSE);
            }
            other => return other,
        }
    }
}
