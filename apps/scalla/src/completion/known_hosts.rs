//! Completion of hosts from servers that the user named before.
//!
//! The sources are the lines of `scalla shell` and the history of the user's own shell. The script
//! of that shell passes the URLs of its history in `SCALLA_COMPLETE_URLS`.

use crate::editor::LineHistory;
use client::Url;

/// Maximum number of history lines read.
const LINES_MAX: usize = 1_000;
/// Maximum number of offered hosts.
const HOSTS_MAX: usize = 50;
/// The variable with the URLs of the shell's history.
const VARIABLE: &str = "SCALLA_COMPLETE_URLS";

/// Returns the hosts as written in URLs, most recent first.
pub(super) fn recent_hosts() -> Vec<String> {
    let lines = LineHistory::of_shell().map(|history| history.lines(LINES_MAX)).unwrap_or_default();
    let urls = std::env::var(VARIABLE).unwrap_or_default();
    hosts_in_lines(lines.iter().map(String::as_str).chain(urls.lines()))
}

/// Returns the hosts of the URLs in lines, most recent first.
fn hosts_in_lines<'a>(lines: impl DoubleEndedIterator<Item = &'a str>) -> Vec<String> {
    let mut hosts = Vec::new();
    for word in lines.rev().flat_map(|line| line.split([' ', '\t', '\'', '"', '=']).rev()) {
        let Some((scheme, rest)) = word.split_once("://") else { continue };
        if !matches!(scheme, "root" | "xroot" | "roots" | "xroots") {
            continue;
        }
        let host = rest.split('/').next().unwrap_or_default();
        let is_host =
            Url::parse(&format!("root://{host}//")).is_ok() && base::shown(host).to_string() == host;
        if is_host && !host.is_empty() && !host.contains(',') && !hosts.iter().any(|known| known == host) {
            hosts.push(host.to_owned());
        }
        if hosts.len() >= HOSTS_MAX {
            break;
        }
    }
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_taken_from_urls_and_the_last_ones_come_first() {
        let lines = [
            "open root://a.example.org//set",
            "cp root://b:1095//x 'xroot://[::1]:7//y z' --from=roots://c//",
            "ls http://d/ root:// root:///x root://bad\u{1b}host//",
            "ls root://a.example.org//again",
        ];
        assert_eq!(hosts_in_lines(lines.into_iter()), ["a.example.org", "c", "[::1]:7", "b:1095"]);
    }

    #[test]
    fn there_is_a_limit() {
        let lines: Vec<String> = (0..200).map(|number| format!("ls root://h{number}//")).collect();
        let hosts = hosts_in_lines(lines.iter().map(String::as_str));
        assert_eq!((hosts.len(), hosts.first().map(String::as_str)), (HOSTS_MAX, Some("h199")));
    }
}
