//! What can be tuned, under the names that users of XRootD know, and where each value comes from.
//!
//! A setting NAME is taken from `/etc/xrootd/client.conf`, the files `*.conf` of `/etc/xrootd/client.conf.d` (or of the
//! folder that `XRD_CLCONFDIR` names), `~/.xrootd/client.conf`, the file that `XRD_CLCONFFILE` names, the environment
//! variable `XRD_NAME`, and the command line; later ones win. Lines of files are `name = value`; `#` begins a comment.
//!
//! Defaults are ours where a failure would otherwise take half an hour to show: a server that is not there is given up
//! after seconds. A value that is set means what it always meant.
//! Source: xroot protocol 5.2.0, section 5.3.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where a value comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// Nobody set it.
    Default,
    /// A line of a file.
    File(PathBuf, usize),
    /// The variable `XRD_…`.
    Environment,
    /// The program's own options.
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

/// Why a value was not taken.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SettingError {
    /// No setting has this name.
    #[error("`{0}` is no setting of the client")]
    Unknown(String),
    /// A number is needed.
    #[error("`{name}` is a number, not `{value}`")]
    NoNumber {
        /// The setting.
        name: &'static str,
        /// What was given.
        value: String,
    },
}

macro_rules! settings {
    (
        numbers { $($(#[$number_doc:meta])* $number:ident $number_name:literal = $number_default:literal,)* }
        texts { $($(#[$text_doc:meta])* $text:ident $text_name:literal = $text_default:literal,)* }
    ) => {
        /// All settings. Numbers are seconds, bytes or counts as their documentation says; 0 and 1 where they switch.
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
            /// The names of all settings, as files spell them.
            pub const NAMES: &[&str] = &[$($number_name,)* $($text_name,)*];

            /// Sets one; upper and lower case make no difference.
            ///
            /// # Errors
            /// [`SettingError`]; nothing has changed then.
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

            /// Every setting: its name, its value, and where that comes from.
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
        /// Seconds for one round of attempts to connect to all addresses of a host, login included.
        connection_window "ConnectionWindow" = 10,
        /// Rounds before a host is given up.
        connection_retry "ConnectionRetry" = 2,
        /// Seconds for an operation as a whole, waits that servers ask for included.
        request_timeout "RequestTimeout" = 1800,
        /// Seconds without a byte from a server that owes answers, after which the connection counts as broken.
        stream_timeout "StreamTimeout" = 30,
        /// Seconds for which a host that could not be reached is not tried again.
        stream_error_window "StreamErrorWindow" = 2,
        /// Seconds between checks of time-outs; checks here are exact, so it has no effect.
        timeout_resolution "TimeoutResolution" = 15,
        /// 1: the control connection only; n: n - 1 more that carry data.
        sub_streams_per_channel "SubStreamsPerChannel" = 1,
        /// Threads that drive connections: one, unless it is set. Where the runtime is the caller's own, it has no effect.
        parallel_evt_loop "ParallelEvtLoop" = 10,
        /// Threads for what is done with data, writing and checksums: at most 4, and as many as processors, unless it is set.
        worker_threads "WorkerThreads" = 3,
        /// Whether to survive `fork`; always done.
        run_fork_handler "RunForkHandler" = 1,
        /// Seconds after which an unused connection to a data server is closed.
        data_server_ttl "DataServerTTL" = 300,
        /// Seconds after which an unused connection to a manager is closed.
        load_balancer_ttl "LoadBalancerTTL" = 1200,
        /// Most bytes of a listing; an entry counts as 32 bytes at least.
        listing_bytes "ListingBytes" = 40_000_000,
        /// Most redirects of one request.
        redirect_limit "RedirectLimit" = 16,
        /// Most retries at a meta manager after "not authorized".
        not_authorized_retry_limit "NotAuthorizedRetryLimit" = 3,
        /// Most retries of a failed write at a manager that allows them.
        retry_wrt_at_lb_limit "RetryWrtAtLBLimit" = 3,
        /// Whether a locate keeps only `tried` and `triedrc` of a redirect's cgi.
        preserve_locate_tried "PreserveLocateTried" = 1,
        /// Bytes of a chunk of a copy.
        cp_chunk_size "CPChunkSize" = 8_388_608,
        /// Chunks of a copy in flight, for each stream.
        cp_parallel_chunks "CPParallelChunks" = 4,
        /// Seconds to set a third-party copy up.
        cp_init_timeout "CPInitTimeout" = 600,
        /// Seconds for a third-party copy.
        cp_tpc_timeout "CPTPCTimeout" = 1800,
        /// Seconds for a copy; 0: no limit.
        cp_timeout "CPTimeout" = 0,
        /// How often a failed copy is repeated.
        cp_retry "CpRetry" = 0,
        /// Whether copies use `kXR_pgread` and `kXR_pgwrite` where the server can.
        cp_use_pg_wrt_rd "CpUsePgWrtRd" = 1,
        /// Bytes of a block of a copy from several sources.
        xcp_block_size "XCpBlockSize" = 134_217_728,
        /// Least rate of a copy, bytes per second; 0: none.
        xrate_threshold "XRateThreshold" = 0,
        /// Whether to send keep-alive probes.
        tcp_keep_alive "TCPKeepAlive" = 0,
        /// Seconds of silence before the first probe.
        tcp_keep_alive_time "TCPKeepAliveTime" = 7200,
        /// Seconds between probes.
        tcp_keep_alive_interval "TCPKeepAliveInterval" = 75,
        /// Unanswered probes before the connection is broken.
        tcp_keep_alive_probes "TCPKeepAliveProbes" = 9,
        /// Whether small requests leave at once.
        no_delay "NoDelay" = 1,
        /// Whether addresses are tried in the resolver's order.
        ip_no_shuffle "IPNoShuffle" = 0,
        /// Whether IPv4 addresses come first.
        prefer_ipv4 "PreferIPv4" = 0,
        /// Without effect: there is one protocol.
        multi_protocol "MultiProtocol" = 0,
        /// Without effect: no signals are used.
        aio_signal "AioSignal" = 0,
        /// Whether metalinks are read.
        metalink_processing "MetalinkProcessing" = 1,
        /// Without effect: metalinks of this machine are read like others.
        local_metalink_file "LocalMetalinkFile" = 0,
        /// Seconds for reading a metalink itself from a server.
        max_metalink_wait "MaxMetalinkWait" = 60,
        /// Whether a metalink's checksum is that of a ZIP member.
        zip_mtln_cksum "ZipMtlnCksum" = 0,
        /// Whether `roots` may go on without TLS.
        no_tls_ok "NoTlsOK" = 0,
        /// Whether data streams stay clear.
        tls_no_data "TlsNoData" = 0,
        /// Whether URLs of metalinks become `roots`.
        tls_metalink "TlsMetalink" = 0,
        /// Whether TLS is wanted where page checksums are not to be had.
        want_tls_on_no_pgrw "WantTlsOnNoPgrw" = 0,
        /// Whether copies keep extended attributes.
        preserve_xattrs "PreserveXAttrs" = 0,
        /// Whether copies to this machine are on its disk before they count as done. XRootD has no such setting.
        cp_sync "CpSync" = 1,
    }
    texts {
        /// `IPAuto`, `IPAll`, `IPv4`, `IPv6`, `IPv4Mapped6`.
        network_stack "NetworkStack" = "IPAuto",
        /// Without effect: there is one way to wait for sockets.
        poller_preference "PollerPreference" = "built-in",
        /// Whether an open is tried again elsewhere.
        open_recovery "OpenRecovery" = "true",
        /// Whether a file open for reading is opened again when its connection is lost.
        read_recovery "ReadRecovery" = "true",
        /// Whether a file open for writing is opened again when its connection is lost.
        write_recovery "WriteRecovery" = "true",
        /// Plug-in for monitoring; not supported.
        client_monitor "ClientMonitor" = "",
        /// Its parameter.
        client_monitor_param "ClientMonitorParam" = "",
        /// Plug-in; not supported.
        plug_in "PlugIn" = "",
        /// Folder of plug-ins; not supported.
        plug_in_conf_dir "PlugInConfDir" = "",
        /// Redirector of global logical file names.
        glfn_redirector "GlfnRedirector" = "",
        /// Target of copies.
        cp_target "CpTarget" = "",
        /// `force` or `continue`.
        cp_retry_policy "CpRetryPolicy" = "force",
        /// Detail of messages about TLS.
        tls_dbg_lvl "TlsDbgLvl" = "OFF",
        /// Name of the program, told to servers.
        app_name "AppName" = "",
        /// Text for the monitoring of servers.
        mon_info "MonInfo" = "",
    }
}

fn number(name: &'static str, value: &str) -> Result<u64, SettingError> {
    value.trim().parse().map_err(|_| SettingError::NoNumber { name, value: value.to_owned() })
}

impl Settings {
    /// Those of this process: files, then the environment. What could not be taken is told by [`Settings::problems`].
    #[must_use]
    pub fn of_process() -> Self {
        let mut settings = Self::default();
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        settings.read(Path::new("/etc/xrootd/client.conf"));
        let folder = variable("XRD_CLCONFDIR").unwrap_or_else(|| "/etc/xrootd/client.conf.d".to_owned());
        settings.read_folder(Path::new(&folder));
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

    /// Plug-ins are C++ libraries made for XRootD's own client.
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

    /// Takes `XRD_NAME` for every setting that `variable` knows.
    pub fn take_environment(&mut self, variable: impl Fn(&str) -> Option<String>) {
        for name in Self::NAMES {
            let key = format!("XRD_{}", name.to_ascii_uppercase());
            let Some(value) = variable(&key) else { continue };
            if let Err(error) = self.set(name, &value, Source::Environment) {
                self.problems.push(format!("{key}: {error}"));
            }
        }
    }

    /// Reads a file; one that is not there is skipped.
    pub fn read(&mut self, path: &Path) {
        match std::fs::read_to_string(path) {
            Ok(text) => self.take_text(path, &text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => self.problems.push(format!("{}: {error}", path.display())),
        }
    }

    fn read_folder(&mut self, folder: &Path) {
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.retain(|path| path.extension().is_some_and(|extension| extension == "conf"));
        files.sort();
        for file in files {
            self.read(&file);
        }
    }

    /// Takes the lines of a file. Names that are no setting are left alone: plug-ins have theirs.
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

    /// Where the value of a setting comes from.
    #[must_use]
    pub fn source(&self, name: &str) -> Source {
        let found = self.sources.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map_or(Source::Default, |(_, source)| source.clone())
    }

    /// Whether somebody set it.
    #[must_use]
    pub fn is_set(&self, name: &str) -> bool {
        self.source(name) != Source::Default
    }

    /// What could not be taken, a line each.
    #[must_use]
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// The time for an operation as a whole.
    #[must_use]
    pub fn operation_time(&self) -> Duration {
        Duration::from_secs(self.request_timeout.max(1))
    }

    /// The silence after which a connection counts as broken.
    #[must_use]
    pub fn silence(&self) -> Duration {
        Duration::from_secs(self.stream_timeout.max(1))
    }

    /// Whether a recovery switch is on: everything but `false` is.
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
    fn what_is_no_number_is_told_and_changes_nothing() {
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
    fn plug_ins_that_are_asked_for_are_told_not_to_be_loaded() {
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
