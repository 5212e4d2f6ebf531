//! [`SessionStreams`]: the records of one client.

use super::MonitorStreams;
use super::loop_streams::LoopStreams;
use super::open_file::OpenFileTotals;
use super::user::MonitoredUser;
use crate::transfer_records::line;
use config::MonitorEvent;
use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;
use wire::monitoring::file_records::NAME_BYTES_MAX;
use wire::monitoring::redirects::{HOST_BYTES_MAX, PATH_BYTES_MAX};
use wire::monitoring::{FileRecord, PacketCode, RedirectOperation, RedirectRecord, TraceRecord};

/// Maximum length of the text of an application in bytes. The rest is cut.
const APPLICATION_BYTES_MAX: usize = 1024;

/// Number of texts of applications that a session can send in a second. Others have no id.
const INFOS_MAX: u8 = 16;

/// Bytes of a packet of the file stream with one open, without its name.
const OPEN_BYTES: usize = 64;

/// The flag of a disconnect for sessions that did not end by themselves is not used: a session ends when its
/// connection does.
const NO_FLAGS: u8 = 0;

/// An open file of a client.
#[derive(Clone, Copy)]
struct MonitoredFile {
    /// The key of its totals.
    key: usize,
    /// The trace has its open.
    is_traced: bool,
}

/// The records of one client after its login. Its end is recorded when this is dropped.
pub struct SessionStreams {
    streams: Rc<LoopStreams>,
    /// Id of the user.
    user: u32,
    /// The first line of texts about the client.
    first_line: Box<str>,
    /// The client does not object to the trace of its files.
    is_traced: bool,
    since: Duration,
    /// The tick before the last text of an application, and the number of texts since that tick.
    infos: Cell<(Duration, u8)>,
    /// The open files, by the name that the caller has for each.
    files: HashMap<usize, MonitoredFile>,
    /// Number of vector reads.
    vectors: u8,
}

impl SessionStreams {
    /// Begins with the records about a client that has logged in.
    #[must_use]
    pub fn new(streams: &Rc<LoopStreams>, user: &MonitoredUser<'_>) -> Self {
        let shared = streams.shared();
        let id = shared.new_id();
        let settings = shared.settings();
        let first_line = user.id(shared.server());
        let text = format!("{first_line}\n{}", user.details(settings.authentication));
        shared.send_map(MonitorEvent::User, PacketCode::USER, id, text.as_bytes());
        // `auth` decides about all that authentication has found.
        if let Some(token) = user.token(id).filter(|_| settings.authentication) {
            let text = format!("{first_line}\n{token}");
            shared.send_map(MonitorEvent::User, PacketCode::TOKEN, shared.new_id(), text.as_bytes());
        }
        Self {
            streams: streams.clone(),
            user: id,
            first_line: first_line.into(),
            is_traced: true,
            since: streams.age(),
            infos: Cell::new((streams.age(), 0)),
            files: HashMap::new(),
            vectors: 0,
        }
    }

    fn shared(&self) -> &MonitorStreams {
        self.streams.shared()
    }

    /// Begins or ends the trace of files that the client opens from now on.
    pub fn set_traced(&mut self, is_traced: bool) {
        self.is_traced = is_traced;
    }

    /// Sends a text about the application. Returns its id; 0 if no collector wants it, or if the client has sent too
    /// many.
    pub fn info(&self, text: &[u8]) -> u32 {
        let (second, number) = self.infos.get();
        let number = if second == self.streams.age() { number } else { 0 };
        if !self.shared().wants(MonitorEvent::Info) || number >= INFOS_MAX {
            return 0;
        }
        self.infos.set((self.streams.age(), number + 1));
        let id = self.shared().new_id();
        let text = text.get(..APPLICATION_BYTES_MAX).unwrap_or(text);
        let text = String::from_utf8_lossy(text);
        let text = format!("{}\n{}", self.first_line, line(&text));
        self.shared().send_map(MonitorEvent::Info, PacketCode::INFO, id, text.as_bytes());
        id
    }

    /// Records the name of the application that sends the following requests.
    pub fn application(&self, text: &[u8]) {
        if self.is_traced && self.shared().wants(MonitorEvent::Files) {
            let mut name = [0; 12];
            name.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
            self.streams.add_io(&TraceRecord::Application(name));
        }
    }

    /// Reports whether anybody wants to know about files.
    pub fn wants_files(&self) -> bool {
        let shared = self.shared();
        self.is_traced && shared.wants(MonitorEvent::Files) || shared.wants_file_stream()
    }

    /// Records an open. The caller names the file by a number that no other open file of the session has.
    pub fn opened(&mut self, file: usize, path: &str, size: u64, is_writable: bool) {
        let (shared, path) = (self.shared(), line(path));
        let is_traced = self.is_traced && shared.wants(MonitorEvent::Files);
        let streams = shared.wants_file_stream();
        if !is_traced && !streams {
            return;
        }
        let id = shared.new_id();
        if is_traced {
            let text = format!("{}\n{path}", self.first_line);
            shared.send_map(MonitorEvent::Files, PacketCode::PATH, id, text.as_bytes());
            self.streams.add_trace(&TraceRecord::Open { size, file: id });
        }
        if streams {
            let room = usize::try_from(shared.settings().file_buffer_bytes).unwrap_or(usize::MAX);
            let most = NAME_BYTES_MAX.min(room.saturating_sub(OPEN_BYTES));
            let path = path.get(..path.floor_char_boundary(most)).unwrap_or_default();
            let name = shared.settings().files.names.then_some((self.user, path.as_bytes()));
            self.streams.add_file_event(&FileRecord::Open { file: id, is_writable, size, name });
        }
        let key = self.streams.add_file(id);
        if let Some(old) = self.files.insert(file, MonitoredFile { key, is_traced }) {
            self.end_file(old, true);
        }
    }

