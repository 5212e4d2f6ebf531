//! `scalla auth init`: makes the files by which a server asks its clients for credentials.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use auth::access::{AccessDatabase, AuthdbCheck};
use auth::sss::{Keytab, KeytabError, SssKey, USER_BYTES_MAX};
use auth::{Secret, SystemRng};
use base::Rng;
use clap::ValueEnum;
use config::AuthorizationConfig;
use jiff::Timestamp;
use rustix::fs::{Mode, OFlags};
use serde_json::json;

use crate::local_path::absolute;
use crate::printer::out;
use crate::usage_error::UsageError;

/// Name of the keys, by which clients and servers agree on one.
const KEY_NAME: &str = "scalla";
/// Length of a key in bytes.
const KEY_BYTES: usize = 32;
/// Group of the administrator's key.
const GROUP: &str = "nogroup";
const KEYTAB: &str = "sss.keytab";
const RULES: &str = "authdb";
const SETTINGS: &str = "security.cfg";
/// Permissions of the files without secrets.
const PUBLIC_MODE: u32 = 0o644;
/// Permissions of the directory, if it is created for a user.
const DIRECTORY_MODE: u32 = 0o755;

/// Make the files that protect a server, and print how to use them.
///
/// A server that reads the configuration admits only clients with a key. The administrator may do
/// everything, others nothing until a rule allows it. Existing files are never replaced.
#[derive(clap::Args, Debug)]
pub(super) struct InitCommand {
    /// Kind of the credentials.
    #[arg(value_enum)]
    kind: CredentialKind,
    /// User name of the administrator.
    #[arg(long, value_name = "NAME")]
    admin: String,
    /// Directory of the files, which is created.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// User of the server, who gets the files; only root can give them away.
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// A kind of credentials.
#[derive(Clone, Copy, ValueEnum, Debug)]
enum CredentialKind {
    /// Keys in a file that server and clients share.
    Sss,
}

/// The files of a protected server.
struct SecurityFiles {
    keytab: PathBuf,
    rules: PathBuf,
    settings: PathBuf,
}

impl InitCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let CredentialKind::Sss = self.kind;
        check_name(&self.admin)?;
        let owner = self.user.as_deref().map(server::User::find).transpose()?;
        if owner.is_some() && !server::User::is_root() {
            return Err(UsageError(
                "only root can give files to another user; run it as that user".to_owned(),
            )
            .into());
        }
        let directory = absolute(&self.dir)?;
        check_directory(&directory)?;
        if let Some(owner) = &owner {
            make_directory_of(&directory, owner)
                .with_context(|| format!("cannot make the directory {}", directory.display()))?;
            // With the rights of that user, links in its directories lead to nothing else.
            owner.switch()?;
        }
        let files = SecurityFiles {
            keytab: directory.join(KEYTAB),
            rules: directory.join(RULES),
            settings: directory.join(SETTINGS),
        };
        files.check_absent()?;
        if let Err(error) = self.make(&files) {
            // None of them existed before.
            files.remove();
            return Err(error);
        }
        self.report(&files);
        Ok(ExitCode::SUCCESS)
    }

    fn make(&self, files: &SecurityFiles) -> anyhow::Result<()> {
        self.make_keytab(&files.keytab)?;
        make_file(&files.rules, &rules_text(&self.admin))?;
        make_file(&files.settings, &files.settings_text())?;
        files.check_usable()
    }

    fn make_keytab(&self, path: &Path) -> anyhow::Result<()> {
        let mut bytes = vec![0; KEY_BYTES];
        SystemRng.fill(&mut bytes);
        let mut key = SssKey {
            id: 0,
            name: KEY_NAME.to_owned(),
            user: self.admin.clone(),
            group: GROUP.to_owned(),
            created: u64::try_from(Timestamp::now().as_second()).unwrap_or(0),
            expires: 0,
            secret: Secret::new(bytes),
        };
        key.set_number(1);
        let made = Keytab::update(path, &mut SystemRng, |present| match present {
            Err(KeytabError::Absent { .. }) => Ok((Keytab { keys: vec![key] }, ())),
            Err(error) => Err(anyhow::Error::new(error)),
            Ok(_) => Err(exists(path)),
        });
        made.with_context(|| format!("cannot make {}", path.display()))?
    }

    fn report(&self, files: &SecurityFiles) {
        let [keytab, rules, settings] =
            [&files.keytab, &files.rules, &files.settings].map(|path| path.display().to_string());
        let admin = &self.admin;
        if self.json {
            out().json(
                &json!({ "admin": admin, "keytab": keytab, "authdb": rules, "configuration": settings }),
            );
            return;
        }
        out().lines(format_args!(
            "Made:\n  {keytab}  the key of {admin}; keep it secret\n  \
             {rules}  rules: {admin} may do everything, others nothing\n  \
             {settings}  configuration that uses both\n\n\
             Start a server with it, or copy its lines into the configuration of yours:\n    \
             scalla serve DIR --config {settings}\n\n\
             As a client, {admin} needs a copy of the key, with mode 0600:\n    \
             XrdSecSSSKT=COPY scalla auth whoami HOST\n\n\
             A key for another user, and what to copy to that user:\n    \
             xrdsssadmin -k {KEY_NAME} -u NAME -g GROUP add {keytab}\n    \
             xrdsssadmin -u NAME install NAME.keytab < {keytab}\n"
        ));
    }
}

