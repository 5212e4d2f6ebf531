//! The command line of `xrdcp`.

use super::failure::{USAGE_STATUS, XrdcpFailure, usage_failure};
use crate::copy::option_values;
use crate::xrootd_compat::options::{self, OptionSpec};
use client::copy::{Against, ChecksumWish, CopyDelegation, ThirdParty};
use client::digest::Algorithm;
use client::{Settings, Source};

const OPTIONS: [OptionSpec; 35] = [
    OptionSpec::switch(Some('A'), "allow-http"),
    OptionSpec::valued(Some('C'), "cksum"),
    OptionSpec::switch(Some('F'), "coerce"),
    OptionSpec::switch(None, "continue"),
    OptionSpec::valued(Some('d'), "debug"),
    OptionSpec::switch(Some('Z'), "dynamic-src"),
    OptionSpec::switch(Some('f'), "force"),
    OptionSpec::switch(Some('h'), "help"),
    OptionSpec::valued(Some('I'), "infiles"),
    OptionSpec::switch(Some('H'), "license"),
    OptionSpec::switch(Some('N'), "nopbar"),
    OptionSpec::switch(None, "notlsok"),
    OptionSpec::valued(None, "parallel"),
    OptionSpec::switch(Some('p'), "path"),
    OptionSpec::switch(Some('P'), "posc"),
    OptionSpec::valued(Some('D'), "proxy"),
    OptionSpec::switch(Some('r'), "recursive"),
    OptionSpec::valued(Some('t'), "retry"),
    OptionSpec::valued(None, "retry-policy"),
    OptionSpec::switch(None, "rm-bad-cksum"),
    OptionSpec::switch(None, "server"),
    OptionSpec::switch(Some('s'), "silent"),
    OptionSpec::valued(Some('y'), "sources"),
    OptionSpec::valued(Some('S'), "streams"),
    OptionSpec::switch(None, "tlsmetalink"),
    OptionSpec::switch(Some('E'), "tlsnodata"),
    OptionSpec::valued(Some('T'), "tpc"),
    OptionSpec::switch(Some('v'), "verbose"),
    OptionSpec::switch(Some('V'), "version"),
    OptionSpec::switch(None, "xattr"),
    OptionSpec::valued(Some('X'), "xrate"),
    OptionSpec::valued(None, "xrate-threshold"),
    OptionSpec::valued(Some('z'), "zip"),
    OptionSpec::switch(None, "zip-append"),
    OptionSpec::switch(None, "zip-mtln-cksum"),
];

/// Returns the options as written, for completion.
pub(crate) fn words() -> impl Iterator<Item = String> {
    OPTIONS.iter().map(|option| format!("--{}", option.long))
}

/// Minimum accepted rate in bytes per second.
const RATE_MIN: u64 = 10 << 10;
/// Exit status of invalid checksum arguments.
const CHECKSUM_STATUS: u8 = 13;
/// Number of sources with `-x`.
const SOURCES: u64 = 12;

/// A parsed command line.
#[derive(Default)]
pub(super) struct XrdcpOptions {
    pub(super) words: Vec<String>,
    /// A file that lists sources.
    pub(super) listed: Option<String>,
    pub(super) checksums: Vec<ChecksumWish>,
    pub(super) coerce: bool,
    pub(super) resume: bool,
    pub(super) force: bool,
    pub(super) posc: bool,
    pub(super) recursive: bool,
    pub(super) no_progress: bool,
    pub(super) parallel: usize,
    pub(super) sources: Option<u64>,
    pub(super) third_party: ThirdParty,
    pub(super) delegation: CopyDelegation,
    pub(super) zip_member: Option<String>,
    /// cgi appended to the URL of the source, and of the target.
    pub(super) source_cgi: String,
    pub(super) target_cgi: String,
    pub(super) proxy: bool,
    pub(super) zip_append: bool,
    /// Set if extended attributes are copied.
    pub(super) attributes: bool,
    /// Maximum rate in bytes per second.
    pub(super) rate: Option<u64>,
    /// Log level, 0 to 3.
    pub(super) detail: u8,
}

/// Output instead of a copy.
pub(super) enum InformationRequest {
    Help,
    Licence,
    Version,
}

