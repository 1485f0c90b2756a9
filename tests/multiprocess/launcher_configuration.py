"""Settings from files of a site and a user, as horovodrun and ranks of other launchers find them.

    HOROVODRUN=build/release/bin/horovodrun python3 tests/multiprocess/launcher_configuration.py"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HOROVODRUN = pathlib.Path(os.environ["HOROVODRUN"]).resolve()
LIBRARY = HOROVODRUN.parent.parent / "lib" / "libhorovod.so"
SITE = """contact: hpc@example.org
settings:
  HOROVOD_START_TIMEOUT: 60
  HOROVOD_PEER_TIMEOUT: 20
locked:
  - HOROVOD_PEER_TIMEOUT
  - horovodrun.container
"""
# A rank that a foreign launcher has started. It prints its settings, then whether it can join a job.
RANK = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.hvd_last_error.restype = ctypes.c_char_p
VISIT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p)
tell = VISIT(lambda _, *row: print(*(word.decode() for word in row)))
if library.hvd_visit_settings(tell, None): print("refused:", library.hvd_last_error().decode())
if library.hvd_init(ctypes.byref(ctypes.c_void_p())): print("no start:", library.hvd_last_error().decode())
"""


class Configuration(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="hvd-configuration-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder / "home")}

    def write(self, path, text):
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def site(self, text=SITE):
        self.environment["HOROVOD_SITE_CONFIG"] = str(self.write("site.yaml", text))

    def run_it(self, *words, **variables):
        return subprocess.run([str(word) for word in words], env={**self.environment, **variables}, text=True,
                              capture_output=True, check=False, timeout=60)

    def refused(self, *words, **variables):
        done = self.run_it(HOROVODRUN, *words, **variables)
        self.assertEqual(done.returncode, 2, done)
        return done.stderr

    def origins(self, *words, **variables):
        shown = json.loads(self.run_it(HOROVODRUN, "--show-config", "--json", *words, **variables).stdout)
        rows = {**shown["settings"], **shown["flags"]}
        return {name: (row["value"], row["origin"]) for name, row in rows.items()}

    def test_each_source_wins_over_the_one_below_it(self):
        self.site("settings:\n  HOROVOD_START_TIMEOUT: 1\n")
        site, name = self.environment["HOROVOD_SITE_CONFIG"], "HOROVOD_START_TIMEOUT"
        self.assertEqual(self.origins()[name], ("1", f"{site}, line 2"))
        user = self.write("home/.config/horovod/config.yaml", "settings:\n  HOROVOD_START_TIMEOUT: 2\n")
        self.assertEqual(self.origins()[name], ("2", f"{user}, line 2"))
        self.assertEqual(self.origins(HOROVOD_START_TIMEOUT="3")[name], ("3", "environment"))
        named = self.write("job.yaml", "settings:\n  HOROVOD_START_TIMEOUT: 4\n")
        self.assertEqual(self.origins("--config-file", named, HOROVOD_START_TIMEOUT="3")[name],
                         ("4", f"{named}, line 2"))
        shown = self.run_it(HOROVODRUN, "--show-config", "--json", "--config-file", named)
        row = json.loads(shown.stdout)["settings"][name]
        self.assertEqual((row["layer"], row["file"]), ("config-file", str(named)))
        self.assertEqual(self.origins("--config-file", named, "--start-timeout", "5", HOROVOD_START_TIMEOUT="3")[name],
                         ("5", "flag --start-timeout"))
        self.assertEqual(self.origins()["HOROVOD_CACHE_CAPACITY"], ("1024", "default"))

    def test_ranks_get_what_the_files_say(self):
        self.site()
        self.write("home/.config/horovod/config.yaml", "params:\n  cache_capacity: 7\n")
        done = self.run_it(HOROVODRUN, "-np", "1", "sh", "-c", "echo $HOROVOD_START_TIMEOUT $HOROVOD_CACHE_CAPACITY")
        self.assertIn("60 7", done.stdout, done)

    def test_flags_of_the_launcher_come_from_files(self):
        self.site("horovodrun:\n  num-proc: 3\n  oversubscribe: yes\n")
        done = self.run_it(HOROVODRUN, "echo", "here")
        self.assertEqual(done.stdout.count("here"), 3, done)
        done = self.run_it(HOROVODRUN, "-np", "1", "echo", "here")
        self.assertEqual(done.stdout.count("here"), 1, done)

    def test_locked_setting_is_refused_wherever_it_is_set(self):
        self.site()
        site = self.environment["HOROVOD_SITE_CONFIG"]
        complaint = self.refused("-np", "1", "true", HOROVOD_PEER_TIMEOUT="30")
        self.assertIn("the environment sets HOROVOD_PEER_TIMEOUT=30, but the site has locked it to 20 "
                      f"({site}, line 6)", complaint)
        self.assertIn("ask hpc@example.org", complaint)
        named = self.write("job.yaml", "settings:\n  HOROVOD_PEER_TIMEOUT: 30\n")
        self.assertIn(f"{named}, line 2 sets HOROVOD_PEER_TIMEOUT=30",
                      self.refused("--config-file", named, "-np", "1", "true"))
        self.assertIn("--container is image.sif, but the site has locked it to be left out",
                      self.refused("--container", "image.sif", "-np", "1", "true"))
        user = self.write("home/.config/horovod/config.yaml", "settings:\n  HOROVOD_PEER_TIMEOUT: 30\n")
        self.assertIn(f"{user}, line 2 sets", self.refused("-np", "1", "true"))

    def test_locked_flag_is_refused_in_its_variable_and_the_reverse(self):
        self.site("settings:\n  HOROVOD_GLOO_IFACE: lo\nhorovodrun:\n  container-bind: /usr\n  log-level: info\n"
                  "locked:\n  - HOROVOD_GLOO_IFACE\n  - horovodrun.container-bind\n  - horovodrun.log-level\n")
        for flags in (("--network-interfaces", "eth0"), ("--network-interfaces", "eth0", "--show-config")):
            self.assertIn("--network-interfaces sets HOROVOD_GLOO_IFACE=eth0, but the site has locked it to lo",
                          self.refused(*flags, "-np", "1", "true"))
        self.assertIn("the environment sets HOROVOD_CONTAINER_BIND=/etc (--container-bind), but the site has locked "
                      "it to /usr", self.refused("-np", "1", "true", HOROVOD_CONTAINER_BIND="/etc"))
        named = self.write("job.yaml", "settings:\n  HOROVOD_LOG_LEVEL: debug\n")
        self.assertIn(f"{named}, line 2 sets HOROVOD_LOG_LEVEL=debug (--log-level), but the site has locked it to INFO",
                      self.refused("--config-file", named, "-np", "1", "true"))
        for same in ({"HOROVOD_CONTAINER_BIND": "/usr"}, {"HOROVOD_LOG_LEVEL": "INFO"}, {"HOROVOD_CONTAINER_BIND": ""}):
            done = self.run_it(HOROVODRUN, "--network-interfaces", "lo", "-np", "1", "echo", "here", **same)
            self.assertEqual(done.returncode, 0, done)
        user = self.write("home/.config/horovod/config.yaml", "settings:\n  HOROVOD_LOG_LEVEL: debug\n")
        self.assertIn(f"{user}, line 2 sets HOROVOD_LOG_LEVEL=debug", self.refused("-np", "1", "true"))

    def test_faulty_file_is_named_with_its_line_but_help_goes_on(self):
        self.site("settings:\n  HOROVOD_START_TIMEOUT: soon\n")
        complaint = self.refused("-np", "1", "true")
        self.assertIn("site.yaml, line 2: HOROVOD_START_TIMEOUT=soon: expected a number (seconds)", complaint)
        self.assertEqual(self.run_it(HOROVODRUN, "--help").returncode, 0)
        self.assertIn("cannot be read", self.refused("-np", "1", "true", HOROVOD_SITE_CONFIG="/nonexistent"))

    def test_question_in_a_file_is_refused(self):
        self.site("horovodrun:\n  help: true\n")
        self.assertIn("give it as a flag", self.refused("-np", "1", "true"))
        for flag in ("config-file: other.yaml", "preflight: only", "preflight: json"):
            self.site(f"horovodrun:\n  {flag}\n")
            key = flag.split(":")[0]
            self.assertRegex(self.refused("-np", "1", "true"),
                             rf"site.yaml, line 2: horovodrun\.{key} .*: give it as a flag.* \[HVD1003\]")

    def test_what_launchers_tell_a_rank_cannot_stand_in_a_file(self):
        for name in ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_SECRET_KEY", "HOROVOD_GLOO_RENDEZVOUS_ADDR"):
            text = f"settings:\n  {name}: 3\n"
            self.site(text)
            said = rf"line 2: {name}: it is set by [\w ]+, so it cannot be in a file"
            self.assertRegex(self.refused("-np", "1", "true"), said + r" \[HVD1003\]")
            self.site("")
            named = self.write("job.yaml", text)
            self.assertRegex(self.refused("--config-file", named, "-np", "1", "true"), said + r" \[HVD1002\]")

    def test_keys_that_mean_nothing_are_named(self):
        self.site("command: python train.py\nsettings:\n  PMI_RANK: 3\nhorovodrun:\n  verbos: true\n")
        done = self.run_it(HOROVODRUN, "-np", "1", "true")
        self.assertEqual(done.returncode, 0, done.stderr)
        for said in ("line 1: the key command has no effect", "line 3: the key PMI_RANK has no effect",
                     "line 5: the key horovodrun.verbos has no effect; did you mean horovodrun.verbose?"):
            self.assertIn(said, done.stderr)

    def test_secret_of_a_job_is_not_shown(self):
        self.assertNotIn("hush", self.run_it(HOROVODRUN, "--show-config", HOROVOD_SECRET_KEY="hush").stdout)

    def test_library_finds_the_sites_file_by_its_own_place(self):
        library = self.folder / "prefix" / "lib" / "deep" / LIBRARY.name
        library.parent.mkdir(parents=True)
        shutil.copy(LIBRARY.resolve(), library)
        site = self.write("prefix/etc/horovod/site.yaml", SITE)
        done = self.run_it(sys.executable, "-c", RANK, library)
        self.assertIn(f"HOROVOD_START_TIMEOUT 60 {site}, line 3", done.stdout, done)
        self.assertNotIn("no start", done.stdout)
        done = self.run_it(sys.executable, "-c", RANK, library, HOROVOD_SITE_CONFIG="none")
        self.assertIn("HOROVOD_START_TIMEOUT 30 default", done.stdout, done)

    def test_rank_without_horovodrun_is_bound_by_locks_and_faults(self):
        self.site()
        done = self.run_it(sys.executable, "-c", RANK, LIBRARY, HOROVOD_PEER_TIMEOUT="30")
        self.assertIn("no start: the environment sets HOROVOD_PEER_TIMEOUT=30, but the site has locked it",
                      done.stdout, done)
        self.site("settings\n")
        done = self.run_it(sys.executable, "-c", RANK, LIBRARY)
        self.assertIn("refused: ", done.stdout, done)
        self.assertIn("site.yaml, line 1: the line is not of the form 'key: value'", done.stdout, done)

    def test_sites_file_that_everybody_may_write_is_ignored(self):
        program = self.folder / "prefix" / "bin" / "horovodrun"
        program.parent.mkdir(parents=True)
        shutil.copy(HOROVODRUN, program)
        site = self.write("prefix/etc/horovod/site.yaml", SITE)
        done = self.run_it(program, "--show-config")
        self.assertIn(f"The site's file: {site}", done.stdout, done)
        site.chmod(0o666)
        done = self.run_it(program, "--show-config")
        self.assertIn("The site's file: none", done.stdout, done)
        self.assertIn("was ignored", done.stderr)


if __name__ == "__main__":
    unittest.main()
