"""Tests of the timeline, a Chrome trace that rank 0 writes and that is valid at any moment."""
import json
import os
import pathlib
import signal

import pytest
import torch

import horovod.torch as hvd
from ranks import SIZE, Job, alone, at_least, equal, error_of, is_error, mine, restarted, total, wait_for


def read(path):
    """The events of the file, or None if it is empty or absent. The content must be valid JSON."""
    text = pathlib.Path(path).read_text() if pathlib.Path(path).exists() else ""
    return json.loads(text) if text.strip() else None


def reads(path, *words):
    """On rank 0: waits until the file contains all `words`; returns the events or an error. On other ranks: None."""
    if hvd.rank():
        return None

    def found():
        text = pathlib.Path(path).read_text() if pathlib.Path(path).exists() else ""
        return all(word in text for word in words)

    error = error_of(wait_for, found, f"{words} in {path}", 5)
    events = read(path) if error is None else []
    if error is None:
        return events
    return error


def checked(events):
    if isinstance(events, Exception):
        raise events
    return events


def of_tensor(events, name):
    """The events of a tensor, in order. A tensor is a `process` of the trace."""
    pids = [event["pid"] for event in events if event.get("name") == "process_name"
            and event.get("args", {}).get("name") == name]
    assert len(pids) == 1, f"{name} is {len(pids)} processes"
    return [event for event in events if event.get("pid") == pids[0] and event["ph"] != "M"]


def test_the_timeline_tells_of_an_allreduce_at_once(shared_folder):
    """Contract §6.10 [Horovod tests this], §2.4"""
    path = shared_folder / "timeline.json"
    with restarted(HOROVOD_TIMELINE=path, HOROVOD_TIMELINE_MARK_CYCLES=1):
        hvd.allreduce(torch.ones(3), name="test_allreduce")
        events = reads(path, "allreduce.test_allreduce", "NEGOTIATE_ALLREDUCE", "ALLREDUCE", "CYCLE_START")
    assert hvd.rank() or isinstance(checked(events), list)


def test_the_file_begins_with_the_time_of_its_start(shared_folder):
    """Contract §6.10 header"""
    path = shared_folder / "timeline.json"
    with restarted(HOROVOD_TIMELINE=path):
        hvd.allreduce(torch.ones(3), name="one")
        events = reads(path, "allreduce.one")
    if hvd.rank() == 0:
        names = [(event["name"], event.get("ph"), event.get("pid")) for event in checked(events)[:2]]
        assert names == [("process_name", "M", 0), ("process_sort_index", "M", 0)]
        assert events[0]["args"]["start_time_since_epoch_in_micros"] > 1_600_000_000_000_000


def test_a_tensor_is_negotiated_then_reduced_then_described(shared_folder):
    """Contract §6.10 sequence per tensor"""
    path = shared_folder / "timeline.json"
    with restarted(HOROVOD_TIMELINE=path):
        hvd.allreduce(torch.ones(3), name="sequence")
        hvd.barrier()
        events = reads(path, "allreduce.sequence", '"shape"')
    if hvd.rank():
        return
    found = of_tensor(checked(events), "allreduce.sequence")
    assert (found[0]["ph"], found[0]["name"]) == ("B", "NEGOTIATE_ALLREDUCE")
    ready = [event for event in found if event["ph"] == "X"]
    assert sorted(event["name"] for event in ready) == [str(rank) for rank in range(SIZE)]
    assert all(event["dur"] == 0 for event in ready)
    begun = [event["name"] for event in found if event["ph"] == "B"]
    assert begun[1] == "ALLREDUCE"
    assert len(begun) == len([event for event in found if event["ph"] == "E"])
    assert all("name" not in event for event in found if event["ph"] == "E")
    assert found[-1]["ph"] == "E" and {"dtype": "float32", "shape": "[3]"}.items() <= found[-1]["args"].items()
    times = [event["ts"] for event in found]
    assert times == sorted(times) and all(time >= 0 for time in times)
    depth = 0
    for event in found:
        depth += {"B": 1, "E": -1}.get(event["ph"], 0)
        assert depth >= 0
    assert depth == 0


