//! Tests of files that clients on this machine read directly.

use super::parts::{PART, allocated, fill, limited};
use super::world::{BLOCK, TestCache, TestReader, World, settings};
use crate::disk_cache::cached_file::{OpenFileParts, PartUse};
use crate::disk_cache::{DirectoryQuota, DiskCacheSettings, FileEviction};
use crate::store::memory_disk::DirectClient;
use crate::{CacheDisk, CacheKey, CacheTree, FileVerification};
use base::{LogicalPath, Owner};
use bytes::Bytes;
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;
use storage::SECOND_NAME_ATTRIBUTE;

const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(1);

fn direct(lease: Duration) -> DiskCacheSettings {
    DiskCacheSettings { direct: Some(lease), ..settings() }
}

/// A cache of this number of blocks that removes parts of files.
fn in_parts(blocks: u64, lease: Duration) -> DiskCacheSettings {
    DiskCacheSettings { direct: Some(lease), ..limited(blocks) }
}

fn path(text: &str) -> LogicalPath {
    LogicalPath::parse(text.as_bytes()).unwrap()
}

fn key(text: &str) -> CacheKey {
    CacheKey::new(&path(text)).unwrap()
}

/// Opens a file and reads all of it.
async fn read_all(world: &World, cache: &TestCache, name: &str) -> (Arc<TestReader>, Bytes) {
    let open = world.open(cache, name).await.unwrap();
    let size = open.1.len() as u64;
    world.check_read(&open, 0, size).await.unwrap();
    world.settle_stores(cache).await;
    (Arc::new(open.0), open.1)
}

/// A cache with direct reads that has stored all of `/f`, a file of 4 blocks, and a reader of it.
async fn whole_file(lease: Duration) -> (World, TestCache, Arc<TestReader>, Bytes) {
    let world = World::new();
    world.put("/f", 4 * BLOCK);
    let cache = world.start(direct(lease));
    let (reader, content) = read_all(&world, &cache, "/f").await;
    (world, cache, reader, content)
}

