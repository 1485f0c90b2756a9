"""horovod.run: a function in every rank of a job that a program starts. Meetings: the same by hand."""
import functools
import io
import os
import pickle
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time

import numpy
import pytest

import horovod
from horovod.common.meeting import Meeting
from horovod.runner import _HorovodArgs, call, flags, launch

# The jobs need no framework, which takes seconds to import.
BASICS = "from horovod.common.basics import HorovodBasics as hvd; hvd = hvd()\n"


def test_the_results_are_those_of_the_ranks_in_their_order(capfd):
    large = os.urandom(3 << 20)

    def function(first, second="-"):
        from horovod.common.basics import HorovodBasics
        hvd = HorovodBasics()
        hvd.init()
        print("printed by", hvd.rank())
        return hvd.rank(), hvd.size(), first[:hvd.rank()] + second.encode(), first

    results = horovod.run(function, args=(large,), kwargs={"second": "+"}, num_proc=2)
    assert [result[:3] for result in results] == [(0, 2, b"+"), (1, 2, large[:1] + b"+")]
    assert all(result[3] == large for result in results)
    assert {f"[{rank}]<stdout>:printed by {rank}" for rank in range(2)} <= set(capfd.readouterr().out.splitlines())


def test_arrays_come_as_they_were_and_can_be_changed():
    whole = numpy.arange(1 << 20, dtype=numpy.float32).reshape(1024, 1024)
    fixed = whole.copy()
    fixed.flags.writeable = False
    given = {"whole": whole, "columns": whole[:, ::2], "turned": whole.T, "fixed": fixed, "none": whole[:0]}

    def function(arrays, again):
        assert again is arrays["whole"]
        can_be_changed = {name: array.flags.writeable for name, array in arrays.items()}
        again += int(os.environ["HOROVOD_RANK"])
        return arrays, can_be_changed

    for rank, (found, can_be_changed) in enumerate(horovod.run(function, args=(given, whole), num_proc=2)):
        for name, array in given.items():
            assert numpy.array_equal(found[name], array + rank if name == "whole" else array), name
            assert can_be_changed[name] == found[name].flags.writeable == (name != "fixed"), name


def test_an_array_is_sent_while_its_owner_still_lives():
    def function():
        class Owner:
            def __init__(self):
                self.array = numpy.ones(1 << 18)  # 2 MiB, sent from its memory

            def __del__(self):
                self.array[:] = -1

        return Owner()

    assert horovod.run(function, num_proc=1)[0].array.sum() == 1 << 18


def test_memory_is_sent_and_filled_in_place():
    with Meeting(1, "lo") as meeting:
        for value in (os.urandom(5 << 20), b"", b"x"):
            for form in (bytes, bytearray, memoryview):
                meeting.put("value", form(value))
                place = bytearray(len(value))
                meeting.get_into("value", place)
                assert place == value == meeting.get("value", 0), form
        with pytest.raises(ValueError, match="has 1 bytes; there is room for 2"):
            meeting.get_into("value", bytearray(2))
        with pytest.raises(TypeError):
            meeting.get_into("value", b"x")


def test_a_rank_that_raises_ends_the_job_and_its_traceback_is_in_the_error(capfd):
    def function():
        rank = int(os.environ["HOROVOD_RANK"])
        if rank == 1:
            raise KeyError("what rank 1 lacks")
        time.sleep(100)

    with pytest.raises(RuntimeError) as failed:
        horovod.run(function, num_proc=2)
    text = str(failed.value)
    assert text.startswith("Horovod detected that one or more processes exited with non-zero status"), text
    assert "FIRST FAILURE: rank 1 on" in text and "KeyError: 'what rank 1 lacks'" in text, text
    assert "Rank 1 raised" in text and "in function" in text and "run_task.py" not in text, text
    assert "what rank 1 lacks" in capfd.readouterr().err


@pytest.mark.parametrize("function,error,text", [
    (threading.Lock, RuntimeError, "Rank 0 raised.*the result of the function cannot be sent.*it is a lock"),
    (functools.partial(sys.exit, 7), RuntimeError, r"ended with exit code 7\n.*Rank 0 called sys\.exit\(7\)"),
    (functools.partial(os._exit, 0), RuntimeError, "rank 0 has ended without a result"),
    (functools.partial(print, threading.Lock()), pickle.PicklingError, "cannot send <built-in function print>"),
    (functools.partial(horovod.run, print), RuntimeError, "horovod.run was called inside a rank of a job")])
