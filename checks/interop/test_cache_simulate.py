"""`scalla cache simulate`: hit rates for recorded requests."""

import json

from tools import scalla


def simulate(*arguments):
    return scalla("cache", "simulate", *arguments)


def test_hit_rates_of_a_trace(tmp_path):
    """Two files take turns in a cache that has room for one of them, and in one that has room for both."""
    trace = tmp_path / "trace"
    trace.write_text("# time file offset length\n" + "1 /a 0 4096\n2,/b,0,4096\n" * 10)
    ran = simulate(trace, "--unit", "4k", "--size", "4k,8k", "--json")
    report = json.loads(ran.ok().out)
    assert (report["requests"], report["bytes"], report["different_bytes"]) == (20, 20 * 4096, 8192)
    small, large = report["caches"]
    assert small["policies"]["LRU"]["hits"] == 0
    assert {policy["hits"] for policy in large["policies"].values()} == {18}
    assert {policy["stored_bytes"] for policy in large["policies"].values()} == {8192}
    table = simulate(trace, "--unit", "4k", "--size", "8k").ok().out.splitlines()
    assert table[-1].split() == ["8", "KiB"] + ["90.0", "%"] * 4 + ["8", "KiB"] * 2


def test_typical_work_needs_no_trace():
    ran = simulate("--sample", "analysis", "--requests", 20_000, "--json")
    caches = json.loads(ran.ok().out)["caches"]
    assert len(caches) == 5
    for cache in caches:
        assert cache["policies"]["S3-FIFO"]["hits"] >= cache["policies"]["LRU"]["hits"] * 0.9


def test_malformed_traces_are_errors(tmp_path):
    trace = tmp_path / "trace"
    trace.write_text("1 /a 0 10\n1 /a ten 10\n")
    simulate(trace).fails(1, f"{trace}: line 2: OFFSET and LENGTH must be numbers")
    trace.write_text("# nothing\n")
    simulate(trace).fails(1, "the trace has no requests")
    simulate(tmp_path / "missing").fails(1, "cannot open")
    simulate(trace, "--unit", "1").fails(2, "at least 512 bytes")
