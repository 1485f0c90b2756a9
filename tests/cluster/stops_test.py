#!/usr/bin/env python3
"""A training with too little time, under a real Slurm: it saves before its end, goes back into the queue as often as it
takes, and gets the losses of one that nothing interrupts. stops_test.py BUILD [Class.test]

PYTHON has torch. RUNS: how often each is done (1).
"""
import os
import re
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


ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
ENVIRONMENT = {"PYTHONPATH": f"{BUILD}/python", "LD_LIBRARY_PATH": f"{BUILD}/lib",
               "HOROVOD_PLUGIN_PATH": f"{BUILD}/lib", "OMP_NUM_THREADS": "1"}


def on_login(*words, **environment):
    return subprocess.run([NODES, "on", "login", *words], env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=True).stdout


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
                 "export HOROVOD_STOP_MARGIN_SECONDS=15",
                 launch]
        with open(os.path.join(folder, "script"), "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        return folder

    def run_job(self, folder, is_time_to_warn=lambda: False):
        """Returns the number of starts. At this time the first start gets the signal that --signal=B:USR1 would send.
        """
        job = on_login("sbatch", "--parsable", "--chdir", folder, os.path.join(folder, "script"), **ENVIRONMENT,
                       HOROVOD_SHARED_DIR=folder).strip()
        self.addCleanup(subprocess.run, [NODES, "on", "login", "scancel", job], check=False)
        warned = False
        for _ in range(3000):
            if not warned and is_time_to_warn():
                warned = True
                on_login("scancel", "--batch", "--signal=USR1", job)
            shown = on_login("scontrol", "show", "job", job)
            words = dict(word.split("=", 1) for word in shown.split() if "=" in word)
            if words["JobState"] in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"):
                break
            time.sleep(0.5)
        self.assertEqual(words["JobState"], "COMPLETED", shown + self.output(folder))
        return int(words["Restarts"]) + 1

    def output(self, folder):
        text = ""
        for name in os.listdir(folder):
            if name == "output" or name.endswith(".out"):
                with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                    text += file.read()
        return text

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
        self.assertTrue(os.path.exists(os.path.join(whole, "done")))
        for run in range(RUNS):
            folder = self.prepare(f"cut-{run}", launch, 0.15, f"--time={minutes}")
            starts = self.run_job(folder, lambda: warns and self.steps_in(folder) > 20)
            self.assertGreater(starts, 1)
            self.assertEqual(self.losses(folder), self.losses(whole))
            print(f"run {run + 1} of {RUNS}: {starts} starts", file=sys.stderr, flush=True)

    def test_horovodrun_puts_the_job_back_when_the_time_is_up(self):
        self.compare(f"{HOROVODRUN} -np 2 --max-requeues 10 {PYTHON} program.py", 1)

    def test_horovodrun_does_so_when_a_signal_comes_to_it_in_place_of_the_script(self):
        """Between the nodes Horovod starts MPICH, if there is one, which has a handler of its own for SIGUSR1."""
        self.compare(f"exec {HOROVODRUN} -np 2 --max-requeues 10 {PYTHON} program.py", 10, warns=True)

    def test_a_job_script_does_so_that_was_warned_by_a_signal(self):
        with open(WARNED_RANKS, encoding="utf-8") as file:
            warned_ranks = file.read().replace("{{command}}", f"{PYTHON} program.py")
        self.compare("\n".join([
            "launch=(srun --kill-on-bad-exit=1)", warned_ranks,
            'if [ "$status" = 75 ]; then scontrol requeue "$SLURM_JOB_ID"; fi',
            "exit $status"]), 10, warns=True)

    def check_example(self, name, warned_after, saved, *command):
        """Compares two jobs of the example, in the script that `horovodrun --jobscript` writes: one is not
        interrupted, the other gets one warning."""
        script = subprocess.run([HOROVODRUN, "--jobscript", "slurm", "--nodes", "2", "--ranks-per-node", "1",
                                 "--cpus-per-rank", "1", "--time", "11m", "--requeue", "--", *command],
                                stdout=subprocess.PIPE, text=True, check=True).stdout
        folders = [os.path.join(self.folder, f"{name}-{how}") for how in ("whole", "cut")]
        for folder in folders:
            os.mkdir(folder)
            with open(os.path.join(folder, "script"), "w", encoding="utf-8") as file:
                file.write(script)
        self.assertEqual(self.run_job(folders[0]), 1)
        self.assertEqual(self.run_job(folders[1], lambda: warned_after in self.output(folders[1])), 2)
        self.assertIn("going on after", self.output(folders[1]))
        differences = subprocess.run([HOROVODRUN, "--checkpoint", "diff", *(os.path.join(folder, saved) for folder in
                                                                            folders)],
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout
        # The states of random number generators that the examples neither seed nor use are not compared.
        self.assertEqual(re.sub(r"/random/rank_\d/(numpy|python)/.*\n", "", differences), "")

    def test_the_examples_do_so_in_their_job_scripts(self):
        self.check_example("digits", "epoch   2/", "run", PYTHON, f"{ROOT}/examples/digits/train.py", "--no-compare",
                           "--epochs", "80", "--checkpoints", "run")
        self.check_example("pi", "round 9:", "pi.h5", f"{BUILD}/examples/hvd_example_pi", "pi.h5", "400")
        self.check_example("large", "step    20 ", "run", PYTHON, f"{ROOT}/examples/large_model.py", "--megabytes",
                           "30", "--width", "512", "--steps", "400", "--checkpoints", "run")


if __name__ == "__main__":
    if subprocess.run([PYTHON, "-c", "import torch"], check=False, stderr=subprocess.DEVNULL).returncode != 0:
        print("not run: there is no torch for", PYTHON)
        sys.exit(77)
    enter(2, BUILD, sys.argv[1:])
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
