"""Runs the collectives by the kernels that GPUs have, on the CPU: with the library for TensorFlow's streams, whose path
is given, or without it."""
import ctypes
import sys

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd
from horovod.tensorflow import _library, _streams

kernels = ctypes.CDLL(_library._PATH)
streams = _streams.load(sys.argv[1]) if len(sys.argv) > 1 else None
told_nodes, is_stream_null = [], False
if streams:
    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    def stream_of(context, stream, ordinal):
        streams.horovod_tensorflow_node_of.restype = ctypes.c_char_p
        told_nodes.append(streams.horovod_tensorflow_node_of(ctypes.c_void_p(context)).decode())
        if is_stream_null:
            return 1
        return streams.horovod_tensorflow_stream_of(ctypes.c_void_p(context), ctypes.c_void_p(stream),
                                                    ctypes.c_void_p(ordinal))

    class Watched:
        horovod_tensorflow_stream_of = stream_of

    _streams.register(kernels, "CPU", 1, "cuda", Watched, "")
else:
    _streams.register(kernels, "CPU", 1, "cuda", None, "the test wants it")

hvd.init()
rank, size = hvd.rank(), hvd.size()


@tf.function
def all_of_them(x):
    rows = tf.ones([rank + 1, 2]) * float(rank)
    return (hvd.allreduce(x, op=hvd.Sum, name="summed"), hvd.grouped_allreduce([x, 2 * x], op=hvd.Sum),
            hvd.allgather(rows), hvd.broadcast(x * rank, size - 1),
            hvd.alltoall(tf.repeat(x, size), splits=tf.fill([size], 3)),
            hvd.reducescatter(tf.repeat(x, size), op=hvd.Sum))


for run in all_of_them, all_of_them.python_function:
    summed, group, gathered, given, (exchanged, splits), part = run(tf.ones(3))
    assert summed.numpy().tolist() == [size] * 3 and group[1].numpy().tolist() == [2 * size] * 3
    assert gathered.numpy()[:, 0].tolist() == [float(r) for r in range(size) for _ in range(r + 1)]
    assert given.numpy().tolist() == [size - 1.0] * 3
    assert exchanged.numpy().tolist() == [1.0] * 3 * size and splits.numpy().tolist() == [3] * size
    assert part.numpy().tolist() == [size] * 3
if streams:
    assert any("summed" in node for node in told_nodes), told_nodes
    is_stream_null = True
    try:
        hvd.allreduce(tf.ones(3), name="lost")
    except tf.errors.FailedPreconditionError as error:
        assert "tensor 'lost': found no stream of the GPU" in str(error), error
    else:
        raise AssertionError("a stream was found")
    is_stream_null = False
    assert hvd.allreduce(tf.ones(3), op=hvd.Sum, name="lost").numpy().tolist() == [size] * 3
print("all are right", flush=True)
hvd.shutdown()
