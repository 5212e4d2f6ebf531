//! Loads with authentication and TLS, and the certificates and keys that they need.
//!
//! Each run creates its own authority, with `openssl`. Both servers have the same lines of
//! configuration and the same files.

use anyhow::Context;
use rustix::rand::{GetRandomFlags, getrandom};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::children::{run, user};
use crate::data::Data;
use crate::figures::Goal;
use crate::row::{CPU, Row, RowSetting, THROUGHPUT, bench};

/// The security of the servers of a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RowSecurity {
    Unix,
    Sss,
    Gsi,
    Tls,
}

/// Length of the key of `sss` in bytes.
const SSS_KEY_BYTES: usize = 32;
/// Maximum duration of the creation of a certificate.
const OPENSSL_TIMEOUT: Duration = Duration::from_secs(60);
/// Host of the URLs, which the certificate of the servers names.
const HOST: &str = "localhost";
/// Days for which the certificates are valid. The client or a server may warn of earlier ends.
const DAYS: &str = "60";

const AUTHORITY: &str = "/O=Bench/CN=Authority";

/// Returns the loads. Each has one processor for the server and one for the generator, so that the
/// generator limits the throughput of expensive logins, and processor time shows the difference.
pub(crate) fn rows() -> Vec<Row> {
    let secured = |security, row: Row| Row {
        setting: RowSetting { security: Some(security), ..RowSetting::default() },
        ..row
    };
    let login = |security, name, title, options, goals: &[Goal]| {
        secured(security, bench(name, title, "connect", "", options, goals))
    };
    let twice = [Goal::at_least(THROUGHPUT, 2.0)];
    let half = [Goal::at_most(CPU, 0.5)];
    vec![
        login(RowSecurity::Unix, "login-unix-c64", "connect, login by unix, disconnect", "-c 64", &twice),
        login(RowSecurity::Sss, "login-sss-c64", "connect, login by sss, disconnect", "-c 64", &twice),
        login(
            RowSecurity::Gsi,
            "login-gsi-c16",
            "connect, login by gsi (RSA of 2,048 bits; theirs with a key agreement of 512 bits), disconnect",
            "-c 16",
            &half,
        ),
        login(
            RowSecurity::Tls,
            "login-tls-c16",
            "connect, full TLS handshake (RSA of 2,048 bits), login, disconnect",
            "-c 16",
            &half,
        ),
        login(
            RowSecurity::Tls,
            "login-tls-resumed-c16",
            "connect, resumed TLS handshake, login, disconnect",
            "-c 16 --resume",
            &half,
        ),
        secured(
            RowSecurity::Tls,
            bench(
                "read-2k-c64-tls",
                "encrypted reads of 2 KiB, 64 connections",
                "read",
                "/big",
                "-s 2k -c 64",
                &[Goal::at_most(CPU, 0.6)],
            ),
        ),
        secured(
            RowSecurity::Tls,
            bench(
                "read-1m-c8-tls",
                "encrypted reads of 1 MiB, 8 connections",
                "read",
                "/big",
                "-s 1m -c 8",
                &[Goal::at_most(CPU, 0.9)],
            ),
        ),
    ]
}

/// The files of the secured loads of a run.
pub(crate) struct CredentialFiles(PathBuf);

impl RowSecurity {
    /// Returns the lines of both servers.
    pub(crate) fn lines(self, data: &Data) -> anyhow::Result<Vec<String>> {
        let files = CredentialFiles::of(data)?;
        let path = |name: &str| files.path(name).display().to_string();
        let logins = |line: String| vec!["xrootd.seclib libXrdSec.so".to_owned(), line];
        Ok(match self {
            Self::Unix => logins("sec.protocol unix".to_owned()),
            Self::Sss => logins(format!("sec.protocol sss -s {}", path("server.keytab"))),
            Self::Gsi => logins(format!(
                "sec.protocol gsi -certdir:{} -cert:{} -key:{} -crl:0 -gmapopt:10 -vomsat:0",
                path("authorities"),
                path("host.pem"),
                path("host.key")
            )),
            Self::Tls => vec![
                format!("xrd.tls {} {}", path("host.pem"), path("host.key")),
                format!("xrd.tlsca certdir {}", path("authorities")),
                "xrootd.tls capable all".to_owned(),
                "xrootd.tlsreuse on".to_owned(),
            ],
        })
    }

