"""An elastic training by fit(). One of its ranks is killed in the middle of it; the others go on."""
import os
import signal
import sys

import numpy as np
import tensorflow as tf

import horovod.tensorflow.keras as hvd

keras = tf.keras
hvd.init()
was_last = hvd.rank() == hvd.size() - 1 > 0
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")


def die(batch, logs):
    if was_last and batch == 2:
        os.kill(os.getpid(), signal.SIGKILL)


@hvd.elastic.run
def train(state):
    model.fit(np.ones((24, 4), np.float32), np.ones((24, 1), np.float32), batch_size=4, verbose=0,
              callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=die)])


train(hvd.elastic.KerasState(model))
print(f"trained with {hvd.size()} ranks", flush=True)
hvd.shutdown()
sys.exit(0)
