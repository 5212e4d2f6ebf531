//! `scalla residency`: the queue, transfers, purges and pins of a running server.

mod purge_wait;
mod transfer_wait;

use crate::admin::{ServerSelector, escaped, files};
use crate::exit_status::FAILED;
use crate::files::format::human;
use crate::local_time::local_time;
use crate::printer::{err, out};
use crate::quantity::configured_time;
use base::shown;
use clap::Subcommand;
use server::admin::{
    AdminError, AdminRequest, PinOrder, ResidencyStatus, TransferCounts, TransferList, TransferOrder, ask,
};
use std::ffi::OsString;
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use transfer_wait::TransferWait;

/// Show and control which files of a running server are on disk beside mass storage.
#[derive(clap::Args, Debug)]
pub(crate) struct ResidencyCommand {
    #[command(flatten)]
    which: ServerSelector,
    /// Print a JSON object.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: ResidencySubcommand,
}

#[derive(Subcommand, Debug)]
enum ResidencySubcommand {
    /// Print the numbers of transfers, the space of file systems with files that may be purged, and the last purge.
    Status,
    /// List the transfers from and to mass storage, in the order of their addition.
    Queue,
    /// Bring files from mass storage to the disk, even if that failed a short time ago.
    Stage(TransferArguments),
    /// Copy files to mass storage that it does not have in this version.
    Migrate(TransferArguments),
    /// Remove files from the disk that mass storage has, also if they were used a short time ago.
    Release {
        /// Logical paths.
        #[arg(required = true)]
        paths: Vec<OsString>,
    },
    /// Pin the file at PATH, so that it is not purged.
    Pin {
        /// Logical path.
        path: OsString,
        /// End the pin after TIME: `90`, `10m`, `2d`.
        #[arg(long = "for", value_name = "TIME", value_parser = configured_time, conflicts_with = "idle")]
        duration: Option<Duration>,
        /// Keep the file until it was not accessed for TIME.
        #[arg(long, value_name = "TIME", value_parser = configured_time)]
        idle: Option<Duration>,
    },
    /// End the pin of the file at PATH.
    Unpin {
        /// Logical path.
        path: OsString,
    },
    /// Begin a purge now, on file systems with too little space.
    Purge {
        /// Only list files, with the reasons for which they would stay.
        #[arg(long)]
        dry_run: bool,
        /// List only the file at PATH, or those below it.
        #[arg(requires = "dry_run")]
        path: Option<OsString>,
        /// Wait for the end of the purge, and print its result.
        #[arg(long, conflicts_with = "dry_run")]
        wait: bool,
        /// Stop waiting after TIME. The purge goes on.
        #[arg(long, value_name = "TIME", value_parser = configured_time, requires = "wait")]
        timeout: Option<Duration>,
    },
}

/// Files to be copied.
#[derive(clap::Args, Debug)]
struct TransferArguments {
    /// Logical paths.
    #[arg(required = true)]
    paths: Vec<OsString>,
    /// Wait until all transfers have ended, and print the result of each one.
    #[arg(long)]
    wait: bool,
    /// Stop waiting after TIME. The transfers go on.
    #[arg(long, value_name = "TIME", value_parser = configured_time, requires = "wait")]
    timeout: Option<Duration>,
}

