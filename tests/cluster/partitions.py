"""One of four nodes is cut off or killed, in every phase of a job. Checks that every rank that is left ends and names a
rank of that node.

Every test runs HVD_ROUNDS rounds; the number of a round is the seed that draws the node and the moment. Uses the
cluster HVD_CLUSTER, or starts one; HVD_BUILD is the build folder. Exit code 77: this machine cannot run it, and the
output says why.
"""
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from virtual_nodes import enter

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ["HVD_BUILD"]).resolve()
ROUNDS = int(os.environ.get("HVD_ROUNDS", "1"))
NODES = 4
HOSTS = [f"n{1 + rank // 2}" for rank in range(2 * NODES)]
PATIENCE_S = 2
HANG_S = 150  # much longer than every patience: only a hanging job reaches this limit


def nodes(*words, **options):
    return subprocess.run([str(HERE / "nodes"), *words], check=True, text=True, **options)


class Job:
    def __init__(self, phase, victim):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="partition-", dir=BUILD))
        rank = ["env", f"HOROVOD_PEER_TIMEOUT={PATIENCE_S}", "HOROVOD_MPI=none", str(BUILD / "tests/partition_rank"),
                phase, victim, str(self.folder)]
        self.log = open(self.folder / "log", "w", encoding="utf-8")
        self.process = subprocess.Popen(
            [str(HERE / "nodes"), "on", "login", str(BUILD / "tests/rendezvous_launcher"), str(HERE / "agent"),
             ",".join(HOSTS), *rank], stdout=self.log, stderr=subprocess.STDOUT)

    def wait_for_all(self, name):
        deadline = time.monotonic() + HANG_S
        while len(list(self.folder.glob(name + ".?"))) < len(HOSTS):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"not all ranks came to write {name}: {self.everything()}")
            time.sleep(0.01)

    def text(self, name):
        path = self.folder / name
        return path.read_text(encoding="utf-8") if path.exists() else None

    def everything(self):
        return "\n".join(f"{path.name}: {path.read_text(encoding='utf-8')}" for path in sorted(self.folder.iterdir()))

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.log.close()
        shutil.rmtree(self.folder)


class Partitions(unittest.TestCase):
    def vanish(self, phase, harm):
        for round_number in range(ROUNDS):
            draw = random.Random(f"{phase} {harm} {round_number}")
            victim = f"n{draw.randrange(NODES) + 1}"
            delay_s = draw.random() * 0.2
            job = Job(phase, victim)
            try:
                with self.subTest(phase=phase, harm=harm, round=round_number, victim=victim):
                    self.one(job, phase, harm, victim, delay_s)
            finally:
                if harm == "cut":
                    nodes("mend", victim)
                job.close()

    def one(self, job, phase, harm, victim, delay_s):
        job.wait_for_all("ready")
        time.sleep(delay_s)  # the moment is anywhere within a collective
        nodes(harm, victim)
        if phase == "shutdown":
            (job.folder / "go").touch()
        try:
            job.process.wait(HANG_S)
        except subprocess.TimeoutExpired:
            self.fail(f"somebody hangs: {job.everything()}")
        left = nodes("on", "login", "bash", "-c", "pgrep -a partition_rank || true", stdout=subprocess.PIPE).stdout
        self.assertEqual(left, "", "processes are left")
        for rank, host in enumerate(HOSTS):
            end = job.text(f"end.{rank}")
            if host == victim:
                # A node that is cut off lives on; its ranks see that the others are lost.
                if harm == "cut":
                    self.assertIsNotNone(end, job.everything())
                continue
            self.assertIsNotNone(end, f"rank {rank} did not say how it ended: {job.everything()}")
            if phase == "shutdown" and end == "shut down":
                continue
            self.assertRegex(end, rf"rank \d+ \(host {victim}, process \d+\)",
                             f"rank {rank} on {host}: {job.everything()}")


for phase in ("agreement", "inside", "between", "shutdown"):
    for harm in ("cut", "kill"):
        def test(self, phase=phase, harm=harm):
            self.vanish(phase, harm)
        setattr(Partitions, f"test_{phase}_{harm}", test)


if __name__ == "__main__":
    enter(NODES, BUILD, sys.argv[1:])
    unittest.main()
