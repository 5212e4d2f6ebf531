"""A server to which the kernel refuses what its data path would like to use says so, once for each, however much it does.
That it does the same all the same is shown by the modules in `conftest.DATA_MODULES`."""

import time

import peers
from tools import data, xrdcp

REFUSED = ("openat2", "preadv2 with RWF_NOWAIT", "cachestat", "io_uring")


def told(server):
    return [line for line in server.output().splitlines() if " is refused (" in line]


def test_refusals_are_told_once(refused, area_on, tmp_path):
    content = data(3_000_000)
    area = area_on(refused)
    for name in ("a", "b"):
        area.put(name, content)
        for pages in "01":
            back = tmp_path / f"{name}{pages}"
            xrdcp(area.url(name), back, XRD_CPUSEPGWRTRD=pages).ok()
            assert back.read_bytes() == content
    until = time.monotonic() + peers.START_SECONDS
    while len(told(refused)) < len(REFUSED) and time.monotonic() < until:
        time.sleep(0.02)
    lines = told(refused)
    assert all(sum(f": {what}" in line for line in lines) == 1 for what in REFUSED), lines
    assert len(lines) == len(REFUSED), lines
