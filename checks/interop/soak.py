"""`make soak`: a cluster of ours under all kinds of clients, while one node after another is killed
and restarted.

As a program: `soak.py MINUTES`. The exit status is 0 if none of these rules was broken:
* a file with two copies is read completely and correctly by each client, whichever node was killed;
* a write that a client reports as done is on the disk of a server afterwards, with the right bytes;
* no process panics, exits by itself, or grows without limit."""

import itertools
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import clusters
import peers
import tools
from clients import digest

PLAN = clusters.Plan("""
    man manager
    s1 server man
    s2 server man
    s3 server man
""")
MIB = 1 << 20
# Sizes of the files that are read: an empty one, one in a single request, some in several, some in
# many chunks.
SIZES = (0, 24, 3000, 70_001, MIB, 5 * MIB + 17, 40 * MIB)
WORKERS = 6
# Time between two kills, and time for which a killed node stays down, in seconds.
QUIET_SECONDS = (2.0, 12.0)
AWAY_SECONDS = (0.0, 6.0)
# Maximum growth of a process after the first tenth of the run: caches fill, and allocators keep
# memory.
GROWTH_MAX = 64 * MIB
# Real clients wait in whole seconds and give up a lost server after this time. Both kinds of
# clients give up immediately if the port is closed, as during a restart of the only manager. A copy
# is then retried, as a site would do.
PATIENCE = dict(XRD_CONNECTIONWINDOW="5", XRD_CONNECTIONRETRY="6", XRD_STREAMTIMEOUT="10", XRD_STREAMERRORWINDOW="0",
                XRD_TIMEOUTRESOLUTION="1", XRD_CPRETRY="8")


