#!/usr/bin/env python3
"""Jobs that save step after step are killed at a random instant, and the next job goes on from what they left:
checkpoint_kills.py BUILD [Kills.test]

A rank, the launcher, an agent or a whole node is killed. Whatever it is, the folder then has nothing damaged, and its
newest checkpoint is not older than the last save that returned on any rank. HVD_ROUNDS says how many jobs are killed;
HVD_SEED draws other kills.
"""
import collections
import os
import pathlib
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

os.environ["HVD_LIMIT_SECONDS"] = "240"
from virtual_nodes import NODES, enter  # noqa: E402
from cluster_harness import BUILD, HOROVODRUN, ClusterJob, EndTest, agents, nodes, parent_of, read  # noqa: E402
from launcher_harness import LIMIT_SECONDS, marked_processes  # noqa: E402

ROUNDS = int(os.environ.get("HVD_ROUNDS", "2"))
SEED = os.environ.get("HVD_SEED", "0")
RANK = os.path.join(BUILD, "tests", "checkpoint_rank")
HARMS = ("rank 0", "another rank", "launcher", "agent", "watcher", "node n1", "node n2")


class SavingJob(ClusterJob):
    def __init__(self, folder, notes, what):
        super().__init__("", "", whole=[NODES, "on", "n1", HOROVODRUN, "-np", "4", "-H", "n1:2,n2:2", RANK, str(folder),
                                        str(notes), what], HOROVOD_PEER_TIMEOUT="2", HOROVOD_MPI="none")

    def ranks(self):
        """{number: process} of those that have started."""
        found = {}
        for pid in marked_processes(self.mark):
            if read(pid, "cmdline").split(b"\0")[0].endswith(b"/checkpoint_rank"):
                variables = dict(pair.split(b"=", 1) for pair in read(pid, "environ").split(b"\0") if b"=" in pair)
                found[int(variables.get(b"HOROVOD_RANK", b"-1"))] = pid
        return found


class Kills(EndTest):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="kills-", dir=BUILD))
        (self.folder / "run").mkdir()
        self.notes = self.folder / "notes"
        self.notes.touch()

    def tearDown(self):
        shutil.rmtree(self.folder)

    def steps(self, what):
        return [int(step) for step in re.findall(f"^{what} ([0-9]+)$", self.notes.read_text(), re.MULTILINE)]

    def wait_for_saves(self, job, count):
        """Waits until the job has saved so often. Returns the seconds from one save to the next."""
        newest, seen, limit = max(self.steps("saved"), default=0), [], time.monotonic() + LIMIT_SECONDS
        while len(seen) < count:
            self.assertIsNone(job.front.poll(), "the job ended by itself")
            self.assertLess(time.monotonic(), limit, "nothing is saved")
            select.select([], [], [], 0.002)
            now = max(self.steps("saved"), default=0)
            if now > newest:
                newest = now
                seen.append(time.monotonic())
        return (seen[-1] - seen[0]) / max(1, count - 1)

    def harm(self, job, draw, harm):
        if harm.startswith("node "):
            nodes("kill", harm[5:])
            return
        ranks, ours = job.ranks(), agents()
        those = {"rank 0": lambda: [ranks[0]], "another rank": lambda: [ranks[draw.randrange(1, 4)]],
                 "launcher": lambda: [job.launcher()],
                 "agent": lambda: [pid for pid in ours if parent_of(pid) in ours],
                 "watcher": lambda: [pid for pid in ours if parent_of(pid) not in ours]}[harm]()
        os.kill(draw.choice(those), signal.SIGKILL)

    def checkpoint(self, action):
        return subprocess.run([HOROVODRUN, "--checkpoint", action, str(self.folder / "run")], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)

    def check(self):
        """Returns the step of the newest checkpoint."""
        saved = max(self.steps("saved"))
        verified, listed = self.checkpoint("verify"), self.checkpoint("ls")
        self.assertEqual((verified.returncode, listed.returncode), (0, 0), verified.stdout + listed.stdout)
        newest = int(listed.stdout.splitlines()[1].split()[0])
        self.assertGreaterEqual(newest, saved, listed.stdout)
        return newest

    def go_on(self, what, newest):
        """Starts a job, which has to go on from that step."""
        count = len(self.steps("from"))
        job = SavingJob(self.folder / "run", self.notes, what)
        limit = time.monotonic() + LIMIT_SECONDS
        while len(self.steps("from")) < count + 4:
            if time.monotonic() > limit or job.front.poll() not in (None, 0):
                job.clean_up()
                self.fail(f"not all ranks go on: {job.front.communicate()}")
            select.select([], [], [], 0.005)
        self.assertEqual(self.steps("from")[count:], [newest] * 4)
        return job

    def test_whatever_is_killed_the_next_job_goes_on(self):
        draw = random.Random(SEED)
        newest, counts = 0, collections.Counter()
        for number in range(ROUNDS):
            harm = HARMS[number % len(HARMS)]
            job = self.go_on("until-killed", newest)
            try:
                between = self.wait_for_saves(job, 2)
                time.sleep(draw.random() * 1.5 * between)  # anywhere within a save
                self.harm(job, draw, harm)
                code = job.finish()
                job.assert_nothing_is_left(self)
                self.assertNotEqual(code, 0)
            finally:
                job.clean_up()
            saved = max(self.steps("saved"))
            half = any(".writing-" in name for name in os.listdir(self.folder / "run"))
            newest = self.check()
            counts.update([harm, "killed in the midst of a write"] if half else [harm])
            counts["kept a save that had not returned yet"] += newest > saved
            print(number, harm, "saved", saved, "newest", newest, "in the midst of a write" if half else "", flush=True)
        self.go_on("once", newest).finish()
        print(f"{ROUNDS} jobs killed, {newest} steps saved:", dict(counts), flush=True)


if __name__ == "__main__":
    enter(2, BUILD, [BUILD, *sys.argv[1:]])
    unittest.main()
