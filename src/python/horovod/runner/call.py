"""Calls a function in every rank of a job that this process starts, and brings the results here.

1. This process opens a meeting and puts the pickled function there. horovodrun gets the place of the meeting in its
   environment, from where the ranks have it, whatever starts them.
2. Every rank is a process of `horovod.runner.run_task`: it enters the meeting, gets the function, calls it, and puts
   its result, or why it has failed.
3. When horovodrun has ended, everything that the ranks had to say is here.
"""
import codecs
import functools
import os
import pickle
import signal
import subprocess
import sys
import threading

from horovod import _core
from horovod.common.meeting import Meeting
from horovod.runner import run_task

# This program becomes horovodrun. The kernel ends that when this process ends, however that happens.
_WITH_THIS_PROCESS = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""
_LAST_LINES = 20


def in_job(command, args, results):
    """Starts the job of this command of horovodrun. Returns what args.run_func returns on the first `results` ranks."""
    if not isinstance(results, int) or results < 1:
        raise ValueError(f"horovod.run needs the number of ranks as num_proc, 1 or more; found {results!r}")
    _check_place()
    task = _pickled(args.run_func)
    interfaces = ",".join(sorted(args.nics)) if args.nics else None
    with Meeting(results, interfaces) as meeting:
        meeting.put(run_task.PATH, pickle.dumps(sys.path))
        run_task.put(meeting, run_task.TASK, *task)
        del task
        program = [args.executable or sys.executable, "-m", "horovod.runner.run_task"]
        code, said = _run([*command, *program], {**os.environ, **run_task.variables_of(meeting)})
        if code != 0:
            ranks = max(results, args.num_proc or 1, args.max_num_proc or 1)
            raise RuntimeError(_failure(meeting, ranks, code, said))
        return [_result_of(meeting, rank) for rank in range(results)]


def _check_place():
    """RuntimeError where no job can be started."""
    if "HOROVOD_RANK" in os.environ or run_task.ADDRESSES in os.environ or _core.is_initialized():
        raise RuntimeError("horovod.run was called inside a rank of a job. Call it in a program that horovodrun has "
                           "not started and that has not called hvd.init(): it starts the ranks itself")
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(f"horovod.run was called in the thread {threading.current_thread().name}; call it in the "
                           "main thread, which gets Ctrl-C and with whose end the job ends")


def _pickled(function):
    name = function.func if isinstance(function, functools.partial) else function
    try:
        import cloudpickle  # noqa: F401 (run_task imports it, too)
    except ImportError as error:
        raise ImportError("horovod.run needs the package cloudpickle, here and in the ranks: pip install cloudpickle"
                          ) from error
    try:
        return run_task.pickled(function)
    except Exception as error:
        raise pickle.PicklingError(f"horovod.run cannot send {name!r} and its arguments to the ranks: {error}. Open "
                                   "files, locks and connections there instead, in the function") from error


def _run(command, environment):
    """Returns the exit code, and the last lines that horovodrun itself has written."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _WITH_THIS_PROCESS, str(os.getpid()), *command], env=environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    said, faults, copies = [], [], []
    try:
        for pair in (process.stdout, sys.stdout, None), (process.stderr, sys.stderr, said):
            copy = threading.Thread(target=_copy, args=(*pair, faults), daemon=True)
            copy.start()
            copies.append(copy)
        code = process.wait()
    except BaseException:
        _end(process)
        raise
    finally:
        for copy in copies:
            copy.join()
    return code, said + faults


def _end(process):
    """Asks horovodrun to end the job. Each further Ctrl-C asks more urgently."""
    ways = [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        ways.remove(signal.SIGINT)  # a shell has started this process in the background, and horovodrun ignores it, too
    for how in ways:
        process.send_signal(how)
        try:
            process.wait()
            return
        except KeyboardInterrupt:
            continue
    process.wait()


def _copy(source, destination, said, faults):
    """Copies what comes out of a pipe to a stream of Python, which in a notebook is no file. If that cannot be written,
    the pipe is closed, by which horovodrun ends the job as if its own output could not be written."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    name, encoding = "sys.stdout" if said is None else "sys.stderr", getattr(destination, "encoding", None)
    unfinished = ""
    try:
        for piece in iter(lambda: source.read1(1 << 16), b""):
            text = decoder.decode(piece)
            if destination is not None:  # Python has no stream where the descriptor was closed at its start
                destination.write(text.encode(encoding, "replace").decode(encoding) if encoding else text)
                destination.flush()
            if said is not None:
                *lines, unfinished = (unfinished + text).split("\n")
                said += [line for line in lines if line.startswith(("horovodrun: ", "FIRST FAILURE: "))]
                del said[:-_LAST_LINES]
    except Exception as error:
        faults.append(f"horovod.run cannot write what comes from the ranks to {name}: {type(error).__name__}: {error}")
    finally:
        source.close()


def _failure(meeting, ranks, code, said):
    """Describes why the job has failed: what horovodrun has said, and why the function failed on a rank, preferably not
    one that only noticed the failure of another."""
    text = ("Horovod detected that one or more processes exited with non-zero status, thus causing the job to be "
            f"terminated: horovodrun ended with exit code {code}")
    text += "".join(f"\n{line}" for line in said)
    found = run_task.failures_in(meeting, range(ranks))
    if found:
        causes = [failure for failure in found if not failure.is_consequence] or found
        others = sorted({failure.rank for failure in found} - {causes[0].rank})
        text += f"\nRank {causes[0].rank} {causes[0].what}"
        if others:
            text += f"\n(the function failed on ranks {', '.join(map(str, others))}, too)"
    return text


def _result_of(meeting, rank):
    try:
        value, buffers = run_task.get(meeting, run_task.result_of(rank), timeout=0, forget=True)
    except TimeoutError:
        raise RuntimeError(f"rank {rank} has ended without a result: its function has ended the process (os._exit, "
                           "sys.exit)") from None
    try:
        return pickle.loads(value, buffers=buffers)
    except Exception as error:
        raise RuntimeError(f"the result of rank {rank} cannot be read here: {type(error).__name__}: {error}") from error
