"""Tests of the stall inspector, and of the format of log messages."""
import re

import pytest

from ranks import Job, alone, limit, wait_for

LATE = """
    hvd.init()
    if hvd.rank() == 1:
        wait_for("go")
    {sets}
    try:
        hvd.allreduce(torch.ones(3), name="late", **options)
        (folder / f"done.{{hvd.rank()}}").touch()
    except hvd.HorovodInternalError:
        (folder / f"error.{{hvd.rank()}}").touch()
    wait_for("go")
"""
PROGRAM = LATE.format(sets="options = {}")
CHECK = {"HOROVOD_STALL_CHECK_TIME_SECONDS": 1}


def told(job, words):
    wait_for(lambda: words in job.text() or job.process.poll() is not None, words, 30)
    assert words in job.text()
    return job.text()


@alone
def test_a_warning_names_the_missing_ranks_and_the_tensors(tmp_path):
    """Contract §6.9 stall inspector"""
    with Job(tmp_path, 2, PROGRAM, **CHECK) as job:
        text = told(job, "Missing ranks:")
        job.say("go")
        code = job.ends()
    assert re.search(r"1: \[.*allreduce\.late.*\]", text.split("Missing ranks:")[1])
    assert code == 0 and (tmp_path / "done.0").exists() and (tmp_path / "done.1").exists()


@alone
def test_a_long_list_of_tensors_is_cut_short(tmp_path):
    """Contract §6.9: at most about six names"""
    with Job(tmp_path, 2, """
            hvd.init()
            if hvd.rank() == 1:
                wait_for("go")
            handles = [hvd.allreduce_async(torch.ones(3), name=f"many.{i}") for i in range(20)]
            for handle in handles:
                hvd.synchronize(handle)
            """, **CHECK) as job:
        text = told(job, "Missing ranks:")
        job.say("go")
        code = job.ends()
    line = next(line for line in text.split("Missing ranks:")[1].splitlines() if "1: [" in line)
    assert "..." in line and 1 <= line.count("allreduce.many") <= 8 and code == 0


@alone
def test_each_missing_rank_has_a_line_of_its_own(tmp_path):
    """Contract §6.9 stall inspector"""
    with Job(tmp_path, 3, """
            hvd.init()
            if hvd.rank():
                wait_for("go")
            hvd.allreduce(torch.ones(3), name="late")
            """, **CHECK) as job:
        text = told(job, "Missing ranks:")
        job.say("go")
        assert job.ends() == 0, job.text()
    after = text.split("Missing ranks:")[1]
    assert re.search(r"1: \[.*allreduce\.late", after) and re.search(r"2: \[.*allreduce\.late", after)


@alone
def test_after_the_shutdown_time_all_ranks_get_an_error(tmp_path):
    """Contract §6.9, §2.10 stall shutdown"""
    with Job(tmp_path, 2, LATE.format(sets="options = {}").replace('if hvd.rank() == 1:\n        wait_for("go")',
                                                                   'if hvd.rank() == 1:\n        wait_for("error.0")'),
             hold=True, HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=2, **CHECK) as job:
        job.heard("error.0")
        job.heard("error.1")  # rank 1 gets an error, too, for the op that it submits later
        job.say("go")
        job.say("over")
        job.ends()
    assert re.search(r"1!: \[.*allreduce\.late", job.text())


@alone
def test_a_shutdown_time_below_the_check_time_is_ignored(tmp_path):
    """Contract §6.9 stall inspector"""
    with Job(tmp_path, 2, PROGRAM, HOROVOD_STALL_CHECK_TIME_SECONDS=2, HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=1) as job:
        told(job, "Missing ranks:")
        job.say("go")
        code = job.ends()
    assert code == 0 and (tmp_path / "done.0").exists() and not (tmp_path / "error.0").exists(), job.text()
    assert "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS" in job.text()


@alone
def test_the_check_can_be_switched_off(tmp_path):
    """Contract §6.9 HOROVOD_STALL_CHECK_DISABLE"""
    # A second job has the check on. Its warning shows the time at which the first job would have been warned.
    (tmp_path / "off").mkdir()
    (tmp_path / "on").mkdir()
    with Job(tmp_path / "off", 2, PROGRAM, HOROVOD_STALL_CHECK_DISABLE=1, HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=2,
             **CHECK) as off, Job(tmp_path / "on", 2, PROGRAM, **CHECK) as on:
        told(on, "Missing ranks:")
        on.say("go")
        off.say("go")
        codes = [on.ends(), off.ends()]
    assert codes == [0, 0] and "Missing ranks" not in off.text() and (tmp_path / "off" / "done.0").exists()


