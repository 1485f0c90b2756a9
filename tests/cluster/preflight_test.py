#!/usr/bin/env python3
"""horovodrun --preflight over virtual nodes: faults that are put into one node, n3, and runs without a fault.
preflight_test.py BUILD [Class.test]

What only the probes of n3 shall see comes from a wrapper around horovodrun, which HOROVOD_REMOTE_PROGRAM names.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from virtual_nodes import HERE, NODES, enter

ROOT = os.path.realpath(os.path.join(HERE, "..", ".."))
SICK = "n3"
ONE_EACH = ("-np", "4", "-H", "n1:1,n2:1,n3:1,n4:1")
TWO_EACH = ("-np", "6", "-H", "n1:2,n2:2,n3:2")
GPUS_OF_POLARIS = ("0000:07:00.0", "0000:46:00.0", "0000:85:00.0", "0000:c7:00.0")

# This library is loaded before others. It makes the clock appear five seconds ahead.
CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *time) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int result = real(clock, time);
  if (clock == CLOCK_REALTIME) time->tv_sec += 5;
  return result;
}
"""
OTHER_MPI = """
#include <string.h>
int MPI_Get_library_version(char *text, int *length) { strcpy(text, "Other MPI 9.9"); *length = 13; return 0; }
"""


def on(node, script):
    subprocess.run([NODES, "on", node, "sh", "-ec", script], check=True, stdout=subprocess.DEVNULL)


