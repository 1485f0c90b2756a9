#!/usr/bin/env python3
"""Harms a job over three nodes at a random moment: kills a rank, an agent, horovodrun, a site's launcher or its daemon,
or cuts off a node. Every job ends, a killed rank is named, and no process is left on any node. loops.py BUILD
[Class.test]

HVD_ROUNDS is the number of seeds, HVD_SEED the first one (0). A seed draws the phase, the harm, its victim and its
moment.
"""
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time
import unittest

os.environ["HVD_LIMIT_SECONDS"] = "240"  # much longer than a start waits for a node that is gone
from virtual_nodes import NODES, enter  # noqa: E402
# Noqa: E402
from cluster_harness import BUILD, HOROVODRUN, ClusterJob, EndTest, agents, is_keeper, nodes, parent_of, read
from launcher_harness import LIMIT_SECONDS, last_block, marked_processes  # noqa: E402

ROUNDS = int(os.environ.get("HVD_ROUNDS", "1"))
FIRST = int(os.environ.get("HVD_SEED", "0"))
HOSTS = ["n1", "n1", "n2", "n2", "n3", "n3"]
PHASES = ("start", "agreement", "inside", "between", "shutdown")


class LoopJob(ClusterJob):
    """partition_rank on all nodes. `victim` is the host that is harmed, `front` the command that starts horovodrun."""

    def __init__(self, phase, victim, *flags, front=(), **environment):
        self.phase = phase
        self.notes = pathlib.Path(tempfile.mkdtemp(prefix="loop-", dir=BUILD))
        rank = [os.path.join(BUILD, "tests", "partition_rank"), "inside" if phase == "start" else phase, victim,
                str(self.notes)]
        super().__init__("", "", whole=[NODES, "on", "n1", *front, HOROVODRUN, "-np", str(len(HOSTS)), *flags, *rank],
                         HOROVOD_PEER_TIMEOUT="2", HOROVOD_START_TIMEOUT="30" if phase == "start" else "120",
                         **environment)

    def wait_for_phase(self):
        limit = time.monotonic() + LIMIT_SECONDS
        while len(list(self.notes.glob("ready.?"))) < len(HOSTS) and self.phase != "start":
            if self.front.poll() is not None or time.monotonic() > limit:
                self.clean_up()
                raise AssertionError(f"not all ranks came to {self.phase}: {self.front.communicate()}")
            time.sleep(0.01)

    def go_on(self):
        """Lets all ranks shut down, if the phase is shutdown. Is called before or after the harm."""
        (self.notes / "go").touch()

    def by_number(self, is_wanted):
        """rank -> pid, for the processes with a rank's environment for which is_wanted(pid) is true."""
        found = {}
        for pid in marked_processes(self.mark):
            variables = dict(pair.split(b"=", 1) for pair in read(pid, "environ").split(b"\0") if b"=" in pair)
            number = next((variables[name] for name in (b"HOROVOD_RANK", b"PMI_RANK", b"PMIX_RANK")
                           if name in variables), None)
            if number is not None and is_wanted(pid):
                found[int(number)] = pid
        return found

    def ranks(self):
        return self.by_number(lambda pid: b"partition_rank" in os.path.basename(read(pid, "cmdline").split(b"\0")[0]))

    def gates(self):
        """rank -> pid of the outer process of the rank's keeper, which the site's launcher started."""
        return self.by_number(lambda pid: is_keeper(pid) and not is_keeper(parent_of(pid)))

    def everything(self):
        return self.output.decode(errors="replace") + self.errors.decode(errors="replace") + \
            "".join(f"\n{path.name}: {path.read_text()}" for path in sorted(self.notes.iterdir()))


def kill(pid, one=signal.SIGKILL):
    """False if the process had ended before."""
    try:
        os.kill(pid, one)
    except ProcessLookupError:
        return False
    return True


