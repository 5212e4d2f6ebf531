//! Parser of XRootD's command line with the rules of its `getopt`: attached and separate arguments,
//! combined flags, options up to the first path.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// The usage message. `PROGRAM` stands for the name.
pub(super) const USAGE: &str = "\
Usage: PROGRAM [-b] [-c <cfn>] [-d] [-h] [-H] [-I {v4|v6}]
[-k {n|sz|sig}] [-l [=]<fn>] [-n name] [-p <port>] [-P <prot>] [-L <libprot>]
[-a <adminpath>] [-A <adminpath>] [-w <homepath>] [-W <homepath>] [-N host]
[-R user] [-s pidfile] [-S site] [-v] [-z] [path ...]
";

/// A parsed command line.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Options {
    /// `-a`, `-A`: admin directory. With `-A` the group may use it.
    pub(super) admin_path: Option<(PathBuf, bool)>,
    /// `-b`
    pub(super) background: bool,
    /// `-c`
    pub(super) config: Option<PathBuf>,
    /// `-d`
    pub(super) debug: bool,
    /// `-h`
    pub(super) help: bool,
    /// `-H`
    pub(super) licence: bool,
    /// `-I`
    pub(super) family: Option<Family>,
    /// `-k`
    pub(super) retention: Option<String>,
    /// `-l`
    pub(super) log: Option<LogName>,
    /// `-L`
    pub(super) protocol_library: Option<String>,
    /// `-n`
    pub(super) instance: Option<String>,
    /// `-N`
    pub(super) host: Option<String>,
    /// `-p`
    pub(super) port: Option<String>,
    /// `-P`
    pub(super) protocol: Option<String>,
    /// `-R`
    pub(super) user: Option<String>,
    /// `-s`
    pub(super) pid_file: Option<PathBuf>,
    /// `-S`
    pub(super) site: Option<String>,
    /// `-v`
    pub(super) version: bool,
    /// `-w`, `-W`: home directory. With `-W` the group may use it.
    pub(super) home: Option<(PathBuf, bool)>,
    /// `-z`
    pub(super) precise: bool,
    /// Paths to export.
    pub(super) paths: Vec<String>,
    /// Options that are accepted without effect.
    pub(super) without_effect: Vec<String>,
}

/// `-I`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Family {
    /// `v4`
    V4,
    /// `v6`
    V6,
}

/// `-l`
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum LogName {
    /// `-`: standard error.
    Stderr,
    /// A file. Unless `exact` (`=`) is set, the instance's directory is inserted before its name.
    File {
        /// The path as written, without `=`.
        path: PathBuf,
        /// Set if `=` preceded the path.
        exact: bool,
    },
}

/// The reason why the command line is invalid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct OptionsError(pub(super) String);

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Flags. Those of the protocol come last, because they tune features that we do not have.
const FLAGS: &[u8] = b"bdhHvzrty";
/// Options with an argument.
const WITH_ARGUMENT: &[u8] = b"aAcIklLnNpPRsSwW";

impl Options {
    /// Parses the arguments after the program name.
    pub(super) fn parse(arguments: Vec<OsString>) -> Result<Self, OptionsError> {
        let mut options = Self::default();
        let mut rest = arguments.into_iter().peekable();
        while let Some(argument) = rest.next_if(|a| a.len() > 1 && a.as_bytes().starts_with(b"-")) {
            if argument == "--" {
                break;
            }
            if argument.as_bytes().starts_with(b"-+") {
                // All arguments up to the next such option belong to that component.
                options.without_effect.push(text(&argument, "option")?);
                while rest.next_if(|a| !a.as_bytes().starts_with(b"-+")).is_some() {}
                continue;
            }
            options.cluster(argument.as_bytes(), &mut rest)?;
        }
        for path in rest {
            let path = text(&path, "path")?;
            if matches!(path.as_str(), "-r" | "-t" | "-y") {
                options.without_effect.push(path);
            } else if path.starts_with('/') {
                options.paths.push(path);
            } else {
                return Err(OptionsError(format!("`{path}` cannot be exported: give an absolute path")));
            }
        }
        Ok(options)
    }

