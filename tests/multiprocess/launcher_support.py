"""The archive that horovodrun --support-bundle writes.

    HOROVODRUN=build/release/bin/horovodrun python3 tests/multiprocess/launcher_support.py"""
import json
import os
import pathlib
import shutil
import stat
import subprocess
import tarfile
import tempfile
import unittest

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
        names = ("slurm-7_3.out", "train.o12", "train.e12", "train.o12.3", "flux-f3ET.out", "none.out", "x.e10.pt")
        for number, name in enumerate(names):
            (self.folder / name).write_text(f"words in {name}", encoding="utf-8")
            os.utime(self.folder / name, (1000 + number, 1000 + number))
        for name in reversed(names[:5]):
            _, files = self.pack("--support-bundle=bundle.tar.gz", "-np", "1")
            self.assertEqual({file: text for file, text in files.items() if file.startswith("log/")},
                             {"log/" + name: f"words in {name}"})
            (self.folder / name).unlink()

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
