//! The groups of commands in `scalla --help`.
//!
//! The command line parser lists subcommands without headings, so this module writes the list.

use clap::Command;

/// Headings, and the commands below them.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Servers", &["serve", "manager", "supervisor", "meta", "config", "admin", "residency", "auth", "links"]),
    (
        "Files",
        &[
            "cp", "sync", "ls", "stat", "cat", "head", "tail", "mkdir", "mv", "rm", "rmdir", "chmod",
            "truncate", "locate", "checksum", "xattr", "prepare", "query", "space", "du", "find", "tree",
            "shell",
        ],
    ),
    ("Cluster", &["cluster", "map"]),
    ("Tools", &["bench", "cache", "completions", "man", "version", "help"]),
];

/// Columns of the names, with the space before and after them.
const NAME_COLUMNS: usize = 15;
/// Maximum width of the list, as for other help texts.
const COLUMNS_MAX: usize = 100;

const HELP: &str = "Print the help of commands";

/// Replaces the list of commands in the help by groups that fit into this number of columns.
pub(crate) fn add_to(command: Command, columns: usize) -> Command {
    let heading = command.get_styles().get_header();
    let (begin, end) = (heading.render().to_string(), heading.render_reset().to_string());
    let mut list = String::new();
    for (title, names) in GROUPS {
        list += &format!("{begin}{title}:{end}\n");
        for name in names {
            let found = command.get_subcommands().find(|one| one.get_name() == *name);
            let about = found.and_then(Command::get_about).map_or(HELP.to_owned(), ToString::to_string);
            list += &entry(name, &about, columns.min(COLUMNS_MAX));
        }
        list.push('\n');
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}{begin}Options:{end}\n{{options}}{{after-help}}"
    );
    command.help_template(template)
}

/// Returns the lines of a command.
fn entry(name: &str, about: &str, columns: usize) -> String {
    let mut line = format!("  {name:<width$}", width = NAME_COLUMNS - 2);
    let mut lines = String::new();
    let mut is_empty = true;
    for word in about.split_whitespace() {
        if !is_empty && line.len() + 1 + word.len() > columns {
            lines += &line;
            lines.push('\n');
            line = " ".repeat(NAME_COLUMNS);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line += word;
        is_empty = false;
    }
    lines + line.trim_end() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_in_one_group() {
        let command = crate::cli::definition();
        let mut grouped: Vec<_> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let visible = command.get_subcommands().filter(|one| !one.is_hide_set()).map(Command::get_name);
        let mut all: Vec<_> = visible.filter(|name| *name != "help").chain(["help"]).collect();
        grouped.sort_unstable();
        all.sort_unstable();
        assert_eq!(grouped, all);
    }

    #[test]
    fn descriptions_are_wrapped_between_words() {
        assert_eq!(entry("ls", "List directories", 45), "  ls           List directories\n");
        let wrapped = entry("map", "Draw the tree of a cluster and its nodes", 41);
        assert_eq!(wrapped, "  map          Draw the tree of a cluster\n               and its nodes\n");
        assert_eq!(entry("x", "", 40), "  x\n");
    }
}
