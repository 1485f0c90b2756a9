"""Gradients of Keras on JAX: in a program that JAX compiles, all gradients of an optimizer go through one call of the
host.

jax.experimental.io_callback cannot be used, because it copies the arguments: a thread of XLA makes the copies, and if
the process has one processor, that same thread waits for them. So the call is a primitive of our own, which gets the
arguments as they are.
"""
import jax
import numpy as np

from horovod._keras import arrays
from horovod._keras.backends import Reduction
from horovod.common.compression import Compressor, NoneCompressor

_last_error = None  # the exception of the last call of the host that failed; JAX passes on only its text


def _half(dtype):
    class _Half(Compressor):
        @staticmethod
        def compress(tensor):
            is_wider = tensor.dtype in (jax.numpy.float32, jax.numpy.float64)
            return (tensor.astype(dtype), tensor.dtype) if is_wider else (tensor, None)

        @staticmethod
        def decompress(tensor, ctx):
            return tensor if ctx is None else tensor.astype(ctx)

    return _Half


class Compression:
    """The values of the argument `compression=`."""

    none = NoneCompressor
    fp16 = _half("float16")
    bf16 = _half("bfloat16")


class JaxReduction(Reduction):
    def _reduce_all(self, tensors, names, groups):
        for tensor, name in zip(tensors, names):
            if not isinstance(tensor, jax.Array):
                raise NotImplementedError(f"the gradient {name} is a {type(tensor).__name__}; horovod reduces dense "
                                          "arrays of JAX")

        def on_host(*values):  # all start together, so groups change nothing
            return arrays.allreduce_all(values, names, self.op, self.prescale, self.postscale, self.process_set)

        if any(isinstance(tensor, jax.core.Tracer) for tensor in tensors):
            return _call_host(on_host, tensors)
        reduced = on_host(*[np.asarray(tensor) for tensor in tensors])
        return [jax.device_put(each, tensor.sharding) for each, tensor in zip(reduced, tensors)]


def _call_host(function, tensors):
    """Returns function(*arrays of numpy) as a part of a program that JAX compiles. All such calls of a program run in
    the order of the program, so they are in the same order on all ranks."""
    def call(*values):
        global _last_error
        try:
            return tuple(function(*values))
        except BaseException as error:
            _last_error = error
            raise

    global _primitive
    if _primitive is None:
        _primitive = _make_primitive()
    return _primitive.bind(*tensors, function=call)


_primitive = None


def _lacks_calls_of_the_host(error):
    return NotImplementedError(f"horovod.keras cannot call the host within JAX {jax.__version__}: {error}. Seen to "
                               "work is JAX 0.10. Give model.compile() jit_compile=False")


def _make_primitive():
    try:
        from jax._src.callback import _OrderedIOEffect as in_order
        from jax.extend.core import Primitive
        from jax.interpreters import mlir
        callback = mlir.emit_python_callback
        primitive = Primitive("horovod_reduce")
        primitive.multiple_results = True
        primitive.def_effectful_abstract_eval(lambda *shapes, function: (list(shapes), {in_order}))
    except (ImportError, AttributeError, TypeError) as error:
        raise _lacks_calls_of_the_host(error) from error

    def lowered(context, *operands, function):
        try:
            token = context.tokens_in.get(in_order)
            results, token, _ = callback(context, function, token, list(operands), context.avals_in, context.avals_out,
                                         has_side_effect=True)
            context.set_tokens_out(context.tokens_in.update_tokens(mlir.TokenSet({in_order: token})))
        except (AttributeError, TypeError, ValueError) as error:
            raise _lacks_calls_of_the_host(error) from error
        return results

    mlir.register_lowering(primitive, lowered, cacheable=False)
    return primitive


def forget_error():
    global _last_error
    _last_error = None


def take_error():
    """Returns the exception for which a program of JAX has failed, or None, and lets JAX forget the failure: it would
    fail all later programs that call the host."""
    global _last_error
    error, _last_error = _last_error, None
    try:
        from jax._src import dispatch
        dispatch.runtime_tokens.clear()
    except (ImportError, AttributeError):
        pass
    return error
