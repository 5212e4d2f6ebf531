//! Queries about files and space: locate, space, and the attribute line of a file.
//!
//! They are separate from `stat` because in a cluster the locations come from a [`Locator`], and
//! space from the whole file system.

use crate::config::OwnAddress;
use crate::describe;
use crate::errno::{self, unable};
use crate::exports::ExportTable;
use crate::job::{done, on_pool};
use crate::lookup::{metadata, metadata_now};
use base::{Cgi, Error, ErrorKind, LogicalPath};
use std::sync::Arc;
use storage::{Backend, SpaceUsage};
use vfs::{
    Answer, Caller, FileKind, LocateOptions, RedirectAnswer, ReplyTo, SpaceFigures, Started, Target, Value,
};

/// Query code of the file system information query, whose argument is a plain path.
const QUERY_FSINFO: u16 = 10;
/// Query code of the opaque query with a path.
const QUERY_OPAQUE_FILE: u16 = 32;

/// The result of locating a file in the cluster.
pub enum LocateOutcome {
    /// On this server, which answers itself.
    Here,
    /// At another server, to which the client is redirected.
    There(RedirectAnswer),
    /// The text of the reply.
    Known(Vec<u8>),
    /// Not known yet; the client retries after this number of seconds.
    Wait(u32),
    /// No server has the file.
    Nowhere,
}

/// The source of file locations in a cluster. A stand-alone server has none.
pub trait Locator: Send + Sync {
    /// Locates `path` (all servers for `None`). Answers from memory and never blocks.
    fn locate(&self, caller: &Caller, path: Option<&LogicalPath>, options: LocateOptions) -> LocateOutcome;
}

/// The components that queries use.
pub(crate) struct QueryServices {
    pub(crate) exports: Arc<ExportTable>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) locator: Option<Arc<dyn Locator>>,
    pub(crate) own_address: OwnAddress,
}

impl QueryServices {
    /// Returns the components for another view of the storage.
    pub(crate) fn with_backend(&self, backend: Arc<dyn Backend>) -> Self {
        let (exports, locator) = (self.exports.clone(), self.locator.clone());
        Self { exports, backend, locator, own_address: self.own_address.clone() }
    }
}

/// Locates a file. A stand-alone server returns its own address for a path that exists.
pub(crate) fn locate(
    inquiries: &Arc<QueryServices>,
    caller: &Arc<Caller>,
    target: Option<Target>,
    options: LocateOptions,
    reply: &ReplyTo,
) -> Started {
    if let Some(target) = &target
        && let Err(error) = inquiries.exports.find(&target.path, "Locating")
    {
        return done(Err(error));
    }
    if let Some(locator) = &inquiries.locator {
        match locator.locate(caller, target.as_ref().map(|target| &target.path), options) {
            LocateOutcome::Here => {}
            LocateOutcome::There(redirect) => return Started::Done(Answer::Redirect(redirect)),
            LocateOutcome::Known(text) => return done(Ok(Value::Text(text))),
            LocateOutcome::Wait(seconds) => {
                return Started::Done(Answer::Wait { seconds, text: String::new() });
            }
            LocateOutcome::Nowhere => {
                let path = target.map_or_else(LogicalPath::root, |target| target.path);
                return done(Err(unable("locate", &path, errno::NOT_FOUND)));
            }
        }
    }
    let Some(target) = target else { return done(Ok(own_text(inquiries, true, options))) };
    match metadata_now(inquiries.backend.as_ref(), &target.path, "locate") {
        Some(result) => done(result.and_then(|_| located(inquiries, &target.path, options))),
        None => on_pool(&inquiries.backend, inquiries, target, reply, move |inquiries, target| {
            metadata(inquiries.backend.as_ref(), &target.path, "locate")?;
            located(inquiries, &target.path, options)
        }),
    }
}

fn located(inquiries: &QueryServices, path: &LogicalPath, options: LocateOptions) -> Result<Value, Error> {
    let writable = !inquiries.exports.find(path, "Locating")?.is_read_only();
    Ok(own_text(inquiries, writable, options))
}

fn own_text(inquiries: &QueryServices, writable: bool, options: LocateOptions) -> Value {
    let own = &inquiries.own_address;
    let address = if options.prefer_name { &own.name } else { &own.address };
    Value::Text(format!("S{}{address}", if writable { 'w' } else { 'r' }).into_bytes())
}

