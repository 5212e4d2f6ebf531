//! The files by which other programs find a running server: its pid file and its environment file.
//!
//! They are written through `SharedDirectory`, because other users may have access to their
//! directories.

use config::Effective;
use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use storage::SharedDirectory;

/// Mode of directories created for such files, which other users must be able to read.
const DIRECTORY_MODE: u32 = 0o755;

/// A pid file, which holds only the number. It is removed at the end, unless another server has
/// written its own.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
    directory: SharedDirectory,
    name: OsString,
}

impl PidFile {
    /// Writes the pid of this process. A missing directory is created.
    ///
    /// # Errors
    /// The error of the system.
    pub fn write(path: PathBuf) -> io::Result<Self> {
        let (directory, name) = SharedDirectory::of_file(&path, DIRECTORY_MODE)?;
        directory.write(&name, std::process::id().to_string().as_bytes())?;
        Ok(Self { path, directory, name })
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let mut pid = String::new();
        let read = self.directory.open_file(&self.name).and_then(|mut file| file.read_to_string(&mut pid));
        if read.is_ok() && pid.trim() == std::process::id().to_string() {
            self.directory.remove(&self.name).ok();
        }
    }
}

/// The content of the environment file: `pid=…&host=…&inst=…`, one line.
#[derive(Clone, Debug)]
pub struct EnvironmentFile<'a> {
    /// The configuration.
    pub effective: &'a Effective,
    /// The version as `query config version` reports it.
    pub version: &'a str,
    /// The configuration file, if there is one.
    pub config_file: Option<&'a Path>,
    /// The log file, if there is one.
    pub log_file: Option<&'a Path>,
    /// The home directory.
    pub home: &'a Path,
}

impl EnvironmentFile<'_> {
    /// Returns `<program>.<instance>.env`; the anonymous instance is `anon`.
    pub fn name(&self) -> String {
        format!("{}.{}.env", self.effective.program, self.instance())
    }

    /// Writes the file into `directory` and returns its path.
    ///
    /// # Errors
    /// The error of the system.
    pub fn write(&self, directory: &Path) -> io::Result<PathBuf> {
        let path = directory.join(self.name());
        let (directory, name) = SharedDirectory::of_file(&path, DIRECTORY_MODE)?;
        directory.write(&name, self.text().as_bytes())?;
        Ok(path)
    }

    fn instance(&self) -> &str {
        self.effective.instance.as_deref().unwrap_or("anon")
    }

    fn text(&self) -> String {
        let shown = |path: Option<&Path>| path.map(|path| path.display().to_string()).unwrap_or_default();
        let cwd = std::env::current_dir().ok();
        let admin = self.effective.admin_directory();
        format!(
            "pid={}&host={}&inst={}&ver={}&home={}&cfgfn={}&cwd={}&apath={}/&logfn={}",
            std::process::id(),
            self.effective.host,
            self.instance(),
            self.version,
            self.home.display(),
            shown(self.config_file),
            shown(cwd.as_deref()),
            admin.display().to_string().trim_end_matches('/'),
            shown(self.log_file),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_pid_file_is_removed_by_its_own_server_only() {
        let path = std::env::temp_dir().join(format!("scalla-pid-{}/x/xrootd.pid", std::process::id()));
        let file = PidFile::write(path.clone()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), std::process::id().to_string());
        drop(file);
        assert!(!path.exists());
        let file = PidFile::write(path.clone()).unwrap();
        fs::write(&path, "1").unwrap();
        drop(file);
        assert!(path.exists());
        fs::remove_dir_all(path.ancestors().nth(2).unwrap()).unwrap();
    }

    #[test]
    fn a_link_in_the_place_of_a_pid_or_environment_file_is_refused() {
        let directory = std::env::temp_dir().join(format!("scalla-pid-link-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let victim = directory.join("victim");
        fs::write(&victim, "content").unwrap();
        let effective = Effective { program: "xrootd".into(), ..Effective::default() };
        let file = EnvironmentFile {
            effective: &effective,
            version: "v1",
            config_file: None,
            log_file: None,
            home: Path::new("/"),
        };
        for name in ["xrootd.pid", "xrootd.anon.env"] {
            symlink(&victim, directory.join(name)).unwrap();
        }
        let errors = [
            PidFile::write(directory.join("xrootd.pid")).unwrap_err().to_string(),
            file.write(&directory).unwrap_err().to_string(),
        ];
        assert!(errors.iter().all(|error| error.contains("is a link of")), "{errors:?}");
        fs::remove_file(directory.join("xrootd.pid")).unwrap();
        fs::hard_link(&victim, directory.join("xrootd.pid")).unwrap();
        let error = PidFile::write(directory.join("xrootd.pid")).unwrap_err().to_string();
        assert!(error.contains("has 2 names"), "{error}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "content");
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn the_environment_file_has_the_fields_in_their_order() {
        let effective = Effective {
            program: "xrootd".into(),
            instance: Some("foo".into()),
            host: "vm".into(),
            ..Effective::default()
        };
        let file = EnvironmentFile {
            effective: &effective,
            version: "v1.2.3",
            config_file: Some(Path::new("/etc/x.cfg")),
            log_file: None,
            home: Path::new("/var/spool"),
        };
        assert_eq!(file.name(), "xrootd.foo.env");
        let text = file.text();
        let keys: Vec<_> = text.split('&').filter_map(|pair| pair.split('=').next()).collect();
        assert_eq!(keys, ["pid", "host", "inst", "ver", "home", "cfgfn", "cwd", "apath", "logfn"]);
        assert!(text.contains("&inst=foo&ver=v1.2.3&home=/var/spool&cfgfn=/etc/x.cfg&"), "{text}");
        assert!(text.contains("&apath=/tmp/foo/&logfn="), "{text}");
    }
}
