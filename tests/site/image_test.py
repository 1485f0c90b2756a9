"""Builds the image of containers/cpu-hybrid.def and runs it under charliecloud: by itself, over two virtual nodes with
Slurm, and as pods of the indexed Job.

Label site; needs root, namespaces, mmdebstrap, charliecloud and Slurm (tests/run loads them). The first run builds the
image, which takes long; later runs use the image in build/site-image."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import installed

NODES = installed.ROOT / "tests" / "cluster" / "nodes"
IMAGE = installed.ROOT / "build" / "site-image" / "cpu-hybrid"
BASE = installed.ROOT / "build" / "site-image" / "base.tar"
HOROVODRUN = installed.BUILD / "bin" / "horovodrun"
PROGRAM = "/opt/horovod/two_ranks.py"
# A program that starts MPI itself, as mpi4py does. Under a launcher without PMI it needs the bridge.
STARTS_MPI = """import ctypes
mpi = ctypes.CDLL('libmpich.so.12')
assert mpi.MPI_Init(None, None) == 0
size = ctypes.c_int()
mpi.MPI_Comm_size(0x44000000, ctypes.byref(size))
print('MPI has', size.value, 'ranks', flush=True)
mpi.MPI_Finalize()
"""


def setUpModule():
    global cluster, work
    for command in ("mmdebstrap", "ch-run", "srun", "ssh-keygen"):
        installed.skip_without(shutil.which(command) or command, command)
    can = installed.run(NODES, "can")
    if can.returncode != 0:
        print(f"not tested: {can.stdout}")
        sys.exit(77)
    os.environ.setdefault("USER", "root")
    definition = installed.ROOT / "containers" / "cpu-hybrid.def"
    built = installed.run(installed.ROOT / "tests" / "site" / "build_image", definition, IMAGE)
    if built.returncode != 0:
        raise AssertionError(built.stdout[-5000:])
    work = pathlib.Path(tempfile.mkdtemp(prefix="hvd-image-", dir=installed.ROOT / "build"))
    cluster = subprocess.run([NODES, "up", "2", "--share", str(installed.BUILD)], check=True, text=True,
                             stdout=subprocess.PIPE).stdout.strip()


def tearDownModule():
    subprocess.run([NODES, "down"], env={**os.environ, "HVD_CLUSTER": cluster}, check=False)
    shutil.rmtree(work, ignore_errors=True)


def on(node, *command, **variables):
    """Runs a command on a virtual node, in the root folder of the project."""
    environment = {**os.environ, "HVD_CLUSTER": cluster, "HOROVOD_START_TIMEOUT": "120", **variables}
    return installed.run(NODES, "on", node, "timeout", "300", *command, env=environment, cwd=installed.ROOT)


def in_image(*options):
    return ["ch-run", "--unset-env=LD_LIBRARY_PATH", "--set-env", *options, str(IMAGE), "--"]


def root_with(name, files):
    """A root file system with Debian's base and these files."""
    root = work / name
    if not root.exists():
        root.mkdir()
        subprocess.run(["tar", "--extract", "--file", BASE, "--directory", root], check=True)
        for path, text in files.items():
            (root / path).write_text(text, encoding="utf-8")
            (root / path).chmod(0o755)
    return root


class ByItself(unittest.TestCase):
    def test_of_the_definition_passes_inside(self):
        done = installed.run(*in_image(), "/.singularity.d/test", env={"USER": "root", "PATH": os.environ["PATH"]})
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout.count("average is right"), 2, done.stdout)
        self.assertIn("[X] PMIx", done.stdout)

    def test_has_no_keys_of_a_host_and_no_compiler(self):
        self.assertEqual(list((IMAGE / "etc" / "ssh").glob("ssh_host_*")), [])
        self.assertFalse((IMAGE / "usr" / "bin" / "g++").exists())
        self.assertFalse((IMAGE / "src").exists())