def test_what_cannot_be_is_named(function, error, text, capfd):
    with pytest.raises(error, match="(?s)" + text):
        horovod.run(function)


def test_in_an_elastic_job_a_function_without_init_has_no_rank(capfd):
    with pytest.raises(RuntimeError, match="returned without a rank.*call it in the function"):
        horovod.run(int, num_proc=2, min_num_proc=1)

    def function():
        from horovod.common.basics import HorovodBasics
        hvd = HorovodBasics()
        hvd.init()
        rank = hvd.rank()
        hvd.shutdown()
        return rank

    assert horovod.run(function, num_proc=2, min_num_proc=2) == [0, 1]


def test_the_place_and_the_arguments_are_checked():
    failed = []

    def call():
        try:
            horovod.run(print)
        except RuntimeError as error:
            failed.append(str(error))

    thread = threading.Thread(target=call, name="another")
    thread.start()
    thread.join()
    assert "in the thread another; call it in the main thread" in failed[0]
    for wrong, text in ((dict(hosts="a:1", hostfile="b"), "hosts or hostfile"),
                        (dict(use_gloo=True, use_mpi=True), "use_gloo or use_mpi"), (dict(num_proc=0), "1 or more"),
                        (dict(num_proc=None), "1 or more"),
                        *((dict(num_proc=2, **{name: each}), f"{name}: expected a number of ranks, found")
                          for name in ("min_num_proc", "max_num_proc") for each in (True, 2.0, "2")),
                        (dict(num_proc=True), "num_proc: expected a number of ranks, found True")):
        with pytest.raises(ValueError, match=text):
            horovod.run(print, **wrong)


class Closed(io.StringIO):
    """A stream whose reader has ended."""

    def write(self, text):
        raise BrokenPipeError("nobody reads")


def test_output_that_cannot_be_written_ends_the_job(monkeypatch):
    def function():
        for _ in range(1 << 12):
            print("x" * 1023, flush=True)  # more than pipes hold
        time.sleep(100)

    monkeypatch.setattr(sys, "stdout", Closed())
    with pytest.raises(RuntimeError, match="cannot write what comes from the ranks to sys.stdout: BrokenPipeError"):
        horovod.run(function, num_proc=1)


