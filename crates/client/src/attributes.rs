//! Extended attributes of paths and of open files.
//!
//! Names are without the prefix under which servers keep them. If there are more attributes than
//! one request can carry, several requests are sent. Source: xroot protocol 5.2.0, section 2.8.

use bytes::Bytes;
use rawclient::Encoded;
use wire::xroot::FileHandle;
use wire::xroot::codes::FattrSubcode;
use wire::xroot::flags::FattrOptions;
use wire::xroot::limits::FATTR_ATTRIBUTES_MAX;
use wire::xroot::reply::fattr::{decode_list, decode_results};
use wire::xroot::request::fattr::encode_arguments;
use wire::xroot::request::{Fattr, Request};

use crate::answers::Attribute;
use crate::failure::{Cause, Error};
use crate::file::RecoverableHandle;
use crate::filesystem::FileSystem;
use crate::path::RequestTarget;
use crate::url::Url;

/// Name of an attribute, and its value; `None` if it is missing.
pub type NamedValue = (String, Option<Vec<u8>>);

/// An operation and the attributes to which it applies.
struct AttributeRequest<'a> {
    subcode: FattrSubcode,
    options: FattrOptions,
    names: Vec<&'a [u8]>,
    values: Vec<&'a [u8]>,
}

impl<'a> AttributeRequest<'a> {
    fn get(names: &[&'a str]) -> Self {
        let names = names.iter().map(|name| name.as_bytes()).collect();
        Self { subcode: FattrSubcode::GET, options: FattrOptions::NONE, names, values: Vec::new() }
    }

    fn del(names: &[&'a str]) -> Self {
        Self { subcode: FattrSubcode::DEL, ..Self::get(names) }
    }

    fn set(attributes: &[(&'a str, &'a [u8])], only_new: bool) -> Self {
        Self {
            subcode: FattrSubcode::SET,
            options: if only_new { FattrOptions::IS_NEW } else { FattrOptions::NONE },
            names: attributes.iter().map(|(name, _)| name.as_bytes()).collect(),
            values: attributes.iter().map(|(_, value)| *value).collect(),
        }
    }

    fn list() -> Self {
        Self { subcode: FattrSubcode::LIST, options: FattrOptions::ADATA, ..Self::get(&[]) }
    }

    fn request(&self, fhandle: FileHandle, target: &RequestTarget) -> Encoded {
        let mut payload = Vec::new();
        encode_arguments(&mut payload, target.as_bytes(), &self.names, &self.values);
        Encoded::new(&Request::Fattr(Fattr {
            fhandle,
            subcode: self.subcode,
            // Callers split their lists.
            numattr: u8::try_from(self.names.len()).unwrap_or(u8::MAX),
            options: self.options,
            payload: &payload,
        }))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Decodes the attributes in the reply to get. A missing attribute has no value.
fn values(body: &[u8]) -> Result<Vec<NamedValue>, Cause> {
    let mut found = Vec::new();
    for result in decode_results(body, true)? {
        let value = match result.error {
            None => Some(result.value.to_vec()),
            Some(wire::xroot::ErrorCode::ATTR_NOT_FOUND) => None,
            Some(code) => {
                return Err(Cause::Server { code, text: format!("attribute {}", text(result.name)) });
            }
        };
        found.push((text(result.name), value));
    }
    Ok(found)
}

/// Checks that the reply to set or delete contains no error.
fn all_done(body: &[u8]) -> Result<(), Cause> {
    for result in decode_results(body, false)? {
        if let Some(code) = result.error {
            return Err(Cause::Server { code, text: format!("attribute {}", text(result.name)) });
        }
    }
    Ok(())
}

fn listed(body: &[u8]) -> Result<Vec<Attribute>, Cause> {
    let attribute = |found: &wire::xroot::reply::fattr::ListedAttribute<'_>| Attribute {
        name: text(found.name),
        value: found.value.unwrap_or_default().to_vec(),
    };
    Ok(decode_list(body, true)?.iter().map(attribute).collect())
}

/// The object whose attributes are accessed.
pub(crate) enum AttributeOwner<'a> {
    /// A path of a file system.
    Path(&'a FileSystem, &'a str),
    /// An open file.
    File(&'a RecoverableHandle),
}

impl AttributeOwner<'_> {
    /// Sends one request and decodes the reply.
    async fn send<T>(
        &self,
        name: &'static str,
        repeatable: bool,
        ask: &AttributeRequest<'_>,
        parse: impl Fn(&[u8]) -> Result<T, Cause>,
    ) -> Result<T, Error> {
        match *self {
            Self::Path(files, path) => {
                let request = |url: &Url, _: bool| ask.request(FileHandle::default(), &url.target());
                let arrived = files.ask(name, path, repeatable, request).await?;
                files.parsed(name, path, &arrived, parse)
            }
            Self::File(handle) => {
                let request = |fhandle| ask.request(fhandle, &RequestTarget::new(""));
                let received = handle.ask(name, repeatable, Bytes::new(), request).await?;
                parse(&received.body).map_err(|cause| handle.error(name, cause))
            }
        }
    }

    /// Returns the values of attributes, in the order of the names; `None` for a missing one.
    pub(crate) async fn values(&self, names: &[&str]) -> Result<Vec<NamedValue>, Error> {
        let mut all = Vec::new();
        for some in names.chunks(FATTR_ATTRIBUTES_MAX) {
            all.extend(self.send("xattr get", true, &AttributeRequest::get(some), values).await?);
        }
        Ok(all)
    }

    /// Sets attributes; with `only_new` only those that do not exist.
    pub(crate) async fn set(&self, attributes: &[(&str, &[u8])], only_new: bool) -> Result<(), Error> {
        for some in attributes.chunks(FATTR_ATTRIBUTES_MAX) {
            self.send("xattr set", !only_new, &AttributeRequest::set(some, only_new), all_done).await?;
        }
        Ok(())
    }

    /// Removes attributes.
    pub(crate) async fn remove(&self, names: &[&str]) -> Result<(), Error> {
        for some in names.chunks(FATTR_ATTRIBUTES_MAX) {
            self.send("xattr del", false, &AttributeRequest::del(some), all_done).await?;
        }
        Ok(())
    }

    /// Returns all attributes.
    pub(crate) async fn list(&self) -> Result<Vec<Attribute>, Error> {
        self.send("xattr list", true, &AttributeRequest::list(), listed).await
    }
}
