//! `chksum`: the stored checksums of files.

use super::words::{CommandOption, CommandWords, parse_path};
use super::{CommandRun, CommandStep, FrmAdmin, attributes, error_text};
use base::LogicalPath;
use digest::{Algorithm, Checksum, ChecksumRecord, RunningChecksum};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use storage::{Backend as _, Metadata, OpenMode};

const OPTIONS: [CommandOption; 4] = [
    CommandOption::switch("force"),
    CommandOption::switch("pfn"),
    CommandOption::valued("type"),
    CommandOption::switch("verbose"),
];

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;

/// What to do.
enum Function {
    Calculate,
    List,
    Set(Checksum),
    Unset,
    Verify(Checksum),
}

/// Returns the checksum that is stored with a file, and whether it is valid.
fn stored_checksum(
    admin: &FrmAdmin,
    path: &LogicalPath,
    algorithm: Algorithm,
    status: &Metadata,
) -> io::Result<Option<(Checksum, bool)>> {
    let value = admin.attribute(path, &ChecksumRecord::attribute(algorithm))?;
    let record = value.and_then(|value| ChecksumRecord::decode(&value));
    let record = record.filter(|record| record.checksum.algorithm() == algorithm);
    let fits =
        |record: &ChecksumRecord| record.fits(status.modified, status.modified_nanoseconds, status.size);
    Ok(record.map(|record| (record.checksum, fits(&record))))
}

/// Reads a file, and returns its checksum with the status that it belongs to.
fn read_checksum(
    admin: &FrmAdmin,
    path: &LogicalPath,
    algorithm: Algorithm,
) -> io::Result<(Checksum, Metadata)> {
    let file = admin.posix.open(path, &OpenMode { write: false, truncate: false, create: None })?;
    let before = file.stat()?;
    let (mut sum, mut buffer, mut offset) = (RunningChecksum::new(algorithm), vec![0; READ_BYTES], 0);
    loop {
        let length = file.read(offset, &mut buffer)?;
        if length == 0 {
            break;
        }
        sum.update(buffer.get(..length).unwrap_or_default());
        offset += length as u64;
    }
    let after = file.stat()?;
    let key = |status: &Metadata| (status.size, status.modified, status.modified_nanoseconds);
    if key(&before) != key(&after) || offset != after.size {
        return Err(io::Error::other("it was changed meanwhile"));
    }
    Ok((sum.finish(), after))
}

/// Stores a checksum of a file with this status.
fn store_checksum(admin: &FrmAdmin, path: &LogicalPath, sum: Checksum, status: &Metadata) -> io::Result<()> {
    let record = ChecksumRecord::new(sum, status.modified, attributes::now())
        .of_file(status.size, status.modified_nanoseconds);
    let file = admin.hold(path)?;
    file.set_attribute(&ChecksumRecord::attribute(sum.algorithm()), &record.encode())
}

/// `chksum {calc | ls | set VALUE | unset | ver VALUE} FILE`.
pub(super) fn checksum(run: &mut CommandRun<'_>, words: &mut CommandWords<'_>) -> CommandStep {
    let options = run.options(words, &OPTIONS)?;
    let chosen = options.value("type");
    let configured = run.admin.effective.protocol.checksums.offered.first().map(|kind| kind.name());
    let kind = chosen.or(configured).unwrap_or("adler32");
    let Some(algorithm) = Algorithm::from_name(kind) else {
        return run.refuse(format!("{kind} checksums are not supported."));
    };
    let Some(function) = words.text() else { return run.refuse("chksum function not specified.") };
    let value = |run: &mut CommandRun<'_>, words: &mut CommandWords<'_>| {
        let Some(text) = words.text() else { return run.refuse("chksum target not specified.") };
        match Checksum::from_hex(algorithm, &text) {
            Some(sum) => Ok(sum),
            None => run.refuse(format!("Invalid {kind} checksum value - {text}")),
        }
    };
    let work = match function.as_str() {
        "calc" => Function::Calculate,
        "ls" => Function::List,
        "set" => Function::Set(value(run, words)?),
        "unset" => Function::Unset,
        "ver" | "verify" => Function::Verify(value(run, words)?),
        _ => return run.refuse(format!("Unknown chksum function - {function}")),
    };
    let Some(word) = words.next() else { return run.refuse("chksum target not specified.") };
    let path = if options.has("pfn") { path_of_local(run, word)? } else { parsed(run, word)? };
    if !run.is_file(&path) {
        return Ok(());
    }
    let done = match work {
        Function::List => list_checksums(run, &path),
        Function::Calculate => calculate(run, &path, algorithm, options.has("force"), options.has("verbose")),
        Function::Set(sum) => set_checksum(run, &path, sum),
        Function::Unset => unset_checksum(run, &path, algorithm),
        Function::Verify(sum) => verify_checksum(run, &path, sum, options.has("force")),
    };
    if let Err(error) = done {
        run.fail(format!("Unable to {function} {kind} checksum; {}", error_text(&error)));
    }
    Ok(())
}

