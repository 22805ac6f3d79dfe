"""Ids of the production source: ordered within a process, also within a millisecond."""

import os
import threading
import time

from belay_core.ids import Uuid7Ids


def test_ids_made_later_sort_later_within_a_millisecond(monkeypatch):
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_123_456_789)
    ids = Uuid7Ids()
    made = [ids.new() for _ in range(50_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)
    assert len({each[:13] for each in made}) == 1


def test_a_clock_that_is_set_back_does_not_set_them_back(monkeypatch):
    times = iter([2_000, 1_000, 1_500, 2_000, 2_001])
    monkeypatch.setattr(time, "time_ns", lambda: next(times) * 1_000_000)
    ids = Uuid7Ids()
    made = [ids.new() for _ in range(5)]
    assert made == sorted(made)
    assert int(made[-1].replace("-", "")[:12], 16) == 2_001


def test_a_counter_that_is_full_goes_on_with_the_next_millisecond(monkeypatch):
    monkeypatch.setattr(time, "time_ns", lambda: 5_000_000)
    ids = Uuid7Ids()
    first = ids.new()
    ids._tail = 2**74 - 1
    second = ids.new()
    assert (first < second, int(second.replace("-", "")[:12], 16)) == (True, 6)


def test_threads_make_no_id_twice():
    ids, made = Uuid7Ids(), []

    def make() -> None:
        made.append([ids.new() for _ in range(2_000)])

    threads = [threading.Thread(target=make) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len({each for some in made for each in some}) == 16_000
    assert all(some == sorted(some) for some in made)


def test_they_keep_version_and_variant():
    for _ in range(100):
        text = Uuid7Ids().new()
        assert (len(text), text[14], text[19] in "89ab") == (36, "7", True)


def test_a_forked_process_makes_its_own(monkeypatch):
    ids = Uuid7Ids()
    ids.new()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, ids.new().encode())
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(write)
    with os.fdopen(read) as told:
        assert told.read() != ids.new()
