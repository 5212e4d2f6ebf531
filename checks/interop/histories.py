"""`make histories`: random `cp`, `sync` and `rm` of our program on random trees on this machine and at a
server. During most of them messages are lost, or the client or the server is killed.

Run as a program: `histories.py COUNT [SEED] [ours|theirs]`. The exit status is 0 if each command had
these properties:

* No other path changes, on either side, not even the time of a file.
* Each path of the command is as before or as requested. Only at a server a part of a file may stay:
  if the command was killed, or reported its failure while the server was unreachable.
* The exit status is 0 only if everything was done. Without a fault, everything done means 0.
* A command that failed succeeds when it is repeated without a fault.

`model.py` derives the permitted changes from the trees alone. A seed repeats a history, except for
the order of concurrent requests of a client."""

import itertools
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import faults
import model
import peers
import random_trees
from codes import Exit
from model import ABSENT, HERE, PART

COMMANDS_MAX = 4
STOP_AFTER = 3
PATIENCE_SECONDS = 60 * peers.SLOWNESS
# The status of a program that was killed.
KILLED = -signal.SIGKILL
# A real server refuses an open of a file that an earlier session of the client has open, until it
# has processed the end of that session.
SETTINGS = dict(XRD_CONNECTIONWINDOW="3", XRD_CONNECTIONRETRY="8", XRD_STREAMTIMEOUT="3", XRD_REQUESTTIMEOUT="8", XRD_STREAMERRORWINDOW="0",
                XRD_CPCHUNKSIZE="4096", XRD_CPPARALLELCHUNKS="3", NO_COLOR="1")


class Violation(Exception):
    """A command violated an invariant."""


class Run:
    """The result of a command."""

    def __init__(self, status, text, faults):
        self.status = status
        self.text = text
        self.faults = faults

    def is_killed(self):
        """Reports whether the command had no time to clean up. The second interrupt ends it at once."""
        return self.status == KILLED or (self.status == Exit.INTERRUPTED and self.faults.count("interrupt") > 1)


