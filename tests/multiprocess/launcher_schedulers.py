"""horovodrun inside jobs of LSF, PBS and Flux. Stand-ins of these schedulers make the jobs
(tests/fixtures/schedulers)."""
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import unittest

from launcher_harness import HOROVODRUN, last_block

HERE = os.path.dirname(os.path.abspath(__file__))
STANDINS = os.path.join(HERE, "..", "fixtures", "schedulers")
DOCS = os.path.join(HERE, "..", "..", "docs")
RANK = os.environ["HVD_BOOTSTRAP_RANK"]
PLACEMENT = os.path.join(os.path.dirname(RANK), "placement_rank")
HAS_PMIX = os.path.exists(os.path.join(os.path.dirname(HOROVODRUN), "..", "lib", "libhorovod_pmix.so"))
NEEDS_PMIX = unittest.skipUnless(HAS_PMIX, "built without PMIx")
NEEDS_HYDRA = unittest.skipUnless(shutil.which("mpiexec.hydra"),
                                  "MPICH's mpiexec.hydra, whose PMI server stands behind, is not there")
PRINT_INPUT = "cat; printf '%s|%s\\n' \"$0\" \"$1\" >&2"


class JobTest(unittest.TestCase):
    """The `folders` of stand-ins come first in PATH. The command `submit` starts a script."""
    folders, submit, submit_page = (), (), ()

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="hvd-job-")
        self.addCleanup(shutil.rmtree, self.folder)

    def environment(self, **more):
        path = ":".join([*(os.path.join(STANDINS, folder) for folder in self.folders), self.folder, os.environ["PATH"]])
        own = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_") and name != "TMPDIR"}
        return dict(own, PATH=path, HVD_STANDIN_HOROVODRUN=HOROVODRUN, HVD_STANDIN_SPOOL=self.folder, **more)

    def in_job(self, *arguments, stdin="", **more):
        """Runs horovodrun with these arguments in the script of a job of two hosts, and returns its result."""
        return subprocess.run([*self.submit, HOROVODRUN, *arguments], env=self.environment(**more), input=stdin,
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, check=False)

    def check_that_ranks_meet(self, bootstrap, *arguments):
        result = self.in_job("-np", "4", *arguments, RANK, bootstrap, "1")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def check_that_ranks_bind_themselves(self):
        result = self.in_job("-np", "2", PLACEMENT, os.path.join(self.folder, "gpus"), "2")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def check_that_all_comes_through(self):
        words = ["it's", "a  b"]
        result = self.in_job("-np", "2", "sh", "-c", PRINT_INPUT, *words, stdin="1\n2\n[0]<stdout>:3")
        self.assertEqual(result.stdout, "[0]<stdout>:1\n[0]<stdout>:2\n[0]<stdout>:[0]<stdout>:3\n", result.stderr)
        self.assertEqual(sorted(result.stderr.splitlines()), [f"[{rank}]<stderr>:it's|a  b" for rank in range(2)])

    def check_that_the_first_failure_is_told(self, rank_variable):
        shell = f"if [ ${rank_variable} = 2 ]; then echo the reason >&2; exit 7; fi; exec sleep 1000"
        result = self.in_job("-np", "4", "sh", "-c", shell, HOROVOD_TERMINATION_GRACE_SECONDS="1")
        self.assertEqual(result.returncode, 7, result.stderr)
        block = last_block(result.stderr.encode())
        self.assertIn("FIRST FAILURE: rank 2 on host ", block)
        self.assertIn("| the reason", block)

    def check_that_it_is_put_back(self, command, refusal):
        """Checks that the job goes back into the queue if its ranks ask for it, as often as is allowed. `command` is
        the command by which the scheduler is asked; `refusal` is the message of a site that forbids it."""
        def run(rank_code, **more):
            result = subprocess.run([*self.submit, HOROVODRUN, "-np", "2", "--max-requeues", "2", "sh", "-c",
                                     f"exit {rank_code}"], env=self.environment(**more), cwd=self.folder, text=True,
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                    timeout=120, check=False)
            return result.returncode, result.stderr

        def requeued():
            path = pathlib.Path(self.folder, "requeued")
            return path.read_text(encoding="ascii").split() if path.exists() else []

        number = command.split()[-1]
        code, errors = run(1)  # the exit code of a Checkpointer whose run has made no progress
        self.assertEqual((code, requeued()), (1, []), errors)
        code, errors = run(75, HVD_STANDIN_FORBIDS="1")
        self.assertEqual((code, requeued()), (75, []), errors)
        self.assertIn(f"`{command}` was refused: {refusal}", errors)
        for count in (1, 2):
            code, errors = run(75)
            self.assertEqual((code, requeued()), (0, [number] * count), errors)
            self.assertIn(f"({count} of at most 2)", errors)
        code, errors = run(75)
        self.assertEqual((code, requeued()), (75, [number] * 2), errors)
        self.assertIn("it has been put back 2 times, and --max-requeues allows 2", errors)

    def check_that_its_page_is_true(self, page, ranks):
        """Submits the script of this page unchanged and checks its output."""
        with open(os.path.join(DOCS, page), encoding="utf-8") as file:
            script = re.search(r"```sh\n(#!/bin/bash\n.*?)```", file.read(), re.DOTALL)[1]
        path = os.path.join(self.folder, "job.sh")
        with open(path, "w", encoding="utf-8") as file:
            file.write(script)
        with open(os.path.join(self.folder, "train.py"), "w", encoding="utf-8") as file:
            file.write("import os\nprint('trained by', next(os.environ[name] for name in "
                       "('JSM_NAMESPACE_RANK', 'PALS_RANKID', 'FLUX_TASK_RANK', 'HOROVOD_RANK')\n"
                       "                         if name in os.environ))\n")
        for name, target in (("python", sys.executable), ("horovodrun", HOROVODRUN)):
            os.symlink(target, os.path.join(self.folder, name))
        with open(os.path.join(self.folder, "module"), "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n")
        os.chmod(os.path.join(self.folder, "module"), stat.S_IRWXU)
        result = subprocess.run([*self.submit_page, path], env=self.environment(), cwd=self.folder, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(sorted(line for line in result.stdout.splitlines() if "trained" in line),
                         sorted(f"[{rank}]<stdout>:trained by {rank}" for rank in range(ranks)), result.stderr)


@NEEDS_PMIX
class InAJobOfLsf(JobTest):
    folders = ("lsf",)
    submit = ("bsub", "-P", "ABC123", "-nnodes", "2", "--")
    submit_page = ("bsub",)

    def test_ranks_are_started_by_jsrun_and_meet(self):
        self.check_that_ranks_meet("pmix")
        self.check_that_ranks_bind_themselves()

    def test_all_that_ranks_read_and_write_comes_through(self):
        self.check_that_all_comes_through()

    def test_the_first_failure_is_told(self):
        self.check_that_the_first_failure_is_told("JSM_NAMESPACE_RANK")

    def test_ranks_that_cannot_be_even_are_placed_by_a_file_if_that_is_asked_for(self):
        result = self.in_job("-np", "3", "--jsrun-erf", "sh", "-c", "echo $JSM_NAMESPACE_RANK $JSM_GPU_ASSIGNMENTS")
        self.assertEqual(sorted(result.stdout.splitlines()),
                         [f"[{rank}]<stdout>:{rank} 0,1,2,3,4,5" for rank in range(3)], result.stderr)
        self.assertIn("or add --jsrun-erf", self.in_job("-np", "3", "true").stderr)

    def test_jsrun_does_not_see_the_users_tmpdir_which_it_would_refuse(self):
        result = self.in_job("-np", "2", "echo", "hello", TMPDIR="/tmp")
        self.assertEqual(result.stdout.count("hello"), 2, result.stderr)

    def test_is_explained_with_the_launch_node_on_which_no_rank_runs(self):
        text = self.in_job("--explain").stdout
        self.assertRegex(text, r"scheduler +LSF, job 4711, since LSB_JOBID=4711\n"
                               r" +2 hosts with 84 slots \(n1:42, n2:42\), by LSB_MCPU_HOSTS\n"
                               r" +no rank goes to the launch node batch5\n"
                               r" +put back into the queue by `brequeue 4711`\n"
                               r"launcher +\S+/jsrun -n 2 -r 1 -a 42 -c 42 -g ALL_GPUS -b packed:1 -d packed ")
        refused = self.in_job("-np", "2", "--gloo", "true")
        self.assertIn("this is the launch node batch5 of LSF's job 4711", refused.stderr)

    def test_goes_back_into_the_queue_by_brequeue(self):
        self.check_that_it_is_put_back("brequeue 4711", "Job <4711>: User permission denied")

    def test_the_script_of_its_page_runs(self):
        self.check_that_its_page_is_true("lsf.md", 12)


class JsrunOfTheTests(JobTest):
    folders = ("lsf",)

    def jsrun(self, *words, **more):
        return subprocess.run(["bsub", "-P", "ABC123", "-nnodes", "2", "jsrun", *words], env=self.environment(**more),
                              text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=120, check=False)

    def test_refuses_what_jsrun_refuses(self):
        erf = os.path.join(self.folder, "erf")
        for words, reason in ((("--nodes", "2", "true"), "Unrecognized option"),
                              (("-n", "0", "true"), "Invalid value for -n"),
                              (("-n", "2", "-r", "1", "-c", "43", "true"), "a host has 42 cores"),
                              (("-n3", "-r1", "true"), "do not fit on 2 hosts"),
                              (("-n", "2", "-r", "7", "-g", "1", "true"), "do not fit on a host"),
                              (("-b", "core", "true"), "Invalid bind"),
                              (("-d", "block", "true"), "Invalid launch distribution"),
                              (("-l", "CPU-CPU", "true"), "lower case"),
                              (("-e", "label", "true"), "Invalid stdio mode"),
                              (("-n", "1"), "No command given"),
                              (("-X", "2", "true"), "exit_on_error"),
                              (("-U", erf, "true"), "it is not --erf_input"),
                              (("--erf_input", erf, "-n", "2", "true"), "excludes")):
            result = self.jsrun(*words)
            self.assertNotEqual(result.returncode, 0, words)
            self.assertIn(reason, result.stderr, words)
        self.assertIn("Error initializing RM connection", self.jsrun("-n1", "true", TMPDIR="/tmp").stderr)
        for text in ("rank: 0: { host: 1; cpu: {0-3} }", "rank: 0: { host: 9; cpu: {0-3} ; gpu: * }\n",
                     "rank: 0: { hostname: n9; cpu: {0-3} ; gpu: * ; mem: * }\n",
                     "rank: 0: { host: 1; cpu: {3-0} ; gpu: * ; mem: * }\n",
                     "rank: 1: { host: 1; cpu: {0-3} ; gpu: * ; mem: * }\n", "ranks: 4\n", "\n"):
            with open(erf, "w", encoding="ascii") as file:
                file.write(text)
            self.assertNotEqual(self.jsrun("--erf_input", erf, "true").returncode, 0, text)


class InAJobOfLsfWithoutJsm(JobTest):
    folders = ("lsf-without-jsm",)
    submit = ("bsub", "-n", "2", "--")

    def setUp(self):
        super().setUp()
        os.environ["HVD_STANDIN_HOSTS"] = "n1"  # two hosts would be the same machine here
        self.addCleanup(os.environ.pop, "HVD_STANDIN_HOSTS")

    def test_blaunch_starts_agents_on_the_other_hosts(self):
        result = self.in_job("sh", "-c", "echo $HOROVOD_RANK $HOROVOD_SIZE $HOROVOD_HOSTNAME")
        self.assertEqual(sorted(result.stdout.splitlines()), ["[0]<stdout>:0 2 n1", "[1]<stdout>:1 2 n1"],
                         result.stderr)
        result = self.in_job(RANK, "rendezvous", "1")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_goes_back_into_the_queue_by_brequeue(self):
        self.check_that_it_is_put_back("brequeue 12", "Job <12>: User permission denied")

    def test_more_ranks_than_it_has_slots_are_refused_with_both_numbers(self):
        result = self.in_job("-np", "5", "true")
        self.assertEqual(result.returncode, 2)
        self.assertIn("-np 5 asks for more ranks than the job 12 of LSF has slots (2, on n1:2, by LSB_MCPU_HOSTS)",
                      result.stderr)

    def test_a_host_that_blaunch_does_not_reach_is_named_with_the_remedy(self):
        result = self.in_job("-np", "2", "-H", "n7:2", "true")
        self.assertNotEqual(result.returncode, 0)
        self.assertRegex(result.stderr, "the host n7 .* job 12 of LSF, .* n1:2")


@NEEDS_PMIX
class InAJobOfPbs(JobTest):
    folders = ("pbs", "pbs/pals/bin")
    submit = ("qsub", "-l", "select=2:ncpus=4:mpiprocs=2", "--")
    submit_page = ("qsub",)

    def test_every_slot_of_the_job_gets_a_rank_from_pals_and_the_ranks_meet(self):
        result = self.in_job("sh", "-c", "echo $PALS_RANKID $PALS_LOCAL_RANKID")
        self.assertEqual(sorted(result.stdout.splitlines()),
                         [f"[{rank}]<stdout>:{rank} {rank % 2}" for rank in range(4)], result.stderr)
        self.check_that_ranks_meet("pmix")
        self.check_that_ranks_bind_themselves()

    def test_goes_back_into_the_queue_by_qrerun(self):
        self.check_that_it_is_put_back("qrerun 9.server", "qrerun: Unauthorized Request  9.server")

    def test_the_script_of_its_page_runs(self):
        self.check_that_its_page_is_true("pbs.md", 8)

    def test_ranks_of_the_script_for_polaris_meet(self):
        written = subprocess.run([HOROVODRUN, "--jobscript", "pbs", "--site", "polaris", "--account", "a", "--nodes",
                                  "2", "--time", "1h", "--", RANK, "pmix", "1"], text=True, stdout=subprocess.PIPE,
                                 check=True)
        path = pathlib.Path(self.folder, "job.sh")
        path.write_text(written.stdout, encoding="utf-8")
        library = os.path.join(os.path.dirname(HOROVODRUN), "..", "lib")
        result = subprocess.run(["qsub", path], env=self.environment(HOROVOD_PLUGIN_PATH=library), cwd=self.folder,
                                text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False)
        self.assertEqual(result.returncode, 0, result.stdout)


@NEEDS_HYDRA
class InAnInstanceOfFlux(JobTest):
    folders = ("flux",)
    submit = ("flux", "batch", "-N", "2", "--")
    submit_page = ("flux", "batch")

    def test_ranks_are_started_by_flux_run_and_meet(self):
        self.check_that_ranks_meet("pmi")
        self.check_that_ranks_bind_themselves()

    def test_all_that_ranks_read_and_write_comes_through(self):
        self.check_that_all_comes_through()

    def test_the_script_of_its_page_runs(self):
        self.check_that_its_page_is_true("flux.md", 8)


class ALineThroughSrun(unittest.TestCase):
    def test_leaves_no_file_behind_if_it_is_ended_before_an_agent_has_called(self):
        with tempfile.TemporaryDirectory() as programs, tempfile.TemporaryDirectory() as shared:
            srun = pathlib.Path(programs, "srun")
            srun.write_text("#!/bin/sh\necho started, $HOROVOD_MAX_REQUEUES\nexec sleep 1000\n", encoding="ascii")
            srun.chmod(stat.S_IRWXU)
            settings = pathlib.Path(programs, "horovod/config.yaml")
            settings.parent.mkdir()
            settings.write_text(f"settings:\n  HOROVOD_SHARED_DIR: {shared}\n", encoding="ascii")
            environment = dict(os.environ, PATH=f"{programs}:{os.environ['PATH']}", XDG_CONFIG_HOME=programs)
            line = subprocess.Popen([HOROVODRUN, "--as-line-through-srun", "-", "-", "3", "n1", HOROVODRUN, "-", "5"],
                                    env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                    start_new_session=True)
            with line:
                self.assertEqual(line.stderr.readline(), b"started, 3\n")
                self.assertEqual(len(os.listdir(shared)), 1)
                os.killpg(line.pid, signal.SIGTERM)
                self.assertEqual(line.wait(60), -signal.SIGTERM)
            self.assertEqual(os.listdir(shared), [])


if __name__ == "__main__":
    unittest.main()
