//! The program `xrdgsiproxy`: makes, shows and removes proxies of grid certificates.
//!
//! Source: security facts, section 7.

use crate::grid_proxy::{self, CERTIFICATE_VARIABLES, KEY_VARIABLES};
use crate::printer::err;
use crate::xrootd_compat;
use auth::gsi::{GridCredential, PROXY_BITS_MIN, ProxyRequest};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "
Usage: xrdgsiproxy [-h] [info | init | destroy] [options]

  info     show the proxy (default)
  init     make a proxy
  destroy  remove the proxy

Options: -f, -file, -out <file>   proxy file [/tmp/x509up_u<uid>]
         -debug                   more information
init:    -cert <file> -key <file> certificate and key [~/.globus/usercert.pem, userkey.pem]
         -certdir <dir>           directory of authorities
         -bits <n>                size of the key [2048]
         -valid <hh:mm>           validity [12:00]
         -path-length <n>         number of proxies below it [0], -1 for any number
info:    -e, -exists              exit status 0 if there is a proxy with -valid and -bits, else 1
         -clockskew <seconds>     tolerated difference of the clocks [30]
         -extensions              show the extensions
";

/// The line around messages.
const FRAME: &str = "++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++";

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum ProxyMode {
    #[default]
    Info,
    Init,
    Destroy,
}

/// A parsed command line.
#[derive(Default, PartialEq, Eq, Debug)]
struct GsiProxyRequest {
    mode: ProxyMode,
    wants_help: bool,
    file: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    bits: Option<usize>,
    valid: Option<Duration>,
    path_length: Option<i64>,
    clock_skew: Option<u64>,
    asks_existence: bool,
    /// Words that have no meaning.
    ignored: Vec<String>,
}

/// Runs the program with the arguments after the name.
pub(crate) fn run(arguments: Vec<OsString>) -> ExitCode {
    let request = match parse(&xrootd_compat::words(arguments)) {
        Ok(request) => request,
        Err(text) => return failed(&text),
    };
    if request.wants_help {
        err().literal(USAGE);
        return ExitCode::SUCCESS;
    }
    for word in &request.ignored {
        framed(&format!("Ignoring unrecognized option: {word}"));
    }
    let file = grid_proxy::proxy_file(request.file.clone());
    match request.mode {
        ProxyMode::Init => init(&request, &file),
        ProxyMode::Info => info(&request, &file),
        ProxyMode::Destroy => match std::fs::remove_file(&file) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => failed(&format!("proxy file: {} not found", file.display())),
        },
    }
}

fn parse(words: &[String]) -> Result<GsiProxyRequest, String> {
    let mut request = GsiProxyRequest::default();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("Option {word} requires a value"));
        match word.as_str() {
            "info" => request.mode = ProxyMode::Info,
            "init" => request.mode = ProxyMode::Init,
            "destroy" => request.mode = ProxyMode::Destroy,
            "-h" => request.wants_help = true,
            "-debug" | "-extensions" => {}
            "-e" | "-exists" => request.asks_existence = true,
            "-f" | "-file" | "-out" => request.file = Some(value()?.into()),
            "-cert" => request.certificate = Some(value()?.into()),
            "-key" => request.key = Some(value()?.into()),
            // The authorities are not needed to make a proxy.
            "-certdir" => drop(value()?),
            "-bits" => request.bits = Some(number(word, value()?)?),
            "-valid" => {
                let text = value()?;
                let valid = grid_proxy::validity(text);
                request.valid = Some(valid.ok_or_else(|| format!("Invalid value of {word}: {text}"))?);
            }
            "-path-length" => request.path_length = Some(number(word, value()?)?),
            "-clockskew" => request.clock_skew = Some(number(word, value()?)?),
            _ => request.ignored.push(word.clone()),
        }
    }
    Ok(request)
}

fn number<T: std::str::FromStr>(word: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("Invalid value of {word}: {text}"))
}

fn init(request: &GsiProxyRequest, file: &Path) -> ExitCode {
    let certificate =
        grid_proxy::user_file(request.certificate.clone(), CERTIFICATE_VARIABLES, "usercert.pem");
    let key = grid_proxy::user_file(request.key.clone(), KEY_VARIABLES, "userkey.pem");
    let default = ProxyRequest::default();
    let wanted = ProxyRequest {
        bits: request.bits.unwrap_or(PROXY_BITS_MIN).max(PROXY_BITS_MIN),
        valid: request.valid.unwrap_or(default.valid),
        path_length: match request.path_length {
            Some(length) => u32::try_from(length).ok(),
            None => default.path_length,
        },
    };
    match grid_proxy::make(&certificate, &key, wanted, file) {
        Ok(proxy) => show(file, &proxy),
        Err(text) => failed(&text),
    }
}

fn info(request: &GsiProxyRequest, file: &Path) -> ExitCode {
    let proxy = match GridCredential::read_proxy(file) {
        Ok(proxy) => proxy,
        Err(_) if request.asks_existence => return ExitCode::FAILURE,
        Err(_) if !file.exists() => return failed(&format!("proxy file: {} not found", file.display())),
        Err(text) => return failed(&text),
    };
    if !request.asks_existence {
        return show(file, &proxy);
    }
    let skew = Duration::from_secs(request.clock_skew.unwrap_or(30));
    let needed = request.valid.unwrap_or_default().saturating_sub(skew);
    let left = grid_proxy::left(&proxy);
    let is_enough = !left.is_zero() && left >= needed && proxy.bits() >= request.bits.unwrap_or(0);
    if is_enough { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn show(file: &Path, proxy: &GridCredential) -> ExitCode {
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    err().line(format_args!("{FRAME}"));
    for (label, value) in grid_proxy::description(&absolute, proxy) {
        err().line(format_args!("{label:<12}: {value}"));
    }
    err().line(format_args!("{FRAME}"));
    let groups = grid_proxy::groups(proxy);
    for group in &groups {
        err().line(format_args!("VOMS attributes: {group}"));
    }
    if !groups.is_empty() {
        err().line(format_args!("{FRAME}"));
    }
    ExitCode::SUCCESS
}

fn framed(text: &str) {
    err().line(format_args!("{FRAME}"));
    err().line(format_args!("+ {text}"));
    err().line(format_args!("{FRAME}"));
}

fn failed(text: &str) -> ExitCode {
    framed(text);
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_and_modes() {
        let of = |line: &str| parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(of("").unwrap(), GsiProxyRequest::default());
        let request =
            of("init -cert c -key k -certdir d -bits 3072 -valid 1:30 -path-length -1 -out f -x").unwrap();
        assert_eq!(
            (request.mode, request.bits, request.path_length),
            (ProxyMode::Init, Some(3072), Some(-1))
        );
        assert_eq!((request.valid, request.file), (Some(Duration::from_secs(5400)), Some("f".into())));
        assert_eq!(request.ignored, ["-x"]);
        assert!(of("info -e -valid 10:00").unwrap().asks_existence);
        for invalid in ["-bits x", "-bits", "-valid 0:00", "-path-length many"] {
            assert!(of(invalid).is_err(), "{invalid}");
        }
    }
}