def test_output_may_have_letters_that_the_stream_does_not_have(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8")
    assert horovod.run(functools.partial(print, "caf\u00e9", flush=True), num_proc=1) == [None]
    assert b"[0]<stdout>:caf?\n" in written.getvalue()


def test_all_arguments_are_flags_of_horovodrun(monkeypatch):
    started = []
    monkeypatch.setattr(launch, "_run", started.append)
    with pytest.warns(DeprecationWarning, match="network_interface is deprecated"):
        horovod.run(
            print, num_proc=numpy.int64(4), min_num_proc=2, max_num_proc=6, slots=2, reset_limit=3,
            cooldown_range=(1, 9), hosts="n1:2,n2:2", start_timeout=50, ssh_port=22, ssh_identity_file="key",
            disable_cache=True, output_filename="folder", verbose=2, use_mpi=True, mpi_args="--one --two",
            network_interface="a,b", network_interfaces=["c"])
    assert type(started[0].num_proc) is int
    found = flags.flags_of(started[0])
    assert sorted(found) == sorted([
        "--num-proc=4", "--min-num-proc=2", "--max-num-proc=6", "--slots-per-host=2", "--reset-limit=3",
        "--blacklist-cooldown-range", "1", "9", "--hosts=n1:2,n2:2", "--start-timeout=50", "--ssh-port=22",
        "--ssh-identity-file=key", "--disable-cache", "--output-filename=folder", "--verbose", "--mpi",
        "--mpi-args=--one --two", "--network-interfaces=a,b,c"])
    assert flags.flags_of(_HorovodArgs()) == ["--num-proc=1"]


def test_a_config_file_has_pairs_and_values_of_sections(tmp_path):
    file = tmp_path / "a, line 2.yaml"
    file.write_text("horovodrun:\n  blacklist-cooldown-range: 1,9\n  verbose: true\n"
                    "stall_check:\n  warning_time_seconds: 30\n")
    args = flags.parser().parse_args([f"--config-file={file}"])
    flags.add_config_file(args, launch.program())
    assert (args.cooldown_range, args.verbose, args.num_proc) == ([1, 9], True, None)
    assert (args.no_stall_check, args.stall_check_warning_time_seconds) == (False, 30)


def test_every_flag_is_one_of_horovodrun():
    known = subprocess.run([launch.program(), "--help"], stdout=subprocess.PIPE, text=True, timeout=50).stdout
    for action in flags.parser()._actions:
        assert not action.option_strings or action.option_strings[-1] in known, action.option_strings


def program(tmp_path, text):
    (tmp_path / "program.py").write_text(textwrap.dedent(text))
    return [sys.executable, str(tmp_path / "program.py")]


def is_alive(process):
    try:
        with open(f"/proc/{process}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_the_job_ends_with_the_program_that_called(how, tmp_path):
    command = program(tmp_path, """
        import horovod, os, signal, time
        import beside

        signal.signal(signal.SIGINT, signal.default_int_handler)  # tests that run in the background ignore it

        def function():
            print("rank", beside.process(), flush=True)
            time.sleep(1000)

        horovod.run(function, num_proc=2)
    """)
    (tmp_path / "beside.py").write_text("import os\nprocess = os.getpid\n")
    caller = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/")
    ranks = [int(caller.stdout.readline().split()[-1]) for _ in range(2)]
    caller.send_signal(how)
    _, errors = caller.communicate(timeout=240)
    assert "KeyboardInterrupt" in errors or how == signal.SIGKILL, errors
    while any(is_alive(rank) for rank in ranks):  # the limit is that of the test
        time.sleep(0.05)


def test_an_interrupt_before_anything_is_read_ends_the_job(monkeypatch):
    started = []

    class Started(subprocess.Popen):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            started.append(self)

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(call.subprocess, "Popen", Started)
    monkeypatch.setattr(threading.Thread, "start", interrupt)
    with pytest.raises(KeyboardInterrupt):
        horovod.run(functools.partial(time.sleep, 1000))
    assert [process.poll() is not None for process in started] == [True]


def test_ranks_meet_and_give_results_without_a_launcher(tmp_path):
    command = program(tmp_path, BASICS + textwrap.dedent("""
        import os
        from horovod.common.meeting import Meeting
        place = [os.environ[name] for name in ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT",
                                               "HOROVOD_SECRET_KEY")]
        hvd.init()
        with Meeting.enter(*place, timeout=30) as meeting:
            meeting.put(f"result of {hvd.rank()}", meeting.get("task") + str(hvd.size()).encode())
        hvd.shutdown()
    """))
    with Meeting(2, "lo") as meeting:
        meeting.put("task", b"of ")
        ranks = [subprocess.Popen(command, env={**os.environ, **meeting.variables(rank)}) for rank in range(2)]
        assert [meeting.get(f"result of {rank}", timeout=240) for rank in range(2)] == [b"of 2"] * 2
        assert [rank.wait(60) for rank in ranks] == [0, 0]
        with pytest.raises(TimeoutError, match="no value"):
            meeting.get("never put", timeout=0)
    with pytest.raises(ValueError, match="expected a rank"):
        Meeting(1, "lo").variables(1)


def test_entering_a_meeting_where_nothing_answers_ends(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = "127.0.0.1", str(silent.getsockname()[1]), "a secret of 16 bytes"
        monkeypatch.setenv("HOROVOD_START_TIMEOUT", "0.1")
        with pytest.raises(TimeoutError):
            Meeting.enter(*place)
        former = signal.signal(signal.SIGALRM, signal.default_int_handler)  # as Ctrl-C
        try:
            with pytest.raises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                Meeting.enter(*place, timeout=1000)
        finally:
            signal.signal(signal.SIGALRM, former)


def test_rank_0_serves_where_nobody_else_does(tmp_path):
    command = program(tmp_path, BASICS + "hvd.init(); print(hvd.rank(), hvd.size()); hvd.shutdown()")
    with Meeting(1, "lo") as free:
        port = free.place()[1]
    environment = {**os.environ, "HOROVOD_SIZE": "2", "HOROVOD_GLOO_RENDEZVOUS_ADDR": "localhost",
                   "HOROVOD_GLOO_RENDEZVOUS_PORT": port, "HOROVOD_RENDEZVOUS_SERVE": "1",
                   "HOROVOD_SECRET_KEY": "of the ranks of this test"}
    ranks = [subprocess.Popen(command, env={**environment, "HOROVOD_RANK": str(rank)}, text=True,
                              stdout=subprocess.PIPE) for rank in (1, 0)]
    assert [rank.communicate(timeout=240)[0] for rank in ranks] == ["1 2\n", "0 2\n"]