/// The names in the directory of direct reads.
fn names(world: &World) -> Vec<LogicalPath> {
    let directory = path("/.scalla-cache/direct");
    world.disk.names().into_iter().filter(|name| name.is_within(&directory)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_complete_file_is_named_once_for_all_readers() {
    let world = World::new();
    world.put("/d/f", 3 * BLOCK + 1);
    let cache = world.start(direct(LONG));
    let (first, content) = read_all(&world, &cache, "/d/f").await;
    let name = first.direct_name().await.unwrap();
    assert_eq!(world.disk.get(&name), Some(content.to_vec()));
    let fetched = world.fetched();
    let (second, _) = world.open(&cache, "/d/f").await.unwrap();
    assert_eq!(Arc::new(second).direct_name().await, Some(name.clone()));
    assert_eq!((names(&world), world.fetched()), (vec![name], fetched));
    // Each client counts as one that has read all of it, and the comparison does not.
    let status = cache.status();
    assert_eq!((status.direct_opens, status.bytes_hit), (2, 2 * content.len() as u64));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_name_is_given_unless_clients_may_read_directly_and_all_is_stored() {
    let world = World::new();
    world.put("/f", 3 * BLOCK);
    let cache = world.start(settings());
    let (reader, _) = read_all(&world, &cache, "/f").await;
    assert_eq!(reader.direct_name().await, None);
    drop((reader, cache));
    let cache = world.restarted(None).start(direct(LONG));
    world.put("/part", 3 * BLOCK);
    world.pass_time();
    let open = world.open(&cache, "/part").await.unwrap();
    world.check_read(&open, 0, BLOCK).await.unwrap();
    world.settle_stores(&cache).await;
    assert_eq!(Arc::new(open.0).direct_name().await, None);
    assert_eq!(names(&world), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_is_healed_before_it_has_a_name() {
    let (world, cache, reader, content) = whole_file(LONG).await;
    world.disk.flip(&path("/f"), 2500);
    assert_eq!(reader.direct_name().await, None);
    assert_eq!((names(&world), cache.status().damaged_blocks), (vec![], 1));
    // The server serves the client, which heals the file.
    world.check_usage(&cache);
    let (reader, _) = read_all(&world, &cache, "/f").await;
    let name = reader.direct_name().await.unwrap();
    assert_eq!(world.disk.get(&name), Some(content.to_vec()));
    assert_eq!(cache.status().damaged_blocks, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_on_a_disk_that_hangs_has_no_name_though_the_origin_has_its_bytes() {
    let world = World::new();
    world.put("/f", 4 * BLOCK);
    let cache = world.start(DiskCacheSettings { patience: SHORT, ..direct(LONG) });
    let (reader, content) = read_all(&world, &cache, "/f").await;
    world.disk.flip(&path("/f"), 2500);
    world.disk.set_hanging(true);
    let mut into = vec![0; content.len()];
    assert_eq!(reader.read(0, &mut into).await, Ok(content.len()));
    assert_eq!((reader.direct_name().await, names(&world)), (None, vec![]));
    world.disk.set_hanging(false);
    world.until(|| !reader.file.direct.is_used()).await;
    assert_eq!(names(&world), []);
    let (reader, _) = read_all(&world, &cache, "/f").await;
    let name = reader.direct_name().await.unwrap();
    assert_eq!(world.disk.get(&name), Some(content.to_vec()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_changed_keeps_its_old_content_at_its_name_only() {
    let (world, cache, reader, old) = whole_file(LONG).await;
    let name = reader.direct_name().await.unwrap();
    let mut change = cache.change_content(&path("/f"));
    world.put("/f", 5 * BLOCK);
    change.made().await;
    drop(change);
    assert_eq!(reader.direct_name().await, None, "it reads the version that was changed");
    world.pass_time();
    let open = world.open(&cache, "/f").await.unwrap();
    world.check_read(&open, 0, BLOCK).await.unwrap();
    world.settle_stores(&cache).await;
    let partial = Arc::new(open.0);
    assert_eq!(partial.direct_name().await, None);
    assert_eq!(world.disk.get(&name), Some(old.to_vec()));
    let (complete, new) = read_all(&world, &cache, "/f").await;
    let other = complete.direct_name().await.unwrap();
    assert_ne!(other, name);
    assert_eq!(world.disk.get(&other), Some(new.to_vec()));
    assert_eq!(world.disk.get(&name), Some(old.to_vec()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_not_removed_during_its_lease() {
    let world = World::new();
    ["/d/f", "/d/g"].into_iter().for_each(|name| world.put(name, 4 * BLOCK));
    let quotas = vec![DirectoryQuota { directory: path("/d"), bytes: 0 }];
    let cache = world.start(DiskCacheSettings { quotas, ..direct(LONG) });
    let (reader, content) = read_all(&world, &cache, "/d/f").await;
    let name = reader.direct_name().await.unwrap();
    drop((reader, read_all(&world, &cache, "/d/g").await));
    world.settle_to(&cache, 1).await;
    cache.make_room().await;
    assert_eq!(world.disk.get(&path("/d/g")), None, "it has no lease");
    let (evicted, removed) =
        (cache.evict_file(&key("/d/f"), false, Owner(7)).await, cache.evict(&path("/d/f"), || true).await);
    assert_eq!((evicted, removed.in_use), (FileEviction::InUse, 1));
    assert_eq!(world.disk.get(&path("/d/f")), Some(content.to_vec()));
    // A removal that takes no account of readers leaves them their content.
    assert_eq!(cache.evict_file(&key("/d/f"), true, Owner(7)).await, FileEviction::Removed);
    assert_eq!((world.disk.get(&path("/d/f")), world.disk.get(&name)), (None, Some(content.to_vec())));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_lease_removes_the_name_and_closes_the_file() {
    let (world, cache, reader, content) = whole_file(SHORT).await;
    let first = reader.direct_name().await.unwrap();
    world.until(|| names(&world).is_empty()).await;
    world.until(|| world.disk.get(&first).is_none()).await;
    world.until(|| !reader.file.direct.is_used()).await;
    let second = reader.direct_name().await.unwrap();
    assert_ne!(second, first, "no name is used twice");
    drop(reader);
    world.settle(&cache).await;
    assert_eq!((names(&world), world.disk.get(&path("/f"))), (vec![], Some(content.to_vec())));
    cache.evict(&path("/f"), || true).await;
    world.settle(&cache).await;
    assert_eq!((world.disk.open_files(), cache.bytes()), (1, 0), "only the lock is open");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_read_for_long_is_compared_again_and_keeps_its_name() {
    let (world, cache, reader, content) = whole_file(LONG).await;
    let _client = DirectClient::open(&world.disk, &path("/f"));
    let name = reader.direct_name().await.unwrap();
    let reads = || world.disk.count("read");
    let first = reads();
    reader.file.direct.age();
    assert_eq!((reader.direct_name().await, reads() > first), (Some(name.clone()), true));
    let second = reads();
    assert_eq!((reader.direct_name().await, reads()), (Some(name.clone()), second));
    // The clients that have it open cannot be corrected, and no other one is sent there.
    world.disk.flip(&path("/f"), 1500);
    reader.file.direct.age();
    assert_eq!((reader.direct_name().await, reader.direct_name().await), (None, None));
    drop(read_all(&world, &cache, "/f").await);
    assert_eq!(reader.direct_name().await, Some(name.clone()));
    assert_eq!(world.disk.get(&name), Some(content.to_vec()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_whose_reader_leaves_during_the_comparison_is_closed() {
    let (world, cache, reader, _) = whole_file(SHORT).await;
    world.disk.set_hanging(true);
    assert_eq!(reader.direct_name().await, None);
    drop(reader);
    world.disk.flip(&path("/f"), 1500);
    world.disk.set_hanging(false);
    world.settle(&cache).await;
    assert_eq!((names(&world), cache.status().damaged_blocks), (vec![], 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_a_client_has_open_keeps_its_name() {
    let (world, cache, reader, content) = whole_file(SHORT).await;
    let client = DirectClient::open(&world.disk, &path("/f"));
    let name = reader.direct_name().await.unwrap();
    for _ in 0..20 {
        tokio::time::sleep(SHORT).await;
        assert_eq!(world.disk.get(&name), Some(content.to_vec()));
        assert_eq!(cache.evict_file(&key("/f"), false, Owner(7)).await, FileEviction::InUse);
    }
    drop(client);
    world.until(|| !reader.file.direct.is_used()).await;
    assert_eq!(names(&world), []);
    assert_eq!(world.disk.get(&path("/f")), Some(content.to_vec()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_server_removes_the_names_and_ends_the_use_of_the_files() {
    let world = World::new();
    ["/f", "/g"].into_iter().for_each(|name| world.put(name, 4 * BLOCK));
    let cache = world.start(direct(LONG));
    let (reader, content) = read_all(&world, &cache, "/f").await;
    reader.direct_name().await.unwrap();
    // A client still has it open.
    let _client = DirectClient::open(&world.disk, &path("/f"));
    let (other, _) = read_all(&world, &cache, "/g").await;
    drop(reader);
    assert!(!cache.closed(SHORT).await, "a client of the server has a file open");
    assert_eq!(other.direct_name().await, None, "no name is given at the end");
    drop(other);
    assert!(cache.closed(LONG).await);
    assert_eq!((names(&world), cache.status().open_files), (vec![], 0));
    assert_eq!(world.disk.get(&path("/f")), Some(content.to_vec()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_cannot_be_removed_does_not_hold_the_end() {
    let (world, cache, reader, _) = whole_file(LONG).await;
    reader.direct_name().await.unwrap();
    drop(reader);
    world.disk.fail("remove", Errno::IO);
    assert!(cache.closed(LONG).await);
    assert_eq!(names(&world).len(), 1);
    world.disk.clear_faults();
    drop(cache);
    let later = world.restarted(None);
    later.start(settings());
    assert_eq!(names(&later), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_an_earlier_process_are_removed_at_the_start() {
    let (world, cache, reader, content) = whole_file(LONG).await;
    let name = reader.direct_name().await.unwrap();
    cache.flush().await;
    // Tools beside the server accept the second name, and no other one.
    let tree = CacheTree::new(Arc::new(world.disk.clone()));
    assert!(matches!(tree.verify(&key("/f"), |_| {}), Ok(FileVerification::Verified(_))));
    let data = world.disk.open(&name).unwrap();
    data.remove_attribute(SECOND_NAME_ATTRIBUTE).unwrap();
    assert!(!matches!(tree.verify(&key("/f"), |_| {}), Ok(FileVerification::Verified(_))));
    data.set_attribute(SECOND_NAME_ATTRIBUTE, b"").unwrap();
    drop(data);
    for power_cut in [None, Some(1), Some(2)] {
        let later = world.restarted(power_cut);
        let cache = later.start(settings());
        assert_eq!(names(&later), []);
        let open = later.open(&cache, "/f").await.unwrap();
        later.check_read(&open, 0, content.len() as u64).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_cannot_give_names_is_read_as_without_them() {
    for call in ["add_name", "lease", "status"] {
        let world = World::new();
        world.put("/f", 4 * BLOCK);
        let cache = world.start(direct(LONG));
        let (reader, content) = read_all(&world, &cache, "/f").await;
        world.disk.fail(call, Errno::PERM);
        assert_eq!(reader.direct_name().await, None, "{call}");
        assert!(world.disk.clear_faults(), "{call}");
        let mut into = vec![0; content.len()];
        assert_eq!((reader.read(0, &mut into).await.unwrap(), &into[..]), (content.len(), &content[..]));
        // It is not read and compared again.
        let reads = world.disk.count("read");
        assert_eq!((reader.direct_name().await, world.disk.count("read")), (None, reads), "{call}");
        assert_eq!(names(&world), [], "{call}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_names_is_limited() {
    let world = World::new();
    let cache = world.start(direct(LONG));
    let mut named = 0;
    for number in 0..513 {
        let name = format!("/{number}");
        world.put(&name, 1);
        let (reader, _) = read_all(&world, &cache, &name).await;
        named += usize::from(reader.direct_name().await.is_some());
    }
    assert_eq!((named, names(&world).len()), (512, 512));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_part_of_a_file_goes_while_clients_read_it_directly() {
    let world = World::new();
    let cache = world.start(in_parts(8 * PART, LONG));
    let (reader, content) = fill(&world, &cache, "/f", 4).await;
    let name = reader.direct_name().await.unwrap();
    let file = reader.file.clone();
    drop(reader);
    let other = fill(&world, &cache, "/g", 12).await;
    cache.make_room().await;
    assert_eq!(world.disk.get(&name), Some(content.to_vec()));
    assert_eq!((allocated(&world, "/f"), cache.status().evicted_files), (content.len() as u64, 0));
    let status = cache.status();
    assert!(status.evicted_parts > 0 && cache.bytes() <= 8 * PART * BLOCK, "others make room: {status:?}");
    assert!((0..4).all(|part| OpenFileParts(&file).part_use(part) == PartUse::InUse));
    // By the end of the name it is a file like others.
    cache.direct.as_ref().unwrap().end();
    world.until(|| !file.direct.is_used()).await;
    assert!((0..4).any(|part| OpenFileParts(&file).part_use(part) != PartUse::InUse));
    drop((file, other));
    world.settle(&cache).await;
    world.check_usage(&cache);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_has_lost_a_part_has_no_name_until_all_is_stored_again() {
    let world = World::new();
    let cache = world.start(in_parts(8 * PART, LONG));
    let (reader, content) = fill(&world, &cache, "/f", 4).await;
    drop(reader);
    world.settle(&cache).await;
    drop(fill(&world, &cache, "/g", 5).await);
    world.settle(&cache).await;
    cache.make_room().await;
    let (reader, _) = world.open(&cache, "/f").await.unwrap();
    assert!(allocated(&world, "/f") < content.len() as u64, "it has lost a part");
    assert_eq!((reader.direct_name().await, names(&world)), (None, vec![]));
    assert_eq!(cache.status().damaged_blocks, 0, "what is not there is not damaged");
    drop(reader);
    assert_eq!(cache.evict(&path("/g"), || true).await.removed, 1);
    let mut reader = read_all(&world, &cache, "/f").await.0;
    // Nothing is stored while room is made.
    while !reader.is_whole() {
        cache.make_room().await;
        reader = read_all(&world, &cache, "/f").await.0;
    }
    let name = reader.direct_name().await.unwrap();
    assert_eq!(world.disk.get(&name), Some(content.to_vec()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_stay_while_a_client_of_an_earlier_process_has_the_file_open() {
    for (is_open, keeps_name) in [(false, false), (true, false), (false, true), (true, true)] {
        let world = World::new();
        let cache = world.start(in_parts(100, LONG));
        let (reader, content) = fill(&world, &cache, "/f", 4).await;
        let name = reader.direct_name().await.unwrap();
        cache.flush().await;
        let client = DirectClient::open(&world.disk, &name).unwrap();
        drop((reader, cache));
        let world = world.restarted(None);
        let client = (!keeps_name).then(|| client.survive(&world.disk));
        if keeps_name {
            // A client can still come.
            world.disk.fail_at("remove", "direct", Errno::IO);
        }
        let cache = world.start(limited(2 * PART));
        world.until(|| cache.status().is_known).await;
        assert_eq!(names(&world).len(), usize::from(keeps_name));
        let open = if is_open { world.open(&cache, "/f").await } else { None };
        world.pass(60);
        assert!(cache.shared.may_log());
        world.pass(60);
        cache.make_room().await;
        assert!(!cache.shared.may_log(), "the reason is in the log");
        cache.flush().await;
        assert_eq!(world.disk.get(&path("/f")), Some(content.to_vec()), "{is_open} {keeps_name}");
        assert!(client.as_ref().is_none_or(|client| client.content() == content));
        // Its claims stay too.
        assert_eq!((cache.bytes(), world.bytes_on_disk()), (content.len() as u64, content.len() as u64));
        world.disk.clear_faults();
        names(&world).iter().for_each(|name| world.disk.remove(name).unwrap());
        drop(client);
        // After the pause for files of which parts could not be removed.
        world.pass(60);
        cache.make_room().await;
        world.until(|| cache.bytes() <= 2 * PART * BLOCK).await;
        assert!(allocated(&world, "/f") <= 2 * PART * BLOCK, "{is_open} {keeps_name}");
        drop(open);
        world.settle(&cache).await;
        world.check_usage(&cache);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_go_whole_on_a_disk_that_no_longer_tells_whether_they_are_open() {
    let world = World::new();
    let cache = world.start(in_parts(100, LONG));
    let (reader, content) = fill(&world, &cache, "/f", 4).await;
    let name = reader.direct_name().await.unwrap();
    cache.flush().await;
    let client = DirectClient::open(&world.disk, &name).unwrap();
    drop((reader, cache));
    let world = world.restarted(None);
    let client = client.survive(&world.disk);
    world.disk.fail_always("lease", Errno::INVAL);
    let cache = world.start(limited(2 * PART));
    world.until(|| cache.status().is_known).await;
    cache.make_room().await;
    assert_eq!((cache.bytes(), cache.status().evicted_files), (0, 1));
    assert_eq!(world.disk.get(&path("/f")), None);
    assert_eq!(client.content(), content);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_mark_of_a_name_goes_when_nobody_has_the_file_open() {
    let world = World::new();
    world.put("/f", 4 * BLOCK);
    let cache = world.start(direct(SHORT));
    let is_marked =
        |world: &World| world.disk.open(&path("/f")).unwrap().has_attribute(SECOND_NAME_ATTRIBUTE).unwrap();
    let (reader, _) = read_all(&world, &cache, "/f").await;
    let client = DirectClient::open(&world.disk, &path("/f"));
    reader.direct_name().await.unwrap();
    assert!(is_marked(&world));
    drop(client);
    world.until(|| !reader.file.direct.is_used()).await;
    assert!(!is_marked(&world));
    drop((reader, cache));
    // The same at a start, after a process that has not ended its names.
    for has_client in [true, false] {
        let world = world.restarted(None);
        let cache = world.start(direct(LONG));
        let (reader, _) = read_all(&world, &cache, "/f").await;
        let client = DirectClient::open(&world.disk, &reader.direct_name().await.unwrap()).unwrap();
        let later = world.restarted(None);
        let _client = has_client.then(|| client.survive(&later.disk));
        later.start(settings());
        assert_eq!((names(&later), is_marked(&later)), (vec![], has_client));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_clients_read_directly_have_at_most_half_of_the_cache_with_pinned_ones() {
    let world = World::new();
    let cache = world.start(in_parts(12 * PART, LONG));
    let mut readers = Vec::new();
    for (file, is_named) in [("/a", true), ("/b", false), ("/c", true)] {
        let parts = if file == "/c" { 2 } else { 4 };
        let (reader, _) = fill(&world, &cache, file, parts).await;
        assert_eq!(reader.direct_name().await.is_some(), is_named, "{file}");
        readers.push(reader);
    }
    assert_eq!(names(&world).len(), 2);
    // Pinned files take of their room.
    cache.flush().await;
    drop((readers, cache));
    let world = world.restarted(None);
    let cache = world.start(in_parts(12 * PART, LONG));
    world.until(|| cache.status().is_known).await;
    cache.pin(&path("/a"), i64::MAX).await.unwrap();
    for (file, is_named) in [("/b", false), ("/c", true)] {
        let reader = world.open(&cache, file).await.unwrap().0;
        assert!(reader.is_whole(), "{file}");
        assert_eq!(reader.direct_name().await.is_some(), is_named, "{file}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_file_has_a_name_on_a_disk_that_does_not_see_open_files() {
    let world = World::new();
    world.disk.set_blind();
    world.put("/f", 4 * BLOCK);
    let cache = world.start(direct(LONG));
    let (reader, _) = read_all(&world, &cache, "/f").await;
    assert_eq!((reader.direct_name().await, names(&world)), (None, vec![]));
}
