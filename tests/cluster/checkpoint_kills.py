#!/usr/bin/env python3
"""Jobs that save step after step are killed at a random instant, and the next job goes on from what they left:
checkpoint_kills.py BUILD [Kills.test]

A rank, the launcher, an agent or a whole node is killed. Whatever it is, the folder then has nothing damaged, and its
newest checkpoint is not older than the last save that returned on any rank. HVD_ROUNDS says how many jobs are killed;
HVD_SEED draws other kills. KillsOfPython does so with trainings in Python ($PYTHON, which has torch), in each phase of
a write in turn.
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


PYTHON = os.environ.get("PYTHON", sys.executable)
PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "checkpoint_program.py")


class SavingJob(ClusterJob):
    def __init__(self, program, folder, notes, *what, **environment):
        self.program = program
        super().__init__("", "", whole=[NODES, "on", "n1", HOROVODRUN, "-np", "4", "-H", "n1:2,n2:2", *program,
                                        str(folder), str(notes), *what], HOROVOD_PEER_TIMEOUT="2", HOROVOD_MPI="none",
                         **environment)

    def ranks(self):
        """{number: process} of those that have started."""
        found = {}
        for pid in marked_processes(self.mark):
            words = [word.encode() for word in self.program]
            if read(pid, "cmdline").split(b"\0")[:len(words)] == words:
                variables = dict(pair.split(b"=", 1) for pair in read(pid, "environ").split(b"\0") if b"=" in pair)
                found[int(variables.get(b"HOROVOD_RANK", b"-1"))] = pid
        return found


class KillTest(EndTest):
    def start(self, what):
        """Starts a job that saves step after step; see checkpoint_rank."""
        raise NotImplementedError

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
        """Waits until the job has saved this many times. Returns the seconds from one save to the next."""
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

    def prepare_harm(self, job, draw, harm):
        """Returns the function that kills this victim at once."""
        if harm.startswith("node "):
            return lambda: nodes("kill", harm[5:])
        ranks, ours = job.ranks(), agents()
        those = {"rank 0": lambda: [ranks[0]], "another rank": lambda: [ranks[draw.randrange(1, 4)]],
                 "launcher": lambda: [job.launcher()],
                 "agent": lambda: [pid for pid in ours if parent_of(pid) in ours],
                 "watcher": lambda: [pid for pid in ours if parent_of(pid) not in ours]}[harm]()
        victim = draw.choice(those)
        return lambda: os.kill(victim, signal.SIGKILL)

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
        """Starts a job, which must go on from that step."""
        count = len(self.steps("from"))
        job = self.start(what)
        limit = time.monotonic() + LIMIT_SECONDS
        while len(self.steps("from")) < count + 4:
            if time.monotonic() > limit or job.front.poll() not in (None, 0):
                job.clean_up()
                self.fail(f"not all ranks go on: {job.front.communicate()}")
            select.select([], [], [], 0.005)
        if self.steps("from")[count:] != [newest] * 4:
            job.clean_up()
            self.fail(f"ranks go on from {self.steps('from')[count:]}, not from {newest}: {job.front.communicate()}")
        return job

    def kill_often(self, wait_for_moment, moments=("",)):
        """`wait_for_moment(job, draw, seconds, moment)` returns at this moment of a write; a save takes `seconds`."""
        draw = random.Random(SEED)
        newest, counts = 0, collections.Counter()
        for number in range(ROUNDS):
            harm, moment = HARMS[number % len(HARMS)], moments[number % len(moments)]
            job = self.go_on("until-killed", newest)
            try:
                between = self.wait_for_saves(job, 2)
                do_harm = self.prepare_harm(job, draw, harm)
                wait_for_moment(job, draw, between, moment)
                do_harm()
                code = job.finish()
                job.assert_nothing_is_left(self)
                self.assertNotEqual(code, 0)
            finally:
                job.clean_up()
            saved = max(self.steps("saved"))
            left = what_is_left(self.folder / "run")
            newest = self.check()
            counts.update([harm, *filter(None, [moment]), *left])
            counts["kept a save that had not returned yet"] += newest > saved
            print(number, harm, moment, "saved", saved, "newest", newest, *left, flush=True)
        self.go_on("once", newest).finish()
        print(f"{ROUNDS} jobs killed, {newest} steps saved:", dict(counts), flush=True)


def names(folder):
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


class Moment:
    """Waits for phases of a write, which can be recognised by the files in the folder of the checkpoints."""

    def __init__(self, run):
        self.names = names(run)
        self.shards = {name.removesuffix(".shards"): names(run / name) for name in self.names
                       if name.endswith(".shards")}

    def a_file_is_written(self):
        return any(".writing-" in name for name in self.names)

    def a_shard_is_written(self):
        return any(".writing-" in name for shards in self.shards.values() for name in shards)

    def shards_wait_for_their_index(self):
        newest = max(self.shards, default="")
        return any(name.startswith("node-") for name in self.shards.get(newest, ())) and newest not in self.names

    def old_shards_have_lost_their_index(self):
        whole = [index for index in self.shards if index in self.names]
        return any(index not in self.names and index < max(whole, default="") for index in self.shards)


def what_is_left(run):
    moment = Moment(run)
    return [f"left: {what.replace('_', ' ')}" for what in dir(Moment) if not what.startswith("_")
            and getattr(moment, what)()]


class Kills(KillTest):
    def start(self, what):
        return SavingJob((RANK,), self.folder / "run", self.notes, what)

    def test_whatever_is_killed_the_next_job_goes_on(self):
        # any time within a save
        self.kill_often(lambda job, draw, seconds, moment: time.sleep(draw.random() * 1.5 * seconds))


class KillsOfPython(KillTest):
    def start(self, what):
        return SavingJob((PYTHON, PROGRAM), self.folder / "run", self.notes, what, self.how,
                         PYTHONPATH=os.path.join(BUILD, "python"), LD_LIBRARY_PATH=os.path.join(BUILD, "lib"),
                         HOROVOD_PLUGIN_PATH=os.path.join(BUILD, "lib"), OMP_NUM_THREADS="1")

    def wait_for_moment(self, job, draw, seconds, moment):
        if moment == "at any time":
            time.sleep(draw.random() * 1.5 * seconds)
            return
        limit = time.monotonic() + LIMIT_SECONDS
        while not getattr(Moment(self.folder / "run"), moment.replace(" ", "_"))():
            self.assertLess(time.monotonic(), limit, f"there is no moment at which {moment}")
        time.sleep(draw.random() * 0.05 * seconds)

    def kill_in_phases(self, how, *moments):
        if subprocess.run([PYTHON, "-c", "import torch"], check=False, stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest(f"there is no torch for {PYTHON}")
        self.how = how
        self.kill_often(self.wait_for_moment, ("at any time", *moments))

    def test_asynchronous_writes(self):
        self.kill_in_phases("asynchronous", "a file is written")

    def test_sharded_writes(self):
        self.kill_in_phases("sharded", "a shard is written", "shards wait for their index", "a file is written",
                            "old shards have lost their index")


if __name__ == "__main__":
    enter(2, BUILD, [BUILD, *sys.argv[1:]])
    unittest.main()
