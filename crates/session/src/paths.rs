//! Requests that name a path: they become operations of `vfs` on the name space.
//!
//! Requests on an open file are in `handles`.

use crate::cache_commands;
use crate::call::CallKind;
use crate::files::from_wire;
use crate::greeting::SessionClient;
use crate::ids::PathId;
use crate::reply::Replier;
use crate::step::DriverTask;
use crate::target::{Verb, target, targets};
use crate::work::SessionWork;
use base::{Descriptor, Error, ErrorKind};
use std::sync::Arc;
use vfs::{ListDetail, LocateOptions, OpenFile, OpenRequest, Operation, PrepareNotice, PrepareRequest};
use wire::xroot::flags::{
    DirlistOptions, LocateOptions as Locating, MkdirOptions, OpenOptions, OpenTemplateOptions,
    PrepareOptions, PrepareOptionsX,
};
use wire::xroot::request::{Dirlist, Locate, Mv, Open, Prepare, Request, Statx};

/// The permission bits of a mode that a client may set.
const MODE_BITS: u16 = 0o777;

/// One request on names.
pub(crate) struct NamespaceRequest<'a> {
    pub(crate) client: &'a SessionClient,
    pub(crate) work: &'a mut SessionWork,
    /// Number of prepare requests of the session so far.
    pub(crate) prepares: &'a mut u32,
    pub(crate) reply: Replier<'a>,
}

