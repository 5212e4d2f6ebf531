//! [`S3Environment`]: the object store that the environment of a user names, as other programs for S3 read it:
//! the variables `AWS_…`, and a profile in `~/.aws/credentials` and `~/.aws/config`.

use std::fmt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use zeroize::Zeroizing;

use crate::s3::S3Credentials;
use crate::secret::Secret;

/// Maximum size of a file with settings.
const FILE_BYTES_MAX: u64 = 256 * 1024;
/// The region if none is set. Most stores but that of Amazon have one region of this name.
const REGION: &str = "us-east-1";
/// Maximum length of the name of a region.
const REGION_BYTES_MAX: usize = 64;
/// The profile if none is chosen.
const PROFILE: &str = "default";
/// Settings by which other programs get keys that this one cannot get.
const FOREIGN_KEYS: [&str; 5] =
    ["credential_process", "role_arn", "sso_session", "sso_start_url", "web_identity_token_file"];
const KEY_ID: &str = "aws_access_key_id";
/// Settings that [`S3Credentials::read`] reads only.
const SECRET_KEYS: [&str; 2] = ["aws_secret_access_key", "aws_session_token"];

/// The address of an object store, and the keys for it.
#[derive(Clone, Debug)]
pub struct S3Environment {
    /// The URL of the store.
    pub endpoint: String,
    /// The region, which is part of each signature.
    pub region: String,
    /// The keys; `None` for requests without a signature.
    pub credentials: Option<S3Credentials>,
}

/// The settings of a section in a file. A nested one is `OUTER.INNER`.
struct AwsSection(Vec<(String, String)>);

/// A file with settings.
struct AwsFile {
    path: PathBuf,
    text: Option<Zeroizing<String>>,
}

impl AwsSection {
    fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().rev().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }
}

impl AwsFile {
    /// Reads a file. A missing one has no settings, unless a variable names it. Only root and the user may have written
    /// it, because it chooses the store that gets the files.
    fn read(path: PathBuf, is_named: bool) -> Result<Self, String> {
        use std::io::{ErrorKind, Read};
        let failed = |error: &dyn fmt::Display| format!("cannot read {}: {error}", path.display());
        // The open of a pipe would wait for its writer.
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
        let file = match std::fs::File::options().read(true).custom_flags(flags).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound && !is_named => {
                return Ok(Self { path, text: None });
            }
            Err(error) => return Err(failed(&error)),
        };
        let found = file.metadata().map_err(|error| failed(&error))?;
        // `/dev/null` stands for no settings.
        if !found.is_file() && !found.file_type().is_char_device() {
            return Err(failed(&"it is not a regular file"));
        }
        if ![0, rustix::process::geteuid().as_raw()].contains(&found.uid()) {
            return Err(failed(&"it belongs to another user"));
        }
        if found.is_file() && found.mode() & 0o002 != 0 {
            return Err(failed(&"everybody can write it; use `chmod o-w`"));
        }
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(failed(&format!("it has more than {FILE_BYTES_MAX} bytes")));
        }
        let text = String::from_utf8(bytes).map_err(|_| failed(&"it is not UTF-8 text"))?;
        Ok(Self { path, text: Some(Zeroizing::new(text)) })
    }

    /// Returns the settings of a section with one of these names.
    fn section(&self, names: &[&str]) -> Option<AwsSection> {
        let (mut found, mut is_it, mut outer) = (None, false, String::new());
        for line in self.text.as_ref()?.lines() {
            let is_nested = line.starts_with([' ', '\t']);
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                let words: Vec<&str> = name.split_whitespace().collect();
                is_it = names.contains(&words.join(" ").as_str());
                if is_it {
                    found.get_or_insert_with(Vec::new);
                }
                continue;
            }
            let (Some((key, value)), true, Some(values)) = (line.split_once('='), is_it, found.as_mut())
            else {
                continue;
            };
            let (key, value) = (key.trim(), value.trim());
            if SECRET_KEYS.contains(&key) {
                continue;
            }
            if is_nested && !outer.is_empty() {
                values.push((format!("{outer}.{key}"), value.to_owned()));
                continue;
            }
            outer = if value.is_empty() { key.to_owned() } else { String::new() };
            values.push((key.to_owned(), value.to_owned()));
        }
        found.map(AwsSection)
    }
}

