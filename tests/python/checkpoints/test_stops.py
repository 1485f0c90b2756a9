"""The scheduler ends a job before its training is done: if any rank gets a warning, all ranks stop at the same step."""
import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import pytest

HOROVODRUN = os.environ.get("HOROVODRUN", "horovodrun")

# The program of a rank: writes its process id, then every step, and how it ended.
LOOP = """
    import os, sys, time
    import torch
    import horovod.torch as hvd

    hvd.init()
    me = hvd.rank()
    def say(name, text):
        with open(f"{name}.{me}.new", "w") as file:
            file.write(str(text))
        os.rename(f"{name}.{me}.new", f"{name}.{me}")
    def train(step):
        gradients = [torch.full((30,), float(step)) for _ in range(4)]
        handles = [hvd.allreduce_async_(each, name=f"gradient.{at}") for at, each in enumerate(gradients)]
        for handle in handles:
            hvd.synchronize(handle)
"""


class Job:
    def __init__(self, folder, ranks, text, begin=LOOP, below=(), **environment):
        program = folder / "program.py"
        program.write_text(textwrap.dedent(begin) + textwrap.dedent(text))
        self.folder, self.ranks = folder, ranks
        command = [HOROVODRUN, "-np", str(ranks), *below, sys.executable, str(program)]
        self.process = subprocess.Popen(command, cwd=folder,
                                        env={**os.environ, **environment}, text=True, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT)

    def said(self, name):
        """Returns what every rank has written under this name."""
        for rank in range(self.ranks):
            path = self.folder / f"{name}.{rank}"
            for _ in range(6000):
                if path.exists() or self.process.poll() is not None:
                    break
                time.sleep(0.01)
            assert path.exists(), self.process.communicate()[0]
        return [int((self.folder / f"{name}.{rank}").read_text()) for rank in range(self.ranks)]

    def end(self, expected=0):
        try:
            output, _ = self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.terminate()
            raise AssertionError(f"it did not end: {self.process.communicate()[0]}") from None
        assert self.process.returncode == expected, output
        return output


UNTIL_THE_STOP = """
    step = 0
    while not hvd.should_stop():
        step += 1
        train(step)
        if step == 3:
            say("process", os.getpid())
    say("stopped", step)
    say("cause", {"program": 0, "warned": 1, "terminated": 2, "time": 3}[hvd.stop_cause()])
"""
SIGNALS = [signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM]


def stop_by_a_signal(folder, ranks, seed):
    draw = random.Random(seed)
    job = Job(folder, ranks, UNTIL_THE_STOP)
    processes = job.said("process")
    time.sleep(draw.random() * 0.05)
    which = draw.choice(SIGNALS)
    os.kill(draw.choice(processes), which)
    job.end()
    steps = job.said("stopped")
    assert len(set(steps)) == 1 and steps[0] >= 3, steps
    assert set(job.said("cause")) == {2 if which == signal.SIGTERM else 1}


@pytest.mark.parametrize("seed", range(int(os.environ.get("STOPS", "4"))))
def test_a_signal_to_one_rank_stops_all_at_the_same_step(tmp_path, seed):
    stop_by_a_signal(tmp_path, 2 + seed % 3, seed)


def test_horovodrun_hands_the_warning_on_and_lives(tmp_path):
    job = Job(tmp_path, 2, UNTIL_THE_STOP)
    job.said("process")
    job.process.send_signal(signal.SIGUSR1)
    job.end()
    assert len(set(job.said("stopped"))) == 1


def test_a_rank_alone_stops_although_its_loop_has_no_operations(tmp_path):
    job = Job(tmp_path, 1, UNTIL_THE_STOP.replace("train(step)", "pass"))
    os.kill(job.said("process")[0], signal.SIGUSR1)
    job.end()


def test_the_program_may_ask_for_it_on_any_rank(tmp_path):
    job = Job(tmp_path, 3, """
        step = 0
        while not hvd.should_stop():
            step += 1
            train(step)
            if step == 20 and me == 2:
                hvd.request_stop("converged")
        say("stopped", step)
        say("reason", int(hvd.stop_reason() == "converged"))
    """)
    job.end()
    assert len(set(job.said("stopped"))) == 1
    assert job.said("reason") == [1, 1, 1]


def test_handlers_of_the_program_stay_the_programs(tmp_path):
    job = Job(tmp_path, 2, """
        import signal
        heard = []
        signal.signal(signal.SIGUSR1, lambda *_: heard.append(1))
        for step in range(1, 2000):
            train(step)
            assert not hvd.should_stop()
            if step == 3:
                say("process", os.getpid())
            if heard:
                break
            time.sleep(0.01)
        say("stopped", step)
        hvd.shutdown()
    """)
    for process in job.said("process"):
        os.kill(process, signal.SIGUSR1)
    job.process.wait(100)
    assert len(job.said("stopped")) == 2


