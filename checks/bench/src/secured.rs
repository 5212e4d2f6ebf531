//! Loads with authentication and TLS, and the certificates and keys that they need.
//!
//! Each run creates its own authority, with `openssl`. Both servers have the same lines of
//! configuration and the same files. Only keys of token issuers are in different files: XRootD takes
//! them from its cache, ours from a key set.

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
use crate::server::ServerSide;

/// The security of the servers of a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RowSecurity {
    Unix,
    Sss,
    Gsi,
    Krb5,
    Ztn,
    Tls,
    /// As `Tls`, with a key of ECDSA in the certificate.
    TlsEcdsa,
    /// Many authorization rules, of which those of a group allow the requests.
    Rules,
}

/// The program that makes tickets and tokens.
const CREDENTIALS_PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/credentials.py");
/// Principal of the servers.
const SERVICE: &str = "xrootd/localhost@TEST.EXAMPLE";
/// Length of the key of `sss` in bytes.
const SSS_KEY_BYTES: usize = 32;
/// Maximum duration of the creation of a certificate.
const OPENSSL_TIMEOUT: Duration = Duration::from_secs(60);
/// Host of the URLs, which the certificate of the servers names.
const HOST: &str = "localhost";
/// Days for which the certificates are valid. The client or a server may warn of earlier ends.
const DAYS: &str = "60";

/// The types of keys, in the form of `openssl req -newkey`.
const RSA: &[&str] = &["rsa:2048"];
const ECDSA: &[&str] = &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"];

const AUTHORITY: &str = "/O=Bench/CN=Authority";

/// Maximum duration of the program that makes tickets and tokens.
const CREDENTIALS_TIMEOUT: Duration = Duration::from_secs(120);
/// Numbers of groups and users with rules, and of rules of each: 10,000 rules in total.
const GROUPS: usize = 100;
const RULES_PER_GROUP: usize = 40;
const USERS: usize = 1000;
const RULES_PER_USER: usize = 6;
/// Group of the client, by its key of `sss`. Its last rule is the one of the files.
const GROUP: &str = "nogroup";

/// Returns the loads. Each has one processor for the server and one for the generator, so that the
/// generator limits the throughput of expensive logins, and processor time shows the difference.
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = logins();
    rows.push(secured(
        RowSecurity::Rules,
        bench(
            "open-authorized-c64",
            "open and close of 10,000 files, 64 connections, 10,000 rules of 100 groups and 1,000 users",
            "open",
            "/many/f%d",
            "--files 10000 -c 64",
            &[Goal::at_most(CPU, 0.5)],
        ),
    ));
    for (name, title, options, bytes, most) in [
        ("read-2k-c64-tls", "encrypted reads of 2 KiB, 64 connections", "-s 2k -c 64", 2 << 10, 0.6),
        ("read-1m-c8-tls", "encrypted reads of 1 MiB, 8 connections", "-s 1m -c 8", 1 << 20, 0.9),
    ] {
        let read = bench(name, title, "read", "/big", options, &[Goal::at_most(CPU, most)]);
        rows.push(secured(RowSecurity::Tls, Row { encrypted_bytes: Some(bytes), ..read }));
    }
    rows
}

fn secured(security: RowSecurity, row: Row) -> Row {
    Row { setting: RowSetting { security: Some(security), ..RowSetting::default() }, ..row }
}

/// Returns the loads of logins.
fn logins() -> Vec<Row> {
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
            RowSecurity::Krb5,
            "login-krb5-c16",
            "connect, login by krb5 (AES of 256 bits), disconnect",
            "-c 16",
            &half,
        ),
        login(
            RowSecurity::Ztn,
            "login-ztn-c16",
            "connect, resumed TLS handshake, login by ztn (RSA of 2,048 bits), disconnect",
            "-c 16 --resume",
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
            RowSecurity::TlsEcdsa,
            "login-tls-ecdsa-c16",
            "connect, full TLS handshake (ECDSA, P-256), login, disconnect",
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
    ]
}