fn parsed(run: &mut CommandRun<'_>, word: &[u8]) -> CommandStep<LogicalPath> {
    match parse_path(word) {
        Ok(path) => Ok(path),
        Err(text) => run.refuse(text),
    }
}

fn path_of_local(run: &mut CommandRun<'_>, word: &[u8]) -> CommandStep<LogicalPath> {
    let local = Path::new(OsStr::from_bytes(word));
    match run.admin.logical_path(local) {
        Some(path) => Ok(path),
        None => run.refuse(format!("{} is not below oss.localroot", super::shown_bytes(word))),
    }
}

fn list_checksums(run: &mut CommandRun<'_>, path: &LogicalPath) -> io::Result<()> {
    let status = run.admin.posix.stat(path)?;
    let mut has_any = false;
    for algorithm in Algorithm::ALL {
        if let Some((sum, is_valid)) = stored_checksum(run.admin, path, algorithm, &status)? {
            has_any = true;
            let stale = if is_valid { "" } else { " (stale)" };
            run.message(format!("{algorithm} {} {}{stale}", sum.hex(), path.text()));
        }
    }
    if !has_any {
        run.message(format!("No checksums exist for {}", path.text()));
    }
    Ok(())
}

fn calculate(
    run: &mut CommandRun<'_>,
    path: &LogicalPath,
    algorithm: Algorithm,
    is_forced: bool,
    is_verbose: bool,
) -> io::Result<()> {
    let status = run.admin.posix.stat(path)?;
    let stored = stored_checksum(run.admin, path, algorithm, &status)?;
    let sum = match stored.filter(|(_, is_valid)| *is_valid && !is_forced) {
        Some((sum, _)) => sum,
        None => {
            let (sum, status) = read_checksum(run.admin, path, algorithm)?;
            store_checksum(run.admin, path, sum, &status)?;
            if is_verbose {
                run.message(format!("{} bytes read", status.size));
            }
            sum
        }
    };
    run.message(format!("{algorithm} {} {}", sum.hex(), path.text()));
    Ok(())
}

fn set_checksum(run: &mut CommandRun<'_>, path: &LogicalPath, sum: Checksum) -> io::Result<()> {
    let status = run.admin.posix.stat(path)?;
    store_checksum(run.admin, path, sum, &status)?;
    run.message(format!("{} {} {}", sum.algorithm(), sum.hex(), path.text()));
    Ok(())
}

fn unset_checksum(run: &mut CommandRun<'_>, path: &LogicalPath, algorithm: Algorithm) -> io::Result<()> {
    let file = run.admin.hold(path)?;
    file.remove_attribute(&ChecksumRecord::attribute(algorithm))
}

/// Compares a checksum with the one that is stored, or with the one of the content if none is stored or
/// `reads` is set.
fn verify_checksum(
    run: &mut CommandRun<'_>,
    path: &LogicalPath,
    wanted: Checksum,
    reads: bool,
) -> io::Result<()> {
    let algorithm = wanted.algorithm();
    let status = run.admin.posix.stat(path)?;
    let stored = stored_checksum(run.admin, path, algorithm, &status)?;
    let found = match stored.filter(|(_, is_valid)| *is_valid && !reads) {
        Some((sum, _)) => sum,
        None => read_checksum(run.admin, path, algorithm)?.0,
    };
    if found == wanted {
        run.message(format!("{algorithm} {} {} verified", wanted.hex(), path.text()));
    } else {
        run.fail(format!(
            "{algorithm} checksum of {} is {} and not {}",
            path.text(),
            found.hex(),
            wanted.hex()
        ));
    }
    Ok(())
}
