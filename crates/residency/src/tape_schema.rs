//! The tables of tape requests. Triggers keep the states of their files beside the queue, in the
//! transaction that changes it.

/// The tables, also in databases of an earlier start. States of files: 0 submitted, 1 started,
/// 2 completed, 3 failed, 4 cancelled. `lifetime` is the number of seconds for which the file stays on
/// disk after its end. The row of `tape_usage` with an empty owner has the sums of all owners.
///
/// A request no longer waits for an entry when its file has come, has failed, or was cancelled. The
/// latter two are recorded before.
pub(crate) const TAPE_REQUESTS: &str = "
CREATE TABLE IF NOT EXISTS tape_requests (
    request TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    created INTEGER NOT NULL,
    started INTEGER,
    completed INTEGER,
    unfinished INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS completed_tape_requests ON tape_requests (completed) WHERE completed IS NOT NULL;
CREATE INDEX IF NOT EXISTS tape_requests_of_owner ON tape_requests (owner, completed)
    WHERE completed IS NOT NULL;
CREATE TABLE IF NOT EXISTS tape_files (
    request TEXT NOT NULL,
    path BLOB NOT NULL,
    state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 4),
    started INTEGER,
    finished INTEGER,
    text TEXT,
    lifetime INTEGER NOT NULL,
    PRIMARY KEY (request, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS kept_tape_files ON tape_files (path) WHERE lifetime > 0;
CREATE TABLE IF NOT EXISTS tape_usage (
    owner TEXT PRIMARY KEY,
    requests INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS tape_request_added AFTER INSERT ON tape_requests BEGIN
    INSERT INTO tape_usage VALUES (new.owner, 1, new.bytes), ('', 1, new.bytes)
        ON CONFLICT DO UPDATE SET requests = requests + 1, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER IF NOT EXISTS tape_request_removed AFTER DELETE ON tape_requests BEGIN
    UPDATE tape_usage SET requests = requests - 1, bytes = bytes - old.bytes WHERE owner IN (old.owner, '');
    DELETE FROM tape_usage WHERE owner = old.owner AND requests <= 0;
    DELETE FROM tape_files WHERE request = old.request;
END;
CREATE TRIGGER IF NOT EXISTS tape_copy_begun AFTER UPDATE OF state ON entries
    WHEN new.state = 1 AND new.direction = 0
BEGIN
    UPDATE tape_files SET state = 1, started = unixepoch() WHERE path = new.path AND state = 0
        AND request IN (SELECT request FROM requests WHERE direction = 0 AND path = new.path);
END;
CREATE TRIGGER IF NOT EXISTS tape_copy_joined AFTER INSERT ON requests WHEN new.direction = 0 BEGIN
    UPDATE tape_files SET state = 1, started = unixepoch()
        WHERE request = new.request AND path = new.path AND state = 0 AND EXISTS
        (SELECT 1 FROM entries WHERE direction = 0 AND path = new.path AND state = 1);
END;
CREATE TRIGGER IF NOT EXISTS tape_copy_failed AFTER INSERT ON failed_files WHEN new.direction = 0 BEGIN
    UPDATE tape_files SET state = 3, finished = unixepoch(), text = substr(new.text, 1, 500)
        WHERE request = new.request AND path = new.path AND state < 2;
END;
CREATE TRIGGER IF NOT EXISTS tape_copy_ended AFTER DELETE ON requests WHEN old.direction = 0 BEGIN
    UPDATE tape_files SET state = 2, started = ifnull(started, unixepoch()), finished = unixepoch()
        WHERE request = old.request AND path = old.path AND state < 2;
END;
CREATE TRIGGER IF NOT EXISTS tape_file_started AFTER UPDATE OF started ON tape_files
    WHEN old.started IS NULL AND new.started IS NOT NULL
BEGIN
    UPDATE tape_requests SET started = new.started WHERE request = new.request AND started IS NULL;
END;
CREATE TRIGGER IF NOT EXISTS tape_file_ended AFTER UPDATE OF state ON tape_files
    WHEN old.state < 2 AND new.state >= 2
BEGIN
    UPDATE tape_requests SET unfinished = unfinished - 1,
        completed = CASE WHEN unfinished <= 1 THEN unixepoch() END WHERE request = new.request;
END;
";
