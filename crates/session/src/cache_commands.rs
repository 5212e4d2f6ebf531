//! Commands of clients about files in the disk cache of a proxy, in the two forms of XRootD: the words
//! `cache evict PATH` of kXR_set, and kXR_open of `/xrdpfc_command/remove_file/OPTIONS/PATH`.
//!
//! Both become operations on the path of the file, so exports and authorization decide about that path.

use crate::target::{Verb, target};
use base::{Error, ErrorKind};
use vfs::{CachedFileCommand, Operation};

/// The prefix of paths that are commands.
const PATH_PREFIX: &[u8] = b"/xrdpfc_command/";

/// Returns the operation of the words after `cache`.
pub(crate) fn of_words(words: &[u8]) -> Result<Operation, Error> {
    let invalid = || {
        Error::new(
            ErrorKind::ArgInvalid,
            "invalid set cache argument; write evict, fevict or cached and a path",
        )
    };
    let (command, path) = split_word(words);
    let command = match command {
        b"" => return Err(Error::new(ErrorKind::ArgMissing, "set cache argument not specified.")),
        b"evict" => CachedFileCommand::Evict,
        b"fevict" => CachedFileCommand::EvictOpen,
        b"cached" => CachedFileCommand::IsCached,
        _ => return Err(invalid()),
    };
    if !path.starts_with(b"/") {
        return Err(invalid());
    }
    Ok(Operation::Cache(target(path, Verb::SET)?, command))
}

/// Splits the first word off. Blanks around it and at the end have no meaning.
pub(crate) fn split_word(text: &[u8]) -> (&[u8], &[u8]) {
    let text = text.trim_ascii();
    let end = text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    (word, rest.trim_ascii_start())
}

/// Returns the operation of a path that is opened; `None` if it is no command.
pub(crate) fn of_path(path: &[u8]) -> Option<Result<Operation, Error>> {
    let command = path.strip_prefix(PATH_PREFIX)?;
    let refuse = |kind, text| Some(Err(Error::new(kind, text)));
    let Some(arguments) = command.strip_prefix(b"remove_file/") else {
        // Zeros in place of the content of a file would be false data.
        return refuse(ErrorKind::Unsupported, "the only command of the cache is remove_file");
    };
    let options =
        arguments.iter().position(|&byte| byte == b'/').and_then(|end| arguments.split_at_checked(end));
    match options {
        Some((options, path)) if options.trim_ascii().is_empty() => {
            Some(target(path, Verb::OPEN).map(|target| Operation::Cache(target, CachedFileCommand::Evict)))
        }
        Some(_) => refuse(ErrorKind::ArgInvalid, "remove_file has no options"),
        None => refuse(ErrorKind::ArgMissing, "remove_file needs a path"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The command and the path, or the kind of the error.
    fn shown(operation: Result<Operation, Error>) -> Result<(CachedFileCommand, String), ErrorKind> {
        match operation {
            Ok(Operation::Cache(target, command)) => Ok((command, target.path.text().into_owned())),
            Ok(_) => panic!("another operation"),
            Err(error) => Err(error.kind),
        }
    }

    #[test]
    fn words_name_a_command_and_a_path() {
        let parsed = |words: &str| shown(of_words(words.as_bytes()));
        assert_eq!(parsed(" evict /f"), Ok((CachedFileCommand::Evict, "/f".to_owned())));
        assert_eq!(parsed("fevict   /a b?authz=x"), Ok((CachedFileCommand::EvictOpen, "/a b".to_owned())));
        assert_eq!(parsed("cached /f "), Ok((CachedFileCommand::IsCached, "/f".to_owned())));
        assert_eq!(parsed("evict /../f"), Err(ErrorKind::NotAuthorized));
        for words in ["evict", "frob /f", "evict f", "evict  "] {
            assert_eq!(parsed(words), Err(ErrorKind::ArgInvalid), "{words}");
        }
        assert_eq!(parsed(""), Err(ErrorKind::ArgMissing));
    }

    #[test]
    fn a_path_that_is_a_command_is_about_the_path_in_it() {
        let parsed = |path: &str| of_path(path.as_bytes()).map(shown);
        for options in ["", " "] {
            let path = format!("/xrdpfc_command/remove_file/{options}/d/f?authz=x");
            assert_eq!(parsed(&path), Some(Ok((CachedFileCommand::Evict, "/d/f".to_owned()))));
        }
        let kind = |path: &str| parsed(path).map(|parsed| parsed.unwrap_err());
        assert_eq!(kind("/xrdpfc_command/remove_file/ /../f"), Some(ErrorKind::NotAuthorized));
        assert_eq!(kind("/xrdpfc_command/remove_file/-s 1/f"), Some(ErrorKind::ArgInvalid));
        assert_eq!(kind("/xrdpfc_command/remove_file/"), Some(ErrorKind::ArgMissing));
        assert_eq!(kind("/xrdpfc_command/create_file/-s 1m/f"), Some(ErrorKind::Unsupported));
        assert_eq!(kind("/xrdpfc_command/"), Some(ErrorKind::Unsupported));
        assert_eq!(parsed("/xrdpfc_commands/remove_file/ /f"), None);
        assert_eq!(parsed("/d/xrdpfc_command/remove_file/ /f"), None);
    }
}
