//! Pulls files with a program of the site (`ofs.tpc pgm`), which writes the destination's file
//! itself.
//!
//! It is run as `PROGRAM [its arguments] [-C checksum] [-S streams] URL FILE`, with `XRDTPC=1` and the
//! protocols of logins (`XRDSECPROTOCOLS`) in its environment, so that programs written for XRootD can be used. Its last line of output is the
//! reason if it fails.
//!
//! The program opens the file by its name, which a client may give to another file meanwhile. So
//! the name and the open file of the destination are compared before the program starts, while it
//! runs and after it. A copy whose file was renamed or replaced fails.

use super::fetcher::{PullCancel, SharedThreads, until_cancelled};
use super::outbound::{ClientOutbound, Outbound};
use super::program_environment::ProgramEnvironment;
use base::{Error, ErrorKind};
use config::{CopyProgram, CopyScan};
use logical::{Fetcher, RunningTransfer, TransferCompletion, TransferRequest, TransferResult, TransferSink};
use rustix::process::{Pid, Signal, kill_process_group};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The interval between two checks of the file's growth.
const LOOK: Duration = Duration::from_secs(2);
/// The deadline of the name service.
const RESOLVING: Duration = Duration::from_secs(30);
/// The time between the signals TERM and KILL.
const ENDING: Duration = Duration::from_secs(5);
/// The time for which the output is read after the end of the program, because a child process may
/// hold it open.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Maximum number of bytes kept of a line of output.
const LINE_BYTES_MAX: usize = 1024;

/// Runs the program.
pub(crate) struct ProgramPuller {
    program: CopyProgram,
    scan: CopyScan,
    echo: bool,
    threads: SharedThreads,
    outbound: Outbound,
    environment: ProgramEnvironment,
}

impl ProgramPuller {
    /// Creates it with the policy for its connections, and the environment of the program.
    pub(crate) fn new(
        program: CopyProgram,
        scan: CopyScan,
        echo: bool,
        outbound: Outbound,
        environment: ProgramEnvironment,
    ) -> Self {
        Self { program, scan, echo, threads: SharedThreads::default(), outbound, environment }
    }

    /// Builds the command line, for a source at that host and port. Source and destination cannot
    /// be mistaken for options: one is a URL, the other an absolute path.
    fn command(program: &CopyProgram, fetch: &TransferRequest, source: &str, file: &Path) -> Command {
        let mut command = Command::new(&program.path);
        command.args(&program.arguments);
        if let Some(algorithm) = fetch.checksum {
            command.args(["-C", algorithm.name()]);
        }
        if fetch.streams > 0 {
            command.args(["-S", &fetch.streams.to_string()]);
        }
        command.arg(source_url(fetch, source)).arg(file);
        command.env("XRDTPC", "1").env("XRD_TIDENT", &fetch.client);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        command
    }
}

fn source_url(fetch: &TransferRequest, source: &str) -> String {
    let TransferRequest { path, cgi, key, origins, encrypted, .. } = fetch;
    let scheme = if *encrypted { "xroots" } else { "xroot" };
    let origin = origins.first().map(String::as_str).unwrap_or_default();
    let grant = key.as_ref().map(|key| format!("tpc.key={key}&tpc.org={origin}"));
    let parts: Vec<&str> =
        [cgi.as_str()].into_iter().chain(grant.as_deref()).filter(|part| !part.is_empty()).collect();
    let mark = if parts.is_empty() { "" } else { "?" };
    format!("{scheme}://{source}/{path}{mark}{}", parts.join("&"))
}

impl Fetcher for ProgramPuller {
    fn start(
        &self,
        fetch: TransferRequest,
        sink: Arc<dyn TransferSink>,
        finish: TransferCompletion,
    ) -> Box<dyn RunningTransfer> {
        let (cancel, cancelled) = watch::channel(false);
        let running = Box::new(PullCancel(cancel));
        let Some(threads) = self.threads.get() else {
            finish.done(Err(Error::new(ErrorKind::NoMemory, "there are no threads for it")));
            return running;
        };
        let path = match path_of(sink.as_ref()) {
            Ok(path) => path,
            Err(error) => {
                finish.done(Err(error));
                return running;
            }
        };
        let (program, environment) = (self.program.clone(), self.environment.clone());
        let (scan, echo) = (self.scan, self.echo);
        let outbound = self.outbound.for_client(fetch.client_address);
        threads.spawn(async move {
            let source = match check_source(&fetch.source, &outbound).await {
                Ok(source) => source,
                Err(error) => return finish.done(Err(error)),
            };
            let mut command = Self::command(&program, &fetch, &source, &path);
            let credentials = fetch.credentials.as_deref();
            let file = match tokio::task::block_in_place(|| environment.apply(&mut command, credentials)) {
                Ok(file) => file,
                Err(error) => return finish.done(Err(error)),
            };
            let name = program.path.display().to_string();
            let run = CopyProgramRun { name, scan, echo, size: fetch.size, path };
            let result = run.run(command, cancelled, sink.as_ref()).await;
            tokio::task::block_in_place(|| drop(file));
            finish.done(result);
        });
        running
    }
}