class Preflight(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="preflight-", dir=os.path.join(BUILD, "tests"))
        self.addCleanup(shutil.rmtree, self.folder)

    def at_probes_of_sick(self, script):
        """Returns the path of a horovodrun that first runs these commands, in the shell that then becomes a probe of
        n3."""
        path = os.path.join(self.folder, "horovodrun")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/bash\nprogram={HOROVODRUN}\nif [ "$1" = --as-probe-of-a-rank ]; then\n'
                       f'if [ "$(hostname)" = {SICK} ]; then :\n{script}\nfi; fi\nexec $program "$@"\n')
        os.chmod(path, 0o755)
        return path

    def compiled(self, name, code, *flags):
        path = os.path.join(self.folder, name)
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", path, *flags], input=code, text=True,
                       check=True)
        return path

    def run_it(self, *arguments, **environment):
        begin = time.monotonic()
        done = subprocess.run([NODES, "on", "n1", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, text=True, check=False, timeout=120,
                              env={**os.environ, **environment})
        try:
            told = json.loads(done.stdout)
        except ValueError:
            self.fail(f"no JSON: {done.stdout}\n{done.stderr}")
        told["wall"] = time.monotonic() - begin
        self.assertEqual(done.returncode, 0 if told["ok"] else 3)
        return told

    def found(self, *arguments, hosts=ONE_EACH, script=None, **environment):
        """Returns the findings (check, severity, host, found) of a run with this fault. The run must take less than
        half a minute."""
        if script is not None:
            environment["HOROVOD_REMOTE_PROGRAM"] = self.at_probes_of_sick(script)
        told = self.run_it(HOROVODRUN, *hosts, "--preflight=json", *arguments, **environment)
        self.assertLess(told["seconds"], 30)
        all_found = [(check["check"], finding["severity"], finding["host"], finding["found"])
                     for check in told["checks"] for finding in check["findings"]]
        print(f"    {told['seconds']:4.1f} s  {self._testMethodName[5:]}: {all_found}", file=sys.stderr)
        return all_found

    def assert_named(self, found, check, words="", severity="fault", besides=""):
        """Asserts that the check has this finding about n3, and that no other node has a fault (except of the check
        `besides`)."""
        self.assertTrue(any(one[:3] == (check, severity, SICK) and words in one[3] for one in found), found)
        at_fault = {host for name, kind, host, _ in found if kind == "fault" and name != besides}
        self.assertEqual(at_fault - {SICK, ""}, set(), found)


class Faults(Preflight):
    def test_slow_link(self):
        on(SICK, "tc qdisc add dev eth0 root tbf rate 200mbit burst 131072 latency 20ms")
        self.addCleanup(on, SICK, "tc qdisc del dev eth0 root")
        self.assert_named(self.found(), "links", "Mbit/s at best")

    def test_other_release(self):
        other = os.path.join(self.folder, "other")
        with open(HOROVODRUN, "rb") as file:
            program = file.read()
        with open(other, "wb") as file:
            file.write(program.replace(VERSION.encode() + b"\0", b"9" + VERSION[1:].encode() + b"\0"))
        os.chmod(other, 0o755)
        self.assert_named(self.found(script=f"program={other}"), "horovod", "Horovod 9")

    def test_full_shared_memory(self):
        on(SICK, "mount -t tmpfs -o size=1m tmpfs /dev/shm")
        self.addCleanup(on, SICK, "umount /dev/shm")
        self.assert_named(self.found(), "memory", "1.0 MiB of 1.0 MiB")

    def test_few_open_files(self):
        self.assert_named(self.found(script="ulimit -n 256"), "limits", "256 open files")

    def test_little_locked_memory(self):
        self.assert_named(self.found(script="ulimit -l 64"), "limits",
                          "64 KiB of locked memory")

    def test_wrong_clock(self):
        clock = self.compiled("clock.so", CLOCK, "-ldl")
        self.assert_named(self.found(script=f"export LD_PRELOAD={clock}"), "clocks", "ahead")

    def test_ranks_on_the_same_processor(self):
        self.assert_named(self.found(hosts=TWO_EACH, script="taskset -cp 0 $$ >/dev/null"), "binding",
                          "two ranks share processors 0")

    def test_ranks_on_the_same_gpu(self):
        machine = os.path.join(ROOT, "tests/fixtures/hwloc/polaris.xml")
        for minor, gpu in enumerate(GPUS_OF_POLARIS):  # a made-up driver
            folder = os.path.join(self.folder, "proc/driver/nvidia/gpus", gpu)
            os.makedirs(folder)
            os.makedirs(os.path.join(self.folder, "dev"), exist_ok=True)
            with open(os.path.join(folder, "information"), "w", encoding="utf-8") as file:
                file.write(f"Device Minor: {minor}\n")
            open(os.path.join(self.folder, f"dev/nvidia{minor}"), "w", encoding="utf-8").close()
        self.assert_named(self.found(hosts=TWO_EACH, script="export CUDA_VISIBLE_DEVICES=0", HWLOC_XMLFILE=machine,
                                     HOROVOD_GPU_ROOT=self.folder),
                          "gpus", f"take GPU {GPUS_OF_POLARIS[0]}")

    def test_lost_gpu(self):
        machine = os.path.join(ROOT, "tests/fixtures/hwloc/polaris.xml")
        self.assert_named(self.found(script="unset HWLOC_XMLFILE", HWLOC_XMLFILE=machine), "gpus", "0 GPUs")

    def test_scratch_folder_that_is_missing(self):
        for node in ("n1", "n2", "n4"):
            on(node, "mkdir -p /tmp/scratch")
        self.assert_named(self.found(TMPDIR="/tmp/scratch"), "TMPDIR", "No such file")

    def test_scratch_folder_without_room(self):
        for node in ("n1", "n2", "n3", "n4"):
            on(node, "mkdir -p /tmp/full")
        on(SICK, "mount -t tmpfs -o size=1m tmpfs /tmp/full")
        self.addCleanup(on, SICK, "umount /tmp/full")
        self.assert_named(self.found(TMPDIR="/tmp/full"), "TMPDIR", "1.0 MiB")

    def wrong_hosts(self, edit):
        on(SICK, f"sed '{edit}' /etc/hosts >/tmp/hosts; mount --bind /tmp/hosts /etc/hosts")
        self.addCleanup(on, SICK, "umount /etc/hosts")

    def test_wrong_address_of_a_name(self):
        self.wrong_hosts("/n2$/s/^.*$/10.77.0.99 n2/")
        self.assert_named(self.found(), "names", "n2 is taken for 10.77.0.99")

    def test_unknown_name(self):
        self.wrong_hosts("/n2$/d")
        self.assert_named(self.found(), "names", "the name n2 is not known")

    def test_missing_python_package(self):
        for node in ("n1", "n2", "n4"):
            on(node, "mkdir -p /tmp/packages/horovod; echo '__version__ = \"1\"' >/tmp/packages/horovod/_version.py; "
                     "touch /tmp/packages/horovod/__init__.py")
        self.assert_named(self.found("python3", "train.py", PYTHONPATH="/tmp/packages"), "python", "no horovod")

    def test_other_mpi(self):
        self.compiled("libmpi.so.40", OTHER_MPI)
        self.assert_named(self.found(script=f"export LD_LIBRARY_PATH={self.folder}"), "mpi, nccl", "Other MPI 9.9")

    def test_world_of_another_size(self):
        self.assert_named(self.found(script="export HOROVOD_SIZE=5"), "world", "believes in 5")

    def test_rank_that_is_there_twice(self):
        self.assert_named(self.found(script="export HOROVOD_RANK=0"), "world", "rank 0 also runs on n1")

    def test_rank_that_hangs_before_it_begins(self):
        self.assert_named(self.found(script="exec sleep 1000"), "start", "no word from this host")

    def test_probe_that_stops(self):
        self.assert_named(self.found(script="(sleep 0.3; kill -STOP $$) &"), "start")

    def test_two_nodes_that_do_not_reach_each_other(self):
        ways = ("10.77.0.2/32", "fd77::2/128")
        on(SICK, "; ".join(f"ip route add blackhole {way}" for way in ways))
        self.addCleanup(on, SICK, "; ".join(f"ip route del blackhole {way}" for way in ways))
        self.assert_named(self.found(), "links", "none to n2, though both reach other nodes")

    def test_node_without_a_network(self):
        subprocess.run([NODES, "cut", SICK], check=True)
        self.addCleanup(subprocess.run, [NODES, "mend", SICK], check=True)
        self.assert_named(self.found(), "start")

    def test_node_whose_agent_does_not_answer(self):
        ssh = os.path.join(self.folder, "ssh")
        with open(ssh, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/bash\nfor word; do [ "$word" != {SICK} ] || exec sleep 1000; done\n'
                       f'exec {HERE}/agent "$@"\n')
        os.chmod(ssh, 0o755)
        self.assert_named(self.found(HOROVOD_SSH=ssh), "start")

    def test_other_image(self):
        self.assert_named(self.found(script="export HOROVOD_CONTAINER=b.sif", HOROVOD_CONTAINER="a.sif"), "container",
                          "b.sif")

    def test_pmix_of_another_release_that_works_is_only_a_note(self):
        self.assert_named(self.found(script="export PMIX_VERSION=3.2.3"), "container", severity="note")

    def test_only_sockets_beside_a_fabric(self):
        for node in ("n1", "n2", "n3", "n4"):
            on(node, "mkdir -p /tmp/class/infiniband/mlx5_0; cp -a /sys/class/net /tmp/class/; "
                     "mount --bind /tmp/class /sys/class")
            self.addCleanup(on, node, "umount /sys/class")
        # A fabric wants to lock more memory than a virtual machine may allow.
        self.assert_named(self.found(script="export UCX_TLS=tcp,self"), "fabric",
                          "all would go over plain TCP: UCX_TLS=tcp,self", besides="limits")


class Jobs(Preflight):
    def run_before(self, *command, script=None):
        environment = dict(os.environ)
        if script is not None:
            environment["HOROVOD_REMOTE_PROGRAM"] = self.at_probes_of_sick(script)
        return subprocess.run([NODES, "on", "n1", HOROVODRUN, *ONE_EACH, "--preflight", *command], env=environment,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              check=False, timeout=120)

    def test_start_after_a_preflight_without_fault(self):
        done = self.run_before("sh", "-c", "echo trains; exit 7")
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertIn("no fault", done.stderr)
        self.assertEqual(done.stdout.count("trains"), 4)

    def test_do_not_start_after_a_fault(self):
        done = self.run_before("echo", "trains", script="ulimit -n 256")
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertIn("limits     FAULT n3: 256 open files", done.stderr)


class CleanRuns(Preflight):
    def test_give_no_alarm(self):
        ways = [(HOROVODRUN, *ONE_EACH), (HOROVODRUN, *TWO_EACH), (HOROVODRUN, "-np", "2", "-H", "n1:1,n2:1"),
                ("salloc", "-Q", "-N", "4", "--ntasks-per-node=1", HOROVODRUN),
                (HOROVODRUN, "-np", "2", "-H", "localhost:2")]
        longest = 0
        for number in range(int(os.environ.get("HVD_ROUNDS", "50"))):
            told = self.run_it(*ways[number % len(ways)], "--preflight=json")
            findings = [(check["check"], one) for check in told["checks"] for one in check["findings"]]
            self.assertEqual((told["ok"], findings), (True, []), f"run {number}")
            longest = max(longest, told["wall"])
        print(f"    the longest took {longest:.1f} s", file=sys.stderr)
        self.assertLess(longest, 30)


if __name__ == "__main__":
    enter(4, sys.argv[1], sys.argv[1:])
    BUILD = os.path.realpath(sys.argv.pop(1))
    HOROVODRUN = os.path.join(BUILD, "bin", "horovodrun")
    VERSION = subprocess.run([HOROVODRUN, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    os.environ["HOROVOD_SSH"] = os.path.join(HERE, "agent")
    unittest.main(verbosity=2)
