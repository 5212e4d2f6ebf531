//! User attributes of files and directories.
//!
//! They are stored below the prefix `user.U.`, which clients never see. All other extended
//! attributes (stored checksums, attributes of other programs) are invisible and inaccessible, so
//! that a client cannot forge them.

use crate::config::AttributeLimits;
use crate::errno;
use crate::exports::ExportTable;
use crate::job::{done, on_pool};
use base::{Error, ErrorKind, LogicalPath};
use std::io;
use std::sync::Arc;
use storage::{Backend, StoredFile};
use vfs::{AttributeOutcome, AttributeWork, ReplyTo, Started, Target, Value};

/// Prefix of the stored name of a user attribute.
const PREFIX: &str = storage::CLIENT_ATTRIBUTE_PREFIX;

/// Access to the attributes of one object, by path or by open file.
trait AttributeTarget {
    fn get(&self, name: &str) -> io::Result<Option<Vec<u8>>>;
    fn set(&self, name: &str, value: &[u8], new: bool) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
    fn names(&self) -> io::Result<Vec<String>>;
}

struct ByPath<'a>(&'a dyn Backend, LogicalPath);

impl AttributeTarget for ByPath<'_> {
    fn get(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.0.attribute(&self.1, name)
    }
    fn set(&self, name: &str, value: &[u8], new: bool) -> io::Result<()> {
        self.0.set_attribute(&self.1, name, value, new)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove_attribute(&self.1, name)
    }
    fn names(&self) -> io::Result<Vec<String>> {
        self.0.attributes(&self.1)
    }
}

struct ByFile<'a>(&'a dyn StoredFile);

impl AttributeTarget for ByFile<'_> {
    fn get(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.0.attribute(name)
    }
    fn set(&self, name: &str, value: &[u8], new: bool) -> io::Result<()> {
        self.0.set_attribute(name, value, new)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove_attribute(name)
    }
    fn names(&self) -> io::Result<Vec<String>> {
        self.0.attributes()
    }
}

/// Returns the name of the operation in error texts.
fn verb(work: &AttributeWork) -> &'static str {
    match work {
        AttributeWork::Get(_) => "get fattr",
        AttributeWork::Set { .. } => "set fattr",
        AttributeWork::Remove(_) => "del fattr",
        AttributeWork::List { .. } => "list fattrs",
    }
}

fn modifies(work: &AttributeWork) -> bool {
    matches!(work, AttributeWork::Set { .. } | AttributeWork::Remove(_))
}

/// Serves requests for attributes by path.
pub(crate) struct AttributeRequests {
    pub(crate) limits: AttributeLimits,
    pub(crate) exports: Arc<ExportTable>,
    pub(crate) backend: Arc<dyn Backend>,
}

/// Starts a request for attributes by path.
pub(crate) fn start(
    attributes: &Arc<AttributeRequests>,
    target: Target,
    work: AttributeWork,
    reply: &ReplyTo,
) -> Started {
    let checked = check_limits(attributes.limits, &work).and_then(|()| {
        if modifies(&work) {
            attributes.exports.find_writable(&target.path, "Modifying file attributes", verb(&work))
        } else {
            attributes.exports.find(&target.path, "Inspecting file attributes")
        }
    });
    if let Err(error) = checked {
        return done(Err(error));
    }
    on_pool(&attributes.backend, attributes, target, reply, move |attributes, target| {
        let place = ByPath(attributes.backend.as_ref(), target.path.clone());
        run(&place, &target.path, work)
    })
}

/// Checks whether an open file permits this request.
pub(crate) fn check_handle(
    limits: AttributeLimits,
    writable: bool,
    work: &AttributeWork,
) -> Result<(), Error> {
    if modifies(work) && !writable {
        let text = "fattr request modifies a file open for reading";
        return Err(Error::new(ErrorKind::InvalidRequest, text));
    }
    check_limits(limits, work)
}

