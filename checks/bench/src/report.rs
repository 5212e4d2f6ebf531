//! Reports of results: human-readable tables and JSON, both derived from [`BenchResults`].

use anyhow::Context;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::figures::{Basis, Figure, Goal};
use crate::machine::TestMachine;
use crate::outcome::LoadOutcome;
use crate::row::Row;
use crate::server::ServerSide;

/// All results and the parameters of the measurement.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BenchResults {
    pub(crate) machine: TestMachine,
    pub(crate) version: String,
    pub(crate) pairs: u32,
    pub(crate) seconds: f64,
    /// Arguments of our server in every load.
    pub(crate) ours_arguments: Vec<String>,
    pub(crate) loads: Vec<LoadOutcome>,
}

/// Figures in the columns of the table.
const COLUMNS: [Figure; 3] = [Figure::Throughput, Figure::Cpu, Figure::P99];

/// Returns the loads and their goals.
pub(crate) fn list(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for row in rows {
        let goals: Vec<_> = row.goals.iter().map(|goal| goal.text()).collect();
        // Writing to a string cannot fail.
        writeln!(out, "{:width$}  {}: {}", row.name, row.title, goals.join(", ")).ok();
    }
    out
}

/// Returns a line for each goal of a load.
pub(crate) fn progress(outcome: &LoadOutcome) -> String {
    let mut out = String::new();
    for goal in judged(outcome) {
        writeln!(out, "    {goal}").ok();
    }
    out
}

/// Returns the texts about the goals of a load.
fn judged(outcome: &LoadOutcome) -> Vec<String> {
    if let Some(error) = &outcome.error {
        return vec![format!("FAILED: {error}")];
    }
    let judge = |goal: &Goal| match outcome.judge(goal) {
        Some((value, met)) => {
            format!(
                "{}: {}{}, {}",
                goal.text(),
                goal.show(value),
                beside(outcome, goal),
                if met { "met" } else { "MISSED" }
            )
        }
        None => format!("{}: not measured", goal.text()),
    };
    outcome.goals.iter().map(judge).collect()
}

/// Returns the values for a goal that are not in a column of the table.
fn beside(outcome: &LoadOutcome, goal: &Goal) -> String {
    let value = |side| outcome.median(side, goal.figure).map(|value| goal.figure.show(value));
    if COLUMNS.contains(&goal.figure) {
        return String::new();
    }
    match (goal.basis, value(ServerSide::Ours), value(ServerSide::Theirs)) {
        (Basis::Ratio, Some(ours), Some(theirs)) => format!(" (ours {ours}, theirs {theirs})"),
        (Basis::Ours, _, Some(theirs)) => format!(" (theirs {theirs})"),
        _ => String::new(),
    }
}

/// Returns the table for a terminal.
pub(crate) fn text(outcomes: &[LoadOutcome]) -> String {
    let rows = table(outcomes);
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in &rows {
        let cells: Vec<_> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        writeln!(out, "{}", cells.join("  ").trim_end()).ok();
    }
    out
}

/// Returns the rows of the table, the heading first.
fn table(outcomes: &[LoadOutcome]) -> Vec<Vec<String>> {
    let mut heading = vec!["load".to_owned()];
    for figure in COLUMNS {
        let name = figure.name();
        heading.extend([format!("{name}: ours"), "theirs".to_owned(), "ratio".to_owned()]);
        if figure != Figure::P99 {
            heading.extend(["floor".to_owned(), "ours/floor".to_owned(), "theirs/floor".to_owned()]);
        }
    }
    heading.push("goals".to_owned());
    let mut rows = vec![heading];
    for outcome in outcomes {
        let mut row = vec![outcome.name.clone()];
        for figure in COLUMNS {
            let value = |side| {
                outcome.median(side, figure).map_or_else(|| "-".to_owned(), |value| figure.show(value))
            };
            let ratio = |side, to| {
                outcome.ratio(side, to, figure).map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
            };
            row.extend([
                value(ServerSide::Ours),
                value(ServerSide::Theirs),
                ratio(ServerSide::Ours, ServerSide::Theirs),
            ]);
            if figure != Figure::P99 {
                row.extend([
                    value(ServerSide::Floor),
                    ratio(ServerSide::Ours, ServerSide::Floor),
                    ratio(ServerSide::Theirs, ServerSide::Floor),
                ]);
            }
        }
        row.push(judged(outcome).join("; "));
        rows.push(row);
    }
    rows
}

/// File name of the results.
const JSON: &str = "performance.json";

/// Writes the results so far: `performance.json` for programs and `performance.md` for humans.
pub(crate) fn write(directory: &Path, results: &BenchResults) -> anyhow::Result<()> {
    let context = || format!("cannot write to {}", directory.display());
    fs::create_dir_all(directory).with_context(context)?;
    let json = json(results)?;
    fs::write(directory.join(JSON), format!("{json:#}\n")).with_context(context)?;
    let text = format!("# Performance\n\n{}", markdown(results));
    fs::write(directory.join("performance.md"), text).with_context(context)
}

