#!/usr/bin/env python3
"""horovodrun inside of jobs of schedulers over virtual nodes: a real Grid Engine, a real Slurm, and stand-ins for LSF,
PBS and Flux with Slurm's servers behind them. schedulers_test.py BUILD [Class.test]
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
        """What the script writes as a job of four slots on two nodes, and the code of its end."""
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


if __name__ == "__main__":
    enter(2, sys.argv[1], sys.argv[1:])
    BUILD = os.path.realpath(sys.argv.pop(1))
    HOROVODRUN = os.path.join(BUILD, "bin", "horovodrun")
    RANK = os.path.join(BUILD, "tests", "bootstrap_rank")
    unittest.main()
