//! Encryption of connections: the certificate of the configuration, its renewal and its expiry.
//!
//! Certificate and key are read at the start, at each reload, and when their files change, on a
//! thread, because a file system can block. Both are replaced together, and only if they fit.
//! Connections keep the certificate that they began with.

use crate::error::StartError;
use crate::expiry::{DAY, ExpiryWarnings};
use crate::http_certificates::HttpCertificates;
use crate::login::keep_out_of_core_dumps;
use auth::ServerProtocol;
use auth::tls::{CertificateFiles, SelfSigned, ServerCertificate, TlsError, TlsServerOptions, TrustAnchors};
use base::Supervisor;
use config::{Effective, TlsAuthorities, TlsCertificate};
use net::TlsServer;
use std::num::NonZero;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use storage::Pool;

/// Maximum number of threads for handshakes.
const HANDSHAKE_THREADS_MAX: usize = 8;

/// Number of sessions that clients can resume.
const RESUMABLE_SESSIONS: usize = 16_384;

/// Interval at which the files are examined.
const LOOK: Duration = Duration::from_secs(60);

/// Returns the authorities of `xrd.tlsca`, by which this server trusts servers to which it connects.
/// `None` if the configuration names none; those of the environment or of the system count then.
#[must_use]
pub fn trusted_servers(effective: &Effective) -> Option<TrustAnchors> {
    let authorities = effective.network.tls_authorities.value.clone();
    let TlsAuthorities { directory, file, .. } = authorities.filter(|found| !found.verifies_nothing())?;
    Some(TrustAnchors { directory, file })
}

/// Reads the certificate and the key of the configuration as at a start. Returns `None` if it has none.
/// Blocks.
///
/// # Errors
/// The file, and the reason why it cannot be used.
pub(crate) fn read_certificate(effective: &Effective) -> Result<Option<ServerCertificate>, TlsError> {
    sources(effective).map(|(files, options)| read(&files, &options)).transpose()
}

fn read(files: &CertificateFiles, options: &TlsServerOptions) -> Result<ServerCertificate, TlsError> {
    keep_out_of_core_dumps("the key of the certificate");
    ServerCertificate::read(files, options)
}

/// Returns the files of the configuration, and the options of connections.
fn sources(effective: &Effective) -> Option<(CertificateFiles, TlsServerOptions)> {
    let network = &effective.network;
    let TlsCertificate { certificate, key, .. } = network.tls.value.as_ref()?;
    let files = CertificateFiles { certificate: certificate.clone(), key: key.clone() };
    let options = TlsServerOptions {
        ciphers: network.tls_ciphers.value.clone(),
        resumable_sessions: if *effective.protocol.tls_reuse { RESUMABLE_SESSIONS } else { 0 },
    };
    Some((files, options))
}

/// The certificate of a server, and the encryption of its connections.
pub(crate) struct ServerTls {
    server: Arc<TlsServer>,
    /// Encryption for clients that are asked for certificates, and how their certificates are verified.
    clients: Option<(Arc<TlsServer>, Arc<HttpCertificates>)>,
    /// The directive that names the files, for messages.
    directive: &'static str,
    files: CertificateFiles,
    options: TlsServerOptions,
    /// The certificate is self-signed and renewed here.
    is_renewed: bool,
    /// Held while files are examined, so that this happens once at a time.
    examination: Mutex<()>,
    /// Never held while files are examined, because a file system can block, and
    /// `scalla admin status` must not wait for it.
    state: Mutex<CertificateState>,
}

/// The certificate in force.
struct CertificateState {
    certificate: Arc<ServerCertificate>,
    warnings: ExpiryWarnings,
    /// The log has an error about a validity that has not begun.
    reported_early: bool,
    /// The reason why newer files are not used; empty if they are.
    refused: String,
}

impl CertificateState {
    fn new(certificate: ServerCertificate) -> Self {
        Self {
            certificate: Arc::new(certificate),
            warnings: ExpiryWarnings::default(),
            reported_early: false,
            refused: String::new(),
        }
    }
}

/// The examination of the files. It ends when this is dropped.
pub(crate) struct CertificateWatch {
    _end: Sender<()>,
    _end_of_clients: Option<Sender<()>>,
}