@alone
def test_a_set_is_watched_too_and_its_ranks_are_global(tmp_path):
    """Contract §6.9 stall inspector, §5 process sets"""
    with Job(tmp_path, 3, """
            late = hvd.ProcessSet([1, 2])
            hvd.init(process_sets=[late])
            if hvd.rank() == 2:
                wait_for("go")
            if hvd.rank():
                hvd.allreduce(torch.ones(3), name="inside", process_set=late)
            hvd.barrier()
            """, **CHECK) as job:
        wait_for(lambda: "allreduce.inside" in job.text() or job.process.poll() is not None, "inside", 30)
        text = job.text()
        job.say("go")
        assert job.ends() == 0, job.text()
    assert re.search(r"2: \[.*allreduce\.inside", text)


@alone
def test_a_cached_tensor_that_stalls_is_reported_too(tmp_path):
    """Contract §6.3: invalidated so that it can be reported"""
    with Job(tmp_path, 2, """
            hvd.init()
            for _ in range(5):
                hvd.allreduce(torch.ones(3), name="cached")
            if hvd.rank() == 1:
                wait_for("go")
            assert hvd.allreduce(torch.ones(3), op=hvd.Average, name="cached").tolist() == [1, 1, 1]
            """, **CHECK) as job:
        text = told(job, "Missing ranks:")
        job.say("go")
        assert job.ends() == 0, job.text()
    assert re.search(r"1: \[.*allreduce\.cached", text)


@alone
@limit(120)
def test_a_stalled_script_ends_within_45_seconds(tmp_path):
    """Contract §6.9 test_stall [Horovod tests this]"""
    with Job(tmp_path, 2, """
            import signal
            signal.alarm(45)
            hvd.init()
            if hvd.rank() == 1:
                wait_for("error")
            try:
                hvd.allreduce(torch.ones(3), name="stalled")
            except Exception:
                (folder / "error").touch()
            """, hold=True, HOROVOD_STALL_CHECK_TIME_SECONDS=2, HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=5) as job:
        job.heard("error")
        job.say("over")
        job.ends()


# ---- logging

STAMP = r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: (WARNING|W|warning)[^\]]*\]"


@alone
@pytest.mark.parametrize("hidden", [0, 1])
def test_a_message_has_its_time_unless_that_is_hidden(hidden, tmp_path):
    """Contract §6.14 HOROVOD_LOG_HIDE_TIME"""
    with Job(tmp_path, 2, PROGRAM, HOROVOD_LOG_HIDE_TIME=hidden, **CHECK) as job:
        text = told(job, "Missing ranks:")
        job.say("go")
        assert job.ends() == 0, job.text()
    assert bool(re.search(STAMP, text)) is not bool(hidden), text
    assert re.search("warning", text, re.IGNORECASE)


@alone
def test_warnings_go_to_standard_error(tmp_path):
    """Contract §6.14 logging"""
    with Job(tmp_path, 2, PROGRAM, options=["--output-filename", str(tmp_path / "out")], **CHECK) as job:
        wait_for(lambda: any("Missing ranks:" in each.read_text() for each in (tmp_path / "out").glob("rank.*/stderr"))
                 or job.process.poll() is not None, "the warning", 30)
        job.say("go")
        assert job.ends() == 0, job.text()
    assert any("Missing ranks:" in each.read_text() for each in (tmp_path / "out").glob("rank.*/stderr"))
    assert not any("Missing ranks:" in each.read_text() for each in (tmp_path / "out").glob("rank.*/stdout"))


@alone
def test_the_level_of_messages_can_be_raised(tmp_path):
    """Contract §6.14 HOROVOD_LOG_LEVEL"""
    (tmp_path / "off").mkdir()
    (tmp_path / "on").mkdir()
    with Job(tmp_path / "off", 2, PROGRAM, HOROVOD_LOG_LEVEL="error", **CHECK) as quiet, \
            Job(tmp_path / "on", 2, PROGRAM, HOROVOD_LOG_LEVEL="warning", **CHECK) as loud:
        told(loud, "Missing ranks:")
        for job in (quiet, loud):
            job.say("go")
        codes = [quiet.ends(), loud.ends()]
    assert codes == [0, 0] and "Missing ranks:" not in quiet.text()
