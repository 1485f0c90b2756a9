"""Gradient tapes whose gradients are those of all ranks."""
import tensorflow as tf

from horovod.common.process_sets import global_process_set
from horovod.tensorflow._job import Average
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.gradient_reduction import GradientReduction, key_of


def _of_both(name):
    return property(lambda self: getattr(self._hvd_tape, name),
                    lambda self, value: setattr(self._hvd_tape, name, value))


class _DistributedGradientTape:
    def _be_distributed(self, tape, reduction, local_sources):
        self.__dict__.update(tape.__dict__)
        self._hvd_tape = tape
        self._hvd_reduction = reduction
        self._hvd_local = {key_of(source) for source in local_sources}

    # Both tapes record and stop together: TensorFlow crashes when a tape is taken off its stack twice, as by the end of
    # the `with` of the other one.
    _tape = _of_both("_tape")
    _recording = _of_both("_recording")

    def register_local_source(self, source):
        """The gradients of this variable stay this rank's own."""
        self._hvd_local.add(key_of(source))

    def gradient(self, target, sources, output_gradients=None, use_generic_names=False,
                 unconnected_gradients=tf.UnconnectedGradients.NONE):
        """The gradients of the target with respect to the sources, reduced over the ranks of the process set.

        use_generic_names: ranks match gradients by their numbers in the list, not by the names of the variables.
        """
        flat = tf.nest.flatten(sources)
        gradients = super().gradient(target, flat, output_gradients, unconnected_gradients)
        reduced = self._hvd_reduction.reduce(gradients, flat, self._hvd_local, use_generic_names)
        if isinstance(sources, (list, tuple)) and len(sources) == len(flat):
            return reduced
        return tf.nest.pack_sequence_as(sources, reduced)

    def get_local_and_global_gradients(self, target, sources, output_gradients=None, use_generic_names=False):
        """Returns two lists of pairs (source, gradient): of the local sources, and of the others."""
        pairs = list(zip(sources, self.gradient(target, sources, output_gradients, use_generic_names)))
        return ([pair for pair in pairs if key_of(pair[0]) in self._hvd_local],
                [pair for pair in pairs if key_of(pair[0]) not in self._hvd_local])


def _distributed(tape, reduction, local_sources=()):
    if hasattr(tape, "_hvd_reduction"):
        raise ValueError("this tape is a DistributedGradientTape already; its gradients would be reduced twice")
    cls = type(tape.__class__.__name__, (_DistributedGradientTape, tape.__class__), {})
    distributed = cls.__new__(cls)
    distributed._be_distributed(tape, reduction, local_sources)
    return distributed


def DistributedGradientTape(gradtape, device_dense="", device_sparse="", compression=Compression.none,
                            sparse_as_dense=False, op=Average, gradient_predivide_factor=1.0, num_groups=0, groups=None,
                            process_set=global_process_set, scale_local_gradients=True):
    """Returns a tape that shares what `gradtape` has recorded. Its gradients are reduced over the ranks of the set.

    sparse_as_dense: tf.IndexedSlices are made dense before; else the slices of all ranks are gathered.
    gradient_predivide_factor: the gradients are divided by it before they are added up, and by the rest afterwards.
    groups: a number of groups, or lists of variables, whose gradients are reduced together.
    scale_local_gradients: gradients of local sources are divided by the number of ranks.
    """
    return _distributed(gradtape, GradientReduction(
        "DistributedGradientTape", device_dense, device_sparse, compression, sparse_as_dense, op,
        gradient_predivide_factor, num_groups, groups, process_set, scale_local_gradients))


def trainable_weights_of(local_layers):
    """Returns the variables of a layer or of a list of layers."""
    if local_layers is None:
        return []
    layers = local_layers if isinstance(local_layers, (list, tuple)) else [local_layers]
    for layer in layers:
        if not (hasattr(layer, "trainable_weights") and hasattr(layer, "build")):
            raise ValueError(f"local_layers is a layer of Keras or a list of layers; found {layer!r}")
    return [weight for layer in layers for weight in layer.trainable_weights]


def PartialDistributedGradientTape(gradtape, device_dense="", device_sparse="", compression=Compression.none,
                                   sparse_as_dense=False, op=Average, gradient_predivide_factor=1.0, num_groups=0,
                                   groups=None, process_set=global_process_set, local_layers=None,
                                   scale_local_gradients=True):
    """DistributedGradientTape that leaves the gradients of `local_layers` this rank's own."""
    local = trainable_weights_of(local_layers)
    return _distributed(gradtape, GradientReduction(
        "PartialDistributedGradientTape", device_dense, device_sparse, compression, sparse_as_dense, op,
        gradient_predivide_factor, num_groups, groups, process_set, scale_local_gradients), local)
