#!/usr/bin/env python3
"""Submits every example of jobscripts/examples that is for LSF as its first lines say, unchanged, to stand-ins for
bsub over four virtual nodes. All of its ranks run its program. lsf_job_scripts_test.py BUILD [Class.test]
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from virtual_nodes import HERE, NODES, enter

BUILD = pathlib.Path(os.path.realpath(sys.argv[1]))
STANDINS = pathlib.Path(HERE, "..", "fixtures", "schedulers").resolve()
EXAMPLES = pathlib.Path(HERE, "..", "..", "jobscripts", "examples").resolve()
EXPECTED = ["digits-lsf", "large-model-lsf", "lassen", "lsf", "sierra", "summit", "summit-container"]
LASSEN = "40 4"  # cores and GPUs of a node
# In the place of the program's Python: says who runs it, and with what words.
PYTHON = '#!/bin/bash\necho "trained by ${JSM_NAMESPACE_RANK-$HOROVOD_RANK} on $(hostname): $*"\n'
# In the place of Apptainer: runs, on the host, the command that follows the image's name.
APPTAINER = '#!/bin/bash\n[ "$*" ] && while [ "$1" != horovod.sif ]; do shift; done; shift; exec "$@"\n'
# In the place of a program that saves and wants another run. As a Checkpointer does, it ends with 75 also when the
# launcher ends it because another rank has ended so.
SAVES = """#!/bin/bash
trap 'exit 75' TERM
touch "ready.${JSM_NAMESPACE_RANK-$HOROVOD_RANK}"
until [ "$(ls ready.* | wc -l)" = "${JSM_NAMESPACE_SIZE-$HOROVOD_SIZE}" ]; do sleep 0.1; done
exit 75
"""
MODULE = '#!/bin/bash\n[ "$*" = "load horovod" ]\n'


class JobScriptsOfLsf(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="job-", dir=BUILD))
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "bin").mkdir()
        for name, text in (("python", PYTHON), ("apptainer", APPTAINER), ("module", MODULE)):
            (self.folder / "bin" / name).write_text(text, encoding="utf-8")
            (self.folder / "bin" / name).chmod(0o755)
        (self.folder / "bin" / "horovodrun").symlink_to(BUILD / "bin" / "horovodrun")
        (self.folder / ".venv" / "bin").mkdir(parents=True)
        (self.folder / ".venv" / "bin" / "activate").touch()

    def submit(self, script, command, standin, **more):
        (self.folder / "FILE").write_text(script, encoding="utf-8")
        environment = {**os.environ, "PATH": f"{STANDINS / standin}:{self.folder / 'bin'}:{os.environ['PATH']}",
                       "HVD_STANDIN_SPOOL": str(self.folder), "HVD_STANDIN_HOSTS": "n1 n2 n3 n4",
                       "HVD_STANDIN_SLOTS": "4", "MPI_ROOT": "/usr", **more}
        return subprocess.run([NODES, "on", "n1", "salloc", "--quiet", "-N4", "-n4", "--ntasks-per-node=1", "env", "-u",
                               "TMPDIR", "sh", "-c", command], cwd=self.folder, env=environment, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=200,
                              check=False)

    def check(self, name, standin, **more):
        script = (EXAMPLES / f"{name}.sh").read_text(encoding="utf-8")
        nodes, per_node = map(int, re.search(r": (\d+) x (\d+) ranks", script).groups())
        command = re.search(r"submit it with `(bsub <?FILE)`", script)[1]
        program = re.search(r"\bpython (.*?)(?: &)?$", script, re.MULTILINE)[1]
        done = self.submit(script, command, standin, **more)
        self.assertEqual(done.returncode, 0, done.stdout)
        said = re.findall(r"trained by (\d+) on n(\d): (.*)", done.stdout)
        self.assertEqual(sorted((int(rank), int(node), words) for rank, node, words in said),
                         [(rank, 1 + rank // per_node, program) for rank in range(nodes * per_node)], done.stdout)

    def test_all_examples_are_known_here(self):
        found = [path.stem for path in EXAMPLES.glob("*.sh") if "\n#BSUB" in path.read_text(encoding="utf-8")]
        self.assertEqual(sorted(found), EXPECTED)

    def test_summit(self):
        self.check("summit", "lsf")

    def test_summit_container(self):
        self.check("summit-container", "lsf")

    def test_lassen(self):
        self.check("lassen", "lsf", HVD_STANDIN_NODE=LASSEN)

    def test_sierra(self):
        self.check("sierra", "lsf", HVD_STANDIN_NODE=LASSEN)

    def test_lsf(self):
        self.check("lsf", "lsf-without-jsm")

    def test_digits_lsf(self):
        self.check("digits-lsf", "lsf-without-jsm")

    def test_large_model_lsf(self):
        self.check("large-model-lsf", "lsf-without-jsm")

    def test_a_program_that_wants_another_run_puts_the_job_back(self):
        """The script ends with the exit code of its line -Q, as often as it allows."""
        for name, standin in (("summit", "lsf"), ("digits-lsf", "lsf-without-jsm")):
            script = (EXAMPLES / f"{name}.sh").read_text(encoding="utf-8")
            script = re.sub(r"(HOROVOD_MAX_REQUEUES:-)\d+", r"\g<1>1", script)
            (self.folder / "bin" / "python").write_text(SAVES, encoding="utf-8")
            command = re.search(r"submit it with `(bsub <?FILE)`", script)[1]
            for code in (99, 75):
                for path in self.folder.glob("ready.*"):
                    path.unlink()
                done = self.submit(script, command, standin)
                self.assertEqual(done.returncode, code, done.stdout)
            self.assertEqual(list(self.folder.glob(".*.starts")), [], "the job's count of starts stays behind")

    def test_what_a_site_refuses(self):
        script = (EXAMPLES / "summit.sh").read_text(encoding="utf-8")
        for line, reason in (("#BSUB -wa USR1\n", "-wa and -wt belong together"),
                             ("#BSUB -P ABC123\n", "No project specified")):
            refused = self.submit(script.replace(line, ""), "bsub FILE", "lsf")
            self.assertEqual(refused.returncode, 255, refused.stdout)
            self.assertIn(reason, refused.stdout)
        refused = self.submit(script.replace("-W 2:00", "-W 2:00:00"), "bsub FILE", "lsf")
        self.assertIn("[hours:]minutes", refused.stdout)
        refused = self.submit(script, "bsub <FILE", "lsf")
        self.assertIn("`bsub < script` does not work", refused.stdout)


if __name__ == "__main__":
    enter(4, sys.argv[1], sys.argv[1:])
    sys.argv.pop(1)
    unittest.main()
