//! The programs `xrootd` and `cmsd`: their command line, files and exit statuses.
//!
//! Both have the same command line, and one process serves both roles. The `cmsd` process is a
//! stand-in for scripts that expect a process of that name.

mod options;

use crate::evaluation::evaluation;
use crate::printer::err;
use crate::xrootd_compat::LICENCE;
use config::{AddressFamily, ConfigInput, DirectorySetting, Overrides, Port, Strictness};
use options::{Family, LogName, Options, OptionsError, USAGE};
use server::log::{Levels, Retention};
use server::process::User;
use server::{Launch, LogTarget};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The data server.
const XROOTD: &str = "xrootd";
/// The cluster node.
const CMSD: &str = "cmsd";

/// Exit status of an invalid command line.
const USAGE_STATUS: u8 = 1;

/// Runs `xrootd` with the arguments after the name.
pub(crate) fn run(arguments: Vec<OsString>) -> ExitCode {
    play(XROOTD, arguments, server::run)
}

/// Runs `cmsd` with the arguments after the name.
pub(crate) fn stand_in(arguments: Vec<OsString>) -> ExitCode {
    play(CMSD, arguments, server::stand_in)
}

fn play(program: &str, arguments: Vec<OsString>, run: fn(Launch) -> ExitCode) -> ExitCode {
    let options = match Options::parse(arguments) {
        Ok(options) => options,
        Err(error) => return refuse(program, &error),
    };
    // These are written to standard error, where scripts expect them.
    if options.help {
        err().lines(USAGE.replace("PROGRAM", program));
        return ExitCode::SUCCESS;
    }
    if options.licence {
        err().literal(LICENCE);
        return ExitCode::SUCCESS;
    }
    if options.version {
        err().line(server::VERSION);
        return ExitCode::SUCCESS;
    }
    match launch(program, options) {
        Ok(launch) => run(launch),
        Err(error) => refuse(program, &error),
    }
}

fn refuse(program: &str, error: &OptionsError) -> ExitCode {
    err().line(format_args!("{program}: error: {error}"));
    err().lines(format_args!("\n{}", USAGE.replace("PROGRAM", program)));
    ExitCode::from(USAGE_STATUS)
}

/// Returns the configuration of the server with this command line. A stand-in needs the same values
/// to find the server.
fn launch(program: &str, options: Options) -> Result<Launch, OptionsError> {
    for option in &options.without_effect {
        err().line(format_args!("{program}: warning: {option} is taken and changes nothing"));
    }
    if let Some(user) = &options.user {
        User::find(user).map_err(|error| OptionsError(error.to_string()))?;
    }
    if program == XROOTD {
        own_protocol(&options)?;
    }
    let full = |path: &Path| {
        std::path::absolute(path).map_err(|error| OptionsError(format!("`{}`: {error}", path.display())))
    };
    let retention: Retention = match &options.retention {
        Some(text) => text.parse().map_err(|error| OptionsError(format!("-k: {error}")))?,
        None => Retention::default(),
    };
    let log = match &options.log {
        Some(LogName::File { path, exact }) => {
            LogTarget::File { path: full(path)?, exact: *exact, retention }
        }
        Some(LogName::Stderr) | None => LogTarget::Stderr,
    };
    let directory = |chosen: &Option<(PathBuf, bool)>| match chosen {
        Some((path, group)) => full(path).map(|path| Some(DirectorySetting { path, group: *group })),
        None => Ok(None),
    };
    let overrides = Overrides {
        exports: options.paths.clone(),
        // The port option of a cmsd is for its own process. Here the server has the port.
        port: options.port.as_deref().filter(|_| program == XROOTD).map(port).transpose()?,
        family: options.family.map(|family| match family {
            Family::V4 => AddressFamily::V4,
            Family::V6 => AddressFamily::V6,
        }),
        admin_path: directory(&options.admin_path)?,
        home_path: directory(&options.home)?,
        site_name: options.site.clone(),
        debug: options.debug,
        ..Overrides::default()
    };
    let mut evaluation = evaluation(XROOTD, options.instance);
    evaluation.host = options.host.unwrap_or_default();
    let file = options.config.as_deref().map(full).transpose()?;
    Ok(Launch {
        load: ConfigInput {
            file: file.map(|path| path.to_string_lossy().into_owned()),
            evaluation,
            overrides,
            strictness: Strictness::Legacy,
        },
        log,
        levels: Levels::raised(u8::from(options.debug)),
        precise: options.precise,
        user: options.user,
        background: options.background,
        pid_file: options.pid_file,
        traditional_files: true,
        announce: false,
    })
}