class Worker:
    """A server, a faulty network before it, and a directory for the trees of successive histories."""

    def __init__(self, kind, sabotage=None):
        self.kind = kind
        self.sabotage = sabotage
        # The trees are in memory, because disks are not tested here.
        self.work = Path(tempfile.mkdtemp(prefix="scalla-histories-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else "/var/tmp"))
        self.work.chmod(0o755)
        for name in ("here", "there", "state"):
            (self.work / name).mkdir()
            peers.give(self.work / name)
        self.server = {"ours": peers.Ours, "theirs": peers.Theirs}[kind](tree=self.work / "there")
        self.operator = faults.Operator(self.server)
        self.client = None
        self.counts = Counter()

    def __enter__(self):
        self.operator.start()
        self.operator.start_server()
        self.meddler = faults.Meddler(self.server, self.end_client, self.operator.restart).__enter__()
        return self

    def __exit__(self, *_):
        self.meddler.close()
        self.operator.orders.join()
        self.operator.orders.put(None)
        self.operator.join()
        self.server.remove()
        shutil.rmtree(self.work, ignore_errors=True)

    def end_client(self, name):
        self.client.send_signal(getattr(signal, f"SIG{name}"))
        if name == "KILL":
            self.client.wait()

    def run(self, words, plan):
        """Runs our program with the planned faults of the network."""
        command = [os.fsencode(word) for word in words]
        if os.geteuid() == 0:
            user, group = peers.unprivileged()
            command = [b"/usr/bin/setpriv", b"--reuid=%d" % user, b"--regid=%d" % group, b"--clear-groups", *command]
        settings = dict(SETTINGS, XDG_STATE_HOME=str(self.work / "state"), HOME=str(self.work / "state"))
        with tempfile.TemporaryFile() as output:
            self.meddler.begin(plan)
            self.client = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/",
                                           env=peers.environment(**settings))
            try:
                status = self.client.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                self.client.kill()
                self.client.wait()
                status = None
            self.meddler.settle()
            self.operator.wait()
            output.seek(0)
            return Run(status, output.read().decode(errors="backslashreplace"), list(self.meddler.done))

    def history(self, seed):
        """Runs one history; raises `Violation`."""
        History(self, seed).run()


class History:
    def __init__(self, worker, seed):
        self.worker = worker
        self.dice = random.Random(seed)
        self.name = f"h{seed}"
        self.here, self.there = worker.work / "here" / self.name, worker.work / "there" / self.name
        self.log = []

    def run(self):
        dice, counts = self.dice, self.worker.counts
        trees = random_trees.Trees(dice, self.here, self.there, self.worker.kind == "ours")
        commands = random_trees.Commands(dice, trees)
        try:
            for _ in range(dice.randint(1, COMMANDS_MAX)):
                world = model.World(self.here, self.there)
                command = commands.next(world)
                is_done = self.check(world, command, self.plan())
                counts["commands"] += 1
                if not is_done and dice.random() < 0.7:
                    counts["repeated"] += 1
                    self.check(model.World(self.here, self.there), command, [])
                if dice.random() < 0.3:
                    trees.stir(model.World(self.here, self.there).nodes())
        finally:
            for root in (self.here, self.there):
                shutil.rmtree(root, ignore_errors=True)
            shutil.rmtree(self.worker.work / "state" / "scalla", ignore_errors=True)

    def plan(self):
        """Returns the faults of the network during a command."""
        dice = self.dice
        if dice.random() < 0.4:
            return []
        kinds = ("request", "reply", "reply", "half_request", "half_reply", "client", "client_late", "interrupt")
        kinds = kinds if dice.random() < 0.9 else ("server", "server_late")
        # The first two requests are those of the connection.
        faults_planned = [(dice.choice(kinds), 2 + min(int(dice.expovariate(0.2)), 60))]
        if dice.random() < 0.2:
            faults_planned.append((dice.choice(kinds), faults_planned[0][1] + dice.randint(1, 5)))
        return faults_planned

    def words(self, command):
        """Returns the command line."""
        options, words = command.options, [peers.program(), command.kind]
        if command.kind != "rm":
            words += ["--parallel", str(options.parallel or 64), *([] if options.sync else ["--no-sync"])]
        for name, word in (("recursive", "-r"), ("force", "-f"), ("resume", "-c"), ("in_place", "--in-place"), ("posc", "-P"),
                           ("delete", "--delete"), ("dry_run", "-n"), ("allow_empty", "--allow-empty")):
            # All copies of a sync overwrite.
            if getattr(options, name) and not (name == "force" and command.kind == "sync"):
                words.append(word)
        if options.max_delete is not None:
            words += ["--max-delete", str(options.max_delete)]
        if options.retry:
            words += ["--retry", str(options.retry)]
        words += {None: [], "size": ["--size-only"], "checksum": ["--checksum", "adler32"]}[options.equal]
        places = [self.place(*source) for source in command.sources]
        if options.pattern is not None:
            places = [place + b"/" + options.pattern + b"*" for place in places]
        if command.target:
            places.append(self.place(*command.target))
        return [*words, *places]

    def place(self, side, path):
        if side == HERE:
            return os.fsencode(self.here) + b"/" + path
        return f"root://{self.worker.meddler.host}//{self.name}/".encode() + path

    def check(self, world, command, plan):
        """Runs a command. Reports whether it did everything."""
        before, words = world.nodes(), self.words(command)
        expectation = model.expect(world, command)
        if expectation.waits:
            return True
        run = self.worker.run(words, plan)
        if self.worker.sabotage:
            run = self.worker.sabotage(self, expectation, run)
        self.worker.counts.update(run.faults)
        self.worker.counts[f"status {run.status}"] += 1
        self.log.append((words, plan, run))
        wrong = self.wrong(expectation, run, before)
        if run.faults and wrong:
            # A server may notice the end of its client later.
            patience = peers.Patience(5)
            while wrong and not patience.over():
                time.sleep(0.05)
                wrong = self.wrong(expectation, run, before)
        if wrong:
            raise Violation(self.tell(expectation, wrong))
        return run.status == 0

    def wrong(self, expectation, run, before):
        """Returns descriptions of all violations."""
        after = model.World(self.here, self.there).nodes()
        wrong = list(self.wrong_paths(expectation, run, before, after))
        missing = [key for key, states in expectation.want.items() if model.state(after.get(key)) not in states
                   and model.state(after.get(expectation.links.get(key))) not in states]
        if run.status is None:
            wrong.append(f"no end within {PATIENCE_SECONDS} s")
        elif run.status == 0 and missing:
            wrong.append(f"exit status 0, and not done: {missing}")
        elif run.status == 0 and expectation.problems and not expectation.is_vague:
            wrong.append(f"exit status 0 in spite of {expectation.problems}")
        elif run.status not in (0, Exit.FAILED) and not run.faults:
            wrong.append(f"exit status {run.status} without a fault")
        elif run.status not in (0, Exit.FAILED, Exit.UNCERTAIN, Exit.INTERRUPTED, KILLED):
            wrong.append(f"exit status {run.status}")
        if not run.faults and not expectation.is_vague:
            if run.status != 0 and not expectation.problems:
                wrong.append("a failure without a reason")
            hard = [key for key in missing if key not in expectation.soft]
            if hard and not expectation.is_free:
                wrong.append(f"not done, although nothing was lost: {hard}")
        if "panicked" in run.text:
            wrong.append("a panic")
        return wrong

    def wrong_paths(self, expectation, run, before, after):
        """Yields descriptions of paths that changed although they must not, or into a wrong state."""
        for key in sorted({*before, *after}):
            old, new = before.get(key), after.get(key)
            if old == new:
                continue
            state, want = model.state(new), expectation.want.get(key)
            may = expectation.may.get(key, ())
            if want is None and state not in may:
                is_link = key in expectation.links.values() and self.is_allowed(key, expectation, run, old, state)
                if not is_link and not self.is_debris(key, expectation, run, new):
                    yield f"{key}: not asked for: {show(old)} -> {show(new)}"
            elif want is None or state in want or state == model.state(old) or state == model.DIRECTORY and state in may:
                continue
            elif not self.is_allowed(key, expectation, run, old, state):
                yield f"{key}: neither as before nor as requested: {show(old)} -> {show(new)}"

    def is_allowed(self, key, expectation, run, old, state):
        """Reports whether a target may be neither as before nor as requested."""
        options, may = expectation.options, expectation.may.get(key, ())
        if PART not in may or run.status == 0:
            return False
        if key[0] == HERE and not options.in_place:
            # A local file that is completed in its place.
            return bool(run.faults) and model.is_between(state, model.state(old), expectation.want.get(key, ()))
        if not run.faults:
            return bool(options.resume)
        if state == ABSENT:
            # A file at a server that was being overwritten.
            return True
        lost_server = any(kind.startswith("server") for kind in run.faults)
        is_empty_and_reported = run.status == Exit.UNCERTAIN and state == ("f", b"")
        is_kept = options.resume or (options.in_place and key[0] == HERE)
        return run.is_killed() or is_kept or lost_server or is_empty_and_reported

    def is_debris(self, key, expectation, run, new):
        """Reports whether a path is the part or note of a copy that was killed or can be continued."""
        side, path = key
        directory, name = os.path.split(path)
        is_ours = name.startswith(b".") and name.endswith((b".tmp", b".part", b".note"))
        is_left = run.is_killed() or expectation.options.resume
        return side == HERE and is_ours and is_left and directory in expectation.workplaces and (new is None or new.kind == "f")

    def tell(self, expectation, wrong):
        lines = [f"history {self.name[1:]} against {self.worker.kind}: {len(self.log)} commands"]
        for words, plan, run in self.log:
            lines.append(f"  {b' '.join(os.fsencode(word) for word in words[1:])} planned {plan} happened {run.faults}: status {run.status}")
        words, _, run = self.log[-1]
        lines += ["  last output:", *(f"    {shorten(line)}" for line in run.text.splitlines()[-8:]), "  wrong:", *(f"    {shorten(text)}" for text in wrong[:12])]
        lines.append(f"  problems expected: {expectation.problems}; vague {expectation.is_vague}, free {expectation.is_free}")
        lines.append(shorten(f"  wanted: {[(key, [show_state(state) for state in states]) for key, states in expectation.want.items()]}"))
        return "\n".join(lines)


def show_state(state):
    return f"file of {len(state[1])} bytes {state[1][:12]}" if isinstance(state, tuple) and state[0] == "f" else str(state)


def shorten(line):
    return line if len(line) < 700 else f"{line[:300]} ... {line[-300:]}"


def show(node):
    if node is None:
        return ABSENT
    return f"{show_state(model.state(node))} mode {node.mode:o} time {node.modified // 10**9}"


def work(kind, seeds, results, stop):
    """Runs the histories of one process."""
    results.cancel_join_thread()
    try:
        with Worker(kind) as worker:
            for seed in iter(seeds.get, None):
                if stop.is_set():
                    break
                worker.counts.clear()
                try:
                    worker.history(seed)
                    results.put((seed, None, worker.counts.copy()))
                except Violation as violation:
                    results.put((seed, str(violation), worker.counts.copy()))
    except BaseException:
        results.put((None, traceback.format_exc(), Counter()))
        raise


def run(kind, seeds, processes=4, stop_after=STOP_AFTER, tell=lambda text: None):
    """Runs histories. Returns the violations, and the number of occurrences of each event."""
    peers.program()
    context = multiprocessing.get_context("fork")
    queue, results, stop = context.Queue(), context.Queue(), context.Event()
    for one in [*seeds, *[None] * processes]:
        queue.put(one)
    running = [context.Process(target=work, args=(kind, queue, results, stop)) for _ in range(processes)]
    for process in running:
        process.start()
    violations, counts = [], Counter()
    for number in itertools.count(1):
        if number > len(seeds) or len(violations) >= stop_after:
            break
        seed, violation, more = results.get()
        counts.update(more)
        if violation:
            violations.append(violation)
            tell(violation)
        if seed is None:
            break
        if number % 500 == 0:
            tell(f"{number} histories, {counts['commands']} commands, {len(violations)} violations")
    stop.set()
    queue.cancel_join_thread()
    for process in running:
        process.join()
    return violations, counts


def main():
    count = int(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    kind = sys.argv[3] if len(sys.argv) > 3 else "ours"
    # Clients inherit the handling of interrupts, which may be off in a background job.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    begun = time.monotonic()
    violations, counts = run(kind, range(seed, seed + count), tell=lambda text: print(text, flush=True))
    print(f"{count} histories against {kind} from seed {seed}: {len(violations)} violations, {time.monotonic() - begun:.0f} s")
    print(", ".join(f"{name}: {number}" for name, number in sorted(counts.items())))
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    main()
