//! Tables for people and JSON for programs.

use anyhow::Context;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::Options;
use crate::figures::{Basis, Figure, Figures, Goal};
use crate::machine::Machine;
use crate::outcome::Outcome;
use crate::rows::Row;
use crate::servers::Side;

/// Columns of the table: a figure, and whose.
const COLUMNS: [Figure; 3] = [Figure::Throughput, Figure::Cpu, Figure::P99];

/// The loads and their goals.
pub(crate) fn list(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for row in rows {
        let goals: Vec<_> = row.goals.iter().map(|goal| goal.text()).collect();
        // Writing to a text cannot fail.
        writeln!(out, "{:width$}  {}: {}", row.name, row.title, goals.join(", ")).ok();
    }
    out
}

/// A line for each goal of a load.
pub(crate) fn progress(outcome: &Outcome) -> String {
    let mut out = String::new();
    for goal in judged(outcome) {
        writeln!(out, "    {goal}").ok();
    }
    out
}

/// What is to be said of a load's goals.
fn judged(outcome: &Outcome) -> Vec<String> {
    if let Some(error) = &outcome.error {
        return vec![format!("FAILED: {error}")];
    }
    let judge = |goal: &Goal| match outcome.judge(goal) {
        Some((value, met)) => {
            let value = match goal.basis {
                Basis::Ratio => format!("{value:.2}"),
                Basis::Ours => goal.figure.show(value),
            };
            format!(
                "{}: {value}{}, {}",
                goal.text(),
                beside(outcome, goal),
                if met { "met" } else { "MISSED" }
            )
        }
        None => format!("{}: not measured", goal.text()),
    };
    outcome.goals.iter().map(judge).collect()
}

/// The values behind a goal, where no column of the table has them.
fn beside(outcome: &Outcome, goal: &Goal) -> String {
    let value = |side| outcome.median(side, goal.figure).map(|value| goal.figure.show(value));
    if COLUMNS.contains(&goal.figure) {
        return String::new();
    }
    match (goal.basis, value(Side::Ours), value(Side::Theirs)) {
        (Basis::Ratio, Some(ours), Some(theirs)) => format!(" (ours {ours}, theirs {theirs})"),
        (Basis::Ours, _, Some(theirs)) => format!(" (theirs {theirs})"),
        _ => String::new(),
    }
}

/// The table for a terminal.
pub(crate) fn text(outcomes: &[Outcome]) -> String {
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

/// The table, its heading first.
fn table(outcomes: &[Outcome]) -> Vec<Vec<String>> {
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
            row.extend([value(Side::Ours), value(Side::Theirs), ratio(Side::Ours, Side::Theirs)]);
            if figure != Figure::P99 {
                row.extend([
                    value(Side::Floor),
                    ratio(Side::Ours, Side::Floor),
                    ratio(Side::Theirs, Side::Floor),
                ]);
            }
        }
        row.push(judged(outcome).join("; "));
        rows.push(row);
    }
    rows
}

/// Writes what is known so far: `performance.md` and `performance.json`.
pub(crate) fn write(
    folder: &Path,
    machine: &Machine,
    options: &Options,
    outcomes: &[Outcome],
) -> anyhow::Result<()> {
    let context = || format!("cannot write to {}", folder.display());
    fs::create_dir_all(folder).with_context(context)?;
    let json = json!({
        "machine": machine.json(),
        "pairs": options.pairs(),
        "seconds": options.time().as_secs(),
        "ours_arguments": options.ours,
        "loads": outcomes.iter().map(outcome_json).collect::<Vec<_>>(),
    });
    fs::write(folder.join("performance.json"), format!("{json:#}\n")).with_context(context)?;
    fs::write(folder.join("performance.md"), markdown(machine, options, outcomes)).with_context(context)
}

fn outcome_json(outcome: &Outcome) -> Value {
    let runs = |runs: &[Figures]| -> Vec<Value> {
        let run = |figures: &Figures| {
            let pairs = figures.iter().map(|(figure, value)| (figure.key().to_owned(), json!(value)));
            Value::Object(pairs.collect::<Map<_, _>>())
        };
        runs.iter().map(run).collect()
    };
    let mut ratios = Map::new();
    for figure in outcome.figures() {
        ratios.insert(figure.key().to_owned(), json!(outcome.ratio(Side::Ours, Side::Theirs, figure)));
    }
    let goals = outcome.goals.iter().map(|goal| {
        let judged = outcome.judge(goal);
        json!({
            "goal": goal.text(),
            "value": judged.map(|(value, _)| value),
            "met": judged.map(|(_, met)| met),
        })
    });
    json!({
        "name": outcome.name,
        "title": outcome.title,
        "ours": runs(&outcome.ours),
        "theirs": runs(&outcome.theirs),
        "floor": runs(&outcome.floor),
        "ratios": ratios,
        "goals": goals.collect::<Vec<_>>(),
        "error": outcome.error,
    })
}

fn markdown(machine: &Machine, options: &Options, outcomes: &[Outcome]) -> String {
    let mut out = String::from(
        "# Performance\n\nOur server against the real xrootd on the same files and in the same run, load by load in \
         interleaved pairs, and both against\nthe floor: a server on one epoll loop that answers from memory and knows \
         neither files nor sessions. `make bench` measures\nit anew.\n\n",
    );
    for (name, value) in machine.rows() {
        writeln!(out, "* {name}: {value}").ok();
    }
    let arguments = if options.ours.is_empty() { "default".to_owned() } else { options.ours.join(" ") };
    writeln!(out, "* ours: scalla {}, configuration: {arguments}", env!("CARGO_PKG_VERSION")).ok();
    let (pairs, seconds) = (options.pairs(), options.time().as_secs());
    writeln!(
        out,
        "* {pairs} pairs of {seconds} s each; the server on one processor, the generator on another"
    )
    .ok();
    out.push_str(
        "\nValues are medians of the runs, ratios medians of the pairs' ratios. CPU is the server's processor time for each \
         operation;\nof a copy it is that of the whole copy, and throughput is bytes. Before a load is measured its data is \
         compared byte by byte.\n\n",
    );
    for (index, row) in table(outcomes).iter().enumerate() {
        writeln!(out, "| {} |", row.join(" | ")).ok();
        if index == 0 {
            writeln!(out, "|{}", "---|".repeat(row.len())).ok();
        }
    }
    out.push_str("\nThe loads:\n\n");
    for outcome in outcomes {
        writeln!(out, "* `{}`: {}", outcome.name, outcome.title).ok();
    }
    out
}
