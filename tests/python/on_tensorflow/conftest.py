"""Settings for the tests of horovod.tensorflow and horovod.keras. Every rank of a job runs all of them, in the same
order."""
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import numpy as np  # noqa: E402  the variables above must be set before
import pytest  # noqa: E402
import tensorflow as tf  # noqa: E402

import horovod.tensorflow  # noqa: E402


@pytest.fixture(autouse=True)
def hvd():
    """Horovod, initialised. The ranks begin and end each test together, so that a failure does not affect other
    tests."""
    horovod.tensorflow.init()
    np.random.seed(1234)
    tf.random.set_seed(1234)
    horovod.tensorflow.barrier()
    yield horovod.tensorflow
    if horovod.tensorflow.is_initialized():
        horovod.tensorflow.barrier()


@pytest.fixture
def rank(hvd):
    return hvd.rank()


@pytest.fixture
def size(hvd):
    return hvd.size()


def in_graph(function, *arrays):
    """Runs function(*tensors) in a graph of TensorFlow 1."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        inputs = [tf.compat.v1.placeholder(array.dtype, [None] * array.ndim) for array in map(np.asarray, arrays)]
        results = function(*inputs)
        session.run(tf.compat.v1.global_variables_initializer())
        return session.run(results, dict(zip(inputs, arrays)))


def at_once(function, *arrays):
    return tf.nest.map_structure(lambda each: each.numpy(), function(*map(tf.constant, arrays)))


def in_function(function, *arrays):
    return tf.nest.map_structure(lambda each: each.numpy(), tf.function(function)(*map(tf.constant, arrays)))


@pytest.fixture(params=[at_once, in_function, in_graph], ids=lambda each: each.__name__)
def run(request):
    """run(function, *arrays): what function(*tensors) gives, in each mode of TensorFlow."""
    return request.param