    /// Parses one argument that begins with `-`: flags, the last of which may take an argument.
    fn cluster(
        &mut self,
        letters: &[u8],
        rest: &mut impl Iterator<Item = OsString>,
    ) -> Result<(), OptionsError> {
        for (at, &letter) in letters.iter().enumerate().skip(1) {
            if FLAGS.contains(&letter) {
                self.flag(letter);
                continue;
            }
            let shown = char::from(letter);
            if !WITH_ARGUMENT.contains(&letter) {
                return Err(OptionsError(format!("there is no option -{shown}")));
            }
            let attached = letters.get(at + 1..).filter(|value| !value.is_empty());
            let value = attached.map(|value| OsString::from_vec(value.to_vec())).or_else(|| rest.next());
            let Some(value) = value else {
                return Err(OptionsError(format!("option -{shown} needs an argument")));
            };
            return self.value(letter, &value);
        }
        Ok(())
    }

    fn flag(&mut self, letter: u8) {
        match letter {
            b'b' => self.background = true,
            b'd' => self.debug = true,
            b'h' => self.help = true,
            b'H' => self.licence = true,
            b'v' => self.version = true,
            b'z' => self.precise = true,
            other => self.without_effect.push(format!("-{}", char::from(other))),
        }
    }

    fn value(&mut self, letter: u8, value: &OsStr) -> Result<(), OptionsError> {
        let what = match letter {
            b'n' => "instance name",
            b'p' => "port",
            b'R' => "user",
            _ => "argument",
        };
        match letter {
            b'a' => self.admin_path = Some((value.into(), false)),
            b'A' => self.admin_path = Some((value.into(), true)),
            b'c' => self.config = Some(value.into()),
            b's' => self.pid_file = Some(value.into()),
            b'w' => self.home = Some((value.into(), false)),
            b'W' => self.home = Some((value.into(), true)),
            b'l' => self.log = Some(log_name(value)?),
            b'I' => self.family = Some(family(&text(value, what)?)?),
            b'k' => self.retention = Some(text(value, what)?),
            b'L' => self.protocol_library = Some(text(value, what)?),
            b'n' => self.instance = instance(&text(value, what)?)?,
            b'N' => self.host = Some(text(value, what)?),
            b'p' => self.port = Some(text(value, what)?),
            b'P' => self.protocol = Some(text(value, what)?),
            b'R' => self.user = Some(text(value, what)?),
            _ => self.site = Some(text(value, what)?),
        }
        Ok(())
    }
}

fn text(value: &OsStr, what: &str) -> Result<String, OptionsError> {
    let shown = value.to_string_lossy();
    if value.is_empty() {
        return Err(OptionsError(format!("an empty {what} is not allowed")));
    }
    value
        .to_str()
        .map(str::to_owned)
        .ok_or_else(|| OptionsError(format!("the {what} `{shown}` is not UTF-8 text")))
}

fn family(text: &str) -> Result<Family, OptionsError> {
    match text {
        "v4" => Ok(Family::V4),
        "v6" => Ok(Family::V6),
        other => Err(OptionsError(format!("-I takes v4 or v6, not `{other}`"))),
    }
}

/// Validates an instance name. It becomes part of directory and file names, so it must be a single
/// path component. `anon` is the server without a name.
fn instance(name: &str) -> Result<Option<String>, OptionsError> {
    if name.contains('/') || name.starts_with('.') || name.contains(char::is_whitespace) {
        return Err(OptionsError(format!(
            "`{name}` is no instance name: it becomes the name of a directory"
        )));
    }
    Ok((name != "anon").then(|| name.to_owned()))
}

