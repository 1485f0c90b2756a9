"""The archive that horovodrun --support-bundle writes.

    HOROVODRUN=build/release/bin/horovodrun python3 tests/multiprocess/launcher_support.py"""
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOROVODRUN = pathlib.Path(os.environ["HOROVODRUN"]).resolve()
SECRETS = {"HOROVOD_SECRET_KEY": "of-the-job-42", "WANDB_API_KEY": "of-a-service-42", "DB_PASSWORD": "of-a-base-42",
           "GITHUB_TOKEN": "of-a-forge-42", "HOROVOD_LOCAL_STORE_SECRET": "of-a-store-42"}


class Support(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="hvd-support-"))
        self.addCleanup(shutil.rmtree, self.folder)
        logs = self.folder / "logs" / "rank.0"
        logs.mkdir(parents=True)
        (logs / "stderr").write_text("the last words\nexport X=of-a-forge-42\nAuthorization: Bearer of-a-header-42\n"
                                     "https://me:of-an-address-42@host/\n", encoding="utf-8")

    def pack(self, *words, **variables):
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "SLURM_CLUSTER_NAME": "here", **variables}
        done = subprocess.run([HOROVODRUN, *words], cwd=self.folder, env=environment, text=True, capture_output=True,
                              check=False, timeout=120)
        if done.returncode != 0:
            return done, {}
        archive = self.folder / done.stdout.strip()
        self.assertEqual(stat.S_IMODE(archive.stat().st_mode), 0o600)
        with tarfile.open(archive) as tar:
            files = {member.name.split("/", 1)[1]: tar.extractfile(member).read().decode()
                     for member in tar if member.isfile()}
        return done, files

    def logs(self):
        _, files = self.pack("--support-bundle=bundle.tar.gz", "-np", "1")
        return {name.removeprefix("log/"): text for name, text in files.items() if name.startswith("log/")}

    def test_everything_is_in_it_but_no_secret(self):
        site = self.folder / "site.yaml"
        site.write_text("contact: hpc@example.org\nsettings:\n  HOROVOD_START_TIMEOUT: 60\n", encoding="utf-8")
        _, files = self.pack("--support-bundle=bundle.tar.gz", "--output-filename", "logs", "-np", "2", "--gloo",
                             "--oversubscribe", "python3", "train.py", "--api-key", "of-a-command-42",
                             HOROVOD_SITE_CONFIG=str(site), **SECRETS)
        for name, expected in {"versions.txt": "Available Frameworks", "explain.txt": "launcher",
                               "system.txt": "kernel:", "settings.txt": "site.yaml, line 3",
                               "site.yaml": "HOROVOD_START_TIMEOUT: 60",
                               "environment.txt": "WANDB_API_KEY=(not shown)",
                               "scheduler.txt": "SLURM_CLUSTER_NAME=here",
                               "ranks.txt": "1  1 of 2", "log/rank.0.stderr": "the last words"}.items():
            self.assertIn(expected, files[name], name)
        self.assertEqual(json.loads(files["settings.json"])["settings"]["HOROVOD_START_TIMEOUT"]["value"], "60")
        for name, text in files.items():
            self.assertNotIn("-42", text, name)

    def test_newest_output_of_a_batch_job_is_in_it(self):
        names = ("slurm-6_3.out", "train.o12", "slurm-7_3.out", "train.e12", "train.o12.3", "flux-f3ET.out", "none.out",
                 "x.e10.pt")
        for number, name in enumerate(names):
            (self.folder / name).write_text(f"words in {name}", encoding="utf-8")
            os.utime(self.folder / name, (1000 + number, 1000 + number))
        self.assertEqual(self.logs(), {name: f"words in {name}" for name in names[2:6]})
        (self.folder / "train.o12.3").unlink()
        self.assertIn("train.o12", self.logs())

    def test_output_of_our_own_job_scripts_is_in_it(self):
        outputs = set()
        for script in (ROOT / "jobscripts/examples").glob("*.sh"):
            text = script.read_text(encoding="utf-8")
            names = re.findall(r"^#(?:SBATCH --(?:output|error)=|BSUB -[oe] |PBS -[oe] )(\S+)", text, re.MULTILINE)
            names = [name.replace("%x", "train").replace("%j", "17").replace("%J", "17") for name in names]
            if "#PBS -j oe" in text and not names:
                names = ["train.o17"]  # the default of PBS
            self.assertTrue(names and not any("%" in name for name in names), script)
            outputs.update(names)
        for name in outputs:
            (self.folder / name).write_text(name, encoding="utf-8")
            self.assertIn(name, self.logs(), "Traits::output_files of the scheduler lack it")
            (self.folder / name).unlink()
        # Of a script of LSF, the errors are in a file of their own.
        for name in ("train.17.out", "train.17.err"):
            (self.folder / name).write_text(name, encoding="utf-8")
        self.assertEqual(set(self.logs()), {"train.17.out", "train.17.err"})

    def test_job_that_cannot_be_planned_is_packed_with_the_reason(self):
        done, files = self.pack("--support-bundle", "--gloo", "-np", "2000")
        self.assertTrue(done.stdout.startswith("horovod-support-"), done)
        self.assertIn("2000", files["explain.txt"])

    def test_place_that_cannot_be_written_is_named(self):
        done, _ = self.pack("--support-bundle=/nonexistent/bundle.tar.gz")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nonexistent/bundle.tar.gz cannot be written", done.stderr)


if __name__ == "__main__":
    unittest.main()
