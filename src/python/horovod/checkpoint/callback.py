"""A Checkpointer for loops that call their callbacks by Keras's names."""


class CheckpointCallback:
    """Saves as its checkpointer does, and ends the training at the step at which all ranks are to stop.

        model.fit(data, epochs=90, callbacks=[CheckpointCallback(checkpointer)])

    It depends on no framework: any loop may call the methods, and must end when `model.stop_training` is true. Steps
    are counted over all epochs, from the step that the checkpointer restored. Afterwards look at checkpointer.stopped,
    and end with checkpointer.exit_code if it is true.
    """

    def __init__(self, checkpointer):
        self.checkpointer = checkpointer
        self.model = None
        self.params = None
        self.step = None

    def set_model(self, model):
        self.model = model

    def set_params(self, params):
        self.params = params

    def on_train_begin(self, logs=None):
        self.step = self.checkpointer.restored_step or 0

    def on_train_batch_end(self, batch, logs=None):
        self.step += 1
        self.checkpointer.step(self.step)
        if self.checkpointer.stopped and self.model is not None:
            self.model.stop_training = True

    def on_train_end(self, logs=None):
        self.checkpointer.close()

    def __getattr__(self, name):  # moments of the training at which this callback does nothing
        if name.startswith("on_"):
            return _nothing
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")


def _nothing(*_, **__):
    """Does nothing. This is the method for all moments that do not matter here."""
