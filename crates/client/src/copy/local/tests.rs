//! Creation, continuation and publication of local targets.

use super::*;
use crate::copy::holes::HOLE_BYTES;
use crate::copy::local_source::LocalSource;
use crate::settings::Settings;

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("scalla-copy-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(&self.0)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

fn options() -> CopyOptions {
    CopyOptions::of(&Settings::default())
}

#[test]
fn the_open_source_is_never_truncated() {
    let directory = Directory::new("source");
    let (source, target) = (directory.0.join("source"), directory.0.join("target"));
    fs::write(&source, b"content").unwrap();
    let open = LocalSource::open(&source).unwrap();
    // A link to the source has appeared since the paths were compared.
    fs::hard_link(&source, &target).unwrap();
    let in_place = CopyOptions { in_place: true, force: true, ..options() };
    let resuming = CopyOptions { resume: true, ..options() };
    for options in [in_place, resuming] {
        let refused = LocalTarget::create(&target, &options, Some(open.id));
        assert!(matches!(refused, Err(CopyError::Usage(text)) if text.contains("are the same file")));
        assert_eq!(fs::read(&source).unwrap(), b"content");
    }
}

#[test]
fn a_half_file_is_never_seen_under_the_name() {
    let directory = Directory::new("half");
    let path = directory.0.join("file");
    let (mut target, _) = LocalTarget::create(&path, &options(), None).unwrap();
    target.write(0, b"half").unwrap();
    assert!(!path.exists() && directory.names().len() == 1);
    drop(target);
    assert_eq!(directory.names(), [""; 0]);
    let (mut target, _) = LocalTarget::create(&path, &options(), None).unwrap();
    target.write(0, b"whole").unwrap();
    target.finish(5, None).unwrap();
    assert_eq!((directory.names(), fs::read(&path).unwrap()), (vec!["file".to_owned()], b"whole".to_vec()));
}

#[test]
fn what_is_there_is_kept_without_force_even_when_it_came_meanwhile() {
    let directory = Directory::new("force");
    let path = directory.0.join("file");
    let (target, _) = LocalTarget::create(&path, &options(), None).unwrap();
    fs::write(&path, b"precious").unwrap();
    assert!(matches!(target.finish(0, None), Err(CopyError::Exists(_))));
    assert!(matches!(LocalTarget::create(&path, &options(), None), Err(CopyError::Exists(_))));
    assert_eq!(directory.names(), ["file"]);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let forced = CopyOptions { force: true, ..options() };
    let (mut target, _) = LocalTarget::create(&path, &forced, None).unwrap();
    target.write(0, b"new").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    target.finish(3, None).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
}

#[test]
fn a_part_is_found_again_with_what_is_known_of_it() {
    let directory = Directory::new("part");
    let path = directory.0.join("file");
    let resuming = CopyOptions { resume: true, ..options() };
    let (mut target, left) = LocalTarget::create(&path, &resuming, None).unwrap();
    assert_eq!(left, None);
    target.begin(Some("source 1")).unwrap();
    target.write(0, b"0123456789").unwrap();
    assert!(matches!(LocalTarget::create(&path, &resuming, None), Err(CopyError::InUse(_))));
    target.leave(7);
    assert_eq!(directory.names(), [".file.part", ".file.part.note"]);
    let (mut target, left) = LocalTarget::create(&path, &resuming, None).unwrap();
    let left = left.unwrap();
    let noted = left.noted.unwrap();
    assert_eq!((left.bytes, noted.source.as_str(), noted.written), (7, "source 1", 7));
    target.keep_first(5).unwrap();
    target.begin(Some("source 1")).unwrap();
    target.write(5, b"abc").unwrap();
    target.finish(8, None).unwrap();
    assert_eq!(
        (directory.names(), fs::read(&path).unwrap()),
        (vec!["file".to_owned()], b"01234abc".to_vec())
    );
}

#[test]
fn what_a_killed_copy_wrote_counts_until_the_system_stops() {
    let directory = Directory::new("killed");
    let path = directory.0.join("file");
    let resuming = CopyOptions { resume: true, ..options() };
    let (mut target, _) = LocalTarget::create(&path, &resuming, None).unwrap();
    target.begin(Some("source 1")).unwrap();
    target.write(0, b"0123456789").unwrap();
    drop(target);
    let note = beside(&path, ".part.note");
    let written = |path| {
        LocalTarget::create(path, &resuming, None).unwrap().1.unwrap().noted.map(|noted| noted.written)
    };
    assert_eq!(written(&path), Some(10));
    // The same note, after a restart of the system.
    let (target, _) = LocalTarget::create(&path, &resuming, None).unwrap();
    let noted = Noted { boot: "another".to_owned(), ..target.noted("source 1".to_owned(), 4).unwrap() };
    target.note.as_ref().unwrap().write(&noted).unwrap();
    drop(target);
    assert_eq!(written(&path), Some(4));
    // A note of another file, and no note.
    fs::remove_file(beside(&path, ".part")).unwrap();
    fs::write(beside(&path, ".part"), b"something else").unwrap();
    fs::write(&note, fs::read(&note).unwrap()).unwrap();
    let other = fs::metadata(beside(&path, ".part")).unwrap().ino();
    let (target, _) = LocalTarget::create(&path, &resuming, None).unwrap();
    let noted = Noted { target: format!("0 {other}"), ..target.noted("source 1".to_owned(), 4).unwrap() };
    target.note.as_ref().unwrap().write(&noted).unwrap();
    drop(target);
    assert_eq!(written(&path), None);
}

#[test]
fn a_name_appears_after_the_bytes_are_on_the_disk() {
    use crate::copy::publish::{PublishStep, faults};
    let directory = Directory::new("faults");
    let path = directory.0.join("file");
    let copy = |options: &CopyOptions| {
        let (mut target, _) = LocalTarget::create(&path, options, None)?;
        target.write(0, b"whole")?;
        target.finish(5, None)
    };
    for step in [PublishStep::SyncFile, PublishStep::Rename] {
        faults::fail_at(Some(step));
        assert!(copy(&options()).is_err());
        assert_eq!(directory.names(), [""; 0], "nothing has the name, and nothing is left: {step:?}");
    }
    fs::write(&path, b"before").unwrap();
    let forced = CopyOptions { force: true, ..options() };
    for step in [PublishStep::SyncFile, PublishStep::Rename] {
        faults::fail_at(Some(step));
        assert!(copy(&forced).is_err());
        assert_eq!((fs::read(&path).unwrap(), directory.names().len()), (b"before".to_vec(), 1), "{step:?}");
    }
    // The name may be lost, so the copy fails although the file is complete.
    faults::fail_at(Some(PublishStep::SyncDirectory));
    assert!(copy(&forced).is_err());
    assert_eq!((fs::read(&path).unwrap(), directory.names().len()), (b"whole".to_vec(), 1));
    faults::fail_at(None);
    copy(&forced).unwrap();
    assert_eq!(faults::reached(), [PublishStep::SyncFile, PublishStep::Rename, PublishStep::SyncDirectory]);
    faults::fail_at(None);
    copy(&CopyOptions { sync: false, ..forced.clone() }).unwrap();
    assert_eq!(faults::reached(), [PublishStep::Rename]);
    faults::fail_at(None);
    copy(&CopyOptions { in_place: true, ..forced }).unwrap();
    assert_eq!(faults::reached(), [PublishStep::SyncFile, PublishStep::SyncDirectory]);
}

#[test]
fn zeros_become_holes_and_holes_are_found() {
    let directory = Directory::new("holes");
    let path = directory.0.join("file");
    let mut data = vec![0; 10 * HOLE_BYTES + 5];
    data[3 * HOLE_BYTES + 1] = 1;
    data[7 * HOLE_BYTES] = 1;
    let (mut target, _) = LocalTarget::create(&path, &options(), None).unwrap();
    // Chunks that do not begin at multiples of the size of a hole.
    let chunk = 3 * HOLE_BYTES + 7;
    for (index, piece) in data.chunks(chunk).enumerate() {
        target.write((index * chunk) as u64, piece).unwrap();
    }
    target.finish(data.len() as u64, None).unwrap();
    assert!(fs::read(&path).unwrap() == data);
    assert!(fs::metadata(&path).unwrap().blocks() * 512 < 6 * HOLE_BYTES as u64);
    let extents = LocalSource::open(&path).unwrap().extents(0);
    assert!(extents.iter().all(|extent| extent.end - extent.start < 5 * HOLE_BYTES as u64), "{extents:?}");
}

#[test]
fn times_and_permission_bits_are_kept() {
    let directory = Directory::new("times");
    let path = directory.0.join("file");
    let kept = PreservedMetadata { modified: (1_700_000_000, 5), accessed: (-7, 0), mode: Some(0o4750) };
    let (target, _) = LocalTarget::create(&path, &options(), None).unwrap();
    target.finish(0, Some(kept)).unwrap();
    let again = LocalSource::open(&path).unwrap();
    assert_eq!((again.kept.modified, again.kept.mode), ((1_700_000_000, 5), Some(0o750)));
    assert_eq!(fs::metadata(&path).unwrap().atime(), -7);
}

#[test]
fn a_retry_takes_no_file_that_only_has_the_name_of_its_part() {
    let directory = Directory::new("retry");
    let (path, part) = (directory.0.join("file"), directory.0.join(".file.part"));
    let retry = CopyOptions { resume: true, recorded_only: true, ..options() };
    // Another copy has published it; its bytes are the first ones of the source.
    fs::write(&part, b"01234").unwrap();
    let (mut target, left) = LocalTarget::create(&path, &retry, None).unwrap();
    assert_eq!(left, None);
    target.write(0, b"0123456789").unwrap();
    target.finish(10, None).unwrap();
    assert_eq!((fs::read(&path).unwrap(), fs::read(&part).unwrap()), (b"0123456789".into(), b"01234".into()));
    assert_eq!(directory.names(), [".file.part", "file"]);
    // A failure leaves nothing that looks like a part.
    fs::remove_file(&path).unwrap();
    let (mut target, _) = LocalTarget::create(&path, &retry, None).unwrap();
    target.write(0, b"0123").unwrap();
    target.leave(4);
    assert_eq!(directory.names(), [".file.part"]);
    // A file that has appeared under the final name is not one of this copy.
    fs::write(&path, b"0").unwrap();
    assert!(matches!(LocalTarget::create(&path, &retry, None), Err(CopyError::Exists(_))));
    // The name of a part is possible for a target of a retry, which begins again.
    let (target, left) = LocalTarget::create(&directory.0.join(".other.part"), &retry, None).unwrap();
    target.finish(0, None).unwrap();
    assert_eq!(
        (left, directory.names()),
        (None, [".file.part", ".other.part", "file"].map(str::to_owned).into())
    );
}

#[test]
fn a_retry_takes_the_part_of_the_attempt_before() {
    let directory = Directory::new("retries");
    let path = directory.0.join("file");
    let retry = CopyOptions { resume: true, recorded_only: true, ..options() };
    for source in [Some("source 1"), None] {
        let (mut target, left) = LocalTarget::create(&path, &retry, None).unwrap();
        assert_eq!(left, None, "{source:?}");
        target.begin(source).unwrap();
        target.write(0, b"0123").unwrap();
        target.leave(4);
        let (target, left) = LocalTarget::create(&path, &retry, None).unwrap();
        assert_eq!(left.map(|left| left.bytes), Some(4), "{source:?}");
        target.finish(4, None).unwrap();
        assert_eq!(directory.names(), ["file"]);
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_file_that_has_replaced_the_part_is_not_published() {
    let directory = Directory::new("replaced");
    let (path, part) = (directory.0.join("file"), directory.0.join(".file.part"));
    let resuming = CopyOptions { resume: true, ..options() };
    let (mut target, _) = LocalTarget::create(&path, &resuming, None).unwrap();
    target.write(0, b"own").unwrap();
    fs::write(directory.0.join("other"), b"other").unwrap();
    fs::rename(directory.0.join("other"), &part).unwrap();
    let error = target.finish(3, None).unwrap_err().to_string();
    assert!(error.contains("another file"), "{error}");
    assert_eq!((fs::read(&part).unwrap(), path.exists()), (b"other".to_vec(), false));
}
