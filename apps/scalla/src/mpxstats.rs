//! `mpxstats`: prints the summary reports that arrive at a UDP port, with the command line and output of
//! XRootD's program.

use crate::printer::{OutputBuffer, err};
use crate::xrootd_compat;
use crate::xrootd_compat::options::{self, OptionSpec};
use monitor::ReceivedReport;
use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::process::ExitCode;

const PROGRAM: &str = "mpxstats";

const USAGE: &str = "\nUsage: mpxstats [-f {cgi|flat|xml}] -p <port> [-s]";

const OPTIONS: [OptionSpec; 4] = [
    OptionSpec::switch(Some('d'), "debug"),
    OptionSpec::valued(Some('f'), "format"),
    OptionSpec::valued(Some('p'), "port"),
    OptionSpec::switch(Some('s'), "sender"),
];

/// Size of the largest datagram.
const DATAGRAM_BYTES: usize = 64 << 10;

/// The form in which reports are printed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum ReportForm {
    Cgi,
    Flat,
    #[default]
    Xml,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct ReportRequest {
    port: u16,
    form: ReportForm,
    shows_sender: bool,
}

/// Runs the program with the arguments after the name. It ends when it cannot print any longer.
pub(crate) fn run(arguments: Vec<OsString>) -> ExitCode {
    let request = match parse(&xrootd_compat::words(arguments)) {
        Ok(request) => request,
        Err(text) => return fail(&text, true),
    };
    match open(request.port).map(|socket| print_reports(&socket, request)) {
        // Nobody reads the output any longer.
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => fail(&format!("cannot receive reports: {error}"), false),
        Err(error) => fail(&format!("cannot use port {}: {error}", request.port), false),
    }
}

fn fail(text: &str, shows_usage: bool) -> ExitCode {
    err().line(format_args!("{PROGRAM}: {text}"));
    if shows_usage {
        err().lines(USAGE);
    }
    ExitCode::FAILURE
}

fn parse(words: &[String]) -> Result<ReportRequest, String> {
    let parsed = options::parse(words, &OPTIONS).map_err(|error| error.to_string())?;
    let mut request = ReportRequest::default();
    for (option, value) in parsed.options {
        match option {
            "format" => {
                let forms = [("cgi", ReportForm::Cgi), ("flat", ReportForm::Flat), ("xml", ReportForm::Xml)];
                let form = forms.into_iter().find(|(name, _)| *name == value);
                request.form = form.ok_or_else(|| format!("invalid format '{value}'"))?.1;
            }
            "port" => {
                let port = value.parse().ok().filter(|&port| port > 0);
                request.port = port.ok_or_else(|| format!("invalid port number '{value}'"))?;
            }
            "sender" => request.shows_sender = true,
            _ => {}
        }
    }
    if let Some(word) = parsed.words.first() {
        return Err(format!("unexpected argument '{word}'"));
    }
    if request.port == 0 {
        return Err("the port is not specified".to_owned());
    }
    Ok(request)
}

/// Opens the port for reports over IPv6 and IPv4.
fn open(port: u16) -> io::Result<UdpSocket> {
    UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port)).or_else(|error| match error.kind() {
        io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied => Err(error),
        // A machine without IPv6.
        _ => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)),
    })
}

/// Prints reports in the order of their arrival until the output is closed.
fn print_reports(socket: &UdpSocket, request: ReportRequest) -> io::Result<()> {
    let mut datagram = vec![0; DATAGRAM_BYTES];
    loop {
        let (bytes, sender) = match socket.recv_from(&mut datagram) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let report = String::from_utf8_lossy(datagram.get(..bytes).unwrap_or_default());
        match shown(&report, sender, request) {
            Ok(text) => {
                let mut output = OutputBuffer::default();
                output.put_content(text.as_bytes());
                if output.finish().write().is_err() {
                    return Ok(());
                }
            }
            Err(reason) => err()
                .line(format_args!("{PROGRAM}: a datagram of {} is left out: {reason}", sender_name(sender))),
        }
    }
}

/// Returns a report in the form that was asked for.
fn shown(report: &str, sender: SocketAddr, request: ReportRequest) -> Result<String, String> {
    if request.form == ReportForm::Xml {
        return Ok(format!("{}\n", report.trim_end_matches(['\0', '\n'])));
    }
    let mut report = ReceivedReport::decode(report).map_err(|error| error.to_string())?;
    if request.shows_sender {
        report.set_sender(&sender_name(sender));
    }
    Ok(if request.form == ReportForm::Cgi { report.cgi() } else { report.flat() })
}

/// Returns the address of a sender in the form of IPv6.
fn sender_name(sender: SocketAddr) -> String {
    match sender {
        SocketAddr::V4(sender) => format!("[{}]", sender.ip().to_ipv6_mapped()),
        SocketAddr::V6(sender) => format!("[{}]", sender.ip()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str) -> Result<ReportRequest, String> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn command_lines_have_the_known_options() {
        let all = ReportRequest { port: 9931, form: ReportForm::Cgi, shows_sender: true };
        assert_eq!(request("-d -f cgi -p 9931 -s"), Ok(all));
        assert_eq!(request("-p 1"), Ok(ReportRequest { port: 1, ..ReportRequest::default() }));
        for line in ["", "-f flat", "-p 0", "-p 65536", "-p x", "-p 1 -f json", "-p 1 more", "-q"] {
            assert!(request(line).is_err(), "{line}");
        }
    }

    #[test]
    fn senders_are_named_in_the_form_of_ipv6() {
        assert_eq!(sender_name("127.0.0.1:1".parse().unwrap()), "[::ffff:127.0.0.1]");
        assert_eq!(sender_name("[::ffff:127.0.0.1]:1".parse().unwrap()), "[::ffff:127.0.0.1]");
        assert_eq!(sender_name("[::1]:1".parse().unwrap()), "[::1]");
    }
}
