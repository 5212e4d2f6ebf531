//! `query`, `xattr` and `cache`.

use super::session::{ResolvedPath, XrdfsSession};
use crate::printer::{OutputText, out};
use crate::xrootd_compat::{INVALID_ARGUMENTS, XrdClStatus};
use client::Error;
use client::xroot::ErrorCode;
use client::xroot::codes::QueryType;

/// The codes, and whether several arguments are joined.
const CODES: [(&str, QueryType, bool); 9] = [
    ("config", QueryType::CONFIG, true),
    ("checksumcancel", QueryType::CKSCAN, false),
    ("checksum", QueryType::CKSUM, true),
    ("opaque", QueryType::OPAQUE, false),
    ("opaquefile", QueryType::OPAQUF, false),
    ("space", QueryType::SPACE, false),
    ("stats", QueryType::STATS, false),
    ("xattr", QueryType::XATTR, false),
    ("prepare", QueryType::PREP, true),
];

pub(super) fn query(shell: &mut XrdfsSession, arguments: &[&str]) -> Result<(), XrdClStatus> {
    let Some((name, words)) = arguments.split_first() else { return Err(INVALID_ARGUMENTS) };
    let &(_, infotype, several) = CODES.iter().find(|(code, ..)| code == name).ok_or(INVALID_ARGUMENTS)?;
    if words.is_empty() || (words.len() > 1 && !several) {
        return Err(INVALID_ARGUMENTS);
    }
    let answer = shell.wait(shell.fs.query(infotype, &words.join("\n")))?;
    let text = answer.split(|byte| *byte == 0).next().unwrap_or_default();
    out().lines(format_args!("{}\n", String::from_utf8_lossy(text)));
    Ok(())
}

pub(super) fn xattr(shell: &mut XrdfsSession, arguments: &[&str]) -> Result<(), XrdClStatus> {
    let Some((path, words)) = arguments.split_first() else { return Err(INVALID_ARGUMENTS) };
    let ResolvedPath { fs, path, shown: named } = shell.target(path)?;
    match words {
        ["set", attribute] => {
            let (name, value) = attribute.split_once('=').unwrap_or((attribute, ""));
            attribute_result(shell.runtime.wait(fs.set_attributes(&path, &[(name, value.as_bytes())], false)))
        }
        ["get", name] => {
            let mut values = attribute_result(shell.runtime.wait(fs.attribute_values(&path, &[name])))?;
            let value = values.pop().and_then(|(_, value)| value);
            let missing = || XrdClStatus::response(ErrorCode::ATTR_NOT_FOUND, "");
            out().put(&shown(&named, [(*name, value.ok_or_else(missing)?.as_slice())]));
            Ok(())
        }
        ["del", name] => attribute_result(shell.runtime.wait(fs.remove_attributes(&path, &[name]))),
        ["list"] => {
            let attributes = shell.wait(fs.list_attributes(&path))?;
            let pairs = attributes.iter().map(|found| (found.name.as_str(), found.value.as_slice()));
            out().put(&shown(&named, pairs));
            Ok(())
        }
        _ => Err(INVALID_ARGUMENTS),
    }
}

/// Converts a result. For a single attribute, the error has only a code.
fn attribute_result<T>(result: Result<T, Error>) -> Result<T, XrdClStatus> {
    result.map_err(|error| {
        let of_one =
            matches!(error.cause(), client::Cause::Server { text, .. } if text.starts_with("attribute "));
        let status = XrdClStatus::from(error);
        if of_one { status.without_message() } else { status }
    })
}

fn shown<'a>(path: &str, attributes: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> OutputText {
    let mut text = out().text();
    text.add(format_args!("# file: {path}")).literal("\n");
    for (name, value) in attributes {
        text.add(format_args!("{name}=\"{}\"", String::from_utf8_lossy(value))).literal("\n");
    }
    text
}

pub(super) fn cache(shell: &mut XrdfsSession, arguments: &[&str]) -> Result<(), XrdClStatus> {
    let &[what @ ("evict" | "fevict"), path] = arguments else { return Err(INVALID_ARGUMENTS) };
    let path = shell.path(path)?;
    shell.wait(shell.fs.set(&format!("cache {what} {path}"))).map(|_| ())
}
