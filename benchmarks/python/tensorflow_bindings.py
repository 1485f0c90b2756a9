"""TensorFlow's binding beside torch's, and beside TensorFlow's own MultiWorkerMirroredStrategy, in the same processes.

    horovodrun -np 2 python benchmarks/python/tensorflow_bindings.py [--rounds 30] [--no-strategy]

A call's time is that of the slowest rank, and a contender's the median of its rounds, in which contenders take turns.
Needs tensorflow, keras and torch. Prints a table in Markdown.
"""
import argparse
import json
import os
import socket
import statistics
import time

import numpy as np
import torch

import horovod.torch as hvd
from ranks import resnet50_gradients

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--rounds", type=int, default=30)
parser.add_argument("--no-strategy", action="store_true", help="without MultiWorkerMirroredStrategy")
options = parser.parse_args()
hvd.init()
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def name_the_workers():
    """Gives TensorFlow the addresses of all ranks, from which its strategy makes a cluster."""
    with socket.socket() as place:
        place.bind(("localhost", 0))
        own = f"localhost:{place.getsockname()[1]}"
        everyone = hvd.allgather_object(own)
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": everyone},
                                          "task": {"type": "worker", "index": hvd.rank()}})


if not options.no_strategy:
    name_the_workers()

import tensorflow as tf  # noqa: E402  it reads the environment

strategy = None if options.no_strategy else tf.distribute.MultiWorkerMirroredStrategy(
    communication_options=tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.RING))

import horovod.tensorflow as hvd_tf  # noqa: E402  a strategy must be made before TensorFlow computes anything

torch.set_num_threads(1)


def times_of(contenders):
    """Returns {name: the median of its rounds in milliseconds}."""
    found = {name: [] for name in contenders}
    for turn in range(options.rounds + 3):
        names = list(contenders)
        for name in names[turn % len(names):] + names[:turn % len(names)]:
            hvd.barrier()
            begin = time.perf_counter()
            contenders[name]()
            took = hvd.allreduce(torch.tensor(time.perf_counter() - begin), op=hvd.Max, name="took").item()
            if turn >= 3:
                found[name].append(took * 1e3)
    return {name: statistics.median(values) for name, values in found.items()}


def in_function(make):
    """make: list of tensors -> list of tensors. Returns a function without arguments that runs it in a tf.function."""
    return tf.function(make, autograph=False)


def collectives(sizes):
    ours = [tf.Variable(tf.ones(size)) for size in sizes]
    theirs = [torch.ones(size) for size in sizes]

    def each():
        return [hvd_tf.allreduce(tensor, op=hvd_tf.Average, name=f"each.{i}") for i, tensor in enumerate(ours)]

    def group():
        return hvd_tf.grouped_allreduce([tensor.read_value() for tensor in ours], name="group")

    def identities():
        return [tf.identity(tensor) for tensor in ours]

    def by_torch():
        for handle in [hvd.allreduce_async_(tensor, name=f"torch.{len(sizes)}.{sizes[0]}.{i}")
                       for i, tensor in enumerate(theirs)]:
            hvd.synchronize(handle)

    def by_torch_into_new_tensors():
        handles = [hvd.allreduce_async(tensor, name=f"torch.new.{len(sizes)}.{sizes[0]}.{i}")
                   for i, tensor in enumerate(theirs)]
        return [hvd.synchronize(handle) for handle in handles]

    # TensorFlow's results are new tensors, as those of torch's functions without a "_" at the end.
    contenders = {"TensorFlow, each": in_function(each), "TensorFlow, a group": in_function(group),
                  "200 tf.identity": in_function(identities), "torch, each": by_torch_into_new_tensors,
                  "torch, a group": lambda: hvd.grouped_allreduce(theirs, name=f"torch.group.{sizes[0]}"),
                  "torch, each in place": by_torch,
                  "torch, a group in place": lambda: hvd.grouped_allreduce_(theirs, name=f"torch.place.{sizes[0]}")}
    if strategy is not None:
        def in_replica():
            return tf.distribute.get_replica_context().all_reduce(
                tf.distribute.ReduceOp.MEAN, [tensor.read_value() for tensor in ours])

        contenders["MultiWorkerMirroredStrategy"] = in_function(lambda: strategy.run(in_replica))
    return times_of(contenders)


WIDTHS, ROWS = [512, 1024, 1024, 10], 64


def model_of_keras(wrap, rows, labels):
    dense = [tf.keras.layers.Dense(width, activation="relu") for width in WIDTHS[1:-1]]
    model = tf.keras.Sequential([tf.keras.layers.Input((WIDTHS[0],)), *dense, tf.keras.layers.Dense(WIDTHS[-1])])
    model.compile(optimizer=wrap(tf.keras.optimizers.SGD(0.01, momentum=0.9)),
                  loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return lambda: model.train_on_batch(rows, labels)


def step_of_strategy(rows, labels):
    """The strategy's own way: Keras' optimizer reduces the gradients (train_on_batch of Keras 3.15 fails over it)."""
    with strategy.scope():
        dense = [tf.keras.layers.Dense(width, activation="relu") for width in WIDTHS[1:-1]]
        model = tf.keras.Sequential([tf.keras.layers.Input((WIDTHS[0],)), *dense, tf.keras.layers.Dense(WIDTHS[-1])])
        optimizer = tf.keras.optimizers.SGD(0.01, momentum=0.9)
        optimizer.build(model.trainable_variables)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean")

    def in_replica(rows, labels):
        with tf.GradientTape() as tape:
            value = loss(labels, model(rows, training=True))
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    step = tf.function(lambda *batch: strategy.run(in_replica, args=batch), autograph=False)
    batch = tf.constant(rows), tf.constant(labels)
    return lambda: step(*batch)


def training_steps():
    rows = np.random.default_rng(hvd.rank()).normal(size=(ROWS, WIDTHS[0])).astype(np.float32)
    labels = np.arange(ROWS) % WIDTHS[-1]
    layers = [layer for a, b in zip(WIDTHS, WIDTHS[1:]) for layer in (torch.nn.Linear(a, b), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers[:-1])
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.01, momentum=0.9),
                                         named_parameters=model.named_parameters())
    data, targets = torch.from_numpy(rows), torch.from_numpy(labels)

    def by_torch():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(data), targets).backward()
        optimizer.step()

    contenders = {"TensorFlow": model_of_keras(hvd_tf.DistributedOptimizer, rows, labels), "torch": by_torch,
                  "TensorFlow, alone": model_of_keras(lambda one: one, rows, labels)}
    if strategy is not None:
        contenders["MultiWorkerMirroredStrategy"] = step_of_strategy(rows, labels)
    return times_of(contenders)


results = {"64 MB in 200 tensors": collectives(resnet50_gradients(200, (64 << 20) // 4)),
           "200 of 64 bytes": collectives([16] * 200), "a step of an MLP, 1.6 M weights": training_steps()}
if hvd.rank() == 0:
    print(f"TensorFlow {tf.__version__}, torch {torch.__version__}, {hvd.size()} ranks, load {os.getloadavg()[0]:.0f} "
          f"on {os.cpu_count()} processors\n\n| what | contender | ms, median of {options.rounds} |\n|---|---|---|")
    for what, times in results.items():
        for name, milliseconds in times.items():
            print(f"| {what} | {name} | {milliseconds:.2f} |")
