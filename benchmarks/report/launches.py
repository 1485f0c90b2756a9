"""The list of what is run: each launch of a program, with its peer's launcher and environment. The records are lines of
JSON."""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

PROGRAMS = pathlib.Path(__file__).resolve().parent.parent / "python"
# For peers that would otherwise give memory back to the system after every call and fault it in again in the next call.
MALLOC_TUNED = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "4294967296",
                "MALLOC_TOP_PAD_": "268435456"}


def _end(process):
    """Terminates a launcher. The launcher ends its ranks."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Launches:
    def __init__(self, build, out, horovodrun, quick, parts, peers):
        self.build, self.out, self.horovodrun = pathlib.Path(build), pathlib.Path(out), horovodrun
        self.quick, self.parts, self.peers = quick, parts, peers
        self.records = self.out / "records.jsonl"
        self.failures = []

    def mpi(self, peer, ranks, program, arguments, variant="default", launch=0, seconds=300):
        """Runs one mpiexec. Ranks bind themselves. If ranks share cores, Open MPI is told to yield; MPICH has no such
        option."""
        command = [f"mpiexec.{peer}", "-n", str(ranks)]
        if peer == "openmpi":
            crowded = "1" if ranks > (os.cpu_count() or 1) else "0"
            command += ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", crowded]
        command += [str(self.build / "bin" / f"hvd_{program}_{peer}"), "--peer", peer, "--variant", variant,
                    "--launch", str(launch), "--out", str(self.records)]
        environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        if variant == "malloc_tuned":
            environment |= MALLOC_TUNED
        self._run(command + arguments, environment, seconds)

    def python(self, ranks, program, workloads, arguments=(), launch=0, seconds=300):
        with tempfile.TemporaryDirectory(prefix="scratch-", dir=self.out) as scratch:
            command = [self.horovodrun, "-np", str(ranks), "--oversubscribe", sys.executable, str(PROGRAMS / program),
                       "--out",
                       str(self.records), "--scratch", scratch, "--workloads", workloads, "--launch", str(launch)]
            self._run(command + list(arguments), dict(os.environ), seconds)

    def start_times(self):
        rounds = "3" if self.quick else "7"
        self._run([sys.executable, str(PROGRAMS / "start_times.py"), "--out", str(self.records), "--horovodrun",
                   self.horovodrun, "--rounds", rounds], dict(os.environ), 120)

    def _run(self, command, environment, seconds):
        shown = " ".join(pathlib.Path(word).name if "/" in word else word for word in command)
        begin = time.monotonic()
        with open(self.out / "launches.log", "a") as log:
            log.write(f"$ {' '.join(command)}\n")
            log.flush()
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                code = f"none within {seconds} s"
            finally:
                _end(process)
        print(f"{time.monotonic() - begin:6.1f} s  {shown[:150]}", flush=True)
        if code != 0:
            self.failures.append(f"{shown}: exit code {code}")
            print(f"          exit code {code}; see {self.out / 'launches.log'}", flush=True)

    # ---- the plan ----------------------------------------------------------------------------------------------------

    def run(self):
        launches, rounds = (1, "5") if self.quick else (3, "5")
        if "data_plane" in self.parts:
            for launch in range(launches):
                for peer in self.peers:
                    self._data_plane(peer, launch, rounds)
        if "whole_library" in self.parts:
            for launch in range(launches):
                for peer in self.peers:
                    self._whole_library(peer, launch, rounds)
        if "python" in self.parts:
            for launch in range(launches):
                self._through_python(launch, rounds)
        if "start" in self.parts:
            self.start_times()

    def _data_plane(self, peer, launch, rounds):
        quick = self.quick
        two = ["--rounds", rounds, "--seconds", "0.01" if quick else "0.03", "--largest",
               str((64 if quick else 256) << 20)]
        self.mpi(peer, 2, "data_plane", two, launch=launch)
        tuned = ["--rounds", rounds, "--seconds", "0.05", "--workloads", "allreduce,fused", "--smallest", str(64 << 20),
                 "--largest", str(64 << 20)]
        self.mpi(peer, 2, "data_plane", tuned, variant="malloc_tuned", launch=launch)
        largest = 256 << 20
        if quick:
            largest = 16384 if peer == "mpich" else 16 << 20
        four = ["--rounds", rounds, "--seconds", "0.005" if quick else "0.02", "--largest", str(largest), "--workloads",
                "allreduce" if peer == "mpich" else "allreduce,broadcast,allgather,reducescatter,alltoall,fused"]
        self.mpi(peer, 4, "data_plane", four, launch=launch)

    def _whole_library(self, peer, launch, rounds):
        seconds = "0.02" if self.quick else "0.1"
        self.mpi(peer, 2, "whole_library", ["--rounds", rounds, "--seconds", seconds], launch=launch)
        self.mpi(peer, 2, "whole_library", ["--rounds", rounds, "--seconds", "0.05", "--steps", "", "--cycles",
                                            "one_8B,tiny_200,one_8B_after_work,tiny_200_after_work", "--control", "1",
                                            "--idle-seconds",
                                            "1" if self.quick else "3"], variant="cycles", launch=launch)
        if peer == "openmpi":
            steps = "one_8B,tiny_200,one_8B_after_work,tiny_200_after_work,step_64MB"
            if not self.quick:
                steps += ",step_1MB,step_8MB"
            self.mpi(peer, 4, "whole_library", ["--rounds", rounds, "--seconds", seconds, "--steps", steps],
                     launch=launch)

    def _through_python(self, launch, rounds):
        link = ["--link-library", str(self.build / "lib" / "libhvd_benchmark_link.so")]
        effort = ["--rounds", "3" if self.quick else rounds, "--seconds", "0.03" if self.quick else "0.1"]
        largest = ["--largest", str((64 if launch == 0 else 1) << 20)]
        steps = "allreduce,one_8B,tiny_200,one_8B_after_work,tiny_200_after_work,step_64MB"
        self.python(2, "communication.py", steps, link + effort + largest, launch)
        if not self.quick:
            self.python(4, "communication.py", steps,
                        link + effort + ["--largest", str((16 if launch == 0 else 1) << 20)], launch)
        models = "train_mlp,train_resnet50_sizes,train_small_400,train_mlp_10M"
        if not self.quick:
            models += ",train_cnn"
        self.python(2, "training_step.py", models, effort, launch)