/// The files of the secured loads of a run.
pub(crate) struct CredentialFiles(PathBuf);

impl RowSecurity {
    /// Returns the lines of a server. Those of both sides are the same, except for the keys of issuers.
    pub(crate) fn lines(self, data: &Data, side: ServerSide) -> anyhow::Result<Vec<String>> {
        let files = CredentialFiles::of(data, self)?;
        let path = |name: &str| files.path(name).display().to_string();
        let logins = |line: String| vec!["xrootd.seclib libXrdSec.so".to_owned(), line];
        let sss = || logins(format!("sec.protocol sss -s {}", path("server.keytab")));
        let tls = |host: &str| {
            vec![
                format!("xrd.tls {} {}", path(&format!("{host}.pem")), path(&format!("{host}.key"))),
                format!("xrd.tlsca certdir {}", path("authorities")),
                "xrootd.tlsreuse on".to_owned(),
            ]
        };
        Ok(match self {
            Self::Unix => logins("sec.protocol unix".to_owned()),
            Self::Sss => sss(),
            Self::Gsi => logins(format!(
                "sec.protocol gsi -certdir:{} -cert:{} -key:{} -crl:0 -gmapopt:10 -vomsat:0",
                path("authorities"),
                path("host.pem"),
                path("host.key")
            )),
            Self::Krb5 => logins(format!("sec.protocol krb5 {} {SERVICE}", path("krb5/server.keytab"))),
            Self::Ztn => {
                let issuers = match side {
                    ServerSide::Theirs => "ztn/issuers-theirs",
                    _ => "ztn/issuers-ours",
                };
                let library = format!("ofs.authlib libXrdAccSciTokens.so config={}", path(issuers));
                let protocol = logins("sec.protocol ztn".to_owned());
                [protocol, tls("host"), vec!["ofs.authorize".to_owned(), library]].concat()
            }
            Self::Tls => [tls("host"), vec!["xrootd.tls capable all".to_owned()]].concat(),
            Self::TlsEcdsa => [tls("ecdsa-host"), vec!["xrootd.tls capable all".to_owned()]].concat(),
            Self::Rules => {
                let rules = format!("acc.authdb {}", path("authdb"));
                [sss(), vec!["ofs.authorize".to_owned(), rules, "acc.audit none".to_owned()]].concat()
            }
        })
    }

