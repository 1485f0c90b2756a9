#!/usr/bin/env python3
"""Tests horovodrun inside jobs of schedulers over virtual nodes: a real Grid Engine, a real Slurm, and stand-ins for
LSF, PBS and Flux that start ranks by Slurm. schedulers_test.py BUILD [Class.test]
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from virtual_nodes import HERE, NODES, enter

GRID_ENGINE = os.path.join(HERE, "grid_engine")
STANDINS = os.path.join(HERE, "..", "fixtures", "schedulers")
DOCS = os.path.join(HERE, "..", "..", "docs")


BUILD = os.path.realpath(sys.argv[1])
HOROVODRUN = os.path.join(BUILD, "bin", "horovodrun")
RANK = os.path.join(BUILD, "tests", "bootstrap_rank")
PLACEMENT = os.path.join(BUILD, "tests", "placement_rank")
NEEDS_PMIX = unittest.skipUnless(os.path.exists(os.path.join(BUILD, "lib", "libhorovod_pmix.so")), "built without PMIx")


def command(*words, **environment):
    return subprocess.run(words, env=dict(os.environ, **environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=200, check=False)


class SchedulersTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="job-", dir=BUILD)
        self.addCleanup(shutil.rmtree, self.folder)

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)
        return path

    def script(self, *lines):
        return self.write("script", "#!/bin/bash\n" + "\n".join(lines) + "\n")


class InAJobOfGridEngine(SchedulersTest):
    @classmethod
    def setUpClass(cls):
        can = command(GRID_ENGINE, "can")
        if can.returncode != 0:
            raise unittest.SkipTest(can.stdout.strip())
        up = command(GRID_ENGINE, "up", "n1", "n2")
        assert up.returncode == 0, up.stdout

    def in_job(self, script, *options):
        """Runs the script as a job, by default of four slots on two nodes. Returns its exit code and its output."""
        output = os.path.join(self.folder, "output")
        result = command(GRID_ENGINE, "run", "qsub", "-sync", "y", "-j", "y", "-wd", self.folder, "-o", output,
                         "-S", "/bin/bash", *(options or ("-pe", "mpi", "4")), script)
        with open(output, encoding="utf-8") as file:
            return result.returncode, file.read() + result.stdout

    def test_its_slots_get_ranks_which_qrsh_starts_and_which_meet(self):
        hosts = "$(awk '{for (i = 0; i < $2; i++) printf \",\" $1}' $PE_HOSTFILE | cut -c2-)"
        code, text = self.in_job(self.script(f"{HOROVODRUN} {RANK} rendezvous 3 {hosts}"))
        self.assertEqual(code, 0, text)
        code, text = self.in_job(self.script(f"{HOROVODRUN} sh -c 'echo $(hostname) $HOROVOD_LOCAL_RANK'"))
        self.assertEqual(sorted(line.split(":")[1] for line in text.splitlines() if "<stdout>" in line),
                         ["n1 0", "n1 1", "n2 0", "n2 1"], text)

    def test_a_task_of_an_array_without_a_parallel_environment_has_one_slot(self):
        code, text = self.in_job(self.script(f"{HOROVODRUN} --explain true; {HOROVODRUN} echo alone"), "-t", "1-2")
        self.assertEqual(code, 0, text)
        self.assertEqual(text.count("[0]<stdout>:alone"), 2, text)
        self.assertRegex(text, r"scheduler +Grid Engine, job \d+\.2, since JOB_ID=")

    def test_the_first_failure_is_told_and_nothing_is_left(self):
        code, text = self.in_job(self.script(
            f"{HOROVODRUN} sh -c 'if [ $HOROVOD_RANK = 3 ]; then echo the reason >&2; exit 7; fi; exec sleep 12345'"))
        self.assertEqual(code, 7, text)
        self.assertRegex(text, r"FIRST FAILURE: rank 3 on host n[12] ")
        self.assertNotIn("sleep 12345", command(NODES, "on", "login", "ps", "-ef").stdout)

    def test_exit_code_99_puts_the_job_back_as_often_as_was_allowed(self):
        for most, starts, expected in ((2, 3, 0), (1, 2, 75)):
            count = os.path.join(self.folder, f"starts-{most}")
            code, text = self.in_job(self.script(
                f"echo start >>{count}",
                f"exec {HOROVODRUN} --max-requeues {most} sh -c '[ $(wc -l <{count}) = 3 ] || exit 75'"))
            with open(count, encoding="utf-8") as file:
                self.assertEqual((code, len(file.readlines())), (expected, starts), text)

    def test_more_ranks_than_it_has_slots_are_refused(self):
        code, text = self.in_job(self.script(f"{HOROVODRUN} -np 5 true"))
        self.assertEqual(code, 2, text)
        self.assertRegex(text, r"-np 5 asks for more ranks than the job \d+ of Grid Engine has slots "
                               r"\(4, on n\d:2, n\d:2, by PE_HOSTFILE=")

    def test_the_script_of_its_page_runs(self):
        with open(os.path.join(DOCS, "grid-engine.md"), encoding="utf-8") as file:
            script = self.write("job.sh", re.search(r"```sh\n(#!/bin/bash\n.*?)```", file.read(), re.DOTALL)[1])
        self.write("train.py", "import os\nprint('trained by', os.environ['HOROVOD_RANK'])\n")
        for name, target in (("python", sys.executable), ("horovodrun", HOROVODRUN)):
            os.symlink(target, os.path.join(self.folder, name))
        output = os.path.join(self.folder, "output")
        result = command(GRID_ENGINE, "run", "sh", "-c", 'cd "$0" && exec "$@"', self.folder, "qsub", "-sync", "y",
                         "-j", "y", "-o", output, "-v", f"PATH={self.folder}:/usr/bin:/bin", script)
        with open(output, encoding="utf-8") as file:
            text = file.read()
        self.assertEqual(result.returncode, 0, text + result.stdout)
        self.assertEqual(text.count("trained by"), 4, text)


@NEEDS_PMIX
class InAJobOfSlurm(SchedulersTest):
    def in_allocation(self, options, *words):
        return command(NODES, "on", "login", "salloc", "--quiet", *options, *words)

    def test_without_a_number_every_slot_gets_a_rank_also_in_uneven_and_heterogeneous_jobs(self):
        for options, hosts in ((("-N2", "-n4", "--ntasks-per-node=2"), "n1,n1,n2,n2"), (("-N2", "-n3"), "n1,n1,n2"),
                               (("-N1", "-n1", "-w", "n1", ":", "-N1", "-n2", "-w", "n2"), "n1,n2,n2")):
            result = self.in_allocation(options, HOROVODRUN, RANK, "pmix", "2", hosts)
            self.assertEqual(result.returncode, 0, result.stdout)

    def test_ranks_of_srun_bind_themselves_near_to_their_gpus(self):
        one_each = "taskset -c $SLURM_LOCALID "  # as `srun --cpu-bind=cores` would: this Slurm cannot bind
        for mask in ("", one_each) if os.sched_getaffinity(0) >= {0, 1} else ("",):
            rank = self.script(f'exec {mask}{PLACEMENT} "$@"')
            result = self.in_allocation(("-N2", "-n4", "--ntasks-per-node=2"), "srun", "--mpi=pmix", rank,
                                        os.path.join(self.folder, "gpus"), "2")
            self.assertEqual(result.returncode, 0, result.stdout)

    def test_tasks_of_an_array_are_jobs_of_their_own(self):
        script = self.script(f"{HOROVODRUN} --explain true; {HOROVODRUN} echo rank")
        result = command(NODES, "on", "login", "sbatch", "--quiet", "--wait", "--array=1-2", "-N1", "-n2", "-o",
                         os.path.join(self.folder, "output.%a"), script)
        self.assertEqual(result.returncode, 0, result.stdout)
        for task in "12":
            with open(os.path.join(self.folder, "output." + task), encoding="utf-8") as file:
                text = file.read()
            self.assertRegex(text, rf"scheduler +Slurm, job \d+_{task}, since SLURM_JOB_ID=\d+\n +1 host with 2 slots")
            # By its own number. The last task has the number of the array.
            self.assertRegex(text, rf"put back into the queue by `scontrol requeue \d+{'_2' if task == '2' else ''}`")
            self.assertEqual(text.count("<stdout>:rank"), 2, text)

    def test_ranks_get_the_variables_of_a_job_that_was_submitted_without_any(self):
        output = os.path.join(self.folder, "output")
        script = self.script(f"export MINE=x PATH={self.folder}:/usr/bin:/bin",
                             f"{HOROVODRUN} --fusion-threshold-mb 7 sh -c 'echo $HOROVOD_FUSION_THRESHOLD $MINE $PATH'")
        for export in ("NONE", "HOME"):
            result = command(NODES, "on", "login", "sbatch", "--quiet", "--wait", f"--export={export}", "-N2", "-n2",
                             "-o", output, script)
            with open(output, encoding="utf-8") as file:
                text = file.read() + result.stdout
            for rank in range(2):
                self.assertIn(f"[{rank}]<stdout>:7340032 x {self.folder}:/usr/bin:/bin\n", text)

    def test_the_variables_of_another_scheduler_do_not_count(self):
        """SchedMD's spank_pbs sets PBS_JOBID; others come from the shell that submitted the job."""
        for login, variables in (("login", {"PBS_JOBID": "3", "PBS_NODENUM": "0"}), ("n1", {"LSB_JOBID": "12"}),
                                 ("n1", {"LSB_JOBID": "12", "LSB_MCPU_HOSTS": "old1 8 old2 8"}),
                                 ("login", {"JOB_ID": "12", "SGE_TASK_ID": "undefined"})):
            others = [f"{name}={value}" for name, value in variables.items()]
            result = command(NODES, "on", login, "salloc", "--quiet", "-N2", "-n4", "-w", "n[1-2]", "env", *others,
                             "sh", "-c", f"{HOROVODRUN} sh -c 'echo rank $SLURM_PROCID of $SLURM_STEP_NUM_TASKS'; "
                             f"{HOROVODRUN} --explain true")
            for rank in range(4):
                self.assertIn(f"[{rank}]<stdout>:rank {rank} of 4\n", result.stdout)
            self.assertRegex(result.stdout, r"scheduler +Slurm, job \d+, .*\n.*\n +not (PBS|LSF|Grid Engine) \(")
            self.assertRegex(result.stdout, r"put back into the queue by `scontrol requeue \d+`")

    def test_two_horovodruns_run_at_once_if_each_has_its_share(self):
        """Each waits for a file of the other's ranks, so that one after the other would not do."""
        both = os.path.join(self.folder, "both")
        meet = f"touch {both}.$0.$SLURM_PROCID; until [ $(ls {both}.* | wc -l) = 4 ]; do sleep 0.05; done; echo met"
        run = f"timeout 60 {HOROVODRUN} -np 2 --share cores=1 sh -c '{meet}'"
        result = self.in_allocation(("-N2", "-n4", "--ntasks-per-node=2"), "sh", "-c", f"{run} a & {run} b & wait")
        self.assertEqual(result.stdout.count("<stdout>:met"), 4, result.stdout)
        # Without a share the second one waits for the end of the first, and horovodrun tells why.
        told = os.path.join(self.folder, "told")
        first = f"{HOROVODRUN} -np 2 sh -c 'touch {told}; until grep -q -e --share {told}; do sleep 0.05; done'"
        second = f"until [ -e {told} ]; do sleep 0.05; done; {HOROVODRUN} -np 2 echo second 2>{told}"
        result = self.in_allocation(("-N2", "-n4", "--ntasks-per-node=2"), "sh", "-c", f"{first} & {second}; wait")
        self.assertEqual(result.stdout.count("<stdout>:second"), 2, result.stdout)

    def test_the_time_that_is_left_is_told(self):
        result = self.in_allocation(("-n1", "-t", "10"), HOROVODRUN, "--explain", "true")
        self.assertRegex(result.stdout, r"it ends in 0:(09:\d\d|10:00) at the latest")


