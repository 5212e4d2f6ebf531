//! Copies extended attributes from the source to the target.
//!
//! On this machine they are the attributes in the namespace `user.`; servers use the names without
//! that prefix, so this file translates between both.

use std::path::{Path, PathBuf};

use rustix::fs::XattrFlags;

use super::Copier;
use super::failure::CopyError;
use super::place::Place;
use super::source::{SourceKind, SourceReader};
use crate::url::Url;

/// Namespace of user attributes on this machine.
const PREFIX: &str = "user.";
/// Maximum size of a value that the system accepts.
const VALUE_BYTES_MAX: usize = 64 * 1024;
/// Maximum size of a list of names.
const LIST_BYTES_MAX: usize = 64 * 1024;

/// Names and values.
pub(super) type Attributes = Vec<(String, Vec<u8>)>;

/// Returns the attributes of a source.
pub(super) async fn of_source(copier: &Copier, source: &SourceReader) -> Result<Attributes, CopyError> {
    match (&source.from, &source.place) {
        (SourceKind::Stored(..) | SourceKind::Inflated(_) | SourceKind::Stream(_), _) => Ok(Vec::new()),
        (SourceKind::Local(_) | SourceKind::Memory(_), Place::Local(path)) => {
            let path = path.clone();
            let read = copier.disk.run(move || read(&path)).await;
            read.unwrap_or(Err(CopyError::Cancelled))
        }
        _ => {
            let Some(url) = source.location() else { return Ok(Vec::new()) };
            let listed = copier.client.file_system(&url).list_attributes(&url.path).await;
            let listed = listed.map_err(CopyError::source)?;
            Ok(listed.into_iter().map(|attribute| (attribute.name, attribute.value)).collect())
        }
    }
}

/// Sets the attributes of a complete target; `at` is its location at a server.
pub(super) async fn set(
    copier: &Copier,
    target: &Place,
    at: Option<&Url>,
    attributes: Attributes,
) -> Result<(), CopyError> {
    if attributes.is_empty() {
        return Ok(());
    }
    match (target, at) {
        (Place::Local(path), _) => {
            let path = path.clone();
            let written = copier.disk.run(move || write(&path, &attributes)).await;
            written.unwrap_or(Err(CopyError::Cancelled))
        }
        (_, Some(url)) => {
            let pairs: Vec<(&str, &[u8])> =
                attributes.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
            let set = copier.client.file_system(url).set_attributes(&url.path, &pairs, false).await;
            set.map_err(CopyError::target)
        }
        _ => Ok(()),
    }
}

fn read(path: &Path) -> Result<Attributes, CopyError> {
    let fail = |error: rustix::io::Errno| CopyError::local("read the attributes of", path, &error.into());
    let mut list = vec![0_u8; LIST_BYTES_MAX];
    let length = match rustix::fs::listxattr(path, &mut list) {
        Ok(length) => length,
        // The file system does not support attributes.
        Err(rustix::io::Errno::NOTSUP) => return Ok(Vec::new()),
        Err(error) => return Err(fail(error)),
    };
    let names = list.get(..length).unwrap_or_default().split(|byte| *byte == 0);
    let mut found = Vec::new();
    for name in names.filter_map(|name| std::str::from_utf8(name).ok()) {
        let Some(bare) = name.strip_prefix(PREFIX) else { continue };
        let mut value = vec![0_u8; VALUE_BYTES_MAX];
        let length = rustix::fs::getxattr(path, name, &mut value).map_err(fail)?;
        value.truncate(length);
        found.push((bare.to_owned(), value));
    }
    Ok(found)
}

fn write(path: &PathBuf, attributes: &Attributes) -> Result<(), CopyError> {
    for (name, value) in attributes {
        let set = rustix::fs::setxattr(path, format!("{PREFIX}{name}"), value, XattrFlags::empty());
        set.map_err(|error| CopyError::local("set the attributes of", path, &error.into()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_of_users_are_read_and_written() {
        let directory = std::env::temp_dir().join(format!("attributes-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (one, other) = (directory.join("one"), directory.join("other"));
        std::fs::write(&one, b"").unwrap();
        std::fs::write(&other, b"").unwrap();
        let mut attributes = vec![("a".to_owned(), b"1".to_vec()), ("U.b".to_owned(), vec![0, 255])];
        // Some file systems do not support attributes.
        if write(&one, &attributes).is_ok() {
            write(&other, &read(&one).unwrap()).unwrap();
            let mut found = read(&other).unwrap();
            found.sort();
            attributes.sort();
            assert_eq!(found, attributes);
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