impl ServerTls {
    /// Reads the certificate of the configuration. Returns `None` if it has none.
    ///
    /// # Errors
    /// [`StartError::Tls`].
    pub(crate) fn open(
        effective: &Effective,
        clients: Option<HttpCertificates>,
    ) -> Result<Option<Arc<Self>>, StartError> {
        let network = &effective.network;
        let Some(TlsCertificate { handshake_time, is_renewed, .. }) = &*network.tls else {
            return Ok(None);
        };
        let Some((files, options)) = sources(effective) else { return Ok(None) };
        if let Some(list) = &options.ciphers {
            let others = auth::tls::unsupported_ciphers(list);
            if !others.is_empty() {
                tracing::warn!("xrd.tlsciphers: not supported: {}", others.join(", "));
            }
        }
        let certificate = read(&files, &options).map_err(|error| StartError::Tls(error.to_string()))?;
        // The event loops need the other processors.
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let pool = Pool::new("tls", (processors / 2).clamp(1, HANDSHAKE_THREADS_MAX));
        let run = move |owner, step| pool.run(owner, step).is_ok();
        let server = Arc::new(TlsServer::new(certificate.config().clone(), run, *handshake_time));
        let asking = |clients: HttpCertificates| {
            let context = certificate.config_with_clients(&clients.clients);
            let context = context.map_err(|error| StartError::Tls(error.to_string()))?;
            for warning in clients.warnings(SystemTime::now()) {
                tracing::warn!("certificates of clients of HTTPS: {warning}");
            }
            // Handshakes of HTTPS run on its own threads.
            let server = TlsServer::new(context, |_, _| false, *handshake_time);
            Ok::<_, StartError>((Arc::new(server), Arc::new(clients)))
        };
        let clients = clients.map(asking).transpose()?;
        let state = Mutex::new(CertificateState::new(certificate));
        let (is_renewed, examination) = (*is_renewed, Mutex::default());
        let directive = effective.certificate_directive();
        let tls = Self { server, clients, directive, files, options, is_renewed, examination, state };
        tracing::info!("TLS: {}", tls.state());
        tls.warn_of_expiry(SystemTime::now());
        Ok(Some(Arc::new(tls)))
    }

    /// Encrypts connections of the front end as the configuration requires.
    pub(crate) fn require(&self, effective: &Effective, door: &mut xroot::Config) {
        door.tls = Some(self.server.clone());
        door.settings.tls = Some(*effective.protocol.tls);
    }

    /// Returns the encryption of HTTPS.
    pub(crate) fn https(&self) -> &Arc<TlsServer> {
        self.clients.as_ref().map_or(&self.server, |(server, _)| server)
    }

    /// Returns the protocol that identifies clients by their certificates; `None` if they are not asked for any.
    pub(crate) fn client_protocol(&self) -> Option<&Arc<dyn ServerProtocol>> {
        self.clients.as_ref().map(|(_, clients)| &clients.protocol)
    }

    /// Returns the interval at which [`Self::refresh_clients`] is due.
    fn clients_refresh(&self) -> Duration {
        let intervals = self.client_protocol().map(|protocol| protocol.periodic_refreshes());
        intervals.into_iter().flatten().map(|refresh| refresh.interval).min().unwrap_or(Duration::MAX)
    }

    /// Reads the authorities and maps for certificates of clients again, unless they are those of `gsi`. Returns the
    /// reason why earlier ones stay in force. Blocks.
    fn refresh_clients(&self) -> Option<String> {
        let (_, clients) = self.clients.as_ref().filter(|(_, clients)| clients.has_own_files())?;
        let error = clients.protocol.refresh().err()?;
        let text = format!("certificates of clients of HTTPS: {error}");
        tracing::error!("{text}");
        Some(text)
    }

    /// Reports whether the authorities could be read at the start.
    fn are_clients_read(&self) -> bool {
        self.clients.as_ref().is_none_or(|(_, clients)| clients.failure.is_none())
    }

