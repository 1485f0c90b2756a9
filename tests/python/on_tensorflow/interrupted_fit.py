"""A training by fit() that takes longer than a test waits. With the argument "job", rank 1 stops in the middle of it,
so that rank 0 waits for it within an operation."""
import os
import signal
import sys
import time

import numpy as np
import tensorflow as tf

import horovod.tensorflow.keras as hvd

signal.signal(signal.SIGINT, signal.default_int_handler)  # tests that run in the background ignore it
keras = tf.keras
hvd.init()
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")


def tell(batch, logs):
    if batch == 3:
        print(f"rank {hvd.rank()} trains as {os.getpid()}", flush=True)
    if batch == 4 and hvd.rank() == 1 and sys.argv[1] == "job":
        time.sleep(1000)


data = tf.data.Dataset.from_tensors((np.ones((4, 4), np.float32), np.ones((4, 1), np.float32))).repeat()
model.fit(data, epochs=1, steps_per_epoch=10**9, verbose=0,
          callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=tell)])
