"""Compression of tensors before they are communicated: what all frameworks have in common. A framework gives the two
casts and its own types."""


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
