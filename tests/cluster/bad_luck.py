#!/usr/bin/env python3
"""Tests what can go wrong between nodes before a job trains, and strangers that connect to the ports of a running job:
bad_luck.py BUILD [Class.test]

Every refusal names what was found and what to do. Strangers do not harm the job.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from virtual_nodes import NODES, enter
from cluster_harness import BUILD, HOROVODRUN, ClusterJob, EndTest, RefusalTest, nodes, on_n1

FRAMES = os.path.join(BUILD, "tests", "frames_rank")


def on(node, *command):
    return subprocess.run([NODES, "on", node, *command], stdout=subprocess.PIPE, check=True, text=True).stdout


class Refused(RefusalTest):
    def refused(self, **environment):
        return super().refused("-np", "2", "-H", "n1:1,n2:1", **environment)

    def script(self, text):
        path = os.path.join(BUILD, "instead-of-ssh")
        with open(path, "w") as file:
            file.write("#!/bin/sh\n" + text)
        os.chmod(path, 0o755)
        self.addCleanup(os.unlink, path)
        return path

    def test_ssh_that_is_not_let_in(self):
        ssh = self.script("echo 'root@n2: Permission denied (publickey,password).' >&2; exit 255\n")
        self.assertRegex(self.refused(HOROVOD_SSH=ssh), r"the host n2 cannot be used: .*Permission denied "
                                                        r"\(publickey,password\)")

    def test_ssh_that_says_nothing(self):
        text = self.refused(HOROVOD_SSH=self.script("exec sleep 1000\n"), HOROVOD_START_TIMEOUT="3")
        self.assertRegex(text, r"not all hosts were ready within 3 s \(--start-timeout sets another limit\): .*n2: ")

    def test_another_version_of_us(self):
        other = self.script("echo \"horovodrun's agent, version 9.9.9\"; exec sleep 1000\n")
        text = self.refused(HOROVOD_REMOTE_PROGRAM=other)
        self.assertIn(on_n1("--version").stdout.strip(), text)
        self.assertIn("9.9.9", text)

    def test_ports_that_are_all_taken(self):
        taken = subprocess.Popen([NODES, "on", "n1", sys.executable, "-c",
                                  "import socket\nopen = []\nfor port in range(23000, 23003):\n"
                                  " for family, any in ((socket.AF_INET, '0.0.0.0'), (socket.AF_INET6, '::')):\n"
                                  "  one = socket.socket(family)\n"
                                  "  one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
                                  "  if family == socket.AF_INET6: one.setsockopt(socket.IPPROTO_IPV6, "
                                  "socket.IPV6_V6ONLY, 1)\n  one.bind((any, port)); one.listen(); open.append(one)\n"
                                  "print('taken', flush=True)\ninput()"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        try:
            self.assertEqual(taken.stdout.readline(), "taken\n")
            self.assertRegex(self.refused(HOROVOD_PORT_RANGE="23000-23002"), r"23000-23002")
            result = on_n1("-np", "2", "-H", "n1:1,n2:1", FRAMES, "1", HOROVOD_PORT_RANGE="23000-23009",
                           HOROVOD_MPI="none")
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        finally:
            taken.communicate("\n")


class Firewall(unittest.TestCase):
    """On both nodes a firewall admits new connections only to a range of ports."""

    def setUp(self):
        if shutil.which("nft") is None:
            self.skipTest("nft is not installed (tests/cluster/nodes prepare)")
        for node in ("n1", "n2"):
            if subprocess.run([NODES, "on", node, "nft", "add", "table", "inet", "gate"],
                              stderr=subprocess.DEVNULL).returncode != 0:
                self.skipTest("this kernel has no nftables")
            self.addCleanup(nodes, "on", node, "nft", "delete", "table", "inet", "gate")
            nodes("on", node, "nft", "add", "chain", "inet", "gate", "input", "{ type filter hook input priority 0 ; }")
            nodes("on", node, "nft", "add", "rule", "inet", "gate", "input", "iifname", "eth0", "tcp", "flags", "&",
                  "(syn|ack)", "==", "syn", "tcp", "dport", "!=", "23000-23009", "drop")

    def test_is_passed_with_a_range_of_ports_and_named_without(self):
        result = on_n1("-np", "4", "-H", "n1:2,n2:2", FRAMES, "1", HOROVOD_PORT_RANGE="23000-23009", HOROVOD_MPI="none")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        result = on_n1("-np", "2", "-H", "n1:1,n2:1", "echo", "started", HOROVOD_START_TIMEOUT="40")
        self.assertNotEqual(result.returncode, 0)
        self.assertEqual(result.stdout, "")
        self.assertRegex(result.stderr, r"the host n2 cannot take part: horovodrun cannot be reached at .*firewall "
                                        r"\(HOROVOD_PORT_RANGE\)")


class FullSharedMemory(unittest.TestCase):
    def test_on_one_node_alone_does_no_harm(self):
        # A small tmpfs, which can be filled: without a limit of its own a tmpfs has half of the machine's memory.
        nodes("on", "n2", "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", "/dev/shm")
        try:
            nodes("on", "n2", "sh", "-c", "dd if=/dev/zero of=/dev/shm/full 2>/dev/null || true")
            result = on_n1("-np", "4", "-H", "n1:2,n2:2", FRAMES, "1", HOROVOD_MPI="none")
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        finally:
            nodes("on", "n2", "umount", "/dev/shm")


class Strangers(EndTest):
    def listening(self, node):
        """A set of (node, address, port): where horovodrun and its ranks listen on `node`, and from which node to
        connect."""
        places = set()
        for line in on(node, "ss", "-Hltnp").splitlines():
            if "horovodrun" not in line and "partition_rank" not in line:
                continue
            address, _, port = line.split()[3].rpartition(":")
            number = node[1:]
            address = {"0.0.0.0": f"10.77.0.{number}", "*": f"10.77.0.{number}",
                       "[::]": f"fd77::{number}"}.get(address, address.strip("[]"))
            if address.startswith("fe80:"):
                continue  # a link-local address is of no use without the name of its link
            is_of_node = address.startswith("127.") or address == "::1"
            places.add((node if is_of_node else {"n1": "n2", "n2": "n1"}[node], address, int(port)))
        return places

    def test_at_every_port_of_a_running_job_do_no_harm(self):
        notes = tempfile.mkdtemp(prefix="strangers-", dir=BUILD)
        self.addCleanup(shutil.rmtree, notes)
        job = ClusterJob("", "", whole=[NODES, "on", "n1", HOROVODRUN, "-np", "4", "-H", "n1:2,n2:2",
                                        os.path.join(BUILD, "tests", "partition_rank"), "shutdown", "nobody", notes],
                                        HOROVOD_MPI="none")
        self.addCleanup(job.clean_up)
        while len([name for name in os.listdir(notes) if re.fullmatch(r"ready\.\d", name)]) < 4:
            self.assertIsNone(job.front.poll(), "the job ended")
        ports = {node: self.listening(node) for node in ("n1", "n2")}
        self.assertGreaterEqual(len(ports["n1"]), 2, ports)
        self.assertGreaterEqual(len(ports["n2"]), 1, ports)
        held = []
        for name, address, port in sorted(ports["n1"] | ports["n2"]):
            # Connects as a port scan does, sends several kinds of garbage, and keeps connections on which it sent one
            # byte.
            program = f"""
import os, socket, sys
to = ({address!r}, {port})
socket.create_connection(to).close()
for text in (b"GET / HTTP/1.0\\r\\n\\r\\n", bytes(range(256)) * 400, b"\\xff" * 64, os.urandom(4096), b"\\0" * 100000):
    one = socket.create_connection(to)
    try:
        one.sendall(text)
    except OSError:
        pass
    one.close()
slow = [socket.create_connection(to) for _ in range(20)]
for one in slow: one.send(b"h")
print("done", flush=True)
sys.stdin.read()
"""
            held.append(subprocess.Popen([NODES, "on", name, sys.executable, "-c", program], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, text=True))
        for one in held:
            self.assertEqual(one.stdout.readline(), "done\n")
        open(os.path.join(notes, "go"), "w").close()
        self.end(job, 0)
        for one in held:
            one.communicate()
        for rank in range(4):
            with open(os.path.join(notes, f"end.{rank}")) as file:
                self.assertEqual(file.read(), "shut down")


if __name__ == "__main__":
    enter(2, BUILD, [BUILD, *sys.argv[1:]])
    unittest.main()
