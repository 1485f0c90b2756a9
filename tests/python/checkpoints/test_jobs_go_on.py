"""Jobs that go on from the checkpoint of an earlier job: with another number of ranks, with two jobs that use one path,
after the death of a rank, with a full disk."""
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import pytest

HOROVODRUN = os.environ.get("HOROVODRUN", "horovodrun")

TRAINING = """
    import os, sys, time
    import torch
    import horovod.torch as hvd

    hvd.init()
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(50, 40)
    hvd.broadcast_parameters(model.state_dict(), 0)
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters()),
    named_parameters=model.named_parameters())

    def train(step):
        torch.manual_seed(step)  # the same data on all ranks, so that their number does not matter
        optimizer.zero_grad()
        model(torch.randn(16, 50)).square().mean().backward()
        optimizer.step()
"""


def program_in(folder, text, name="program.py"):
    (folder / name).write_text(textwrap.dedent(TRAINING) + textwrap.dedent(text))
    return str(folder / name)


def start(ranks, *command, **options):
    return subprocess.Popen([HOROVODRUN, "-np", str(ranks), sys.executable, *command],
                            text=True,
                            stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT,
                            **options)


def run(ranks, *command, expected=0, **options):
    process = start(ranks, *command, **options)
    output, _ = process.communicate(timeout=200)
    assert process.returncode == expected, output
    return output


def test_another_number_of_ranks_goes_on(tmp_path):
    program = program_in(tmp_path, """
        steps, out = int(sys.argv[1]), sys.argv[2]
        with hvd.checkpoint.Checkpointer("run", model, optimizer, every_steps=2) as checkpointer:
            first = (checkpointer.restore()["step"] or 0) + 1
            for step in range(first, steps + 1):
                train(step)
                checkpointer.step(step)
        if hvd.rank() == 0:
            torch.save(model.state_dict(), out)
    """)
    import torch
    (tmp_path / "whole").mkdir()
    run(2, program, "6", "out", cwd=tmp_path / "whole")
    run(2, program, "2", "out", cwd=tmp_path)
    run(3, program, "4", "out", cwd=tmp_path)
    run(1, program, "6", "out", cwd=tmp_path)
    whole, parts = torch.load(tmp_path / "whole" / "out"), torch.load(tmp_path / "out")
    for name in whole:  # an average over three ranks is rounded differently
        assert torch.allclose(whole[name], parts[name], rtol=1e-4, atol=1e-6)


def wait_for(path, process):
    for _ in range(1200):
        if path.exists():
            return
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.1)
    raise AssertionError(f"{path} did not come")


def test_a_second_job_in_the_same_place_is_refused_until_the_first_is_dead(tmp_path):
    program = program_in(tmp_path, """
        hvd.checkpoint.save("run.h5", model, optimizer, step=hvd.size())
        if hvd.rank() == 0:
            open(f"saved.{hvd.size()}.{os.getpid()}", "w").close()
            while len(sys.argv) > 1:
                time.sleep(1)
        hvd.barrier()
    """)
    first = start(2, program, "stay", cwd=tmp_path)
    try:
        for _ in range(1200):
            found = list(tmp_path.glob("saved.2.*"))
            if found:
                break
            assert first.poll() is None, first.communicate()[0]
            time.sleep(0.1)
        owner = int(found[0].name.split(".")[-1])
        output = run(1, program, cwd=tmp_path, expected=1)
        assert "run.h5 belongs to another job: process" in output and f"process {owner} on host" in output, output
        os.kill(owner, signal.SIGKILL)
        first.communicate(timeout=60)
        run(1, program, cwd=tmp_path)
        assert list(tmp_path.glob("saved.1.*"))
    finally:
        if first.poll() is None:
            first.kill()


def test_a_rank_that_dies_in_a_save_leaves_a_checkpoint_that_all_resume_from(tmp_path):
    program = program_in(tmp_path, """
        import threading
        delay = float(sys.argv[1])
        big = torch.nn.Linear(1500, 1500)
        hvd.broadcast_parameters(big.state_dict(), 0)
        with hvd.checkpoint.Checkpointer("run", big, every_steps=1, asynchronous=delay > 0.1) as checkpointer:
            first = (checkpointer.restore()["step"] or 0) + 1
            if first > 1:
                assert (big.weight == first - 1).all()
            if delay and hvd.rank() == 0:
                threading.Timer(delay, lambda: os.kill(os.getpid(), 9)).start()
            for step in range(first, first + (100000 if delay else 1)):
                big.weight.data.fill_(step)
                checkpointer.step(step)
        print("resumed from", first - 1)
    """)
    for delay in ("0.05", "0.3"):
        output = run(2, program, delay, cwd=tmp_path, expected=128 + 9)
        assert "FIRST FAILURE: rank 0" in output, output
    assert "resumed from 0" not in run(2, program, "0", cwd=tmp_path)


def test_what_was_begun_is_finished_when_the_program_just_ends(tmp_path):
    program = program_in(tmp_path, """
        checkpointer = hvd.checkpoint.Checkpointer("run", torch.nn.Linear(2000, 2000), every_steps=1)
        checkpointer.save(1)
    """)
    run(2, program, cwd=tmp_path)
    names = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert names == ["step-000000000001.h5"]  # neither a lease nor an unfinished file is left


def in_own_mounts(commands, program, folder):
    """Runs the commands, then the program, in a mount namespace of their own. Skips the test if this is not allowed
    here."""
    if subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode != 0:
        pytest.skip("no mounts of our own here")
    script = f"{commands} && exec {sys.executable} {program}"
    ran = subprocess.run(["unshare", "-rm", "sh", "-c", script],
                         cwd=folder,
                         capture_output=True,
                         text=True,
                         timeout=100)
    return ran.returncode, ran.stdout + ran.stderr


REFUSED = """
    before = hvd.checkpoint.restore("place/a.h5")["step"] if os.path.exists("place/a.h5") else None
    try:
        hvd.checkpoint.save("place/a.h5", torch.nn.Linear(1000, 1000), step=9)
    except OSError as error:
        print("refused:", error)
    else:
        sys.exit("it was not refused")
    after = hvd.checkpoint.restore("place/a.h5")["step"] if os.path.exists("place/a.h5") else None
    assert before == after, (before, after)
    print("left:", sorted(name for name in os.listdir("place") if "writing" in name))
"""


def test_a_full_disk_is_named_and_what_was_there_stays(tmp_path):
    (tmp_path / "place").mkdir()
    program = program_in(
        tmp_path, 'hvd.checkpoint.save("place/a.h5", torch.nn.Linear(2, 2), step=3)\n' + textwrap.dedent(REFUSED))
    code, output = in_own_mounts("mount -t tmpfs -o size=3m none place", program, tmp_path)
    assert code == 0 and "no room for" in output and "MiB are free" in output and "left: []" in output, output


def test_a_folder_that_may_only_be_read_is_named(tmp_path):
    (tmp_path / "place").mkdir()
    program = program_in(tmp_path, REFUSED)
    code, output = in_own_mounts("mount --bind place place && mount -o remount,bind,ro place", program, tmp_path)
    assert code == 0 and "refused: cannot write" in output, output


def test_a_limit_on_the_size_of_files_is_named_as_a_quota_is(tmp_path):
    (tmp_path / "place").mkdir()
    program = program_in(tmp_path, REFUSED)
    script = f"ulimit -f 2000 && exec {sys.executable} {program}"
    ran = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0 and "no room for" in ran.stdout and "left: []" in ran.stdout, ran.stdout + ran.stderr
