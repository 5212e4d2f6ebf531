//! Listings of directories: PROPFIND, and pages for browsers.
//!
//! The first page of the file system is read before the reply, so that its errors have a status. The
//! others are read while the reply is sent, so that a large directory takes no more memory than a
//! small one.

use crate::call::CallFailure;
use crate::config::ListingPolicy;
use crate::reply::{self, ReplyBody, RequestRefusal, RequestReply};
use crate::served_connection::ServedConnection;
use crate::service::RequestContext;
use crate::text::{append_url_path, append_xml, http_date};
use crate::{IGNORED_BODY_BYTES_MAX, STALL_TIME_MAX};
use base::LogicalPath;
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::StatusCode;
use hyper::body::Incoming;
use hyper::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, LOCATION};
use std::fmt::Write;
use std::io;
use std::sync::Arc;
use tokio::sync::mpsc;
use vfs::{Caller, DirectoryEntries, FileKind, FileStat, ListDetail, ListingPosition, Operation, Value};

const DEPTH: HeaderName = HeaderName::from_static("depth");

/// Bytes of a listing that are sent together.
const PART_BYTES: usize = 64 * 1024;

/// The form of a listing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ListingForm {
    /// The properties of WebDAV.
    Properties,
    /// A page for browsers.
    Page,
}

/// A page of the file system.
struct DirectoryPage {
    entries: DirectoryEntries,
    rest: Option<Box<dyn ListingPosition>>,
}

impl DirectoryPage {
    fn of(value: Value) -> Result<Self, CallFailure> {
        match value {
            Value::Listing { entries, rest } => Ok(Self { entries, rest }),
            _ => Err(CallFailure::new(base::ErrorKind::ServerError, "there is no listing")),
        }
    }
}

/// Returns the status of what clients are shown. A file that is still being written is not there yet.
pub(crate) fn shown(stat: FileStat) -> Result<FileStat, RequestRefusal> {
    match stat.posc_pending {
        true => Err(RequestRefusal::new(StatusCode::NOT_FOUND, "The file is being written.")),
        false => Ok(stat),
    }
}

/// Replies to PROPFIND.
pub(crate) async fn properties(
    context: &RequestContext,
    body: &mut Incoming,
) -> Result<RequestReply, RequestRefusal> {
    let depth = context.headers().get(DEPTH).map(|value| value.as_bytes());
    let lists = match depth {
        None | Some(b"0") => false,
        Some(b"1") => true,
        Some(_) => return Err(RequestRefusal::new(StatusCode::NOT_IMPLEMENTED, "Invalid depth value.")),
    };
    // All properties are always returned, so the body does not matter.
    let ignored = Limited::new(body, IGNORED_BODY_BYTES_MAX).collect();
    match tokio::time::timeout(STALL_TIME_MAX, ignored).await {
        Ok(Ok(_)) => {}
        Ok(Err(_)) => {
            return Err(RequestRefusal::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "The body is too long, or not complete.",
            ));
        }
        Err(_) => return Err(RequestRefusal::new(StatusCode::REQUEST_TIMEOUT, "The body does not arrive.")),
    }
    let stat = shown(context.stat().await?)?;
    let path = context.target.path.without_slash();
    let mut text = String::from(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\" \
         xmlns:ns1=\"http://apache.org/dav/props/\" xmlns:ns0=\"DAV:\">\n",
    );
    append_properties(path.as_bytes(), &stat, &mut text);
    let mut replied = match lists && stat.kind == FileKind::Directory {
        true => listed(context, ListingForm::Properties, text).await?,
        false => {
            text.push_str(end_of(ListingForm::Properties));
            reply::with_body(StatusCode::MULTI_STATUS, ReplyBody::Whole(Bytes::from(text)))
        }
    };
    *replied.status_mut() = StatusCode::MULTI_STATUS;
    reply::set(&mut replied, CONTENT_TYPE, "text/xml; charset=\"utf-8\"");
    Ok(replied)
}

