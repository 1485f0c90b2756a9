"""The reduction of gradients for each backend of Keras."""
from horovod import _core
from horovod.common.compression import NoneCompressor


def backend_of(keras):
    return keras.backend.backend()


def compression_of(keras):
    """The class with the values of the argument `compression=` for this backend."""
    backend = backend_of(keras)
    if backend == "tensorflow":
        from horovod.tensorflow.compression import Compression
        return Compression
    if backend == "torch":
        from horovod.torch.compression import Compression
        return Compression
    return _OnlyNone


class _OnlyNone:
    """Compression for backends that have no compression here."""

    none = NoneCompressor


def is_none(compression):
    """compression=None stands for none in all packages, so that a default needs no framework."""
    return compression is None or compression is NoneCompressor


class TorchReduction:
    """Gradients of Keras on torch."""

    def __init__(self, name, compression, sparse_as_dense, op, gradient_predivide_factor, groups, process_set,
                 scale_local_gradients):
        import horovod.torch as hvd
        if gradient_predivide_factor != 1.0 and op != _core.AVERAGE:
            raise ValueError("gradient_predivide_factor is for op=hvd.Average only")
        if groups is not None and (isinstance(groups, bool) or not isinstance(groups, (int, list, tuple))
                                   or (isinstance(groups, int) and groups < 0)):
            raise ValueError(f"groups is a number of groups greater than 0, or a list of lists of variables, "
                             f"not {groups!r}")
        self.process_set = process_set
        self.scale_local_gradients = scale_local_gradients
        self._hvd = hvd
        self._name = name
        self._more = {"op": op, "process_set": process_set}
        self._compression = NoneCompressor if compression is None else compression
        if gradient_predivide_factor != 1.0:
            self._more.update(prescale_factor=1.0 / gradient_predivide_factor,
                              postscale_factor=gradient_predivide_factor)

    def size(self):
        from horovod.common.operations import place_in
        place, size = place_in(self.process_set._check_id())
        return size if place >= 0 else 1

    def reduce(self, gradients, variables, local=frozenset()):
        gradients, variables = list(gradients), list(variables)
        size = self.size()
        if size == 1:
            return gradients
        handles = []
        for i, (gradient, variable) in enumerate(zip(gradients, variables)):
            if gradient is None:
                continue
            if id(variable) in local:
                gradients[i] = gradient / size if self.scale_local_gradients else gradient
                continue
            compressed, context = self._compression.compress(gradient.detach().contiguous())
            name = f"{self._name}.{getattr(variable, 'path', i)}"
            handles.append((i, context, self._hvd.allreduce_async(compressed, name=name, **self._more)))
        for i, context, handle in handles:
            gradients[i] = self._compression.decompress(self._hvd.synchronize(handle), context)
        return gradients


def reduction_for(keras, name, device_dense, device_sparse, compression, sparse_as_dense, op,
                  gradient_predivide_factor, num_groups, groups, process_set, scale_local_gradients):
    """Returns an object with reduce(gradients, variables, local), and the function that identifies a variable."""
    backend = backend_of(keras)
    if backend == "tensorflow":
        from horovod.tensorflow.gradient_reduction import GradientReduction, key_of
        compression = compression_of(keras).none if compression is None else compression
        return GradientReduction(name, device_dense, device_sparse, compression, sparse_as_dense, op,
                                 gradient_predivide_factor, num_groups, groups, process_set,
                                 scale_local_gradients), key_of
    if backend == "torch":
        return TorchReduction(name, compression, sparse_as_dense, op, gradient_predivide_factor,
                              groups if groups is not None else num_groups or None, process_set,
                              scale_local_gradients), id
    raise NotImplementedError(f"horovod's DistributedOptimizer is there for Keras on TensorFlow and on torch; this is "
                              f"Keras on {backend}. Set KERAS_BACKEND=tensorflow or torch")
