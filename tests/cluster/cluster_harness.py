"""Shared by the tests of horovodrun over virtual nodes. A program that imports this module gets the build folder as its
first argument.

The tests find ranks by a mark in their environment, and agents by their command line.
"""
import os
import subprocess
import sys
import time
import unittest

from virtual_nodes import HERE, NODES

sys.path.insert(0, os.path.join(HERE, "..", "multiprocess"))
BUILD = os.path.realpath(sys.argv.pop(1))
os.environ["HOROVODRUN"] = HOROVODRUN = os.path.join(BUILD, "bin", "horovodrun")
os.environ["HOROVOD_SSH"] = os.path.join(HERE, "agent")
os.environ["HOROVOD_START_TIMEOUT"] = "120"
os.environ.setdefault("HVD_LIMIT_SECONDS", "120")
from launcher_harness import LIMIT_SECONDS, Job, LauncherTest, last_block, marked_processes, wait_for_end  # noqa: E402

AGENT_FLAGS = {b"--as-agent-of-a-host", b"--as-agent-that-calls"}
KEEPER_FLAG = b"--as-keeper-of-a-rank"
WAIT = "(setsid sleep 1000 &) ; echo ready; exec sleep 1000"


def read(pid, name):
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""


def pid_namespace(pid):
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def cluster_processes():
    with open(f"/run/hvd-clusters/{os.environ['HVD_CLUSTER']}/root") as file:
        ours = pid_namespace(file.read().split()[0])
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and pid_namespace(name) == ours]


def agents():
    """The agents on all nodes, and their watchers. ssh starts a watcher, and the watcher starts the agent."""
    return [pid for pid in cluster_processes() if AGENT_FLAGS & set(read(pid, "cmdline").split(b"\0"))]


def is_keeper(pid):
    """True for either of the two processes of a rank's keeper, false for a launcher whose command line starts
    keepers."""
    return read(pid, "cmdline").split(b"\0")[1:2] == [KEEPER_FLAG]


def family_of(pid):
    """(parent, process group, session); () if the process has ended."""
    return tuple(map(int, read(pid, "stat").rpartition(b")")[2].split()[1:4]))


def parent_of(pid):
    """None if the process has ended."""
    return next(iter(family_of(pid)), None)


def nodes(*arguments):
    subprocess.run([NODES, *arguments], check=True)


def on_n1(*arguments, stdin=None, **environment):
    return subprocess.run([NODES, "on", "n1", HOROVODRUN, *arguments], env=dict(os.environ, **environment),
                          input=stdin or "", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)


def wait_until_none_is_left(processes):
    while left := [pid for pid in processes() if read(pid, "cmdline")]:
        try:
            descriptor = os.pidfd_open(left[0])
        except OSError:
            continue
        try:
            wait_for_end(descriptor, f"process {left[0]} ({read(left[0], 'cmdline')})")
        finally:
            os.close(descriptor)


class ClusterJob(Job):
    def __init__(self, hosts, shell, ranks=4, flags=(), whole=None, **environment):
        command = whole or [NODES, "on", "n1", HOROVODRUN, "-np", str(ranks), "-H", hosts, *flags, "sh", "-c", shell]
        super().__init__(ranks, shell, whole_command=command, **environment)

    def launcher(self):
        """The pid of horovodrun (Job.front is the process that enters the node)."""
        for pid in marked_processes(self.mark):
            if os.path.basename(read(pid, "cmdline").split(b"\0")[0]) == b"horovodrun" and not is_keeper(pid) and \
                    os.path.basename(read(parent_of(pid), "cmdline").split(b"\0")[0]) != b"horovodrun":
                return pid
        raise AssertionError("there is no horovodrun")

    def rank(self, number):
        """Tries again, because a process shows no environment during an exec."""
        limit = time.monotonic() + LIMIT_SECONDS
        while time.monotonic() < limit:
            for pid in marked_processes(self.mark):
                if f"HOROVOD_RANK={number}".encode() in read(pid, "environ").split(b"\0") and \
                        os.path.basename(read(parent_of(pid), "cmdline").split(b"\0")[0]) == b"horovodrun" and \
                        b"1000" in read(pid, "cmdline"):
                    return pid
        raise AssertionError(f"there is no rank {number}")

    def assert_nothing_is_left(self, test):
        """Waits until no process of the job is left: after a kill of horovodrun, processes on other nodes end later."""
        wait_until_none_is_left(lambda: agents() + marked_processes(self.mark))
        super().assert_nothing_is_left(test)


class RefusalTest(unittest.TestCase):
    def refused(self, *arguments, **environment):
        """Runs horovodrun on n1, checks that it starts nothing and leaves nothing, and returns its standard error. An
        agent on another node may end a little later than horovodrun."""
        result = on_n1(*arguments, "echo", "started", **environment)
        self.assertNotEqual(result.returncode, 0)
        self.assertEqual(result.stdout, "")
        wait_until_none_is_left(agents)
        return result.stderr


class EndTest(LauncherTest):
    def end(self, job, expected, first_failure=None):
        code = job.finish()
        job.assert_nothing_is_left(self)
        self.assertEqual(code, expected, job.errors.decode(errors="replace"))
        if first_failure:
            self.assertIn("FIRST FAILURE: " + first_failure, last_block(job.errors))