class UnderSlurm(unittest.TestCase):
    """srun starts charliecloud, as in a job script. The folders of Slurm's PMIx server are bound into the image."""

    def check(self, done, ranks=2, nodes=("n1", "n2")):
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout.count("average is right"), ranks, done.stdout)
        for node in nodes:
            self.assertIn(f"on {node}: average is right", done.stdout)

    def test_ranks_of_two_nodes_meet_by_pmix(self):
        self.check(on("n1", "srun", "-N2", "-n2", "--mpi=pmix", *in_image("--bind=/run"), "python", PROGRAM))

    def test_ranks_of_two_nodes_meet_by_pmi2(self):
        self.check(on("n1", "srun", "-N2", "-n2", "--mpi=pmi2", *in_image("--bind=/run"), "python", PROGRAM))

    def test_mpi_of_the_image_finds_all_ranks_by_the_bridge(self):
        done = on("n1", "srun", "-N2", "-n2", "--mpi=pmix", *in_image("--bind=/run"), "python", PROGRAM,
                  HOROVOD_MPI="mpich", HOROVOD_LOG_LEVEL="info")
        self.check(done)
        self.assertIn("MPICH", done.stdout)

    def test_ranks_of_a_node_that_lost_their_variables_are_refused(self):
        bare = ["ch-run", "--unset-env=*", "--set-env", str(IMAGE), "--", "python", PROGRAM]
        done = on("n1", "srun", "-K0", "-N1", "-n2", "--mpi=none", *bare)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertNotIn("average is right", done.stdout)
        self.assertIn("one of 2 that srun started together", done.stdout)
        # With one rank per node only scontrol could tell that there are others, and the image has no scontrol.
        done = on("n1", "srun", "-K0", "-N2", "-n2", "--mpi=none", *bare)
        self.assertIn("this process trains alone. Whether srun started others with it is not known", done.stdout)

    def test_server_that_cannot_be_reached_is_told_with_both_versions_of_pmix(self):
        nowhere = "pmix-server.1;tcp4://127.0.0.1:1"
        servers = [f"PMIX_SERVER_URI{version}={nowhere}" for version in ("41", "4", "3", "21", "2")]
        done = on("n1", "srun", "-K0", "-N2", "-n2", "--mpi=pmix", *in_image("--bind=/run"), "env", *servers,
                  "HOROVOD_CONTAINER=it", "python", PROGRAM)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"host PMIx 4\.2\.\w+, image PMIx 4\.2\.\w+")


class ByHorovodrun(unittest.TestCase):
    """horovodrun --container finds the container runtime and the folders to bind by itself."""

    def horovodrun(self, *words, node="n1", **variables):
        return on(node, HOROVODRUN, *words, **variables)

    def test_ranks_of_one_machine_run_in_the_image(self):
        done = self.horovodrun("-np", "2", "--oversubscribe", "--gloo", "--container", IMAGE, "python", PROGRAM)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout.count("average is right"), 2, done.stdout)

    def test_ranks_of_an_allocation_of_slurm_run_in_the_image(self):
        done = on("n1", "salloc", "--quiet", "-N2", "-n2", HOROVODRUN, "-np", "2", "--container", IMAGE, "python",
                  PROGRAM)
        self.assertEqual(done.returncode, 0, done.stdout)
        for node in ("n1", "n2"):
            self.assertIn(f"on {node}: average is right", done.stdout)

    def test_ranks_of_other_hosts_run_in_the_image(self):
        done = self.horovodrun("-np", "2", "-H", "n1:1,n2:1", "--gloo", "--container", IMAGE, "python", PROGRAM,
                               HOROVOD_SSH=str(installed.ROOT / "tests" / "cluster" / "agent"))
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("on n2: average is right", done.stdout)

    def test_preflight_looks_around_in_the_image_of_every_node(self):
        done = on("n1", "salloc", "--quiet", "-N2", "-n2", HOROVODRUN, "-np", "2", "--container", IMAGE,
                  "--preflight=json", "python", PROGRAM)
        told = json.loads(done.stdout[done.stdout.index("{"):])
        found = {check["check"]: check for check in told["checks"]}
        self.assertTrue(told["ok"], done.stdout)
        self.assertEqual((told["ranks"], sorted(told["hosts"])), (2, ["n1", "n2"]))
        self.assertEqual(found["container"]["summary"], f"image: {IMAGE}")
        self.assertRegex(found["python"]["summary"], "package: Python 3[0-9.]+, horovod")

    def test_preflight_names_the_node_whose_image_is_another(self):
        other = work / "other-image"
        other.symlink_to(IMAGE)
        wrapper = work / "horovodrun-of-two-images"
        wrapper.write_text(f"""#!/bin/bash
if [ "$(hostname)" = n2 ] && [ "$1" = --as-rank-outside-of-an-image ]; then
  export HOROVOD_CONTAINER={other}
  set -- "$1" {other} "${{@:3}}"
fi
exec {HOROVODRUN} "$@"
""", encoding="utf-8")
        wrapper.chmod(0o755)
        done = on("n1", "salloc", "--quiet", "-N2", "-n2", HOROVODRUN, "-np", "2", "--container", IMAGE,
                  "--preflight=only", "python", PROGRAM, HOROVOD_REMOTE_PROGRAM=str(wrapper))
        self.assertEqual(done.returncode, 3, done.stdout)
        self.assertRegex(done.stdout, "container +FAULT n[12]: ")

    def test_program_that_starts_mpi_itself_gets_the_bridge_of_the_image(self):
        program = work / "starts_mpi.py"
        program.write_text(STARTS_MPI, encoding="utf-8")
        done = self.horovodrun("-np", "2", "--oversubscribe", "--gloo", "--container", IMAGE, "python", program)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout.count("MPI has 2 ranks"), 2, done.stdout)

    def test_exit_code_of_a_rank_in_the_image_is_that_of_horovodrun(self):
        done = self.horovodrun("-np", "2", "--oversubscribe", "--gloo", "--container", IMAGE, "sh", "-c", "exit 7")
        self.assertEqual(done.returncode, 7, done.stdout)

    def test_image_without_horovod_is_refused(self):
        done = self.horovodrun("-np", "2", "--container", root_with("bare", {}), "true")
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("has no Horovod", done.stdout)

    def test_image_of_another_release_is_refused(self):
        older = root_with("older", {"usr/bin/horovodrun": "#!/bin/sh\necho 0.28.1\n"})
        done = self.horovodrun("-np", "2", "--container", older, "true")
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn(f"has Horovod 0.28.1, horovodrun is of {installed.version()}", done.stdout)

    def test_command_that_the_image_lacks_is_named(self):
        done = self.horovodrun("-np", "2", "--oversubscribe", "--gloo", "--container", IMAGE, "no-such-command")
        self.assertEqual(done.returncode, 127, done.stdout)
        self.assertIn("no-such-command", done.stdout)