impl ResidencyCommand {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let socket = self.which.socket()?;
        let orders = FileOrders { socket: &socket, json: self.json };
        let request = match self.command {
            ResidencySubcommand::Status => AdminRequest::ResidencyStatus {},
            ResidencySubcommand::Queue => AdminRequest::TransferQueue {},
            ResidencySubcommand::Stage(transfers) => {
                return orders.transfer(&transfers, TransferOrder::Stage);
            }
            ResidencySubcommand::Migrate(transfers) => {
                return orders.transfer(&transfers, TransferOrder::Migrate);
            }
            ResidencySubcommand::Release { paths } => {
                return orders.give(&paths, |path| AdminRequest::Release { path });
            }
            ResidencySubcommand::Pin { path, duration, idle } => {
                AdminRequest::Pin { path: escaped(&path), pin: pin(duration, idle) }
            }
            ResidencySubcommand::Unpin { path } => {
                AdminRequest::Pin { path: escaped(&path), pin: PinOrder::Off }
            }
            ResidencySubcommand::Purge { dry_run: true, path, .. } => {
                AdminRequest::PurgePreview { below: path.as_deref().map(escaped) }
            }
            ResidencySubcommand::Purge { wait: true, timeout, .. } => {
                return purge_wait::purge(&socket, timeout, self.json);
            }
            ResidencySubcommand::Purge { .. } => AdminRequest::Purge {},
        };
        let answer = ask(&socket, &request)?;
        if self.json {
            out().json(&answer);
            return Ok(ExitCode::SUCCESS);
        }
        match request {
            AdminRequest::ResidencyStatus {} => out().lines(table(&serde_json::from_value(answer)?)),
            AdminRequest::TransferQueue {} => out().lines(queue(&serde_json::from_value(answer)?)),
            AdminRequest::Purge {} => out().lines("a purge begins\n"),
            AdminRequest::PurgePreview { .. } => {
                out().lines(files(&answer).unwrap_or_default());
                out().lines(preview_summary(&answer));
            }
            _ => out().line(format_args!("{}", order_line(&answer))),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the line that sums up the examination of files; empty if there are none.
fn preview_summary(answer: &serde_json::Value) -> String {
    let files = answer.get("files").and_then(serde_json::Value::as_array);
    let (mut go, mut bytes, mut stay) = (0u64, 0u64, 0u64);
    for file in files.into_iter().flatten() {
        if file["eligible"] == true {
            go += 1;
            bytes = bytes.saturating_add(file["bytes"].as_u64().unwrap_or_default());
        } else {
            stay += 1;
        }
    }
    let more = if answer["complete"] == false { "; there are others" } else { "" };
    match go + stay {
        0 => String::new(),
        _ => format!("{go} files may go ({}), {stay} stay{more}\n", human(bytes)),
    }
}

/// Returns the line for the answer to an order about one file.
fn order_line(answer: &serde_json::Value) -> String {
    let field = |name: &str| answer.get(name).and_then(serde_json::Value::as_str).unwrap_or("-");
    format!("{}  {}", shown(field("state")), shown(field("path")))
}

/// Orders about files, one after the other.
struct FileOrders<'s> {
    socket: &'s Path,
    json: bool,
}

impl FileOrders<'_> {
    /// Gives the orders, and prints a line for each answer. A refused one does not end them, except if no
    /// server answers.
    fn give(&self, paths: &[OsString], order: impl Fn(String) -> AdminRequest) -> anyhow::Result<ExitCode> {
        let GivenOrders { status, answers, .. } = self.give_all(paths, order)?;
        if self.json {
            out().json(&answers.into());
        }
        Ok(status)
    }

    /// Orders transfers, and waits for their ends if that is wanted.
    fn transfer(&self, transfers: &TransferArguments, order: TransferOrder) -> anyhow::Result<ExitCode> {
        let request = |path| AdminRequest::Transfer { path, order };
        if !transfers.wait {
            return self.give(&transfers.paths, request);
        }
        let GivenOrders { status, mut answers, accepted } = self.give_all(&transfers.paths, request)?;
        // The answers to orders that were accepted are those at their end.
        answers.retain(|answer| answer["ok"] == false);
        let wait = TransferWait { socket: self.socket, order, json: self.json, limit: transfers.timeout };
        let ended = wait.until_ended(accepted)?;
        answers.extend(ended.answers);
        if self.json {
            out().json(&answers.into());
        }
        Ok(if ended.all_done { status } else { FAILED.into() })
    }

