#!/usr/bin/env python3
"""A training with too little time, under a real Slurm: it saves before its end, goes back into the queue as often as it
takes, and gets the losses of one that nothing interrupts. stops_test.py BUILD [Class.test]

PYTHON has torch. RUNS: how often each is done (1).
"""
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from virtual_nodes import NODES, enter

BUILD = os.path.realpath(sys.argv[1])
HOROVODRUN = os.path.join(BUILD, "bin", "horovodrun")
WARNED_RANKS = os.path.join(os.path.dirname(os.path.realpath(__file__)),
                            "../../jobscripts/templates/parts/warned_ranks.sh")
PYTHON = os.environ.get("PYTHON", sys.executable)
RUNS = int(os.environ.get("RUNS", "1"))

PROGRAM = """
import os, time
import torch
import horovod.torch as hvd

hvd.init()
torch.manual_seed(1)
model = torch.nn.Linear(50, 40)
optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters()), named_parameters=model.named_parameters())
with hvd.checkpoint.Checkpointer("run", model, optimizer, every_steps=10000) as checkpointer:
    first = (checkpointer.restore()["step"] or 0) + 1
    for step in range(first, int(os.environ["STEPS"]) + 1):
        torch.manual_seed(step * 100 + hvd.rank())
        optimizer.zero_grad()
        loss = model(torch.randn(16, 50)).square().mean()
        loss.backward()
        optimizer.step()
        if hvd.rank() == 0:
            with open("losses", "a") as file:
                print(step, loss.item().hex(), file=file)
        checkpointer.step(step)
        if checkpointer.stopped:
            break
        time.sleep(float(os.environ["PAUSE"]))
if hvd.rank() == 0:
    open("done", "w").close()
"""


def on_login(*words):
    return subprocess.run([NODES, "on", "login", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=300, check=True).stdout


class JobsThatGoOn(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="stops-", dir=BUILD)
        self.addCleanup(shutil.rmtree, self.folder)

    def prepare(self, name, launch, pause, *directives):
        folder = os.path.join(self.folder, name)
        os.mkdir(folder)
        with open(os.path.join(folder, "program.py"), "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        lines = ["#!/bin/bash", "#SBATCH --nodes=2 --ntasks-per-node=1 --requeue --open-mode=append --output=output",
                 *(f"#SBATCH {each}" for each in directives), f"cd {folder}", f"export STEPS=300 PAUSE={pause}",
                 f"export PYTHONPATH={BUILD}/python LD_LIBRARY_PATH={BUILD}/lib HOROVOD_PLUGIN_PATH={BUILD}/lib",
                 f"export HOROVOD_SHARED_DIR={folder} OMP_NUM_THREADS=1 HOROVOD_STOP_MARGIN_SECONDS=15",
                 launch]
        with open(os.path.join(folder, "script"), "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        return folder

    def run_job(self, folder, warns=False):
        """Returns the number of starts. `warns`: the first one gets the signal that --signal=B:USR1 would send."""
        job = on_login("sbatch", "--parsable", "--chdir", folder, os.path.join(folder, "script")).strip()
        self.addCleanup(subprocess.run, [NODES, "on", "login", "scancel", job], check=False)
        for _ in range(3000):
            if warns and self.steps_in(folder) > 20:
                warns = False
                on_login("scancel", "--batch", "--signal=USR1", job)
            shown = on_login("scontrol", "show", "job", job)
            words = dict(word.split("=", 1) for word in shown.split() if "=" in word)
            if words["JobState"] in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"):
                break
            time.sleep(0.5)
        with open(os.path.join(folder, "output"), encoding="utf-8", errors="replace") as file:
            output = file.read()
        self.assertTrue(os.path.exists(os.path.join(folder, "done")), shown + output)
        return int(words["Restarts"]) + 1

    def steps_in(self, folder):
        path = os.path.join(folder, "losses")
        if not os.path.exists(path):
            return 0
        with open(path, encoding="utf-8") as file:
            return len(file.readlines())

    def losses(self, folder):
        with open(os.path.join(folder, "losses"), encoding="utf-8") as file:
            return file.read()

    def compare(self, launch, minutes, warns=False):
        whole = self.prepare("whole", launch, 0, "--time=10")
        self.assertEqual(self.run_job(whole), 1)
        for run in range(RUNS):
            folder = self.prepare(f"cut-{run}", launch, 0.15, f"--time={minutes}")
            starts = self.run_job(folder, warns)
            self.assertGreater(starts, 1)
            self.assertEqual(self.losses(folder), self.losses(whole))
            print(f"run {run + 1} of {RUNS}: {starts} starts", file=sys.stderr, flush=True)

    def test_horovodrun_puts_the_job_back_when_the_time_is_up(self):
        self.compare(f"{HOROVODRUN} -np 2 --max-requeues 10 {PYTHON} program.py", 1)

    def test_a_job_script_does_so_that_was_warned_by_a_signal(self):
        with open(WARNED_RANKS, encoding="utf-8") as file:
            warned_ranks = file.read().replace("{{command}}", f"{PYTHON} program.py")
        self.compare("\n".join([
            "launch=(srun --kill-on-bad-exit=1)", warned_ranks,
            'if [ "$status" = 75 ]; then scontrol requeue "$SLURM_JOB_ID"; fi',
            "exit $status"]), 10, warns=True)


if __name__ == "__main__":
    if subprocess.run([PYTHON, "-c", "import torch"], check=False, stderr=subprocess.DEVNULL).returncode != 0:
        print("not run: there is no torch for", PYTHON)
        sys.exit(77)
    enter(2, BUILD, sys.argv[1:])
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
