"""Models that were saved, with their optimizers."""
from horovod._keras.optimizers import scales_losses


def load_model(keras, wrap, filepath, custom_optimizers, custom_objects):
    """Loads a model of Keras and makes its optimizer a distributed one, by wrap(optimizer), in the saved state."""
    objects = {cls.__name__: cls for cls in custom_optimizers or []}
    objects.update(custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=objects)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or hasattr(optimizer, "_hvd"):
        return model
    model.optimizer = _in_state_of(optimizer, _distributed(keras, optimizer, wrap), model)
    model.train_function = None  # it has the other optimizer in it
    return model


def _distributed(keras, optimizer, wrap):
    """Loss scaling stays around the distributed optimizer, where model.compile() puts it on ranks that load nothing:
    all ranks must give gradients and variables the same names."""
    if not scales_losses(keras, optimizer):
        return wrap(optimizer)
    config = optimizer.get_config()
    settings = ("name", "dynamic", "initial_scale", "dynamic_growth_steps")
    given = {name: config[name] for name in settings if name in config}
    return type(optimizer)(wrap(optimizer.inner_optimizer), **given)


def variables_of(optimizer):
    variables = optimizer.variables
    return list(variables() if callable(variables) and not isinstance(variables, (list, tuple)) else variables)


def build_optimizer(optimizer, model):
    """Makes the variables of the optimizer, if it has not got them yet."""
    if not hasattr(optimizer, "build"):  # an optimizer of the old Keras 2
        optimizer._create_all_weights(model.trainable_variables)
    elif not getattr(optimizer, "built", False):
        optimizer.build(model.trainable_variables)


def _in_state_of(optimizer, distributed, model):
    build_optimizer(distributed, model)
    if hasattr(distributed, "build"):
        for own, saved in zip(variables_of(distributed), variables_of(optimizer)):
            own.assign(saved)
    else:  # an optimizer of the old Keras 2
        saved = optimizer.get_weights()
        if saved:
            distributed.set_weights(saved)
    return distributed
