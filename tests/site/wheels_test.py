"""The wheels that src/python/wheels/build makes: what they need and export (Native, Aarch64), ranks and programs in C
and C++ from an installed one (Native), ranks for aarch64 over qemu (Aarch64). Tree looks only into the sources."""
import pathlib
import platform
import re
import shutil
import tempfile
import time
import unittest

import installed
import wheel

NEWEST_GLIBC = (2, 28)
OF_GLIBC = re.compile(r"(libc|libm|libdl|libpthread|librt)\.so\.[0-9]+$|ld-linux-(x86-64|aarch64)\.so\.[12]$")
TREE = (installed.ROOT / "src" / "CMakeLists.txt").read_text(encoding="utf-8")
PLUGINS = (set(re.findall(r"^hvd_plugin(?:_without_library)?\((\w+)", TREE, re.MULTILINE))
           | {"bridge", "pmi_bridge", "mpi-abi", "mpi-mpich", "mpi-openmpi"})
# The items that horovodrun --check-build ticks on a system that has PMIx and hwloc.
OPENED = ("PMIx", "hwloc", "CUDA", "NCCL", "MPI of MPICH's ABI", "MPI of Open MPI's ABI", "MPI of the standard's ABI")
# The functions that libpmix.so.2 has exported since its first release of that name (3.0) and that PMIx 5 still exports.
OF_EVERY_PMIX = {
    "PMIx_Abort", "PMIx_Commit", "PMIx_Error_string", "PMIx_Fence_nb", "PMIx_Finalize", "PMIx_Get_nb",
    "PMIx_Get_version", "PMIx_Init", "PMIx_Put", "PMIx_generate_ppn", "PMIx_generate_regex", "PMIx_server_init",
    "PMIx_server_register_client", "PMIx_server_register_nspace", "PMIx_server_setup_fork"}
MPICH5 = installed.ROOT / "build" / "mpich5-venv"
PMIX5 = installed.ROOT / "build" / "cluster-venv" / "lib" / "openmpi"
QEMU = shutil.which("qemu-aarch64-static")
AARCH64 = installed.ROOT / "build" / "aarch64"
CONSUMER = installed.ROOT / "tests" / "package" / "consumer"
TRAIN = """import torch, horovod.torch as hvd
hvd.init()
total = hvd.allreduce(torch.ones(3) * (hvd.rank() + 1), op=hvd.Sum)
print(f"{hvd.size()} ranks: {total.tolist()} MPI: {hvd.mpi_enabled()}\\n", end="", flush=True)
"""


class Tree(unittest.TestCase):
    def test_plugin_needs_only_what_every_release_of_pmix_has(self):
        used = set(re.findall(r"\bPMIx_\w+", TREE))
        self.assertTrue(used)
        self.assertEqual(used - OF_EVERY_PMIX, set())


class OfOneArchitecture:
    """Tests for the wheel of any architecture."""
    architecture = ""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="hvd-wheel-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, True)
        cls.wheel = wheel.make(cls.architecture, cls.folder)
        cls.unpacked = wheel.unpack(cls.wheel, cls.folder / "unpacked")

    def test_auditwheel_says_what_the_name_says(self):
        self.assertIn(f"-cp39-abi3-manylinux_2_28_{self.architecture}.whl", self.wheel.name)
        said = installed.run(wheel.TOOLS / "auditwheel", "show", self.wheel).stdout
        tag = re.search(r'constrains the platform tag to\s+"manylinux_([0-9]+)_([0-9]+)_' + self.architecture, said)
        self.assertTrue(tag, said)
        self.assertLessEqual((int(tag[1]), int(tag[2])), NEWEST_GLIBC, said)

    def test_every_file_starts_over_glibc_2_28(self):
        files = wheel.objects(self.unpacked)
        self.assertGreaterEqual(len(files), 12)
        for file in files:
            with self.subTest(file.name):
                self.assertLessEqual(wheel.glibc_of(file), NEWEST_GLIBC)
                own = {"libhorovod.so.1"}
                self.assertEqual({name for name in wheel.libraries_of(file) - own if not OF_GLIBC.match(name)}, set())

    def test_shared_objects_export_only_c_functions_of_ours(self):
        for file in wheel.objects(self.unpacked):
            if ".so" in file.name:
                with self.subTest(file.name):
                    foreign = {name for name in wheel.exports_of(file)
                               if not name.startswith(("hvd_", "horovod_", "PyInit_"))}
                    # The bridge replaces getenv() of the program.
                    self.assertEqual(foreign, {"getenv"} if file.name == "libhorovod_pmi_bridge.so" else set())

    def test_every_plugin_is_inside_and_nothing_of_a_site(self):
        names = {file.name for file in wheel.objects(self.unpacked)}
        self.assertEqual(names, {f"libhorovod_{plugin}.so" for plugin in PLUGINS}
                         | {"libhorovod.so.1", "_core.abi3.so", "mpi_lib_v2.abi3.so", "mpi_lib.abi3.so", "_kernels.so",
                            "horovodrun"})
        self.assertEqual(list(self.unpacked.glob("horovod.libs")), [])

    def test_no_folder_of_the_builder_is_inside(self):
        for file in wheel.objects(self.unpacked):
            with self.subTest(file.name):
                self.assertNotIn(str(installed.ROOT).encode(), file.read_bytes())


