"""Tests of compression."""
import pytest
import torch

import horovod.torch as hvd
from ranks import equal, mine, total

FLOATS = [torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", [torch.float16, *FLOATS, torch.int32, torch.int64])
def test_no_compression_is_the_tensor_itself(dtype):
    """Contract §2.11 none [Horovod tests this]"""
    tensor = mine((5,), dtype)
    compressed, context = hvd.Compression.none.compress(tensor)
    assert compressed is tensor and context is None
    assert hvd.Compression.none.decompress(compressed, context) is tensor


@pytest.mark.parametrize("dtype", FLOATS)
def test_fp16_makes_floats_half_precision_and_gives_them_back(dtype):
    """Contract §2.11 fp16 [Horovod tests this]"""
    tensor = torch.randn(5, 5, 5).to(dtype)
    compressed, context = hvd.Compression.fp16.compress(tensor)
    back = hvd.Compression.fp16.decompress(compressed, context)
    assert compressed.dtype == torch.float16 and back.dtype == dtype and context == dtype
    torch.testing.assert_close(back, tensor, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_fp16_leaves_integers_as_they_are(dtype):
    """Contract §2.11 fp16 [Horovod tests this]"""
    tensor = mine((5,), dtype)
    compressed, context = hvd.Compression.fp16.compress(tensor)
    equal(compressed, tensor)
    equal(hvd.Compression.fp16.decompress(compressed, context), tensor)


def test_compressors_are_classes_with_static_methods():
    """Contract §2.11 Compression"""
    from horovod.torch.compression import Compressor
    for compressor in (hvd.Compression.none, hvd.Compression.fp16):
        assert isinstance(compressor, type) and issubclass(compressor, Compressor)
    assert Compressor.compress(torch.ones(2)) is None and Compressor.decompress(torch.ones(2), None) is None


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32])
def test_a_compressed_allreduce_gives_back_the_dtype(dtype):
    """Contract §2.2 compression"""
    equal(hvd.allreduce(mine((6,), dtype), op=hvd.Sum, compression=hvd.Compression.fp16), total((6,), dtype))


def test_a_compressor_of_ones_own_is_used():
    """Contract §2.11: a class with compress and decompress"""
    from horovod.torch.compression import Compressor

    class Halved(Compressor):
        @staticmethod
        def compress(tensor):
            return tensor / 2, "context"

        @staticmethod
        def decompress(tensor, context):
            assert context == "context"
            return tensor * 2 + 1

    equal(hvd.allreduce(mine((6,)), op=hvd.Sum, compression=Halved), total((6,)) + 1)


def test_bf16_is_there_beside_fp16():
    """Contract §2.11, issue 20: a bf16 compressor"""
    compressed, context = hvd.Compression.bf16.compress(torch.ones(4))
    assert compressed.dtype == torch.bfloat16
    equal(hvd.Compression.bf16.decompress(compressed, context), torch.ones(4))
    equal(hvd.allreduce(mine((6,)), op=hvd.Sum, compression=hvd.Compression.bf16), total((6,)))
