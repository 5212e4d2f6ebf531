"""A server whose data path system calls are refused by the kernel logs this once per call, however
often it is used.

The modules in `conftest.DATA_MODULES` show that its behaviour is otherwise the same."""

from tools import data, wait_until, xrdcp

REFUSED = ("openat2", "preadv2 with RWF_NOWAIT", "cachestat", "io_uring")


def refusals(server):
    return [line for line in server.output().splitlines() if " is refused (" in line]


def test_refusals_are_logged_once(refused, area_on, tmp_path):
    content = data(3_000_000)
    area = area_on(refused)
    for name in ("a", "b"):
        area.put(name, content)
        for pages in "01":
            back = tmp_path / f"{name}{pages}"
            xrdcp(area.url(name), back, XRD_CPUSEPGWRTRD=pages).ok()
            assert back.read_bytes() == content
    wait_until(lambda: len(refusals(refused)) >= len(REFUSED))
    lines = refusals(refused)
    assert all(sum(f": {what}" in line for line in lines) == 1 for what in REFUSED), lines
    assert len(lines) == len(REFUSED), lines
