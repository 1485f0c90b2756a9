"""Compression of gradients before they are communicated."""
import torch


class Compressor:
    """A way to compress a tensor and to decompress it."""

    @staticmethod
    def compress(tensor):
        """Returns the compressed tensor and the context that decompress needs."""

    @staticmethod
    def decompress(tensor, ctx):
        """Returns the tensor as it was before compress, except for lost precision."""


class NoneCompressor(Compressor):
    """Leaves tensors as they are."""

    @staticmethod
    def compress(tensor):
        return tensor, None

    @staticmethod
    def decompress(tensor, ctx):
        return tensor


class _Narrower(Compressor):
    """Sends floating-point tensors as a smaller type. Leaves integer tensors as they are."""

    dtype = None

    @classmethod
    def compress(cls, tensor):
        if not tensor.dtype.is_floating_point:
            return tensor, None
        return tensor.to(cls.dtype), tensor.dtype

    @staticmethod
    def decompress(tensor, ctx):
        return tensor if ctx is None else tensor.to(ctx)


class FP16Compressor(_Narrower):
    """float16: has more digits than bfloat16."""

    dtype = torch.float16


class BF16Compressor(_Narrower):
    """bfloat16: has the range of float32, so that no value overflows."""

    dtype = torch.bfloat16


class Compression:
    """The values of the argument `compression=`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
