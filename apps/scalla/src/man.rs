//! `scalla man [DIR]`: generates a manual page for the program and for each of its subcommands.

use crate::examples;
use crate::printer::out;
use anyhow::Context;
use clap::Command;
use clap_mangen::Man as Page;
use std::path::PathBuf;
use std::process::ExitCode;

/// Write the manual pages of this program and its subcommands.
///
/// Without DIR, write all pages to standard output, one after the other: scalla man | man -l -
#[derive(clap::Args, Debug)]
pub(crate) struct ManCommand {
    /// Directory for files such as scalla-cp.1, created if it does not exist.
    dir: Option<PathBuf>,
}

impl ManCommand {
    pub(crate) fn run(self, program: Command) -> anyhow::Result<ExitCode> {
        if let Some(dir) = &self.dir {
            std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        }
        for (name, page) in pages(program)? {
            match &self.dir {
                None => out().lines(page),
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

/// Returns all pages with their file names, that of the program first.
fn pages(program: Command) -> anyhow::Result<Vec<(String, String)>> {
    let mut program = program.disable_help_subcommand(true);
    program.build();
    let mut pages = Vec::new();
    add(&mut pages, program)?;
    Ok(pages)
}

/// Adds the pages of a command and of its subcommands.
fn add(pages: &mut Vec<(String, String)>, command: Command) -> anyhow::Result<()> {
    let below: Vec<Command> = command.get_subcommands().filter(|it| !it.is_hide_set()).cloned().collect();
    let full = command.get_display_name().unwrap_or_else(|| command.get_name()).replace('-', " ");
    let sections = sections(&command, &full);
    let synopsis = synopsis(&command, &full);
    let page =
        Page::new(command.after_help("")).source(format!("scalla {}", server::VERSION)).manual("Scalla");
    let mut bytes = Vec::new();
    page.render_title(&mut bytes)?;
    page.render_name_section(&mut bytes)?;
    bytes.extend_from_slice(synopsis.as_bytes());
    page.render_description_section(&mut bytes)?;
    page.render_options_section(&mut bytes)?;
    if !below.is_empty() {
        page.render_subcommands_section(&mut bytes)?;
    }
    bytes.extend_from_slice(sections.as_bytes());
    pages.push((page.get_filename(), String::from_utf8(bytes)?));
    below.into_iter().try_for_each(|command| add(pages, command))
}

/// Formats the command line with all options and arguments.
fn synopsis(command: &Command, full: &str) -> String {
    let mut text = format!(".SH SYNOPSIS\n\\fB{}\\fR", escaped(full));
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let (positional, options): (Vec<_>, Vec<_>) = arguments.partition(|argument| argument.is_positional());
    for option in options {
        let names = [
            option.get_long().map(|long| format!("--{long}")),
            option.get_short().map(|short| format!("-{short}")),
        ];
        let names: Vec<String> = names.into_iter().flatten().collect();
        let value = match (option.get_action().takes_values(), option.get_value_names()) {
            (true, Some([name, ..])) => format!(" {name}"),
            _ => String::new(),
        };
        text.push_str(&escaped(&format!(" [{}{value}]", names.join("|"))));
    }
    if command.has_subcommands() {
        text.push_str(" <COMMAND>");
    }
    for argument in positional {
        let name =
            argument.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
        let more =
            if argument.get_num_args().is_some_and(|range| range.max_values() > 1) { "..." } else { "" };
        let shown =
            if argument.is_required_set() { format!(" {name}{more}") } else { format!(" [{name}{more}]") };
        text.push_str(&escaped(&shown));
    }
    text.push('\n');
    text
}

/// A section of a manual page, as lines.
type Section = (&'static str, &'static [&'static str]);

const OF_SERVERS: [Section; 2] = [
    (
        "EXIT STATUS",
        &[
            "0   stopped on request",
            "1   failed to start; the error message gives the reason",
            "2   invalid command line",
            "70  an essential thread of the server failed",
        ],
    ),
    (
        "FILES",
        &[
            "$XDG_STATE_HOME/scalla  (~/.local/state/scalla)  admin directories of servers without all.adminpath",
        ],
    ),
];

const OF_THIS_MACHINE: [Section; 1] = [(
    "EXIT STATUS",
    &["0   success", "1   failure; the error message gives the reason", "2   invalid command line"],
)];

const OF_CLIENTS: [Section; 3] = [
    (
        "EXIT STATUS",
        &[
            "0    success",
            "1    at least one operation failed; each failure is reported",
            "2    invalid command line",
            "3    the outcome of at least one operation is unknown",
            "130  interrupted",
        ],
    ),
    (
        "ENVIRONMENT",
        &[
            "SCALLA_SERVER         server of paths without a server",
            "XRD_REQUESTTIMEOUT    timeout of an operation, in seconds",
            "XRD_CONNECTIONWINDOW  timeout of a connection attempt, in seconds",
            "XRD_LOGLEVEL          log to standard error: Error, Warning, Info, Debug or Dump",
            "NO_COLOR              disable colours",
        ],
    ),
    (
        "FILES",
        &[
            "$XDG_CONFIG_HOME/scalla/servers  (~/.config/scalla/servers)  named servers: NAME = URL",
            "$XDG_STATE_HOME/scalla           (~/.local/state/scalla)     records of uploads, shell history",
        ],
    ),
];

/// Formats the sections after the options.
fn sections(command: &Command, full: &str) -> String {
    let mut text = String::new();
    let mut section = |name: &str, lines: &[&str]| {
        text.push_str(&format!(".SH {name}\n.nf\n"));
        lines.iter().for_each(|line| text.push_str(&format!("{}\n", escaped(line))));
        text.push_str(".fi\n");
    };
    if let Some(lines) = examples::of(full) {
        section("EXAMPLES", lines);
    }
    let more: &[Section] = match full.split(' ').nth(1).unwrap_or_default() {
        "serve" | "manager" | "supervisor" | "meta" => &OF_SERVERS,
        "" | "config" | "admin" | "residency" | "cache" | "cluster" | "links" | "completions" | "man"
        | "version" => &OF_THIS_MACHINE,
        _ => &OF_CLIENTS,
    };
    more.iter().for_each(|(name, lines)| section(name, lines));
    let mut others = Vec::new();
    if let Some((above, _)) = full.rsplit_once(' ') {
        others.push(format!("{}(1)", above.replace(' ', "-")));
    }
    let below = command.get_subcommands().filter(|it| !it.is_hide_set());
    others.extend(below.map(|below| format!("{}-{}(1)", full.replace(' ', "-"), below.get_name())));
    if !others.is_empty() {
        text.push_str(&format!(".SH SEE ALSO\n{}\n", escaped(&others.join(", "))));
    }
    text
}

/// Escapes text for troff.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    // A line that begins with a dot or an apostrophe would be a macro.
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::definition;

    /// Checks every page below a command. Returns the number of pages.
    fn check(command: &Command, pages: &[(String, String)]) -> usize {
        let name = format!("{}.1", command.get_display_name().unwrap_or_else(|| command.get_name()));
        let (_, page) = pages.iter().find(|(file, _)| *file == name).unwrap_or_else(|| panic!("no {name}"));
        for section in
            [".TH ", ".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION", ".SH EXIT STATUS", ".SH SEE ALSO"]
        {
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
        let pages = pages(definition()).unwrap();
        let mut program = definition().disable_help_subcommand(true);
        program.build();
        assert_eq!(check(&program, &pages), pages.len());
        assert!(pages.iter().any(|(name, _)| name == "scalla-config-check.1"));
        let (_, cp) = pages.iter().find(|(name, _)| name == "scalla-cp.1").unwrap();
        for text in
            ["[\\-\\-from FILE]", "[PLACE...]", ".SH EXAMPLES", ".SH ENVIRONMENT", ".SH FILES", "scalla(1)"]
        {
            assert!(cp.contains(text), "{text}");
        }
        // In troff, a line that begins with a dot is a macro, which our text must not become.
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
