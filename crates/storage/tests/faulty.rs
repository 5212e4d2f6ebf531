//! Tests of the fault-injecting backend.

#![allow(clippy::unwrap_used)]

mod common;

use base::CopyRange;
use common::{Scratch, create, errno, path};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use storage::faulty::{FaultRule, FaultyCall, Gate, InjectedFault};
use storage::{Backend, ExistingName, Faulty, Now, OpenMode, Pool, StoredFile};

fn faulty(scratch: &Scratch) -> (Faulty, Arc<dyn StoredFile>) {
    let storage = Faulty::new(Arc::new(scratch.posix()));
    let file = storage.open(&path("/d/f"), &with_parents()).unwrap();
    file.write(0, b"0123456789").unwrap();
    (storage, file)
}

fn with_parents() -> OpenMode {
    let mut how = create(0o644);
    how.create.as_mut().unwrap().parents = Some(common::PARENTS);
    how
}

#[test]
fn rules_apply_by_path_and_count() {
    let scratch = Scratch::new();
    let (storage, file) = faulty(&scratch);
    let other = storage.open(&path("/e"), &create(0o644)).unwrap();
    let rule = FaultRule::new(&[FaultyCall::Read, FaultyCall::Sync], InjectedFault::Error(libc::EIO));
    let id = storage.rules().add(rule.below(&path("/d")).after(1).times(2));
    let mut buffer = [0; 4];
    assert_eq!(file.read(0, &mut buffer).unwrap(), 4);
    assert_eq!(other.read(0, &mut buffer).unwrap(), 0);
    assert!(file.descriptor().is_none() && other.descriptor().is_some());
    assert_eq!(errno(file.read(0, &mut buffer)), libc::EIO);
    let Now::Done(done) = file.read_now(0, &mut buffer) else { panic!("a failing call must not block") };
    assert_eq!(errno(done), libc::EIO);
    assert_eq!(file.read(0, &mut buffer).unwrap(), 4);
    storage.rules().remove(id);
    assert!(file.descriptor().is_some());
    storage
        .rules()
        .add(FaultRule::new(&[FaultyCall::Open, FaultyCall::Rename], InjectedFault::Error(libc::EACCES)));
    assert_eq!(errno(storage.open(&path("/d/f"), &OpenMode::default())), libc::EACCES);
    assert_eq!(errno(storage.rename(&path("/d/f"), &path("/g"), ExistingName::Replace, None)), libc::EACCES);
    storage.rules().clear();
    assert!(storage.open(&path("/d/f"), &OpenMode::default()).is_ok());
}

#[test]
fn reads_with_a_rate_limit_would_block() {
    let scratch = Scratch::new();
    let (storage, file) = faulty(&scratch);
    storage.rules().set_rate(Some(1_000_000_000));
    let mut buffer = [0; 10];
    assert!(matches!(file.read_now(0, &mut buffer), Now::WouldBlock));
    assert!(file.descriptor().is_none() && !file.is_resident(0, 10));
    assert_eq!((file.read(0, &mut buffer).unwrap(), &buffer), (10, b"0123456789"));
    assert!(matches!(file.write_now(0, b"x"), Now::Done(Ok(()))));
    storage.rules().clear();
    assert!(matches!(file.read_now(0, &mut buffer), Now::Done(Ok(10))));
    assert!(file.descriptor().is_some());
}

#[test]
fn hanging_calls_block_until_released() {
    let scratch = Scratch::new();
    let (storage, file) = faulty(&scratch);
    let gate = Gate::new();
    storage.rules().add(FaultRule::new(
        &[FaultyCall::Read, FaultyCall::Stat, FaultyCall::Open, FaultyCall::Write],
        InjectedFault::Hang(gate.clone()),
    ));
    assert!(matches!(file.read_now(0, &mut [0; 4]), Now::WouldBlock));
    assert!(matches!(file.write_now(0, &[0; 4]), Now::WouldBlock));
    assert!(matches!(storage.stat_now(&path("/d/f")), Now::WouldBlock));
    assert!(matches!(storage.open_now(&path("/d/f"), &OpenMode::default()), Now::WouldBlock));
    std::thread::scope(|threads| {
        let reader = threads.spawn(|| file.read(0, &mut [0; 4]).unwrap());
        let asker = threads.spawn(|| storage.stat(&path("/d/f")).unwrap());
        gate.wait_for(2);
        assert!(!reader.is_finished() && !asker.is_finished());
        gate.open();
        assert_eq!((reader.join().unwrap(), asker.join().unwrap().size), (4, 10));
    });
    assert_eq!(gate.hanging(), 0);
}

#[test]
fn a_full_disk_accepts_the_bytes_that_fit() {
    let scratch = Scratch::new();
    let (storage, file) = faulty(&scratch);
    storage.rules().set_room(Some(15));
    assert_eq!(storage.usage(&path("/"), None).unwrap().free, 15);
    file.write(10, &[b'x'; 10]).unwrap();
    assert_eq!(errno(file.write(20, &[b'y'; 10])), libc::ENOSPC);
    assert_eq!(file.stat().unwrap().size, 25);
    let Now::Done(done) = file.write_now(25, b"z") else { panic!("now") };
    assert_eq!(errno(done), libc::ENOSPC);
    assert_eq!(errno(file.clone_range(&*file, CopyRange { from: 0, to: 30, length: 5 })), libc::ENOSPC);
    storage.rules().set_room(None);
    file.clone_range(&*file, CopyRange { from: 0, to: 30, length: 5 }).unwrap();
    assert_eq!(file.stat().unwrap().size, 35);
}

#[test]
fn short_reads_panics_and_pools() {
    let scratch = Scratch::new();
    let (storage, file) = faulty(&scratch);
    let short = storage.rules().add(FaultRule::new(&[FaultyCall::Read], InjectedFault::Short(3)));
    assert_eq!(file.read(0, &mut [0; 8]).unwrap(), 3);
    assert!(matches!(file.read_now(0, &mut [0; 8]), Now::Done(Ok(3))));
    storage.rules().remove(short);
    storage.rules().add(FaultRule::new(&[FaultyCall::Read], InjectedFault::WouldBlock));
    storage.rules().add(FaultRule::new(&[FaultyCall::Read], InjectedFault::Panic).times(1));
    assert!(matches!(file.read_now(0, &mut [0; 8]), Now::WouldBlock));
    assert!(catch_unwind(AssertUnwindSafe(|| file.read(0, &mut [0; 8]))).is_err());
    assert_eq!(file.read(0, &mut [0; 8]).unwrap(), 8);

    let slow = Pool::new("slow", 1);
    let storage = Faulty::new(Arc::new(scratch.posix())).with_pool(&path("/d"), slow.clone());
    let file = storage.open(&path("/d/f"), &OpenMode::default()).unwrap();
    assert!(Arc::ptr_eq(file.pool(), &slow) && Arc::ptr_eq(storage.pool(&path("/d/x")), &slow));
    assert!(!Arc::ptr_eq(storage.pool(&path("/dd")), &slow));
}
