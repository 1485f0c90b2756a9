"""hvd.DistributedOptimizer: for optimizers of Keras and of TensorFlow 1."""
import tensorflow as tf

from horovod.common.operations import check_adasum
from horovod.common.process_sets import global_process_set
from horovod.tensorflow._job import Adasum, Average
from horovod.tensorflow._names import executing_eagerly
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper, OpenStep
from horovod.tensorflow.gradient_reduction import GradientReduction, key_of


class _DistributedOptimizer(tf.compat.v1.train.Optimizer):
    """Around an optimizer of TensorFlow 1: compute_gradients() returns gradients that are reduced over the ranks."""

    def __init__(self, optimizer, name, use_locking, reduction, backward_passes_per_step, sparse_as_dense,
                 average_aggregated_gradients):
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer = optimizer
        self._reduction = reduction
        self._local = set()
        self._aggregation = None
        if backward_passes_per_step > 1:
            if executing_eagerly():
                raise ValueError("backward_passes_per_step > 1 with an optimizer of tf.compat.v1 needs a graph; in "
                                 "eager mode use an optimizer of tf.keras")
            self._aggregation = LocalGradientAggregationHelper(
                backward_passes_per_step, self._reduce, sparse_as_dense, average_aggregated_gradients, name)

    def register_local_var(self, var):
        """The gradients of this variable stay this rank's own."""
        self._local.add(key_of(var))

    def _reduce(self, gradients, variables):
        return self._reduction.reduce(gradients, variables, self._local)

    def compute_gradients(self, *args, **kwargs):
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        if not pairs:
            return pairs
        gradients, variables = zip(*pairs)
        reduce = self._reduce if self._aggregation is None else self._aggregation.compute_gradients
        return list(zip(reduce(gradients, variables), variables))

    def apply_gradients(self, *args, **kwargs):
        if self._aggregation is None:
            return self._optimizer.apply_gradients(*args, **kwargs)
        return self._aggregation.apply_gradients(lambda: self._optimizer.apply_gradients(*args, **kwargs))

    def get_slot(self, *args, **kwargs):
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args, **kwargs):
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args, **kwargs):
        return self._optimizer.variables(*args, **kwargs)


class _DistributedAdasumOptimizer(_DistributedOptimizer):
    """Each rank makes steps of its own. Adasum of what they have changed becomes the change of all ranks."""

    def __init__(self, optimizer, name, use_locking, reduction, backward_passes_per_step):
        super().__init__(optimizer, name, use_locking, reduction, 1, False, False)
        self._open_step = OpenStep(backward_passes_per_step)
        self._starts = {}  # key of a variable -> its value at the last reduction

    def compute_gradients(self, *args, **kwargs):
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(self, grads_and_vars, *args, **kwargs):
        pairs = list(grads_and_vars)
        variables = [variable for gradient, variable in pairs if gradient is not None]
        if self._open_step.backward_passes_per_step > 1:
            return self._step_of_several(pairs, variables, args, kwargs)
        starts = [tf.identity(variable) for variable in variables]
        with tf.control_dependencies(starts):
            applied = self._optimizer.apply_gradients(pairs, *args, **kwargs)
        with _after(applied):
            return self._combine(variables, starts)

    def _combine(self, variables, starts):
        changes = [variable.read_value() - start for variable, start in zip(variables, starts)]
        return tf.group(*[variable.assign(start + change) for variable, start, change in
                          zip(variables, starts, self._reduce(changes, variables))])

    def _step_of_several(self, pairs, variables, args, kwargs):
        with tf.init_scope():
            if self._open_step.counter is None:
                self._open_step.make_counter(self._name)
            for variable in variables:
                if key_of(variable) not in self._starts:
                    self._starts[key_of(variable)] = tf.Variable(
                        tf.zeros(variable.shape, variable.dtype), trainable=False, name=f"{self._name}_start")
        starts = [self._starts[key_of(variable)] for variable in variables]
        counter, passes = self._open_step.counter, self._open_step.backward_passes_per_step

        def begin():
            return tf.group(*[start.assign(variable.read_value()) for start, variable in zip(starts, variables)])

        def combine():
            return self._combine(variables, [start.read_value() for start in starts])

        begun = tf.cond(tf.equal(counter.read_value(), 0), begin, tf.no_op)
        with _after(begun):
            applied = self._optimizer.apply_gradients(pairs, *args, **kwargs)
        with _after(applied):
            count = counter.assign((counter.read_value() + 1) % passes)
        with _after(count):
            return tf.cond(tf.equal(counter.read_value(), 0), combine, tf.no_op)


def _after(operation):
    """What is made within runs after the operation. What runs at once has run, and may have given None."""
    return tf.control_dependencies([] if operation is None or executing_eagerly() else [operation])


def DistributedOptimizer(optimizer, name=None, use_locking=False, device_dense="", device_sparse="",
                         compression=Compression.none, sparse_as_dense=False, backward_passes_per_step=1, op=Average,
                         gradient_predivide_factor=1.0, average_aggregated_gradients=False, num_groups=0, groups=None,
                         process_set=global_process_set, scale_local_gradients=True):
    """Returns an optimizer that applies gradients which are reduced over the ranks of the set.

    optimizer: of tf.compat.v1.train or of Keras. All arguments are those of DistributedGradientTape, and:
    backward_passes_per_step: gradients are added up on this rank that many times before they are reduced and applied.
    average_aggregated_gradients: they are then divided by that number.
    """
    if op == Adasum and average_aggregated_gradients:
        raise ValueError("op=hvd.Adasum does not go together with average_aggregated_gradients=True")
    if backward_passes_per_step <= 0:
        raise ValueError(f"backward_passes_per_step is greater than 0, not {backward_passes_per_step}")
    if not isinstance(optimizer, tf.compat.v1.train.Optimizer):
        from horovod.tensorflow import keras
        return keras.DistributedOptimizer(
            optimizer, name=name, device_dense=device_dense, device_sparse=device_sparse, compression=compression,
            sparse_as_dense=sparse_as_dense, gradient_predivide_factor=gradient_predivide_factor, op=op,
            backward_passes_per_step=backward_passes_per_step,
            average_aggregated_gradients=average_aggregated_gradients, num_groups=num_groups, groups=groups,
            process_set=process_set, scale_local_gradients=scale_local_gradients)
    if isinstance(optimizer, _DistributedOptimizer):
        raise ValueError("this optimizer is an hvd.DistributedOptimizer already; its gradients would be reduced twice")
    if op == Adasum:
        check_adasum(process_set)
    name = name or f"Distributed{type(optimizer).__name__}"
    reduction = GradientReduction(name, device_dense, device_sparse, compression, sparse_as_dense, op,
                                  gradient_predivide_factor, num_groups, groups, process_set, scale_local_gradients)
    if op == Adasum:
        return _DistributedAdasumOptimizer(optimizer, name, use_locking, reduction, backward_passes_per_step)
    return _DistributedOptimizer(optimizer, name, use_locking, reduction, backward_passes_per_step, sparse_as_dense,
                                 average_aggregated_gradients)
