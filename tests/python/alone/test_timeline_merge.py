"""Tests the merging of timelines from ranks whose clocks differ."""
import json
import pathlib
import random
import subprocess
import sys

import pytest

from horovod import timeline


class Host:
    """A host with two clocks that are wrong. Its methods take the true time in microseconds, and return a clock's
    time."""

    def __init__(self, node, boot, day_error=0, drift=0.0):
        self.node, self.boot, self.day_error, self.drift = node, boot, day_error, drift

    def steady(self, time):
        return round((time - self.boot) * (1 + self.drift))

    def day(self, time):
        return 1_700_000_000_000_000 + round(time) + self.day_error


def file_of(path, rank, host, start, batches, day_set_by=0, verb="ALLREDUCE"):
    """Writes a rank's timeline: one allreduce of one tensor for each (number, begin, end) of `batches`."""
    def ts(time):
        return host.steady(time) - host.steady(start)

    events = [
        {"name": "process_name", "ph": "M", "pid": 0,
         "args": {"start_time_since_epoch_in_micros": host.day(start) + day_set_by}},
        {"name": "horovod", "ph": "M", "pid": 0,
         "args": {"rank": rank, "size": 4, "host": host.node, "node": host.node, "job": "j",
                  "start_of_steady_clock_in_micros": host.steady(start)}},
        {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "allreduce.a"}},
        {"name": "process_sort_index", "ph": "M", "pid": 1, "args": {"sort_index": 1}}]
    for number, begin, end in batches:
        events += [{"ph": "B", "name": verb, "ts": ts(begin), "pid": 1},
                   {"ph": "B", "name": f"SHM_{verb}", "ts": ts(begin), "pid": 1},
                   {"ph": "E", "ts": ts(end), "pid": 1},
                   {"ph": "E", "ts": ts(end), "pid": 1, "args": {"dtype": "float32", "shape": "[3]", "batch": number}}]
    path.write_text(json.dumps(events), encoding="utf-8")
    return str(path)


def ends_by_batch(merged):
    ends = {}
    for event in merged:
        if "batch" in event.get("args", {}):
            ends.setdefault(event["args"]["batch"], []).append(event["ts"])
    return ends


def spread(merged):
    """The longest time between the ends of the same batch on two ranks."""
    return max(max(ends) - min(ends) for ends in ends_by_batch(merged).values())


