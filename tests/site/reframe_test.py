"""Runs the smoke test of jobscripts/reframe by a real ReFrame, as a site does after an upgrade.

Label site; ReFrame is in build/site-venv (tests/run makes it)."""
import os
import pathlib
import shutil
import tempfile
import unittest

import installed

REFRAME = installed.ROOT / "build" / "site-venv" / "bin" / "reframe"
SMOKE_TEST = installed.ROOT / "jobscripts" / "reframe" / "horovod_preflight.py"


class SmokeTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="hvd-reframe-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def reframe(self, *settings):
        """Returns the exit code and the output of ReFrame, in a folder of its own."""
        done = installed.run(REFRAME, "--nocolor", "--prefix", self.folder, "--performance-report", "-c", SMOKE_TEST,
                             "-r", *(word for setting in settings for word in ("-S", setting)), cwd=self.folder,
                             env={**os.environ, "TMPDIR": str(self.folder)})  # its log
        return done.returncode, done.stdout

    def test_a_good_installation_passes(self):
        code, output = self.reframe(f"program={installed.BUILD / 'bin' / 'horovodrun'}", "ranks=2",
                                    "flags=-H localhost:2")
        self.assertEqual(code, 0, output)
        self.assertRegex(output, r"PASSED +\] Ran 1/1 test")
        self.assertRegex(output, r"time_of_preflight: [\d.]+ s")

    def test_a_fault_is_told_with_its_check(self):
        broken = self.folder / "horovodrun"
        broken.write_text(f"#!/bin/sh\nTMPDIR=/nowhere exec {installed.BUILD / 'bin' / 'horovodrun'} \"$@\"\n",
                          encoding="utf-8")
        broken.chmod(0o755)
        code, output = self.reframe(f"program={broken}", "ranks=2", "flags=-H localhost:2")
        self.assertEqual(code, 1, output)
        self.assertRegex(output, r"FAILED +\] Ran 1/1 test")
        self.assertRegex(output, r"sanity error: TMPDIR: \S+: No such file .*\(expected: TMPDIR /nowhere ")

    def test_an_installation_that_is_not_there_fails(self):
        code, output = self.reframe("program=/no/horovodrun")
        self.assertEqual(code, 1, output)


if __name__ == "__main__":
    installed.skip_without(REFRAME, "ReFrame")
    unittest.main(verbosity=2)
