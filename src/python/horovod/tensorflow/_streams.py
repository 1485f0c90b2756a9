"""The library that tells the kernels on which stream of TensorFlow's they run (streams.cc), and which kernels GPUs
get: with it, those that work in the memory of GPUs, else those that work on copies in the host's memory."""
import ctypes
import os
import zlib

import tensorflow as tf

from horovod import __version__, _core, _ops
from horovod.common import built_streams

COMMAND = "python -m horovod.tensorflow.build"
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "streams.cc")
_KINDS = {None: 0, "cuda": 1, "rocm": 2}  # hvd_device


def kind_of_gpus():
    """Returns the kind of GPUs for which this TensorFlow is built, cuda or rocm. None: it is built for CPUs."""
    if tf.test.is_built_with_rocm():
        return "rocm"
    return "cuda" if tf.test.is_built_with_cuda() else None


def _checksum():
    """Of the source and of what it is compiled against: builds of TensorFlow or Horovod may have equal versions."""
    flags = [flag for flag in tf.sysconfig.get_compile_flags() if not flag.startswith("-I")]  # where, not what
    facts = (tf.version.GIT_VERSION, tf.version.COMPILER_VERSION, flags, sorted(tf.sysconfig.get_build_info().items()))
    with open(SOURCE, "rb") as source:
        return f"{zlib.crc32(source.read() + repr(facts).encode()):08x}"


def identity():
    """Which builds of TensorFlow and Horovod fit together."""
    return f"TensorFlow {tf.version.VERSION} ({tf.version.GIT_VERSION}, {tf.version.COMPILER_VERSION}), " \
           f"Horovod {__version__}, checksum {_checksum()}"


def library_path():
    """Returns the path of the library, whether it is there or not."""
    return built_streams.path_for(tf.version.VERSION, _checksum())


def load(path):
    """Returns the library. OSError: it cannot be loaded, others may have written it, or it was built for another
    TensorFlow."""
    unsafe = built_streams.why_unsafe(path)
    if unsafe:
        raise OSError(unsafe)
    library = ctypes.CDLL(path)
    library.horovod_tensorflow_built_for.restype = ctypes.c_char_p
    built_for = library.horovod_tensorflow_built_for().decode()
    if built_for != identity():
        raise OSError(f"{path} was built for {built_for}, and this is {identity()}")
    return library


def _streams_for(kind):
    """Returns the library, and the reason why there is none."""
    if not _core.device_built(kind):
        return None, f"this Horovod was installed without a plugin for the GPUs of this TensorFlow ({kind})"
    try:
        if not os.path.exists(library_path()):
            return None, f"nothing was built for the streams of this TensorFlow {tf.version.VERSION} ({COMMAND})"
        return load(library_path()), ""
    except (OSError, AttributeError) as error:
        return None, f"{error}; {COMMAND} builds it again"


def register(kernels, device, priority, kind, streams, reason):
    """Registers the kernels of the collectives for a device of TensorFlow's."""
    kernels.horovod_tensorflow_register.restype = ctypes.c_char_p
    function = streams and ctypes.cast(streams.horovod_tensorflow_stream_of, ctypes.c_void_p)
    problem = kernels.horovod_tensorflow_register(device.encode(), priority, _KINDS[kind], function,
                                                  reason.encode())
    if problem:
        raise ImportError(f"horovod.tensorflow: {problem.decode()}")


def register_for_gpus(kernels):
    kind = kind_of_gpus()
    streams, reason = _streams_for(kind) if kind else (None, "this TensorFlow is built for CPUs")
    register(kernels, "GPU", 0, kind, streams, reason)
    _ops.are_on_devices |= streams is not None
