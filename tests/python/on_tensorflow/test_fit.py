"""model.fit with what users give it: the numbers of one process. What it does not keep: memory, and ranks after
Ctrl-C."""
import os
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow.keras as hvd_keras

keras = tf.keras
DATA = np.random.default_rng(3).normal(size=(48, 4)).astype(np.float32)
CLASSES = np.random.default_rng(4).integers(0, 3, 48)
WEIGHTS = np.random.default_rng(5).uniform(0.5, 2, 48).astype(np.float32)


def model_for(optimizer):
    layers = keras.layers
    model = keras.Sequential([layers.Input((4,)), layers.Dense(5, activation="tanh"), layers.Dense(3)])
    seeded = np.random.default_rng(1)
    model.set_weights([seeded.normal(size=each.shape) for each in model.get_weights()])
    model.compile(optimizer=optimizer, loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def trained(optimizer, place, count, data=slice(None), with_weights=False, **more):
    """Returns the weights after some epochs of batches of 12 rows, of which `count` ranks have a part each."""
    model, part = model_for(optimizer), slice(place, None, count)
    if with_weights:
        more["sample_weight"] = WEIGHTS[data][part]
    model.fit(DATA[data][part], CLASSES[data][part], batch_size=12 // count, epochs=3, shuffle=False, verbose=0, **more)
    return model.get_weights()


def cosine():
    return keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 10, alpha=0.1), momentum=0.9)


def adam():
    return keras.optimizers.Adam(0.03)


CASES = {  # the optimizer, what it is distributed with, what fit gets
    "weights of classes": (adam, {}, {"class_weight": {0: 0.5, 1: 1.0, 2: 3.0}}),
    "weights of samples": (adam, {}, {"with_weights": True}),
    "a cosine": (cosine, {}, {}),
    "groups": (cosine, {"groups": 2}, {}),
    "predivided": (adam, {"gradient_predivide_factor": 4.0}, {"with_weights": True}),
    "all": (cosine, {"groups": 3, "gradient_predivide_factor": 0.5}, {"class_weight": {0: 0.5, 1: 1.0, 2: 3.0}})}


@pytest.mark.parametrize("case", CASES)
def test_fit_has_the_numbers_of_one_process(hvd, rank, size, case):
    make, distribution, more = CASES[case]
    expected = trained(make(), 0, 1, **more)
    found = trained(hvd_keras.DistributedOptimizer(make(), **distribution), rank, size, **more)
    for one, other in zip(found, expected):
        assert np.allclose(one, other, atol=2e-5)


def test_in_process_sets_fit_has_the_numbers_of_one_process_each(hvd, rank, size):
    if size < 2:
        pytest.skip("needs two ranks")
    hvd.barrier()
    hvd.shutdown()
    sets = [hvd.ProcessSet(range(first, size, 2)) for first in (0, 1)]
    hvd.init(process_sets=sets)
    own, mine = sets[rank % 2], slice(24 * (rank % 2), 24 * (rank % 2) + 24)
    expected = trained(adam(), 0, 1, mine)
    found = trained(hvd_keras.DistributedOptimizer(adam(), process_set=own), own.rank(), own.size(), mine)
    for one, other in zip(found, expected):
        assert np.allclose(one, other, atol=2e-5)
    hvd.barrier()
    hvd.shutdown()


def resident_megabytes():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


@pytest.mark.parametrize("loop", ["allreduce", "fit"])
def test_5000_steps_keep_no_memory(hvd, size, loop):
    if size != 2:
        pytest.skip("two ranks tell it")

    def reduce(steps):
        for _ in range(steps):
            hvd.allreduce(tensor)

    def fit(steps):
        model.fit(data, epochs=1, steps_per_epoch=steps, verbose=0)

    tensor = tf.ones(1000)
    model = model_for(hvd_keras.DistributedOptimizer(adam()))
    data = tf.data.Dataset.from_tensors((DATA[:4], CLASSES[:4])).repeat()
    run = {"allreduce": reduce, "fit": fit}[loop]
    run(500)
    # Caches and threads make one round or another grow. A kept tensor of 4000 bytes per step makes each grow by 6 MB.
    growths = []
    for _ in range(3):
        before = resident_megabytes()
        run(1500)
        growths.append(resident_megabytes() - before)
    assert min(growths) < 3, growths


@pytest.mark.parametrize("who", ["rank", "job"])
def test_ctrl_c_within_fit_ends_the_job(size, who):
    if size > 1:
        pytest.skip("starts a job of its own")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")}
    command = [os.environ.get("HOROVODRUN", "horovodrun"), "-np", "2", "--oversubscribe", sys.executable,
               str(pathlib.Path(__file__).parent / "interrupted_fit.py"), who]
    job = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    try:
        lines = [next(line for line in job.stdout if "trains as" in line) for _ in range(2)]
        ranks = [int(line.split()[-1]) for line in lines]
        os.kill(ranks[1] if who == "rank" else job.pid, signal.SIGINT)
        text, _ = job.communicate(timeout=100)
    finally:
        job.kill()
    assert job.returncode == (130 if who == "rank" else -signal.SIGINT), text
    expected = "(process %d) was killed by signal 2 (SIGINT)" % ranks[1] if who == "rank" else "SIGINT received: ending"
    assert expected in text, text
    assert not any(os.path.exists(f"/proc/{each}") for each in ranks)
