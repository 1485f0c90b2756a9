"""Gradients that are added up on this rank for several backward passes, and then reduced once."""
import weakref

import numpy as np
import tensorflow as tf

_all = weakref.WeakSet()


class OpenStep:
    """The backward passes that this rank has done for a step that is not made yet. Elastic states forget them."""

    def __init__(self, backward_passes_per_step):
        self.backward_passes_per_step = backward_passes_per_step
        self.counter = None
        self._graph = None  # of the variables; None if they are eager
        _all.add(self)

    @staticmethod
    def all_in(session):
        """Returns those whose variables are in the graph of this session; without one, those that are eager."""
        return [each for each in _all if each.counter is not None and
                each._graph is (None if session is None else session.graph)]

    def make_counter(self, name):
        self._graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        self.counter = tf.Variable(0, trainable=False, dtype=tf.int32, name=f"{name}_counter")

    def own_variables(self):
        """Returns the variables that no other rank has."""
        return [self.counter]

    def passes_done(self, session):
        count = self.counter.numpy() if session is None else session.run(self.counter)
        return int(count) % self.backward_passes_per_step

    def forget(self, session):
        for each in self.own_variables():
            zeros = np.zeros(each.shape, each.dtype.as_numpy_dtype)
            if session is None:
                each.assign(zeros)
            else:
                each.load(zeros, session)  # makes no operation: the graph may be finalized


def dense(gradient, sparse_as_dense):
    """Returns the gradient as a tensor, which can be added to a sum."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    if not sparse_as_dense:
        raise ValueError("backward_passes_per_step > 1 needs sparse_as_dense=True for gradients that are "
                         "tf.IndexedSlices")
    return tf.convert_to_tensor(gradient)


class LocalGradientAggregationHelper(OpenStep):
    """For graphs of TensorFlow 1.

    reduce: takes gradients and variables, and returns the reduced gradients.
    """

    def __init__(self, backward_passes_per_step, reduce, sparse_as_dense=False, average_aggregated_gradients=False,
                 name="aggregation"):
        if backward_passes_per_step <= 0:
            raise ValueError(f"backward_passes_per_step is greater than 0, not {backward_passes_per_step}")
        super().__init__(backward_passes_per_step)
        self._reduce = reduce
        self._sparse_as_dense = sparse_as_dense
        self._average = average_aggregated_gradients
        self._name = name
        self._sums = {}  # number of the gradient -> tf.Variable
        self._is_due = None

    def compute_gradients(self, gradients, variables):
        """Adds the gradients. Returns the sums, which are reduced in every `backward_passes_per_step`-th run."""
        gradients = [dense(gradient, self._sparse_as_dense) for gradient in gradients]
        there = [i for i, gradient in enumerate(gradients) if gradient is not None]
        with tf.init_scope():
            self.make_counter(self._name)
            for i in there:
                self._sums[i] = tf.Variable(tf.zeros(gradients[i].shape, gradients[i].dtype), trainable=False,
                                            name=f"{self._name}_sum_{i}")
        added = [self._sums[i].assign_add(gradients[i]) for i in there] + [self.counter.assign_add(1)]
        with tf.control_dependencies(added):
            self._is_due = tf.equal(self.counter.read_value() % self.backward_passes_per_step, 0)
            sums = [self._sums[i].read_value() for i in there]
        reduced = tf.cond(self._is_due, lambda: self._reduced(sums, [variables[i] for i in there]), lambda: sums)
        results = list(gradients)
        for i, gradient in zip(there, reduced if isinstance(reduced, (list, tuple)) else [reduced]):
            results[i] = gradient
        return results

    def own_variables(self):
        return [self.counter, *self._sums.values()]

    def _reduced(self, sums, variables):
        if self._average:
            sums = [each / tf.cast(self.backward_passes_per_step, each.dtype) for each in sums]
        return self._reduce(sums, variables)

    def apply_gradients(self, apply):
        """Returns an operation that runs apply() and clears the sums when the sums were reduced, else nothing."""
        def applied():
            with tf.control_dependencies([apply()]):
                return tf.group(*[each.assign(tf.zeros_like(each)) for each in self._sums.values()])

        return tf.cond(self._is_due, applied, tf.no_op)
