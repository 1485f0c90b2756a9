"""How gradients of a tape or an optimizer are reduced: the arguments that both take, and what they do."""
import warnings

import tensorflow as tf

from horovod import _ops
from horovod.common.groups import checked_groups, places_together
from horovod.common.operations import name_of_variable, place_in, ranks_may_change
from horovod.common.process_sets import ProcessSet
from horovod.tensorflow import _collectives, mpi_ops
from horovod.tensorflow._job import Average, rocm_built
from horovod.tensorflow._names import executing_eagerly, normalize, tell_models_apart

_functions = {}  # what eager programs call: (job, settings, names, groups) -> a tf.function


def key_of(variable):
    """Something that is equal for the same variable alone. Variables of Keras 3 have no ref()."""
    return variable.ref() if hasattr(variable, "ref") else id(variable)


def vars_to_refs(variables):
    """Returns the same nest with hashable references."""
    if isinstance(variables, (list, tuple)):
        return tuple(vars_to_refs(each) for each in variables)
    return variables.ref() if hasattr(variables, "ref") else variables


def refs_to_vars(references):
    if isinstance(references, (list, tuple)):
        return [refs_to_vars(each) for each in references]
    return references.deref() if hasattr(references, "deref") else references


class GradientReduction:
    def __init__(self, name, device_dense, device_sparse, compression, sparse_as_dense, op, gradient_predivide_factor,
                 num_groups, groups, process_set, scale_local_gradients):
        if gradient_predivide_factor != 1.0:
            if rocm_built():
                raise ValueError("gradient_predivide_factor is not supported with ROCm")
            if op != Average:
                raise ValueError("gradient_predivide_factor is for op=hvd.Average only")
        if num_groups != 0:
            warnings.warn("Parameter `num_groups` has been replaced by `groups` and will be removed",
                          DeprecationWarning, stacklevel=4)
            groups = num_groups if groups is None else groups
        if not isinstance(process_set, ProcessSet):
            raise ValueError(f"process_set is an hvd.ProcessSet, not {process_set!r}")
        self.name = name
        self.op = op
        self.process_set = process_set
        self.scale_local_gradients = scale_local_gradients
        self._compression = compression
        self._sparse_as_dense = sparse_as_dense
        self._groups = checked_groups(groups)
        self._devices = {"device_dense": device_dense, "device_sparse": device_sparse}
        self._factors = {} if gradient_predivide_factor == 1.0 else \
            {"prescale_factor": 1.0 / gradient_predivide_factor, "postscale_factor": gradient_predivide_factor}
        self._settings = (name, op, compression, sparse_as_dense, gradient_predivide_factor, device_dense,
                          device_sparse)

    def _has_others(self):
        """Whether this rank has something to reduce with others. In an elastic job it may get others later, when a
        function that is being traced now runs."""
        place, size = place_in(self.process_set._check_id())
        return place >= 0 and (size > 1 or ranks_may_change())

    def reduce(self, gradients, variables, local=frozenset(), use_generic_names=False):
        """Returns the gradients, reduced over the ranks of the set. None stays None. Gradients of variables in `local`
        (key_of) stay this rank's own."""
        gradients, variables = list(gradients), list(variables)
        if not self._has_others():
            return [self._dense(gradient) for gradient in gradients]
        results = list(gradients)
        shared = [i for i, variable in enumerate(variables) if key_of(variable) not in local]
        if self.scale_local_gradients:
            for i in set(range(len(variables))).difference(shared):
                if gradients[i] is not None:
                    results[i] = _divided(gradients[i], mpi_ops.size_op(self.process_set._check_id()))
        # Ranks may have different numbers of local variables, so these do not count.
        chosen = {i: place for place, i in enumerate(shared) if gradients[i] is not None}
        if not chosen:
            return results
        variables = [variables[i] for i in chosen]
        names = [f"grad_{place}" if use_generic_names else self._name_of(variable, place)
                 for variable, place in zip(variables, chosen.values())]
        names = tell_models_apart(names, variables, self.process_set._check_id())
        groups = places_together(self._groups, variables, key_of)
        function = self._function(names, groups, use_generic_names)
        for i, reduced in zip(chosen, function([gradients[i] for i in chosen])):
            results[i] = reduced
        return results

    def _dense(self, gradient):
        is_sparse = isinstance(gradient, tf.IndexedSlices)
        return tf.convert_to_tensor(gradient) if is_sparse and self._sparse_as_dense else gradient

    def _name_of(self, variable, i):
        try:
            return f"{self.name}_{normalize(name_of_variable(variable, i))}"
        except AttributeError:  # a tensor of an eager program
            return f"{self.name}_grad_{i}"

    def _function(self, names, groups, ignore_name_scope):
        def reduce_all(gradients):
            return self._reduce_all(gradients, names, groups, ignore_name_scope)

        if not executing_eagerly():
            return reduce_all
        # In a function all reductions are on their way at the same time; called at once, each would wait for the last.
        set_id = self.process_set._check_id()  # the set may have been removed, and added again under another id
        key = (_ops.jobs, self._settings, self.process_set, set_id, tuple(names), groups, ignore_name_scope)
        found = _functions.get(key)
        if found is None:
            found = _functions[key] = tf.function(reduce_all, autograph=False, reduce_retracing=True)
        return found

    def _reduce_all(self, gradients, names, groups, ignore_name_scope):
        gradients = [self._dense(each) for each in gradients]
        more = dict(self._devices, compression=self._compression, op=self.op, process_set=self.process_set,
                    ignore_name_scope=ignore_name_scope)
        results = [None] * len(gradients)
        for group in groups:
            members = [gradients[i] for i in group]
            # Gathered slices need no factors: their sum is divided.
            factors = {} if any(isinstance(each, tf.IndexedSlices) for each in members) else self._factors
            if len(group) == 1 and not isinstance(self._groups, int):
                reduced = [_collectives.allreduce(members[0], name=names[group[0]], **factors, **more)]
            else:
                name = f"{names[group[0]]}_to_{names[group[-1]]}"
                reduced = _collectives.grouped_allreduce(members, name=name, **factors, **more)
            for i, each in zip(group, reduced):
                results[i] = each
        return results


def _divided(gradient, size):
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(_divided(gradient.values, size), gradient.indices, gradient.dense_shape)
    return gradient / tf.cast(size, gradient.dtype)