/// Serves a request for the attributes of an open file.
pub(crate) fn on_file(
    file: &dyn StoredFile,
    path: &LogicalPath,
    work: AttributeWork,
) -> Result<Value, Error> {
    run(&ByFile(file), path, work)
}

fn check_limits(limits: AttributeLimits, work: &AttributeWork) -> Result<(), Error> {
    if !limits.enabled {
        return Err(Error::new(ErrorKind::Unsupported, "fattr request is not supported"));
    }
    let (names, values): (Vec<&[u8]>, Vec<&[u8]>) = match work {
        AttributeWork::Get(names) | AttributeWork::Remove(names) => {
            (names.iter().map(Vec::as_slice).collect(), Vec::new())
        }
        AttributeWork::Set { pairs, .. } => {
            pairs.iter().map(|(name, value)| (name.as_slice(), value.as_slice())).unzip()
        }
        AttributeWork::List { .. } => (Vec::new(), Vec::new()),
    };
    for (at, name) in names.iter().enumerate() {
        if name.is_empty() {
            return Err(complaint(ErrorKind::ArgMissing, "Missing argument", "name", at));
        }
        if name.len() > limits.name_bytes_max {
            return Err(complaint(ErrorKind::ArgTooLong, "Argument is too long", "name", at));
        }
    }
    match values.iter().position(|value| value.len() > limits.value_bytes_max) {
        Some(at) => Err(complaint(ErrorKind::ArgTooLong, "Argument is too long", "data", at)),
        None => Ok(()),
    }
}

fn complaint(kind: ErrorKind, what: &str, part: &str, at: usize) -> Error {
    Error::new(kind, format!("{what} processing fattr {part} argument #{}", at + 1))
}

fn run(place: &dyn AttributeTarget, path: &LogicalPath, work: AttributeWork) -> Result<Value, Error> {
    let results = match work {
        AttributeWork::Get(names) => names.into_iter().map(|name| get(place, name)).collect(),
        AttributeWork::Set { pairs, new } => pairs
            .into_iter()
            .map(|(name, value)| with_name(name, |full| place.set(full, &value, new).map(|()| Vec::new())))
            .collect(),
        AttributeWork::Remove(names) => names
            .into_iter()
            .map(|name| with_name(name, |full| place.remove(full).map(|()| Vec::new())))
            .collect(),
        AttributeWork::List { values } => {
            list(place, values).map_err(|e| Error::unable("list fattrs", path, e))?
        }
    };
    Ok(Value::Attributes(results))
}

fn get(place: &dyn AttributeTarget, name: Vec<u8>) -> AttributeOutcome {
    with_name(name, |full| place.get(full)?.ok_or_else(|| io::Error::from_raw_os_error(errno::NO_DATA)))
}

/// Runs an operation on one attribute and returns its result or error.
fn with_name(name: Vec<u8>, act: impl FnOnce(&str) -> io::Result<Vec<u8>>) -> AttributeOutcome {
    let result = match std::str::from_utf8(&name) {
        Ok(text) => act(&format!("{PREFIX}{text}")),
        Err(_) => Err(io::Error::from_raw_os_error(errno::INVALID)),
    };
    match result {
        Ok(value) => AttributeOutcome { name, error: None, value },
        Err(error) => AttributeOutcome { name, error: Some(ErrorKind::from_io(&error)), value: Vec::new() },
    }
}

fn list(place: &dyn AttributeTarget, values: bool) -> io::Result<Vec<AttributeOutcome>> {
    let mut results = Vec::new();
    for full in place.names()? {
        let Some(name) = full.strip_prefix(PREFIX).filter(|name| !name.is_empty()) else { continue };
        let value = if values {
            match place.get(&full)? {
                Some(value) => value,
                None => continue, // removed meanwhile
            }
        } else {
            Vec::new()
        };
        results.push(AttributeOutcome { name: name.as_bytes().to_vec(), error: None, value });
    }
    Ok(results)
}
