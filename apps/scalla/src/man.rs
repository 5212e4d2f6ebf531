//! `scalla man [DIR]`: a manual page for the program and for each of its subcommands.

use anyhow::Context;
use clap::Command;
use clap_mangen::Man as Page;
use std::path::PathBuf;
use std::process::ExitCode;

/// Write manual pages: of this program and of each of its subcommands.
///
/// Without DIR all of them go to the standard output, one behind the other: scalla man | man -l -
#[derive(clap::Args, Debug)]
pub(crate) struct Man {
    /// The directory for files such as scalla-cp.1; it is made if it is missing.
    dir: Option<PathBuf>,
}

impl Man {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(dir) = &self.dir {
            std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        }
        for (name, page) in pages()? {
            match &self.dir {
                None => crate::printer::out().lines(page),
                Some(dir) => {
                    let path = dir.join(name);
                    std::fs::write(&path, page)
                        .with_context(|| format!("cannot write {}", path.display()))?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// All pages with the names of their files: the program's first.
fn pages() -> anyhow::Result<Vec<(String, String)>> {
    let mut program = crate::cli::definition().disable_help_subcommand(true);
    program.build();
    let mut pages = Vec::new();
    add(&mut pages, program)?;
    Ok(pages)
}

/// The page of a command and those of its subcommands.
fn add(pages: &mut Vec<(String, String)>, command: Command) -> anyhow::Result<()> {
    let below: Vec<Command> = command.get_subcommands().filter(|it| !it.is_hide_set()).cloned().collect();
    let page = Page::new(command).source(format!("scalla {}", server::VERSION)).manual("Scalla");
    let mut bytes = Vec::new();
    page.render(&mut bytes)?;
    pages.push((page.get_filename(), String::from_utf8(bytes)?));
    below.into_iter().try_for_each(|command| add(pages, command))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at every page below a command; returns how many there are.
    fn check(command: &Command, pages: &[(String, String)]) -> usize {
        let name = format!("{}.1", command.get_display_name().unwrap_or_else(|| command.get_name()));
        let (_, page) = pages.iter().find(|(file, _)| *file == name).unwrap_or_else(|| panic!("no {name}"));
        for section in [".TH ", ".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION"] {
            assert!(page.contains(section), "{name} has no {section}");
        }
        for option in command.get_arguments().filter(|option| !option.is_hide_set()) {
            let long = option.get_long().map(|long| format!("\\-\\-{}", long.replace('-', "\\-")));
            let short = option.get_short().map(|short| format!("\\-{short}"));
            for text in long.into_iter().chain(short) {
                assert!(page.contains(&text), "{name} does not tell of {text}");
            }
            let help = option.get_help().map(ToString::to_string).unwrap_or_default();
            assert!(!help.is_empty(), "{name}: {} is not explained", option.get_id());
        }
        let below = command.get_subcommands().filter(|it| !it.is_hide_set());
        1 + below.map(|command| check(command, pages)).sum::<usize>()
    }

    #[test]
    fn every_subcommand_has_a_page_with_all_its_options() {
        let pages = pages().unwrap();
        let mut program = crate::cli::definition().disable_help_subcommand(true);
        program.build();
        assert_eq!(check(&program, &pages), pages.len());
        assert!(pages.iter().any(|(name, _)| name == "scalla-config-check.1"));
        // A line that begins with a dot is a macro to troff; what we say must not become one.
        for (name, page) in &pages {
            for line in page.lines().filter(|line| line.starts_with('.')) {
                let word = line.split(' ').next().unwrap_or_default();
                let known = [
                    ".TH", ".SH", ".TP", ".PP", ".IP", ".br", ".RS", ".RE", ".ie", ".el", ".nh", ".ad",
                    ".nf", ".fi",
                ];
                assert!(known.contains(&word), "{name}: {line}");
            }
        }
    }
}
