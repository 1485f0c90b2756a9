"""Optimizers of Keras whose gradients are reduced over the ranks."""
import contextlib

from horovod import _core
from horovod._keras.aggregation import aggregation_for
from horovod._keras.backends import backend_of, reduction_for


class _Distribution:
    """What a distributed optimizer knows besides what its own class knows."""

    def __init__(self, reduction, key_of, aggregation):
        self.reduction = reduction
        self.aggregation = aggregation
        self.local = set()
        self.is_reduced = False  # the gradients that are applied next are reduced already
        self.key_of = key_of

    def reduce(self, gradients, variables):
        return self.reduction.reduce(gradients, variables, self.local)

    def take_reduced(self):
        was, self.is_reduced = self.is_reduced, False
        return was

    @contextlib.contextmanager
    def reduced_outside(self):
        self.is_reduced = True
        try:
            yield
        finally:
            self.is_reduced = False

    def apply(self, optimizer, gradients, variables, apply_now):
        """apply_now: applies gradients that are reduced."""
        gradients, variables = list(gradients), list(variables)
        if self.take_reduced():
            return apply_now(gradients)
        if self.aggregation is None:
            return apply_now(self.reduce(gradients, variables))
        return self.aggregation.apply(optimizer, gradients, variables, self.reduce, apply_now)


class _Common:
    @classmethod
    def from_config(cls, *args, **kwargs):
        made = super().from_config(*args, **kwargs)
        made._hvd = cls._new_distribution()
        return made

    def register_local_var(self, var):
        """The gradients of this variable stay this rank's own."""
        self._hvd.local.add(self._hvd.key_of(var))

    @property
    def _agg_helper(self):
        return self._hvd.aggregation


class _Keras3(_Common):
    def apply(self, grads, trainable_variables=None):
        variables = self._trainable_variables if trainable_variables is None else list(trainable_variables)
        if not self.built:
            self.build(variables)
        return self._hvd.apply(self, grads, variables, lambda reduced: super(_Keras3, self).apply(
            reduced, trainable_variables))

    def __reduce__(self):
        """Keras copies by the name of the class, which is that of the optimizer that was wrapped."""
        raise TypeError("a copy of an hvd.DistributedOptimizer would not reduce gradients: copy the optimizer of which "
                        "it was made, and give the copy to hvd.DistributedOptimizer")


class _Keras2(_Common):
    def _reduce_pairs(self, pairs):
        pairs = list(pairs)
        if self._hvd.aggregation is not None or not pairs:
            return pairs
        gradients, variables = zip(*pairs)
        reduced = self._hvd.reduce(gradients, variables)
        self._hvd.is_reduced = True
        return list(zip(reduced, variables))

    def compute_gradients(self, *args, **kwargs):
        return self._reduce_pairs(super().compute_gradients(*args, **kwargs))

    def _compute_gradients(self, *args, **kwargs):
        return self._reduce_pairs(super()._compute_gradients(*args, **kwargs))

    def get_gradients(self, loss, params):
        gradients = super().get_gradients(loss, params)
        return [gradient for gradient, _ in self._reduce_pairs(zip(gradients, params))]

    def apply_gradients(self, grads_and_vars, *args, **kwargs):
        pairs = list(grads_and_vars)
        variables = [variable for _, variable in pairs]
        if self._hvd.aggregation is not None and hasattr(self, "build"):
            import tensorflow as tf
            with tf.init_scope():
                self.build(variables)
        return self._hvd.apply(self, [gradient for gradient, _ in pairs], variables,
                               lambda reduced: super(_Keras2, self).apply_gradients(zip(reduced, variables), *args,
                                                                                    **kwargs))


def _check(optimizer, op, backward_passes_per_step, backend):
    if hasattr(optimizer, "_hvd"):
        raise ValueError("this optimizer is an hvd.DistributedOptimizer already; its gradients would be reduced twice")
    if op not in (_core.AVERAGE, _core.SUM):
        raise ValueError(f"DistributedOptimizer of Keras: op is hvd.Average or hvd.Sum, not {op!r}")
    if backward_passes_per_step <= 0:
        raise ValueError(f"backward_passes_per_step is greater than 0, not {backward_passes_per_step}")
    if backward_passes_per_step > 1 and backend not in ("tensorflow", "torch"):
        raise NotImplementedError("backward_passes_per_step > 1 is there for Keras on TensorFlow and on torch; on "
                                  f"{backend} give the optimizer gradient_accumulation_steps=")


def create_distributed_optimizer(keras, optimizer, name, device_dense, device_sparse, compression, sparse_as_dense,
                                 gradient_predivide_factor, op, backward_passes_per_step, average_aggregated_gradients,
                                 num_groups, groups, process_set, scale_local_gradients):
    """Returns a new optimizer with the settings of `optimizer`, of a class that is called like its class and derives
    from it. The state of `optimizer` is not copied."""
    backend = backend_of(keras)
    if not hasattr(optimizer, "get_config") or not hasattr(optimizer, "apply_gradients"):
        raise ValueError(f"DistributedOptimizer: expected an optimizer of Keras, found {type(optimizer).__name__}")
    _check(optimizer, op, backward_passes_per_step, backend)
    base = type(optimizer)
    scaled = optimizer.inner_optimizer if scales_losses(keras, optimizer) else optimizer
    name = name or f"Distributed{type(scaled).__name__}"

    def new_distribution():
        reduction, key_of = reduction_for(keras, name, device_dense, device_sparse, compression, sparse_as_dense, op,
                                          gradient_predivide_factor, num_groups, groups, process_set,
                                          scale_local_gradients)
        aggregation = None
        if backward_passes_per_step > 1:
            aggregation = aggregation_for(keras, backward_passes_per_step, average_aggregated_gradients,
                                          sparse_as_dense)
        return _Distribution(reduction, key_of, aggregation)

    # Saved models name the class by module and name. They are loaded where there is no Horovod, too.
    attributes = {"__module__": base.__module__, "__doc__": base.__doc__,
                  "_new_distribution": staticmethod(new_distribution)}
    cls = type(base.__name__, (_Keras3 if hasattr(base, "apply") else _Keras2, base), attributes)
    _be_exported_as(base, cls)
    _see_through_loss_scaling(keras)
    if backend == "tensorflow":
        _keep_out_of_xla(keras)
    return cls.from_config(_config_of(optimizer, name, scaled is not optimizer))


