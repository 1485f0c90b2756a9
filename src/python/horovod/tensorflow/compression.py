"""Compression of gradients before they are communicated."""
import tensorflow as tf

from horovod.common.compression import Compressor, NoneCompressor


class _Narrower(Compressor):
    """Sends floating-point tensors as a smaller type. Leaves integer tensors as they are."""

    dtype = None

    @classmethod
    def compress(cls, tensor):
        if not tensor.dtype.is_floating:
            return tensor, None
        return tf.cast(tensor, cls.dtype), tensor.dtype

    @staticmethod
    def decompress(tensor, ctx):
        return tensor if ctx is None else tf.cast(tensor, ctx)


class FP16Compressor(_Narrower):
    """float16: has more digits than bfloat16."""

    dtype = tf.float16


class BF16Compressor(_Narrower):
    """bfloat16: has the range of float32, so that no value overflows."""

    dtype = tf.bfloat16


class Compression:
    """The values of the argument `compression=`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
