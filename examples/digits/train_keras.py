"""Trains a small network on scikit-learn's digits with Keras and Horovod, then compares with one process.

    horovodrun -np 4 python examples/digits/train_keras.py
    KERAS_BACKEND=jax horovodrun -np 4 python examples/digits/train_keras.py

Each step takes one global batch, of which each rank has its share. Afterwards rank 0 trains the same network alone on
the whole batches. Exits with 1 if the losses of the epochs differ, or the network is no good.
"""
import argparse
import sys

import keras
import numpy as np
from sklearn.datasets import load_digits

import horovod.keras as hvd

TEST_IMAGES = 297  # this many of the 1797 images are for the test

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--batch-size", type=int, default=100, help="images per step, of all ranks together")
parser.add_argument("--tolerance", type=float, default=1e-3, help="largest relative difference between the losses")
options = parser.parse_args()

hvd.init()
digits = load_digits()
images, labels = (digits.images / 16).astype(np.float32)[..., None], digits.target


def new_model(wrap):
    keras.utils.set_random_seed(2024)
    model = keras.Sequential([
        keras.layers.Input((8, 8, 1)), keras.layers.Conv2D(16, 3, activation="relu"), keras.layers.MaxPooling2D(),
        keras.layers.Flatten(), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)])
    model.compile(optimizer=wrap(keras.optimizers.Adam(0.01)), metrics=["accuracy"],
                  loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def train(model, place, count, callbacks):
    """Trains on every `count`-th image of each global batch. Returns the loss of each epoch."""
    train_images, train_labels = images[:-TEST_IMAGES], labels[:-TEST_IMAGES]
    history = model.fit(train_images[place::count], train_labels[place::count], epochs=options.epochs, shuffle=False,
                        batch_size=options.batch_size // count, callbacks=callbacks, verbose=0)
    return history.history["loss"]


if options.batch_size % hvd.size() or (len(images) - TEST_IMAGES) % options.batch_size:
    sys.exit(f"--batch-size {options.batch_size}: expected a divisor of {len(images) - TEST_IMAGES} that "
             f"{hvd.size()} ranks can share evenly")
model = new_model(hvd.DistributedOptimizer)
losses = train(model, hvd.rank(), hvd.size(), [hvd.callbacks.BroadcastGlobalVariablesCallback(0),
                                               hvd.callbacks.MetricAverageCallback()])
if hvd.rank() == 0:
    alone = train(new_model(lambda optimizer: optimizer), 0, 1, [])
    difference = max(abs(one - other) / other for one, other in zip(losses, alone))
    accuracy = model.evaluate(images[-TEST_IMAGES:], labels[-TEST_IMAGES:], verbose=0)[1]
    print(f"Keras on {keras.backend.backend()}, {hvd.size()} ranks: losses", *[f"{loss:.4f}" for loss in losses])
    print(f"largest relative difference from one process: {difference:.1e}; accuracy on new images: {accuracy:.3f}")
    if difference > options.tolerance or accuracy < 0.85:
        sys.exit("FAILED: the ranks have not followed the curve of one process")
hvd.barrier()
