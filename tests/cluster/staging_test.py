#!/usr/bin/env python3
"""horovodrun --stage over virtual nodes, each with a /tmp of its own. staging_test.py BUILD [Class.test]

The archive is in the /tmp of n1 alone, so what arrives on the others came over the network. No test sleeps.
"""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

from virtual_nodes import HERE, NODES, enter
from cluster_harness import BUILD, HOROVODRUN

DOCS = os.path.join(HERE, "..", "..", "docs", "launching.md")
ALL = ("n1", "n2", "n3")
THREE = ("-np", "4", "-H", "n1:1,n2:2,n3:1")
PLACE = "/tmp/horovod-environments-0"
# The program of the ranks: it prints where its environment is. The other file makes the archive longer than a block.
TOOL = "#!/bin/sh\necho $(hostname) $VIRTUAL_ENV$CONDA_PREFIX\n"
FILLER_MEBIBYTES = 3
REPAIR = '#!/bin/sh\necho repaired > "$(dirname "$0")/../repaired"\n'


def on(node, script):
    return subprocess.run([NODES, "on", node, "sh", "-ec", script], check=True, stdout=subprocess.PIPE,
                          text=True).stdout


def run(*command, stdin="", **environment):
    return subprocess.run([NODES, "on", "n1", *command], env=dict(os.environ, **environment), input=stdin,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120, check=False)