/// Reads the results of [`write()`].
pub(crate) fn read(directory: &Path) -> anyhow::Result<BenchResults> {
    let path = directory.join(JSON);
    let context = || format!("no results in {}: run `make bench` first", path.display());
    let text = fs::read_to_string(&path).with_context(context)?;
    serde_json::from_str(&text).with_context(|| format!("{} is not from this release", path.display()))
}

/// Returns the results as JSON, with derived values so that readers need not compute them.
fn json(results: &BenchResults) -> anyhow::Result<Value> {
    let mut json = serde_json::to_value(results)?;
    let loads = json.get_mut("loads").and_then(Value::as_array_mut);
    for (load, outcome) in loads.into_iter().flatten().zip(&results.loads) {
        let ratio = |figure| outcome.ratio(ServerSide::Ours, ServerSide::Theirs, figure);
        let ratios: BTreeMap<_, _> =
            outcome.figures().into_iter().map(|figure| (figure, ratio(figure))).collect();
        let judged = outcome.goals.iter().map(|goal| {
            let (value, met) = outcome.judge(goal).unzip();
            json!({ "goal": goal.text(), "value": value, "met": met })
        });
        let judged = Value::Array(judged.collect());
        if let Some(load) = load.as_object_mut() {
            load.insert("ratios".to_owned(), serde_json::to_value(ratios)?);
            load.insert("judged".to_owned(), judged);
        }
    }
    Ok(json)
}

/// Returns the results as Markdown, without a main heading.
pub(crate) fn markdown(results: &BenchResults) -> String {
    let mut out = String::new();
    for (name, value) in results.machine.rows() {
        writeln!(out, "* {name}: {value}").ok();
    }
    let arguments = match results.ours_arguments.join(" ") {
        none if none.is_empty() => "default configuration".to_owned(),
        some => some,
    };
    let (version, pairs, seconds) = (&results.version, results.pairs, results.seconds);
    writeln!(out, "* ours: scalla {version}, {arguments}").ok();
    writeln!(
        out,
        "* {pairs} pairs of {seconds} s each; the server on one processor, the generator on another"
    )
    .ok();
    writeln!(out, "\n{}\n", summary(&results.loads)).ok();
    markdown_table(&mut out, &goals(&results.loads));
    out.push_str("\nAll figures:\n\n");
    let mut figures = table(&results.loads);
    // The goals are in the first table.
    figures.iter_mut().for_each(|row| drop(row.pop()));
    markdown_table(&mut out, &figures);
    let compared = bare(&results.loads);
    if compared.len() > 1 {
        out.push_str("\nBeside the bare server, CPU of one operation:\n\n");
        markdown_table(&mut out, &compared);
    }
    out.push_str("\nThe loads:\n\n");
    for outcome in &results.loads {
        let told = |whose: &str, lines: &[String]| match lines {
            [] => String::new(),
            lines => format!("; {whose} with `{}`", lines.join("`, `")),
        };
        let ours = told("ours", &outcome.ours_configuration);
        let theirs = told("theirs", &outcome.theirs_configuration);
        writeln!(out, "* `{}`: {}{ours}{theirs}", outcome.name, outcome.title).ok();
    }
    out
}

/// Returns the costs of loads compared with the bare server, the heading first.
fn bare(outcomes: &[LoadOutcome]) -> Vec<Vec<String>> {
    let heading = ["load", "ours", "bare", "theirs", "bare/theirs", "ours more than bare"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for outcome in outcomes.iter().filter(|outcome| !outcome.bare.is_empty()) {
        let show = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| Figure::Cpu.show(value));
        let ratio = outcome.ratio(ServerSide::Bare, ServerSide::Theirs, Figure::Cpu);
        let value = |side| show(outcome.median(side, Figure::Cpu));
        rows.push(vec![
            format!("`{}`", outcome.name),
            value(ServerSide::Ours),
            value(ServerSide::Bare),
            value(ServerSide::Theirs),
            ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
            show(outcome.more_than_bare(Figure::Cpu)),
        ]);
    }
    rows
}

/// Returns the number of goals met, and the loads that miss one.
fn summary(outcomes: &[LoadOutcome]) -> String {
    let (mut met, mut all, mut missed) = (0, 0, Vec::new());
    for outcome in outcomes {
        let judged: Vec<_> = outcome.goals.iter().map(|goal| outcome.judge(goal)).collect();
        let good = judged.iter().filter(|judged| judged.is_some_and(|(_, met)| met)).count();
        met += good;
        all += judged.len();
        if good < judged.len() {
            missed.push(format!("`{}`", outcome.name));
        }
    }
    match missed.len() {
        0 => format!("All {all} goals are met."),
        _ => format!("{met} of {all} goals are met. Missed in {}.", missed.join(", ")),
    }
}