def _config_of(optimizer, name, is_scaling):
    """The settings. A schedule stays the object that it is, since the class of a user's own cannot be found by name."""
    config = optimizer.get_config()
    schedule = getattr(optimizer, "_learning_rate", None)
    if isinstance(config.get("learning_rate"), dict) and callable(schedule):
        config["learning_rate"] = schedule
    # Loss scaling may be around ours or within it, and not on all ranks alike: the names are the same.
    named = config["inner_optimizer"]["config"] if is_scaling else config
    named["name"] = name
    return config


def _be_exported_as(base, cls):
    """Makes Keras 3 write the public name of `base` for `cls`, such as keras.optimizers.Adam."""
    try:
        from keras.src import api_export
        names = api_export.REGISTERED_SYMBOLS_TO_NAMES
        exported = next((each for each in base.__mro__ if each in names and each.__name__ == base.__name__), None)
        if exported is not None:
            names[cls] = names[exported]
    except (ImportError, AttributeError):
        pass  # it then writes the module in which `base` is defined


def _loss_scaling(keras):
    """Returns the class of Keras 3 and that of Keras 2, None where there is none."""
    return (getattr(keras.optimizers, "LossScaleOptimizer", None),
            getattr(getattr(keras, "mixed_precision", None), "LossScaleOptimizer", None))


def scales_losses(keras, optimizer):
    """Whether it is loss scaling around another optimizer. Optimizers of other kinds have inner ones, too."""
    return isinstance(optimizer, tuple(each for each in _loss_scaling(keras) if each is not None))


def _see_through_loss_scaling(keras):
    """Reduces the gradients before an optimizer around ours looks for infinities in them. Else one rank alone could
    skip the step, and the others would wait for it. (Keras puts this optimizer around ours by itself.)"""
    new, old = _loss_scaling(keras)
    if new is not None and hasattr(new, "apply") and not hasattr(new.apply, "_hvd"):
        new.apply = _around_apply(new.apply)
        if hasattr(new, "stateless_apply"):
            new.stateless_apply = _around_stateless_apply(new.stateless_apply)
    elif old is not None and not hasattr(old, "apply"):
        for cls in (old, *_subclasses(old)):
            if "apply_gradients" in vars(cls) and not hasattr(cls.apply_gradients, "_hvd"):
                cls.apply_gradients = _around_apply_gradients(cls.apply_gradients)


def _keep_out_of_xla(keras):
    """Makes Keras 3 not choose XLA for a model with a distributed optimizer, unless it is told to. (It does so where
    there is a GPU.)"""
    chosen = getattr(keras.Model, "_resolve_auto_jit_compile", None)
    if chosen is None or hasattr(chosen, "_hvd"):
        return

    def resolve(model):
        optimizer = getattr(model, "optimizer", None)
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        return False if hasattr(optimizer, "_hvd") else chosen(model)

    resolve._hvd = True
    keras.Model._resolve_auto_jit_compile = resolve


def _subclasses(cls):
    return [each for child in cls.__subclasses__() for each in (child, *_subclasses(child))]


def _of_inner(optimizer):
    inner = getattr(optimizer, "inner_optimizer", None)
    distribution = getattr(inner, "_hvd", None)
    if distribution is not None and distribution.aggregation is not None:
        raise NotImplementedError("backward_passes_per_step > 1 does not go together with loss scaling; use "
                                  "gradient_accumulation_steps= of the optimizer")
    return distribution if not hasattr(optimizer, "_hvd") else None


def _around_apply(original):
    def apply(self, grads, trainable_variables=None):
        distribution = _of_inner(self)
        if distribution is None:
            return original(self, grads, trainable_variables)
        variables = self._trainable_variables if trainable_variables is None else list(trainable_variables)
        reduced = distribution.reduce(grads, variables)
        with distribution.reduced_outside():
            return original(self, reduced, trainable_variables)

    apply._hvd = True
    return apply


def _around_stateless_apply(original):
    """For JAX, where Keras looks for infinities here, and gives the gradients to the inner optimizer alone: apply() of
    an optimizer of ours that is loss scaling itself is not called."""
    def stateless_apply(self, optimizer_variables, grads, trainable_variables):
        distribution = getattr(self, "_hvd", None) or _of_inner(self)
        if distribution is None:
            return original(self, optimizer_variables, grads, trainable_variables)
        reduced = distribution.reduce(grads, self._trainable_variables)
        with distribution.reduced_outside():
            return original(self, optimizer_variables, reduced, trainable_variables)

    return stateless_apply


def _around_apply_gradients(original):
    def apply_gradients(self, grads_and_vars, *args, **kwargs):
        distribution = _of_inner(self)
        pairs = list(grads_and_vars)
        if distribution is None or not pairs:
            return original(self, pairs, *args, **kwargs)
        gradients, variables = zip(*pairs)
        reduced = distribution.reduce(gradients, variables)
        with distribution.reduced_outside():
            return original(self, zip(reduced, variables), *args, **kwargs)

    apply_gradients._hvd = True
    return apply_gradients