    fn state_now(&self) -> MutexGuard<'_, CertificateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the files again if they have changed, after a renewal if it is due. Returns the reason why
    /// they are not usable; the earlier certificate then stays in force. Blocks.
    pub(crate) fn refresh(&self) -> Option<String> {
        let failures = [self.refresh_at(SystemTime::now(), || ()), self.refresh_clients()];
        let failures: Vec<String> = failures.into_iter().flatten().collect();
        (!failures.is_empty()).then(|| failures.join("; "))
    }

    /// Like [`Self::refresh`], at this time. `examined` is called while the files are examined.
    fn refresh_at(&self, now: SystemTime, examined: impl FnOnce()) -> Option<String> {
        let _one = self.examination.lock().unwrap_or_else(PoisonError::into_inner);
        let present = self.state_now().certificate.clone();
        let read = self.read_changed(&present, now);
        examined();
        let (text, is_unknown) = {
            let mut state = self.state_now();
            match read {
                Ok(None) => {
                    state.refused.clear();
                    return None;
                }
                Ok(Some(certificate)) => {
                    if let Some((server, clients)) = &self.clients {
                        match certificate.config_with_clients(&clients.clients) {
                            Ok(context) => server.replace(context),
                            Err(error) => return Some(error.to_string()),
                        }
                    }
                    self.server.replace(certificate.config().clone());
                    *state = CertificateState::new(certificate);
                    drop(state);
                    tracing::info!("TLS: a new certificate is in force: {}", self.state());
                    return None;
                }
                Err(error) => {
                    let text = format!("{}: the earlier certificate stays in force: {error}", self.directive);
                    let is_unknown = state.refused != text;
                    state.refused.clone_from(&text);
                    (text, is_unknown)
                }
            }
        };
        if is_unknown {
            tracing::error!("{text}");
        }
        Some(text)
    }

    /// Renews the certificate if that is due, and reads the files if they have changed.
    fn read_changed(
        &self,
        present: &ServerCertificate,
        now: SystemTime,
    ) -> Result<Option<ServerCertificate>, TlsError> {
        if self.is_renewed && present.is_self_signed() {
            SelfSigned::renew_if_due(&self.files, present, now)?;
        }
        if !present.has_changed(&self.files) {
            return Ok(None);
        }
        ServerCertificate::read(&self.files, &self.options).map(Some)
    }

    /// Returns the names of hosts in the certificate in force.
    pub(crate) fn names(&self) -> Vec<String> {
        self.state_now().certificate.names().to_vec()
    }

    /// Describes the certificate in force.
    pub(crate) fn state(&self) -> String {
        let state = self.state_now();
        let names = state.certificate.names().join(", ");
        let days = state.certificate.left(SystemTime::now()).as_secs() / DAY.as_secs();
        let refused = if state.refused.is_empty() { "" } else { "; " };
        format!("certificate for {names}, {days} days left{refused}{}", state.refused)
    }

    /// Returns the end of the validity of the certificate in force.
    pub(crate) fn expires(&self) -> SystemTime {
        self.state_now().certificate.not_after()
    }

    /// Returns the file of the certificate if clients must trust it directly.
    pub(crate) fn self_signed(&self) -> Option<&Path> {
        let state = self.state_now();
        state.certificate.is_self_signed().then_some(&self.files.certificate)
    }

    /// Logs, once each, that the certificate expires soon.
    fn warn_of_expiry(&self, now: SystemTime) {
        let mut state = self.state_now();
        let shown = self.files.certificate.display();
        if state.certificate.is_early(now) && !state.reported_early {
            state.reported_early = true;
            tracing::error!("the certificate {shown} is not valid yet; check it and the clock of this host");
        }
        let expires = state.certificate.not_after();
        state.warnings.log(&self.files.certificate, expires, now);
    }