class InJobsOfStandIns(SchedulersTest):
    """Jobs over both nodes. Slurm serves PMIx or PMI-2 behind the stand-in of each launcher."""

    def check(self, folders, submit, *words, code=0, **more):
        path = ":".join([*(os.path.join(STANDINS, folder) for folder in folders), os.environ["PATH"]])
        environment = {"PATH": path, "HVD_STANDIN_SPOOL": self.folder, "HVD_STANDIN_HOSTS": "n1 n2", **more}
        result = command(NODES, "on", "n1", "salloc", "--quiet", "-N2", "-n8", "--ntasks-per-node=4", "-w", "n[1-2]",
                         "env", "-u", "TMPDIR", *submit, "--", *words, **environment)
        self.assertEqual(result.returncode, code, result.stdout)
        return result.stdout

    @NEEDS_PMIX
    def test_lsf_with_jsrun(self):
        lsf = (("lsf",), ("bsub", "-P", "ABC123", "-nnodes", "2"))
        self.check(*lsf, HOROVODRUN, "-np", "4", RANK, "pmix", "2", "n1,n1,n2,n2")
        self.check(*lsf, HOROVODRUN, "-np", "3", "--jsrun-erf", RANK, "pmix", "2", "n1,n1,n2")
        self.check(*lsf, HOROVODRUN, "-np", "3", "--jsrun-erf", "-H", "n2:2,n1:1", RANK, "pmix", "2", "n2,n2,n1")

    def test_lsf_with_blaunch(self):
        self.check(("lsf-without-jsm",), ("bsub", "-n", "4"), HOROVODRUN, RANK, "rendezvous", "2", "n1,n1,n2,n2")

    @NEEDS_PMIX
    def test_pbs_with_pals(self):
        self.check(("pbs", "pbs/pals/bin"), ("qsub", "-l", "select=2:ncpus=4:mpiprocs=2"),
                   HOROVODRUN, RANK, "pmix", "2", "n1,n1,n2,n2")

    PBSDSH = (("pbs", "pbs/tm"), ("qsub", "-l", "select=2:ncpus=4:mpiprocs=2"))

    def test_pbs_with_pbsdsh(self):
        self.check(*self.PBSDSH, HOROVODRUN, RANK, "rendezvous", "2", "n1,n1,n2,n2", HOME=self.folder)
        self.assertEqual([name for name in os.listdir(self.folder) if "call" in name], [])

    def test_ranks_by_pbsdsh_get_their_environment_and_tell_their_failure(self):
        text = self.check(*self.PBSDSH, HOROVODRUN, "sh", "-c", "echo $(hostname) $HOROVOD_RANK $MINE",
                          HOME=self.folder, MINE="x")
        for rank, node in enumerate(("n1", "n1", "n2", "n2")):
            self.assertIn(f"[{rank}]<stdout>:{node} {rank} x\n", text)
        text = self.check(*self.PBSDSH, HOROVODRUN, "sh", "-c", "[ $HOROVOD_RANK = 2 ] && exit 7; exec sleep 12346",
                          HOME=self.folder, code=7)
        self.assertIn("FIRST FAILURE: rank 2 on host n2 ", text)
        self.assertNotIn("sleep 12346", command(NODES, "on", "n1", "ps", "-ef").stdout)

    def test_a_host_that_pbsdsh_does_not_lead_to_is_named(self):
        text = self.check(*self.PBSDSH, HOROVODRUN, "true", HOME=self.folder, HOROVOD_REMOTE_PROGRAM="/no/horovodrun",
                          code=1)
        self.assertRegex(text, "the host n2 cannot be used: .*before an agent connected")

    def test_flux(self):
        self.check(("flux",), ("flux", "batch", "-N", "2"), HOROVODRUN, "-np", "3", RANK, "pmi", "2", "n1,n1,n2")


if __name__ == "__main__":
    enter(2, sys.argv[1], sys.argv[1:])
    sys.argv.pop(1)
    unittest.main()