    /// Sets the variables of a server, whose own files are in a directory.
    pub(crate) fn arm_server(
        self,
        data: &Data,
        directory: &Path,
        command: &mut Command,
    ) -> anyhow::Result<()> {
        let files = CredentialFiles::of(data, self)?;
        match self {
            Self::Krb5 => {
                let replays = format!("file2:{}/replays", directory.display());
                command.env("KRB5_CONFIG", files.path("krb5/krb5.conf")).env("KRB5RCACHENAME", replays);
            }
            Self::Ztn => {
                command.env("XDG_CACHE_HOME", files.path("ztn"));
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns scheme and host of the URLs.
    pub(crate) const fn origin(self) -> (&'static str, &'static str) {
        match self {
            Self::Tls | Self::TlsEcdsa | Self::Ztn => ("roots", HOST),
            Self::Unix | Self::Sss | Self::Gsi | Self::Krb5 | Self::Rules => ("root", HOST),
        }
    }
}

impl CredentialFiles {
    /// Creates the files that a security needs, unless they are there.
    pub(crate) fn of(data: &Data, security: RowSecurity) -> anyhow::Result<Self> {
        let files = Self(data.security_directory().to_path_buf());
        if !files.path("client.keytab").exists() {
            files.create().context("cannot create certificates and keys")?;
        }
        match security {
            RowSecurity::Krb5 => files.issue_by_program("krb5")?,
            RowSecurity::Ztn => files.issue_by_program("ztn")?,
            _ => {}
        }
        Ok(files)
    }

    /// Creates the directory of tickets or tokens by the program of the checks, unless it is there.
    fn issue_by_program(&self, kind: &str) -> anyhow::Result<()> {
        let directory = self.path(kind);
        if directory.exists() {
            return Ok(());
        }
        fs::create_dir(&directory)?;
        let mut command = Command::new("python3");
        command.arg(CREDENTIALS_PROGRAM).arg(kind).arg(&directory);
        run(command, CREDENTIALS_TIMEOUT).with_context(|| format!("cannot create credentials of {kind}"))?;
        Ok(())
    }

    /// Writes the authorization rules.
    fn write_rules(&self) -> anyhow::Result<()> {
        let rules = |kind: &str, name: &str, count: usize, last: &str| {
            let paths: String = (1..count).map(|number| format!(" /{kind}/{name}/d{number} lr")).collect();
            format!("{kind} {name}{paths} {last} lr\n")
        };
        let mut text = String::new();
        for group in 1..GROUPS {
            let name = format!("group{group}");
            text += &rules("g", &name, RULES_PER_GROUP, &format!("/{name}"));
        }
        text += &rules("g", GROUP, RULES_PER_GROUP, "/many");
        for user in 0..USERS {
            let name = format!("user{user}");
            text += &rules("u", &name, RULES_PER_USER, &format!("/{name}"));
        }
        fs::write(self.path("authdb"), text)?;
        self.give("authdb")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns the certificate of the servers and its key.
    pub(crate) fn of_host(&self) -> (PathBuf, PathBuf) {
        (self.path("host.pem"), self.path("host.key"))
    }

    /// Sets the variables of the client's credentials.
    pub(crate) fn arm(&self, command: &mut Command) {
        command.env("X509_CERT_DIR", self.path("authorities"));
        command.env("X509_USER_CERT", self.path("user.pem")).env("X509_USER_KEY", self.path("user.key"));
        // XRootD 5.5.3 agrees on keys in a group of 512 bits, which the client refuses otherwise.
        command.env("SCALLA_GSI_WEAK_DH", "1");
        command.env("X509_USER_PROXY", self.path("none")).env("XrdSecSSSKT", self.path("client.keytab"));
        command.env("KRB5_CONFIG", self.path("krb5/krb5.conf"));
        command.env("KRB5CCNAME", format!("FILE:{}", self.path("krb5/cache").display()));
        command.env("BEARER_TOKEN_FILE", self.path("ztn/token"));
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
        let (host, names) = (format!("/O=Bench/CN={HOST}"), format!("subjectAltName=DNS:{HOST}\n"));
        self.issue("host", RSA, (&host, &names))?;
        self.issue("ecdsa-host", ECDSA, (&host, &names))?;
        self.issue("user", RSA, ("/O=Bench/CN=User", ""))?;
        self.give("host.key")?;
        self.give("ecdsa-host.key")?;
        let mut key = [0; SSS_KEY_BYTES];
        getrandom(&mut key, GetRandomFlags::empty())?;
        let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        let now = jiff::Timestamp::now().as_second();
        let line = format!("0 u:nobody g:{GROUP} n:bench N:{now} c:{now} e:0 f:0 k:{key}\n");
        for name in ["server.keytab", "client.keytab"] {
            write_secret(&self.path(name), &line)?;
        }
        self.give("server.keytab")?;
        self.write_rules()
    }

    fn issue(
        &self,
        name: &str,
        key_type: &[&str],
        (subject, extensions): (&str, &str),
    ) -> anyhow::Result<()> {
        let [key, request, file, certificate] =
            ["key", "csr", "ext", "pem"].map(|kind| format!("{name}.{kind}"));
        let text = format!(
            "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature,keyEncipherment\n{extensions}"
        );
        fs::write(self.path(&file), text)?;
        self.openssl(&[
            &["req", "-newkey"],
            key_type,
            &["-nodes", "-keyout", &key, "-out", &request, "-subj", subject],
        ])?;
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
