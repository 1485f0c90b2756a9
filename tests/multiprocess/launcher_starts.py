"""The environment that ranks find when they start, and the errors of wrong command lines."""
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest

from launcher_harness import HOROVODRUN, Job, LauncherTest, without_notices

STORE_CLIENT = os.environ["HVD_STORE_CLIENT"]
PMIX_CLIENT = os.environ.get("HVD_PMIX_CLIENT", "")


def run(*arguments, **environment):
    return subprocess.run([HOROVODRUN, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=60, stdin=subprocess.DEVNULL, env=dict(os.environ, **environment))


def run_limited(limit, soft, hard, *arguments, **options):
    """Runs horovodrun with a limit of resources (ulimit)."""
    return subprocess.run([HOROVODRUN, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=60,
                          stdin=subprocess.DEVNULL, preexec_fn=lambda: resource.setrlimit(limit, (soft, hard)),
                          **options)


def lines_by_rank(output):
    result = {}
    for line in output.splitlines():
        rank, text = line[1:].split("]<stdout>:", 1)
        result.setdefault(int(rank), []).append(text)
    return result


class Ranks(LauncherTest):
    def test_see_who_they_are(self):
        names = "RANK SIZE LOCAL_RANK LOCAL_SIZE CROSS_RANK CROSS_SIZE HOSTNAME".split()
        shell = "echo " + " ".join(f"$HOROVOD_{name}" for name in names) + " $PYTHONUNBUFFERED"
        result = run("-np", "3", "sh", "-c", shell)
        self.assertEqual(lines_by_rank(result.stdout), {r: [f"{r} 3 {r} 3 0 1 localhost 1"] for r in range(3)},
                         result.stderr)

    def test_see_what_flags_set(self):
        result = run("-np", "1", "--fusion-threshold-mb", "32", "--cycle-time-ms", "20", "--no-stall-check",
                     "--log-without-timestamp", "sh", "-c",
                     "echo $HOROVOD_FUSION_THRESHOLD $HOROVOD_CYCLE_TIME $HOROVOD_STALL_CHECK_DISABLE "
                     "$HOROVOD_LOG_HIDE_TIME")
        self.assertEqual(result.stdout, "[0]<stdout>:33554432 20.0 1 1\n")

    def test_do_not_see_another_launchers_traces(self):
        result = run("-np", "1", "env", PMI_RANK="5", PMIX_RANK="7", PMI_FD="3", OMPI_COMM_WORLD_RANK="4",
                     HOROVOD_RANK="9", PMIX_MCA_psec_base_verbose="0", HOROVOD_OWNER="1:2:3:4:5:6:is-in")
        variables = dict(line.split("=", 1) for line in lines_by_rank(result.stdout)[0] if "=" in line)
        for name in ("PMI_RANK", "PMI_FD", "OMPI_COMM_WORLD_RANK", "HOROVOD_OWNER"):
            self.assertNotIn(name, variables)
        self.assertEqual(variables["HOROVOD_RANK"], "0")
        self.assertEqual(variables["PMIX_MCA_psec_base_verbose"], "0")

    def test_start_jobs_of_their_own_as_the_user_would(self):
        show = ("echo $HOROVOD_SSH $HOROVOD_TERMINATION_GRACE_SECONDS $HOROVOD_RANK:$HOROVOD_SIZE "
                "${OMP_NUM_THREADS-none} $LD_PRELOAD")
        own = {"HOROVOD_SSH": "my_ssh", "HOROVOD_TERMINATION_GRACE_SECONDS": "7"}
        # Sanitizer builds have no bridge, because the sanitizer's library must be loaded first.
        has_bridge = os.path.exists(os.path.join(os.path.dirname(HOROVODRUN), "../lib/libhorovod_pmi_bridge.so"))
        if has_bridge:
            own["LD_PRELOAD"] = "libm.so.6"
        plain = lines_by_rank(run("-np", "1", "sh", "-c", show, **own).stdout)[0]
        nested = lines_by_rank(run("-np", "2", "sh", "-c", f"""[ $HOROVOD_RANK = 0 ] || exit 0
            taskset -pc {",".join(map(str, os.sched_getaffinity(0)))} $$ >/dev/null
            "{HOROVODRUN}" -np 1 sh -c '{show}'""", **own).stdout)[0]
        self.assertEqual(nested, ["[0]<stdout>:" + line for line in plain])
        preloaded = " libm.so.6:" if has_bridge else ""
        self.assertTrue(plain[0].startswith(f"my_ssh 7 0:1 {len(os.sched_getaffinity(0))}{preloaded}"), plain)
        result = run("-np", "2", "sh", "-c", f"[ $HOROVOD_RANK = 1 ] || '{HOROVODRUN}' -np 1 sh -c 'echo $LD_PRELOAD'",
                     **own, HOROVOD_PMI_BRIDGE="1")
        self.assertEqual(result.stdout.count("libhorovod_pmi_bridge"), 1 if has_bridge else 0)

    def test_keep_what_the_user_set(self):
        result = run("-np", "1", "sh", "-c", "echo $OMP_NUM_THREADS $CUDA_VISIBLE_DEVICES", OMP_NUM_THREADS="17",
                     CUDA_VISIBLE_DEVICES="3")
        self.assertEqual(result.stdout, "[0]<stdout>:17 3\n")

    def test_run_where_they_may_and_nowhere_else(self):
        allowed = os.sched_getaffinity(0)
        source = "import os; print(*sorted(os.sched_getaffinity(0)), flush=True)"
        for ranks in (1, 2, 3):
            result = run("-np", str(ranks), sys.executable, "-c", source)
            masks = {rank: set(map(int, lines[0].split())) for rank, lines in lines_by_rank(result.stdout).items()}
            self.assertEqual(len(masks), ranks)
            self.assertTrue(all(mask and mask <= allowed for mask in masks.values()), masks)
        one = min(allowed)
        result = subprocess.run(["taskset", "-c", str(one), HOROVODRUN, "-np", "2", sys.executable, "-c", source],
                                stdout=subprocess.PIPE, text=True)
        self.assertEqual(lines_by_rank(result.stdout), {0: [str(one)], 1: [str(one)]})

    def test_start_in_the_folder_of_the_caller_with_the_command_as_given(self):
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "script")
            with open(script, "w") as file:
                file.write('pwd; echo "$0" "$#" "$2"\n')  # a script whose first line names no interpreter
            os.chmod(script, 0o755)
            result = subprocess.run([HOROVODRUN, "-np", "1", "./script", "-np", "a  b", "--help"], cwd=folder,
                                    text=True, stdout=subprocess.PIPE)
            self.assertEqual(result.stdout, f"[0]<stdout>:{os.path.realpath(folder)}\n[0]<stdout>:./script 3 a  b\n")

    def test_inherit_no_descriptor_of_ours(self):
        result = run("-np", "2", "sh", "-c", "ls /proc/self/fd | tr '\\n' ' '; echo")
        for lines in lines_by_rank(result.stdout).values():
            self.assertEqual(lines, ["0 1 2 3 "])  # ls itself has descriptor 3 open

    def test_start_though_horovodrun_lacks_standard_descriptors(self):
        closed = ("<&-", ">&-", "2>&-", "<&- >&-", "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-")
        for which in closed:
            with tempfile.TemporaryDirectory() as folder:
                report = ("standard=$(for n in 0 1 2; do readlink /proc/$$/fd/$n; done); "
                          f"echo $standard >{folder}/descriptors.$HOROVOD_RANK; echo out; echo err >&2")
                result = subprocess.run(["sh", "-c", f'exec "$@" {which}', "sh", HOROVODRUN, "-np", "2", "sh", "-c",
                                         report],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, timeout=60)
                self.assertEqual(result.returncode, 0, (which, result.stderr))
                for rank in range(2):
                    with open(f"{folder}/descriptors.{rank}") as file:
                        standard = file.read().split()
                    self.assertEqual(len(standard), 3, (which, standard))
                    self.assertTrue(all("pipe:" in name for name in standard[1:]), (which, standard))
                    if rank > 0 or "<" in which:
                        self.assertEqual(standard[0], "/dev/null", which)
            lines = [] if ">&-" in which.split() else [f"[{rank}]<stdout>:out" for rank in range(2)]
            self.assertEqual(sorted(result.stdout.splitlines()), lines, which)
            lines = [] if "2>&-" in which else [f"[{rank}]<stderr>:err" for rank in range(2)]
            self.assertEqual(sorted(without_notices(result.stderr).splitlines()), lines, which)

    def test_start_though_tmpdir_cannot_be_used(self):
        for tmpdir in ("/does/not/exist", "/etc/passwd", "does-not-exist", "/proc"):
            result = run("-np", "2", "sh", "-c", "echo $TMPDIR", TMPDIR=tmpdir)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(lines_by_rank(result.stdout), {0: [tmpdir], 1: [tmpdir]})
            if tmpdir == "/proc" and "TMPDIR=/proc" not in result.stderr:
                # Root seems to have access to this folder, but cannot use it. Then horovodrun works without a PMIx
                # server.
                self.assertIn("horovodrun: no PMIx here, the ranks meet over horovodrun's own store: ", result.stderr)
                continue
            notice, = without_notices(result.stderr).splitlines()
            self.assertTrue(notice.startswith(f"horovodrun: TMPDIR={tmpdir} cannot be used: "), notice)

    def test_have_as_many_descriptors_as_the_user_allows_though_horovodrun_needs_more(self):
        result = run_limited(resource.RLIMIT_NOFILE, 64, 1024, "-np", "30", "sh", "-c", "ulimit -Sn; ulimit -Hn")
        self.assertEqual(lines_by_rank(result.stdout), {rank: ["64", "1024"] for rank in range(30)}, result.stderr)
        result = run_limited(resource.RLIMIT_NOFILE, 64, 64, "-np", "30", "true")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr, "horovodrun: -np 30 needs 152 open files, but this machine allows 64 (ulimit "
                                        "-Hn): start fewer ranks, or have the limit raised\n")

    def test_start_with_no_more_descriptors_than_they_need(self):
        result = run_limited(resource.RLIMIT_NOFILE, 40, 40, "-np", "1", "true")
        self.assertEqual(result.returncode, 0, result.stderr)
        result = run_limited(resource.RLIMIT_NOFILE, 20, 20, "-np", "1", "true")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr, "horovodrun: -np 1 needs 36 open files, but this machine allows 20 (ulimit "
                                        "-Hn): have the limit raised\n")

    def test_that_get_a_too_long_environment_are_not_started_and_it_is_said_why(self):
        # The kernel allows a quarter of the stack's limit for arguments and environment. Leave less than a rank's own
        # variables need.
        stack = 1 << 20

        def environment_of(size):
            return {"PATH": os.environ["PATH"], "TMPDIR": "/tmp",
                    **{f"LONG_{at}": "x" * min(50000, size - at) for at in range(0, size, 50000)}}

        def fits(size):
            try:
                return run_limited(resource.RLIMIT_STACK, stack, resource.RLIM_INFINITY, "--version",
                                   env=environment_of(size)).returncode == 0
            except OSError:
                return False
        smallest, largest = 0, stack
        while largest - smallest > 1:
            middle = (smallest + largest) // 2
            smallest, largest = (middle, largest) if fits(middle) else (smallest, middle)
        result = run_limited(resource.RLIMIT_STACK, stack, resource.RLIM_INFINITY, "-np", "2", "true",
                             env=environment_of(smallest - 100))
        self.assertEqual(result.returncode, 126, result.stderr)
        self.assertIn("executing the command: Argument list too long (its arguments and its environment", result.stderr)

    def test_meet_over_the_store(self):
        self.finish(Job(4, [STORE_CLIENT, "meet"], HOROVOD_BOOTSTRAP="environment"), 0)

    @unittest.skipUnless(PMIX_CLIENT, "built without PMIx")
    def test_meet_over_pmix_again_and_again(self):
        for _ in range(3):
            job = Job(4, [PMIX_CLIENT, "meet"])
            self.finish(job, 0)
            self.assertEqual(job.errors, b"")

    @unittest.skipUnless(PMIX_CLIENT, "built without PMIx")
    def test_meet_over_pmix_on_a_host_with_the_longest_name(self):
        apart = ["unshare", *(() if os.geteuid() == 0 else ("--user", "--map-root-user")), "--uts"]
        if subprocess.run([*apart, "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            self.skipTest("a host name of one's own needs a namespace")
        for letters in (48, 49, 64):
            result = subprocess.run([*apart, "sh", "-c", 'hostname "$0" && exec "$@"', "a" * letters, HOROVODRUN, "-np",
                                     "2", PMIX_CLIENT, "meet"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, text=True, timeout=60, check=False)
            self.assertEqual((result.returncode, result.stderr), (0, ""), letters)

    def test_meet_without_any_plugin_and_are_told_once(self):
        with tempfile.TemporaryDirectory() as folder:
            program = shutil.copy(HOROVODRUN, folder)
            job = Job(4, [STORE_CLIENT, "meet"], program=program, HOROVOD_PLUGIN_PATH="")
            self.finish(job, 0)
            text = job.errors.decode()
            self.assertEqual(text.count("PMIx"), 1, text)
            self.assertEqual(len(text.splitlines()), 2, text)  # one line about PMIx, one about hwloc


class WrongCommandLines(LauncherTest):
    def refused(self, code, *arguments, **environment):
        result = run(*arguments, **environment)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertTrue(result.stderr.startswith("horovodrun: "), result.stderr)
        return result.stderr

    def test_get_an_error_that_names_the_remedy(self):
        self.assertIn("-np is missing", self.refused(2, "true"))
        self.assertIn("at least 1, not '0'", self.refused(2, "-np", "0", "true"))
        self.assertIn("at least 1, not '-3'", self.refused(2, "-np", "-3", "true"))
        self.assertIn("whole number", self.refused(2, "-np", "four", "true"))
        self.assertIn("the command is missing", self.refused(2, "-np", "2"))
        self.assertIn("--oversubscribe", self.refused(2, "-np", "100000", "true"))
        self.assertIn("does not exist", self.refused(127, "-np", "2", "no-such-command"))
        self.assertIn("does not exist", self.refused(127, "-np", "2", "./no-such-command"))
        self.assertIn("cannot be executed", self.refused(126, "-np", "2", "/etc/passwd"))
        self.assertIn("cannot be executed", self.refused(126, "-np", "2", "/etc"))
        self.assertIn("python " + __file__, self.refused(126, "-np", "2", __file__))
        self.assertIn("env NAME=value command", self.refused(127, "-np", "2", "NAME=value", "true"))
        self.assertIn("without quotes around all", self.refused(127, "-np", "2", "echo hello"))
        self.assertIn("Is a directory", self.refused(2, "-np", "2", "--hostfile", "/etc", "true"))
        self.assertIn("Is a directory", self.refused(2, "-np", "2", "--config-file", "/etc", "true"))
        self.assertIn("--cycle-time-ms", self.refused(2, "-np", "2", "--cycle-time", "-1", "true"))
        self.assertIn("--min-np", self.refused(2, "-np", "2", "--min-np", "3", "true"))
        self.assertIn("the host far.away cannot be used", self.refused(1, "-np", "2", "-H", "far.away:2", "true",
                                                                       HOROVOD_SSH="false"))
        self.assertIn("cannot be executed", self.refused(1, "-np", "2", "-H", "far.away:2", "true",
                                                         HOROVOD_SSH="/etc/passwd"))
        self.assertIn("far.away is named twice", self.refused(2, "-np", "2", "-H", "far.away:1,far.away:1", "true"))
        self.assertIn("did you mean --fusion-threshold-mb", self.refused(2, "-np", "2", "--fusion-treshold-mb", "3",
                                                                         "true"))

    def test_give_ssh_a_host_and_no_option(self):
        with tempfile.TemporaryDirectory() as folder:
            ssh = os.path.join(folder, "ssh")
            with open(ssh, "w") as file:
                file.write('#!/bin/sh\necho "ssh got: $*" >&2\nexit 255\n')
            os.chmod(ssh, 0o755)
            self.assertIn(" -- far.away exec ", self.refused(1, "-np", "1", "-H", "far.away:1", "true",
                                                             HOROVOD_SSH=ssh))
            self.assertNotIn("ssh got", self.refused(2, "-np", "1", "-H", "-V:1", "true", HOROVOD_SSH=ssh))

    def test_that_name_a_script_of_this_folder_are_told_how_to_start_it(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "train.py"), "w"):
                pass
            result = subprocess.run([HOROVODRUN, "-np", "2", "train.py"], cwd=folder, stderr=subprocess.PIPE, text=True)
        self.assertEqual(result.returncode, 127)
        self.assertIn("started by ./train.py, or by its interpreter (python train.py)", result.stderr)

    def test_that_name_a_script_are_told_that_its_interpreter_is_missing(self):
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "train")
            with open(script, "w") as file:
                file.write("#!/bin/sh\r\necho hello\r\n")
            os.chmod(script, 0o755)
            result = run("-np", "1", script)
        self.assertEqual(result.returncode, 127)
        self.assertIn("what is missing is the interpreter that its first line names", result.stderr)

    def test_may_shorten_flags(self):
        for flags in (("-n", "2"), ("--num-p", "2"), ("-np=2",)):
            self.assertEqual(run(*flags, "echo", "hello").stdout.count("hello"), 2)

    def test_leave_the_asking_flags_working(self):
        for flag in ("--help", "--version", "--check-build"):
            result = run(flag)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertTrue(result.stdout)

    def test_tell_the_compiler_and_the_glibc_that_is_needed(self):
        text = run("--check-build").stdout
        self.assertRegex(text, r"\n    compiler: (GCC|Clang) \d+\.\S+")
        needed = re.search(r"\n    needs glibc: 2\.(\d+) or later \((\S+)\)\n", text)
        self.assertTrue(needed, text)
        folder = pathlib.Path(HOROVODRUN).resolve().parent.parent
        symbols = [version for path in [HOROVODRUN, *folder.glob("lib/libhorovod*.so*")]
                   for version in re.findall(rb"GLIBC_2\.(\d+)\0", pathlib.Path(path).read_bytes())]
        self.assertEqual(int(needed[1]), max(map(int, symbols)))

    def test_tell_whether_checkpoints_find_their_library(self):
        self.assertRegex(run("--check-build").stdout, r"\n    \[X\] HDF5( \d+\.\d+\.\d+)?,? ")
        self.assertIn("\n    [ ] HDF5, for checkpoints (HOROVOD_HDF5 names a file of it)\n",
                      run("--check-build", PATH="/nowhere", HOROVOD_HDF5="/nowhere/libhdf5.so").stdout)

    def test_tell_which_driver_and_which_nccl_are_found(self):
        text = run("--check-build", PATH="/nowhere", HOROVOD_CUDA_DRIVER="/nowhere/libcuda.so.1",
                   HOROVOD_NCCL_LIBRARY="/nowhere/libnccl.so.2").stdout
        self.assertRegex(text, r"\n    \[.\] CUDA, .*\(no driver was found here\)\n    \[ \] ROCm, .* AMD's GPUs\n"
                               r"    \[.\] NCCL, .*\(no library was ")
        doubles = pathlib.Path(HOROVODRUN).resolve().parent.parent / "doubles"
        driver, nccl = doubles / "cuda/libcuda.so.1", doubles / "nccl/libnccl.so.2"
        if not nccl.exists():
            self.skipTest("no doubles were built")
        text = run("--check-build", HOROVOD_CUDA_DRIVER=str(driver), HOROVOD_NCCL_LIBRARY=str(nccl)).stdout
        self.assertIn(f"GPUs (found: a driver for CUDA 12.8, {driver})\n", text)
        self.assertIn(f"from GPU to GPU (found: 2.28.9, {nccl})\n", text)

    def test_tick_the_frameworks_whose_binding_is_there(self):
        with tempfile.TemporaryDirectory() as folder:
            for module in ("tensorflow", "torch", "mxnet", "horovod", "horovod/torch", "horovod/tensorflow"):
                os.makedirs(os.path.join(folder, module), exist_ok=True)
                with open(os.path.join(folder, module, "__init__.py"), "w") as file:
                    file.write("" if module == "horovod" else "raise SystemExit('takes seconds')\n")
            with open(os.path.join(folder, "horovod", "mxnet.py"), "w") as file:
                file.write("raise ModuleNotFoundError('not part of this version')\n")
            os.symlink(sys.executable, os.path.join(folder, "python"))
            text = run("--check-build", PATH=folder, PYTHONPATH=folder).stdout
            for line in ("[X] TensorFlow", "[X] PyTorch", "[ ] MXNet"):
                self.assertIn(line, text)
            self.assertNotIn("has no package horovod", text)
            shutil.rmtree(os.path.join(folder, "horovod"))
            text = run("--check-build", PATH=folder, PYTHONPATH=folder).stdout
            self.assertIn("[ ] PyTorch", text)
            self.assertIn(f"{folder}/python, has no package horovod", text)

    def test_may_ask_what_would_be_used(self):
        text = run("--explain", "-np", "3", "true").stdout
        for line in ("scheduler ", "launcher    3 ranks below agents of ours", "bootstrap ",
                     "transport   inside a node: shm, ", "algorithm   by cost"):
            self.assertIn("\n" + line, text)
        self.assertNotIn("between nodes", text)
        self.assertIn("bootstrap   environment, forced by HOROVOD_BOOTSTRAP",
                      run("--explain", HOROVOD_BOOTSTRAP="environment").stdout)

    def test_may_ask_which_gpu_each_rank_gets(self):
        with tempfile.TemporaryDirectory() as folder:
            for gpu in range(2):
                entry = pathlib.Path(folder, f"proc/driver/nvidia/gpus/0000:0{gpu}:00.0")
                entry.mkdir(parents=True)
                (entry / "information").write_text(f"Model: \t V100\nDevice Minor: \t {gpu}\n")
                os.makedirs(f"{folder}/dev", exist_ok=True)
                pathlib.Path(folder, f"dev/nvidia{gpu}").touch()
            text = run("--explain", "-np", "3", "true", HOROVOD_GPU_ROOT=folder).stdout
            self.assertRegex(text, r"\nGPUs        rank 0: GPU 0 \(0000:00:00.0\), cpus .*\n"
                                   r" +rank 1: GPU 1 \(0000:01:00.0\), cpus ")
            self.assertIn("3 ranks of this node share 2 GPUs", text)
            self.assertIn("links: at unknown places among GPUs 0, 1; NVLink is not known here", text)
            self.assertNotIn("GPUs", run("--explain", "-np", "2", "true", HOROVOD_GPU_ROOT="/nonexistent").stdout)

    def test_may_ask_what_carries_tensors_between_nodes(self):
        def lines(**environment):
            text = run("--explain", "-np", "2", "-H", "localhost:1,n2:1", "true", **environment).stdout
            return [line.strip() for line in text[text.index("transport "):text.index("algorithm ")].splitlines()]
        self.assertEqual(lines(HOROVOD_MPI="none")[1],
                         "between nodes: tcp, TCP connections over all interfaces that are up; not mpi: "
                         "HOROVOD_MPI=none")
        by_default, if_forced = lines(), lines(HOROVOD_MPI="mpich")
        self.assertRegex(by_default[-1], "(else |between nodes: )tcp, ")
        self.assertIn("the start fails, by HOROVOD_MPI=mpich", if_forced[-1])

    def test_of_ranks_beyond_the_slots_are_refused(self):
        self.assertIn("more ranks than the hosts have slots", self.refused(2, "-np", "3", "-H", "localhost:2", "true"))
        self.assertEqual(run("-np", "2", "-H", "localhost:3", "true").returncode, 0)


if __name__ == "__main__":
    unittest.main()
