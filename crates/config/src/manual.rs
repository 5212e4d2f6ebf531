//! Generator of the configuration reference (`docs/configuration.md`) from the tables of
//! directives.
//!
//! It exists so that the reference cannot differ from the code; a test compares the two.

use std::fmt::Write;

use crate::directives::{
    Directive, EXPORT_OPTIONS, SECTIONS, Section, Standing, UsageFrequency, find_directive, missing,
};
use crate::language::{
    FILES_MAX, LINE_CHARS_MAX, SUBSTITUTED_CHARS_MAX, VALUE_FILE_BYTES_MAX, VARIABLE_NAME_MAX,
};

const HEAD: &str = include_str!("manual_head.md");

/// Returns the whole reference as Markdown.
#[must_use]
pub fn manual() -> String {
    let mut out = HEAD
        .replace("{LINE_CHARS_MAX}", &LINE_CHARS_MAX.to_string())
        .replace("{VARIABLE_NAME_MAX}", &VARIABLE_NAME_MAX.to_string())
        .replace("{SUBSTITUTED_CHARS_MAX}", &SUBSTITUTED_CHARS_MAX.to_string())
        .replace("{VALUE_FILE_BYTES_MAX}", &VALUE_FILE_BYTES_MAX.to_string())
        .replace("{FILES_MAX}", &FILES_MAX.to_string());
    stops(&mut out);
    export_options(&mut out);
    for section in SECTIONS {
        self::section(section, &mut out);
    }
    out
}

/// Lists the directives that stop the start, because an operator with an existing file needs them
/// first.
fn stops(out: &mut String) {
    out.push_str("## What stops the start\n\n");
    out.push_str(
        "These restrict access or demand encryption, and are not in force yet. A server with one of them does not \
         start, so that nothing is ever served unprotected. Where an argument is given, others are accepted.\n\n",
    );
    for directive in SECTIONS.iter().flat_map(|section| section.directives) {
        let Some(example) = directive.stops_with else { continue };
        let name = directive.names.first().copied().unwrap_or_default();
        if directive.always_stops() {
            let _ = writeln!(out, "* `{name}`");
        } else {
            let _ = writeln!(out, "* `{name}`, as in `{name} {example}`");
        }
    }
    out.push_str(
        "\nSo do libraries for authentication or authorization, wherever they are named, and libraries without which \
         something else would be served than the file says (proxy, cache, archives, stored page checksums).\n\n",
    );
}

fn export_options(out: &mut String) {
    out.push_str("## Export options\n\n");
    out.push_str(
        "For `all.export`, `xrootd.export` and `oss.defaults`. Options of an export take precedence over the \
         `oss.defaults` above it, and these over the built-in defaults. The last of several options for the same \
         attribute applies.\n\n",
    );
    out.push_str("| Option | Meaning | Here |\n|---|---|---|\n");
    for option in EXPORT_OPTIONS {
        let names: Vec<String> = option.names.iter().map(|name| format!("`{name}`")).collect();
        let here = word(option.standing);
        let _ = writeln!(out, "| {} | {} | {here} |", names.join(", "), option.help);
    }
    out.push('\n');
}

fn section(section: &Section, out: &mut String) {
    let _ = writeln!(out, "## {}\n\n{}\n", section.title, section.about);
    for directive in section.directives.iter().filter(|directive| directive.standing == Standing::InForce) {
        entry(directive, out);
    }
    let rest: Vec<&Directive> =
        section.directives.iter().filter(|directive| directive.standing != Standing::InForce).collect();
    if rest.is_empty() {
        return;
    }
    out.push_str(
        "| Directive | Arguments | Used by | Default | Meaning | Here |\n|---|---|---|---|---|---|\n",
    );
    for directive in rest {
        let names: Vec<String> = directive.names.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(
            out,
            "| {} | `{}` | {} | {} | {} | {} |",
            names.join(", "),
            cell(directive.grammar),
            mark(directive.mark),
            cell(directive.default),
            cell(directive.help),
            standing(directive),
        );
    }
    out.push('\n');
}

/// The part of the reference about one directive, by any of its names.
#[must_use]
pub fn manual_of(name: &str) -> Option<String> {
    let directive = find_directive(name)?;
    let mut out = String::new();
    entry(directive, &mut out);
    let name = directive.names.first().copied().unwrap_or_default();
    match directive.standing {
        Standing::InForce => {}
        Standing::NoEffect => out.push_str("It is accepted and has no effect here.\n\n"),
        Standing::NotYet => {
            let consequence = missing(name).map(|missing| missing.consequence(None));
            let consequence = consequence.filter(|_| !directive.guards()).unwrap_or_default();
            let _ = match consequence.as_str() {
                "" => writeln!(out, "It is not in force yet.\n"),
                consequence => writeln!(out, "It is not in force yet: {consequence}.\n"),
            };
        }
    }
    Some(out)
}

fn entry(directive: &Directive, out: &mut String) {
    let name = directive.names.first().copied().unwrap_or_default();
    let _ = writeln!(out, "### {name}\n\n```\n{name} {}\n```\n\n{}\n", directive.grammar, directive.help);
    let _ = writeln!(out, "* Default: {}", directive.default);
    let _ = writeln!(out, "* Used by {} sites", mark(directive.mark));
    let others: Vec<String> = directive.names.iter().skip(1).map(|name| format!("`{name}`")).collect();
    if !others.is_empty() {
        let _ = writeln!(out, "* Also written {}", others.join(", "));
    }
    if !directive.example.is_empty() {
        let _ = writeln!(out, "* Example: `{name} {}`", directive.example);
    }
    if let Some(example) = directive.stops_with {
        let _ = writeln!(out, "* Stops the start: `{name} {example}`");
    }
    out.push('\n');
}

fn mark(mark: UsageFrequency) -> &'static str {
    match mark {
        UsageFrequency::Most => "most",
        UsageFrequency::Common => "some",
        UsageFrequency::Rare => "few",
    }
}

fn standing(directive: &Directive) -> &'static str {
    match (directive.always_stops(), directive.guards(), directive.standing) {
        (true, _, _) => "stops the start",
        (false, true, _) => "may stop the start",
        (_, _, standing) => word(standing),
    }
}

fn word(standing: Standing) -> &'static str {
    match standing {
        Standing::InForce => "in force",
        Standing::NoEffect => "no effect",
        Standing::NotYet => "not yet",
    }
}

/// Escapes text for a table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
