//! `scalla mkdir` and `rmdir`.

use client::xroot::ErrorCode;
use client::{Cause, Error, FileSystem, RemotePath, Url, join_bounded};

use super::console::Console;
use super::context::{Context, is_root};
use crate::usage_error::UsageError;
use crate::xrootd_compat;

/// The default of `--mode`.
const MODE: u16 = 0o755;

/// Create directories.
///
/// In a cluster, create them at all servers.
#[derive(clap::Args, Debug)]
pub(crate) struct MkdirCommand {
    /// Directories to create.
    #[arg(value_name = "URL", value_hint = clap::ValueHint::Url, required = true)]
    urls: Vec<String>,
    /// Create missing parent directories; accept directories that exist.
    #[arg(long, short)]
    parents: bool,
    /// Permissions, such as 755 or rwxr-xr-x.
    #[arg(long, short, value_name = "MODE", value_parser = permissions, default_value = "755")]
    mode: u16,
}

impl MkdirCommand {
    pub(super) async fn run(self, context: &Context, console: &Console) -> anyhow::Result<()> {
        for text in &self.urls {
            let url = context.url(text)?;
            if url.is_http() && self.mode != MODE {
                let text = format!("{url}: over HTTP the server chooses the permissions; leave --mode out");
                return Err(UsageError(text).into());
            }
            let made = self.make(&context.files(&url), &url.path).await;
            if let Err(error) = made {
                console.fail(&url, &error);
            }
        }
        Ok(())
    }
}

impl MkdirCommand {
    async fn make(&self, files: &FileSystem, path: &RemotePath) -> Result<(), Error> {
        let path = if is_root(path) { RemotePath::root() } else { path.without_slashes() };
        // Servers report success if a directory with equal permissions exists.
        if !self.parents && files.find(&path).await?.is_some() {
            return Err(already_exists("mkdir", &files.url().at(path)));
        }
        files.mkdir_everywhere(&path, self.mode, self.parents).await
    }
}

/// Returns the error for a path that already exists.
pub(super) fn already_exists(operation: &'static str, url: &Url) -> Error {
    let text = "it exists already".to_owned();
    Error::new(operation, url, Cause::Server { code: ErrorCode::IT_EXISTS, text })
}

/// Remove empty directories.
#[derive(clap::Args, Debug)]
pub(crate) struct RmdirCommand {
    /// Directories to remove; may contain wildcards.
    #[arg(value_name = "URL", value_hint = clap::ValueHint::Url, required = true)]
    urls: Vec<String>,
}

impl RmdirCommand {
    pub(super) async fn run(self, context: &Context, console: &Console) -> anyhow::Result<()> {
        for url in context.expand(console, &self.urls).await? {
            if is_root(&url.path) {
                console.fail_with(&[("url", url.to_string().into())], &format!("{url}: the root stays"));
            } else if let Err(error) = remove_directory(context, &url).await {
                console.fail(&url, &error);
            }
        }
        Ok(())
    }
}

/// Removes an empty directory at all servers that have it.
async fn remove_directory(context: &Context, url: &Url) -> Result<(), Error> {
    let servers = context.files(url).servers(&url.path).await?;
    let path = &url.path;
    let remove = |server: FileSystem| {
        let path = path.clone();
        async move {
            // Some servers report success if the directory does not exist.
            if !server.stat(&path).await?.is_dir() {
                let cause = Cause::BadArgument("it is no directory; remove it with scalla rm".to_owned());
                return Err(Error::new("rmdir", server.url().at(path.clone()), cause));
            }
            server.rmdir(&path).await
        }
    };
    combine_results(join_bounded(servers, remove).await)
}

/// Combines the results of an operation at all servers that may have a path. "Not found" counts
/// only if no server succeeded.
pub(super) fn combine_results(results: Vec<Result<(), Error>>) -> Result<(), Error> {
    let (mut missing, mut done) = (None, false);
    for result in results {
        match result {
            Ok(()) => done = true,
            Err(error) if error.is_not_found() => missing = Some(error),
            Err(error) => return Err(error),
        }
    }
    match missing {
        Some(error) if !done => Err(error),
        _ => Ok(()),
    }
}

/// Parses permission bits: `755` or `rwxr-xr-x`.
pub(super) fn permissions(text: &str) -> Result<u16, String> {
    let octal = u16::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777 && !text.starts_with('+'));
    octal
        .or_else(|| xrootd_compat::format::mode_bits(text))
        .ok_or_else(|| "no permissions: write 755 or rwxr-xr-x".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_as_people_write_them() {
        for (text, mode) in [("755", 0o755), ("0640", 0o640), ("rwxr-x---", 0o750), ("0", 0)] {
            assert_eq!(permissions(text), Ok(mode), "{text}");
        }
        for bad in ["", "888", "1777", "+7", "rwx", "u+x"] {
            assert!(permissions(bad).is_err(), "{bad}");
        }
    }
}