class Loops(EndTest):
    def rounds(self, harms, *flags, **environment):
        for seed in range(FIRST, FIRST + ROUNDS):
            draw = random.Random(f"{self.id()} {seed}")
            phase, harm, victim = draw.choice(PHASES), draw.choice(harms), draw.choice(("n1", "n2", "n3"))
            if harm == "cut":
                victim = draw.choice(("n2", "n3"))  # cutting off n1, where horovodrun is, cuts off all others
                # If the other ranks have ended in order, only mpiexec could notice the lost node, and Hydra never does.
                if "--mpi" in flags and phase == "shutdown":
                    phase = "between"
            with self.subTest(seed=seed, phase=phase, harm=harm, victim=victim):
                print(self.id(), seed, phase, harm, victim, flush=True)
                job = LoopJob(phase, victim, *flags, **environment)
                try:
                    self.one(job, draw, harm, victim)
                finally:
                    if harm == "cut":
                        nodes("mend", victim)
                    job.clean_up()
                    shutil.rmtree(job.notes)

    def one(self, job, draw, harm, victim):
        job.wait_for_phase()
        if draw.random() < 0.5:
            job.go_on()
        time.sleep(draw.random() * (0.6 if job.phase == "start" else 0.1))  # the harm comes at any moment of the phase
        named = self.harm(job, draw, harm, victim)
        job.go_on()
        code = job.finish()
        job.assert_nothing_is_left(self)
        if job.phase == "shutdown" or (named is None and job.phase == "start"):
            return  # the job may have ended before the harm, or the process to be harmed may not have existed yet
        self.assertNotEqual(code, 0, job.everything())
        if named is not None and job.phase != "start":
            self.assertIn(f"FIRST FAILURE: rank {named} on host {victim} ", last_block(job.errors), job.everything())

    def harm(self, job, draw, harm, victim):
        """Does the harm. Returns the rank that horovodrun must name, or None."""
        if harm == "rank":
            ranks = {number: pid for number, pid in job.ranks().items() if HOSTS[number] == victim}
            if not ranks:
                for pid in self.launcher(job):
                    kill(pid, signal.SIGTERM)  # only the launcher can be harmed, because no rank has started yet
                return None
            number = draw.choice(sorted(ranks))
            kill(ranks[number])
            return number
        if harm in ("cut", "kill"):
            nodes(harm, victim)
            return None
        if not any(map(kill, self.those(job, harm, victim))):  # kills one of them
            any(map(kill, self.launcher(job)))
        return None

    @staticmethod
    def launcher(job):
        """[pid of horovodrun], or [] if the job has ended. Waits until horovodrun has started, because the death of the
        shell that starts horovodrun would not be noticed."""
        limit = time.monotonic() + LIMIT_SECONDS
        while job.front.poll() is None and time.monotonic() < limit:
            try:
                return [job.launcher()]
            except AssertionError:
                time.sleep(0.01)
        return []

    @staticmethod
    def those(job, harm, victim):
        if harm == "launcher":
            return Loops.launcher(job)
        if harm in ("mpiexec.hydra", "srun"):
            # Only the launcher of the ranks. horovodrun also starts an srun to ask a node what it has, and goes on if
            # this srun is killed.
            commands = {pid: read(pid, "cmdline").split(b"\0") for pid in marked_processes(job.mark)}
            return [pid for pid, words in commands.items() if os.path.basename(words[0]) == harm.encode()
                    and any(word.endswith(b"/partition_rank") for word in words)]
        ours = agents()
        if harm == "agent":
            return [pid for pid in ours if parent_of(pid) in ours]
        if harm == "watcher":
            return [pid for pid in ours if parent_of(pid) not in ours]
        if harm == "daemon":  # the daemon of the site's launcher
            return [parent for number, pid in job.gates().items() if HOSTS[number] == victim
                    and (parent := parent_of(pid))]
        return [pid for pid in marked_processes(job.mark) if is_keeper(pid)
                and is_keeper(parent_of(pid)) == (harm == "keeper")]

    def test_over_agents_of_ours(self):
        self.rounds(("rank", "rank", "agent", "watcher", "launcher", "cut"), "-H", "n1:2,n2:2,n3:2", HOROVOD_MPI="none")

    def test_over_mpi(self):
        plugin = os.path.join(BUILD, "lib", "libhorovod_mpi-mpich.so")
        if not os.path.exists(plugin) or not shutil.which("mpiexec.hydra"):
            self.skipTest("there is no plugin for MPICH, or no mpiexec.hydra")
        self.rounds(("rank", "rank", "keeper", "gate", "daemon", "mpiexec.hydra", "launcher", "cut"), "--mpi", "-H",
                    "n1:2,n2:2,n3:2", HOROVOD_MPI="mpich", HOROVOD_MPIEXEC="mpiexec.hydra",
                    HOROVOD_PLUGIN_PATH=os.path.join(BUILD, "lib"))

    def test_over_slurm(self):
        if not os.path.exists(os.path.join(BUILD, "lib", "libhorovod_pmix.so")):
            self.skipTest("built without PMIx")
        self.rounds(("rank", "rank", "keeper", "gate", "daemon", "srun", "launcher"), HOROVOD_MPI="none",
                    # salloc reports success if a signal ended its command. It hands on the exit code of a shell.
                    front=("salloc", "--quiet", "-N3", "-n6", "--ntasks-per-node=2", "sh", "-c", '"$@"; exit $?', "sh"))


if __name__ == "__main__":
    enter(3, BUILD, [BUILD, *sys.argv[1:]])
    unittest.main()