class Staging(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="staging-", dir=os.path.join(BUILD, "tests"))
        self.addCleanup(shutil.rmtree, self.folder)
        for node in ALL:
            on(node, f"rm -rf {PLACE} /tmp/env.* && mkdir -p /tmp/small")

    def pack(self, name="env.tar.gz", flags="-z", links=(), **more):
        """Puts an archive of an environment into the /tmp of n1, and returns its path there."""
        content = os.path.join(self.folder, "content")
        shutil.rmtree(content, ignore_errors=True)
        files = {"bin/tool": TOOL, "lib/filler": "x" * 63, **more}
        for path, text in files.items():
            path = os.path.join(content, path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(path, 0o755)
        with open(os.path.join(content, "lib", "filler"), "wb") as file:
            file.write(os.urandom(FILLER_MEBIBYTES << 20))
        for path, target in links:
            os.symlink(target, os.path.join(content, path))
        on("n1", f"tar -c {flags} -f /tmp/{name} -C {content} .")
        return f"/tmp/{name}"

    def stage(self, archive, *flags, before=(), command=("tool",), **environment):
        return run(*before, HOROVODRUN, *(flags or THREE), "--stage", archive, *command, **environment)

    def check(self, result, expected):
        """Asserts that the ranks ran on these nodes, in an environment that is unpacked on the node."""
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        said = sorted(re.findall(r"^\[(\d)\]<stdout>:(\w+) (.*)$", result.stdout, re.M))
        self.assertEqual([(int(rank), node) for rank, node, _ in said], list(enumerate(expected)), result.stdout)
        for _, _, place in said:
            self.assertRegex(place, PLACE + "/[0-9a-f]{32}/content")

    def staged_on(self, node):
        return on(node, f"ls {PLACE} 2>/dev/null || true").split()

    FOUR = ["n1", "n2", "n2", "n3"]

    def test_brings_the_environment_to_all_nodes_and_finds_it_there_again(self):
        archive = self.pack(links=[("bin/python3", "/usr/bin/python3"), ("lib64", "lib")])
        first = self.stage(archive, *THREE, "--verbose")
        self.check(first, self.FOUR)
        self.assertIn("brought to 3 of 3 nodes", first.stderr)
        on("n2", f"rm -rf {PLACE}")
        again = self.stage(archive, *THREE, "--verbose")
        self.check(again, self.FOUR)
        self.assertIn("brought to 1 of 3 nodes", again.stderr)
        self.assertEqual({tuple(self.staged_on(node)) for node in ALL}, {tuple(self.staged_on("n1"))})
        on("n1", f"touch {archive}")  # the archive has to be read again, although its content is the same
        self.check(self.stage(archive), self.FOUR)
        self.assertEqual(len(self.staged_on("n3")), 1)
        self.check(self.stage(archive, *THREE, "--stage-remove"), self.FOUR)
        self.assertEqual([self.staged_on(node) for node in ALL], [[], [], []])

    def test_repairs_what_conda_pack_leaves_open(self):
        archive = self.pack("env.tar.zst", "--zstd", **{"bin/conda-unpack": REPAIR, "conda-meta/history": ""})
        result = self.stage(archive, *THREE, command=("sh", "-c", "cat $CONDA_PREFIX/repaired && tool"))
        self.assertEqual(result.stdout.count(">:repaired"), 4, result.stdout + result.stderr)

    def test_under_slurm(self):
        archive = self.pack()
        on("n1", f"cp {archive} {self.folder}/env.tar.gz")
        result = run("salloc", "--quiet", "-N2", "-n4", "--ntasks-per-node=2", HOROVODRUN, "-np", "4", "--stage",
                     f"{self.folder}/env.tar.gz", "tool")
        self.check(result, ["n1", "n1", "n2", "n2"])

    def test_under_an_mpiexec(self):
        if not shutil.which("mpiexec.hydra"):
            self.skipTest("mpiexec.hydra is not installed (tests/cluster/nodes prepare)")
        result = self.stage(self.pack(), "--mpi", *THREE, HOROVOD_MPIEXEC="mpiexec.hydra",
                            HOROVOD_PLUGIN_PATH=os.path.join(BUILD, "lib"))
        self.check(result, self.FOUR)

    def test_two_jobs_at_once(self):
        archive = self.pack()
        jobs = [subprocess.Popen([NODES, "on", "n1", HOROVODRUN, *THREE, "--stage", archive, "tool"],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        for job in jobs:
            output, errors = job.communicate(timeout=120)
            self.assertEqual((job.returncode, output.count(PLACE)), (0, 4), output + errors)
        self.assertEqual([len(self.staged_on(node)) for node in ALL], [1, 1, 1])

    def refused(self, result, code, *texts):
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        self.assertNotIn("/content", result.stdout)
        self.assertIn("[HVD1012]", result.stderr)
        for text in texts:
            self.assertIn(text, result.stderr)
        for node in ALL:
            self.assertEqual(self.staged_on(node), [], node)

    def test_a_node_without_room_is_named(self):
        on("n2", "mount -t tmpfs -o size=1m tmpfs /tmp/small")
        result = self.stage(self.pack(), *THREE, "--stage-to", "/tmp/small")
        on("n2", "umount /tmp/small")
        self.refused(result, 1, "n2: /tmp/env.tar.gz is not staged: there is no room", "need 3.0 MiB, free are 1.0 MiB",
                     "FIRST FAILURE: rank 1 on host n2 ")

    def test_what_is_no_environment_is_refused(self):
        self.refused(self.stage("/tmp/env.none"), 2, "cannot be read")
        on("n1", "head -c 100000 /dev/urandom > /tmp/env.random")
        self.refused(self.stage("/tmp/env.random"), 2, "found a file of another kind")
        archive = self.pack()
        on("n1", f"head -c 1000000 {archive} > /tmp/env.cut")
        self.refused(self.stage("/tmp/env.cut"), 1, "is not staged: it is damaged: gzip: ", "FIRST FAILURE",
                     "on host n1")
        for flags, text in (("-P -zf /tmp/env.bad /etc/hostname", "which is absolute"),
                            ("-P -zf /tmp/env.bad -C /usr/bin ../../etc/hostname", "which leaves the folder")):
            on("n1", f"tar -c {flags}")
            self.refused(self.stage("/tmp/env.bad"), 1, text)
        self.refused(self.stage(self.pack(links=[("lib/all", "/usr/lib")])), 1, "leads out of the folder, to /usr/lib")

    def test_a_cut_archive_and_a_folder_in_the_place_of_an_archive_are_refused(self):
        archive = self.pack("env.tar", "-b1")
        on("n1", f"head -c -1024 {archive} > /tmp/env.short")  # cut between two members
        self.refused(self.stage("/tmp/env.short"), 1, "it has no end: it is cut")
        self.refused(self.stage("/tmp"), 2, "expected an archive, found no regular file")
        self.refused(self.stage(self.pack(links=[("again", "bin/python/.."), ("bin/python", "/etc")])), 1,
                     "its link again leads out of the folder, to bin/python/..")

    def test_blanks_and_quotes_in_names_and_a_relative_place(self):
        name = "env. it's \"mine\" $HOME.tar.gz"
        archive = self.pack(**{"lib/a 'b' $(touch harm)": "", "-rf": ""})
        on("n1", f"mv {archive} {shlex.quote('/tmp/' + name)}")
        for node in ALL:
            on(node, "rm -rf '/tmp/a b' && mkdir '/tmp/a b'")
        command = ["sh", "-c", "cd /tmp && exec \"$@\"", "sh", HOROVODRUN, *THREE, "--stage", name, "--stage-to", "a b",
                   "tool"]
        result = run(*command)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(re.findall(r"^\[\d\]<stdout>:n\d /tmp/a b/horovod-environments-0/\w{32}/content$",
                                        result.stdout, re.M)), 4, result.stdout)

    def test_what_lies_at_the_place_already_is_left_alone(self):
        archive = self.pack()
        for make in (f"echo mine > {PLACE}", f"mkdir /tmp/other && ln -s /tmp/other {PLACE}",
                     f"mkdir {PLACE} && chown 65534 {PLACE}"):
            on("n2", f"rm -rf {PLACE} /tmp/other && {make}")
            result = self.stage(archive)
            self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
            self.assertIn(f"expected {PLACE} to be a folder that this user alone may write to", result.stderr)
            self.assertRegex(result.stderr, "FIRST FAILURE: rank [12] on host n2 ")
            self.assertEqual(on("n2", "ls -A /tmp/other 2>/dev/null || true"), "")
        on("n2", f"rm -rf {PLACE} /tmp/other")

    def test_a_node_that_fails_is_named(self):
        archive = self.pack()
        result = self.stage(archive, HOROVOD_SSH="false")
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertRegex(result.stderr, "(?s)the host n[23] cannot be used.*the job was not started")
        # The library that unpacks is missing on n2; then it kills the stager while the archive arrives.
        path = ("env", "LD_LIBRARY_PATH=/tmp/lib:" + os.environ.get("LD_LIBRARY_PATH", ""))
        on("n2", "mkdir -p /tmp/lib && : > /tmp/lib/libarchive.so.13")
        self.refused(self.stage(archive, before=path), 1, "n2: /tmp/env.tar.gz is not staged: ", "Debian: libarchive13")
        source = "#include <signal.h>\n__attribute__((constructor)) void end(void) { raise(SIGKILL); }"
        on("n2", f"echo {shlex.quote(source)} | cc -shared -fPIC -xc -o /tmp/lib/libarchive.so.13 -")
        result = self.stage(archive, before=path)
        on("n2", "rm -r /tmp/lib")
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertIn("FIRST FAILURE: rank 1 on host n2 ", result.stderr)
        self.assertIn("was killed by signal 9", result.stderr)
        self.check(self.stage(archive), self.FOUR)  # what it left is no obstacle

    def test_an_environment_that_is_removed_meanwhile_is_missed_by_name(self):
        archive = self.pack()
        self.check(self.stage(archive), self.FOUR)
        digest = self.staged_on("n1")[0]
        result = run(HOROVODRUN, "-np", "1", HOROVODRUN, "--as-rank-in-staged-environment", "0" * 32, "-", "tool")
        self.assertEqual(result.returncode, 126)
        self.assertIn("is not there any more", result.stderr)
        self.assertEqual(self.staged_on("n1"), [digest])

    def test_preflight_looks_at_the_staged_environment(self):
        archive = self.pack(**{"bin/python3": "#!/bin/sh\nexit 9\n"})
        result = self.stage(archive, *THREE, "--preflight=only", command=("python3", "train.py"))
        self.assertEqual(result.returncode, 3, result.stdout + result.stderr)
        self.assertRegex(result.stdout, f"python +FAULT .*{PLACE}/.*/bin/python3 does not answer")

    def test_the_script_of_its_page_runs(self):
        with open(DOCS, encoding="utf-8") as file:
            script = re.search(r"```sh staged\n(.*?)```", file.read(), re.DOTALL)[1]
        for name, target in (("python3", sys.executable), ("horovodrun", HOROVODRUN)):
            os.symlink(target, os.path.join(self.folder, name))
        with open(os.path.join(self.folder, "train.py"), "w", encoding="utf-8") as file:
            file.write("import os, sys\nprint('trained in', sys.prefix)\n")
        result = run("sh", "-ec", f"cd {self.folder}\nexport PATH={self.folder}:$PATH\n" + script)
        self.assertEqual(result.stdout.count(f"trained in {PLACE}"), 2, result.stdout + result.stderr)


if __name__ == "__main__":
    enter(3, BUILD, [BUILD, *sys.argv[1:]])
    unittest.main()