/// Checks each address of the source, because the program chooses one by itself. Returns the host
/// and port for the program: the name from the client, or the address to connect to instead.
async fn check_source(source: &str, outbound: &ClientOutbound) -> Result<String, Error> {
    let fail = |why: &str| Error::new(ErrorKind::FsError, format!("Unable to find {source}; {why}"));
    let split = source.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let (host, port) = split.ok_or_else(|| fail("it has no port"))?;
    let found = tokio::time::timeout(RESOLVING, outbound.resolver().resolve(host, port)).await;
    let silent = || fail("the name service does not answer");
    let found = found.map_err(|_| silent())?.map_err(|why| fail(&why))?;
    let mut instead = None;
    for address in found {
        let ip = address.ip().to_canonical();
        let chosen = outbound.choose(host, ip).map_err(|why| Error::new(ErrorKind::FsError, why))?;
        let other = chosen.first().filter(|chosen| **chosen != ip);
        instead = instead.or(other.map(|chosen| SocketAddr::new(*chosen, address.port()).to_string()));
    }
    Ok(instead.unwrap_or_else(|| source.to_owned()))
}

fn descriptor(sink: &dyn TransferSink) -> Result<BorrowedFd<'_>, Error> {
    sink.descriptor().ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, "a program can only write files on disk; leave ofs.tpc pgm out")
    })
}

/// Returns the current path of the destination's file.
fn path_of(sink: &dyn TransferSink) -> Result<PathBuf, Error> {
    let link = format!("/proc/self/fd/{}", descriptor(sink)?.as_raw_fd());
    std::fs::read_link(link).map_err(|e| Error::unable_named("find", "the destination's file", e))
}

/// Returns the size of the destination's file, or an error if `path` is no longer its name. May
/// block.
fn bytes_of(sink: &dyn TransferSink, path: &Path) -> Result<u64, Error> {
    let fail =
        |error: rustix::io::Errno| Error::unable_named("look at", "the destination's file", error.into());
    let open = rustix::fs::fstat(descriptor(sink)?).map_err(fail)?;
    let named = rustix::fs::lstat(path).ok();
    if named.is_none_or(|named| (named.st_dev, named.st_ino) != (open.st_dev, open.st_ino)) {
        let text = "the destination's file was renamed or replaced during the copy; copy it again";
        return Err(Error::new(ErrorKind::FsError, text));
    }
    Ok(u64::try_from(open.st_size).unwrap_or_default())
}

/// One run of the program.
struct CopyProgramRun {
    name: String,
    scan: CopyScan,
    echo: bool,
    /// The expected size.
    size: Option<u64>,
    path: PathBuf,
}

impl CopyProgramRun {
    async fn run(
        self,
        mut command: Command,
        mut cancelled: watch::Receiver<bool>,
        sink: &dyn TransferSink,
    ) -> Result<TransferResult, Error> {
        let fail = |error| Error::unable_named("run", &self.name, error);
        let mut size = self.bytes(sink)?;
        let mut child = command.spawn().map_err(fail)?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let words = [
            listen(child.stdout.take(), self.echo, &self.name),
            listen(child.stderr.take(), self.echo, &self.name),
        ];
        let status = loop {
            tokio::select! {
                status = child.wait() => break status.map_err(fail)?,
                () = until_cancelled(&mut cancelled) => {
                    end(&mut child, group).await;
                    return Err(Error::new(ErrorKind::Cancelled, "cancelled"));
                }
                () = tokio::time::sleep(LOOK) => {
                    let now = match self.bytes(sink) {
                        Ok(now) => now,
                        Err(error) => {
                            end(&mut child, group).await;
                            return Err(error);
                        }
                    };
                    if now != size {
                        sink.moved(now.saturating_sub(size));
                        size = now;
                    }
                }
            }
        };
        if !status.success() {
            // Child processes of the program must not write after the file is released.
            kill(group, Signal::KILL);
            let text = self.last_words(words).await.unwrap_or_else(|| match status.code() {
                Some(code) => format!("Copy failed with return code {code}"),
                None => format!("Copy failed: {status}"),
            });
            return Err(Error::new(ErrorKind::FsError, text));
        }
        let bytes = self.bytes(sink)?;
        match self.size {
            Some(wanted) if wanted != bytes => {
                let text = format!("{} ended well with {bytes} of {wanted} bytes", self.name);
                Err(Error::new(ErrorKind::FsError, text))
            }
            _ => Ok(TransferResult { bytes, checksum: None, verified: true }),
        }
    }

