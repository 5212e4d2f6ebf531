//! `scalla links DIR`: creates links with the names of the XRootD programs that this binary
//! replaces.

use crate::invoked_as::InvokedProgram;
use crate::printer::out;
use anyhow::{Context, bail};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Create links to this program in DIR, with the names of the XRootD programs it replaces.
#[derive(clap::Args, Debug)]
pub(crate) struct LinksCommand {
    /// Directory for the links, which must exist.
    dir: PathBuf,
    /// Replace other files with these names.
    #[arg(long)]
    force: bool,
}

impl LinksCommand {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let program = std::env::current_exe().context("cannot find out where this program is")?;
        for replaced in InvokedProgram::ALL {
            let link = self.dir.join(replaced.name());
            make(&program, &link, self.force)?;
            out().line(format_args!("{} -> {}", link.display(), program.display()));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Creates a link to `program`. A link that already points there is kept.
fn make(program: &Path, link: &Path, force: bool) -> anyhow::Result<()> {
    if fs::read_link(link).is_ok_and(|target| target == program) {
        return Ok(());
    }
    if fs::symlink_metadata(link).is_ok() {
        if !force {
            bail!("{} exists and is something else; --force replaces it", link.display());
        }
        fs::remove_file(link).with_context(|| format!("cannot remove {}", link.display()))?;
    }
    symlink(program, link).with_context(|| format!("cannot make the link {}", link.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_only_replaced_by_force() {
        let directory = std::env::temp_dir().join(format!("scalla-links-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let (program, link) = (Path::new("/opt/scalla"), directory.join("xrootd"));
        make(program, &link, false).unwrap();
        make(program, &link, false).unwrap();
        assert!(make(Path::new("/elsewhere"), &link, false).unwrap_err().to_string().contains("--force"));
        make(Path::new("/elsewhere"), &link, true).unwrap();
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("/elsewhere"));
        fs::remove_dir_all(&directory).unwrap();
    }
}