def test_children_of_a_rank_are_ended_by_signals_as_ever(tmp_path):
    job = Job(tmp_path, 1, """
        import signal
        hvd.should_stop()
        child = os.fork()
        if child == 0:
            time.sleep(100)
        os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
        say("signal", os.WTERMSIG(status))
        assert not hvd.should_stop()
    """)
    job.end()
    assert job.said("signal") == [signal.SIGTERM]


def test_a_warning_after_the_training_ends_nobody(tmp_path):
    job = Job(tmp_path, 1, """
        assert not hvd.should_stop()
        hvd.shutdown()
        say("process", os.getpid())
        os.kill(os.getpid(), 10)
        os.kill(os.getpid(), 12)
        say("evaluated", 1)
        hvd.init()
        while not hvd.should_stop():  # a training that begins later learns of the warning
            train(1)
    """)
    job.end()
    assert job.said("evaluated") == [1]


# Loads its data with workers of both kinds. A program that spawns workers is imported by them.
WORKERS = """
    import os, sys, time
    import torch
    import horovod.torch as hvd

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 10 ** 6
        def __getitem__(self, at):
            return torch.ones(3)

    def main():
        hvd.init()
        forked, spawned = (iter(torch.utils.data.DataLoader(Data(), num_workers=1, multiprocessing_context=kind))
                           for kind in ("fork", "spawn"))
        model = torch.nn.Linear(3, 1)
        with hvd.checkpoint.Checkpointer("run", model, every_steps=10 ** 6) as checkpointer:
            for step in range(1, 10 ** 6):
                hvd.allreduce(next(forked) + next(spawned), name="a")
                if step == 3:
                    with open(f"process.{hvd.rank()}.new", "w") as file:
                        file.write(str(os.getpid()))
                    os.rename(f"process.{hvd.rank()}.new", f"process.{hvd.rank()}")
                checkpointer.step(step)
                if checkpointer.stopped:
                    break

    if __name__ == "__main__":
        main()
"""


@pytest.mark.parametrize("which", [signal.SIGUSR1, signal.SIGTERM])
def test_a_rank_with_a_shell_above_and_workers_below_saves(tmp_path, which):
    job = Job(tmp_path, 1, "", begin=WORKERS, below=("sh", "-c", '"$@"; exit $?', "sh"),
              HOROVOD_TERMINATION_GRACE_SECONDS="60")
    rank, = job.said("process")
    os.killpg(os.getpgid(rank), which)
    assert "stopped at step" in job.end(75 if which == signal.SIGUSR1 else 143)
    assert list((tmp_path / "run").glob("step-*.h5"))


def test_a_rank_with_workers_saves_when_the_launcher_ends_the_job(tmp_path):
    job = Job(tmp_path, 1, "", begin=WORKERS, HOROVOD_TERMINATION_GRACE_SECONDS="60")
    job.said("process")
    job.process.send_signal(signal.SIGTERM)
    assert "stopped at step" in job.end(143)
    assert list((tmp_path / "run").glob("step-*.h5"))


def test_the_schedulers_end_of_the_job_stops_all(tmp_path):
    job = Job(tmp_path, 2, UNTIL_THE_STOP, SLURM_JOB_ID="17", SLURM_JOB_NODELIST="localhost",
              SLURM_JOB_CPUS_PER_NODE="2", SLURM_JOB_END_TIME=str(int(time.time()) + 8),
              HOROVOD_STOP_MARGIN_SECONDS="5", PATH=os.path.dirname(sys.executable) + ":/nowhere")
    job.end()
    assert len(set(job.said("stopped"))) == 1
    assert set(job.said("cause")) == {3}


def test_steps_of_a_process_set_are_compared_with_its_own_operations(tmp_path):
    job = Job(tmp_path, 4, """
        sets = [hvd.ProcessSet([0, 1]), hvd.ProcessSet([2, 3])]
        hvd.shutdown()
        hvd.init(process_sets=sets)
        mine = sets[me // 2]
        step = 0
        while not hvd.should_stop(mine):
            step += 1
            hvd.allreduce(torch.ones(3), name="a", process_set=mine)
            time.sleep(0.002 * (1 + me // 2))
            if step == 30 and me == 3:
                hvd.request_stop()
        say("stopped", step)
        hvd.barrier()
    """)
    job.end()
    steps = job.said("stopped")
    assert steps[0] == steps[1] and steps[2] == steps[3], steps


