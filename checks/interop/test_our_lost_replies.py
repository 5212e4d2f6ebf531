"""Requests of our client whose replies are lost: none is sent twice, and the exit status reports
what is known."""

import json
import os

import raw
from between import Losing
from codes import Exit
from tools import scalla


def test_a_missing_file_afterwards_was_removed(area):
    area.put("file", b"content")
    with Losing(area.server, raw.RM) as between:
        scalla("rm", between.url(area / "file")).ok().silent()
        assert between.seen == 1
    area.mkdir("folder")
    with Losing(area.server, raw.RMDIR) as between:
        scalla("rmdir", between.url(area / "folder")).ok().silent()
        assert between.seen == 1
    assert os.listdir(area.local) == []


def test_a_rename_is_proven_by_the_file(area):
    area.put("file", b"content")
    with Losing(area.server, raw.MV) as between:
        scalla("mv", between.url(area / "file"), between.url(area / "new")).ok().silent()
        assert between.seen == 1
    assert os.listdir(area.local) == ["new"] and area.get("new") == b"content"


def test_the_creator_of_a_directory_is_uncertain(area):
    with Losing(area.server, raw.MKDIR) as between:
        scalla("mkdir", between.url(area / "folder")).fails(
            Exit.UNCERTAIN, "may have been carried out", "there is a directory of that name", "look before you repeat it")
        assert between.seen == 1
    with Losing(area.server, raw.MKDIR) as between:
        # With parents it may be created twice.
        scalla("mkdir", "-p", between.url(area / "other")).ok()
        assert between.seen == 2
    assert sorted(os.listdir(area.local)) == ["folder", "other"]


def test_a_new_file_is_not_created_twice(area, local):
    with Losing(area.server, raw.OPEN) as between:
        result = scalla("cp", "--json", "--retry", "3", local(size=1000), between.url(area / "file"))
        result.fails(Exit.UNCERTAIN, "may have been carried out", "there is an empty file of that name")
        assert between.seen == 1
    told = [json.loads(line) for line in result.out.splitlines()]
    assert [line.get("uncertain") for line in told if "error" in line] == [True]
    # It exists because it was created; nothing else has happened to it.
    assert area.get("file") == b""