/// The files of a user, and the chosen profile.
struct AwsProfile {
    name: String,
    credentials: AwsFile,
    config: AwsFile,
}

impl AwsProfile {
    fn of(variable: &impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        // The directory of the process is not that of its user.
        let home = variable("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        let at = |name: &str, default: &str| {
            let named = variable(name);
            match (&named, &home) {
                (Some(path), _) => AwsFile::read(PathBuf::from(path), true),
                (None, Some(home)) => AwsFile::read(home.join(default), false),
                (None, None) => Ok(AwsFile { path: Path::new("~").join(default), text: None }),
            }
            .map_err(|why| format!("{why} ({name})"))
        };
        let credentials = at("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials")?;
        let config = at("AWS_CONFIG_FILE", ".aws/config")?;
        let chosen = variable("AWS_PROFILE").or_else(|| variable("AWS_DEFAULT_PROFILE"));
        let profile =
            Self { name: chosen.clone().unwrap_or_else(|| PROFILE.to_owned()), credentials, config };
        if let Some(name) = chosen.filter(|_| profile.keys().is_none() && profile.settings().is_none()) {
            let (one, other) = (profile.credentials.path.display(), profile.config.path.display());
            return Err(format!("neither {one} nor {other} has the profile {name} (AWS_PROFILE)"));
        }
        Ok(profile)
    }

    /// Returns the section of the profile in the file of keys.
    fn keys(&self) -> Option<AwsSection> {
        self.credentials.section(&[&self.name])
    }

    /// Returns the section of the profile in the file of settings.
    fn settings(&self) -> Option<AwsSection> {
        let long = format!("profile {}", self.name);
        let names: &[&str] = if self.name == PROFILE { &[PROFILE, &long] } else { &[&long] };
        self.config.section(names)
    }

    /// Returns the keys of the profile. The file with them must be readable by its owner only.
    fn credentials(&self) -> Result<Option<S3Credentials>, String> {
        let (keys, settings) = (self.keys(), self.settings());
        let sections = [(&keys, &self.credentials), (&settings, &self.config)];
        for (section, file) in sections {
            if section.as_ref().is_some_and(|section| section.get(KEY_ID).is_some()) {
                return S3Credentials::read(&file.path, &self.name).map(Some);
            }
        }
        let foreign =
            |section: &AwsSection| FOREIGN_KEYS.into_iter().find(|name| section.get(name).is_some());
        match keys.iter().chain(&settings).find_map(foreign) {
            Some(name) => Err(format!(
                "the profile {} gets its keys by {name}, which this program does not support; set them as variables: \
                 eval \"$(aws configure export-credentials --format env)\"",
                self.name
            )),
            None => Ok(None),
        }
    }

    /// Returns the endpoint of the profile.
    fn endpoint(&self) -> Option<String> {
        let (settings, keys) = (self.settings(), self.keys());
        let sections = || settings.iter().chain(&keys);
        let services = sections().find_map(|section| section.get("services")).and_then(|name| {
            let section = self.config.section(&[&format!("services {name}")])?;
            section.get("s3.endpoint_url").map(str::to_owned)
        });
        let own = |name: &str| sections().find_map(|section| section.get(name)).map(str::to_owned);
        services.or_else(|| own("s3.endpoint_url")).or_else(|| own("endpoint_url"))
    }

    fn region(&self) -> Option<String> {
        let of = |section: Option<AwsSection>| section?.get("region").map(str::to_owned);
        of(self.settings()).or_else(|| of(self.keys()))
    }
}

