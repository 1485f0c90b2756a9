#!/usr/bin/env python3
"""Tests elastic jobs over several virtual nodes, with the stand-in for ssh and in allocations of Slurm:
elastic_test.py BUILD [Class.test]

The ranks (elastic_rank.cpp) write a file for each world in which they have made a step, and add up ones, by which they
would find a rank of another world. The tests wait for these files.
"""
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from virtual_nodes import NODES, enter
from cluster_harness import (BUILD, HOROVODRUN, ClusterJob, EndTest, agents, nodes, read, marked_processes)
from launcher_harness import LIMIT_SECONDS

RANK = os.path.join(BUILD, "tests", "elastic_rank")


class ElasticJob(ClusterJob):
    def __init__(self, test, *flags, before=(), steps=20, **environment):
        self.worlds_folder = pathlib.Path(tempfile.mkdtemp(prefix="elastic-", dir=BUILD))
        test.addCleanup(shutil.rmtree, self.worlds_folder)
        super().__init__("", "", whole=[NODES, "on", "n1", *before, HOROVODRUN, *flags, RANK, str(self.worlds_folder),
                                        str(steps)], **environment)
        test.addCleanup(self.clean_up)

    def worlds(self):
        """By epoch: the size of the world, and (rank, host, process) of the ranks that have made a step in it."""
        found = {}
        for path in self.worlds_folder.glob("world.*.*"):
            if path.name.endswith(".new"):
                continue
            size, host, process = path.read_text().split()
            epoch, rank = map(int, path.name.split(".")[1:])
            world = found.setdefault(epoch, (int(size), []))
            assert world[0] == int(size), f"two worlds of epoch {epoch}: {found}"
            world[1].append((rank, host, int(process)))
        return found

    def wait_for_world(self, size, after=0, hosts=None):
        """Waits for a world of this size, all of whose ranks have made a step. Returns its epoch and its ranks."""
        limit = time.monotonic() + LIMIT_SECONDS
        while time.monotonic() < limit and self.front.poll() is None:
            for epoch, (of_size, ranks) in self.worlds().items():
                if epoch > after and of_size == size == len(ranks) and \
                        (hosts is None or sorted(host for _, host, _ in ranks) == sorted(hosts)):
                    return epoch, sorted(ranks)
            time.sleep(0.02)
        self.clean_up()
        output, errors = self.front.communicate()
        raise AssertionError(f"there was no world of {size} on {hosts} after epoch {after}, only {self.worlds()}: "
                             f"{(self.output + output).decode()} {(self.errors + errors).decode()}")

    def wait_for_ends_on(self, node, of=None):
        """Waits until none of these processes is left on the node; of its ranks and agents, if nothing is given."""
        limit = time.monotonic() + LIMIT_SECONDS
        of = of or (lambda: marked_processes(self.mark) + agents())
        while left := [each for each in on(node, of()) if read(each, "cmdline")]:
            assert time.monotonic() < limit, f"{[read(each, 'cmdline') for each in left]} are left on {node}"
            time.sleep(0.02)

    def let_it_end(self):
        (self.worlds_folder / "go").touch()


def on_login(*words, **environment):
    return subprocess.run([NODES, "on", "login", *words], check=True, stdout=subprocess.PIPE, text=True,
                          env={**os.environ, **environment}).stdout


def let_slurm_give_up_nodes_soon():
    """Slurm gives up a node that gives no answer for so long; 300 s if nothing is said."""
    with open(f"/run/hvd-clusters/{os.environ['HVD_CLUSTER']}/slurm.conf", "a") as file:
        file.write("SlurmdTimeout=10\n")
    on_login("scontrol", "reconfigure")


def end_process(process, with_signal=signal.SIGKILL):
    nodes("on", "login", "kill", f"-{int(with_signal)}", str(process))


