//! Requests for listings of directories, kept in the wire format.
//!
//! They add the status of each entry where a server does not send it with the listing.

use rawclient::Encoded;
use wire::Decode;
use wire::xroot::flags::{DirlistOptions, StatOptions};
use wire::xroot::reply::{StatText, dirlist};
use wire::xroot::request::{Dirlist, Request};

use crate::channel::{BodyLimit, ReplyContent};
use crate::cluster_listing::join_bounded;
use crate::entries::ServerListing;
use crate::failure::{Cause, Error};
use crate::filesystem::{FileSystem, ListWith, stat};
use crate::listing_memory::ListingMemory;
use crate::path::{Name, RemotePath};
use crate::request_loop::Repeat;
use crate::route::{PathRequest, Route};
use crate::url::Url;

/// Number of names whose status is requested before the replies are stored.
const STEP: usize = 256;

/// A request for the listing of a directory, charged to `memory`.
pub(crate) struct ListingRequest<'a> {
    pub(crate) files: &'a FileSystem,
    pub(crate) path: &'a str,
    pub(crate) memory: &'a ListingMemory,
    /// A server of HTTP that redirects to another one fails, because that one may have other files.
    pub(crate) is_one_server: bool,
}

impl ListingRequest<'_> {
    /// Requests the listing. If the server does not send the requested status, it is requested for
    /// each entry; entries without one are in a second listing.
    pub(crate) async fn send(&self, with: &ListWith) -> Result<Vec<ServerListing>, Error> {
        let Self { files, path, memory, is_one_server } = *self;
        if let Some(http) = files.http() {
            return Ok(vec![http.list_server(path, with, memory, is_one_server).await?]);
        }
        let mut options = DirlistOptions::NONE;
        if with.stat {
            options |= DirlistOptions::DSTAT;
        }
        if with.checksum.is_some() {
            options |= DirlistOptions::DSTAT | DirlistOptions::DCKSM;
        }
        if with.online {
            options |= DirlistOptions::ONLINE;
        }
        let kind = with.checksum.as_deref().filter(|kind| !kind.is_empty());
        let asked = kind.map_or_else(|| files.clone(), |kind| files.with_cgi(&format!("cks.type={kind}")));
        let request = |url: &Url, _: bool| {
            Encoded::new(&Request::Dirlist(Dirlist { options, path: url.target().as_bytes() }))
        };
        let (name, limit) = ("list", BodyLimit::listing(memory));
        let ask = PathRequest { name, repeat: Repeat::Anywhere, slow: false, limit, request: &request };
        let url = asked.url_of(name, path)?;
        let arrived = Route::new(&files.client, &url, files.client.end()).ask(&files.client, &ask).await?;
        asked.parsed(name, path, &arrived, ServerListing::check)?;
        let ReplyContent { body, charge, .. } = arrived.received;
        let has_status = dirlist::Listing::new(&body).has_stat();
        let listing = ServerListing { body, has_status, charge };
        if !with.stat || has_status {
            return Ok(vec![listing]);
        }
        self.add_status(&listing, true).await
    }

    /// Requests the status of each name in a listing. Returns the entries with a status, then those
    /// without. Unless `strict` is set, a failed request counts as no status.
    pub(crate) async fn add_status(
        &self,
        names: &ServerListing,
        strict: bool,
    ) -> Result<Vec<ServerListing>, Error> {
        let Self { files, path, memory, .. } = *self;
        let directory = files.url_of("list", path)?.path;
        let mut found = [ServerListing::empty(memory, true), ServerListing::empty(memory, false)];
        let [with, without] = &mut found;
        let ask = |name: Vec<u8>| {
            // A name that no request can carry has no status.
            let path = Name::from_bytes(&name).ok().map(|good| directory.join(&good));
            let files = files.clone();
            async move {
                let text = match path {
                    Some(path) => find_text(&files, &path).await,
                    None => Ok(None),
                };
                (name, text)
            }
        };
        let mut rest = names.names();
        loop {
            let some: Vec<Vec<u8>> = rest.by_ref().take(STEP).map(<[u8]>::to_vec).collect();
            if some.is_empty() {
                return Ok(found.into());
            }
            for (name, text) in join_bounded(some, &ask).await {
                let text = if strict { text? } else { text.unwrap_or_default() };
                let status = text.as_deref().and_then(|text| StatText::decode(text).ok());
                let has_room = match &status {
                    Some(_) => with.add(&name, status.as_ref()),
                    None => without.add(&name, None),
                };
                if !has_room {
                    return Err(files.error("list", path, Cause::too_large(&BodyLimit::listing(memory))));
                }
            }
        }
    }
}

/// Returns the status in the wire format, or `None` if the path does not exist.
async fn find_text(files: &FileSystem, path: &RemotePath) -> Result<Option<Vec<u8>>, Error> {
    let text = |body: &[u8]| StatText::decode(body).map(|_| body.to_vec()).map_err(Cause::from);
    match files.get("stat", path, |target| stat(target, StatOptions::NONE), text).await {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