def job(folder, hosts, seconds, steps, jitter=5, late=0, verb="ALLREDUCE"):
    """Writes the timelines of two ranks on each host. In one of ten batches, drawn by chance, a rank ends `late`
    later."""
    chance = random.Random(3)
    ends = [seconds * 1e6 * step / steps + 1000 for step in range(1, steps + 1)]
    files = []
    for rank in range(2 * len(hosts)):
        batches = [(number, end - 900, end + chance.random() * jitter + (late if chance.random() < 0.1 else 0))
                   for number, end in enumerate(ends)]
        files.append(file_of(folder / f"t.{rank}", rank, hosts[rank // 2], 100.0 * rank, batches, verb=verb))
    return files


def test_clocks_that_are_seconds_apart_agree_afterwards(tmp_path):
    hosts = [Host("n1", boot=-1e12), Host("n2", boot=-5e9, day_error=3_000_000), Host("n3", boot=0, day_error=-700_000)]
    assert spread(timeline.merge(job(tmp_path, hosts, seconds=1, steps=100))) <= 12


def test_spans_of_a_device_that_overlap_keep_their_times(tmp_path):
    path = job(tmp_path, [Host("n1", boot=0)], seconds=1, steps=1)[0]
    events = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    times = [("b", 10), ("b", 20), ("e", 40), ("b", 15), ("e", 30)]  # in the order in which they became known
    events += [{"ph": phase, "cat": "device", "name": "a", "id2": {"local": "7"}, "ts": time, "pid": 1000}
               for phase, time in times]
    pathlib.Path(path).write_text(json.dumps(events), encoding="utf-8")
    merged = [event for event in timeline.merge([path]) if event.get("cat") == "device"]
    assert [(event["ph"], event["ts"]) for event in merged] == times


def test_one_rank_that_notices_late_does_not_move_a_clock(tmp_path):
    hosts = [Host("n1", boot=-1e12), Host("n2", boot=-5e9, day_error=3_000_000)]
    merged = timeline.merge(job(tmp_path, hosts, seconds=1, steps=100, late=5_000))
    together = sum(sorted(ends)[1] - sorted(ends)[0] <= 12 for ends in ends_by_batch(merged).values())
    assert together > 80


def test_clocks_that_drift_agree_from_the_first_to_the_last_batch(tmp_path):
    hosts = [Host("n1", boot=-1e12), Host("n2", boot=-5e9, day_error=40_000, drift=50e-6)]
    assert spread(timeline.merge(job(tmp_path, hosts, seconds=600, steps=1_500))) <= 20


def test_ranks_of_one_node_go_by_their_common_clock(tmp_path):
    host = Host("n1", boot=-1e12)
    batches = [(0, 500, 1000)]
    files = [file_of(tmp_path / "t.0", 0, host, 0, batches),
             file_of(tmp_path / "t.1", 1, host, 100, batches, day_set_by=9_000_000)]
    assert spread(timeline.merge(files)) == 0


def test_nodes_without_a_common_batch_go_by_the_time_of_day(tmp_path):
    hosts = [Host("n1", boot=-1e12), Host("n2", boot=-5e9, day_error=2_000)]
    files = [file_of(tmp_path / "t.0", 0, hosts[0], 0, [(0, 500, 1000)]),
             file_of(tmp_path / "t.1", 1, hosts[1], 0, [(1, 500, 1000)])]
    ends = ends_by_batch(timeline.merge(files))
    assert ends[1][0] - ends[0][0] == 2_000


def test_broadcasts_say_nothing_about_clocks(tmp_path):
    hosts = [Host("n1", boot=-1e12), Host("n2", boot=-5e9, day_error=2_000)]
    merged = timeline.merge(job(tmp_path, hosts, seconds=1, steps=50, jitter=0, verb="BROADCAST"))
    assert spread(merged) == pytest.approx(2_000, abs=2)


def test_a_rank_is_a_process_and_a_tensor_a_thread(tmp_path):
    merged = timeline.merge(job(tmp_path, [Host("n1", boot=0), Host("n2", boot=0)], seconds=1, steps=3))
    names = {event["pid"]: event["args"]["name"] for event in merged if event.get("name") == "process_name"}
    assert names == {0: "rank 0 (n1)", 1: "rank 1 (n1)", 2: "rank 2 (n2)", 3: "rank 3 (n2)"}
    threads = [event for event in merged if event.get("name") == "thread_name"]
    assert [event["args"]["name"] for event in threads] == ["allreduce.a"] * 4
    open_spans, last = {}, {}
    for event in merged:
        if event["ph"] in "BE":
            row = event["pid"], event["tid"]
            assert event["ts"] >= last.get(row, 0)
            last[row] = event["ts"]
            open_spans[row] = open_spans.get(row, 0) + (1 if event["ph"] == "B" else -1)
            assert open_spans[row] >= 0
    assert set(open_spans.values()) == {0}


def command(*arguments):
    line = [sys.executable, "-m", "horovod.timeline", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True)


def test_the_command_writes_the_merged_file(tmp_path):
    files = job(tmp_path, [Host("n1", boot=0)], seconds=1, steps=3)
    done = command("merge", tmp_path / "all.json", *files)
    assert done.returncode == 0, done.stderr
    assert spread(json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))) <= 6


def test_the_command_names_the_file_that_it_cannot_use(tmp_path):
    files = job(tmp_path, [Host("n1", boot=0)], seconds=1, steps=3)
    for content in ("[", "{}", "[1]", "[]"):
        (tmp_path / "bad").write_text(content, encoding="utf-8")
        done = command("merge", tmp_path / "all.json", *files, tmp_path / "bad")
        assert done.returncode == 1 and str(tmp_path / "bad") in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
    done = command("merge", tmp_path / "all.json", files[0], files[0])
    assert done.returncode == 1 and "both of rank 0" in done.stderr
    assert command("merge", files[0], files[0], files[1]).returncode == 2
