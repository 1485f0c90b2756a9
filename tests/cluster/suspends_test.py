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
from launcher_harness import LIMIT_SECONDS

RANK = os.path.join(BUILD, "tests", "steps_rank")
# On a busy machine a rank, or the ranks of a node that goes on later, may be late by seconds.
SUSPENDED_SECONDS = 14
LIMITS = {"HOROVOD_PEER_TIMEOUT": "2", "HOROVOD_STALL_CHECK_TIME_SECONDS": "8",
          "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "12", "HOROVOD_MPI": "none"}


def on_login(*words):
    return subprocess.run([NODES, "on", "login", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=100, check=True).stdout


class SuspendedJob:
    def __init__(self, test, name):
        self.test, self.folder = test, os.path.join(test.folder, name)
        os.mkdir(self.folder)

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

    def wait_for(self, is_so, what):
        limit = time.monotonic() + LIMIT_SECONDS
        while not is_so():
            self.test.assertLess(time.monotonic(), limit, f"{what}: {self.text('output')}")
            time.sleep(0.02)

    def wait_for_steps(self, count):
        wanted = self.step() + count
        self.wait_for(lambda: self.step() >= wanted, "it makes no steps")

    def stay_suspended(self):
        """Returns when no step was made for longer than any limit of time of the job."""
        seen = [self.step(), time.monotonic()]

        def is_over():
            if self.step() != seen[0]:
                seen[:] = self.step(), time.monotonic()
            return time.monotonic() - seen[1] > SUSPENDED_SECONDS

        self.wait_for(is_over, "it is not suspended")

    def stop(self):
        open(self.path("stop"), "w", encoding="utf-8").close()

    def check_end(self):
        output = self.text("output")
        ends = [self.text(f"end.{rank}") for rank in range(4)]
        self.test.assertEqual(len(set(ends)), 1, output)
        self.test.assertNotEqual(ends[0], "", output)
        self.test.assertNotRegex(output, r"(?i)lost|Missing ranks|waited for|error")


class JobOfSlurm(SuspendedJob):
    def __init__(self, test, name, launch):
        super().__init__(test, name)
        with open(self.path("script"), "w", encoding="utf-8") as file:
            file.write(f"#!/bin/bash\nexec {launch} {RANK} {self.folder}\n")
        self.number = on_login("sbatch", "--parsable", "-N2", "-n4", "--ntasks-per-node=2", "-o", self.path("output"),
                               self.path("script")).strip()
        test.addCleanup(subprocess.run, [NODES, "on", "login", "scancel", self.number], check=False)

    def state(self):
        return re.search(r"JobState=(\w+)", on_login("scontrol", "show", "job", self.number))[1]


class Suspends(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="suspends-", dir=BUILD)
        self.addCleanup(shutil.rmtree, self.folder)
        os.environ.update(LIMITS, HOROVOD_SHARED_DIR=self.folder, HOROVOD_PLUGIN_PATH=os.path.join(BUILD, "lib"))

    def test_by_scontrol_over_horovodrun_and_over_srun(self):
        jobs = [JobOfSlurm(self, "horovodrun", HOROVODRUN), JobOfSlurm(self, "srun", "srun --mpi=pmi2")]
        for job in jobs:
            job.wait_for_steps(20)
        for job in jobs:
            on_login("scontrol", "suspend", job.number)
        jobs[-1].stay_suspended()  # the first job is then suspended for even longer
        self.assertEqual([job.state() for job in jobs], ["SUSPENDED"] * 2)
        for job in jobs:
            on_login("scontrol", "resume", job.number)
        for job in jobs:
            job.wait_for_steps(20)
            job.stop()
        for job in jobs:
            job.wait_for(lambda: job.state() not in ("RUNNING", "COMPLETING"), "it does not end")
            self.assertEqual(job.state(), "COMPLETED", job.text("output"))
            job.check_end()

    def test_by_signals_to_all_ranks(self):
        job = SuspendedJob(self, "signals")
        with open(job.path("output"), "w", encoding="utf-8") as output:
            process = subprocess.Popen([NODES, "on", "n1", HOROVODRUN, "-np", "4", "-H", "n1:2,n2:2", RANK, job.folder],
                                       stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        self.addCleanup(process.kill)
        job.wait_for_steps(20)
        ranks = [pid for pid in cluster_processes() if read(pid, "cmdline").startswith(RANK.encode() + b"\0")]
        self.assertEqual(len(ranks), 4)
        for pid in ranks:
            os.kill(pid, signal.SIGSTOP)
        job.stay_suspended()
        for pid in ranks:
            os.kill(pid, signal.SIGCONT)
        job.wait_for_steps(20)
        job.stop()
        self.assertEqual(process.wait(LIMIT_SECONDS), 0, job.text("output"))
        job.check_end()


if __name__ == "__main__":
    enter(2, BUILD, [BUILD, *sys.argv[1:]])
    unittest.main()
