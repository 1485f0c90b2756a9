"""Models that were saved, with their optimizers."""


def load_model(keras, wrap, filepath, custom_optimizers, custom_objects):
    """Loads a model of Keras and makes its optimizer a distributed one, by wrap(optimizer), in the saved state."""
    objects = {cls.__name__: cls for cls in custom_optimizers or []}
    objects.update(custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=objects)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or hasattr(optimizer, "_hvd"):
        return model
    model.optimizer = _in_state_of(optimizer, wrap(optimizer), model)
    model.train_function = None  # it has the other optimizer in it
    return model


def _variables(optimizer):
    variables = optimizer.variables
    return list(variables() if callable(variables) and not isinstance(variables, (list, tuple)) else variables)


def _in_state_of(optimizer, distributed, model):
    if hasattr(distributed, "build"):
        distributed.build(model.trainable_variables)
        for own, saved in zip(_variables(distributed), _variables(optimizer)):
            own.assign(saved)
    else:  # an optimizer of the old Keras 2
        distributed._create_all_weights(model.trainable_variables)
        saved = optimizer.get_weights()
        if saved:
            distributed.set_weights(saved)
    return distributed
