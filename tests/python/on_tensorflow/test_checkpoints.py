"""hvd.checkpoint of TensorFlow: variables, and models of tf.keras. tests/python/on_keras has more."""
import os
import tempfile

import numpy as np
import tensorflow as tf

import horovod.tensorflow.keras as hvd_keras

keras = tf.keras


def test_variables_and_models_come_back_from_rank_0(hvd, rank, size):
    with tempfile.TemporaryDirectory() as here:
        folder = hvd.broadcast_object(here)
        variables = [tf.Variable([1.0 + rank, 2.0]), tf.Variable(tf.cast(rank, tf.bfloat16)), tf.Variable("text")]
        path = os.path.join(folder, "variables.h5")
        hvd.checkpoint.save(path, variables, step=3)
        for each in variables[:2]:
            each.assign(tf.zeros_like(each))
        assert hvd.checkpoint.restore(path, variables) == {"step": 3}
        assert variables[0].numpy().tolist() == [1, 2] and float(variables[1]) == 0
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3)])
        model.compile(optimizer=hvd_keras.DistributedOptimizer(keras.optimizers.Adam(0.05)), loss="mse")
        checkpointer = hvd.checkpoint.Checkpointer(os.path.join(folder, "run"), model, model.optimizer, every_steps=2)
        model.fit(np.ones((24, 4)), np.ones((24, 3)), batch_size=4, epochs=1, verbose=0,
                  callbacks=[hvd_keras.callbacks.CheckpointCallback(checkpointer)])
        assert hvd.checkpoint.latest(checkpointer.folder).endswith("step-000000000006.h5")
        before = [each.tolist() for each in model.get_weights()]
        model.set_weights([np.full(each.shape, rank) for each in model.get_weights()])
        assert checkpointer.restore()["step"] == 6
        assert [each.tolist() for each in model.get_weights()] == hvd.broadcast_object(before)
        checkpointer.close()
        hvd.barrier()


def test_all_ranks_stop_at_one_step(hvd, rank, size):
    hvd.shutdown()
    hvd.init()
    steps = 0
    while not hvd.should_stop():
        hvd.allreduce(tf.ones(2))
        steps += 1
        if steps == 3 and rank == size - 1:
            hvd.request_stop("enough")
        assert steps < 1000
    assert set(hvd.allgather_object(steps)) == {steps} and hvd.stop_reason() == "enough"
    hvd.shutdown()
    hvd.init()