    /// Checks the file with `block_in_place`, so that it blocks no other task of this thread.
    fn bytes(&self, sink: &dyn TransferSink) -> Result<u64, Error> {
        tokio::task::block_in_place(|| bytes_of(sink, &self.path))
    }

    /// Returns the last line of the scanned outputs. The error output has precedence.
    async fn last_words(&self, [stdout, stderr]: [JoinHandle<String>; 2]) -> Option<String> {
        let hear = async |words: JoinHandle<String>| {
            tokio::time::timeout(LAST_WORDS, words)
                .await
                .ok()
                .and_then(Result::ok)
                .filter(|line| !line.is_empty())
        };
        let (stdout, stderr) = (hear(stdout).await, hear(stderr).await);
        match self.scan {
            CopyScan::All => stderr.or(stdout),
            CopyScan::Stderr => stderr,
            CopyScan::Stdout => stdout,
        }
    }
}

/// Reads an output and returns its last line with text.
fn listen(
    output: Option<impl AsyncRead + Send + Unpin + 'static>,
    echo: bool,
    name: &str,
) -> JoinHandle<String> {
    let name = name.to_owned();
    tokio::spawn(async move {
        let mut last = String::new();
        let Some(output) = output else { return last };
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        // A progress bar ends its lines with a carriage return, and may never write a newline.
        while let Ok(read) = read_line(&mut output, &mut line).await {
            let text = String::from_utf8_lossy(&line);
            let text = text.rsplit('\r').find(|part| !part.trim().is_empty()).unwrap_or_default();
            let text: String = text.trim().chars().filter(|c| !c.is_control()).collect();
            if !text.is_empty() {
                if echo {
                    tracing::info!("{name}: {text}");
                }
                // The prefix of the stock program precedes the reason.
                last = text.strip_prefix("Run: ").unwrap_or(&text).to_owned();
            }
            if read == 0 {
                break;
            }
            line.clear();
        }
        last
    })
}

/// Reads up to the end of a line or [`LINE_BYTES_MAX`] and discards the rest of the line. Returns 0
/// at the end.
async fn read_line(output: &mut (impl AsyncBufRead + Unpin), line: &mut Vec<u8>) -> std::io::Result<usize> {
    let mut total = 0;
    loop {
        let available = output.fill_buf().await?;
        let end = available.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(available.len(), |end| end + 1);
        let room = LINE_BYTES_MAX.saturating_sub(line.len());
        line.extend_from_slice(available.get(..used.min(room)).unwrap_or_default());
        output.consume(used);
        total += used;
        if end.is_some() || used == 0 {
            return Ok(total);
        }
    }
}

fn kill(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        kill_process_group(group, signal).ok();
    }
}

