//! Redirects of clients on this machine to complete files of the disk cache, which they read without the server.

use crate::cached_origin::ProxyCacheReader;
use crate::settings::ProxyConfig;
use cache::DirectReaders;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::oneshot;
use vfs::{Caller, ClientConnection, OpenRequest, RedirectAnswer};

/// The port of a redirect to a URL.
const URL_PORT: i32 = -1;

/// The accounts of clients on this machine.
pub trait LocalClients: Send + Sync {
    /// Prepares the directory of the names, and returns that of the cache without links.
    ///
    /// # Errors
    /// The reason why these readers cannot reach the names.
    fn prepare(&self, directory: &Path, readers: DirectReaders) -> Result<PathBuf, String>;
    /// Answers whether the client of a connection is a program on this machine whose account is one of these readers.
    fn may_read(
        &self,
        connection: ClientConnection,
        readers: DirectReaders,
        answer: Box<dyn FnOnce(bool) + Send>,
    );
}

/// Redirects to files below a directory.
#[derive(Clone)]
pub(crate) struct DirectReads {
    /// The URL of the directory of the cache.
    prefix: Arc<str>,
    readers: DirectReaders,
    clients: Arc<dyn LocalClients>,
}

impl DirectReads {
    /// Prepares the directory of the names. If clients cannot reach it, they are all served by the server, and the log has
    /// the reason.
    pub(crate) fn start(config: &mut ProxyConfig) -> Option<Self> {
        let cache = config.cache.as_mut()?;
        let readers = cache.settings.direct?.readers;
        let clients = config.local_clients.clone()?;
        let prefix = clients.prepare(&cache.directory, readers).and_then(|directory| {
            url(&directory).ok_or_else(|| "URLs cannot have the path of the cache".to_owned())
        });
        match prefix {
            Ok(prefix) => Some(Self { prefix: prefix.into(), readers, clients }),
            Err(why) => {
                tracing::warn!("pss.dca has no effect: {why}");
                cache.settings.direct = None;
                None
            }
        }
    }

    /// Returns the redirect of a client to a file, if it can read it, and all of it is stored.
    pub(crate) async fn redirect(
        &self,
        reader: &ProxyCacheReader,
        connection: ClientConnection,
    ) -> Option<RedirectAnswer> {
        let reader = reader.of_disk().filter(|reader| reader.is_whole())?;
        let (answer, answered) = oneshot::channel();
        let done = Box::new(move |may| {
            answer.send(may).ok();
        });
        self.clients.may_read(connection, self.readers, done);
        if !answered.await.unwrap_or(false) {
            return None;
        }
        let host = format!("{}{}", self.prefix, reader.direct_name().await?.text()).into();
        Some(RedirectAnswer { host, port: URL_PORT, cgi: String::new() })
    }
}

/// Returns the connection of a client that accepts a local file, if it opens a file only to read it. It opens the local one
/// with the flags of its request, so `request` must be as the client has sent it.
pub(crate) fn reader(caller: &Caller, request: &OpenRequest) -> Option<ClientConnection> {
    let writes = request.write || request.append || request.new || request.delete || request.replace;
    let writes = writes || request.asks_write;
    caller.local_files.filter(|_| !writes)
}

fn url(directory: &Path) -> Option<String> {
    let directory = directory.to_str().filter(|text| text.starts_with('/'))?.trim_end_matches('/');
    // Clients take the path as it is, up to its opaque text.
    let is_plain = !directory.contains(|c: char| c.is_ascii_control() || matches!(c, '?' | '#' | '%' | ' '));
    is_plain.then(|| format!("file://localhost{directory}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Identity;
    use std::net::{Ipv4Addr, SocketAddr};

    #[test]
    fn the_path_is_part_of_the_url_only_if_clients_find_it_again() {
        assert_eq!(url(Path::new("/srv/cache/")).as_deref(), Some("file://localhost/srv/cache"));
        for directory in ["srv/cache", "/srv/a b", "/srv/a?b", "/srv/100%", "/srv/a#b", "/srv/a\nb"] {
            assert_eq!(url(Path::new(directory)), None, "{directory}");
        }
    }

    #[test]
    fn only_a_request_that_changes_nothing_is_redirected() {
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let connection = ClientConnection { client: at(1), server: at(2) };
        let identity = Identity::new(&base::LoginNames::default(), 0, None, "host");
        let caller = Caller::new(identity, true, true);
        let read = OpenRequest { read: true, ..OpenRequest::default() };
        assert_eq!(reader(&caller, &read), None);
        let caller = Arc::new(caller.with_local_files(Some(connection)));
        assert_eq!(reader(&caller, &read), Some(connection));
        for request in [
            OpenRequest { write: true, ..read.clone() },
            OpenRequest { asks_write: true, ..read.clone() },
            OpenRequest { append: true, ..read.clone() },
            OpenRequest { new: true, ..read.clone() },
            OpenRequest { delete: true, ..read.clone() },
            OpenRequest { replace: true, ..read.clone() },
        ] {
            assert_eq!(reader(&caller, &request), None, "{request:?}");
        }
        // The two servers of a copy, and another client with the rights of this one.
        assert_eq!(reader(&caller.without_local_files(), &read), None);
        assert_eq!(reader(&caller.through(&caller), &read), None);
    }
}
