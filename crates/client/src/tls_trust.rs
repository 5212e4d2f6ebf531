//! The authorities that a client trusts, read when the first server requires them.

use std::io;
use std::sync::Arc;

use auth::tls::TrustAnchors;
use rustls::ClientConfig;
use tokio::sync::{OnceCell, oneshot};

use crate::failure::Cause;
use crate::server_stream::ServerStream;

/// The authorities of one client. Clones share them.
#[derive(Clone, Default, Debug)]
pub(crate) struct TlsTrust {
    /// Their places; `None` for those that the environment names.
    places: Option<TrustAnchors>,
    config: Arc<OnceCell<Arc<ClientConfig>>>,
}

impl TlsTrust {
    /// Trusts the authorities of these places; `None` for those that the environment names.
    pub(crate) fn of(places: Option<TrustAnchors>) -> Self {
        Self { places, config: Arc::default() }
    }

    /// Returns the context of connections, or the reason why no server can be verified.
    pub(crate) async fn config(&self) -> Result<Arc<ClientConfig>, Cause> {
        // A failure is not kept: the file system may come back.
        let read = || read(self.places.clone());
        self.config.get_or_try_init(read).await.cloned().map_err(Cause::Tls)
    }

    /// Performs the TLS handshake with a server whose certificate must be for `host`.
    ///
    /// # Errors
    /// [`Cause::Tls`]: no authorities, or the server is not trusted.
    pub(crate) async fn encrypt(&self, stream: &mut ServerStream, host: &str) -> Result<(), Cause> {
        let config = self.config().await?;
        stream.encrypt(&config, host).await.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => Cause::Tls(error.to_string()),
            _ => Cause::Lost(format!("during the TLS handshake: {error}")),
        })
    }
}

/// Reads the authorities on a thread of its own, because a file system can block.
async fn read(places: Option<TrustAnchors>) -> Result<Arc<ClientConfig>, String> {
    let (answer, result) = oneshot::channel();
    let work = move || {
        let config = places.unwrap_or_else(TrustAnchors::of_environment).client_config();
        // The caller may have given up.
        let _ = answer.send(config.map_err(|error| error.to_string()));
    };
    let started = std::thread::Builder::new().name("authorities".to_owned()).spawn(work);
    started.map_err(|error| format!("no thread to read certificate authorities: {error}"))?;
    result.await.unwrap_or_else(|_| Err("the thread that reads certificate authorities ended".to_owned()))
}
