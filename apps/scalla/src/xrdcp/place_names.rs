//! Places on the command line, and their names in the output.

use super::failure::XrdcpFailure;
use crate::xrootd_compat::{CopySide, XrdClStatus};
use client::Url;
use client::copy::Place;
use std::path::{Path, PathBuf};

/// Resolves a word. A word that is not a URL of a known kind is a local file.
pub(super) fn named_place(word: &str, target: bool, cgi: &str) -> Result<Place, XrdcpFailure> {
    if word == "-" {
        return Ok(Place::Stream);
    }
    let local = || Ok(Place::Local(word.into()));
    let Some((scheme, rest)) = word.split_once("://") else { return local() };
    match scheme {
        "file" => {
            let path = rest.strip_prefix("localhost").filter(|path| path.starts_with('/')).unwrap_or(rest);
            return Ok(Place::Local(path.into()));
        }
        "root" | "xroot" | "roots" | "xroots" | "http" | "https" | "dav" | "davs" | "s3" => {}
        _ => return local(),
    }
    let side = if target { CopySide::Destination } else { CopySide::Source };
    let url = Url::parse(word).and_then(Url::with_decoded_path);
    let mut url = url.map_err(|_| XrdcpFailure::Status(XrdClStatus::invalid_address().at(side)))?;
    url.merge_cgi(cgi);
    Ok(Place::Remote(url))
}

/// Formats a place as checksum lines do.
pub(super) fn checksum_line_name(place: &Place) -> String {
    match place {
        Place::Local(path) => absolute(path).display().to_string(),
        place => url_text(place, "/"),
    }
}

/// Formats a place as a URL.
pub(super) fn url_text(place: &Place, slashes: &str) -> String {
    match place {
        Place::Local(path) => format!("file://localhost{}", absolute(path).display()),
        Place::Remote(url) => {
            let path = url.path.strip_prefix('/').unwrap_or(&url.path);
            format!("{}://{}{slashes}{path}", url.scheme.name(), url.authority())
        }
        Place::Stream => "stdio://-".to_owned(),
    }
}

/// Returns an absolute path, or the path itself if there is no current directory.
pub(super) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