def test_every_tensor_is_a_process_with_a_number_of_its_own(shared_folder):
    """Contract §6.10 process_name, process_sort_index"""
    path = shared_folder / "timeline.json"
    with restarted(HOROVOD_TIMELINE=path):
        for name in ("a", "b", "a"):
            hvd.allreduce(torch.ones(3), name=name)
        hvd.barrier()
        events = reads(path, "allreduce.a", "allreduce.b", "barrier.noname")  # the file is written a moment later
    if hvd.rank():
        return
    named = {event["args"]["name"]: event["pid"] for event in checked(events)
             if event.get("name") == "process_name" and event["pid"]}
    sorted_by = [event["pid"] for event in events if event.get("name") == "process_sort_index"]
    assert named["allreduce.a"] == 1 and named["allreduce.b"] == 2 and {1, 2} <= set(sorted_by)
    begun = [event["name"] for event in of_tensor(events, "allreduce.a") if event["ph"] == "B"]
    assert begun.count("ALLREDUCE") == 2


OPS = {
    "ALLREDUCE": (lambda: hvd.allreduce(torch.ones(3), name="t"), "allreduce.t"),
    "ALLGATHER": (lambda: hvd.allgather(torch.ones(3), name="t"), "allgather.t"),
    "BROADCAST": (lambda: hvd.broadcast(torch.ones(3), 0, name="t"), "broadcast.t"),
    "ALLTOALL": (lambda: hvd.alltoall(torch.ones(12), name="t"), "alltoall.t"),
    "REDUCESCATTER": (lambda: hvd.reducescatter(torch.ones(12), name="t"), "reducescatter.t"),
    "BARRIER": (lambda: hvd.barrier(), "barrier.noname"),
    "JOIN": (lambda: hvd.join(), "join.noname"),
    "ADASUM": (lambda: hvd.allreduce(torch.ones(3), op=hvd.Adasum, name="t"), "allreduce.t"),
}


@pytest.mark.parametrize("op", OPS)
def test_every_op_has_its_word(op, shared_folder):
    """Contract §6.10 OPs, §2.4 prefixes"""
    if op == "ADASUM" and SIZE not in (1, 2, 4):
        pytest.skip("a power of two")
    path = shared_folder / "timeline.json"
    with restarted(HOROVOD_TIMELINE=path):
        error = error_of(OPS[op][0])
        events = reads(path, f"NEGOTIATE_{op}", OPS[op][1])
    assert error is None
    assert hvd.rank() or checked(events)


@pytest.mark.parametrize("verb, prefix", [("grouped_allreduce", "grouped_allreduce"),
                                          ("grouped_allgather", "grouped_allgather"),
                                          ("grouped_reducescatter", "grouped_reducescatter")])
def test_members_of_a_group_are_numbered(verb, prefix, shared_folder):
    """Contract §2.4 names of ops"""
    path = shared_folder / "timeline.json"
    with restarted(HOROVOD_TIMELINE=path):
        error = error_of(getattr(hvd, verb), [torch.ones(4), torch.ones(8)], name="base")
        events = reads(path, f"{prefix}.base_1of2", f"{prefix}.base_2of2")
    assert error is None
    assert hvd.rank() or checked(events)


def test_unnamed_ops_are_called_by_their_handle(shared_folder):
    """Contract §2.4 names of ops"""
    path = shared_folder / "timeline.json"
    with restarted(HOROVOD_TIMELINE=path):
        hvd.allreduce(torch.ones(3))
        events = reads(path, "allreduce.noname.1")
    assert hvd.rank() or checked(events)