impl NamespaceRequest<'_> {
    /// Starts the operation on the name space for a request.
    pub(crate) fn start(&mut self, request: &Request<'_>) -> DriverTask {
        let kind = match request {
            Request::Open(m) if self.path_command(m).is_some() => CallKind::PathCommand,
            Request::Open(m) => {
                CallKind::Open { compress: m.options.contains(OpenOptions::COMPRESS), stat: wants_stat(m) }
            }
            Request::Dirlist(m) => {
                CallKind::List { detail: list_detail(m), held: Vec::new(), started: false }
            }
            Request::Locate(_) => CallKind::TextWithNul,
            Request::Statx(_) => CallKind::Kinds,
            _ => CallKind::Plain,
        };
        let operation = self.operation(request);
        if matches!(request, Request::Prepare(_))
            && operation.is_err()
            && self.client.settings.prepares_silent
            && self.has_no_prepare_left()
        {
            return self.reply.succeed(&[]);
        }
        let opens = matches!(operation, Ok(Operation::Open(..)));
        let descriptor =
            if opens { self.work.take_descriptor(&self.client.settings) } else { Ok(Descriptor::NONE) };
        let (operation, descriptor) = match operation.and_then(|operation| Ok((operation, descriptor?))) {
            Ok(both) => both,
            Err(error) => return self.reply.fail(&error),
        };
        let call = self.work.call(self.reply.id, PathId::CONTROL, kind);
        if let Some(call) = self.work.call_mut(call) {
            call.descriptor = descriptor;
        }
        // The copy must contain each earlier write to the source.
        let source = match request {
            Request::Open(m) if m.optiont.contains(OpenTemplateOptions::DUP) => Some(from_wire(m.fhtemplt)),
            _ => None,
        };
        self.work.start_on_names(call, operation, source)
    }

    fn operation(&mut self, request: &Request<'_>) -> Result<Operation, Error> {
        Ok(match request {
            Request::Open(m) => self.path_command(m).unwrap_or_else(|| self.open(m))?,
            Request::Dirlist(m) => Operation::List(target(m.path, Verb::LIST)?, list_detail(m)),
            Request::Locate(m) => locate(m)?,
            Request::Mkdir(m) => {
                let parents = m.options.contains(MkdirOptions::MKPATH);
                let mode = u32::from(m.mode & MODE_BITS);
                Operation::make_directory(target(m.path, Verb::CREATE)?, mode, parents)
            }
            Request::Mv(m) => rename(m)?,
            Request::Rm(m) => Operation::Remove(target(m.path, Verb::REMOVE)?),
            Request::Rmdir(m) => Operation::RemoveDirectory(target(m.path, Verb::REMOVE)?),
            Request::Chmod(m) => Operation::ChangeMode {
                target: target(m.path, Verb::MODIFY)?,
                mode: u32::from(m.mode & MODE_BITS),
            },
            Request::Statx(m) => kinds(m)?,
            Request::Prepare(m) => self.prepare(m)?,
            _ => return Err(Error::new(ErrorKind::InvalidRequest, "Invalid request code")),
        })
    }

    /// Returns the operation of an open of a path that is a command of the cache.
    fn path_command(&self, m: &Open<'_>) -> Option<Result<Operation, Error>> {
        self.client.settings.has_path_commands.then(|| cache_commands::of_path(m.target)).flatten()
    }

    fn open(&self, m: &Open<'_>) -> Result<Operation, Error> {
        let has = |bit| m.options.contains(bit);
        if self.client.copy_needs_tls(m.target) {
            return Err(Error::new(ErrorKind::TlsRequired, "third-party copies require TLS"));
        }
        let place = target(m.target, Verb::OPEN)?;
        let creates = has(OpenOptions::NEW) || has(OpenOptions::DELETE);
        // The read bit takes precedence over update, and update over write only. Without any of
        // them the file is opened for reading.
        let read = has(OpenOptions::READ);
        // The append bit gives the position of writes and does not request write access.
        let writes = has(OpenOptions::UPDT) || has(OpenOptions::WRTO);
        let appends = creates && has(OpenOptions::APND);
        let (duplicate_of, same_file_system_as) = self.templates(m, creates)?;
        Ok(Operation::Open(
            place,
            Box::new(OpenRequest {
                read,
                write: (!read && writes) || has(OpenOptions::DELETE) || (has(OpenOptions::NEW) && !read),
                append: has(OpenOptions::APND),
                new: has(OpenOptions::NEW),
                delete: has(OpenOptions::DELETE),
                replace: false,
                make_path: has(OpenOptions::MKPATH) || (has(OpenOptions::ASYNC) && creates),
                existing_parent: None,
                counts_as_reader: creates && (read || !(writes || appends)),
                force: has(OpenOptions::FORCE),
                posc: has(OpenOptions::POSC),
                is_copy: false,
                stat: wants_stat(m),
                asks_write: writes,
                no_wait: has(OpenOptions::NOWAIT),
                refresh: has(OpenOptions::REFRESH),
                replica: has(OpenOptions::REPLICA),
                sequential: has(OpenOptions::SEQIO),
                direct: m.optiont.contains(OpenTemplateOptions::DIRECTIO),
                mode: u32::from(m.mode & MODE_BITS),
                duplicate_of,
                same_file_system_as,
            }),
        ))
    }

    /// Returns the file to clone, and the file on whose file system the new one is placed.
    #[expect(clippy::type_complexity, reason = "two optional files")]
    fn templates(
        &self,
        m: &Open<'_>,
        creates: bool,
    ) -> Result<(Option<Arc<dyn OpenFile>>, Option<Arc<dyn OpenFile>>), Error> {
        let dup = m.optiont.contains(OpenTemplateOptions::DUP);
        let same = m.optiont.contains(OpenTemplateOptions::SAMEFS);
        if !dup && !same {
            return Ok((None, None));
        }
        if !m.options.contains(OpenOptions::NEW) || !creates {
            let text = "file must be opened as a new file in order to colocate";
            return Err(Error::new(ErrorKind::ArgInvalid, text));
        }
        let writes =
            m.options.intersects(OpenOptions::UPDT.with(OpenOptions::WRTO).with(OpenOptions::DELETE));
        if dup && (!writes || m.options.contains(OpenOptions::READ)) {
            return Err(Error::new(ErrorKind::ArgInvalid, "cloned file is not being opened R/W"));
        }
        let Some((_, file)) = self.work.open_file(m.fhtemplt) else {
            return Err(Error::new(ErrorKind::FileNotOpen, "open does not refer to an open template file"));
        };
        let file = file.clone();
        Ok((dup.then(|| file.clone()), Some(file)))
    }

    fn has_no_prepare_left(&self) -> bool {
        self.client.settings.prepares_max.is_some_and(|most| *self.prepares as usize > most)
    }

    fn prepare(&mut self, m: &Prepare<'_>) -> Result<Operation, Error> {
        let has = |bit| m.options.contains(bit);
        if has(PrepareOptions::CANCEL) {
            let id = m.paths.split(|&b| b == b'\n' || b == 0).next().unwrap_or_default();
            if id.is_empty() {
                return Err(Error::new(ErrorKind::ArgMissing, "Prepare requestid not specified"));
            }
            return Ok(Operation::CancelPrepare { id: id.to_vec() });
        }
        *self.prepares = self.prepares.saturating_add(1);
        if self.has_no_prepare_left() {
            return Err(Error::new(ErrorKind::OverQuota, "Surpassed this connection's prepare limit."));
        }
        let Some(list) = targets(m.paths, Verb::PREPARE)? else {
            return Err(Error::new(ErrorKind::ArgMissing, "No prepare paths specified"));
        };
        let evict = m.optionx.contains(PrepareOptionsX::EVICT);
        let request = PrepareRequest {
            // Evict clears the other options.
            stage: has(PrepareOptions::STAGE) && !evict,
            write: has(PrepareOptions::WMODE) && !evict,
            colocate: has(PrepareOptions::COLOC) && !evict,
            fresh: has(PrepareOptions::FRESH) && !evict,
            evict,
            notify: (has(PrepareOptions::NOTIFY) && m.port != 0).then_some(PrepareNotice {
                port: m.port,
                by_tcp: has(PrepareOptions::USETCP),
                on_failure: !has(PrepareOptions::NOERRS),
            }),
            priority: m.prty.min(3),
        };
        Ok(Operation::Prepare(request, list))
    }
}

