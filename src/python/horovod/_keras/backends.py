"""The reduction of gradients for each backend of Keras."""
from horovod import _core
from horovod.common.compression import NoneCompressor
from horovod.common.groups import checked_groups, places_together
from horovod.common.operations import name_of_variable, place_in, ranks_may_change


def backend_of(keras):
    return keras.backend.backend()


def compression_of(keras):
    """The class with the values of the argument `compression=` for this backend."""
    backend = backend_of(keras)
    if backend == "tensorflow":
        from horovod.tensorflow.compression import Compression
    elif backend == "torch":
        from horovod.torch.compression import Compression
    elif backend == "jax":
        from horovod._keras.on_jax import Compression
    else:
        Compression = _OnlyNone
    return Compression


class _OnlyNone:
    """Compression for backends that have no compression here."""

    none = NoneCompressor


class Reduction:
    """The gradients of an optimizer, of whatever backend: which are reduced, under which names, in which groups.
    Subclasses reduce tensors of their backend."""

    def __init__(self, name, compression, op, gradient_predivide_factor, groups, process_set, scale_local_gradients):
        if gradient_predivide_factor != 1.0 and op != _core.AVERAGE:
            raise ValueError("gradient_predivide_factor is for op=hvd.Average only")
        self.op = op
        self.process_set = process_set
        self.scale_local_gradients = scale_local_gradients
        self.compression = NoneCompressor if compression is None else compression
        self.prescale, self.postscale = 1.0 / gradient_predivide_factor, gradient_predivide_factor
        self._name = name
        self._groups = checked_groups(groups)

    def reduce(self, gradients, variables, local=frozenset()):
        """Returns the gradients, reduced over the ranks of the set. None stays None. Gradients of variables in `local`
        (ids) stay this rank's own."""
        gradients, variables = list(gradients), list(variables)
        place, size = place_in(self.process_set._check_id())
        if place < 0 or size == 1 and not ranks_may_change():  # a program that is traced now may run with others later
            return gradients
        shared = [i for i, variable in enumerate(variables) if id(variable) not in local]
        chosen = [i for i in shared if gradients[i] is not None]
        if self.scale_local_gradients:
            for i, variable in enumerate(variables):
                if gradients[i] is not None and id(variable) in local:
                    gradients[i] = gradients[i] / size
        compressed = [self.compression.compress(gradients[i]) for i in chosen]
        # Ranks may have different numbers of local variables, so these do not count.
        names = [f"{self._name}.{name_of_variable(variables[i], place)}" for place, i in enumerate(shared)
                 if gradients[i] is not None]
        reduced = self._reduce_all([each for each, _ in compressed], names,
                                   places_together(self._groups, [variables[i] for i in chosen], id)) if chosen else []
        for i, each, (_, context) in zip(chosen, reduced, compressed):
            gradients[i] = self.compression.decompress(each, context)
        return gradients

    def _reduce_all(self, tensors, names, groups):
        """Returns the tensors, reduced. groups: numbers of tensors that become ready together."""
        raise NotImplementedError


class TorchReduction(Reduction):
    """Gradients of Keras on torch."""

    def _reduce_all(self, tensors, names, groups):
        import horovod.torch as hvd
        more = {"op": self.op, "process_set": self.process_set, "prescale_factor": self.prescale,
                "postscale_factor": self.postscale}
        tensors = [each.detach().contiguous() for each in tensors]
        handles = []
        for group in groups:
            if len(group) == 1:
                handles.append((group, hvd.allreduce_async(tensors[group[0]], name=names[group[0]], **more)))
            else:
                name = f"{names[group[0]]}_to_{names[group[-1]]}"
                handles.append((group, hvd.grouped_allreduce_async([tensors[i] for i in group], name=name, **more)))
        results = [None] * len(tensors)
        for group, handle in handles:
            reduced = hvd.synchronize(handle)
            for i, each in zip(group, [reduced] if len(group) == 1 else reduced):
                results[i] = each
        return results


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
        kind = TorchReduction
    elif backend == "jax":
        from horovod._keras.on_jax import JaxReduction as kind
    else:
        raise NotImplementedError(f"horovod's DistributedOptimizer is there for Keras on TensorFlow, torch and JAX; "
                                  f"this is Keras on {backend}. Set KERAS_BACKEND=tensorflow, torch or jax")
    return kind(name, compression, op, gradient_predivide_factor, groups if groups is not None else num_groups or None,
                process_set, scale_local_gradients), id