/// Replies to GET of a directory.
pub(crate) async fn page(context: &RequestContext) -> Result<RequestReply, RequestRefusal> {
    match &context.shared().config.listings {
        ListingPolicy::Served => {}
        ListingPolicy::Denied => {
            return Err(RequestRefusal::new(StatusCode::FORBIDDEN, "Listings are disabled."));
        }
        ListingPolicy::Redirected(to) => {
            let mut url = to.trim_end_matches('/').to_owned();
            append_url_path(context.target.path.as_bytes(), &mut url);
            let mut redirect = reply::empty(StatusCode::FOUND);
            reply::set(&mut redirect, LOCATION, &url);
            return Ok(redirect);
        }
    }
    let mut text =
        String::from("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>");
    let shown = context.target.path.text();
    append_xml(&shown, &mut text);
    text.push_str(
        "</title>\n<style>td{padding-right:1em}td.size{text-align:right}</style>\n</head>\n<body>\n<h1>Listing of: ",
    );
    append_xml(&shown, &mut text);
    text.push_str(
        "</h1>\n<table id=\"ft\">\n<thead><tr><th>Mode</th><th>Size</th><th>Modified</th><th>Name</th></tr></thead>\n",
    );
    let mut replied = listed(context, ListingForm::Page, text).await?;
    reply::set(&mut replied, CONTENT_TYPE, "text/html; charset=utf-8");
    // Names of files cannot be scripts, even if an escape were missing.
    reply::set(&mut replied, CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'");
    Ok(replied)
}

/// Returns a reply with `begin` and the entries of the directory.
async fn listed(
    context: &RequestContext,
    form: ListingForm,
    begin: String,
) -> Result<RequestReply, RequestRefusal> {
    let detail = ListDetail { stat: true, ..ListDetail::default() };
    let first = DirectoryPage::of(context.run(|| Operation::List(context.target.clone(), detail)).await?)?;
    let directory = context.target.path.without_slash();
    if first.rest.is_none() && first.entries.len() <= entries_of_a_part() {
        let mut text = begin;
        for entry in first.entries.iter() {
            append_entry(form, &directory, &entry.name, entry.stat.as_ref(), &mut text);
        }
        text.push_str(end_of(form));
        return Ok(reply::with_body(StatusCode::OK, ReplyBody::Whole(Bytes::from(text))));
    }
    let (to, parts) = mpsc::channel(1);
    let sender = ListingSender {
        connection: context.connection.clone(),
        caller: context.caller.clone(),
        directory,
        form,
        to,
    };
    tokio::spawn(sender.send(begin, first));
    Ok(reply::with_body(StatusCode::OK, ReplyBody::Parts { parts, left: None }))
}

/// Returns the number of entries that fit into a part.
const fn entries_of_a_part() -> usize {
    const ENTRY_BYTES: usize = 512;
    PART_BYTES / ENTRY_BYTES
}

/// Sends a listing part by part.
struct ListingSender {
    connection: Arc<ServedConnection>,
    caller: Arc<Caller>,
    directory: LogicalPath,
    form: ListingForm,
    to: mpsc::Sender<io::Result<Bytes>>,
}

impl ListingSender {
    async fn send(self, begin: String, first: DirectoryPage) {
        let mut text = begin;
        let mut page = first;
        loop {
            for entry in page.entries.iter() {
                append_entry(self.form, &self.directory, &entry.name, entry.stat.as_ref(), &mut text);
                if text.len() >= PART_BYTES && !self.flush(&mut text).await {
                    return;
                }
            }
            let Some(rest) = page.rest else { break };
            let next = self.connection.calls.once(&self.caller, Operation::ListMore(rest)).await;
            page = match next.and_then(DirectoryPage::of) {
                Ok(next) => next,
                Err(_) => {
                    // A listing that ends early must not look complete.
                    let _ = self.to.send(Err(io::Error::other("the directory cannot be read"))).await;
                    return;
                }
            };
        }
        text.push_str(end_of(self.form));
        self.flush(&mut text).await;
    }

    async fn flush(&self, text: &mut String) -> bool {
        self.to.send(Ok(Bytes::from(std::mem::take(text)))).await.is_ok()
    }
}

fn end_of(form: ListingForm) -> &'static str {
    match form {
        ListingForm::Properties => "</D:multistatus>\n",
        ListingForm::Page => "</table>\n</body>\n</html>\n",
    }
}

/// Appends an entry. Those without a status have disappeared meanwhile, and unfinished files are not
/// shown.
fn append_entry(
    form: ListingForm,
    directory: &LogicalPath,
    name: &[u8],
    stat: Option<&FileStat>,
    text: &mut String,
) {
    let Some(stat) = stat.filter(|stat| !stat.posc_pending) else { return };
    let mut path = directory.as_bytes().to_vec();
    if !directory.is_root() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    match form {
        ListingForm::Properties => append_properties(&path, stat, text),
        ListingForm::Page => append_row(&path, name, stat, text),
    }
}

