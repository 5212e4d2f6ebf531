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
use crate::file::File;
use crate::filesystem::FileSystem;
use crate::path::RequestTarget;

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

impl FileSystem {
    async fn attributes<T>(
        &self,
        name: &'static str,
        path: &str,
        repeatable: bool,
        ask: &AttributeRequest<'_>,
        parse: impl Fn(&[u8]) -> Result<T, Cause>,
    ) -> Result<T, Error> {
        let request = |url: &crate::Url, _: bool| ask.request(FileHandle::default(), &url.target());
        let arrived = self.ask(name, path, repeatable, request).await?;
        self.parsed(name, path, &arrived, parse)
    }

    /// Returns the values of extended attributes of a path, in the order of the names; `None` for a
    /// missing one.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn attribute_values(&self, path: &str, names: &[&str]) -> Result<Vec<NamedValue>, Error> {
        let mut all = Vec::new();
        for some in names.chunks(FATTR_ATTRIBUTES_MAX) {
            all.extend(self.attributes("xattr get", path, true, &AttributeRequest::get(some), values).await?);
        }
        Ok(all)
    }

    /// Sets extended attributes of a path; with `only_new` only those that do not exist.
    ///
    /// # Errors
    /// [`Error`] of the first attribute that could not be set; others may be set.
    pub async fn set_attributes(
        &self,
        path: &str,
        attributes: &[(&str, &[u8])],
        only_new: bool,
    ) -> Result<(), Error> {
        for some in attributes.chunks(FATTR_ATTRIBUTES_MAX) {
            let ask = AttributeRequest::set(some, only_new);
            self.attributes("xattr set", path, !only_new, &ask, all_done).await?;
        }
        Ok(())
    }

    /// Removes extended attributes of a path.
    ///
    /// # Errors
    /// [`Error`] of the first attribute that could not be removed; others may be removed.
    pub async fn remove_attributes(&self, path: &str, names: &[&str]) -> Result<(), Error> {
        for some in names.chunks(FATTR_ATTRIBUTES_MAX) {
            self.attributes("xattr del", path, false, &AttributeRequest::del(some), all_done).await?;
        }
        Ok(())
    }

    /// Returns all extended attributes of a path.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn list_attributes(&self, path: &str) -> Result<Vec<Attribute>, Error> {
        self.attributes("xattr list", path, true, &AttributeRequest::list(), listed).await
    }
}

impl File {
    async fn attributes<T>(
        &self,
        name: &'static str,
        repeatable: bool,
        ask: &AttributeRequest<'_>,
        parse: impl Fn(&[u8]) -> Result<T, Cause>,
    ) -> Result<T, Error> {
        let request = |fhandle| ask.request(fhandle, &RequestTarget::new(""));
        let received = self.ask(name, repeatable, Bytes::new(), request).await?;
        parse(&received.body).map_err(|cause| self.error(name, cause))
    }

    /// Works as [`FileSystem::attribute_values`].
    ///
    /// # Errors
    /// [`Error`].
    pub async fn attribute_values(&self, names: &[&str]) -> Result<Vec<NamedValue>, Error> {
        let mut all = Vec::new();
        for some in names.chunks(FATTR_ATTRIBUTES_MAX) {
            all.extend(self.attributes("xattr get", true, &AttributeRequest::get(some), values).await?);
        }
        Ok(all)
    }

    /// Works as [`FileSystem::set_attributes`].
    ///
    /// # Errors
    /// [`Error`].
    pub async fn set_attributes(&self, attributes: &[(&str, &[u8])], only_new: bool) -> Result<(), Error> {
        for some in attributes.chunks(FATTR_ATTRIBUTES_MAX) {
            self.attributes("xattr set", !only_new, &AttributeRequest::set(some, only_new), all_done).await?;
        }
        Ok(())
    }

    /// Works as [`FileSystem::remove_attributes`].
    ///
    /// # Errors
    /// [`Error`].
    pub async fn remove_attributes(&self, names: &[&str]) -> Result<(), Error> {
        for some in names.chunks(FATTR_ATTRIBUTES_MAX) {
            self.attributes("xattr del", false, &AttributeRequest::del(some), all_done).await?;
        }
        Ok(())
    }

    /// Works as [`FileSystem::list_attributes`].
    ///
    /// # Errors
    /// [`Error`].
    pub async fn list_attributes(&self) -> Result<Vec<Attribute>, Error> {
        self.attributes("xattr list", true, &AttributeRequest::list(), listed).await
    }
}