class Soak:
    def __init__(self, cluster, seconds, quiet=QUIET_SECONDS):
        self.cluster = cluster
        self.area = clusters.Area(cluster)
        self.seconds = seconds
        self.deadline = None
        self.scratch = Path(tempfile.mkdtemp(prefix="scalla-soak-", dir="/var/tmp"))
        self.done = Counter()
        self.broken = []
        self.numbers = itertools.count(1)
        self.files = {}
        self.memory = {}
        self.quiet = quiet
        self.kills = 0

    def over(self):
        return time.monotonic() > self.deadline or len(self.broken) > 20

    def say_broken(self, what, result):
        self.broken.append(f"{what}: {result!r}"[:2000])
        print(f"BROKEN {self.broken[-1]}", flush=True)

    def fill(self):
        """Creates each file on two of the three servers."""
        servers = [node.name for node in self.cluster.servers]
        for number, size in enumerate(SIZES * 3):
            content = tools.data(size, number)
            holders = servers[number % 3], servers[(number + 1) % 3]
            self.area.put(f"file{number}", content, *holders)
            self.files[f"file{number}"] = digest(content)
        self.area.directory(*servers)

    # Actions of clients. Each has a directory of its own.

    def read(self, own, random_):
        """Reads with three programs: the real client, ours, and ours from all copies at once."""
        name = random_.choice(list(self.files))
        target = own / "read"
        target.unlink(missing_ok=True)
        url = self.area.url(name)
        way = random_.choice(("xrdcp", "cp", "cp -x"))
        if way == "xrdcp":
            result = tools.xrdcp("-f", url, target, **PATIENCE)
        else:
            result = tools.scalla("cp", "-f", *(["-x"] if way == "cp -x" else []), url, target, **PATIENCE)
        if result.status != 0:
            self.say_broken(f"{way} of {name}", result)
        elif digest(target.read_bytes()) != self.files[name]:
            self.say_broken(f"{way} of {name} gave other bytes", result)
        return way

    def write(self, own, random_):
        """Writes a file. A write may fail when its server dies; one that is reported as done must
        not be lost."""
        name = f"new{next(self.numbers)}"
        content = tools.data(random_.choice(SIZES[1:]), random_.random())
        source = own / "write"
        source.write_bytes(content)
        way = random_.choice(("xrdcp upload", "cp upload"))
        if way == "xrdcp upload":
            result = tools.xrdcp("--posc", source, self.area.url(name), **PATIENCE)
        else:
            result = tools.scalla("cp", source, self.area.url(name), **PATIENCE)
        holders = self.area.holders(name)
        if result.status != 0:
            return way + " refused"
        if not holders:
            self.say_broken(f"{way} of {name} is lost", result)
        for holder in holders:
            if self.area.local(holder, name).read_bytes() != content:
                # A copy cut by a crash may be on another server than the complete one.
                way += " beside a rest"
        if not any(self.area.local(holder, name).read_bytes() == content for holder in holders):
            self.say_broken(f"{way} of {name} has other bytes", result)
        for holder in holders:
            self.area.local(holder, name).unlink(missing_ok=True)
        return way

    def look(self, own, random_):
        """Queries existing and missing names with the real shell."""
        name = random_.choice([*self.files, f"nothing{next(self.numbers)}"])
        result = tools.xrdfs(self.cluster.top, "stat", self.area / name, **PATIENCE)
        if "onnection" in result.err:
            return "stat refused"
        if (result.status == 0) != (name in self.files):
            self.say_broken(f"stat of {name}", result)
        return "stat"

    def many(self, own, random_):
        """Copies all files at once, as a whole directory."""
        target = own / "all"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        listed = own / "list"
        listed.write_text("".join(f"{self.area.url(name)}\n" for name in self.files))
        result = tools.scalla("cp", "--from", listed, f"{target}/", **PATIENCE)
        wrong = [name for name, right in self.files.items() if not (target / name).is_file() or digest((target / name).read_bytes()) != right]
        if result.status != 0 or wrong:
            self.say_broken(f"cp --from: {wrong}", result)
        return "cp --from"

    def client(self, number):
        random_ = random.Random(number)
        own = self.scratch / str(number)
        own.mkdir()
        actions = [self.read] * 6 + [self.write] * 3 + [self.look] * 3 + [self.many]
        while not self.over():
            try:
                self.done[random_.choice(actions)(own, random_)] += 1
            except Exception as error:  # A program that hangs is a finding of the run, not its end.
                self.say_broken("client", error)

    # Actions on the nodes.

    def trouble(self):
        random_ = random.Random(0)
        nodes = list(self.cluster.nodes.values())
        while not self.over():
            self.wait(random_.uniform(*self.quiet))
            node = random_.choice(nodes)
            if not node.alive():
                self.say_broken(f"{node.name} ended by itself", node.output()[-1500:])
            node.kill()
            self.kills += 1
            self.wait(random_.uniform(*AWAY_SECONDS) if node.role == "server" else 0)
            node.start()
            self.cluster.formed()

    def wait(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.over():
            time.sleep(0.1)

    def watch(self):
        """Checks resident memory by process, and panics in logs."""
        seen = set()
        while not self.over():
            self.wait(5)
            for node in self.cluster.nodes.values():
                for process in list(node.processes):
                    try:
                        resident = peers.process_status(process.pid, "VmRSS") * 1024
                    except (OSError, KeyError):  # It has just ended.
                        continue
                    self.memory.setdefault((node.name, process.pid), []).append(resident)
                if node.name not in seen and "panicked" in node.output():
                    seen.add(node.name)
                    self.say_broken(f"{node.name} panicked", node.output()[-1500:])

    def grown(self):
        for (name, pid), sizes in self.memory.items():
            base = max(sizes[:max(1, len(sizes) // 10)])
            if sizes[-1] > base + GROWTH_MAX:
                self.say_broken(f"{name} ({pid}) grew", f"{base} to {sizes[-1]} bytes")

    def run(self):
        self.fill()
        self.deadline = time.monotonic() + self.seconds
        threads = [threading.Thread(target=self.client, args=(number,)) for number in range(WORKERS)]
        threads.append(threading.Thread(target=self.watch))
        for thread in threads:
            thread.start()
        try:
            self.trouble()
        finally:
            self.deadline = 0
            for thread in threads:
                thread.join()
            self.grown()
            shutil.rmtree(self.scratch, ignore_errors=True)
        return not self.broken


def main():
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 30
    with clusters.Cluster(PLAN, "ours") as cluster:
        soak = Soak(cluster, minutes * 60)
        held = soak.run()
    for what, count in sorted(soak.done.items()):
        print(f"{count:8} {what}")
    print(f"{soak.kills:8} nodes killed, {max((max(sizes) for sizes in soak.memory.values()), default=0) // MIB} MiB resident at most")
    print("soak: nothing broken" if held else f"soak: {len(soak.broken)} BROKEN")
    sys.exit(not held)


if __name__ == "__main__":
    main()
