//! The authorities that a client trusts, and its own certificate, read when the first server requires
//! encryption.

use std::io;
use std::sync::Arc;

use auth::tls::{OwnCertificate, TrustAnchors};
use rustls::{AlertDescription, ClientConfig};
use tokio::sync::{OnceCell, oneshot};

use crate::failure::Cause;
use crate::server_stream::ServerStream;

/// The authorities of one client, and its certificate. Clones share them.
#[derive(Clone, Default, Debug)]
pub(crate) struct TlsTrust {
    /// Their places; `None` for those that the environment names.
    places: Option<TrustAnchors>,
    /// The certificate for servers that ask for one.
    own: Option<Arc<OwnCertificate>>,
    config: Arc<OnceCell<Arc<ClientConfig>>>,
}

/// Returns the certificate of the user of this process. Nothing is read yet.
pub(crate) fn own_certificate() -> Arc<OwnCertificate> {
    Arc::new(OwnCertificate::of_environment(|name| std::env::var(name).ok()))
}

impl TlsTrust {
    /// Trusts the authorities of these places; `None` for those that the environment names.
    pub(crate) fn of(places: Option<TrustAnchors>) -> Self {
        Self { places, ..Self::default() }
    }

    /// Trusts the authorities that the environment names, and sends the certificate of the user of this
    /// process to servers that ask for one.
    pub(crate) fn of_user() -> Self {
        Self { own: Some(own_certificate()), ..Self::default() }
    }

    /// Returns the context of connections, or the reason why no server can be verified.
    pub(crate) async fn config(&self) -> Result<Arc<ClientConfig>, Cause> {
        // A failure is not kept: the file system may come back.
        let read = || self.read();
        let config = self.config.get_or_try_init(read).await.cloned().map_err(Cause::Tls)?;
        if let Some(own) = self.own.clone().filter(|own| own.is_due()) {
            // Without a thread the certificate that was read before counts.
            let _ = on_thread(move || own.refresh()).await;
        }
        Ok(config)
    }

    async fn read(&self) -> Result<Arc<ClientConfig>, String> {
        let (places, own) = (self.places.clone(), self.own.clone());
        let read = move || {
            let places = places.unwrap_or_else(TrustAnchors::of_environment);
            places.client_config_with(own).map_err(|error| error.to_string())
        };
        on_thread(read).await?
    }

    /// Performs the TLS handshake with a server whose certificate must be for `host`.
    ///
    /// # Errors
    /// [`Cause::Tls`]: no authorities, or the server is not trusted.
    pub(crate) async fn encrypt(&self, stream: &mut ServerStream, host: &str) -> Result<(), Cause> {
        let config = self.config().await?;
        stream.encrypt(&config, host).await.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
                self.refusal(&error).unwrap_or_else(|| Cause::Tls(error.to_string()))
            }
            _ => Cause::Lost(format!("during the TLS handshake: {error}")),
        })
    }

    /// Returns the failure of a server that refuses this client for its certificate, or for not having one.
    /// It can follow the handshake.
    pub(crate) fn refusal(&self, error: &io::Error) -> Option<Cause> {
        let Some(rustls::Error::AlertReceived(alert)) = error.get_ref()?.downcast_ref() else { return None };
        let own = self.own.as_ref()?;
        let meaning = match alert {
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied => "the server refuses the client",
            // With TLS 1.2 it also stands for a certificate that is missing.
            AlertDescription::HandshakeFailure => {
                "the server refuses the handshake, or demands a certificate of the client"
            }
            _ => return None,
        };
        Some(Cause::CertificateRefused(format!("{meaning}: {error}; {}", own.state())))
    }
}

/// Runs work that reads files on a thread of its own, because a file system can block.
async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    let (answer, result) = oneshot::channel();
    let run = move || {
        // The caller may have given up.
        let _ = answer.send(work());
    };
    let started = std::thread::Builder::new().name("certificates".to_owned()).spawn(run);
    started.map_err(|error| format!("no thread to read certificates: {error}"))?;
    result.await.map_err(|_| "the thread that reads certificates ended".to_owned())
}

#[cfg(test)]
mod tests {
    use crate::client::Client;
    use crate::connect::AddressFilter;
    use crate::credentials::Credentials;
    use crate::settings::Settings;

    /// A server must not prove its own identity, or that of its account, for the clients that it serves.
    #[test]
    fn only_clients_of_a_user_have_a_certificate() {
        let settings = Settings::default;
        let has_certificate = |client: Client| client.pool().tls().own.is_some();
        assert!(has_certificate(Client::with(settings(), Credentials::of_user(), "test")));
        assert!(!has_certificate(Client::with(settings(), Credentials::none(), "test")));
        let filter = AddressFilter::new(|_, address| Ok(vec![address]));
        let of_server = Client::for_server(settings(), "test", filter, None, Credentials::of_user());
        assert!(!has_certificate(of_server.clone()));
        assert!(!has_certificate(of_server.with_settings(settings())));
    }
}