    fn give_all(
        &self,
        paths: &[OsString],
        order: impl Fn(String) -> AdminRequest,
    ) -> anyhow::Result<GivenOrders> {
        let mut answers = Vec::new();
        let mut accepted = Vec::new();
        let mut status = ExitCode::SUCCESS;
        for path in paths.iter().map(|path| escaped(path)) {
            match ask(self.socket, &order(path.clone())) {
                Ok(answer) => {
                    accepted.push(path);
                    if self.json {
                        answers.push(answer);
                    } else {
                        out().line(format_args!("{}", order_line(&answer)));
                    }
                }
                Err(AdminError::Refused(reason)) => {
                    status = FAILED.into();
                    if self.json {
                        answers.push(serde_json::json!({ "ok": false, "path": path, "error": reason }));
                    } else {
                        err().error(reason);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(GivenOrders { status, answers, accepted })
    }
}

/// The result of orders.
struct GivenOrders {
    status: ExitCode,
    /// The answers, for JSON.
    answers: Vec<serde_json::Value>,
    /// The files whose orders were accepted.
    accepted: Vec<String>,
}

/// Returns the pin for the options of the command line.
fn pin(duration: Option<Duration>, idle: Option<Duration>) -> PinOrder {
    match (duration, idle) {
        (Some(duration), _) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let end = now.saturating_add(duration).as_secs();
            PinOrder::Until { time: i64::try_from(end).unwrap_or(i64::MAX) }
        }
        (None, Some(idle)) => PinOrder::Idle { seconds: idle.as_secs() },
        (None, None) => PinOrder::Forever,
    }
}

/// Formats one line per direction of transfers and per file system, and one for the last purge.
fn table(status: &ResidencyStatus) -> String {
    let mut text = String::new();
    for (name, counts) in [("staging", status.staging), ("migration", status.migration)] {
        if let Some(TransferCounts { queued, running, failed }) = counts {
            writeln!(text, "{name}: {queued} waiting, {running} running, {failed} failed").ok();
        }
    }
    if status.volumes.is_empty() && status.last_purge.is_none() && status.stopped_by.is_none() {
        text.push_str("nothing is purged\n");
        return text;
    }
    let mut rows = vec![["EXPORT", "SIZE", "FREE", "PURGE BELOW", "UNTIL"].map(str::to_owned)];
    rows.extend(status.volumes.iter().map(|volume| {
        [
            shown(&volume.export).to_string(),
            human(volume.total),
            human(volume.free),
            human(volume.purge_below),
            human(volume.purge_until),
        ]
    }));
    text.push_str(&columns(&rows));
    if status.is_purging {
        text.push_str("a purge runs\n");
    }
    match status.last_purge {
        Some(ended) => writeln!(
            text,
            "the last purge ended at {} and removed {} files, {}",
            local_time(ended, "%Y-%m-%d %H:%M:%S").unwrap_or_else(|| ended.to_string()),
            status.purged_files,
            human(status.purged_bytes)
        ),
        None => writeln!(text, "no purge has ended yet"),
    }
    .ok();
    if let Some(file) = &status.stopped_by {
        writeln!(text, "nothing is purged, because {} exists", shown(file)).ok();
    }
    for export in &status.short_of_space {
        writeln!(text, "{} has too little space after it, and no further file may be purged", shown(export))
            .ok();
    }
    text
}

/// Formats one line per transfer.
fn queue(list: &TransferList) -> String {
    let mut rows = vec![["STATE", "TRIES", "WAY", "CLIENT", "PATH"].map(str::to_owned)];
    rows.extend(list.transfers.iter().map(|transfer| {
        let reason = transfer.reason.as_ref().map(|text| format!(": {}", shown(text))).unwrap_or_default();
        [
            transfer.state.clone(),
            transfer.tries.to_string(),
            transfer.direction.clone(),
            shown(&transfer.client).to_string(),
            format!("{}{reason}", shown(&transfer.path)),
        ]
    }));
    if list.transfers.is_empty() {
        return "none\n".to_owned();
    }
    let mut text = columns(&rows);
    if !list.complete {
        text.push_str("... there are others\n");
    }
    text
}

/// Formats rows with aligned columns.
fn columns(rows: &[[String; 5]]) -> String {
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..5).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        // Writing to a text cannot fail.
        writeln!(text, "{}", cells.join("  ").trim_end()).ok();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use server::admin::VolumeStatus;

    #[test]
    fn the_status_is_a_table() {
        let volume = VolumeStatus {
            export: "/store".to_owned(),
            total: 1 << 40,
            free: 1 << 30,
            purge_below: 2 << 30,
            purge_until: 3 << 30,
        };
        let mut status = ResidencyStatus { volumes: vec![volume], ..ResidencyStatus::default() };
        let text = table(&status);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].starts_with("EXPORT  SIZE") && lines[1].starts_with("/store  "), "{text}");
        assert_eq!(lines[2], "no purge has ended yet");
        let counts = TransferCounts { queued: 3, running: 2, failed: 1 };
        let only_queue = ResidencyStatus { staging: Some(counts), ..ResidencyStatus::default() };
        assert_eq!(table(&only_queue), "staging: 3 waiting, 2 running, 1 failed\nnothing is purged\n");
        status.last_purge = Some(7);
        status.short_of_space = vec!["/store".to_owned()];
        assert!(table(&status).contains("ended at 19") && table(&status).contains("removed 0 files"));
        assert!(table(&status).contains("/store has too little space"), "{}", table(&status));
        status.stopped_by = Some("/spool/STOPPURGE".to_owned());
        assert!(table(&status).contains("nothing is purged, because /spool/STOPPURGE exists"));
    }

    #[test]
    fn an_examination_is_summed_up() {
        let file = |eligible: bool| serde_json::json!({ "eligible": eligible, "bytes": 512 });
        let answer = |files: &[bool]| serde_json::json!({ "files": files.iter().map(|go| file(*go)).collect::<Vec<_>>() });
        assert_eq!(preview_summary(&answer(&[])), "");
        let text = preview_summary(&answer(&[true, false, true, false, false]));
        assert!(text.starts_with("2 files may go (") && text.ends_with("), 3 stay\n"), "{text}");
        let mut cut = answer(&[true]);
        cut["complete"] = false.into();
        assert!(preview_summary(&cut).ends_with("0 stay; there are others\n"));
    }

    #[test]
    fn columns_are_as_wide_as_their_characters() {
        let row = |first: &str| [first, "b", "c", "d", "e"].map(str::to_owned);
        assert_eq!(columns(&[row("/é"), row("/aa")]), "/é   b  c  d  e\n/aa  b  c  d  e\n");
    }

    #[test]
    fn pins_have_the_form_of_their_options() {
        assert_eq!(pin(None, None), PinOrder::Forever);
        assert_eq!(pin(None, Some(Duration::from_secs(5))), PinOrder::Idle { seconds: 5 });
        assert!(matches!(pin(Some(Duration::from_secs(5)), None), PinOrder::Until { time } if time > 5));
    }
}
