//! Redirects of clients on this machine to complete files of the disk cache, which they read without the server.

use crate::cached_origin::ProxyCacheReader;
use crate::settings::ProxyConfig;
use base::Owner;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use vfs::{Caller, ClientConnection, OpenRequest, RedirectAnswer, Target};

/// The port of a redirect to a URL.
const URL_PORT: i32 = -1;
/// Time in which it has to be known whether a client can read a file. Otherwise it is served.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// A client that accepts a file on its own machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalClient {
    /// Its connection.
    pub connection: ClientConnection,
    /// The process number that it sent at login.
    pub pid: u32,
    /// Its session, for the turns of sessions.
    pub owner: Owner,
}

/// The processes of clients on this machine.
pub trait LocalClients: Send + Sync {
    /// Prepares the directory of the names, and returns that of the cache without links.
    ///
    /// # Errors
    /// The reason why clients cannot reach the names.
    fn prepare(&self, directory: &Path) -> Result<PathBuf, String>;
    /// Answers whether a client is certainly a process with the account of this server, and finds the same files below the
    /// directory of the cache. Without an answer, it is not.
    fn may_read(&self, client: LocalClient, directory: Arc<Path>, answer: Box<dyn FnOnce(bool) + Send>);
}

/// Redirects to files below a directory.
#[derive(Clone)]
pub(crate) struct DirectReads {
    /// The directory of the cache, and its URL.
    directory: Arc<Path>,
    prefix: Arc<str>,
    clients: Arc<dyn LocalClients>,
}

impl DirectReads {
    /// Prepares the directory of the names. If clients cannot reach it, they are all served by the server, and the log has
    /// the reason.
    pub(crate) fn start(config: &mut ProxyConfig) -> Option<Self> {
        let cache = config.cache.as_mut()?;
        let clients = config.local_clients.clone().filter(|_| cache.settings.direct.is_some())?;
        let prepared = clients.prepare(&cache.directory).and_then(|directory| {
            let prefix = url(&directory).ok_or("URLs cannot have the path of the cache")?;
            Ok((directory.into(), prefix.into()))
        });
        match prepared {
            Ok((directory, prefix)) => Some(Self { directory, prefix, clients }),
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
        client: LocalClient,
    ) -> Option<RedirectAnswer> {
        let reader = reader.of_disk().filter(|reader| reader.is_whole())?;
        let (answer, answered) = oneshot::channel();
        let done = Box::new(move |may_read| {
            answer.send(may_read).ok();
        });
        self.clients.may_read(client, self.directory.clone(), done);
        let may_read = tokio::time::timeout(ANSWER_TIME, answered).await;
        if !may_read.is_ok_and(|answer| answer.unwrap_or(false)) {
            tracing::debug!(
                client = %client.connection.client, pid = client.pid,
                "served, because it is not known to be a process that can read the file directly"
            );
            return None;
        }
        let host = format!("{}{}", self.prefix, reader.direct_name().await?.text()).into();
        Some(RedirectAnswer { host, port: URL_PORT, cgi: String::new() })
    }
}

/// Returns the client that accepts a local file, if it opens a file only to read it, and for itself. It opens the local one
/// with the flags of its request, so `request` must be as the client has sent it.
pub(crate) fn reader(
    (caller, owner): (&Caller, Owner),
    target: &Target,
    request: &OpenRequest,
) -> Option<LocalClient> {
    let writes = request.write || request.append || request.new || request.delete || request.replace;
    let writes = writes || request.asks_write;
    let is_for_itself = !request.is_copy && !target.cgi.has_prefix("tpc.");
    let connection = caller.local_files.as_deref().filter(|_| !writes && is_for_itself)?;
    Some(LocalClient { connection: *connection, pid: caller.identity.pid, owner })
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
        let identity = Identity::new(&base::LoginNames::default(), 7, None, "host");
        let caller = Caller::new(identity, true, true);
        let read = OpenRequest { read: true, ..OpenRequest::default() };
        let target = |cgi: &str| Target::parse(format!("/f?{cgi}").as_bytes(), "opening").unwrap();
        let file = target("authz=x");
        let owner = Owner(3);
        let reader = |caller: &Caller, target: &Target, request: &OpenRequest| {
            reader((caller, owner), target, request)
        };
        assert_eq!(reader(&caller, &file, &read), None);
        let caller = Arc::new(caller.with_local_files(Some(Arc::new(connection))));
        assert_eq!(reader(&caller, &file, &read), Some(LocalClient { connection, pid: 7, owner }));
        for (number, request) in [
            OpenRequest { write: true, ..read.clone() },
            OpenRequest { asks_write: true, ..read.clone() },
            OpenRequest { append: true, ..read.clone() },
            OpenRequest { new: true, ..read.clone() },
            OpenRequest { delete: true, ..read.clone() },
            OpenRequest { replace: true, ..read.clone() },
            OpenRequest { is_copy: true, ..read.clone() },
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(reader(&caller, &file, &request), None, "{number}");
        }
        // The two servers of a copy, and another client with the rights of this one.
        assert_eq!(reader(&caller, &target("tpc.key=a"), &read), None);
        assert_eq!(reader(&caller.without_local_files(), &file, &read), None);
        assert_eq!(reader(&caller.through(&caller), &file, &read), None);
    }
}