def signal_all(processes, with_signal):
    """Signals these processes. The end of one may have ended another: a watcher ends with its agent."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, with_signal)


def kill_all(processes):
    signal_all(processes, signal.SIGKILL)


def on(node, processes):
    """Those of the processes, as they are numbered outside of the cluster, that are on this node."""
    pid = pathlib.Path(f"/run/hvd-clusters/{os.environ['HVD_CLUSTER']}/pid-{node}").read_text().strip()
    network = subprocess.run([NODES, "on", "login", "readlink", f"/proc/{pid}/ns/net"], check=True,
                             stdout=subprocess.PIPE, text=True).stdout.strip()
    return [each for each in processes if network == link_of(each)]


def link_of(process):
    try:
        return os.readlink(f"/proc/{process}/ns/net")
    except OSError:
        return ""


def split(ranks):
    """The node of the last rank, which is to be lost, and the other one of n2 and n3: whose processes are there first
    get ranks, the others are spares."""
    lost = ranks[-1][1]
    return lost, {"n2": "n3", "n3": "n2"}[lost]


class ElasticTest(EndTest):
    def succeed(self, job, size):
        job.let_it_end()
        self.end(job, 0)
        done = sorted(line.split(b">:")[1] for line in job.output.splitlines() if b">:done" in line)
        self.assertEqual(done, [b"done %d of %d" % (rank, size) for rank in range(size)], job.errors.decode())
        job.worlds()  # no two worlds of one epoch


    def wait_for_node_state(self, node, words):
        limit = time.monotonic() + LIMIT_SECONDS
        state = ""
        while not state.startswith(words):
            self.assertLess(time.monotonic(), limit, f"{node} is {state}")
            time.sleep(0.2)
            state = on_login("sinfo", "-h", "-N", "-n", node, "-o", "%T").splitlines()[0]


class Jobs(ElasticTest):
    def test_a_rank_on_another_node_is_killed_and_replaced(self):
        job = ElasticJob(self, "-np", "4", "--min-np", "3", "-H", "n1:2,n2:2")
        epoch, ranks = job.wait_for_world(4)
        self.assertEqual([host for _, host, _ in ranks], ["n1", "n1", "n2", "n2"])
        end_process(ranks[2][2])
        epoch, _ = job.wait_for_world(3, epoch, ["n1", "n1", "n2"])
        job.wait_for_world(4, epoch, ["n1", "n1", "n2", "n2"])
        self.succeed(job, 4)

    def test_a_node_is_cut_off_and_a_spare_on_another_one_replaces_its_rank(self):
        job = ElasticJob(self, "-np", "3", "--min-np", "2", "--spares", "1", "-H", "n1:2,n2:1,n3:1",
                         HOROVOD_PEER_TIMEOUT="4")
        epoch, ranks = job.wait_for_world(3)
        lost, other = split(ranks)
        nodes("cut", lost)
        try:
            job.wait_for_world(3, epoch, ["n1", "n1", other])
            job.wait_for_ends_on(lost)  # nobody there goes on without the others
        finally:
            nodes("mend", lost)
        self.succeed(job, 3)


class MoreJobs(ElasticTest):
    def test_the_agent_of_a_node_is_killed(self):
        job = ElasticJob(self, "-np", "4", "--min-np", "2", "-H", "n1:2,n2:2")
        epoch, _ = job.wait_for_world(4)
        kill_all(on("n2", agents()))
        job.wait_for_world(2, epoch, ["n1", "n1"])
        self.succeed(job, 2)

    def test_a_node_dies(self):
        job = ElasticJob(self, "-np", "4", "--min-np", "2", "-H", "n1:1,n2:1,n3:2")
        epoch, _ = job.wait_for_world(4)
        nodes("kill", "n3")
        job.wait_for_world(2, epoch, ["n1", "n2"])
        self.succeed(job, 2)

    def test_a_node_stands_still_and_comes_back_to_a_job_that_goes_on_without_it(self):
        # The kernel of such a node answers, so it is no host that is lost, but ranks that others wait for.
        job = ElasticJob(self, "-np", "4", "--min-np", "2", "-H", "n1:2,n2:2", "--elastic-timeout",
                         "10", HOROVOD_STALL_CHECK_TIME_SECONDS="2", HOROVOD_STALL_SHUTDOWN_TIME_SECONDS="6")
        epoch, _ = job.wait_for_world(4)
        still = on("n2", marked_processes(job.mark) + agents())
        self.assertGreaterEqual(len(still), 4)
        signal_all(still, signal.SIGSTOP)
        job.wait_for_world(2, epoch, ["n1", "n1"])
        signal_all(still, signal.SIGCONT)
        job.wait_for_ends_on("n2", of=lambda: marked_processes(job.mark))
        self.succeed(job, 2)

    def test_hosts_come_and_go_by_the_discovery_script(self):
        with tempfile.TemporaryDirectory(dir=BUILD) as folder:
            hosts = pathlib.Path(folder, "hosts")

            def find(text):
                hosts.with_suffix(".new").write_text(text)
                hosts.with_suffix(".new").rename(hosts)

            find("n1:2\n")
            job = ElasticJob(self, "-np", "2", "--min-np", "1", "--host-discovery-script", f"cat {hosts}")
            epoch, _ = job.wait_for_world(2)
            find("n1:2\nn2:2\n")
            epoch, _ = job.wait_for_world(4, epoch, ["n1", "n1", "n2", "n2"])
            find("n2:2\n")
            epoch, _ = job.wait_for_world(2, epoch, ["n2", "n2"])
            find("n1:1\nn2:2\n")
            job.wait_for_world(3, epoch, ["n1", "n2", "n2"])
            self.succeed(job, 3)

    def test_fewer_ranks_than_the_least_end_a_job_whose_hosts_are_fixed_at_once(self):
        job = ElasticJob(self, "-np", "4", "--min-np", "3", "-H", "n1:2,n2:2", HOROVOD_PEER_TIMEOUT="4")
        job.wait_for_world(4)
        kill_all(on("n2", agents()))
        self.end(job, 137)
        self.assertIn("3 ranks are needed (--min-np), 2 can take part, and the hosts of this job are fixed",
                      job.errors.decode())


class InSlurm(ElasticTest):
    """Run these tests in a cluster of their own, because nodes are missing in Slurm afterwards."""

    @classmethod
    def setUpClass(cls):
        cls.agent = os.environ.pop("HOROVOD_SSH")  # the agents are steps of srun
        let_slurm_give_up_nodes_soon()

    @classmethod
    def tearDownClass(cls):
        os.environ["HOROVOD_SSH"] = cls.agent

    def job(self, *flags, allocation=("--no-kill",), **environment):
        before = ("salloc", "--quiet", *allocation, "-N3", "--ntasks-per-node=2", "-w", "n1,n2,n3")
        return ElasticJob(self, *flags, before=before, HOROVOD_PEER_TIMEOUT="4", **environment)

    def test_a_node_that_is_cut_off_is_replaced_by_spares_and_slurm_lets_the_job_go_on(self):
        job = self.job("-np", "4", "--min-np", "4", "--spares", "2")
        epoch, ranks = job.wait_for_world(4)
        lost, other = split(ranks)
        nodes("cut", lost)
        try:
            job.wait_for_world(4, epoch, ["n1", "n1", other, other])
            self.wait_for_node_state(lost, "down")
            job.wait_for_ends_on(lost)
            self.succeed(job, 4)
        finally:
            nodes("mend", lost)
            self.wait_for_node_state(lost, ("idle", "mixed", "allocated"))

    def test_a_rank_that_is_killed_is_replaced_on_its_node(self):
        job = self.job("-np", "6", "--min-np", "5")
        epoch, ranks = job.wait_for_world(6)
        end_process(ranks[0][2])
        epoch, _ = job.wait_for_world(5, epoch, ["n1", "n2", "n2", "n3", "n3"])
        job.wait_for_world(6, epoch)
        self.succeed(job, 6)

    def test_an_allocation_that_is_cancelled_takes_the_ranks_beside_horovodrun_with_it(self):
        # salloc does not end its command, and Slurm only ends what runs in steps.
        job = self.job("-np", "6", "--min-np", "2")
        job.wait_for_world(6)
        running = on_login("squeue", "-h", "-t", "RUNNING", "-o", "%i").split()  # an earlier job may be COMPLETING
        on_login("scancel", *running)
        job.finish()
        job.assert_nothing_is_left(self)
        self.assertRegex(job.errors.decode(), r"horovodrun: Slurm has ended the job \d+: this job ends with it")

    def test_no_host_is_left_that_makes_up_the_least_number_of_ranks(self):
        job = self.job("-np", "6", "--min-np", "5")
        job.wait_for_world(6)
        kill_all(on("n3", agents()))
        self.end(job, 137)
        self.assertIn("5 ranks are needed (--min-np), 4 can take part, and the hosts of this job are fixed",
                      job.errors.decode())

    def test_a_node_that_comes_back_before_slurm_has_given_it_up_gets_ranks_again(self):
        job = self.job("-np", "6", "--min-np", "4", "--blacklist-cooldown-range", "3", "5")
        epoch, ranks = job.wait_for_world(6)
        lost, other = split(ranks)
        nodes("cut", lost)
        try:
            epoch, _ = job.wait_for_world(4, epoch, ["n1", "n1", other, other])
        finally:
            nodes("mend", lost)
        job.wait_for_world(6, epoch)
        self.succeed(job, 6)


class InBatchJobs(ElasticTest):
    """Run these tests in a cluster of their own, too."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="elastic-", dir=BUILD))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        let_slurm_give_up_nodes_soon()

    def submit(self):
        """Submits the job script that horovodrun writes."""
        script = subprocess.run([HOROVODRUN, "--jobscript", "slurm", "--nodes", "2", "--ranks-per-node", "1",
                                 "--cpus-per-rank", "1", "--time", "20m", "--requeue", "--min-np", "1", "--", RANK,
                                 str(self.folder), "20"], check=True, stdout=subprocess.PIPE, text=True).stdout
        self.assertIn("#SBATCH --no-kill\n#SBATCH --requeue\n", script)
        (self.folder / "script").write_text(script)
        path = f"{os.path.dirname(HOROVODRUN)}:{os.environ['PATH']}"
        job = on_login("sbatch", "--parsable", "--chdir", str(self.folder), str(self.folder / "script"), PATH=path,
                       HOROVOD_SHARED_DIR=str(self.folder), HOROVOD_PEER_TIMEOUT="4", HOROVOD_SSH="").strip()
        return self.cancelled_at_the_end(job)

    def cancelled_at_the_end(self, job):
        self.addCleanup(subprocess.run, [NODES, "on", "login", "scancel", job], check=False)
        return job

    def submit_array(self):
        """Submits an array of two tasks. Each has two nodes and a folder that is called by its number."""
        (self.folder / "script").write_text(
            "#!/bin/bash\n#SBATCH --array=1-2 --nodes=2 --ntasks-per-node=1 --exclusive --no-kill --requeue\n"
            "#SBATCH --open-mode=append --output=%a.out\n"
            f"exec {HOROVODRUN} -np 2 --min-np 1 {RANK} {self.folder}/$SLURM_ARRAY_TASK_ID 20\n")
        for task in ("1", "2"):
            (self.folder / task).mkdir()
        return self.cancelled_at_the_end(on_login(
            "sbatch", "--parsable", "--chdir", str(self.folder), str(self.folder / "script"), HOROVOD_PEER_TIMEOUT="4",
            HOROVOD_SHARED_DIR=str(self.folder), HOROVOD_SSH="").strip())

    def output(self):
        return "".join(each.read_text(errors="replace") for each in self.folder.glob("*.out"))

    def facts_of(self, job):
        shown = on_login("scontrol", "-o", "show", "job", job)
        return dict(word.split("=", 1) for word in shown.split() if "=" in word)

    def wait_for(self, job, what, seconds=LIMIT_SECONDS):
        limit = time.monotonic() + seconds
        while not what():
            self.assertLess(time.monotonic(), limit, f"{self.facts_of(job)} {self.output()}")
            time.sleep(0.2)

    def test_a_job_whose_first_node_is_cut_off_is_put_back_and_goes_on_from_its_checkpoint(self):
        job = self.submit()
        self.wait_for(job, (self.folder / "checkpoint").exists)
        first = self.facts_of(job)["BatchHost"]
        nodes("cut", first)
        try:
            self.wait_for(job, lambda: self.facts_of(job)["Restarts"] == "1", 4 * LIMIT_SECONDS)
            self.assertIn(f"the node {first} is lost, and with it the job's script and horovodrun: the job {job} is "
                          "put back into the queue", self.output())
            (self.folder / "go").touch()
            self.wait_for(job, lambda: self.facts_of(job)["JobState"] == "COMPLETED", 3 * LIMIT_SECONDS)
        finally:
            nodes("mend", first)
        self.assertRegex(self.output(), r"begins at step [1-9]\d*\n(.*\n)*.*done 0 of 2\n")
        self.assertNotIn(first, self.facts_of(job)["NodeList"])
        self.wait_for_node_state(first, "idle")

    def test_a_task_of_an_array_whose_first_node_is_cut_off_is_put_back_and_the_others_go_on(self):
        job = self.submit_array()
        lost, other = f"{job}_1", f"{job}_2"
        for task in ("1", "2"):
            self.wait_for(f"{job}_{task}", (self.folder / task / "checkpoint").exists)
        first, number = (self.facts_of(lost)[name] for name in ("BatchHost", "JobId"))
        nodes("cut", first)
        try:
            self.wait_for(lost, lambda: self.facts_of(lost)["Restarts"] == "1", 4 * LIMIT_SECONDS)
            self.assertIn(f"the job {number} is put back into the queue", (self.folder / "1.out").read_text())
            # It is COMPLETING until Slurm has given up the node. Then the nodes that are left do not suffice.
            self.wait_for(lost, lambda: self.facts_of(lost)["JobState"] == "PENDING")
            (self.folder / "2" / "go").touch()
            self.wait_for(other, lambda: self.facts_of(other)["JobState"] == "COMPLETED")
            self.assertEqual(self.facts_of(other)["Restarts"], "0")
        finally:
            nodes("mend", first)


if __name__ == "__main__":
    enter(4, BUILD, [BUILD, *sys.argv[1:]])
    unittest.main()
