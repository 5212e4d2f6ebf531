//! [`TokenPlaces`]: where a client looks for its token (WLCG bearer token discovery).

use crate::secret::Secret;
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Permissions of group and others.
const SHARED: u32 = 0o077;

/// The places of the token of a user, in their order.
#[derive(Clone, Debug, Default)]
pub struct TokenPlaces {
    /// The token in `BEARER_TOKEN`.
    token: Option<Secret>,
    /// `BEARER_TOKEN_FILE`, `$XDG_RUNTIME_DIR/bt_u<euid>`, `/tmp/bt_u<euid>`.
    files: Vec<PathBuf>,
}

impl TokenPlaces {
    /// Takes the places that an environment names.
    pub fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Self {
        Self::in_directory(variable, Path::new("/tmp"))
    }

    fn in_directory(variable: impl Fn(&str) -> Option<String>, temporary: &Path) -> Self {
        let variable = |name| variable(name).map(Zeroizing::new).filter(|value| !value.trim().is_empty());
        let token = variable("BEARER_TOKEN").map(|token| Secret::from(token.trim().as_bytes()));
        let name = format!("bt_u{}", rustix::process::geteuid().as_raw());
        let file = variable("BEARER_TOKEN_FILE").map(|file| PathBuf::from(file.as_str()));
        let runtime = variable("XDG_RUNTIME_DIR").map(|directory| Path::new(directory.as_str()).join(&name));
        let files = file.into_iter().chain(runtime).chain([temporary.join(&name)]).collect();
        Self { token, files }
    }

    /// Returns the token of the first place that has one. `last` is a further file. Blocks.
    ///
    /// # Errors
    /// There is no token, or a file is not usable; with the reason and the remedy.
    pub fn find(&self, last: Option<&Path>, bytes_max: usize) -> Result<Secret, (String, String)> {
        if let Some(token) = &self.token {
            return fitting(token.clone(), "BEARER_TOKEN", bytes_max);
        }
        for file in self.files.iter().map(PathBuf::as_path).chain(last) {
            if let Some(token) = read(file, bytes_max)? {
                return fitting(token, &file.display().to_string(), bytes_max);
            }
        }
        let remedy = "set BEARER_TOKEN or BEARER_TOKEN_FILE";
        Err(("there is no token".to_owned(), remedy.to_owned()))
    }
}

fn fitting(token: Secret, place: &str, bytes_max: usize) -> Result<Secret, (String, String)> {
    if token.expose().len() > bytes_max {
        let reason =
            format!("the token in {place} is longer than the {bytes_max} bytes that the server accepts");
        return Err((reason, "get a token with fewer claims".to_owned()));
    }
    Ok(token)
}

/// Reads a token file. `None` if there is no file, or only white space in it.
fn read(path: &Path, bytes_max: usize) -> Result<Option<Secret>, (String, String)> {
    let shown = path.display();
    let unusable =
        |what: &str, remedy: String| Err((format!("the token file {shown} is not used: {what}"), remedy));
    // A pipe under this name must not block the open, and a link could lead to a file of another user.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
    let file = match open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(Errno::LOOP) => return unusable("it is a link", "name the file itself".to_owned()),
        Err(error) => {
            return unusable(&base::errno_text(&error.into()), "name a readable file".to_owned());
        }
    };
    let status = match fstat(&file) {
        Ok(status) => status,
        Err(error) => {
            return unusable(&base::errno_text(&error.into()), "name a readable file".to_owned());
        }
    };
    let user = rustix::process::geteuid().as_raw();
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return unusable("it is not a regular file", "name a file".to_owned());
    }
    if status.st_uid != user {
        let what = format!("it belongs to user id {}, and this program runs as {user}", status.st_uid);
        return unusable(&what, format!("run chown {user} {shown}"));
    }
    if status.st_mode & SHARED != 0 {
        let what = format!("its permissions {:04o} allow others to use it", status.st_mode & 0o7777);
        return unusable(&what, format!("run chmod 600 {shown}"));
    }
    // White space around the token does not count.
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(4096);
    let mut text = Zeroizing::new(Vec::with_capacity(bytes_max.saturating_add(4097)));
    if let Err(error) = file.take(limit + 1).read_to_end(&mut text) {
        return unusable(&base::errno_text(&error), "name a readable file".to_owned());
    }
    let token = text.trim_ascii();
    Ok(Some(token).filter(|token| !token.is_empty()).map(Secret::from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn scratch(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("auth-ztn-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        directory
    }

    fn write(path: &Path, text: &str, mode: u32) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    /// Recorded: `names.json`.
    #[test]
    fn the_places_have_the_recorded_order() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/security/names.json");
        let recorded: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        let cases = recorded["bearer_discovery"].as_array().unwrap();
        assert!(cases.len() >= 7);
        for (number, case) in cases.iter().enumerate() {
            let top = scratch(&format!("places{number}"));
            let user = rustix::process::geteuid().as_raw().to_string();
            let place = |name: &str| {
                let name = name.replace("<euid>", &user).replace("<tmp>", "tmp");
                top.join(name)
            };
            for (name, content) in case["files"].as_object().into_iter().flatten() {
                let mode = u32::from_str_radix(content[1].as_str().unwrap(), 8).unwrap();
                write(&place(name), content[0].as_str().unwrap(), mode);
            }
            let variable = |name: &str| {
                let value = case["env"][name].as_str()?;
                let is_path = name != "BEARER_TOKEN";
                Some(if is_path { place(value).display().to_string() } else { value.to_owned() })
            };
            let url = case["url"].as_str().and_then(|url| url.strip_prefix("xrd.ztn=")).map(place);
            let found = TokenPlaces::in_directory(variable, &top.join("tmp")).find(url.as_deref(), 4096);
            let token = found.as_ref().ok().map(|token| String::from_utf8(token.expose().to_vec()).unwrap());
            assert_eq!(token.as_deref(), case["token"].as_str(), "{case}");
            if let Err((reason, remedy)) = found {
                assert!(
                    reason.contains("permissions 0644") && remedy.contains("chmod 600"),
                    "{reason}; {remedy}"
                );
            }
            fs::remove_dir_all(top).unwrap();
        }
    }

    #[test]
    fn unsafe_files_end_the_search() {
        let top = scratch("unsafe");
        let file = top.join("token");
        let places = |path: &Path| TokenPlaces { token: None, files: vec![path.to_owned(), file.clone()] };
        let reason = |path: &Path| places(path).find(None, 8).unwrap_err().0;
        write(&file, " token \n", 0o600);
        assert_eq!(places(&top.join("none")).find(None, 8).unwrap().expose(), b"token");
        let link = top.join("link");
        symlink(&file, &link).unwrap();
        assert!(reason(&link).contains("it is a link"));
        assert!(reason(&top).contains("not a regular file"));
        for mode in [0o640, 0o604, 0o610] {
            let shared = top.join("shared");
            write(&shared, "token", mode);
            assert!(reason(&shared).contains("allow others to use it"), "{mode:o}");
        }
        let long = top.join("long");
        write(&long, "123456789", 0o600);
        assert!(reason(&long).contains("longer than the 8 bytes"));
        write(&long, &"x".repeat(100_000), 0o600);
        assert!(reason(&long).contains("longer than the 8 bytes"));
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&long, Some(4711), None).unwrap();
            assert!(reason(&long).contains("it belongs to user id 4711"));
        }
        fs::remove_dir_all(top).unwrap();
    }
}
