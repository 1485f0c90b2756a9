#!/usr/bin/env python3
"""The scripts that `horovodrun --jobscript` writes are compared with the examples, checked by shellcheck, and run with
stand-ins for the site's programs."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOROVODRUN = os.environ["HOROVODRUN"]
EXAMPLES = ROOT / "jobscripts" / "examples"


def script(*flags, command=("python", "train.py")):
    return subprocess.run([HOROVODRUN, "--jobscript", *flags, "--", *command], capture_output=True, text=True)


class JobScripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="jobscripts.")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "bin").mkdir()

    def stand_in(self, name, body):
        file = self.folder / "bin" / name
        file.write_text(f"#!/bin/bash\n{body}\n")
        file.chmod(0o755)

    def run_script(self, text, **variables):
        environment = {**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}", **variables}
        return subprocess.run(["bash", "-c", text], cwd=self.folder, env=environment, capture_output=True, text=True)

    def test_examples_are_what_is_written_today(self):
        subprocess.run([ROOT / "jobscripts" / "write-examples", HOROVODRUN, self.folder], check=True)
        written = {file.name: file.read_text() for file in self.folder.glob("*.sh")}
        kept = {file.name: file.read_text() for file in EXAMPLES.glob("*.sh")}
        self.assertEqual(written, kept, "jobscripts/write-examples HOROVODRUN jobscripts/examples brings them up to "
                                        "date")

    def test_every_example_is_clean_to_shellcheck(self):
        shellcheck = shutil.which("shellcheck")
        self.assertTrue(shellcheck, "shellcheck is missing (apt install shellcheck)")
        done = subprocess.run([shellcheck, *sorted(EXAMPLES.glob("*.sh"))], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_words_of_a_command_arrive_as_they_were_given(self):
        words = ["prog", "a b", "it's", "$(touch harm)", "`touch harm`", "$HOME", "\"", "\\", "*", "", "a;b", "ü", "#x"]
        for flags, launcher in ((["slurm", "--ranks-per-node", "2"], "srun"),
                                (["lsf", "--site", "summit", "--account", "a"], "jsrun"),
                                (["pbs", "--ranks-per-node", "2", "--cpus-per-rank", "1"], "horovodrun")):
            for more in ([], ["--requeue"]):
                self.stand_in(launcher, 'while [ "$1" != prog ]; do shift; done; printf "%s\\0" "$@" >words')
                written = script(*flags, "--time", "1h", *more, command=words)
                self.assertEqual(written.returncode, 0, written.stderr)
                done = self.run_script(written.stdout, PBS_O_WORKDIR=str(self.folder), PBS_JOBID="1", LSB_JOBID="1",
                                       SLURM_JOB_ID="1")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual((self.folder / "words").read_text().split("\0")[:-1], words)
                self.assertFalse((self.folder / "harm").exists())

    def test_what_a_job_cannot_use_is_refused(self):
        for flags, why in ((["slurm", "--time", "2:00", "--ranks-per-node", "1"], "minutes to one scheduler"),
                           (["slurm", "--ranks-per-node", "1"], "--time"),
                           (["condor", "--time", "1h"], "lsf, pbs, slurm"),
                           (["slurm", "--site", "summit", "--time", "1h"], "--jobscript lsf"),
                           (["slurm", "--site", "nowhere", "--time", "1h"], "perlmutter"),
                           (["slurm", "--site", "./none.site", "--time", "1h"], "./none.site"),
                           (["lsf", "--site", "summit", "--time", "1h"], "--account"),
                           (["slurm", "-np", "4", "--time", "1h", "--ranks-per-node", "1"], "--ranks-per-node")):
            refused = script(*flags)
            self.assertEqual((refused.returncode, refused.stdout), (2, ""), flags)
            self.assertIn(why, refused.stderr)
        refused = subprocess.run([HOROVODRUN, "-np", "2", "--nodes", "2", "true"], capture_output=True, text=True)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("--jobscript", refused.stderr)

    def test_flags_for_the_ranks_are_in_the_script_or_refused(self):
        size = ["--time", "1h", "--ranks-per-node", "1", "--cpus-per-rank", "1"]
        config = self.folder / "job.yaml"
        config.write_text("settings:\n  HOROVOD_PEER_TIMEOUT: 30\nlogging:\n  level: WARNING\n")
        for flags, lines in (
                (["--network-interfaces", "ib0,ib1"], ["NCCL_SOCKET_IFNAME=ib0,ib1", "HOROVOD_GLOO_IFACE=ib0"]),
                (["--fusion-threshold-mb", "7", "--no-stall-check"], ["HOROVOD_FUSION_THRESHOLD=7340032",
                                                                      "HOROVOD_STALL_CHECK_DISABLE=1"]),
                (["--timeline-filename", "a b.json", "--timeline-mark-cycles"], ["HOROVOD_TIMELINE='a b.json'",
                                                                                 "HOROVOD_TIMELINE_MARK_CYCLES=1"]),
                (["--config-file", str(config)], ["HOROVOD_PEER_TIMEOUT=30", "HOROVOD_LOG_LEVEL=WARNING"])):
            written = script("slurm", *size, *flags)
            for line in lines:
                self.assertIn(f"\nexport {line}\n", written.stdout, written.stderr)
        for flags in (["--preflight"], ["--output-filename", "out"], ["--stage", "e.tar"], ["--verbose"], ["--mpi"]):
            refused = script("slurm", *size, *flags)
            self.assertEqual((refused.returncode, refused.stdout), (2, ""), flags)
            self.assertIn(f"{flags[0]}: srun starts the ranks", refused.stderr)
        for flags, why in ((["-H", "n1:2"], "--hosts: the scheduler"), (["--explain"], "found both"),
                           (["--hostfile", "hosts"], "--hostfile: the scheduler"),
                           (["--max-requeues", "2"], "--requeue"),
                           (["--container-bind", "/data"], "--container IMAGE")):
            for scheduler in ("slurm", "lsf"):
                refused = script(scheduler, *size, *flags)
                self.assertEqual((refused.returncode, refused.stdout), (2, ""), flags)
                self.assertIn(why, refused.stderr)

    def test_flags_arrive_at_a_horovodrun_that_starts_the_ranks(self):
        flags = ["--preflight", "--output-filename=o u t", "--no-autotune", "--fusion-threshold-mb=7", "--mpi",
                 "--mpi-args=-x $HOME", "--container=x.sif", "--container-bind=/data,/in", "--container-bind=/more"]
        self.stand_in("horovodrun", 'printf "%s\\0" "$@" >words')
        written = script("lsf", "--time", "1h", "--ranks-per-node", "2", *flags)
        self.assertEqual(written.returncode, 0, written.stderr)
        self.run_script(written.stdout)
        words = (self.folder / "words").read_text().split("\0")[:-1]
        self.assertEqual(sorted(words), sorted(["-np", "2", *flags[:-2], "--container-bind=/data,/in,/more", "python",
                                                "train.py"]))

    def test_settings_of_a_site_are_no_request_for_a_script(self):
        site = self.folder / "site.yaml"
        site.write_text("horovodrun:\n  verbose: yes\n  container-bind: /data\n  log-level: debug\n")
        written = subprocess.run([HOROVODRUN, "--jobscript", "slurm", "--time", "1h", "--ranks-per-node", "1", "true"],
                                 capture_output=True, text=True, env={**os.environ, "HOROVOD_SITE_CONFIG": str(site)})
        self.assertEqual(written.returncode, 0, written.stderr)
        self.assertNotIn("/data", written.stdout)

    def test_ranks_of_srun_get_all_variables_and_a_way_to_meet(self):
        self.stand_in("srun", 'if [ "$1" = --mpi=list ]; then printf "MPI plugin types are...\\n\\t%s\\n" $SERVED >&2; '
                              'else printf "%s\\n" "$@"; fi')
        self.stand_in("scontrol", 'printf "MpiDefault              = %s\\nMpiParams = none\\n" $DEFAULT')
        self.stand_in("horovodrun", 'echo "$CAN"')
        written = script("slurm", "--ranks-per-node", "1", "--time", "1h").stdout
        can, all_of_them = "pmix can be used", "none pmi2 pmix pmix_v4"
        for default, served, answer, more, wanted in (
                ("none", all_of_them, can, {}, ["--mpi=pmix"]), ("none", all_of_them, "no libpmix", {}, ["--mpi=pmi2"]),
                ("none", "none pmix_v4", can, {}, []), ("pmix", all_of_them, can, {}, []),
                ("none", all_of_them, can, {"HOROVOD_SHARED_DIR": "/shared"}, []),
                ("none", all_of_them, can, {"SLURM_MPI_TYPE": "pmix_v4"}, [])):
            done = self.run_script(written, DEFAULT=default, SERVED=served, CAN=answer, **more)
            words = done.stdout.splitlines()
            self.assertIn("--export=ALL", words, done.stderr)
            self.assertEqual([word for word in words if word.startswith("--mpi")], wanted, (default, served, answer))

    def test_a_warned_job_goes_back_into_the_queue(self):
        """The scheduler's SIGUSR1 reaches the ranks. If they end with 75, the job is put back into the queue."""
        # The signal is sent again and again, because the first ones may come before the script has started the ranks.
        self.stand_in("srun", "trap 'echo told >>ranks; exit 75' USR1\nwhile kill -USR1 $PPID; do sleep 0.1; done")
        self.stand_in("scontrol", '[ "$1" != requeue ] || echo "$@" >>requeued')
        written = script("slurm", "--ranks-per-node", "1", "--time", "1h", "--requeue").stdout
        done = self.run_script(written, SLURM_JOB_ID="77")
        self.assertEqual(((self.folder / "ranks").read_text(), (self.folder / "requeued").read_text()),
                         ("told\n", "requeue 77\n"), done.stderr)
        (self.folder / "requeued").unlink()
        done = self.run_script(written, SLURM_JOB_ID="77", SLURM_ARRAY_JOB_ID="77", SLURM_ARRAY_TASK_ID="3")
        self.assertEqual((self.folder / "requeued").read_text(), "requeue 77_3\n", "one task, not the whole array")
        (self.folder / "requeued").unlink()
        done = self.run_script(written, SLURM_JOB_ID="77", SLURM_ARRAY_JOB_ID="70", SLURM_ARRAY_TASK_ID="3")
        self.assertEqual((self.folder / "requeued").read_text(), "requeue 77\n", "submitted by a task of an array")
        (self.folder / "requeued").write_text("requeue 77\n")
        done = self.run_script(written, SLURM_JOB_ID="77", SLURM_RESTART_COUNT="20")
        self.assertEqual((self.folder / "requeued").read_text(), "requeue 77\n", "put back too often")
        once = script("slurm", "--ranks-per-node", "1", "--time", "1h", "--requeue", "--max-requeues", "1").stdout
        done = self.run_script(once, SLURM_JOB_ID="77", SLURM_RESTART_COUNT="1")
        self.assertEqual((done.returncode, (self.folder / "requeued").read_text()), (75, "requeue 77\n"))
        shown = "JobId=78\\n   Requeue=1 Restarts=%s Reboot=0\\n"
        self.stand_in("scontrol", f'[ "$1 $2 $3" != "show job 78" ] || printf "{shown}" $TOLD\n'
                                  '[ "$1" != requeue ] || echo "$@" >>requeued')
        self.run_script(once, SLURM_JOB_ID="78", SLURM_RESTART_COUNT="1", TOLD="0")
        self.assertEqual((self.folder / "requeued").read_text(), "requeue 77\nrequeue 78\n", "an inherited count")
        done = self.run_script(once, SLURM_JOB_ID="78", TOLD="1")
        self.assertEqual((done.returncode, (self.folder / "requeued").read_text()), (75, "requeue 77\nrequeue 78\n"))
        self.run_script(once, SLURM_JOB_ID="78", TOLD="0", HOROVOD_MAX_REQUEUES="none")
        self.assertEqual((self.folder / "requeued").read_text(), "requeue 77\nrequeue 78\n", "no number")
        (self.folder / "requeued").write_text("requeue 77\n")
        self.stand_in("srun", "exit 5")
        done = self.run_script(written, SLURM_JOB_ID="77")
        self.assertEqual(done.returncode, 5)
        self.assertEqual((self.folder / "requeued").read_text(), "requeue 77\n", "a job that was not warned")

    def test_a_job_that_the_site_does_not_put_back_ends_with_75(self):
        for flags, launcher, command in ((["slurm"], "srun", "scontrol"), (["pbs", "--cpus-per-rank", "1"],
                                                                           "horovodrun", "qrerun")):
            self.stand_in(launcher, "exit 75")
            self.stand_in(command, '[ "$1" = show ] || echo not allowed here >&2; exit 1')
            written = script(*flags, "--ranks-per-node", "1", "--time", "1h", "--requeue").stdout
            done = self.run_script(written, SLURM_JOB_ID="77", PBS_JOBID="77", PBS_O_WORKDIR=str(self.folder))
            self.assertEqual((done.returncode, done.stderr), (75, "not allowed here\n"))


if __name__ == "__main__":
    sys.argv[0] = "scripts_test.py"
    unittest.main()
