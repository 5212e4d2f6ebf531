//! [`XrdfsSession`]: the connection to the server, the working directory and the resolution of
//! paths.

use crate::environment;
use crate::xrootd_compat::{CommandRuntime, INVALID_ARGUMENTS, XrdClStatus, code};
use client::{Error, FileSystem, RemotePath, Url, UrlError};
use std::future::Future;

/// A file system and the working directory in it.
pub(super) struct XrdfsSession {
    pub(super) runtime: CommandRuntime,
    pub(super) fs: FileSystem,
    /// `None` if paths are used unchanged.
    pub(super) cwd: Option<String>,
}

/// A resolved path argument.
pub(super) struct ResolvedPath {
    /// The file system, with the cgi of the word.
    pub(super) fs: FileSystem,
    /// The path without the cgi.
    pub(super) path: RemotePath,
    /// The path as printed, with its cgi.
    pub(super) shown: String,
}

/// The reason why there is no shell.
pub(super) enum XrdfsSessionError {
    /// The argument is not a server.
    Usage,
    Status(XrdClStatus),
}

impl XrdfsSession {
    pub(super) fn new(server: &str, with_cwd: bool) -> Result<Self, XrdfsSessionError> {
        let url = Url::parse(server).map_err(|error| match error {
            UrlError::BadPort(port) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => {
                XrdfsSessionError::Status(XrdClStatus::invalid_address())
            }
            UrlError::UnknownScheme(_) => XrdfsSessionError::Status(XrdClStatus::error(code::NOT_SUPPORTED)),
            _ => XrdfsSessionError::Usage,
        })?;
        let runtime = CommandRuntime::new().map_err(XrdfsSessionError::Status)?;
        let fs = environment::client("xrdfs").file_system(&url);
        Ok(Self { runtime, fs, cwd: with_cwd.then(|| "/".to_owned()) })
    }

    pub(super) fn wait<T>(
        &self,
        operation: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, XrdClStatus> {
        self.runtime.wait(operation).map_err(XrdClStatus::from)
    }

    /// Resolves a word: a path, which may include cgi.
    pub(super) fn target(&self, word: &str) -> Result<ResolvedPath, XrdClStatus> {
        self.target_of(self.path(word)?)
    }

    /// Resolves a path, which may include cgi.
    pub(super) fn target_of(&self, shown: String) -> Result<ResolvedPath, XrdClStatus> {
        let (fs, path) = self.fs.at(&shown).map_err(XrdClStatus::from)?;
        Ok(ResolvedPath { fs, path, shown })
    }

    /// Returns the resolved path. A relative path is joined to the working directory, if there is
    /// one, without `.` and `..`.
    pub(super) fn path(&self, path: &str) -> Result<String, XrdClStatus> {
        let Some(cwd) = self.cwd.as_ref().filter(|_| !path.starts_with('/')) else {
            return Ok(path.to_owned());
        };
        let mut parts = Vec::new();
        for part in cwd.split('/').chain(path.split('/')) {
            match part {
                "" | "." => {}
                ".." => {
                    parts.pop().ok_or(INVALID_ARGUMENTS)?;
                }
                part => parts.push(part),
            }
        }
        Ok(format!("/{}", parts.join("/")))
    }
}

/// Returns the options and the other words. Letters of `flags` are options without a value, alone
/// or combined after one `-`. Any other argument that begins with `-` is a word. The first value is
/// the letters that occurred.
pub(super) fn split_flags<'a>(arguments: &[&'a str], flags: &str) -> (String, Vec<&'a str>) {
    let mut found = String::new();
    let mut words = Vec::new();
    for &argument in arguments {
        match argument.strip_prefix('-') {
            Some(letters) if !letters.is_empty() && letters.chars().all(|letter| flags.contains(letter)) => {
                found.push_str(letters);
            }
            _ => words.push(argument),
        }
    }
    (found, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(cwd: Option<&str>) -> XrdfsSession {
        let Ok(mut shell) = XrdfsSession::new("localhost:1", true) else { panic!("no shell") };
        shell.cwd = cwd.map(str::to_owned);
        shell
    }

    #[test]
    fn relative_paths_are_joined_to_the_working_directory() {
        let table = [
            ("/a/b", "c", Ok("/a/b/c")),
            ("/a/b", "../c/.", Ok("/a/c")),
            ("/a//b/", "./x//y/", Ok("/a/b/x/y")),
            ("/", ".", Ok("/")),
            ("/a", "../..", Err(INVALID_ARGUMENTS)),
            ("/a", "/x/../y", Ok("/x/../y")),
        ];
        for (cwd, path, expected) in table {
            assert_eq!(shell(Some(cwd)).path(path), expected.map(str::to_owned), "{cwd} {path}");
        }
        assert_eq!(shell(None).path("x/../y").as_deref(), Ok("x/../y"));
    }

    #[test]
    fn letters_may_stand_together() {
        assert_eq!(
            split_flags(&["-lu", "x", "-R", "-lx", "-"], "luR"),
            ("luR".into(), vec!["x", "-lx", "-"])
        );
    }
}
