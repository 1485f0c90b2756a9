"""The names of Horovod that this version does not have. A program that uses one gets an error that says what to do."""

_INSTEAD = {
    "horovod.mxnet": "Its binding is to come; horovod.torch and horovod.tensorflow are there",
    "horovod.spark": "Start the program itself: horovodrun -np 4 python train.py",
    "horovod.ray": "Start the program itself: horovodrun -np 4 python train.py"}


def text_about(name):
    return f"{name} is not part of this version of Horovod yet. {_INSTEAD[name]}."


def not_here(name):
    """Returns the error that the module of that name must raise."""
    # The error has no attribute `name`. With it, `from package import name` would report an ordinary missing name.
    return ModuleNotFoundError(text_about(name))
