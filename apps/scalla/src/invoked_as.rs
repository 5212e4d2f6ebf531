//! The XRootD programs that this binary replaces, and the one as which it was started.
//!
//! `scalla links DIR` creates the links. A name that is not in the table selects `scalla` itself,
//! so the binary may have any name.

use std::ffi::OsString;
use std::path::Path;

/// A program whose command line is used when the binary is started under its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InvokedProgram {
    Xrootd,
    Cmsd,
    FrmAdmin,
    FrmPurged,
    FrmXfragent,
    FrmXfrd,
    Mpxstats,
    Xrdcp,
    Xrdcopy,
    Xrdfs,
    Xrdmapc,
    Xrdprep,
    Xrdacctest,
    Xrdadler32,
    Xrdcrc32c,
    Xrdgsiproxy,
    XrdpfcPrint,
    Xrdpwdadmin,
    Xrdsssadmin,
}

impl InvokedProgram {
    /// All supported programs.
    pub(crate) const ALL: [Self; 19] = [
        Self::Xrootd,
        Self::Cmsd,
        Self::FrmAdmin,
        Self::FrmPurged,
        Self::FrmXfragent,
        Self::FrmXfrd,
        Self::Mpxstats,
        Self::Xrdcp,
        Self::Xrdcopy,
        Self::Xrdfs,
        Self::Xrdmapc,
        Self::Xrdprep,
        Self::Xrdacctest,
        Self::Xrdadler32,
        Self::Xrdcrc32c,
        Self::Xrdgsiproxy,
        Self::XrdpfcPrint,
        Self::Xrdpwdadmin,
        Self::Xrdsssadmin,
    ];

    /// Returns the name of the program, which is that of its link.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Xrootd => "xrootd",
            Self::Cmsd => "cmsd",
            Self::FrmAdmin => "frm_admin",
            Self::FrmPurged => "frm_purged",
            Self::FrmXfragent => "frm_xfragent",
            Self::FrmXfrd => "frm_xfrd",
            Self::Mpxstats => "mpxstats",
            Self::Xrdcp => "xrdcp",
            Self::Xrdcopy => "xrdcopy",
            Self::Xrdfs => "xrdfs",
            Self::Xrdmapc => "xrdmapc",
            Self::Xrdprep => "xrdprep",
            Self::Xrdacctest => "xrdacctest",
            Self::Xrdadler32 => "xrdadler32",
            Self::Xrdcrc32c => "xrdcrc32c",
            Self::Xrdgsiproxy => "xrdgsiproxy",
            Self::XrdpfcPrint => "xrdpfc_print",
            Self::Xrdpwdadmin => "xrdpwdadmin",
            Self::Xrdsssadmin => "xrdsssadmin",
        }
    }

    /// Returns the program named by the first argument of a command line.
    pub(crate) fn invoked_as(argument: Option<&OsString>) -> Option<Self> {
        let name = Path::new(argument?).file_name()?;
        Self::ALL.into_iter().find(|program| name == program.name())
    }
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
            assert_eq!(
                InvokedProgram::invoked_as(Some(&argument.into())).map(InvokedProgram::name),
                expected,
                "{argument}"
            );
        }
        assert!(InvokedProgram::invoked_as(None).is_none());
    }
}