    /// Starts a thread that examines the files.
    pub(crate) fn watch(self: &Arc<Self>, supervisor: &Supervisor) -> std::io::Result<CertificateWatch> {
        let (end, ended) = mpsc::channel::<()>();
        let tls = self.clone();
        let run = move || {
            while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                tls.refresh_at(SystemTime::now(), || ());
                tls.warn_of_expiry(SystemTime::now());
            }
        };
        supervisor.spawn("tls-refresh", "the examination of the certificate", run)?;
        let end_of_clients = self.watch_clients(supervisor, LOOK)?;
        Ok(CertificateWatch { _end: end, _end_of_clients: end_of_clients })
    }

    /// Starts a thread that reads the authorities and maps for certificates of clients again, if there are any: after
    /// a failure at the next look, otherwise at their interval. Another file system than that of the server's
    /// certificate can hang.
    fn watch_clients(
        self: &Arc<Self>,
        supervisor: &Supervisor,
        look: Duration,
    ) -> std::io::Result<Option<Sender<()>>> {
        if self.clients.as_ref().is_none_or(|(_, clients)| !clients.has_own_files()) {
            return Ok(None);
        }
        let (end, ended) = mpsc::channel::<()>();
        let tls = self.clone();
        let run = move || {
            let mut read = tls.are_clients_read().then(Instant::now);
            while ended.recv_timeout(look) == Err(RecvTimeoutError::Timeout) {
                if read.is_none_or(|read| read.elapsed() >= tls.clients_refresh()) {
                    read = tls.refresh_clients().is_none().then(Instant::now);
                }
            }
        };
        supervisor.spawn("tls-clients", "the refresh of authorities of clients", run)?;
        Ok(Some(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use auth::tls::SiteAuthority;

    fn opened(files: &CertificateFiles, is_renewed: bool) -> Arc<ServerTls> {
        let mut effective = Effective::default();
        let certificate = TlsCertificate {
            certificate: files.certificate.clone(),
            key: files.key.clone(),
            handshake_time: Duration::from_secs(1),
            is_renewed,
        };
        effective.network.tls = config::Setting::from_command_line(Some(certificate));
        ServerTls::open(&effective, None).unwrap().unwrap()
    }

    #[test]
    fn a_self_signed_certificate_is_renewed_while_the_server_runs() {
        let directory = std::env::temp_dir().join(format!("server-tls-renewed-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let files = SelfSigned::open(&directory, &["h.example.org".to_owned()]).unwrap().files;
        let (tls, other) = (opened(&files, true), opened(&files, false));
        let later = |days| SystemTime::now() + DAY * days;
        assert_eq!(
            (tls.refresh_at(later(362), || ()), tls.state_now().certificate.left(later(364)).is_zero()),
            (None, false)
        );
        assert!(tls.state_now().certificate.left(later(366)).is_zero());
        // Only where it is the server's own.
        assert_eq!(other.refresh_at(later(364), || ()), None);
        assert!(other.state_now().certificate.left(later(366)).is_zero());
        assert_eq!(tls.refresh_at(later(364), || ()), None);
        assert!(!tls.state_now().certificate.left(later(690)).is_zero());
        assert!(tls.state().starts_with("certificate for h.example.org"), "{}", tls.state());
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn the_state_does_not_wait_for_the_file_system() {
        let directory = std::env::temp_dir().join(format!("server-tls-state-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let files = SelfSigned::open(&directory, &["h.example.org".to_owned()]).unwrap().files;
        let tls = opened(&files, false);
        let mut shown = Vec::new();
        for name in ["first.example.org", "second.example.org"] {
            SelfSigned::create(&directory, &[name.to_owned()], SystemTime::now()).unwrap();
            tls.refresh_at(SystemTime::now(), || {
                // A refresh that holds the state would make this wait for itself.
                assert!(tls.state.try_lock().is_ok());
                shown.push(tls.state());
            });
        }
        assert!(shown[0].starts_with("certificate for h.example.org"), "{}", shown[0]);
        assert!(shown[1].starts_with("certificate for first.example.org"), "{}", shown[1]);
        assert!(tls.state().starts_with("certificate for second.example.org"), "{}", tls.state());
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn authorities_that_cannot_be_read_at_the_start_are_read_later() {
        let directory = std::env::temp_dir().join(format!("server-tls-clients-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let files = SelfSigned::open(&directory, &["h.example.org".to_owned()]).unwrap().files;
        let (authorities, map) = (directory.join("authorities"), directory.join("map"));
        let text = format!(
            "xrd.protocol http *\nxrd.tls {} {}\nxrd.tlsca certfile {}\n",
            files.certificate.display(),
            files.key.as_ref().unwrap().display(),
            authorities.display()
        );
        let effective = |text: &str| {
            let input = config::ConfigInput { file: Some("f".to_owned()), ..config::ConfigInput::default() };
            config::load(&input, &config::MemorySource::new().with("f", text)).effective
        };
        let plain = effective(&text);
        let clients = HttpCertificates::open(&plain, None).unwrap();
        let tls = ServerTls::open(&plain, clients).unwrap().unwrap();
        assert!(tls.client_protocol().is_some() && !tls.are_clients_read());
        assert!(tls.refresh_clients().unwrap().contains("authorities"));
        let (_, site) = SiteAuthority::create("Site", SystemTime::now()).unwrap();
        std::fs::write(&authorities, &site.certificate).unwrap();
        let watch = tls.watch_clients(&Supervisor::default(), Duration::from_millis(1)).unwrap();
        let is_read = || tls.client_protocol().unwrap().warnings(SystemTime::now(), DAY * 10_000).len();
        let begun = Instant::now();
        while is_read() == 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "the authorities are not read");
            std::thread::yield_now();
        }
        drop(watch);
        // A map that is missing is an empty one, which is worth a warning.
        let required = effective(&format!("{text}http.gridmap required {}\n", map.display()));
        let clients = HttpCertificates::open(&required, None).unwrap().unwrap();
        let warnings = clients.warnings(SystemTime::now()).join("; ");
        assert!(warnings.contains("all certificates are refused"), "{warnings}");
        // The messages name the lines of the configuration that there are.
        let text = format!(
            "xrd.protocol http *\nhttp.cert {}\nhttp.key {}\nhttp.cadir /nonexistent/authorities\n",
            files.certificate.display(),
            files.key.as_ref().unwrap().display()
        );
        let input = config::ConfigInput { file: Some("f".to_owned()), ..config::ConfigInput::default() };
        let loaded = config::load(&input, &config::MemorySource::new().with("f", text));
        let (own, mut report) = (loaded.effective, loaded.report);
        crate::check_credentials(&own, SystemTime::now(), false, &mut report);
        let report = report.to_string();
        assert!(report.contains("f:4:1") || report.contains("4:1: warning"), "{report}");
        assert!(report.contains("are refused: ") && report.contains("/nonexistent/authorities"), "{report}");
        let tls = ServerTls::open(&own, None).unwrap().unwrap();
        std::fs::write(&files.certificate, "no certificate").unwrap();
        let refused = tls.refresh_at(SystemTime::now(), || ()).unwrap();
        assert!(refused.starts_with("http.cert: the earlier certificate stays in force"), "{refused}");
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn new_files_are_used_only_if_they_fit() {
        let directory = std::env::temp_dir().join(format!("server-tls-{}", std::process::id()));
        let (first, second) = (directory.join("a"), directory.join("b"));
        let made = |path: &Path, name: &str| {
            std::fs::create_dir_all(path).unwrap();
            auth::tls::SelfSigned::open(path, &[name.to_owned()]).unwrap().files
        };
        let files = made(&first, "first.example.org");
        let other = made(&second, "second.example.org");
        let tls = opened(&files, false);
        assert_eq!(tls.refresh(), None);
        assert!(
            tls.state().starts_with("certificate for first.example.org, 364 days left"),
            "{}",
            tls.state()
        );
        assert_eq!(tls.self_signed(), Some(files.certificate.as_path()));
        // The key of the old certificate, until it is replaced too.
        std::fs::copy(&other.certificate, &files.certificate).unwrap();
        let refused = tls.refresh().unwrap();
        assert!(refused.contains("the earlier certificate stays in force"), "{refused}");
        assert!(tls.state().contains("first.example.org") && tls.state().contains("is not the key"));
        std::fs::copy(other.key.unwrap(), files.key.as_ref().unwrap()).unwrap();
        assert_eq!(tls.refresh(), None);
        assert!(tls.state().starts_with("certificate for second.example.org"), "{}", tls.state());
        std::fs::remove_dir_all(directory).unwrap();
    }
}
