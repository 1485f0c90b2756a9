#!/usr/bin/env python3
"""What jobs say, and what becomes of their tensors, where a GPU, a driver or an NCCL is missing or bad. On the doubles.

jobs_test.py HOROVODRUN NCCL_RANKS DOUBLE_OF_DRIVER DOUBLE_OF_NCCL
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HOROVODRUN, RANKS, DRIVER, NCCL = sys.argv[1:5]
RIGHT = "ok allreduce_after_another_start"


class Jobs(unittest.TestCase):
    def run_job(self, *command, ranks=2, of_rank_1="", nodes_of_2=False, **variables):
        """Runs a job that may be staged. `of_rank_1` is an assignment that rank 1 alone gets."""
        environment = {**os.environ, "HOROVOD_CUDA_DRIVER": DRIVER, "HOROVOD_NCCL_LIBRARY": NCCL,
                       "HVD_DOUBLE_DELAY": "3", "HOROVOD_NCCL": "", "HOROVOD_STALL_CHECK_TIME_SECONDS": "0",
                       **{name: str(value) for name, value in variables.items()}}
        command = command or (RANKS, "one")
        if nodes_of_2:
            command = ("sh", "-c", 'HOROVOD_FAKE_NODE=$((HOROVOD_RANK / 2)) exec "$0" "$@"', *command)
        if of_rank_1:
            command = ("sh", "-c", f'[ "$HOROVOD_RANK" != 1 ] || export {of_rank_1}; exec "$0" "$@"', *command)
        done = subprocess.run([HOROVODRUN, "-np", str(ranks), *command], env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100, check=False)
        return done.returncode, done.stdout

    def goes_on(self, *said, **job):
        code, text = self.run_job(**job)
        self.assertEqual(code, 0, text)
        self.assertIn(RIGHT, text)
        for each in said:
            self.assertRegex(text, each)
        return text

    def ends(self, *said, **job):
        code, text = self.run_job(**job)
        self.assertNotEqual(code, 0, text)
        self.assertNotIn(RIGHT, text)
        for each in said:
            self.assertRegex(text, each)
        return text

    def test_no_NCCL_is_staged_with_a_notice_or_an_error_if_it_must_be_there(self):
        cause = r"rank 0 .*NCCL was not found: /nowhere/libnccl.so.2: cannot open"
        text = self.goes_on("NCCL is not used for .*" + cause + ".*HOROVOD_NCCL=0 ends this notice",
                            HOROVOD_NCCL_LIBRARY="/nowhere/libnccl.so.2")
        self.assertEqual(text.count("NCCL is not used"), 1)
        self.ends("HOROVOD_NCCL=1, but NCCL cannot be used for .*" + cause, HOROVOD_NCCL=1,
                  HOROVOD_NCCL_LIBRARY="/nowhere/libnccl.so.2")
        self.goes_on("NCCL is not used for .*rank 1 .*NCCL was not found", of_rank_1="HOROVOD_NCCL_LIBRARY=/nowhere")

    def test_two_NCCLs_are_staged_with_both_paths(self):
        with tempfile.TemporaryDirectory() as folder:
            other = pathlib.Path(folder, "libnccl.so.2")
            shutil.copy(NCCL, other)
            self.goes_on(f"two NCCLs are in this process, .*{re.escape(str(other))}", HOROVOD_NCCL_LIBRARY="",
                         of_rank_1=f"LD_PRELOAD={NCCL}:{other}", LD_LIBRARY_PATH=os.path.dirname(NCCL))

    def test_an_NCCL_that_is_known_to_be_bad_is_used_with_a_warning(self):
        words = "NCCL 2.28.3 to 2.28.8 may hang"
        text = self.goes_on("WARNING .*" + words, HVD_NCCL_DOUBLE_VERSION=22805)
        self.assertEqual(text.count(words), 1)
        self.assertNotIn("WARNING", self.goes_on())

    def test_an_old_NCCL_with_unlimited_stacks_is_used_with_a_warning(self):
        limits = subprocess.run(["sh", "-c", "ulimit -s unlimited"], stderr=subprocess.DEVNULL, check=False)
        if limits.returncode != 0:
            self.skipTest("this machine has a hard limit of stacks")
        command = ("sh", "-c", 'ulimit -s unlimited; exec "$0" one', RANKS)
        code, text = self.run_job(*command, HVD_NCCL_DOUBLE_VERSION=22707)
        self.assertEqual(code, 0, text)
        self.assertRegex(text, "WARNING .*with unlimited stacks .*NCCL 2.27.7 .*ulimit -s 8192")
        self.assertNotIn("unlimited stacks", self.run_job(*command)[1])

    def test_versions_that_differ_and_one_that_is_too_old_are_staged(self):
        self.goes_on("all ranks need the same version, found 2.28.9 on rank 0 .* and 2.27.7 on rank 1",
                     of_rank_1="HVD_NCCL_DOUBLE_VERSION=22707")
        self.goes_on("is NCCL 2.16.2, needed is 2.18.0 or later", HVD_NCCL_DOUBLE_VERSION=21602)

    def test_a_driver_that_is_too_old_is_an_error_with_both_versions(self):
        self.ends("is a driver for CUDA 11.4, needed is CUDA 11.8 or later", HVD_DOUBLE_DRIVER=11040)

    def test_a_GPU_that_cannot_be_had_is_an_error_that_tells_why(self):
        for code, words in ((46, "another process has the GPU in exclusive mode"), (807, "ask the site for MPS")):
            with self.subTest(code=code):  # the program's own call succeeds
                self.ends(rf"rank 1: .*{words}", of_rank_1=f"HVD_DOUBLE_REFUSE=cuDevicePrimaryCtxRetain={code}@1")

    def test_a_GPU_that_two_ranks_have_is_staged_or_an_error_if_NCCL_must_be_there(self):
        shared = {"HVD_DOUBLE_DEVICES": 1, "NCCL_HOSTID": "same"}
        self.goes_on("rank 0 .* and rank 1 .* are on one GPU", **shared)
        self.ends("HOROVOD_NCCL=1, but NCCL cannot be used .*are on one GPU", HOROVOD_NCCL=1, **shared)

    def test_parts_of_a_GPU_that_two_ranks_have_are_staged_or_an_error_with_their_names(self):
        uuid = "MIG-01234567-89ab-cdef-0123-456789abcde"
        parts = {"CUDA_VISIBLE_DEVICES": uuid + "0", "NCCL_HOSTID": "same",
                 "of_rank_1": f"CUDA_VISIBLE_DEVICES={uuid}1"}
        words = f"rank 0 .* and rank 1 .* are on parts of one GPU .{uuid}0 and {uuid}1 at 0000:a0:00.0"
        self.goes_on(words, **parts)
        self.ends("HOROVOD_NCCL=1, but NCCL cannot be used .*" + words, HOROVOD_NCCL=1, **parts)

    def test_a_GPU_with_less_memory_makes_all_buffers_smaller_and_one_without_any_stages(self):
        large = {"HOROVOD_DEVICE_FUSION_THRESHOLD": 64 << 20}
        text = self.goes_on(of_rank_1=f"HVD_DOUBLE_MEMORY={24 << 20}", **large)
        self.assertNotIn("NCCL is not used", text)
        self.goes_on(r"NCCL is not used for .*rank 1 .*no memory for \d+ bytes",
                     of_rank_1=f"HVD_DOUBLE_MEMORY={900 << 10}", **large)

    def test_a_start_or_a_launch_that_fails_is_an_error_with_the_code(self):
        self.ends(r"the start over '.*' has failed: NCCL timeout .*code 8.* on rank 1",
                  of_rank_1="HVD_NCCL_DOUBLE_REFUSE=ncclCommInitRankConfig=8@0", HOROVOD_NCCL=1)
        self.ends(r"allreduce over '.*' has failed: NCCL timeout .*code 8",
                  of_rank_1="HVD_NCCL_DOUBLE_REFUSE=late=8@0", HOROVOD_NCCL=1)

    def test_a_GPU_that_fails_in_mid_step_is_named_by_all_ranks(self):
        for code, words in ((719, "a kernel has failed, or the GPU is lost"), (214, "memory of the GPU has failed")):
            with self.subTest(code=code):
                text = self.ends(words, of_rank_1=f"HVD_DOUBLE_REFUSE=cuEventRecord={code}@1", HOROVOD_NCCL=1)
                self.assertRegex(text, r"failed \S+: rank [01]: .*cuda device 1")

    def test_an_abort_that_hangs_does_not_keep_the_job(self):
        code, text = self.run_job(RANKS, "loss", ranks=3, HVD_NCCL_DOUBLE_HANG="abort", HOROVOD_PEER_TIMEOUT=1)
        self.assertNotEqual(code, 0)
        self.assertRegex(text, "rank 2 .*(ended|was lost|exit code 9)")

    def test_the_timeline_has_the_names_that_users_know(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "timeline.json")

            def names_of_job(**job):
                self.goes_on(HOROVOD_TIMELINE=file, **job)
                return {event.get("name") for event in json.loads(file.read_text(encoding="utf-8"))}

            names = names_of_job()
            self.assertLessEqual({"NEGOTIATE_ALLREDUCE", "ALLREDUCE", "QUEUE", "NCCL_ALLREDUCE"}, names)
            self.assertFalse({"MEMCPY_IN_HOST_BUFFER", "MEMCPY_OUT_HOST_BUFFER"} & names)
            through_the_host = {"WAIT_FOR_DATA", "MEMCPY_IN_HOST_BUFFER", "MEMCPY_OUT_HOST_BUFFER"}
            self.assertLessEqual(through_the_host | {"SHM_ALLREDUCE"}, names_of_job(HOROVOD_NCCL=0))
            names = names_of_job(ranks=4, nodes_of_2=True, HOROVOD_HIERARCHICAL_ALLREDUCE=1)
            self.assertLessEqual(through_the_host | {"MEMCPY_IN_FUSION_BUFFER", "NCCL_REDUCESCATTER", "TCP_ALLREDUCE",
                                                     "NCCL_ALLGATHER", "MEMCPY_OUT_FUSION_BUFFER"}, names)


class Preflight(unittest.TestCase):
    def preflight(self, ranks, ranks_of_node, slow, **variables):
        """The findings about links of GPUs, with one rank that is slow. Nodes are made up."""
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "horovodrun")
            program.write_text(f'#!/bin/sh\n[ -z "$HOROVOD_RANK" ] || export HOROVOD_FAKE_NODE='
                               f'$((HOROVOD_RANK / {ranks_of_node}))\nexec {HOROVODRUN} "$@"\n', encoding="utf-8")
            program.chmod(0o755)
            environment = {**os.environ, "HOROVOD_CUDA_DRIVER": DRIVER, "HOROVOD_NCCL_LIBRARY": NCCL,
                           "HVD_DOUBLE_DELAY": "0", "HVD_DOUBLE_DEVICES": str(ranks), "HVD_NCCL_DOUBLE_SLOW": str(slow),
                           "HOROVOD_REMOTE_PROGRAM": str(program), **variables}
            done = subprocess.run([HOROVODRUN, "-np", str(ranks), "--preflight=json", "true"], env=environment,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  timeout=100, check=False)
        found = [check for check in json.loads(done.stdout)["checks"] if check["check"] == "gpu links"]
        self.assertEqual(len(found), 1, done)
        return found[0]

    def test_names_a_rank_whose_GPU_is_slow(self):
        for ranks, ranks_of_node, words in ((3, 3, "GPUs of the node"), (3, 1, "GPUs on other nodes")):
            with self.subTest(words):
                found = self.preflight(ranks, ranks_of_node, slow=2)
                self.assertEqual(len(found["findings"]), 1, found)
                self.assertIn(words, found["findings"][0]["expected"])
                self.assertRegex(found["findings"][0]["found"], r"at best by local rank 2 \(.*, GPU-\S+002\)")

    def test_tells_why_it_has_not_measured(self):
        found = self.preflight(2, 2, -1, HOROVOD_NCCL_LIBRARY="/nowhere/libnccl.so.2")
        self.assertIn("local rank 1: NCCL was not found: /nowhere", found["findings"][1]["found"])
        found = self.preflight(2, 2, -1, HVD_NCCL_DOUBLE_REFUSE="ncclCommInitRankConfig=3@0")
        self.assertIn("the start over 'preflight' has failed", found["findings"][0]["found"])


if __name__ == "__main__":
    sys.argv[1:5] = []
    unittest.main()
