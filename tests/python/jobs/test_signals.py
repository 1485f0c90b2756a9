"""Programs that handle SIGTERM as users write it (save a checkpoint, shut down, exit), and shutdowns by other
threads."""
import os
import subprocess
import sys
import textwrap

import pytest

HOROVODRUN = os.environ.get("HOROVODRUN", "horovodrun")

COMMON = textwrap.dedent("""
    import os, signal, sys, threading, time
    import torch
    import horovod.torch as hvd
    from horovod import _core

    main = threading.main_thread().ident
    def wait_for(is_so):  # until somebody else has done something; the test's own limit ends it
        while not is_so():
            time.sleep(0.01)
    def exists(name):
        return lambda: os.path.exists(name)
    def say(name):
        open(name, "w").close()
    def when(is_so, do):
        thread = threading.Thread(target=lambda: (wait_for(is_so), do()), daemon=True)
        thread.start()
        return thread
    def is_main_in(function):  # and waits in C: it stays at one instruction
        seen = []
        def asked():
            frame = sys._current_frames()[main]
            seen.append((frame.f_code, frame.f_lasti))
            while frame is not None and frame.f_code.co_name != function:
                frame = frame.f_back
            return frame is not None and len(seen) >= 10 and len(set(seen[-10:])) == 1
        return asked
    def signal_me():
        os.kill(os.getpid(), signal.SIGTERM)
""")


def run(folder, program, ranks=2, code=0):
    (folder / "program.py").write_text(COMMON + textwrap.dedent(program))
    found = subprocess.run([HOROVODRUN, "-np", str(ranks), sys.executable, "program.py"], cwd=folder,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240)
    assert found.returncode == code, found.stdout
    return found.stdout


def test_a_handler_shuts_down_while_an_operation_is_waited_for(tmp_path):
    output = run(tmp_path, """
        signal.signal(signal.SIGTERM, lambda *_: (hvd.shutdown(), print("checkpointed")))
        hvd.init()
        hvd.barrier()
        if hvd.rank() == 0:
            def waiting():
                return hvd.allreduce(torch.ones(3), name="never")
            when(is_main_in("waiting"), signal_me)
            try:
                waiting()
                sys.exit("no error")
            except hvd.HorovodInternalError as error:
                print("heard:", error)
            assert not hvd.is_initialized()
            say("heard")
        else:
            wait_for(exists("heard"))
            hvd.shutdown()
        hvd.init()
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == 2
    """)
    assert "checkpointed" in output and "shut down by this process" in output


def test_a_handler_shuts_down_and_exits(tmp_path):
    run(tmp_path, """
        signal.signal(signal.SIGTERM, lambda *_: (hvd.shutdown(), sys.exit(0)))
        hvd.init()
        def waiting():
            hvd.allreduce(torch.ones(3), name=f"of {hvd.rank()}")
        when(is_main_in("waiting"), signal_me)
        waiting()
    """)


def test_a_handler_that_only_raises_leaves_the_operation_its_memory(tmp_path):
    run(tmp_path, """
        class Alarm(Exception):
            pass
        def ring(*_):
            raise Alarm
        signal.signal(signal.SIGTERM, ring)
        hvd.init()
        if hvd.rank() == 0:
            def waiting():
                hvd.synchronize(handle)
            handle = hvd.allreduce_async(torch.ones(300_000), op=hvd.Sum, name="late")
            when(is_main_in("waiting"), signal_me)
            try:
                waiting()
                sys.exit("no alarm")
            except Alarm:
                say("rang")
            assert hvd.synchronize(handle).eq(2).all()
        else:
            wait_for(exists("rang"))
            hvd.allreduce(torch.ones(300_000), op=hvd.Sum, name="late")
    """)


def test_a_handler_that_shuts_down_during_init_ends_it_with_an_error(tmp_path):
    output = run(tmp_path, """
        signal.signal(signal.SIGTERM, lambda *_: hvd.shutdown())
        if os.environ["HOROVOD_RANK"] == "0":
            when(is_main_in("init"), lambda: (signal_me(), say("signalled")))
        else:
            wait_for(exists("signalled"))
        try:
            hvd.init()
            hvd.barrier()
            sys.exit("no error")
        except hvd.HorovodInternalError as error:
            print(error)
        hvd.shutdown()
        assert not hvd.is_initialized()
    """)
    assert "signal's handler" in output


def test_a_handler_and_another_thread_shut_down_at_once(tmp_path):
    run(tmp_path, """
        signal.signal(signal.SIGTERM, lambda *_: hvd.shutdown())
        hvd.init()
        def waiting():
            hvd.allreduce(torch.ones(3), name=f"of {hvd.rank()}")
        when(is_main_in("waiting"), signal_me)
        thread = when(is_main_in("waiting"), hvd.shutdown)
        try:
            waiting()
            sys.exit("no error")
        except hvd.HorovodInternalError:
            pass
        thread.join()
        assert not hvd.is_initialized()
    """)


@pytest.mark.parametrize("call", ["hvd.synchronize(handle)", "hvd.mpi_ops.synchronize_all([handle])"])
def test_a_waiting_thread_hears_of_a_shutdown_when_no_operation_writes_any_more(tmp_path, call):
    output = run(tmp_path, """
        hvd.init()
        hvd.barrier()
        if hvd.rank() == 0:
            handle = hvd.allreduce_async(torch.ones(3), name="never")
            def waiting():
                CALL
            thread = when(is_main_in("waiting"), hvd.shutdown)
            try:
                waiting()
                sys.exit("no error")
            except hvd.HorovodInternalError as error:
                print("heard:", error)
            thread.join()
            say("heard")
        else:
            wait_for(exists("heard"))
    """.replace("CALL", call))
    assert "heard: Horovod has been shut down by this " in output