fn log_name(value: &OsStr) -> Result<LogName, OptionsError> {
    let bytes = value.as_bytes();
    if bytes == b"-" {
        return Ok(LogName::Stderr);
    }
    if bytes.starts_with(b"@") {
        let library = value.to_string_lossy();
        return Err(OptionsError(format!(
            "logging through a library ({library}) is not possible; name a file"
        )));
    }
    let (name, exact) = bytes.strip_prefix(b"=").map_or((bytes, false), |name| (name, true));
    if name.is_empty() || name.ends_with(b"/") {
        return Err(OptionsError(format!("-l takes a file, not `{}`", value.to_string_lossy())));
    }
    Ok(LogName::File { path: PathBuf::from(OsStr::from_bytes(name)), exact })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, OptionsError> {
        Options::parse(line.split_whitespace().map(OsString::from).collect())
    }

    #[test]
    fn options_attach_combine_and_stop_at_the_first_path() {
        let separate = parse("-b -z -p 1094 -n foo -c /etc/x.cfg /data /more").unwrap();
        assert_eq!(parse("-bzp1094 -nfoo -c/etc/x.cfg /data /more"), Ok(separate.clone()));
        assert_eq!(parse("-b -z -p 1094 -n foo -c /etc/x.cfg -- /data /more"), Ok(separate.clone()));
        assert!(separate.background && separate.precise);
        assert_eq!(separate.port.as_deref(), Some("1094"));
        assert_eq!(separate.paths, ["/data", "/more"]);
        assert!(parse("/data -p 1094").is_err());
        assert_eq!(parse("/data -r").unwrap().without_effect, ["-r"]);
    }

    #[test]
    fn each_option_lands_in_its_place() {
        let options = parse(
            "-A /adm -d -I v4 -k 10m -l =/log/x -n srv -N my.host -R daemon -s /run/x.pid -S SITE -W /home -L x.so -P xroot",
        )
        .unwrap();
        let expected = Options {
            admin_path: Some(("/adm".into(), true)),
            debug: true,
            family: Some(Family::V4),
            retention: Some("10m".into()),
            log: Some(LogName::File { path: "/log/x".into(), exact: true }),
            instance: Some("srv".into()),
            host: Some("my.host".into()),
            user: Some("daemon".into()),
            pid_file: Some("/run/x.pid".into()),
            site: Some("SITE".into()),
            home: Some(("/home".into(), true)),
            protocol_library: Some("x.so".into()),
            protocol: Some("xroot".into()),
            ..Options::default()
        };
        assert_eq!(options, expected);
        assert_eq!(parse("-l -").unwrap().log, Some(LogName::Stderr));
        assert_eq!(parse("-a /adm").unwrap().admin_path, Some(("/adm".into(), false)));
        assert!(parse("-h").unwrap().help && parse("-H").unwrap().licence && parse("-zv").unwrap().version);
        assert_eq!(parse("-n anon").unwrap().instance, None);
    }

    #[test]
    fn arguments_of_components_are_passed_over() {
        let options = parse("-p 1 -+xrdcl -v /x -+other y").unwrap();
        assert_eq!(options.without_effect, ["-+xrdcl", "-+other"]);
        assert!(!options.version && options.paths.is_empty());
    }

    #[test]
    fn what_is_wrong_is_named() {
        let table = [
            ("-Q", "there is no option -Q"),
            ("-bQ", "there is no option -Q"),
            ("-p", "option -p needs an argument"),
            ("-I v5", "-I takes v4 or v6"),
            ("-l @lib.so", "through a library"),
            ("-l /var/log/", "takes a file"),
            ("-n a/b", "no instance name"),
            ("-n ..", "no instance name"),
            ("data", "absolute path"),
            ("-c x -p 1 rel/path", "absolute path"),
        ];
        for (line, expected) in table {
            let error = parse(line).unwrap_err().0;
            assert!(error.contains(expected), "{line}: {error}");
        }
        assert!(Options::parse(vec!["-n".into(), "".into()]).is_err());
    }
}
