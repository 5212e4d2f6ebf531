//! Random histories of readers, changes, failures, removals and restarts. Each byte is compared.

use super::path;
use super::world::{BLOCK, TestCache, TestReader, World, settings};
use crate::DiskCacheSettings;
use crate::store::memory_disk::DirectClient;
use base::SplitMix64;
use bytes::Bytes;
use rustix::io::Errno;
use std::time::Duration;

const FILES: u64 = 4;
const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(1);

/// The programs that read files of the cache directly, with the content of the version that each has opened.
type DirectReaders = Vec<(DirectClient, Bytes)>;

/// Sends a reader to the file itself, if it has a name.
async fn read_directly(
    world: &World,
    cache: &TestCache,
    (reader, content): &(TestReader, Bytes),
) -> DirectReaders {
    let Some(name) = reader.direct_name().await else { return Vec::new() };
    let client = DirectClient::open(&world.disk, &name);
    assert!(
        client.is_some() || cache.direct.as_ref().is_none_or(|direct| direct.lease() != LONG),
        "a name stays for the time of its lease"
    );
    client.into_iter().map(|client| (client, content.clone())).collect()
}

fn check_direct(readers: &DirectReaders, seed: u64) {
    assert!(readers.iter().all(|(client, content)| client.content() == *content), "seed {seed}");
}

/// One client: opens, reads, and changes files. The disk fails only with `has_faults`. Returns its direct reads.
async fn client(world: World, cache: TestCache, (seed, has_faults): (u64, bool)) -> DirectReaders {
    let mut rng = SplitMix64::new(seed);
    let mut open: Vec<(TestReader, Bytes)> = Vec::new();
    let mut direct = DirectReaders::new();
    for _ in 0..60 {
        let name = format!("/d/{}", rng.draw() % FILES);
        match rng.draw() % 20 {
            0..=3 => open.extend(world.open(&cache, &name).await),
            4 => world.pass_time(),
            5 if rng.draw().is_multiple_of(4) => world.put(&name, rng.draw() % (20 * BLOCK)),
            6 if rng.draw().is_multiple_of(4) => {
                let mut change = cache.change_content(&path(&name));
                world.put(&name, 1 + rng.draw() % (20 * BLOCK));
                if rng.draw().is_multiple_of(2) {
                    change.made().await;
                }
            }
            7 if rng.draw().is_multiple_of(4) => {
                let change = cache.change_content(&path(&name));
                tokio::task::yield_now().await;
                change.refused();
            }
            7 if rng.draw().is_multiple_of(4) => cache.change_name(&path(&name)).made().await,
            8 if has_faults => {
                let call =
                    ["write", "sync", "create", "rename", "read", "open", "remove", "discard", "lease"];
                let call = call[(rng.draw() % call.len() as u64) as usize];
                world.disk.fail(call, if rng.draw().is_multiple_of(2) { Errno::NOSPC } else { Errno::IO });
            }
            // Damage of a file that has a name is not noticed.
            9 if has_faults && cache.direct.is_none() && rng.draw().is_multiple_of(3) => {
                world.disk.flip_some(&path(&name), rng.draw());
            }
            9 if rng.draw().is_multiple_of(2) => cache.make_room().await,
            10 if !open.is_empty() => {
                let at = rng.draw() as usize % open.len();
                drop(open.swap_remove(at));
            }
            11 if !open.is_empty() && cache.direct.is_some() => {
                let reader = &open[rng.draw() as usize % open.len()];
                // Most files are complete only by this.
                world.check_read(reader, 0, 21 * BLOCK).await.ok();
                direct.extend(read_directly(&world, &cache, reader).await);
            }
            12 if !direct.is_empty() => {
                let at = rng.draw() as usize % direct.len();
                check_direct(&vec![direct.swap_remove(at)], seed);
            }
            _ if !open.is_empty() => {
                let reader = &open[rng.draw() as usize % open.len()];
                let (offset, length) = (rng.draw() % (21 * BLOCK), rng.draw() % (5 * BLOCK));
                world.check_read_now(reader, offset, length);
                // It fails if the origin fails or changes.
                world.check_read(reader, offset, length).await.ok();
            }
            _ => {}
        }
    }
    check_direct(&direct, seed);
    direct
}