fn wants_stat(m: &Open<'_>) -> bool {
    m.options.contains(OpenOptions::RETSTAT) || m.optiont.contains(OpenTemplateOptions::RETSTATX)
}

fn list_detail(m: &Dirlist<'_>) -> ListDetail {
    let checksum = m.options.contains(DirlistOptions::DCKSM);
    ListDetail {
        stat: checksum || m.options.contains(DirlistOptions::DSTAT),
        checksum,
        online: m.options.contains(DirlistOptions::ONLINE),
    }
}

fn locate(m: &Locate<'_>) -> Result<Operation, Error> {
    let has = |bit| m.options.contains(bit);
    let path = m.path.split(|&b| b == 0).next().unwrap_or_default();
    let options = LocateOptions {
        refresh: has(Locating::REFRESH),
        prefer_name: has(Locating::PREFNAME),
        no_wait: has(Locating::NOWAIT),
        for_listing: has(Locating::FOR_DIRLIST),
        unique: has(Locating::COMPRESS),
        exporting: path.len() > 1 && path.starts_with(b"*"),
        all_networks: has(Locating::FORCE),
    };
    // `*` means all servers, `*path` all servers that have the path. A standalone server is the
    // only one.
    let place = match path {
        b"*" => None,
        path => Some(target(path.strip_prefix(b"*").unwrap_or(path), Verb::LOCATE)?),
    };
    Ok(Operation::Locate(place, options))
}

fn rename(m: &Mv<'_>) -> Result<Operation, Error> {
    let (old, new) = m.paths().map_err(|error| match error {
        wire::error::WireError::Short { .. } => {
            Error::new(ErrorKind::ArgMissing, "new path specification missing")
        }
        _ => Error::new(ErrorKind::ArgInvalid, "invalid path specification"),
    })?;
    Ok(Operation::rename(target(old, Verb::RENAME)?, target(new, Verb::RENAME_TO)?))
}

fn kinds(m: &Statx<'_>) -> Result<Operation, Error> {
    let list = targets(m.paths, Verb::STAT)?;
    let missing = || Error::new(ErrorKind::ArgMissing, "Required argument not present");
    Ok(Operation::StatMany(list.ok_or_else(missing)?))
}
