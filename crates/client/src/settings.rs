//! Settings under the names of the XRootD client, with defaults and the source of each value.
//!
//! The sources of a setting NAME are, and later ones override earlier ones:
//!
//! * `/etc/xrootd/client.conf`,
//! * the files `*.conf` of `/etc/xrootd/client.conf.d`, or of the directory in `XRD_CLCONFDIR`,
//! * `~/.xrootd/client.conf`,
//! * the file in `XRD_CLCONFFILE`,
//! * the environment variable `XRD_NAME`,
//! * the command line.
//!
//! Lines of files are `name = value`; `#` begins a comment.
//!
//! Some defaults are shorter than those of XRootD because a failure would otherwise take half an
//! hour to show: an unreachable server is given up after seconds. Values that are set have their
//! usual meaning. Source: xroot protocol 5.2.0, section 5.3.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The source of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// The default.
    Default,
    /// A line of a file.
    File(PathBuf, usize),
    /// The environment variable `XRD_…`.
    Environment,
    /// An option of the program.
    Option,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => write!(f, "default"),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Environment => write!(f, "environment"),
            Self::Option => write!(f, "option"),
        }
    }
}

/// The reason why a value was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SettingError {
    /// No setting has this name.
    #[error("`{0}` is no setting of the client")]
    Unknown(String),
    /// The setting requires a number.
    #[error("`{name}` is a number, not `{value}`")]
    NoNumber {
        /// The setting.
        name: &'static str,
        /// The refused value.
        value: String,
    },
}