/// Returns the usage of the file system where `path` is or would be stored; may block.
fn usage(inquiries: &QueryServices, path: &LogicalPath, space: Option<&str>) -> Result<SpaceUsage, Error> {
    let mut at = path.without_slash();
    loop {
        match inquiries.backend.usage(&at, space) {
            Ok(usage) => return Ok(usage),
            // A path that does not exist would be stored where its parent is.
            Err(error) if storage::is_missing(&error) => match at.parent() {
                Some(parent) => at = parent,
                None => return Err(Error::unable("statfs", path, error)),
            },
            Err(error) => return Err(Error::unable("statfs", path, error)),
        }
    }
}

fn figures(usage: &SpaceUsage) -> SpaceFigures {
    SpaceFigures {
        writable_nodes: 1,
        staging_nodes: 0,
        total: usage.total,
        free: usage.free,
        largest_free: usage.largest_free,
        used: usage.used.unwrap_or(usage.total.saturating_sub(usage.free)),
        quota: usage.quota,
    }
}

/// Returns the space for new files in the format of a file system status.
pub(crate) fn stat_space(inquiries: &Arc<QueryServices>, target: Target, reply: &ReplyTo) -> Started {
    let export = match inquiries.exports.find(&target.path, "Stating") {
        Ok(export) => export,
        Err(error) => return done(Err(error)),
    };
    // A read-only export has no space for new files.
    if export.is_read_only() {
        return done(Ok(Value::Space(SpaceFigures::default())));
    }
    on_pool(&inquiries.backend, inquiries, target, reply, |inquiries, target| {
        let usage = usage(inquiries, &target.path, target.cgi.text("oss.cgroup"))?;
        Ok(Value::Space(figures(&usage)))
    })
}

/// Answers `query space`.
pub(crate) fn query_space(inquiries: &Arc<QueryServices>, target: Target, reply: &ReplyTo) -> Started {
    if let Err(error) = inquiries.exports.find(&target.path, "Stating") {
        return done(Err(error));
    }
    on_pool(&inquiries.backend, inquiries, target, reply, |inquiries, target| {
        let asked = target.cgi.text("oss.cgroup").filter(|name| !name.is_empty());
        let usage = usage(inquiries, &target.path, asked)?;
        let name = asked.map_or_else(|| inquiries.backend.space_of(&target.path), str::to_owned);
        Ok(Value::Text(figures(&usage).query_text(&name).into_bytes()))
    })
}

/// Answers `query xattr`: the metadata of a file in one line.
pub(crate) fn query_attributes(inquiries: &Arc<QueryServices>, target: Target, reply: &ReplyTo) -> Started {
    if let Err(error) = inquiries.exports.find(&target.path, "Stating") {
        return done(Err(error));
    }
    on_pool(&inquiries.backend, inquiries, target, reply, |inquiries, target| {
        let export = inquiries.exports.find(&target.path, "Stating")?;
        let metadata = metadata(inquiries.backend.as_ref(), &target.path, "statxa")?;
        let kind = match describe::kind(&metadata) {
            FileKind::File => 'f',
            FileKind::Directory => 'd',
            FileKind::Other => 'o',
        };
        let access = if export.is_read_only() { 'r' } else { 'w' };
        let text = format!(
            "oss.cgroup={}&oss.type={kind}&oss.used={}&oss.mt={}&oss.ct={}&oss.at={}&oss.u=*&oss.g=*\
             &oss.fs={access}&ofs.ap=a",
            inquiries.backend.space_of(&target.path.without_slash()),
            metadata.size,
            metadata.modified,
            metadata.changed,
            metadata.accessed,
        );
        Ok(Value::Text(text.into_bytes()))
    })
}

/// Refuses the queries that only plug-ins answer, because this server has none.
pub(crate) fn query_opaque(inquiries: &QueryServices, code: u16, argument: &[u8]) -> Answer {
    let has_path = matches!(code, QUERY_FSINFO | QUERY_OPAQUE_FILE);
    if has_path
        && let Ok(path) = LogicalPath::parse(Cgi::split(argument).0)
        && let Err(error) = inquiries.exports.find(&path, "Querying")
    {
        return Answer::Error(error);
    }
    Answer::error(ErrorKind::Unsupported, "Unable to FSctl ; operation not supported")
}
