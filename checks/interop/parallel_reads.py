"""Reads by the Python client that are all under way at once, run by its own interpreter.

`parallel_reads.py URL FILE NUMBER` compares NUMBER reads of random lengths with FILE, which has the same content, and
prints `equal`."""

import random
import sys
import threading

from XRootD import client
from XRootD.client.flags import OpenFlags

PATIENCE = 60


def main(url, copy, number):
    with open(copy, "rb") as file:
        content = file.read()
    ended, lock, faults = threading.Semaphore(0), threading.Lock(), []

    def compare(offset, length):
        def callback(status, response, hosts):
            if not status.ok or response != content[offset:offset + length]:
                with lock:
                    faults.append((offset, length, status.message))
            ended.release()
        return callback

    choose = random.Random(5)
    with client.File() as file:
        status, _ = file.open(url, OpenFlags.READ)
        assert status.ok, status.message
        for _ in range(number):
            # Some reads go beyond the end.
            offset, length = choose.randrange(len(content)), choose.choice([1, 100, 3000, 20_000, 70_000])
            status = file.read(offset, length, callback=compare(offset, length))
            assert status.ok, status.message
        for done in range(number):
            if not ended.acquire(timeout=PATIENCE):
                sys.exit(f"{number - done} replies are missing")
        print(faults or "equal")
        file.close()


main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