/// Parses a command line. Options that are settings are stored in `settings`.
pub(super) fn parse(
    words: Vec<String>,
    settings: &mut Settings,
) -> Result<Result<XrdcpOptions, InformationRequest>, XrdcpFailure> {
    let mut command = XrdcpOptions { parallel: 1, ..XrdcpOptions::default() };
    let words = match legacy(words, &mut command, settings)? {
        Ok(words) => words,
        Err(instead) => return Ok(Err(instead)),
    };
    let parsed = options::parse(&words, &OPTIONS).map_err(|wrong| usage_failure(wrong.to_string()))?;
    for (name, value) in parsed.options {
        let mut set = |name: &str, value: &str| {
            // A number out of range was rejected earlier.
            settings.set(name, value, Source::Option).ok();
        };
        match name {
            "help" => return Ok(Err(InformationRequest::Help)),
            "license" => return Ok(Err(InformationRequest::Licence)),
            "version" => return Ok(Err(InformationRequest::Version)),
            "cksum" => command.checksums.push(checksum(&value)?),
            "coerce" => command.coerce = true,
            "continue" => command.resume = true,
            "debug" => command.detail = u8::try_from(number(&value, 0, 3)?).unwrap_or(0),
            "force" => command.force = true,
            "infiles" => command.listed = Some(value),
            "nopbar" | "silent" => command.no_progress = true,
            "notlsok" => set("NoTlsOK", "1"),
            "parallel" => command.parallel = usize::try_from(number(&value, 1, 128)?).unwrap_or(1),
            "posc" | "rm-bad-cksum" => command.posc = true,
            "proxy" => command.proxy = true,
            "recursive" => command.recursive = true,
            "retry" => set("CpRetry", &number(&value, 0, i64::MAX.cast_unsigned())?.to_string()),
            "retry-policy" if matches!(value.as_str(), "force" | "continue") => set("CpRetryPolicy", &value),
            "retry-policy" => return Err(XrdcpFailure::Usage(String::new())),
            "sources" => command.sources = Some(number(&value, 1, 32)?),
            // The connection for requests is additional.
            "streams" => set("SubStreamsPerChannel", &(number(&value, 1, 15)? + 1).to_string()),
            "tlsmetalink" => set("TlsMetalink", "1"),
            "tlsnodata" => set("TlsNoData", "1"),
            "tpc" => {
                command.third_party = match value.as_str() {
                    "first" => ThirdParty::First,
                    "only" => ThirdParty::Only,
                    _ => return Err(usage_failure(format!("Invalid option, '-T {value}' "))),
                }
            }
            "xattr" => command.attributes = true,
            "xrate" => command.rate = Some(rate(&value)?),
            "xrate-threshold" => set("XRateThreshold", &rate(&value)?.to_string()),
            "zip" => command.zip_member = Some(value),
            "zip-append" => command.zip_append = true,
            "zip-mtln-cksum" => set("ZipMtlnCksum", "1"),
            // Options without effect: --allow-http, --dynamic-src, --path, --server, --verbose.
            _ => {}
        }
    }
    if command.checksums.iter().skip(1).any(|requested| requested.against != Against::PrintSource) {
        let text = "xrdcp: Additional checksum must be of mode 'source'.\n".to_owned();
        return Err(XrdcpFailure::Plain(text, CHECKSUM_STATUS));
    }
    command.words = parsed.words;
    Ok(Ok(command))
}

/// Extracts the legacy options, which are words with a single dash.
fn legacy(
    words: Vec<String>,
    command: &mut XrdcpOptions,
    settings: &mut Settings,
) -> Result<Result<Vec<String>, InformationRequest>, XrdcpFailure> {
    let mut rest = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-version" => return Ok(Err(InformationRequest::Version)),
            "-force" => {
                let text = "xrdcp: -force is no longer supported; use --retry instead!\n";
                return Err(XrdcpFailure::Plain(text.to_owned(), USAGE_STATUS));
            }
            "-adler" => command.checksums.push(checksum("adler32:source")?),
            "-md5" => command.checksums.push(checksum("md5:source")?),
            "-np" => command.no_progress = true,
            "-x" => command.sources = Some(SOURCES),
            "-T" | "--tpc" => {
                let mut mode = words.next();
                if mode.as_deref() == Some("delegate") {
                    let next = words.next().unwrap_or_default();
                    if !matches!(next.as_str(), "first" | "only") {
                        return Err(usage_failure(format!("Invalid option, 'delegate {next}' ")));
                    }
                    command.delegation = CopyDelegation::Supported;
                    mode = Some(next);
                }
                rest.push(word);
                rest.extend(mode);
            }
            word if word.starts_with("-DI") && word.len() > 3 => {
                let value =
                    words.next().ok_or_else(|| usage_failure(format!("'{word}' argument missing.")))?;
                let wrong = || usage_failure(format!("'{word}' argument is not a number."));
                value.parse::<i64>().map_err(|_| wrong())?;
                set_variable(settings, word, &value);
            }
            word if word.starts_with("-DS") && word.len() > 3 => {
                let value =
                    words.next().ok_or_else(|| usage_failure(format!("'{word}' argument missing.")))?;
                set_variable(settings, word, &value);
            }
            "-OD" | "-OS" => return Err(usage_failure(format!("'{word}' opaque data not specified."))),
            word if word.starts_with("-OD") => command.target_cgi = cgi(word),
            word if word.starts_with("-OS") => command.source_cgi = cgi(word),
            _ => rest.push(word),
        }
    }
    Ok(Ok(rest))
}

/// Sets a variable. Unknown names belong to other programs and are ignored.
fn set_variable(settings: &mut Settings, word: &str, value: &str) {
    settings.set(word.get(3..).unwrap_or_default(), value, Source::Option).ok();
}

fn cgi(word: &str) -> String {
    word.get(3..).unwrap_or_default().trim_start_matches(['?', '&']).to_owned()
}