@pytest.mark.parametrize("mark", [True, False])
def test_cycles_are_marked_on_request_only(mark, shared_folder):
    """Contract §6.10 cycle marker"""
    path = shared_folder / "timeline.json"
    with restarted(HOROVOD_TIMELINE="DYNAMIC"):
        hvd.start_timeline(str(path), mark_cycles=mark)
        for i in range(5):
            hvd.allreduce(torch.ones(3), name=f"cycle.{i}")
        hvd.stop_timeline()
        events = reads(path, "allreduce.cycle.4")
    if hvd.rank() == 0:
        marks = [event for event in checked(events) if event.get("name") == "CYCLE_START"]
        assert bool(marks) is mark
        assert all((event["ph"], event["s"]) == ("i", "g") for event in marks)


def test_only_rank_0_writes_where_it_was_told(shared_folder):
    """Contract §6.10 only the coordinator writes"""
    path = shared_folder / f"timeline.{hvd.rank()}.json"
    with restarted(HOROVOD_TIMELINE=path):
        hvd.allreduce(torch.ones(3), name="who")
        hvd.barrier()
        reads(path, "allreduce.who")
        hvd.barrier()
        found = sorted(each.name for each in shared_folder.iterdir())
    assert found == ["timeline.0.json"]


def test_a_dynamic_timeline_waits_until_it_is_started(shared_folder):
    """Contract §6.10 DYNAMIC"""
    path = shared_folder / "timeline.json"
    with restarted(HOROVOD_TIMELINE="DYNAMIC"):
        hvd.allreduce(torch.ones(3), name="before")
        early = path.exists()
        hvd.barrier()
        hvd.start_timeline(str(path), mark_cycles=False)
        hvd.allreduce(torch.ones(3), name="during")
        hvd.stop_timeline()
        hvd.allreduce(torch.ones(3), name="after")
        hvd.barrier()
        events = reads(path, "allreduce.during", "start_time_since_epoch_in_micros")
        text = path.read_text() if hvd.rank() == 0 and path.exists() else ""
    assert not early
    if hvd.rank() == 0:
        checked(events)
        assert "allreduce.before" not in text and "allreduce.after" not in text


def test_the_timeline_may_go_from_file_to_file(shared_folder):
    """Contract §6.10 start_timeline"""
    paths = [shared_folder / f"{i}.json" for i in range(3)]
    with restarted(HOROVOD_TIMELINE="DYNAMIC"):
        for i, path in enumerate(paths):
            hvd.start_timeline(str(path))
            hvd.allreduce(torch.ones(3), name=f"in.{i}")
            if i != 1:  # the third file is started without stopping the second
                hvd.stop_timeline()
        hvd.barrier()
        events = [reads(path, f"allreduce.in.{i}") for i, path in enumerate(paths)]
        texts = [path.read_text() if hvd.rank() == 0 and path.exists() else "" for path in paths]
    if hvd.rank() == 0:
        for i, text in enumerate(texts):
            checked(events[i])
            assert all((f"allreduce.in.{other}" in text) is (other == i) for other in range(3))


def test_starting_with_the_file_that_is_written_changes_nothing(shared_folder):
    """Contract §6.10 start_timeline: a no-op"""
    path = shared_folder / "timeline.json"
    with restarted(HOROVOD_TIMELINE="DYNAMIC"):
        hvd.start_timeline(str(path))
        hvd.allreduce(torch.ones(3), name="first")
        hvd.start_timeline(str(path))
        hvd.allreduce(torch.ones(3), name="second")
        hvd.stop_timeline()
        events = reads(path, "allreduce.first", "allreduce.second")
    assert hvd.rank() or checked(events)


def test_starting_anew_empties_the_file(shared_folder):
    """Contract §6.10 start_timeline truncates"""
    path = shared_folder / "timeline.json"
    with restarted(HOROVOD_TIMELINE="DYNAMIC"):
        for name in ("old", "new"):
            hvd.start_timeline(str(path))
            hvd.allreduce(torch.ones(3), name=name)
            hvd.stop_timeline()
        events = reads(path, "allreduce.new")
        text = path.read_text() if hvd.rank() == 0 and path.exists() else ""
    if hvd.rank() == 0:
        checked(events)
        assert "allreduce.old" not in text