/// Ends the program and its child processes.
async fn end(child: &mut Child, group: Option<Pid>) {
    kill(group, Signal::TERM);
    if tokio::time::timeout(ENDING, child.wait()).await.is_err() {
        kill(group, Signal::KILL);
        child.wait().await.ok();
    } else {
        kill(group, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use auth::tls::TrustAnchors;
    use config::CopySources;
    use logical::{Bytes, Written};
    use std::fs::File;
    use std::net::{IpAddr, Ipv4Addr};
    use std::os::fd::AsFd as _;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;

    /// A destination on disk.
    struct Destination(File);

    impl TransferSink for Destination {
        fn write(&self, _: u64, _: Bytes, then: Written) {
            then(Err(Error::new(ErrorKind::Unsupported, "the program writes by itself")));
        }

        fn descriptor(&self) -> Option<BorrowedFd<'_>> {
            Some(self.0.as_fd())
        }

        fn moved(&self, _: u64) {}
    }

    fn request() -> TransferRequest {
        TransferRequest {
            source: "127.0.0.1:1".to_owned(),
            encrypted: false,
            path: "/theirs".to_owned(),
            cgi: String::new(),
            key: Some("k".to_owned()),
            origins: vec!["a.1@h".to_owned()],
            credentials: None,
            streams: 0,
            size: None,
            checksum: None,
            destination: "/f".to_owned(),
            client: "alice.1@host".to_owned(),
            client_address: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        }
    }

    /// Returns the result of a copy by a shell script, which finds the path of the destination in
    /// `$f`.
    fn copied(script: &str) -> Result<TransferResult, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("scalla-program-{}-{number}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let file = File::create_new(directory.join("f")).unwrap();
        std::fs::write(directory.join("other"), "before").unwrap();
        let script = format!("for f; do :; done; cd ${{f%/f}} || exit; {script}");
        let arguments = ["-c", &script, "sh"].map(str::to_owned).to_vec();
        let program = CopyProgram { path: "/bin/sh".into(), arguments };
        let outbound = Outbound::new(CopySources::default(), "here");
        let trusted = TrustAnchors { directory: Some("/trusted".into()), file: None };
        let environment = ProgramEnvironment {
            trusted: Some(trusted),
            variable: None,
            directory: directory.clone(),
            login_protocols: ["gsi", "krb5"].map(str::to_owned).to_vec(),
        };
        let runner = ProgramPuller::new(program, CopyScan::All, false, outbound, environment);
        let (tell, result) = mpsc::channel();
        let finish = TransferCompletion::new(move |result| tell.send(result).unwrap());
        let _running = runner.start(request(), Arc::new(Destination(file)), finish);
        let result = result.recv().unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        result.map_err(|error| error.text)
    }

    #[test]
    fn a_program_writes_the_file_of_the_destination() {
        assert_eq!(copied("printf 12345 > $f").unwrap().bytes, 5);
    }

    /// A client that relies on its credentials has no grant at the source.
    #[test]
    fn a_program_gets_the_grant_of_its_client() {
        let url = |key: Option<&str>, cgi: &str| {
            source_url(
                &TransferRequest { key: key.map(str::to_owned), cgi: cgi.to_owned(), ..request() },
                "s:1",
            )
        };
        assert_eq!(url(Some("k"), ""), "xroot://s:1//theirs?tpc.key=k&tpc.org=a.1@h");
        assert_eq!(url(Some("k"), "x=1"), "xroot://s:1//theirs?x=1&tpc.key=k&tpc.org=a.1@h");
        assert_eq!(url(None, "x=1"), "xroot://s:1//theirs?x=1");
        assert_eq!(url(None, ""), "xroot://s:1//theirs");
        let encrypted = TransferRequest { encrypted: true, ..request() };
        assert_eq!(source_url(&encrypted, "s:1"), "xroots://s:1//theirs?tpc.key=k&tpc.org=a.1@h");
    }

    #[test]
    fn a_program_finds_the_authorities_in_its_environment() {
        assert_eq!(copied("printf %s $X509_CERT_DIR > $f").unwrap().bytes, "/trusted".len() as u64);
    }

    #[test]
    fn a_program_knows_the_protocols_of_logins() {
        let script = "printf '%s.%s' \"$XRDSECPROTOCOLS\" \"${XRDTPCDLG-none}\" > $f";
        assert_eq!(copied(script).unwrap().bytes, ":gsi:krb5.none".len() as u64);
    }

    #[test]
    fn a_copy_fails_when_its_file_has_another_name() {
        let failure = "the destination's file was renamed or replaced during the copy; copy it again";
        for script in [
            // The client renames the file and gives its name to another one.
            "mv f g; mv other f; printf 12345 > $f",
            "mv f g; printf 12345 > $f",
            "mv f g; printf 12345 > g",
            "mv f g; ln -s g f; printf 12345 > $f",
            "rm f; printf 12345 > $f",
            // The program waits and is ended.
            "mv f g; mv other f; exec sleep 600",
        ] {
            assert_eq!(copied(script).unwrap_err(), failure, "{script}");
        }
    }
}
