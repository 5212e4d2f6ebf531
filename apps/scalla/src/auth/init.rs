//! `scalla auth init`: makes the files by which a server asks its clients for credentials.

mod sss;
mod tls;
mod token;

pub(super) use token::{ISSUERS, SIGNING_KEY};

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{Context, bail};
use auth::sss::USER_BYTES_MAX;
use clap::ValueEnum;
use config::{ConfigReport, Loaded, Strictness};
use rustix::fs::{Mode, OFlags};
use serde_json::Value;
use zeroize::Zeroizing;

use crate::evaluation::load_here;
use crate::local_path::absolute;
use crate::printer::out;
use crate::rule_check::check_rules;
use crate::usage_error::UsageError;

/// Name of the file with the rules.
const RULES: &str = "authdb";
/// Name of the configuration of a server with logins.
const SETTINGS: &str = "security.cfg";
/// Permissions of the files without secrets.
const PUBLIC_MODE: u32 = 0o644;
/// Permissions of the files with secrets.
const SECRET_MODE: u32 = 0o600;
/// Permissions of the directory, if it is created for a user.
const DIRECTORY_MODE: u32 = 0o755;

/// Make the files that protect a server, and print how to use them.
///
/// With sss and token, a server that reads the configuration admits only clients with a key or a token.
/// The administrator may do everything, others nothing until a rule allows it. tls makes an authority
/// and a certificate of the server, and token does so too if they are not there. Existing files are
/// never replaced.
#[derive(clap::Args, Debug)]
pub(super) struct InitCommand {
    /// Kind of the credentials.
    #[arg(value_enum)]
    kind: CredentialKind,
    /// User name of the administrator.
    #[arg(long, value_name = "NAME", required_if_eq_any = [("kind", "sss"), ("kind", "token")])]
    admin: Option<String>,
    /// Name of the server in its certificate; may be repeated. The default is this host.
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
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
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
enum CredentialKind {
    /// Keys in a file that server and clients share.
    Sss,
    /// Tokens that the site issues itself.
    Token,
    /// Only encryption: an authority and a certificate of the server.
    Tls,
}

/// A file to be made.
struct InitFile {
    path: PathBuf,
    text: Zeroizing<String>,
    mode: u32,
}

impl InitFile {
    fn public(path: PathBuf, text: impl Into<String>) -> Self {
        Self { path, text: Zeroizing::new(text.into()), mode: PUBLIC_MODE }
    }

    fn secret(path: PathBuf, text: Zeroizing<String>) -> Self {
        Self { path, text, mode: SECRET_MODE }
    }
}

/// The files of a kind of credentials.
struct InitPlan {
    files: Vec<InitFile>,
    /// The configuration, one of the files.
    settings: PathBuf,
    /// Report for people.
    report: String,
    /// Report for programs.
    json: Value,
}

impl InitCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let admin = self.admin.clone().unwrap_or_default();
        if self.kind != CredentialKind::Tls {
            check_name(&admin)?;
        }
        self.host.iter().try_for_each(|host| check_host(host))?;
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
        let hosts = if self.host.is_empty() { vec![server::host_name()] } else { self.host.clone() };
        let plan = match self.kind {
            CredentialKind::Sss => sss::plan(&directory, &admin),
            CredentialKind::Token => token::plan(&directory, &admin, &hosts)?,
            CredentialKind::Tls => tls::plan(&directory, &hosts)?,
        };
        plan.carry_out()?;
        if self.json {
            out().json(&plan.json);
        } else {
            out().lines(&plan.report);
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl InitPlan {
    /// Makes the files, all or none.
    fn carry_out(&self) -> anyhow::Result<()> {
        for file in &self.files {
            if file.path.symlink_metadata().is_ok() {
                return Err(exists(&file.path));
            }
        }
        let mut made = Vec::new();
        let result = self.files.iter().try_for_each(|file| {
            make_file(file)?;
            made.push(&file.path);
            anyhow::Ok(())
        });
        let result = result.and_then(|()| self.check_usable());
        if result.is_err() {
            made.into_iter().for_each(|path| drop(fs::remove_file(path)));
        }
        result
    }

    /// Reads the files as a server of this user does.
    fn check_usable(&self) -> anyhow::Result<()> {
        let Loaded { effective, report } = load_here(&self.settings, None);
        let mut files = ConfigReport::new(Strictness::Strict);
        check_rules(&effective, &mut files);
        server::check_credentials(&effective, SystemTime::now(), false, &mut files);
        let errors: Vec<String> = report.errors().chain(files.errors()).map(ToString::to_string).collect();
        if errors.is_empty() { Ok(()) } else { bail!("the files cannot be used: {}", errors.join("\n")) }
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

/// Checks that a name of a host can stand in a certificate and in files.
fn check_host(host: &str) -> anyhow::Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-:".contains(&byte);
    if host.is_empty() || !host.bytes().all(is_plain) {
        let text = format!("'{host}' is not the name or address of a host; change --host");
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

fn make_file(file: &InitFile) -> anyhow::Result<()> {
    let InitFile { path, text, mode } = file;
    let make = || -> io::Result<()> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut file: File = OpenOptions::new().write(true).create_new(true).mode(*mode).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    match make() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => bail!(exists(path)),
        made => made.with_context(|| format!("cannot make {}", path.display())),
    }
}
