//! Directory listings: formats, pages, frames, and entries that cannot be encoded.

#![allow(clippy::unwrap_used)]

mod support;

use base::ErrorKind;
use session::{CallId, DriverTask};
use std::any::Any;
use support::*;
use vfs::{Answer, DirectoryEntry, ListDetail, ListingPosition, Operation, Value};

struct Rest(u32);

impl ListingPosition for Rest {
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn list(options: u8) -> Raw {
    Raw::new(DIRLIST).u8(19, options).payload(b"/data/dir?cks.type=adler32")
}

fn plain(name: &str) -> DirectoryEntry {
    DirectoryEntry { name: name.as_bytes().to_vec(), stat: None, checksum: None }
}

fn with_stat(name: &str) -> DirectoryEntry {
    DirectoryEntry { stat: Some(stat()), ..plain(name) }
}

fn page(entries: Vec<DirectoryEntry>, rest: Option<u32>) -> Answer {
    let rest = rest.map(|number| Box::new(Rest(number)) as Box<dyn ListingPosition>);
    Answer::Value(Value::Listing { entries: entries.into(), rest })
}

/// Returns the whole text of a listing of one page.
fn text(options: u8, entries: Vec<DirectoryEntry>) -> String {
    let mut bench = Bench::new();
    let (call, _) = bench.operation(&list(options));
    bench.reply_of(call, page(entries, None)).text()
}

#[test]
fn options_select_the_details_of_an_entry() {
    let cases = [
        (0, ListDetail::default()),
        (1, ListDetail { online: true, ..Default::default() }),
        (2, ListDetail { stat: true, ..Default::default() }),
        (4, ListDetail { stat: true, checksum: true, online: false }),
        (6, ListDetail { stat: true, checksum: true, online: false }),
        // "If available", without another option: plain.
        (8, ListDetail::default()),
        (0xff, ListDetail { stat: true, checksum: true, online: true }),
    ];
    for (options, wanted) in cases {
        let (_, operation) = Bench::new().operation(&list(options));
        let Operation::List(target, detail) = operation else { panic!() };
        assert_eq!(detail, wanted, "{options:#x}");
        assert_eq!(target.cgi.as_bytes(), b"cks.type=adler32");
    }
}

#[test]
fn a_plain_listing_has_a_name_on_each_line_and_ends_in_a_nul() {
    assert_eq!(text(0, vec![]), "");
    assert_eq!(text(0, vec![plain("a")]), "a\0");
    assert_eq!(text(0, vec![plain("a b"), plain("ü"), plain("c")]), "a b\nü\nc\0");
}

#[test]
fn a_listing_with_status_begins_with_its_mark() {
    assert_eq!(text(2, vec![]), ".\n0 0 0 0\0");
    let two = format!(".\n0 0 0 0\na\n{STAT_TEXT}\nb\n{STAT_TEXT}\0");
    assert_eq!(text(2, vec![with_stat("a"), with_stat("b")]), two);
}

#[test]
fn a_listing_with_checksums_contains_the_stored_ones() {
    let checksum = |value: Option<&str>| Some(("adler32".to_owned(), value.map(str::to_owned)));
    let entries = vec![
        DirectoryEntry { checksum: checksum(Some("cfbd70e6")), ..with_stat("ten") },
        DirectoryEntry { checksum: checksum(None), ..with_stat("empty") },
    ];
    let wanted =
        format!(".\n0 0 0 0\nten\n{STAT_TEXT} [ adler32:cfbd70e6 ]\nempty\n{STAT_TEXT} [ adler32:none ]\0");
    assert_eq!(text(4, entries), wanted);
}

#[test]
fn names_that_cannot_be_encoded_are_omitted_at_any_position() {
    let odd = || [plain("x\ny"), plain(""), plain("x\0y")];
    for place in 0..3 {
        let mut entries = vec![plain("a"), plain("b")];
        entries.splice(place..place, odd());
        assert_eq!(text(0, entries), "a\nb\0", "{place}");
    }
    assert_eq!(text(0, odd().to_vec()), "");
    // An entry that was removed before its status was read.
    assert_eq!(text(2, vec![plain("gone"), with_stat("a")]), format!(".\n0 0 0 0\na\n{STAT_TEXT}\0"));
    assert_eq!(text(2, vec![plain("gone")]), ".\n0 0 0 0\0");
}

/// Answers with one page after another. Returns all frames.
fn pages(bench: &mut Bench, first: CallId, pages: Vec<Vec<DirectoryEntry>>) -> Vec<Reply> {
    let mut call = first;
    let mut left = u32::try_from(pages.len()).unwrap();
    for entries in pages {
        left -= 1;
        let todo = bench.answer(call, page(entries, (left > 0).then_some(left)));
        match todo {
            DriverTask::Call(next, Operation::ListMore(rest)) => {
                assert_eq!(rest.into_any().downcast::<Rest>().unwrap().0, left);
                call = next;
            }
            other => assert!(left == 0 && matches!(other, DriverTask::Nothing), "{}", name(&other)),
        }
    }
    bench.all_replies(0)
}

/// Joins the texts of frames and checks their status codes.
fn joined(frames: &[Reply]) -> String {
    let (last, parts) = frames.split_last().unwrap();
    assert_eq!((last.stream, last.status), (4, OK));
    for part in parts {
        assert_eq!((part.stream, part.status), (4, OKSOFAR));
        assert_eq!(part.body.last(), Some(&b'\n'), "a frame ends where an entry does");
    }
    frames.iter().map(Reply::text).collect()
}

#[test]
fn pages_join_to_one_text() {
    let cases = [
        (vec![vec![]], ""),
        (vec![vec![], vec![]], ""),
        (vec![vec!["a"], vec![]], "a\0"),
        (vec![vec![], vec!["a"]], "a\0"),
        (vec![vec!["a", "b"], vec!["c"], vec![], vec!["x\n", "d"]], "a\nb\nc\nd\0"),
        (vec![vec!["a"], vec!["x\n"]], "a\0"),
    ];
    for (names, wanted) in cases {
        for (options, prefix) in [(0, ""), (2, ".\n0 0 0 0")] {
            let mut bench = Bench::new();
            let (call, _) = bench.operation(&list(options).stream(4));
            let make = if options == 0 { plain } else { with_stat };
            let all = names.iter().map(|page| page.iter().map(|name| make(name)).collect()).collect();
            let text = joined(&pages(&mut bench, call, all));
            let wanted = match options {
                0 => wanted.to_owned(),
                _ => {
                    let entries = wanted.trim_end_matches('\0').split('\n').filter(|name| !name.is_empty());
                    let lines: String = entries.map(|name| format!("\n{name}\n{STAT_TEXT}")).collect();
                    format!("{prefix}{lines}\0")
                }
            };
            assert_eq!(text, wanted, "{names:?}");
            assert_eq!(bench.session.calls_in_flight(), 0);
        }
    }
}

#[test]
fn a_large_page_is_cut_into_frames_at_entries() {
    let mut bench = Bench::new();
    let (call, _) = bench.operation(&list(0).stream(4));
    let names: Vec<String> = (0..20_000).map(|number| format!("entry-{number:05}")).collect();
    let frames = pages(&mut bench, call, vec![names.iter().map(|name| plain(name)).collect()]);
    assert!(frames.len() > 3);
    assert!(frames.iter().all(|frame| frame.body.len() < 64 * 1024));
    assert_eq!(joined(&frames), format!("{}\0", names.join("\n")));
}

#[test]
fn an_error_ends_a_listing_at_any_page() {
    let mut bench = Bench::new();
    let (call, _) = bench.operation(&list(0).stream(4));
    let text = "Unable to open directory /data/dir; no such file or directory";
    let reply = bench.reply_of(call, error(ErrorKind::NotFound, text));
    assert_eq!(reply.error(), (3011, text.to_owned()));
    let (call, _) = bench.operation(&list(2).stream(4));
    let DriverTask::Call(call, Operation::ListMore(_)) =
        bench.answer(call, page(vec![with_stat("a")], Some(1)))
    else {
        panic!()
    };
    bench.answer(call, error(ErrorKind::IoError, "Unable to read directory /data/dir; i/o error"));
    let frames = bench.all_replies(0);
    assert_eq!(frames.last().unwrap().error().0, 3007);
    assert_eq!(bench.session.calls_in_flight(), 0);
}

#[test]
fn a_listing_stops_when_the_client_disconnects() {
    let mut bench = Bench::new();
    let (call, _) = bench.operation(&list(0));
    bench.session.end();
    let todo = bench.answer(call, page(vec![plain("a")], Some(1)));
    assert!(matches!(todo, DriverTask::Nothing));
    assert!(bench.session.is_finished());
}

#[test]
fn an_answer_of_the_wrong_type_is_an_error() {
    let mut bench = Bench::new();
    let (call, _) = bench.operation(&list(0));
    assert_eq!(bench.reply_of(call, Answer::DONE).error().0, 3012);
    let (call, _) = bench.operation(&by_path(STAT, "/data"));
    assert_eq!(bench.reply_of(call, page(vec![plain("a")], None)).error().0, 3012);
}