def test_stopping_twice_or_without_a_start_is_no_error():
    """Contract §1.2 stop_timeline"""
    with restarted(HOROVOD_TIMELINE="DYNAMIC"):
        errors = [error_of(hvd.stop_timeline), error_of(hvd.stop_timeline)]
        equal(hvd.allreduce(mine(), op=hvd.Sum), total())
    assert errors == [None, None]


def test_a_timeline_that_was_not_asked_for_at_init_is_a_value_error(shared_folder):
    """Contract §1.2 start_timeline"""
    with restarted(HOROVOD_TIMELINE=None):
        error = error_of(hvd.start_timeline, str(shared_folder / "timeline.json"))
    is_error(error, ValueError)


def test_start_and_stop_need_a_runtime():
    """Contract §1.2 start_timeline, stop_timeline"""
    hvd.barrier()
    hvd.shutdown()
    errors = [error_of(hvd.start_timeline, "/tmp/never"), error_of(hvd.stop_timeline)]
    hvd.init()
    for error in errors:
        is_error(error, ValueError)


@pytest.mark.parametrize("path", ["/proc/no/such/folder/timeline.json", "/"])
def test_a_path_that_cannot_be_written_leaves_the_runtime_usable(path):
    """Contract §6.10, issue 20: bad input"""
    with restarted(HOROVOD_TIMELINE="DYNAMIC"):
        error = error_of(hvd.start_timeline, path)
        found = hvd.allreduce(mine(), op=hvd.Sum)
        hvd.stop_timeline()
    equal(found, total())
    assert error is None or isinstance(error, ValueError)


@at_least(2)
def test_ops_of_process_sets_are_in_the_timeline(shared_folder):
    """Contract §6.10 timeline, §5 process sets"""
    path = shared_folder / "timeline.json"
    with restarted(HOROVOD_TIMELINE=path):
        added = hvd.add_process_set([0])
        if added.included():
            hvd.allreduce(torch.ones(3), name="inside", process_set=added)
        hvd.remove_process_set(added)
        events = reads(path, "allreduce.inside")
    assert hvd.rank() or checked(events)


def test_names_in_the_timeline_are_escaped(shared_folder):
    """Contract §6.10 valid JSON, §2.9"""
    path = shared_folder / "timeline.json"
    with restarted(HOROVOD_TIMELINE=path):
        hvd.allreduce(torch.ones(3), name='quote " backslash \\ line\n ≥')
        hvd.allreduce(torch.ones(3), name="last")
        events = reads(path, "allreduce.last")
    if hvd.rank() == 0:
        of_tensor(checked(events), 'allreduce.quote " backslash \\ line\n ≥')


@alone
def test_the_file_is_valid_after_the_job_was_killed(tmp_path):
    """Contract §6.10, issue 20: even after SIGKILL"""
    path = tmp_path / "timeline.json"
    with Job(tmp_path, 2, """
            hvd.init()
            if hvd.rank() == 0:
                (folder / "pid.new").write_text(str(os.getpid()))
                (folder / "pid.new").rename(folder / "pid")
            step = 0
            while True:
                hvd.allreduce(torch.ones(3), name=f"step.{step % 50}")
                step += 1
            """, HOROVOD_TIMELINE=path) as job:
        pid = int(job.heard("pid"))
        events = wait_for(lambda: len(read(path) or []) > 200 and read(path), "events")
        os.kill(pid, signal.SIGKILL)
        job.ends()
    left = read(path)
    assert len(left) >= len(events) > 200


@alone
def test_the_timeline_of_an_ended_job_is_complete(tmp_path):
    """Contract §6.10 timeline"""
    path = tmp_path / "timeline.json"
    with Job(tmp_path, 2, """
            hvd.init()
            for step in range(100):
                hvd.allreduce(torch.ones(3), name=f"step.{step}")
            """, options=["--timeline-filename", str(path)]) as job:
        assert job.ends() == 0, job.text()
    for step in range(100):
        found = of_tensor(read(path), f"allreduce.step.{step}")
        assert [event["ph"] for event in found].count("B") == [event["ph"] for event in found].count("E")
