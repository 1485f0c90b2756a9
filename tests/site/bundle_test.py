"""The archive for sites without internet: the lines of docs/air-gapped.md in a network namespace without a network,
ranks of a program in C, and what the script refuses. Label site; needs root for the namespace."""
import pathlib
import platform
import shutil
import sys
import tarfile
import tempfile
import unittest

import installed

MACHINE = platform.machine()
NAME = f"horovod-{installed.version()}-offline-{MACHINE}"
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
CONSUMER = installed.ROOT / "tests" / "package" / "consumer"
BUNDLE = installed.ROOT / "src" / "python" / "wheels" / "bundle"


class Bundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if installed.run("unshare", "--net", "true").returncode != 0:
            print("not tested: no namespaces of networks can be made here")
            sys.exit(77)
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="hvd-bundle-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, True)
        # numpy stands for a framework: it has a wheel for each Python.
        done = installed.run(BUNDLE, "--into", cls.folder, "--python", PYTHON, "--with", "numpy")
        assert done.returncode == 0, done.stdout
        cls.archive = cls.folder / f"{NAME}.tar"

    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="site-", dir=self.folder))
        shutil.copy(self.archive, self.work)

    def without_network(self, script):
        environment = {"PATH": f"{pathlib.Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(self.work),
                       "LC_ALL": "C.UTF-8"}
        lines = f"set -e\nip link set lo up 2>/dev/null || true\n{script}"
        return installed.run("unshare", "--net", "bash", "-c", lines, env=environment, cwd=self.work, timeout=300)

    def succeeds(self, script):
        done = self.without_network(script)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def script(self):
        return installed.script_of("air-gapped.md").replace("horovod-1.0.0.dev0-offline-x86_64", NAME)

    def test_archive_holds_what_the_page_says(self):
        with tarfile.open(self.archive) as archive:
            names = [name.removeprefix(f"{NAME}/") for name in archive.getnames()]
        for wanted in ("install", "requirements.txt", "SHA256SUMS"):
            self.assertIn(wanted, names)
        for package in ("horovod", "cloudpickle", "numpy"):
            found = [name for name in names if name.startswith(f"wheels/{package}-")]
            self.assertEqual(len(found), 1, names)

    def test_lines_of_the_page_work_without_a_network(self):
        self.assertNotEqual(self.without_network("pip download -q --no-deps --retries 0 cloudpickle").returncode, 0)
        said = self.succeeds(self.script() + "python -c 'import numpy, cloudpickle; print(\"all there\")'\n")
        self.assertIn("[X] PMIx", said)
        self.assertEqual(said.count(f"{installed.version()} is here"), 2, said)
        self.assertIn("all there", said)

    def test_programs_in_c_are_built_and_run_without_a_network(self):
        said = self.succeeds(self.script() + "export PKG_CONFIG_PATH=$(python -m horovod --pkg-config-dir)\n"
                             f"cc -o average {CONSUMER}/average.c $(pkg-config --cflags --libs horovod)\n"
                             "horovodrun -np 2 ./average\n")
        self.assertEqual(said.count(f"{installed.version()} works"), 2, said)

    def refuses(self, script, words):
        done = self.without_network(f"tar -xf {NAME}.tar; cd {NAME}; {script}")
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertIn(words, done.stdout)

    def test_install_refuses_what_cannot_work(self):
        self.refuses("./install", "expected one argument")
        self.refuses("./install no/such/python", "there is no Python no/such/python")
        self.refuses("echo x >>requirements.txt; ./install python3", "files differ from SHA256SUMS")
        self.refuses("sed -i 's/^wanted=.*/wanted=3.99/' install; ./install python3",
                     f"this bundle is for Python 3.99, but python3 is {PYTHON}")
        self.refuses(f"sed -i 's/= {MACHINE} /= vax /' install; ./install python3", f"but this machine is {MACHINE}")

    def test_bundle_refuses_what_it_cannot_make(self):
        for words, said in ((["--arch", "ppc64le"], "x86_64 and aarch64, found --arch ppc64le"),
                            (["--with", "torch"], "add --python"), (["--python", "2.7"], "expected 3.9 or later"),
                            (["--fast"], "unknown option --fast")):
            done = installed.run(BUNDLE, *words)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(said, done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