fn number(text: &str, least: u64, most: u64) -> Result<u64, XrdcpFailure> {
    let value: i64 =
        text.parse().map_err(|_| usage_failure(format!("'{text}' argument is not a number.")))?;
    match u64::try_from(value) {
        Ok(value) if value > most => Err(usage_failure(format!("'{text}' argument must be <= {most}."))),
        Ok(value) if value >= least => Ok(value),
        _ => Err(usage_failure(format!("'{text}' argument must be >= {least}."))),
    }
}

/// Parses bytes per second, with an optional suffix `k`, `m` or `g`.
fn rate(text: &str) -> Result<u64, XrdcpFailure> {
    let (digits, shift) = match text.to_ascii_lowercase().pop() {
        Some('k') => (1, 10),
        Some('m') => (1, 20),
        Some('g') => (1, 30),
        _ => (0, 0),
    };
    let number = text.get(..text.len() - digits).unwrap_or_default().parse::<u64>();
    let value = number.map_err(|_| usage_failure(format!("'{text}' argument is not a valid time.")))?;
    let value = value.saturating_mul(1 << shift);
    if value < RATE_MIN {
        return Err(usage_failure(format!("'{text}' argument must be >= {RATE_MIN}.")));
    }
    Ok(value)
}

fn checksum(text: &str) -> Result<ChecksumWish, XrdcpFailure> {
    let kind = text.split(':').next().unwrap_or_default();
    let value = text.split_once(':').map_or("", |(_, value)| value);
    let invalid_value = || usage_failure(format!("Invalid {kind} value '{value}'."));
    let mut requested = match option_values::parse_checksum(text) {
        Ok(requested) => requested,
        Err(_) if option_values::parse_checksum(kind).is_ok() && !value.is_empty() => {
            return Err(invalid_value());
        }
        Err(_) => return Err(usage_failure(format!("Invalid checksum type, '{kind}'."))),
    };
    if let (Against::Value(value), Some(algorithm)) = (&mut requested.against, requested.algorithm) {
        let width = 2 * algorithm.bytes();
        // For these two types, these programs print values without leading zeros.
        if matches!(algorithm, Algorithm::Adler32 | Algorithm::Crc32) {
            *value = format!("{value:0>width$}");
        }
        if value.len() != width {
            return Err(invalid_value());
        }
    }
    Ok(requested)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Result<XrdcpOptions, InformationRequest>, String> {
        let words = line.split_whitespace().map(str::to_owned).collect();
        parse(words, &mut Settings::default()).map_err(|refusal| match refusal {
            XrdcpFailure::Usage(text) | XrdcpFailure::Plain(text, _) => text,
            XrdcpFailure::Status(status) | XrdcpFailure::Run(status) | XrdcpFailure::Prepare(status) => {
                status.to_string()
            }
        })
    }

    #[test]
    fn what_makes_no_sense_is_told_as_by_the_real_program() {
        let table = [
            ("-q a b", "Invalid option, '-q'."),
            ("--foo", "Invalid option, '--foo'."),
            ("--cksum", "'--cksum' argument missing."),
            ("--cksum foo:print a b", "Invalid checksum type, 'foo'."),
            ("--cksum md5:abc a b", "Invalid md5 value 'abc'."),
            ("--cksum adler32:zzzzzzzz a b", "Invalid adler32 value 'zzzzzzzz'."),
            (
                "--cksum adler32 --cksum md5:print a b",
                "xrdcp: Additional checksum must be of mode 'source'.\n",
            ),
            ("-OD a b", "'-OD' opaque data not specified."),
            ("-d 9 a b", "'9' argument must be <= 3."),
            ("-d x a b", "'x' argument is not a number."),
            ("--parallel 0 a b", "'0' argument must be >= 1."),
            ("-X 5 a b", "'5' argument must be >= 10240."),
            ("-X 1x a b", "'1x' argument is not a valid time."),
            ("-T foo a b", "Invalid option, '-T foo' "),
            ("-T delegate a b", "Invalid option, 'delegate a' "),
            ("-DICPChunkSize x a b", "'-DICPChunkSize' argument is not a number."),
            ("-for a b", "Invalid option, '-o'."),
        ];
        for (line, expected) in table {
            assert_eq!(parsed(line).err().as_deref(), Some(expected), "{line}");
        }
    }

    #[test]
    fn old_options_and_new_ones() {
        let Ok(Ok(command)) = parsed("a -adler -ODx=1 -OS&y=2 -x -np --forc -T delegate only b") else {
            panic!()
        };
        assert_eq!(command.words, ["a", "b"]);
        assert_eq!((command.target_cgi.as_str(), command.source_cgi.as_str()), ("x=1", "y=2"));
        assert!(command.force && command.no_progress && command.sources == Some(12));
        assert_eq!((command.checksums.len(), command.third_party), (1, ThirdParty::Only));
        assert_eq!(command.delegation, CopyDelegation::Supported);
        assert!(matches!(parsed("-version"), Ok(Err(InformationRequest::Version))));
        let Ok(Ok(command)) = parsed("-C adler32:62c0215 a b") else { panic!() };
        assert_eq!(command.checksums[0].against, Against::Value("062c0215".into()));
    }
}