macro_rules! settings {
    (
        numbers { $($(#[$number_doc:meta])* $number:ident $number_name:literal = $number_default:literal,)* }
        texts { $($(#[$text_doc:meta])* $text:ident $text_name:literal = $text_default:literal,)* }
    ) => {
        /// All settings. Numbers are seconds, bytes or counts as documented; switches are 0 or 1.
        #[derive(Clone, Debug)]
        #[non_exhaustive]
        pub struct Settings {
            $($(#[$number_doc])* pub $number: u64,)*
            $($(#[$text_doc])* pub $text: String,)*
            sources: BTreeMap<&'static str, Source>,
            problems: Vec<String>,
        }

        impl Default for Settings {
            fn default() -> Self {
                Self {
                    $($number: $number_default,)*
                    $($text: $text_default.to_owned(),)*
                    sources: BTreeMap::new(),
                    problems: Vec::new(),
                }
            }
        }

        impl Settings {
            /// Names of all settings, as files spell them.
            pub const NAMES: &[&str] = &[$($number_name,)* $($text_name,)*];

            /// Sets a value. Names are case-insensitive.
            ///
            /// # Errors
            /// [`SettingError`]; the settings are unchanged then.
            pub fn set(&mut self, name: &str, value: &str, source: Source) -> Result<(), SettingError> {
                $(if name.eq_ignore_ascii_case($number_name) {
                    self.$number = number($number_name, value)?;
                    self.sources.insert($number_name, source);
                    return Ok(());
                })*
                $(if name.eq_ignore_ascii_case($text_name) {
                    self.$text = value.to_owned();
                    self.sources.insert($text_name, source);
                    return Ok(());
                })*
                Err(SettingError::Unknown(name.to_owned()))
            }

            /// Returns name, value and source of each setting.
            #[must_use]
            pub fn all(&self) -> Vec<(&'static str, String, Source)> {
                vec![
                    $(($number_name, self.$number.to_string(), self.source($number_name)),)*
                    $(($text_name, self.$text.clone(), self.source($text_name)),)*
                ]
            }
        }
    };
}

settings! {
    numbers {
        /// Seconds for one round of attempts to connect to all addresses of a host, including the
        /// login.
        connection_window "ConnectionWindow" = 10,
        /// Rounds of attempts before a host is given up.
        connection_retry "ConnectionRetry" = 2,
        /// Seconds for a whole operation, including waits that servers request.
        request_timeout "RequestTimeout" = 1800,
        /// Seconds without a byte from a server with outstanding replies, after which the
        /// connection counts as lost.
        stream_timeout "StreamTimeout" = 30,
        /// Seconds before a new attempt to connect to a host that could not be reached.
        stream_error_window "StreamErrorWindow" = 2,
        /// Seconds between checks of timeouts. Checks are exact here, so it has no effect.
        timeout_resolution "TimeoutResolution" = 15,
        /// Number of connections to a server. With 1 there is only the control connection; each
        /// further one carries data.
        sub_streams_per_channel "SubStreamsPerChannel" = 1,
        /// Threads that drive connections; one, unless it is set. It has no effect on a runtime of
        /// the caller.
        parallel_evt_loop "ParallelEvtLoop" = 10,
        /// Threads for writing and checksums; at most 4, and one for each processor, unless it is
        /// set.
        worker_threads "WorkerThreads" = 3,
        /// Supports `fork`. It has no effect because `fork` is always supported.
        run_fork_handler "RunForkHandler" = 1,
        /// Seconds after which an unused connection to a data server is closed.
        data_server_ttl "DataServerTTL" = 300,
        /// Seconds after which an unused connection to a manager is closed.
        load_balancer_ttl "LoadBalancerTTL" = 1200,
        /// Maximum size of a listing in bytes; an entry counts as at least 32 bytes.
        listing_bytes "ListingBytes" = 40_000_000,
        /// Maximum number of redirects of one request.
        redirect_limit "RedirectLimit" = 16,
        /// Maximum number of retries at a meta manager after "not authorized".
        not_authorized_retry_limit "NotAuthorizedRetryLimit" = 3,
        /// Maximum number of retries of a failed write at a manager that allows them.
        retry_wrt_at_lb_limit "RetryWrtAtLBLimit" = 3,
        /// Keeps only `tried` and `triedrc` of a redirect's cgi in a locate.
        preserve_locate_tried "PreserveLocateTried" = 1,
        /// Size of a chunk of a copy in bytes.
        cp_chunk_size "CPChunkSize" = 8_388_608,
        /// Chunks of a copy in flight for each stream.
        cp_parallel_chunks "CPParallelChunks" = 4,
        /// Seconds for the setup of a third-party copy.
        cp_init_timeout "CPInitTimeout" = 600,
        /// Seconds for a third-party copy.
        cp_tpc_timeout "CPTPCTimeout" = 1800,
        /// Seconds for a copy; 0: no limit.
        cp_timeout "CPTimeout" = 0,
        /// Number of retries of a failed copy.
        cp_retry "CpRetry" = 0,
        /// Uses `kXR_pgread` and `kXR_pgwrite` in copies where the server supports them.
        cp_use_pg_wrt_rd "CpUsePgWrtRd" = 1,
        /// Size of a block of a copy from several sources in bytes.
        xcp_block_size "XCpBlockSize" = 134_217_728,
        /// Minimum rate of a copy in bytes per second; 0: none.
        xrate_threshold "XRateThreshold" = 0,
        /// Sends keep-alive probes.
        tcp_keep_alive "TCPKeepAlive" = 0,
        /// Seconds of silence before the first probe.
        tcp_keep_alive_time "TCPKeepAliveTime" = 7200,
        /// Seconds between probes.
        tcp_keep_alive_interval "TCPKeepAliveInterval" = 75,
        /// Unanswered probes after which the connection is lost.
        tcp_keep_alive_probes "TCPKeepAliveProbes" = 9,
        /// Sends small requests without delay.
        no_delay "NoDelay" = 1,
        /// Tries addresses in the order of the resolver.
        ip_no_shuffle "IPNoShuffle" = 0,
        /// Tries IPv4 addresses first.
        prefer_ipv4 "PreferIPv4" = 0,
        /// No effect: only one protocol is supported.
        multi_protocol "MultiProtocol" = 0,
        /// No effect: signals are not used.
        aio_signal "AioSignal" = 0,
        /// Reads metalinks.
        metalink_processing "MetalinkProcessing" = 1,
        /// No effect: local metalinks are read like others.
        local_metalink_file "LocalMetalinkFile" = 0,
        /// Seconds for reading a metalink from a server.
        max_metalink_wait "MaxMetalinkWait" = 60,
        /// Applies the checksum of a metalink to a ZIP member.
        zip_mtln_cksum "ZipMtlnCksum" = 0,
        /// Allows `roots` without TLS.
        no_tls_ok "NoTlsOK" = 0,
        /// Keeps data streams unencrypted.
        tls_no_data "TlsNoData" = 0,
        /// Converts URLs of metalinks to `roots`.
        tls_metalink "TlsMetalink" = 0,
        /// Requests TLS where page checksums are not supported.
        want_tls_on_no_pgrw "WantTlsOnNoPgrw" = 0,
        /// Copies extended attributes.
        preserve_xattrs "PreserveXAttrs" = 0,
        /// Syncs local targets to disk before a copy is complete. XRootD has no such setting.
        cp_sync "CpSync" = 1,
        /// Seconds that a manager which has started a short time ago has until all its servers have
        /// joined, before a synchronization with deletions fails. XRootD has no such setting.
        formation_window "FormationWindow" = 30,
    }
    texts {
        /// `IPAuto`, `IPAll`, `IPv4`, `IPv6`, `IPv4Mapped6`.
        network_stack "NetworkStack" = "IPAuto",
        /// No effect: sockets are always polled with epoll.
        poller_preference "PollerPreference" = "built-in",
        /// Retries an open at another server.
        open_recovery "OpenRecovery" = "true",
        /// Reopens a file that is open for reading after a lost connection.
        read_recovery "ReadRecovery" = "true",
        /// Reopens a file that is open for writing after a lost connection.
        write_recovery "WriteRecovery" = "true",
        /// Plug-in for monitoring; not supported.
        client_monitor "ClientMonitor" = "",
        /// Parameter of the plug-in for monitoring; not supported.
        client_monitor_param "ClientMonitorParam" = "",
        /// Plug-in; not supported.
        plug_in "PlugIn" = "",
        /// Directory of plug-ins; not supported.
        plug_in_conf_dir "PlugInConfDir" = "",
        /// Redirector of global logical file names.
        glfn_redirector "GlfnRedirector" = "",
        /// Default target of copies.
        cp_target "CpTarget" = "",
        /// `force` or `continue`.
        cp_retry_policy "CpRetryPolicy" = "force",
        /// Detail of messages about TLS.
        tls_dbg_lvl "TlsDbgLvl" = "OFF",
        /// Name of the program, sent to servers.
        app_name "AppName" = "",
        /// Text for the monitoring of servers.
        mon_info "MonInfo" = "",
    }
}

fn number(name: &'static str, value: &str) -> Result<u64, SettingError> {
    value.trim().parse().map_err(|_| SettingError::NoNumber { name, value: value.to_owned() })
}

impl Settings {
    /// Returns the settings of this process: files, then the environment. [`Settings::problems`]
    /// returns the refused values.
    #[must_use]
    pub fn of_process() -> Self {
        let mut settings = Self::default();
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        settings.read(Path::new("/etc/xrootd/client.conf"));
        let directory = variable("XRD_CLCONFDIR").unwrap_or_else(|| "/etc/xrootd/client.conf.d".to_owned());
        settings.read_directory(Path::new(&directory));
        if let Some(home) = variable("HOME") {
            settings.read(&Path::new(&home).join(".xrootd/client.conf"));
        }
        if let Some(file) = variable("XRD_CLCONFFILE") {
            settings.read(Path::new(&file));
        }
        settings.take_environment(|name| variable(name));
        settings.note_plug_ins();
        settings
    }

    /// Records configured plug-ins as problems: they are C++ libraries for XRootD's own client.
    fn note_plug_ins(&mut self) {
        for name in ["ClientMonitor", "PlugIn", "PlugInConfDir"] {
            if let Source::File(..) | Source::Environment = self.source(name) {
                let place = match self.source(name) {
                    Source::Environment => format!("XRD_{}", name.to_ascii_uppercase()),
                    file => format!("{file}: {name}"),
                };
                self.problems.push(format!(
                    "{place}: plug-ins are C++ libraries for XRootD's own client, none is loaded; unset it"
                ));
            }
        }
    }

    /// Takes `XRD_NAME` for each setting for which `variable` returns a value.
    pub fn take_environment(&mut self, variable: impl Fn(&str) -> Option<String>) {
        for name in Self::NAMES {
            let key = format!("XRD_{}", name.to_ascii_uppercase());
            let Some(value) = variable(&key) else { continue };
            if let Err(error) = self.set(name, &value, Source::Environment) {
                self.problems.push(format!("{key}: {error}"));
            }
        }
    }

    /// Reads a file; a missing file is skipped.
    pub fn read(&mut self, path: &Path) {
        match std::fs::read_to_string(path) {
            Ok(text) => self.take_text(path, &text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => self.problems.push(format!("{}: {error}", path.display())),
        }
    }

    fn read_directory(&mut self, directory: &Path) {
        let Ok(entries) = std::fs::read_dir(directory) else { return };
        let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.retain(|path| path.extension().is_some_and(|extension| extension == "conf"));
        files.sort();
        for file in files {
            self.read(&file);
        }
    }

    /// Takes the lines of a file. Unknown names are ignored because plug-ins use them.
    pub fn take_text(&mut self, path: &Path, text: &str) {
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let Some((name, value)) = line.split_once('=') else { continue };
            let source = Source::File(path.to_owned(), index + 1);
            match self.set(name.trim(), value.trim(), source) {
                Err(error @ SettingError::NoNumber { .. }) => {
                    self.problems.push(format!("{}:{}: {error}", path.display(), index + 1));
                }
                Ok(()) | Err(SettingError::Unknown(_)) => {}
            }
        }
    }

    /// Returns the source of a setting.
    #[must_use]
    pub fn source(&self, name: &str) -> Source {
        let found = self.sources.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map_or(Source::Default, |(_, source)| source.clone())
    }

    /// Reports whether a source other than the default has set the value.
    #[must_use]
    pub fn is_set(&self, name: &str) -> bool {
        self.source(name) != Source::Default
    }

    /// Returns the problems with refused values, one line each.
    #[must_use]
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Returns the timeout of a whole operation.
    #[must_use]
    pub fn operation_time(&self) -> Duration {
        Duration::from_secs(self.request_timeout.max(1))
    }

    /// Returns the silence after which a connection counts as lost.
    #[must_use]
    pub fn silence(&self) -> Duration {
        Duration::from_secs(self.stream_timeout.max(1))
    }

    /// Reports whether a recovery switch is on: each value but `false` is.
    #[must_use]
    pub fn is_on(switch: &str) -> bool {
        !switch.eq_ignore_ascii_case("false")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_sources_win_and_are_remembered() {
        let mut settings = Settings::default();
        let file = Path::new("client.conf");
        settings.take_text(file, "# a comment\nStreamTimeout = 7\nredirectlimit=3 # few\nMyPlugin = x\n");
        assert_eq!((settings.stream_timeout, settings.redirect_limit), (7, 3));
        assert_eq!(settings.source("StreamTimeout").to_string(), "client.conf:2");
        settings.take_environment(|name| (name == "XRD_STREAMTIMEOUT").then(|| "8".to_owned()));
        assert_eq!((settings.stream_timeout, settings.source("streamtimeout")), (8, Source::Environment));
        settings.set("StreamTimeout", "9", Source::Option).unwrap();
        assert_eq!(settings.silence(), Duration::from_secs(9));
        assert_eq!(settings.source("ConnectionWindow"), Source::Default);
        assert!(settings.problems().is_empty());
    }

    #[test]
    fn invalid_numbers_are_reported_and_ignored() {
        let mut settings = Settings::default();
        settings.take_environment(|name| (name == "XRD_CPCHUNKSIZE").then(|| "8M".to_owned()));
        assert_eq!(settings.cp_chunk_size, 8_388_608);
        assert_eq!(settings.problems(), ["XRD_CPCHUNKSIZE: `CPChunkSize` is a number, not `8M`"]);
        settings.take_text(Path::new("f"), "NoDelay = yes");
        assert_eq!(settings.problems().len(), 2);
        assert_eq!(
            settings.set("Nothing", "1", Source::Option),
            Err(SettingError::Unknown("Nothing".into()))
        );
    }

    #[test]
    fn configured_plug_ins_are_reported_as_not_loaded() {
        let mut settings = Settings::default();
        settings.note_plug_ins();
        assert!(settings.problems().is_empty());
        settings.take_environment(|name| (name == "XRD_CLIENTMONITOR").then(|| "libMonitor.so".to_owned()));
        settings.take_text(Path::new("client.conf"), "PlugIn = libOther.so");
        settings.note_plug_ins();
        let [monitor, plug_in] = settings.problems() else { panic!("{:?}", settings.problems()) };
        assert!(monitor.starts_with("XRD_CLIENTMONITOR: plug-ins are"), "{monitor}");
        assert!(plug_in.starts_with("client.conf:1: PlugIn: plug-ins are"), "{plug_in}");
    }

    #[test]
    fn every_name_can_be_set_and_is_listed() {
        let mut settings = Settings::default();
        for name in Settings::NAMES {
            settings.set(name, "5", Source::Option).unwrap();
        }
        assert!(settings.all().iter().all(|(_, value, source)| value == "5" && *source == Source::Option));
        assert_eq!(settings.all().len(), Settings::NAMES.len());
    }
}