def test_ranks_that_have_joined_stop_with_the_others(tmp_path):
    job = Job(tmp_path, 3, """
        step = 0
        stops = False
        for step in range(10 + 20 * me):
            train(step)
            stops = hvd.should_stop()
            if step == 29 and me == 2:
                hvd.request_stop()
            if stops:
                break
        hvd.join()
        train(step)
        say("stopped", int(hvd.should_stop()))
    """)
    job.end()
    assert job.said("stopped") == [1, 1, 1]


def test_a_rank_that_never_asks_is_named(tmp_path):
    job = Job(tmp_path, 2, """
        step = 0
        while step < 10 or me == 1 or not hvd.should_stop():
            step += 1
            train(step)
            if step == 3:
                hvd.request_stop()
        hvd.allreduce(torch.ones(1), name="of rank 0 alone")
    """, HOROVOD_STALL_CHECK_TIME_SECONDS="1")
    for expected in ("were to stop", "rank 1"):
        line = ""
        while expected not in line:
            line = job.process.stdout.readline()
            assert line
    job.process.kill()
    job.process.communicate()


CHECKPOINTS = """
    torch.manual_seed(1)
    model = torch.nn.Linear(5, 4)
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters()),
                                         named_parameters=model.named_parameters())
    steps = int(os.environ["STEPS"])
    checkpointer = hvd.checkpoint.Checkpointer("run", model, optimizer, every_steps=1000)
    with checkpointer:
        first = (checkpointer.restore()["step"] or 0) + 1
        for step in range(first, steps + 1):
            torch.manual_seed(step)
            optimizer.zero_grad()
            loss = model(torch.randn(16, 5)).square().mean()
            loss.backward()
            optimizer.step()
            if me == 0:
                with open("losses", "a") as file:
                    print(step, float(loss).hex(), file=file)
            if step == first + 3:
                say("process", os.getpid())
            checkpointer.step(step)
            if checkpointer.stopped:
                break
            time.sleep(float(os.environ.get("PAUSE", "0")))
"""


def test_a_stopped_job_saves_ends_with_75_and_goes_on(tmp_path):
    (tmp_path / "whole").mkdir()
    Job(tmp_path / "whole", 2, CHECKPOINTS, STEPS="40").end()
    job = Job(tmp_path, 2, CHECKPOINTS, STEPS="40", PAUSE="0.2")
    os.kill(job.said("process")[1], signal.SIGUSR1)
    output = job.end(expected=75)
    assert "stopped at step" in output and "FIRST FAILURE" not in output
    Job(tmp_path, 2, CHECKPOINTS, STEPS="40").end()
    assert (tmp_path / "losses").read_text() == (tmp_path / "whole" / "losses").read_text()


def test_a_run_that_got_no_further_does_not_ask_for_another(tmp_path):
    job = Job(tmp_path, 1, """
        model = torch.nn.Linear(5, 4)
        checkpointer = hvd.checkpoint.Checkpointer("run", model)
        with checkpointer:
            checkpointer.save(7)
            checkpointer.restore()
            hvd.request_stop()
            for step in range(1, 100):  # the steps begin anew
                train(step)
                time.sleep(0.01)
                os.kill(os.getpid(), 10)
                checkpointer.step(step)
                if checkpointer.stopped:
                    break
    """.replace("hvd.request_stop()", "pass"))
    assert "not put back into the queue" in job.end(expected=1)


def test_a_callback_ends_the_loops_of_others(tmp_path):
    job = Job(tmp_path, 2, """
        class Model(torch.nn.Module):
            stop_training = False
        model = Model()
        callback = hvd.checkpoint.CheckpointCallback(hvd.checkpoint.Checkpointer("run", model, every_steps=1000))
        callback.set_model(model)
        callback.on_train_begin()
        while not model.stop_training:
            callback.on_train_batch_begin(1)
            train(1)
            callback.on_train_batch_end(1)
            if callback.step == 5 and me == 1:
                hvd.request_stop()
        callback.on_train_end()
        say("stopped", callback.step)
    """)
    job.end()
    assert len(set(job.said("stopped"))) == 1
    assert list((tmp_path / "run").glob("step-*.h5"))


def test_a_suspended_job_goes_on(tmp_path):
    job = Job(tmp_path, 2, UNTIL_THE_STOP, HOROVOD_STALL_CHECK_TIME_SECONDS="1", HOROVOD_PEER_TIMEOUT="2")
    processes = job.said("process")
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    time.sleep(4)
    for process in processes:
        os.kill(process, signal.SIGCONT)
    os.kill(processes[0], signal.SIGUSR1)
    job.end()
    assert len(set(job.said("stopped"))) == 1