fn append_properties(path: &[u8], stat: &FileStat, text: &mut String) {
    text.push_str(
        "<D:response xmlns:lp1=\"DAV:\" xmlns:lp2=\"http://apache.org/dav/props/\" xmlns:lp3=\"LCGDM:\">\n<D:href>",
    );
    append_url_path(path, text);
    let (kind, is_collection) = match stat.kind {
        FileKind::Directory => ("<lp1:resourcetype><D:collection/></lp1:resourcetype>", 1),
        FileKind::File | FileKind::Other => ("<lp1:resourcetype/>", 0),
    };
    let executable = if stat.executable { 'T' } else { 'F' };
    let (size, modified) = (stat.size, http_date(stat.modified));
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "</D:href>\n<D:propstat>\n<D:prop>\n<lp1:getcontentlength>{size}</lp1:getcontentlength>\n\
         <lp1:getlastmodified>{modified}</lp1:getlastmodified>\n{kind}\n\
         <lp1:iscollection>{is_collection}</lp1:iscollection>\n<lp1:executable>{executable}</lp1:executable>\n\
         </D:prop>\n<D:status>HTTP/1.1 200 OK</D:status>\n</D:propstat>\n</D:response>\n"
    );
}

fn append_row(path: &[u8], name: &[u8], stat: &FileStat, text: &mut String) {
    let (kind, slash) = match stat.kind {
        FileKind::Directory => ('d', "/"),
        FileKind::File | FileKind::Other => ('-', ""),
    };
    let bit = |is_set, letter| if is_set { letter } else { '-' };
    let mode: String =
        [kind, '-', '-', bit(stat.readable, 'r'), bit(stat.writable, 'w'), bit(stat.executable, 'x')]
            .iter()
            .collect();
    let (size, modified) = (stat.size, http_date(stat.modified));
    let _ = write!(
        text,
        "<tr><td class=\"mode\">{mode}</td><td class=\"size\">{size}</td><td class=\"datetime\">{modified}</td>\
         <td class=\"name\"><a href=\""
    );
    append_url_path(path, text);
    text.push_str(slash);
    text.push_str("\">");
    append_xml(&String::from_utf8_lossy(name), text);
    text.push_str(slash);
    text.push_str("</a></td></tr>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(kind: FileKind) -> FileStat {
        FileStat {
            id: 7,
            size: 12,
            kind,
            readable: true,
            writable: false,
            executable: kind == FileKind::Directory,
            offline: false,
            posc_pending: false,
            modified: 784_111_777,
            changed: 0,
            accessed: 0,
            mode: 0o644,
            owner: "u".into(),
            group: "g".into(),
        }
    }

    #[test]
    fn properties_have_the_form_that_clients_know() {
        let mut text = String::new();
        let directory = LogicalPath::parse(b"/data").unwrap();
        append_entry(ListingForm::Properties, &directory, b"a <b>&", Some(&stat(FileKind::File)), &mut text);
        let expected = "<D:response xmlns:lp1=\"DAV:\" xmlns:lp2=\"http://apache.org/dav/props/\" xmlns:lp3=\"LCGDM:\">\n\
            <D:href>/data/a%20%3Cb%3E%26</D:href>\n<D:propstat>\n<D:prop>\n\
            <lp1:getcontentlength>12</lp1:getcontentlength>\n\
            <lp1:getlastmodified>Sun, 06 Nov 1994 08:49:37 GMT</lp1:getlastmodified>\n<lp1:resourcetype/>\n\
            <lp1:iscollection>0</lp1:iscollection>\n<lp1:executable>F</lp1:executable>\n</D:prop>\n\
            <D:status>HTTP/1.1 200 OK</D:status>\n</D:propstat>\n</D:response>\n";
        assert_eq!(text, expected);
        text.clear();
        append_entry(
            ListingForm::Properties,
            &LogicalPath::root(),
            b"d",
            Some(&stat(FileKind::Directory)),
            &mut text,
        );
        assert!(text.contains("<D:href>/d</D:href>") && text.contains("<D:collection/>"), "{text}");
        text.clear();
        append_entry(ListingForm::Properties, &directory, b"gone", None, &mut text);
        let unfinished = FileStat { posc_pending: true, ..stat(FileKind::File) };
        append_entry(ListingForm::Properties, &directory, b"part", Some(&unfinished), &mut text);
        append_entry(ListingForm::Page, &directory, b"part", Some(&unfinished), &mut text);
        assert_eq!(text, "");
        assert!(shown(unfinished).is_err() && shown(stat(FileKind::File)).is_ok());
    }

    #[test]
    fn names_in_pages_are_text() {
        let mut text = String::new();
        let name = b"\"><script>alert(1)</script>";
        append_entry(
            ListingForm::Page,
            &LogicalPath::root(),
            name,
            Some(&stat(FileKind::Directory)),
            &mut text,
        );
        assert!(!text.contains("<script>"), "{text}");
        assert!(text.contains("href=\"/%22%3E%3Cscript%3Ealert%281%29%3C/script%3E/\""), "{text}");
        assert!(text.contains(">&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;/</a>"), "{text}");
    }
}
