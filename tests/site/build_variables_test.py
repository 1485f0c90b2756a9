"""Tests the environment variables of Horovod's build: their effect (src/cmake/build_variables.cmake), the table in
docs/migration.md, and the extras of pip."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import installed

FILE = installed.ROOT / "src" / "cmake" / "build_variables.cmake"
# The list of variables is from setup.py of Horovod 0.28.1.
EXTRAS = {"all-frameworks", "dev", "keras", "mxnet", "pytorch", "pytorch-spark", "ray", "spark", "tensorflow",
          "tensorflow-cpu", "tensorflow-gpu", "test"}


def without_build_variables():
    return {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")}


def answer(**variables):
    """Returns CMake's exit code, and its messages as one line."""
    done = installed.run("cmake", "-P", FILE, env={**without_build_variables(), **variables})
    return done.returncode, " ".join(done.stdout.split())


class Answers(unittest.TestCase):
    def fails(self, *words, **variables):
        code, said = answer(**variables)
        self.assertNotEqual(code, 0, said)
        for word in (*words, "[HVD1011]"):
            self.assertIn(word, said)

    def says(self, *words, **variables):
        code, said = answer(**variables)
        self.assertEqual(code, 0, said)
        for word in words:
            self.assertIn(word, said)

    def test_nothing_is_said_without_variables(self):
        self.assertEqual(answer(), (0, ""))
        self.assertEqual(answer(HOROVOD_WITH_TENSORFLOW="0", HOROVOD_GPU_OPERATIONS=""), (0, ""))

    def test_what_is_there_in_any_case_is_said(self):
        self.says("one build serves every PyTorch", HOROVOD_WITH_PYTORCH="1")
        self.says("nothing is left out", HOROVOD_WITHOUT_PYTORCH="1")
        self.says("TensorFlow 2.13 and later", HOROVOD_WITH_TENSORFLOW="1")
        self.says("part of every build", HOROVOD_WITHOUT_GLOO="1")
        self.says("HOROVOD_DISABLE_NVTX_RANGES=1", HOROVOD_WITH_NVTX="1")
        self.says("part of every build", HOROVOD_WITHOUT_NVTX="1")
        self.says("found at run time", HOROVOD_WITH_MPI="1")
        self.says("chosen at run time", HOROVOD_CPU_OPERATIONS="mpi")

    def test_what_cannot_be_had_is_an_error(self):
        self.fails("HOROVOD_WITH_MXNET=1", HOROVOD_WITH_MXNET="1")
        self.says(HOROVOD_WITHOUT_MXNET="1")
        for verb in ("OPERATIONS", "ALLREDUCE", "ALLGATHER", "BROADCAST", "ALLTOALL", "REDUCESCATTER"):
            self.says("found at run time", **{f"HOROVOD_GPU_{verb}": "NCCL"})
            self.fails(f"HOROVOD_GPU_{verb}=MPI", "expected NCCL or nothing", **{f"HOROVOD_GPU_{verb}": "MPI"})
        self.says("found at run time", HOROVOD_GPU="CUDA")
        self.fails("HOROVOD_GPU=ROCM", "expected CUDA or nothing", HOROVOD_GPU="ROCM")
        self.fails("oneCCL", HOROVOD_CPU_OPERATIONS="CCL")

    def test_contradictions_and_malformed_values_are_errors(self):
        self.fails("contradict", HOROVOD_WITH_MPI="1", HOROVOD_WITHOUT_MPI="1")
        self.fails("contradict", HOROVOD_CPU_OPERATIONS="MPI", HOROVOD_WITHOUT_MPI="1")
        self.fails("expected 0 or 1, found 'yes'", HOROVOD_WITH_PYTORCH="yes")
        self.fails("expected MPI, GLOO or nothing, found 'tcp'", HOROVOD_CPU_OPERATIONS="tcp")

    def test_every_variable_of_the_build_has_an_answer_and_a_row(self):
        table = (installed.ROOT / "src" / "base" / "settings" / "config.cpp").read_text(encoding="utf-8")
        known = set(re.findall(r'\{"(HOROVOD_\w+)".*"of the build', table))
        self.assertGreater(len(known), 30)
        page = (installed.ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
        rows = {name for line in page.splitlines() if line.startswith("| `HOROVOD_")
                for name in re.findall(r"`(HOROVOD_\w+)", line.split("|")[1])}
        self.assertEqual(known - rows, set())
        for variable in sorted(known):
            if not variable.startswith("HOROVOD_WITHOUT_") or variable in ("HOROVOD_WITHOUT_MPI",
                                                                           "HOROVOD_WITHOUT_GLOO"):
                with self.subTest(variable):
                    self.assertIn(variable, answer(**{variable: "1"})[1])

    def test_without_mpi_no_plugin_for_mpi_is_built(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="hvd-without-mpi-"))
        self.addCleanup(shutil.rmtree, folder, True)
        done = installed.run("cmake", "-S", installed.ROOT, "-B", folder, "-G", "Ninja", "-DHVD_BUILD_TESTS=OFF",
                             "-DHVD_BUILD_EXAMPLES=OFF",
                             env={**without_build_variables(), "HOROVOD_WITHOUT_MPI": "1"})
        self.assertEqual(done.returncode, 0, done.stdout)
        targets = subprocess.run(["ninja", "-C", folder, "-t", "targets", "all"], check=True, capture_output=True,
                                 text=True).stdout
        self.assertIn("libhorovod_bridge.so", targets)
        self.assertNotIn("libhorovod_mpi", targets)


class Extras(unittest.TestCase):
    def test_horovods_extras_are_known_and_that_of_pytorch_brings_it(self):
        if sys.version_info < (3, 11):
            self.skipTest("this Python reads no TOML")
        import tomllib
        project = tomllib.loads((installed.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        extras = project["optional-dependencies"]
        self.assertEqual(EXTRAS - set(extras), set())
        for name in ("pytorch", "torch", "all-frameworks", "pytorch-spark"):
            self.assertIn("torch", extras[name])


if __name__ == "__main__":
    unittest.main(verbosity=2)