class Docs(unittest.TestCase):
    def test_script_of_the_page_of_docs_works(self):
        done = on("n1", "bash", "-euc", installed.script_of("containers.md"), IMAGE=str(IMAGE))
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout.count("average is right"), 4, done.stdout)


class AsPods(unittest.TestCase):
    """Runs what the pods of the indexed Jobs run on two nodes, with the host names of pods, but without Kubernetes."""

    # A pod gets a writable layer over the image, and a host name of its own.
    POD = f"""set -e
        cd /run && mkdir -p pod && mount -t tmpfs tmpfs pod && mkdir pod/upper pod/work pod/root
        mount -t overlay -o lowerdir={IMAGE},upperdir=pod/upper,workdir=pod/work overlay pod/root
        mount --rbind /dev pod/root/dev && mount -t proc proc pod/root/proc && mount --rbind /sys pod/root/sys
        cp /etc/hosts pod/root/etc/hosts && hostname horovod-$JOB_COMPLETION_INDEX
        . pod/root/.singularity.d/env/90-environment.sh
        """
    START = ["unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "sh", "-c"]

    @classmethod
    def setUpClass(cls):
        with open(f"/run/hvd-clusters/{cluster}/hosts", "a", encoding="utf-8") as hosts:
            hosts.write("10.77.0.1 horovod-0.horovod horovod-0\n10.77.0.2 horovod-1.horovod horovod-1\n")

    def run_pods(self, pod, **variables):
        """Runs both pods. Returns what the first one has written."""
        environment = {**os.environ, "HVD_CLUSTER": cluster, "HOROVOD_START_TIMEOUT": "120", **variables}
        start = [*self.START, self.POD + pod]
        other = subprocess.Popen([NODES, "on", "n2", *start], env={**environment, "JOB_COMPLETION_INDEX": "1"})
        try:
            done = installed.run(NODES, "on", "n1", "timeout", "200", *start,
                                 env={**environment, "JOB_COMPLETION_INDEX": "0"})
        finally:
            other.terminate()
            other.wait()
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_pods_of_the_job_without_ssh_meet_at_the_first_one(self):
        text = (installed.ROOT / "containers/kubernetes/job-without-ssh.yaml").read_text(encoding="utf-8")
        variables = dict(re.findall(r'- \{name: (HOROVOD_\w+), value: "?([^"}]*)"?\}', text))
        self.assertIn("HOROVOD_RENDEZVOUS_SERVE", variables)
        pod = f"""export HOROVOD_RANK=$JOB_COMPLETION_INDEX HOME=/tmp
            exec chroot --userspec=1000:1000 pod/root python {PROGRAM}"""
        said = self.run_pods(pod, **{**variables, "HOROVOD_START_TIMEOUT": "120",
                                     "HOROVOD_SECRET_KEY": "of the Secret of this test"})
        self.assertIn("on horovod-0: average is right", said)

    def test_script_of_the_indexed_job_starts_the_ranks_of_all_pods(self):
        text = (installed.ROOT / "containers/kubernetes/job.yaml").read_text(encoding="utf-8")
        script = re.search(r"- -euc\n +- \|\n((?: {14}.*\n)+)", text)[1].replace("\n" + " " * 14, "\n").lstrip()
        ssh = " ".join(re.search(r"value: >-\n((?: {16}.*\n)+)", text)[1].split())
        keys = work / "keys"
        keys.mkdir()
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", keys / "id_ed25519"], check=True)
        (keys / "id_ed25519.pub").rename(keys / "authorized_keys")
        pod = f"""mkdir pod/root/keys && mount --bind {keys} pod/root/keys
            export HOME=/root
            exec chroot pod/root sh -euc "$SCRIPT" horovod python {PROGRAM}"""
        said = self.run_pods(pod, SCRIPT=script, PODS="2", HOROVOD_SSH=ssh)
        for pod_name in ("horovod-0", "horovod-1"):
            self.assertIn(f"on {pod_name}: average is right", said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