/// Parses a port: a number, `any`, or the name of a service.
fn port(text: &str) -> Result<Port, OptionsError> {
    if text == "any" || text == "0" {
        return Ok(Port::Any);
    }
    if let Ok(number) = text.parse() {
        return Ok(Port::Number(number));
    }
    let services = std::fs::read_to_string("/etc/services").unwrap_or_default();
    service(&services, text).map(Port::Number).ok_or_else(|| {
        OptionsError(format!("-p takes 1 to 65535, `any` or a service of /etc/services, not `{text}`"))
    })
}

/// Returns the TCP port of a service from the text of `/etc/services`.
fn service(services: &str, name: &str) -> Option<u16> {
    services.lines().find_map(|line| {
        let line = line.split('#').next()?;
        let mut words = line.split_whitespace();
        let first = words.next()?;
        let number = words.next()?.strip_suffix("/tcp")?;
        (first == name || words.any(|alias| alias == name)).then(|| number.parse().ok())?
    })
}

/// Checks `-P` and `-L`, which select the protocol and its library. Ours is built in.
fn own_protocol(options: &Options) -> Result<(), OptionsError> {
    if let Some(protocol) = options.protocol.as_deref().filter(|name| !matches!(*name, "xroot" | "xrootd")) {
        return Err(OptionsError(format!("-P: the protocol is xroot, not `{protocol}`")));
    }
    if let Some(library) = &options.protocol_library {
        let name = library.rsplit('/').next().unwrap_or_default();
        if !name.starts_with("libXrdXrootd") {
            return Err(OptionsError(format!(
                "-L: `{library}` cannot be loaded; the xroot protocol is built in, leave the option out"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launched(line: &str) -> Result<Launch, OptionsError> {
        launch(XROOTD, Options::parse(line.split_whitespace().map(OsString::from).collect())?)
    }

    #[test]
    fn options_become_a_server() {
        let launch =
            launched("-b -n foo -c /etc/x.cfg -l /log/x -k 7 -z -I v6 -p any -S SITE -a /adm /data").unwrap();
        assert!(launch.background && launch.precise && launch.traditional_files && !launch.announce);
        assert_eq!(launch.load.evaluation.instance.as_deref(), Some("foo"));
        assert_eq!(launch.load.evaluation.program, "xrootd");
        assert_eq!(launch.load.strictness, Strictness::Legacy);
        assert_eq!(launch.load.overrides.port, Some(Port::Any));
        assert_eq!(launch.load.overrides.family, Some(AddressFamily::V6));
        assert_eq!(launch.load.overrides.exports, ["/data"]);
        let log = LogTarget::File { path: "/log/x".into(), exact: false, retention: Retention::Files(7) };
        assert_eq!(launch.log, log);
        assert_eq!(launched("").unwrap().log, LogTarget::Stderr);
    }

    #[test]
    fn names_of_files_hold_wherever_the_server_goes() {
        let launch = launched("-c x.cfg -s x.pid").unwrap();
        assert!(launch.load.file.is_some_and(|file| file.starts_with('/') && file.ends_with("/x.cfg")));
        // The pid file is an exception: it is in the working directory of the instance.
        assert_eq!(launch.pid_file.as_deref(), Some(Path::new("x.pid")));
    }

    #[test]
    fn what_cannot_be_is_refused_at_once() {
        let table = [
            ("-k x", "-k: `x`"),
            ("-p nonsense", "-p takes"),
            ("-p 65536", "-p takes"),
            ("-R no-such-user", "no user `no-such-user`"),
            ("-P cmsd", "the protocol is xroot"),
            ("-L libSite.so", "built in"),
        ];
        for (line, expected) in table {
            let error = launched(line).unwrap_err().0;
            assert!(error.contains(expected), "{line}: {error}");
        }
        assert!(launched("-P xroot -L /usr/lib/libXrdXrootd-5.so").is_ok());
    }

    #[test]
    fn services_have_names_and_aliases() {
        let text = "# comment\nrootd 1094/udp\nrootd\t1094/tcp  xrootd # ROOT\n";
        assert_eq!(service(text, "xrootd"), Some(1094));
        assert_eq!(service(text, "rootd"), Some(1094));
        assert_eq!(service(text, "ROOT"), None);
    }
}
