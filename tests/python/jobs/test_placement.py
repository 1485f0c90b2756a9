"""Ranks on a machine with GPUs bind themselves, and know which GPU is theirs."""
import ast
import os
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor")

# horovodrun binds ranks. They undo it, as if a launcher had not done it.
RANK = textwrap.dedent("""
    import os, sys, threading
    all_of_us = {int(cpu) for cpu in sys.argv[1].split(",")}
    os.sched_setaffinity(0, all_of_us)
    threads, own = [], min(all_of_us)
    started, end = threading.Semaphore(0), threading.Event()

    def wait(bound):
        if bound:
            os.sched_setaffinity(0, {own})
        threads.append((bound, threading.get_native_id()))
        started.release()
        end.wait()

    for bound in (False, True):
        threading.Thread(target=wait, args=(bound,), daemon=True).start()
        started.acquire()
    import horovod.torch as hvd
    hvd.init()
    mine = os.sched_getaffinity(0)
    others = [os.sched_getaffinity(thread) for bound, thread in threads if not bound]
    bound = [os.sched_getaffinity(thread) for bound, thread in threads if bound]
    masks = hvd.allgather_object(sorted(mine))
    assert others == [mine], (others, mine)
    assert bound == [{own}], bound
    if hvd.rank() == 0:
        print("masks", masks, "devices", hvd.allgather_object(hvd.local_device()))
    else:
        hvd.allgather_object(hvd.local_device())
    end.set()
""")


def job(folder, gpus, **environment):
    """`gpus`: how many the made-up driver has."""
    for gpu in range(gpus):
        entry = folder / f"proc/driver/nvidia/gpus/0000:0{gpu}:00.0"
        entry.mkdir(parents=True)
        (entry / "information").write_text(f"Model: \t\t V100\nGPU UUID: \t GPU-{gpu}\nDevice Minor: \t {gpu}\n")
        (folder / "dev").mkdir(exist_ok=True)
        (folder / f"dev/nvidia{gpu}").touch()
    cpus = sorted(os.sched_getaffinity(0))
    command = [os.environ.get("HOROVODRUN", "horovodrun"), "-np", "2", sys.executable, "-c", RANK,
               ",".join(map(str, cpus))]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240,
                          env={**os.environ, "HOROVOD_GPU_ROOT": str(folder), **environment})
    assert done.returncode == 0, done.stdout
    return cpus, done.stdout


def masks_of(output):
    return ast.literal_eval(output.split("masks ")[1].split(" devices")[0])


def test_ranks_share_out_the_processors_and_know_their_gpus(tmp_path):
    cpus, output = job(tmp_path, 2)
    assert "devices [0, 1]" in output, output
    one, other = masks_of(output)
    assert set(one) | set(other) == set(cpus) and not set(one) & set(other), output
    assert "share" not in output


def test_ranks_that_share_a_gpu_stay_unbound_where_the_user_says_so(tmp_path):
    cpus, output = job(tmp_path, 1, HOROVOD_BIND="0")
    assert "devices [0, 0]" in output, output
    assert masks_of(output) == [cpus, cpus], output
    assert output.count("2 ranks of this node share 1 GPU") == 1, output


def test_ranks_without_gpus_stay_as_they_are(tmp_path):
    cpus, output = job(tmp_path, 0)
    assert "devices [None, None]" in output, output
    assert masks_of(output) == [cpus, cpus], output
