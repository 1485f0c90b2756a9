"""From an installed prefix to a job that trains, as docs/first-job.md tells it: with a real Slurm on four virtual
nodes, a real Grid Engine, and the stand-ins for LSF.

Label site; needs root, namespaces, Slurm, Lmod and .venv-tests (tests/run loads them)."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import installed

CLUSTER = installed.ROOT / "tests" / "cluster"
NODES = CLUSTER / "nodes"
GRID_ENGINE = CLUSTER / "grid_engine"
STANDINS = installed.ROOT / "tests" / "fixtures" / "schedulers"
PROGRAM = ["python", "torch_synthetic.py", "--layers", "2", "--width", "64"]
ROW = r"^(\[0\]<stdout>:)?4 ranks, 0\.0 MB of gradients: [\d,]+ rows/s in all"


def setUpModule():
    global cluster, site, work, environment
    installed.skip_without(installed.LMOD, "Lmod")
    can = installed.run(NODES, "can")
    if can.returncode != 0:
        print(f"not tested: {can.stdout}")
        sys.exit(77)
    # a folder that all nodes see
    work = pathlib.Path(tempfile.mkdtemp(prefix="first-job-", dir=installed.ROOT / "build"))
    site = work / "site"
    environment = installed.environment_with_torch(work / "venv")
    installed.skip_without(environment or ".venv-tests", "PyTorch in .venv-tests")
    cluster = subprocess.run([NODES, "up", "4"], check=True, text=True, stdout=subprocess.PIPE).stdout.strip()


def tearDownModule():
    subprocess.run([NODES, "down"], env={**os.environ, "HVD_CLUSTER": cluster}, check=False)
    shutil.rmtree(work, ignore_errors=True)


def blocks():
    """Returns the steps of the administrator and the steps of the user."""
    text = (installed.ROOT / "docs" / "first-job.md").read_text(encoding="utf-8")
    found = [block.partition("```")[0] for block in text.split("```sh script\n")[1:]]
    assert len(found) == 2, found
    return found


class FirstJob(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not (site / "horovod").exists():
            install = blocks()[0].replace("build/release", str(installed.BUILD))
            done = installed.run("bash", "-ec", install, env={**os.environ, "SITE": str(site)}, cwd=installed.ROOT)
            assert done.returncode == 0, done.stdout

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="job-", dir=work))
        shutil.copy(installed.ROOT / "examples" / "torch_synthetic.py", self.folder)

    def as_user(self, script, node="login", before=(), **variables):
        """Runs a user's script in a shell with modules and an active virtual environment, which has nothing else."""
        path = self.folder / "session"
        path.write_text(f"source {environment}/bin/activate\n"
                        f"module use {site}/horovod/share/modulefiles\nmodule load horovod\n{script}", encoding="utf-8")
        plain = {"HOME": "/nonexistent", "LC_ALL": "C.UTF-8", "USER": "root", "HVD_CLUSTER": cluster,
                 "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "BASH_ENV": str(installed.LMOD), "OMP_NUM_THREADS": "1",
                 "SITE": str(site), "HOROVOD_START_TIMEOUT": "120", **variables}
        return installed.run(NODES, "on", node, *before, "timeout", "400", "bash", "-e", path, env=plain,
                             cwd=self.folder)

    def assert_trained(self, done, text):
        written = "".join(path.read_text(encoding="utf-8") for path in self.folder.glob("first*.out"))
        self.assertEqual(done.returncode, 0, done.stdout + written)
        self.assertRegex(text, f"(?m){ROW}")

    def test_slurm_as_the_page_tells(self):
        done = self.as_user(blocks()[1], SLURM_MPI_TYPE="pmix")  # the value of MpiDefault in the site's slurm.conf
        self.assert_trained(done, done.stdout)

    def test_grid_engine(self):
        can = installed.run(GRID_ENGINE, "can")
        if can.returncode != 0:
            self.skipTest(can.stdout)
        variables = {**os.environ, "HVD_CLUSTER": cluster}
        up = installed.run(GRID_ENGINE, "up", "n1", "n2", env=variables)
        self.assertEqual(up.returncode, 0, up.stdout)
        words = " ".join(PROGRAM)
        (self.folder / "first.sh").write_text(f"""#!/bin/bash
#$ -N first -j y -o first.out -cwd -S /bin/bash -V -pe mpi 4
horovodrun {words}
""", encoding="utf-8")
        done = self.as_user(f"{GRID_ENGINE} run sh -c 'cd {self.folder} && qsub -sync y first.sh'\ncat first.out")
        self.assert_trained(done, done.stdout)

    def stand_in(self, folder, write, submit):
        """Writes and submits a job script with a scheduler's stand-in, in an allocation of Slurm. Slurm's PMIx server
        serves the ranks of the stand-in's launcher."""
        path = f"{STANDINS / folder}:{os.environ['PATH']}"
        done = self.as_user(f"horovodrun --jobscript lsf {write} --time 30m --job-name first --modules horovod "
                            f"--environment $VIRTUAL_ENV -- {' '.join(PROGRAM)} >first.sh\n{submit}", "n1",
                            ("salloc", "--quiet", "-N4", "-n4", "--ntasks-per-node=1", "env", "-u", "TMPDIR"),
                            PATH=path, HVD_STANDIN_SPOOL=str(self.folder), HVD_STANDIN_HOSTS="n1 n2 n3 n4",
                            HVD_STANDIN_SLOTS="1")
        self.assert_trained(done, done.stdout)

    def test_lsf_with_jsrun(self):
        self.stand_in("lsf", "--site summit --account ABC123 --nodes 4 --ranks-per-node 1", "bsub first.sh")

    def test_lsf_with_blaunch(self):
        self.stand_in("lsf-without-jsm", "--nodes 4 --ranks-per-node 1", "bsub <first.sh")


if __name__ == "__main__":
    unittest.main(verbosity=2)
