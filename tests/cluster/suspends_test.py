#!/usr/bin/env python3
"""A job that is suspended in the midst of its steps, for longer than any patience of its own, goes on and ends right:
by `scontrol suspend` of a real Slurm, and by SIGSTOP to all ranks. suspends_test.py BUILD [Suspends.test]
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from virtual_nodes import NODES, enter
from cluster_harness import BUILD, HOROVODRUN, cluster_processes, read

RANK = os.path.join(BUILD, "tests", "steps_rank")
SUSPENDED_SECONDS = 5
LIMITS = {"HOROVOD_PEER_TIMEOUT": "2", "HOROVOD_STALL_CHECK_TIME_SECONDS": "1",
          "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "3", "HOROVOD_MPI": "none"}


def on_login(*words):
    return subprocess.run([NODES, "on", "login", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=100, check=True).stdout


class Suspends(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="suspends-", dir=BUILD)
        self.addCleanup(shutil.rmtree, self.folder)
        os.environ.update(LIMITS, HOROVOD_SHARED_DIR=self.folder, HOROVOD_PLUGIN_PATH=os.path.join(BUILD, "lib"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def text(self, name):
        try:
            with open(self.path(name), encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def step(self):
        return int(self.text("step") or 0)

    def wait_for_steps(self, count, has_ended=lambda: False):
        wanted, limit = self.step() + count, time.monotonic() + 60
        while self.step() < wanted:
            self.assertFalse(has_ended(), self.text("output"))
            self.assertLess(time.monotonic(), limit, "it makes no steps: " + self.text("output"))
            time.sleep(0.01)

    def wait_until_still(self):
        """Waits until no step is made any more."""
        before, limit = None, time.monotonic() + 60
        while before != self.step():
            self.assertLess(time.monotonic(), limit, "it is not suspended")
            before = self.step()
            time.sleep(1)

    def check_end(self):
        output = self.text("output")
        ends = [self.text(f"end.{rank}") for rank in range(4)]
        self.assertEqual(len(set(ends)), 1, output)
        self.assertNotEqual(ends[0], "", output)
        self.assertNotRegex(output, r"(?i)stopped|lost|Missing ranks|waited for|error")

    def suspend_in_slurm(self, launch):
        with open(self.path("script"), "w", encoding="utf-8") as file:
            file.write(f"#!/bin/bash\n{launch} {RANK} {self.folder}\n")
        job = on_login("sbatch", "--parsable", "-N2", "-n4", "--ntasks-per-node=2", "-o", self.path("output"),
                       self.path("script")).strip()
        self.addCleanup(subprocess.run, [NODES, "on", "login", "scancel", job], check=False)
        state = lambda: re.search(r"JobState=(\w+)", on_login("scontrol", "show", "job", job))[1]  # noqa: E731
        self.wait_for_steps(20)
        for _ in range(2):
            on_login("scontrol", "suspend", job)
            self.wait_until_still()
            time.sleep(SUSPENDED_SECONDS)
            self.assertEqual(state(), "SUSPENDED")
            on_login("scontrol", "resume", job)
            self.wait_for_steps(20)
        open(self.path("stop"), "w", encoding="utf-8").close()
        limit = time.monotonic() + 60
        while state() in ("RUNNING", "COMPLETING"):
            self.assertLess(time.monotonic(), limit, "it does not end: " + self.text("output"))
            time.sleep(0.1)
        self.assertEqual(state(), "COMPLETED", self.text("output"))
        self.check_end()

    def test_by_scontrol_over_horovodrun(self):
        self.suspend_in_slurm(f"exec {HOROVODRUN}")

    def test_by_scontrol_over_srun(self):
        self.suspend_in_slurm("exec srun --mpi=pmi2")

    def test_by_signals_to_all_ranks(self):
        with open(self.path("output"), "w", encoding="utf-8") as output:
            job = subprocess.Popen([NODES, "on", "n1", HOROVODRUN, "-np", "4", "-H", "n1:2,n2:2", RANK, self.folder],
                                   stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        self.addCleanup(job.kill)
        has_ended = lambda: job.poll() is not None  # noqa: E731
        self.wait_for_steps(20, has_ended)
        ranks = [pid for pid in cluster_processes() if read(pid, "cmdline").startswith(RANK.encode() + b"\0")]
        self.assertEqual(len(ranks), 4)
        for _ in range(2):
            for pid in ranks:
                os.kill(pid, signal.SIGSTOP)
            self.wait_until_still()
            time.sleep(SUSPENDED_SECONDS)
            for pid in ranks:
                os.kill(pid, signal.SIGCONT)
            self.wait_for_steps(20, has_ended)
        open(self.path("stop"), "w", encoding="utf-8").close()
        self.assertEqual(job.wait(60), 0, self.text("output"))
        self.check_end()


if __name__ == "__main__":
    enter(2, BUILD, [BUILD, *sys.argv[1:]])
    unittest.main()