/// Returns a cache with some of its features.
fn draw_settings(rng: &mut SplitMix64) -> DiskCacheSettings {
    let mut settings = DiskCacheSettings { prefetch_bytes: rng.draw() % 3 * 4 * BLOCK, ..settings() };
    if rng.draw().is_multiple_of(2) {
        settings.memory_bytes = 8 * BLOCK;
    }
    if rng.draw().is_multiple_of(2) {
        // Blocks of whole pages.
        settings.block_bytes = 4096 << (rng.draw() % 2);
    }
    if rng.draw().is_multiple_of(2) {
        settings.limits.files = Some(25 * BLOCK);
    }
    if rng.draw().is_multiple_of(2) {
        settings.part_bytes = Some((1 + rng.draw() % 6) * settings.block_bytes);
    }
    settings
}

/// Returns the number of direct reads.
async fn history(seed: u64) -> u64 {
    let mut rng = SplitMix64::new(seed);
    let mut world = World::new();
    world.disk.set_index_quiet(false);
    (0..FILES).for_each(|number| world.put(&format!("/d/{number}"), 1 + rng.draw() % (20 * BLOCK)));
    let mut settings = draw_settings(&mut rng);
    let has_faults = !rng.draw().is_multiple_of(4);
    settings.direct =
        [None, None, Some(SHORT), Some(if has_faults { LONG } else { SHORT })][(rng.draw() % 4) as usize];
    let (mut direct, mut direct_opens) = (DirectReaders::new(), 0);
    world.disk.set_cold(rng.draw() % 4);
    world.fail_one_of(if rng.draw().is_multiple_of(2) { 20 } else { 0 });
    for round in 0..3 {
        let cache = world.start(settings.clone());
        world.until(|| cache.status().is_known).await;
        world.check_usage(&cache);
        let clients: Vec<_> = (0..4)
            .map(|number| {
                let seed = seed * 100 + round * 10 + number;
                tokio::spawn(client(world.clone(), cache.clone(), (seed, has_faults)))
            })
            .collect();
        for client in clients {
            direct.extend(client.await.unwrap());
        }
        direct_opens += cache.status().direct_opens;
        check_direct(&direct, seed);
        if rng.draw().is_multiple_of(3) {
            // As after ten seconds, also while files are open.
            let recording = cache.clone();
            cache.shared.on_disk(move || recording.recorder.record(&recording)).await.unwrap().ok();
        }
        if settings.direct != Some(LONG) && (rng.draw().is_multiple_of(2) || !has_faults) {
            // A file is open while clients read it directly.
            direct.clear();
            world.settle(&cache).await;
            world.disk.clear_faults();
            assert_eq!(cache.memory(), 0, "seed {seed}");
            world.pass_time();
            if has_faults {
                // Space that could not be freed counts until it is, at the next open.
                world.check_space(&cache, |known, claimed, space| claimed <= known && known <= space);
            } else {
                world.check_space(&cache, |known, claimed, space| claimed == known && known == space);
            }
            assert!(world.has_no_space_of_empty_parts(&cache).await, "seed {seed}");
            world.check_usage(&cache);
        }
        // The process ends while files may be open and written.
        let cut = (has_faults && rng.draw().is_multiple_of(2)).then(|| rng.draw());
        check_direct(&direct, seed);
        world = world.restarted(cut);
        direct = match cut {
            // Its clients go on.
            None => {
                direct.into_iter().map(|(client, content)| (client.survive(&world.disk), content)).collect()
            }
            Some(_) => DirectReaders::new(),
        };
    }
    direct_opens
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_reader_gets_a_byte_of_another_version() {
    // `CACHE_HISTORIES=10000` runs more of them.
    let number = std::env::var("CACHE_HISTORIES").map_or(150, |number| number.parse().unwrap());
    let mut direct_opens = 0;
    for seed in 0..number {
        direct_opens += history(seed).await;
    }
    assert!(2 * direct_opens > number, "{direct_opens} direct reads");
}
