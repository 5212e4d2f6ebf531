//! Selection of the command line by the name under which the program was started.
//!
//! `scalla links DIR` creates the links. A name that is not in the table selects `scalla` itself,
//! so the binary may have any name.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// A program whose command line is used when the binary is started under its name.
pub(crate) struct Personality {
    /// The name of the link.
    pub(crate) name: &'static str,
    /// Runs the program with the arguments after the name.
    run: fn(Vec<OsString>) -> ExitCode,
}

/// All supported programs.
pub(crate) const PERSONALITIES: [Personality; 9] = [
    Personality { name: "xrootd", run: crate::xrootd::run },
    Personality { name: "cmsd", run: crate::xrootd::stand_in },
    Personality { name: "xrdcp", run: crate::xrdcp::run },
    Personality { name: "xrdcopy", run: crate::xrdcp::run },
    Personality { name: "xrdfs", run: crate::xrdfs::run },
    Personality { name: "xrdmapc", run: crate::xrdmapc::run },
    Personality { name: "xrdprep", run: crate::xrdprep::run },
    Personality { name: "xrdadler32", run: crate::sums::adler32 },
    Personality { name: "xrdcrc32c", run: crate::sums::crc32c },
];

/// Runs the program named by the first argument.
pub(crate) fn run(mut arguments: Vec<OsString>) -> ExitCode {
    match of(arguments.first()) {
        Some(personality) => (personality.run)(arguments.split_off(1)),
        None => crate::cli::run(arguments),
    }
}

fn of(argument: Option<&OsString>) -> Option<&'static Personality> {
    let name = Path::new(argument?).file_name()?;
    PERSONALITIES.iter().find(|personality| name == personality.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_component_of_the_name_decides() {
        let table = [
            ("xrootd", Some("xrootd")),
            ("/usr/bin/xrootd", Some("xrootd")),
            ("/opt/bin/cmsd", Some("cmsd")),
            ("./xrdfs", Some("xrdfs")),
            ("scalla", None),
            ("/opt/xrootd/scalla", None),
            ("xrootd-5", None),
            ("", None),
        ];
        for (argument, expected) in table {
            assert_eq!(of(Some(&argument.into())).map(|p| p.name), expected, "{argument}");
        }
        assert!(of(None).is_none());
    }
}
