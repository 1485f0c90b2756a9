"""Settings for the tests of horovod.keras where Keras runs on torch or, with KERAS_BACKEND=jax, on JAX. Every rank of a
job runs all of them, in the same order."""
import os

os.environ.setdefault("KERAS_BACKEND", "torch")

import pytest  # noqa: E402  Keras reads the variable when it is imported

import horovod.keras  # noqa: E402


@pytest.fixture(autouse=True)
def hvd():
    """Horovod, initialised. The ranks begin and end each test together."""
    horovod.keras.init()
    horovod.keras.barrier()
    yield horovod.keras
    horovod.keras.barrier()


@pytest.fixture
def rank(hvd):
    return hvd.rank()


@pytest.fixture
def size(hvd):
    return hvd.size()
