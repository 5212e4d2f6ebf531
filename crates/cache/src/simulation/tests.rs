//! Tests of traces and of simulated caches.

#![allow(clippy::unwrap_used)]

use super::{
    SampleTrace, SampleTraceKind, SimulatedCache, SimulatedPolicy, TraceReader, TraceRequest, TraceSize,
};

fn request(file: u32, offset: u64, length: u64) -> TraceRequest {
    TraceRequest { file, offset, length }
}

fn read(text: &[u8]) -> Result<Vec<TraceRequest>, String> {
    TraceReader::new(text).map(|request| request.map_err(|error| error.to_string())).collect()
}

#[test]
fn lines_are_requests() {
    let text = b"# time file offset length\n\n1.5 /a 0 10\n2,/b,4096,7\r\n 3\t/a , 5 0\n4 /c 1 1";
    let expected = [request(0, 0, 10), request(1, 4096, 7), request(0, 5, 0), request(2, 1, 1)];
    assert_eq!(read(text).unwrap(), expected);
}

#[test]
fn a_malformed_line_is_named() {
    for (text, expected) in [
        (&b"1 /a 0 10\n1 /a 0"[..], "line 2: it has not the four fields"),
        (b"1 /a 0 10 7", "line 1: it has not the four fields"),
        (b"\n1 /a -1 10", "line 2: OFFSET and LENGTH must be numbers"),
        (b"1 /a 0 10x", "line 1: OFFSET and LENGTH must be numbers"),
        (b"1 /a 0 1099511627777", "line 1: OFFSET or LENGTH is too large"),
        (b"1 /a 9223372036854775808 1", "line 1: OFFSET or LENGTH is too large"),
        (&[b'x'; 70_000], "line 1: it is too long"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn a_request_is_divided_at_the_limits_of_units() {
    let units = |offset, length| request(0, offset, length).units(100).collect::<Vec<_>>();
    assert_eq!(units(0, 100), [(0, 100)]);
    assert_eq!(units(99, 102), [(0, 1), (1, 100), (2, 1)]);
    assert_eq!(units(250, 10), [(2, 10)]);
    assert_eq!(units(200, 0), []);
}

#[test]
fn hits_are_counted_by_requests_and_by_bytes() {
    // Two units of 100 bytes fit.
    let trace =
        [request(0, 0, 100), request(0, 50, 100), request(0, 0, 200), request(1, 0, 10), request(0, 0, 1)];
    let mut cache = SimulatedCache::new(SimulatedPolicy::Lru, 200, 100);
    trace.into_iter().for_each(|request| cache.serve(request));
    let counts = cache.counts();
    // The third request finds both units. The fourth one removes unit 0, which the last one requests.
    assert_eq!((counts.hits, counts.hit_bytes, counts.stored_bytes), (1, 50 + 200, 400));
    let size = TraceSize::measure(trace.into_iter().map(Ok::<_, ()>), 100).unwrap();
    assert_eq!(size, TraceSize { requests: 5, bytes: 411, footprint: 300 });
}

#[test]
fn a_cache_smaller_than_a_unit_stores_nothing() {
    for (_, policy) in SimulatedPolicy::ALL {
        let mut cache = SimulatedCache::new(policy, 99, 100);
        (0..3).for_each(|_| cache.serve(request(0, 0, 1)));
        assert_eq!(cache.counts(), super::SimulatedCounts::default());
    }
}

#[test]
fn the_policy_of_the_cache_has_more_hits_than_lru() {
    const UNIT: u64 = 128 * 1024;
    for (name, kind) in SampleTraceKind::ALL {
        let trace = || SampleTrace::new(kind, 1).take(200_000).map(|request| request.unwrap());
        assert!(trace().eq(trace()), "{name}: the same seed gives the same requests");
        let size = TraceSize::measure(trace().map(Ok::<_, ()>), UNIT).unwrap();
        let [lru, s3_fifo] = SimulatedPolicy::ALL.map(|(_, policy)| {
            let mut cache = SimulatedCache::new(policy, size.footprint / 20, UNIT);
            trace().for_each(|request| cache.serve(request));
            cache.counts().hits
        });
        assert!(s3_fifo > lru * 6 / 5, "{name}: {s3_fifo} and {lru}");
    }
}