impl SecurityFiles {
    /// Returns an error if a file exists, before any is made.
    fn check_absent(&self) -> anyhow::Result<()> {
        for path in [&self.keytab, &self.rules, &self.settings] {
            if path.symlink_metadata().is_ok() {
                return Err(exists(path));
            }
        }
        Ok(())
    }

    fn settings_text(&self) -> String {
        format!(
            "# Made by scalla auth init.\n\
             xrootd.seclib default\n\
             sec.protocol sss -s {}\n\
             ofs.authorize\n\
             acc.authdb {}\n",
            self.keytab.display(),
            self.rules.display(),
        )
    }

    /// Removes the files that exist.
    fn remove(&self) {
        for path in [&self.keytab, &self.rules, &self.settings] {
            let _ = fs::remove_file(path);
        }
    }

    /// Reads the files as a server of this user does.
    fn check_usable(&self) -> anyhow::Result<()> {
        let mut values = AuthorizationConfig::default();
        values.authdb.value = Some(self.rules.clone());
        let source = server::authdb_source(&values);
        AccessDatabase::load(&source, AuthdbCheck::ForServer, &server::SystemNetgroups)?;
        Keytab::open(&self.keytab)?;
        Ok(())
    }
}

fn exists(path: &Path) -> anyhow::Error {
    anyhow::anyhow!(
        "{} exists already and is not replaced; remove it, or choose another --dir",
        path.display()
    )
}

/// Checks that a name can stand in a key table and in a rule.
fn check_name(name: &str) -> anyhow::Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte);
    let is_valid = !name.is_empty() && name.len() <= USER_BYTES_MAX && name.bytes().all(is_plain);
    if !is_valid || matches!(name, "anybody" | "anyuser" | "allusers" | "nobody") {
        let text = format!("'{name}' cannot be the administrator; allowed are letters, digits and . _ - @");
        return Err(UsageError(text).into());
    }
    Ok(())
}

/// Checks that the configuration language keeps a path as it is.
fn check_directory(directory: &Path) -> anyhow::Result<()> {
    let text = directory.as_os_str().as_encoded_bytes();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+@:,~".contains(byte);
    if !text.iter().all(is_plain) {
        let text = format!(
            "a configuration cannot name files in {}; choose a --dir of letters, digits and . _ - + @ : , ~",
            directory.display()
        );
        return Err(UsageError(text).into());
    }
    Ok(())
}

fn rules_text(admin: &str) -> String {
    format!(
        "# Made by scalla auth init. Nobody may do what no rule grants.\n\
         # Test changes: scalla auth check USER PATH OPERATION --authdb FILE\n\
         u {admin} / a\n\
         # Without the '#', every client with a key may list and read:\n\
         # u * / lr\n"
    )
}

/// Makes a directory for a user, unless it exists.
fn make_directory_of(directory: &Path, owner: &server::User) -> io::Result<()> {
    if let Some(parent) = directory.parent() {
        fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(DIRECTORY_MODE).create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        made => made?,
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = File::from(rustix::fs::open(directory, flags, Mode::empty())?);
    fchown(&opened, Some(owner.uid()), Some(owner.gid()))
}

fn make_file(path: &Path, text: &str) -> anyhow::Result<()> {
    let make = || -> io::Result<()> {
        let mut file: File = OpenOptions::new().write(true).create_new(true).mode(PUBLIC_MODE).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    match make() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => bail!(exists(path)),
        made => made.with_context(|| format!("cannot make {}", path.display())),
    }
}