/// Returns a row for each goal, the heading first.
fn goals(outcomes: &[LoadOutcome]) -> Vec<Vec<String>> {
    let mut rows =
        vec![["load", "goal", "is", "met", "the floor is", "ours", "theirs"].map(str::to_owned).to_vec()];
    for outcome in outcomes {
        for goal in &outcome.goals {
            let value = |side| {
                let value = outcome.median(side, goal.figure);
                value.map_or_else(|| "-".to_owned(), |value| goal.figure.show(value))
            };
            let (is, met) = match (outcome.judge(goal), &outcome.error) {
                (Some((value, true)), _) => (goal.show(value), "yes"),
                (Some((value, false)), _) => (goal.show(value), "**no**"),
                (None, Some(error)) => (format!("failed: {error}"), "**no**"),
                (None, None) => ("not measured".to_owned(), "**no**"),
            };
            let name = format!("`{}`", outcome.name);
            let floor = outcome.floor_of(goal).map_or_else(|| "-".to_owned(), |value| goal.show(value));
            let values = [value(ServerSide::Ours), value(ServerSide::Theirs)];
            rows.push([name, goal.text(), is, met.to_owned(), floor].into_iter().chain(values).collect());
        }
    }
    rows
}

fn markdown_table(out: &mut String, rows: &[Vec<String>]) {
    for (index, row) in rows.iter().enumerate() {
        let cells: Vec<_> = row.iter().map(|cell| cell.replace('|', "\\|").replace('\n', " ")).collect();
        writeln!(out, "| {} |", cells.join(" | ")).ok();
        if index == 0 {
            writeln!(out, "|{}", "---|".repeat(row.len())).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Figures;

    fn results() -> BenchResults {
        let runs = |cpu: f64| vec![Figures::from([(Figure::Cpu, cpu), (Figure::Throughput, 1e6 / cpu)])];
        let outcome = |name: &str, ours, error: Option<&str>| LoadOutcome {
            name: name.to_owned(),
            title: "reads".to_owned(),
            ours_configuration: vec!["scalla.polling on".to_owned()],
            theirs_configuration: Vec::new(),
            goals: vec![Goal::at_most(Figure::Cpu, 0.5), Goal::at_most(Figure::Cpu, 5.0).of_ours()],
            ours: if error.is_some() { Vec::new() } else { runs(ours) },
            theirs: runs(8.0),
            floor: runs(2.0),
            bare: if name == "bad" { runs(3.2) } else { Vec::new() },
            error: error.map(str::to_owned),
        };
        BenchResults {
            machine: TestMachine::look(Path::new("/")),
            version: "1.2.3".to_owned(),
            pairs: 5,
            seconds: 3.0,
            ours_arguments: Vec::new(),
            loads: vec![
                outcome("good", 4.0, None),
                outcome("bad", 4.8, None),
                outcome("broken", 0.0, Some("a | b")),
            ],
        }
    }

    #[test]
    fn written_results_are_read_back() {
        let directory = std::env::temp_dir().join(format!("scalla-bench-report-{}", std::process::id()));
        let before = results();
        write(&directory, &before).unwrap();
        let after = read(&directory).unwrap();
        let json = fs::read_to_string(directory.join(JSON)).unwrap();
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(markdown(&after), markdown(&before));
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["loads"][0]["ours"][0]["server_cpu_us_per_operation"], 4.0);
        assert_eq!(json["loads"][1]["ratios"]["server_cpu_us_per_operation"], 0.6);
        assert_eq!(
            json["loads"][1]["judged"][0],
            json!({ "goal": "CPU at most 0.50", "value": 0.6, "met": false })
        );
    }

    #[test]
    fn goals_have_their_figures_and_misses_are_listed() {
        let text = markdown(&results());
        for line in [
            "3 of 6 goals are met. Missed in `bad`, `broken`.",
            "| `good` | CPU at most 0.50 | 0.50 | yes | 0.25 | 4.00 us | 8.00 us |",
            "| `good` | CPU at most 5.00 us | 4.00 us | yes | 2.00 us | 4.00 us | 8.00 us |",
            "| `bad` | CPU at most 0.50 | 0.60 | **no** | 0.40 | 4.80 us | 8.00 us |",
            "| `broken` | CPU at most 0.50 | failed: a \\| b | **no** | 0.25 | - | 8.00 us |",
            "* `good`: reads; ours with `scalla.polling on`",
        ] {
            assert!(text.lines().any(|is| is == line), "{line}\n{text}");
        }
    }
}