    /// Returns scheme and host of the URLs.
    pub(crate) const fn origin(self) -> (&'static str, &'static str) {
        match self {
            Self::Tls => ("roots", HOST),
            Self::Unix | Self::Sss | Self::Gsi => ("root", HOST),
        }
    }
}

impl CredentialFiles {
    /// Creates the files, unless they are there.
    pub(crate) fn of(data: &Data) -> anyhow::Result<Self> {
        let files = Self(data.security_directory().to_path_buf());
        if !files.path("client.keytab").exists() {
            files.create().context("cannot create certificates and keys")?;
        }
        Ok(files)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Sets the variables of the client's credentials.
    pub(crate) fn arm(&self, command: &mut Command) {
        command.env("X509_CERT_DIR", self.path("authorities"));
        command.env("X509_USER_CERT", self.path("user.pem")).env("X509_USER_KEY", self.path("user.key"));
        // XRootD 5.5.3 agrees on keys in a group of 512 bits, which the client refuses otherwise.
        command.env("SCALLA_GSI_WEAK_DH", "1");
        command.env("X509_USER_PROXY", self.path("none")).env("XrdSecSSSKT", self.path("client.keytab"));
    }

    fn create(&self) -> anyhow::Result<()> {
        self.openssl(&[
            &["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem"],
            &["-days", DAYS, "-subj", AUTHORITY, "-addext", "keyUsage=critical,keyCertSign,cRLSign"],
        ])?;
        let authorities = self.path("authorities");
        fs::create_dir(&authorities)?;
        for option in ["-subject_hash", "-subject_hash_old"] {
            let name = self.openssl(&[&["x509", option, "-noout", "-in", "ca.pem"]])?;
            let file = authorities.join(format!("{}.0", name.trim()));
            fs::copy(self.path("ca.pem"), &file)?;
            fs::set_permissions(&file, Permissions::from_mode(0o644))?;
        }
        self.issue("host", &format!("/O=Bench/CN={HOST}"), &format!("subjectAltName=DNS:{HOST}\n"))?;
        self.issue("user", "/O=Bench/CN=User", "")?;
        self.give("host.key")?;
        let mut key = [0; SSS_KEY_BYTES];
        getrandom(&mut key, GetRandomFlags::empty())?;
        let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        let now = jiff::Timestamp::now().as_second();
        let line = format!("0 u:nobody g:nogroup n:bench N:{now} c:{now} e:0 f:0 k:{key}\n");
        for name in ["server.keytab", "client.keytab"] {
            write_secret(&self.path(name), &line)?;
        }
        self.give("server.keytab")
    }

    fn issue(&self, name: &str, subject: &str, extensions: &str) -> anyhow::Result<()> {
        let [key, request, file, certificate] =
            ["key", "csr", "ext", "pem"].map(|kind| format!("{name}.{kind}"));
        let text = format!(
            "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature,keyEncipherment\n{extensions}"
        );
        fs::write(self.path(&file), text)?;
        self.openssl(&[&[
            "req", "-newkey", "rsa:2048", "-nodes", "-keyout", &key, "-out", &request, "-subj", subject,
        ]])?;
        self.openssl(&[
            &["x509", "-req", "-in", &request, "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"],
            &["-days", DAYS, "-out", &certificate, "-extfile", &file],
        ])?;
        fs::set_permissions(self.path(&key), Permissions::from_mode(0o600))?;
        Ok(())
    }

    /// Gives a secret to the user of the servers.
    fn give(&self, name: &str) -> anyhow::Result<()> {
        if let Some(user) = user()? {
            chown(self.path(name), Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
        }
        Ok(())
    }

    fn openssl(&self, arguments: &[&[&str]]) -> anyhow::Result<String> {
        let mut command = Command::new("openssl");
        command.args(arguments.concat()).current_dir(&self.0);
        Ok(String::from_utf8_lossy(&run(command, OPENSSL_TIMEOUT)?.stdout).into_owned())
    }
}

/// Writes a file that only its owner can read.
fn write_secret(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, "")?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    fs::write(path, text)?;
    Ok(())
}