class Native(OfOneArchitecture, unittest.TestCase):
    architecture = platform.machine()

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.venv = wheel.environment(cls.folder / "venv")
        begin = time.monotonic()
        cls.installation = installed.run(
            cls.venv / "bin" / "python", "-m", "pip", "install", "--disable-pip-version-check", "--no-index",
            "--no-deps", cls.wheel,
            env={"PATH": str(cls.venv / "bin"), "HOME": str(cls.folder)})  # the machine has no compiler
        print(f"pip install took {time.monotonic() - begin:.1f} s", flush=True)
        cls.environment = {"PATH": f"{cls.venv}/bin:/usr/bin:/bin", "HOME": str(cls.folder), "LC_ALL": "C.UTF-8"}

    def run_well(self, *command, **variables):
        done = installed.run(*command, env={**self.environment, **variables}, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_it_installs_without_a_compiler(self):
        self.assertEqual(self.installation.returncode, 0, self.installation.stdout)
        said = self.run_well(self.venv / "bin" / "horovodrun", "--check-build")
        for word in OPENED:
            self.assertIn(f"[X] {word}", said)

    def with_torch(self):
        folder = self.folder / "torch"
        if not folder.exists():
            if wheel.environment(folder, with_torch=True) is None:
                self.skipTest(".venv-tests has no torch; tests/run makes it")
            self.run_well(folder / "bin" / "python", "-m", "pip", "install", "--no-index", "--no-deps", self.wheel)
            (self.folder / "train.py").write_text(TRAIN, encoding="utf-8")
        return folder / "bin"

    def test_two_ranks_of_pytorch_agree(self):
        programs = self.with_torch()
        said = self.run_well(programs / "horovodrun", "-np", "2", programs / "python", self.folder / "train.py")
        self.assertEqual(said.count("2 ranks: [3.0, 3.0, 3.0] MPI: False"), 2, said)

    def test_two_ranks_agree_under_an_mpi_with_the_standard_abi(self):
        if not (MPICH5 / "bin" / "mpiexec").exists():
            self.skipTest(f"no MPICH 5 in {MPICH5}; tests/run loads it")
        programs = self.with_torch()
        said = self.run_well(MPICH5 / "bin" / "mpiexec", "-n", "2", programs / "python", self.folder / "train.py",
                             LD_LIBRARY_PATH=str(MPICH5 / "lib"), HOROVOD_MPI="abi")
        self.assertEqual(said.count("2 ranks: [3.0, 3.0, 3.0]"), 2, said)
        self.assertEqual(said.count("MPI: True"), 2, said)

    def test_two_ranks_meet_over_a_later_pmix(self):
        if not (PMIX5 / "libpmix.so.2").exists():
            self.skipTest(f"no PMIx 5 in {PMIX5}; tests/run loads it")
        programs = self.with_torch()
        said = self.run_well(programs / "horovodrun", "-np", "2", "sh", "-c",
                             f"echo server $PMIX_VERSION; exec {programs}/python {self.folder}/train.py",
                             LD_LIBRARY_PATH=f"{PMIX5}:{PMIX5.parent}", HOROVOD_BOOTSTRAP="pmix")
        self.assertEqual(said.count("server 5."), 2, said)
        self.assertEqual(said.count("2 ranks: [3.0, 3.0, 3.0]"), 2, said)

    def told_by_the_package(self, what):
        return self.run_well(self.venv / "bin" / "python", "-m", "horovod", what).strip()

    def ranks_of(self, program, **variables):
        said = self.run_well(self.venv / "bin" / "horovodrun", "-np", "2", program, **variables)
        self.assertEqual(said.count("works"), 2, said)

    def test_programs_in_c_and_cpp_are_built_with_cmake(self):
        build = self.folder / "by-cmake"
        self.run_well("cmake", "-S", CONSUMER, "-B", build, f"-DHorovod_DIR={self.told_by_the_package('--cmake-dir')}")
        self.run_well("cmake", "--build", build)
        self.ranks_of(build / "in_c")
        self.ranks_of(build / "in_cpp")

    def test_programs_in_c_and_cpp_are_built_with_pkg_config(self):
        where = {"PKG_CONFIG_PATH": self.told_by_the_package("--pkg-config-dir")}
        flags = self.run_well("pkg-config", "--cflags", "--libs", "horovod", **where).split()
        for compiler, source in (("cc", "average.c"), ("c++", "average.cpp")):
            program = self.folder / source.replace(".", "_")
            self.run_well(compiler, *(["-std=c++20"] if compiler == "c++" else []), "-o", program, CONSUMER / source,
                          *flags)
            self.ranks_of(program)


class Aarch64(OfOneArchitecture, unittest.TestCase):
    architecture = "aarch64"

    @classmethod
    def setUpClass(cls):
        installed.skip_without(QEMU or "/usr/bin/qemu-aarch64-static", "qemu")
        installed.skip_without(AARCH64 / "complete", "a Python for aarch64")
        super().setUpClass()
        cls.emulated = [QEMU, "-L", AARCH64]

    def run_well(self, *command, **variables):
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.folder), **variables}
        done = installed.run(*command, timeout=120, env=environment)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_launcher_opens_its_plugins(self):
        said = self.run_well(*self.emulated, self.unpacked / "horovod/bin/horovodrun", "--check-build")
        for word in OPENED:
            self.assertIn(f"[X] {word}", said)

    def test_python_imports_it_and_a_rank_starts(self):
        script = ("import ctypes, platform, horovod, horovod._core\n"
                  "library = ctypes.CDLL(horovod.__path__[0] + '/lib/libhorovod.so.1')\n"
                  "job = ctypes.c_void_p()\n"
                  "print(platform.machine(), horovod.__version__, library.hvd_init(ctypes.byref(job)))\n")
        said = self.run_well(*self.emulated, AARCH64 / "usr/bin/python3", "-c", script, PYTHONPATH=str(self.unpacked),
                             HOROVOD_BOOTSTRAP="single")
        self.assertEqual(said.split(), ["aarch64", installed.version(), "0"])

    # qemu does not know PR_SET_CHILD_SUBREAPER, so this machine's own launcher is used.
    def test_two_ranks_of_a_program_in_c_agree(self):
        library = self.unpacked / "horovod/lib/libhorovod.so.1"
        self.run_well(wheel.WORK / "aarch64/compilers/cc", CONSUMER / "average.c", "-o", self.folder / "average",
                      f"-I{self.unpacked}/horovod/include", library, f"-Wl,-rpath,{library.parent}",
                      ZIG_GLOBAL_CACHE_DIR=str(wheel.WORK / "zig"), ZIG_LOCAL_CACHE_DIR=str(wheel.WORK / "zig"))
        launcher = installed.BUILD / "bin" / "horovodrun"
        said = self.run_well(launcher, "-np", "2", *self.emulated, self.folder / "average")
        self.assertEqual(said.count("works"), 2, said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
