//! The authorities that a client trusts, and its own certificate, read when the first server requires
//! encryption.

use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use auth::tls::{OwnCertificate, TrustAnchors};
use rustls::{AlertDescription, ClientConfig};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use crate::failure::Cause;
use crate::server_stream::ServerStream;

/// Time after which authorities that clients share are read again.
const SHARED_AGE_MAX: Duration = Duration::from_secs(3600);

/// Authorities that several clients of one server share. They are read when the first one needs them, and
/// again after an hour.
#[derive(Clone, Debug)]
pub struct SharedTrust {
    places: Option<TrustAnchors>,
    current: Arc<Mutex<Option<(Instant, TlsTrust)>>>,
}

impl SharedTrust {
    /// Trusts the authorities of these places; `None` for those that the environment names.
    #[must_use]
    pub fn of(places: Option<TrustAnchors>) -> Self {
        Self { places, current: Arc::default() }
    }

    /// Returns the authorities for a new client.
    pub(crate) fn present(&self) -> TlsTrust {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        match &*current {
            Some((since, known)) if since.elapsed() < SHARED_AGE_MAX => known.clone(),
            _ => {
                let new = TlsTrust::of(self.places.clone());
                *current = Some((Instant::now(), new.clone()));
                new
            }
        }
    }
}

/// The result of a thread that reads; `None` until it ends.
type PendingTrust = watch::Receiver<Option<Result<Arc<ClientConfig>, String>>>;

/// The authorities of one client, and its certificate. Clones share them.
#[derive(Clone, Default, Debug)]
pub(crate) struct TlsTrust {
    /// Their places; `None` for those that the environment names.
    places: Option<TrustAnchors>,
    /// The certificate for servers that ask for one.
    own: Option<Arc<OwnCertificate>>,
    config: Arc<OnceLock<Arc<ClientConfig>>>,
    /// The thread that reads them, of which there is one, also if nobody waits for it any longer.
    reading: Arc<Mutex<Option<PendingTrust>>>,
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
        let config = match self.config.get() {
            Some(config) => config.clone(),
            None => self.read().await.map_err(Cause::Tls)?,
        };
        if let Some(own) = self.own.clone().filter(|own| own.is_due()) {
            // Without a thread the certificate that was read before counts.
            let _ = on_thread(move || own.refresh()).await;
        }
        Ok(config)
    }

    /// Waits for the thread that reads the authorities. A failure is not kept: the file system may come back.
    async fn read(&self) -> Result<Arc<ClientConfig>, String> {
        let mut pending = self.reading()?;
        let read = pending.wait_for(Option::is_some).await.ok().and_then(|read| read.clone());
        read.unwrap_or_else(|| Err("the thread that reads certificates ended".to_owned()))
    }

    /// Returns the thread that reads the authorities, which is started if there is none.
    fn reading(&self) -> Result<PendingTrust, String> {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let is_at_work = |known: &&PendingTrust| known.borrow().is_none() && known.has_changed().is_ok();
        if let Some(known) = reading.as_ref().filter(is_at_work) {
            return Ok(known.clone());
        }
        let (answer, pending) = watch::channel(None);
        let (places, own, config) = (self.places.clone(), self.own.clone(), self.config.clone());
        start_thread(move || {
            let places = places.unwrap_or_else(TrustAnchors::of_environment);
            let read = places.client_config_with(own).map_err(|error| error.to_string());
            let read = read.map(|read| config.get_or_init(|| read).clone());
            answer.send_replace(Some(read));
        })?;
        *reading = Some(pending.clone());
        Ok(pending)
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
    start_thread(run)?;
    result.await.map_err(|_| "the thread that reads certificates ended".to_owned())
}

fn start_thread(run: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let started = std::thread::Builder::new().name("certificates".to_owned()).spawn(run);
    started.map(drop).map_err(|error| format!("no thread to read certificates: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;
    use crate::connect::AddressFilter;
    use crate::credentials::Credentials;
    use crate::settings::Settings;

    #[test]
    fn clients_of_one_server_share_what_one_thread_reads() {
        let shared = SharedTrust::of(None);
        let (first, second) = (shared.present(), shared.present());
        assert!(Arc::ptr_eq(&first.config, &second.config) && Arc::ptr_eq(&first.reading, &second.reading));
        // A thread that hangs.
        let (hanging, pending) = watch::channel(None);
        *first.reading.lock().unwrap() = Some(pending.clone());
        assert!(second.reading().unwrap().same_channel(&pending), "a second thread");
        // It has ended without a result, or has failed.
        drop(hanging);
        assert!(!second.reading().unwrap().same_channel(&pending));
        let (_failed, pending) = watch::channel(Some(Err(String::new())));
        *first.reading.lock().unwrap() = Some(pending.clone());
        assert!(!second.reading().unwrap().same_channel(&pending));
    }

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