    /// Records a read.
    pub fn read(&self, file: usize, offset: u64, length: usize) {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let Some(id) = self.count(file, |totals| totals.read(length)) else { return };
        if self.traces_io(file) {
            self.streams.add_io(&TraceRecord::Io { offset, length: signed(length), file: id });
        }
    }

    /// Records a write.
    pub fn write(&self, file: usize, offset: u64, length: usize) {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let Some(id) = self.count(file, |totals| totals.write(length)) else { return };
        if self.traces_io(file) {
            self.streams.add_io(&TraceRecord::Io { offset, length: -signed(length), file: id });
        }
    }

    /// Records the elements of a vector read, each a file, an offset and a length. Elements of the same file
    /// that follow each other are one record.
    pub fn read_vector(&mut self, elements: &[(usize, u64, usize)]) {
        self.vectors = self.vectors.wrapping_add(1);
        let vector = self.vectors;
        for group in elements.chunk_by(|one, next| one.0 == next.0) {
            let Some((file, ..)) = group.first() else { continue };
            let length = group.iter().map(|(_, _, length)| *length).sum::<usize>();
            let length = u32::try_from(length).unwrap_or(u32::MAX);
            let number = u16::try_from(group.len()).unwrap_or(u16::MAX);
            let id = self.count(*file, |totals| totals.read_vector(length, number));
            let (Some(file), true) = (id, self.traces_io(*file)) else { continue };
            let unwound = self.shared().wants(MonitorEvent::Vectors);
            let record =
                TraceRecord::Vector { unwound, vector, elements: number, length: signed(length), file };
            self.streams.add_io(&record);
            for (_, offset, length) in group.iter().filter(|_| unwound) {
                let length = signed(u32::try_from(*length).unwrap_or(u32::MAX));
                self.streams.add_io(&TraceRecord::Io { offset: *offset, length, file });
            }
        }
    }

    /// Records a close.
    pub fn closed(&mut self, file: usize, is_forced: bool) {
        if let Some(file) = self.files.remove(&file) {
            self.end_file(file, is_forced);
        }
    }

    /// Records a redirect of a request about a path.
    pub fn redirected(&self, operation: RedirectOperation, (host, port): (&str, u16), path: &str) {
        if !self.wants_redirects() {
            return;
        }
        let host = host.get(..host.floor_char_boundary(HOST_BYTES_MAX)).unwrap_or_default();
        let path = path.get(..path.floor_char_boundary(PATH_BYTES_MAX)).unwrap_or_default();
        let target = format!("{}:{}", line(host), line(path));
        let (user, target) = (self.user, target.as_bytes());
        let record = RedirectRecord::Redirect { operation, is_local: host.is_empty(), port, user, target };
        self.streams.add_redirect(&record);
    }

    /// Reports whether redirects are recorded.
    pub fn wants_redirects(&self) -> bool {
        self.shared().wants(MonitorEvent::Redirects)
    }

    fn count(&self, file: usize, change: impl FnOnce(&mut OpenFileTotals)) -> Option<u32> {
        self.streams.count(self.files.get(&file)?.key, change)
    }

    /// Reports whether the trace has the reads and writes of a file.
    fn traces_io(&self, file: usize) -> bool {
        self.shared().wants(MonitorEvent::Io)
            && self.is_traced
            && self.files.get(&file).is_some_and(|file| file.is_traced)
    }

    fn end_file(&self, MonitoredFile { key, is_traced }: MonitoredFile, is_forced: bool) {
        let Some(file) = self.streams.remove_file(key) else { return };
        let shared = self.shared();
        if is_traced {
            let read = file.totals.read.saturating_add(file.totals.vector_read);
            self.streams.add_trace(&TraceRecord::close(file.id, read, file.totals.written));
        }
        if shared.wants_file_stream() {
            let settings = &shared.settings().files;
            self.streams.add_file_event(&FileRecord::Close {
                file: file.id,
                is_forced,
                totals: file.totals,
                operations: settings.operations.then(|| file.operations()),
                squares: settings.squares.then(|| file.squares()),
            });
        }
    }
}

impl Drop for SessionStreams {
    fn drop(&mut self) {
        for (_, file) in std::mem::take(&mut self.files) {
            self.end_file(file, true);
        }
        let shared = self.shared();
        if shared.wants_file_stream() {
            self.streams.add_file_event(&FileRecord::Disconnect { user: self.user });
        }
        if self.is_traced && shared.wants(MonitorEvent::Files) {
            let seconds = self.streams.age().saturating_sub(self.since).as_secs();
            let seconds = i32::try_from(seconds).unwrap_or(i32::MAX);
            self.streams.add_trace(&TraceRecord::Disconnect { flags: NO_FLAGS, seconds, user: self.user });
            self.streams.end_session();
        }
    }
}

fn signed(length: u32) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}