impl S3Environment {
    /// Reads the settings of a user. Blocks.
    ///
    /// # Errors
    /// A text with the remedy, without secrets.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let profile = AwsProfile::of(&variable)?;
        let credentials = match keys_of_variables(&variable)? {
            Some(keys) => Some(keys),
            None => profile.credentials()?,
        };
        let region = variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION"));
        let region = region.or_else(|| profile.region()).unwrap_or_else(|| REGION.to_owned());
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if region.len() > REGION_BYTES_MAX || !region.bytes().all(is_plain) {
            return Err(format!("{region:?} is not the name of a region (AWS_REGION)"));
        }
        let named = variable("AWS_ENDPOINT_URL_S3").or_else(|| variable("AWS_ENDPOINT_URL"));
        let is_ignored = variable("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")
            .is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let named = if is_ignored { None } else { named.or_else(|| profile.endpoint()) };
        let endpoint = named.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        Ok(Self { endpoint, region, credentials })
    }
}

/// Returns the keys in variables.
fn keys_of_variables(variable: &impl Fn(&str) -> Option<String>) -> Result<Option<S3Credentials>, String> {
    let names = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];
    let (key_id, secret) = match names.map(variable) {
        [Some(key_id), Some(secret)] => (key_id, secret),
        [None, None] => return Ok(None),
        [None, _] => return Err("AWS_SECRET_ACCESS_KEY is set without AWS_ACCESS_KEY_ID".to_owned()),
        [_, None] => return Err("AWS_ACCESS_KEY_ID is set without AWS_SECRET_ACCESS_KEY".to_owned()),
    };
    let is_value = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_value(&key_id) || key_id.contains(['/', ',', '=']) {
        return Err("the value of AWS_ACCESS_KEY_ID is malformed".to_owned());
    }
    let token = variable("AWS_SESSION_TOKEN").map(|token| Secret::new(token.into_bytes()));
    if token.as_ref().is_some_and(|token| !token.expose().iter().all(u8::is_ascii_graphic)) {
        return Err("the value of AWS_SESSION_TOKEN is malformed".to_owned());
    }
    Ok(Some(S3Credentials::new(&key_id, Secret::new(secret.into_bytes()), token)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode};
    use std::collections::HashMap;
    use std::os::unix::fs::PermissionsExt;

    /// Names and values.
    type Variables<'a> = &'a [(&'a str, &'a str)];

    /// A home directory with files of settings.
    struct UserHome(PathBuf);

    impl UserHome {
        fn new(name: &str, credentials: &str, config: &str) -> Self {
            let home = std::env::temp_dir().join(format!("auth-s3-{name}-{}", std::process::id()));
            std::fs::create_dir_all(home.join(".aws")).unwrap();
            for (file, text) in [("credentials", credentials), ("config", config)] {
                let path = home.join(".aws").join(file);
                std::fs::write(&path, text).unwrap();
                std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
            }
            Self(home)
        }

        fn read(&self, variables: Variables<'_>) -> Result<S3Environment, String> {
            let mut set: HashMap<String, String> =
                variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            set.entry("HOME".to_owned()).or_insert_with(|| self.0.to_str().unwrap().to_owned());
            S3Environment::read(|name| set.get(name).cloned())
        }
    }

    impl Drop for UserHome {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).ok();
        }
    }

    const KEYS: &str = "[default]\naws_access_key_id = A\naws_secret_access_key = s\n\
                        [other]\naws_access_key_id=B\naws_secret_access_key=t\nregion = r-keys\n";
    const CONFIG: &str = "[default]\nregion = r-1\n[profile other]\nservices = mine\nendpoint_url = https://e:1\n\
                          [profile sso]\nsso_session = x\n\
                          [services mine]\ns3 =\n  endpoint_url = http://s3:2\nec2 =\n  endpoint_url = http://no\n";

    fn key_id(found: &S3Environment) -> Option<String> {
        let text = format!("{:?}", found.credentials.as_ref()?);
        assert!(!text.contains("\"s\""), "{text}");
        text.split('"').nth(1).map(str::to_owned)
    }

    #[test]
    fn variables_come_before_profiles() {
        let home = UserHome::new("order", KEYS, CONFIG);
        let table: [(Variables<'_>, &str, &str, &str); 5] = [
            (&[], "A", "r-1", "https://s3.r-1.amazonaws.com"),
            (&[("AWS_PROFILE", "other"), ("AWS_REGION", "")], "B", "r-keys", "http://s3:2"),
            (
                &[("AWS_ACCESS_KEY_ID", "C"), ("AWS_SECRET_ACCESS_KEY", "u"), ("AWS_REGION", "r-2")],
                "C",
                "r-2",
                "https://s3.r-2.amazonaws.com",
            ),
            (
                &[("AWS_ENDPOINT_URL", "http://a"), ("AWS_ENDPOINT_URL_S3", "http://b")],
                "A",
                "r-1",
                "http://b",
            ),
            (
                &[("AWS_PROFILE", "other"), ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")],
                "B",
                "r-keys",
                "https://s3.r-keys.amazonaws.com",
            ),
        ];
        for (variables, key, region, endpoint) in table {
            let found = home.read(variables).unwrap();
            let shown = (key_id(&found), found.region.as_str(), found.endpoint.as_str());
            assert_eq!(shown, (Some(key.to_owned()), region, endpoint), "{variables:?}");
        }
    }

    #[test]
    fn the_endpoint_of_a_profile_may_be_in_both_files() {
        let keys =
            "[default]\naws_access_key_id = A\naws_secret_access_key = s\nendpoint_url = https://keys\n";
        let home = UserHome::new("both", keys, "[default]\nregion = r\n");
        assert_eq!(home.read(&[]).unwrap().endpoint, "https://keys");
        let ignored = home.read(&[("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "True")]).unwrap();
        assert_eq!(ignored.endpoint, "https://s3.r.amazonaws.com");
        let nested = "[default]\ns3 =\n  endpoint_url = https://nested\n";
        assert_eq!(UserHome::new("nested", keys, nested).read(&[]).unwrap().endpoint, "https://nested");
    }

    #[test]
    fn nothing_is_set() {
        let home = UserHome::new("none", "", "");
        let found = home.read(&[("HOME", "/nonexistent")]).unwrap();
        assert!(found.credentials.is_none());
        assert_eq!(found.endpoint, "https://s3.us-east-1.amazonaws.com");
    }

    #[test]
    fn files_that_others_may_have_prepared_are_not_used() {
        let home = UserHome::new("prepared", KEYS, CONFIG);
        let config = home.0.join(".aws/config");
        std::fs::set_permissions(&config, PermissionsExt::from_mode(0o666)).unwrap();
        assert!(home.read(&[]).unwrap_err().contains("everybody can write it"));
        // An open of it would wait.
        std::fs::remove_file(&config).unwrap();
        rustix::fs::mknodat(CWD, &config, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert!(home.read(&[]).unwrap_err().contains("not a regular file"));
        let found = home.read(&[("AWS_CONFIG_FILE", "/dev/null")]).unwrap();
        assert_eq!(found.region, REGION);
        // A path that depends on the directory of the process.
        for path in ["", ".", "relative"] {
            let of = |name: &str| (name == "HOME").then(|| path.to_owned());
            let profile = AwsProfile::of(&of).unwrap();
            assert_eq!(profile.config.path, Path::new("~/.aws/config"), "{path}");
        }
    }

    #[test]
    fn faults_are_named() {
        let home = UserHome::new("faults", KEYS, CONFIG);
        let table: [(Variables<'_>, &str); 6] = [
            (&[("AWS_PROFILE", "none")], "has the profile none"),
            (&[("AWS_PROFILE", "sso")], "export-credentials"),
            (&[("AWS_ACCESS_KEY_ID", "C")], "without AWS_SECRET_ACCESS_KEY"),
            (&[("AWS_SECRET_ACCESS_KEY", "C")], "without AWS_ACCESS_KEY_ID"),
            (&[("AWS_REGION", "a/b")], "not the name of a region"),
            (&[("AWS_CONFIG_FILE", "/nonexistent")], "AWS_CONFIG_FILE"),
        ];
        for (variables, part) in table {
            let error = home.read(variables).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let path = home.0.join(".aws/credentials");
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o644)).unwrap();
        assert!(home.read(&[]).unwrap_err().contains("read the keys"));
        // Keys in variables need no file.
        assert!(home.read(&[("AWS_ACCESS_KEY_ID", "C"), ("AWS_SECRET_ACCESS_KEY", "u")]).is_ok());
    }
}
