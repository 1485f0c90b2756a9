"""Gradients of Keras that are added up on this rank for several backward passes, and then reduced once."""


def aggregation_for(keras, backward_passes_per_step, average, sparse_as_dense):
    if keras.backend.backend() == "tensorflow":
        return _OnTensorFlow(backward_passes_per_step, average, sparse_as_dense)
    return _OnTorch(keras, backward_passes_per_step, average)


class _Sums:
    """Of the passes since the last step."""

    # ids of a call's variables -> its counter, {number of the gradient -> sum}, the variables, which keep their ids
    _states: dict

    def passes_done(self):
        return max((int(counter.numpy()) for counter, _, _ in self._states.values()), default=0)

    def forget(self):
        """The training goes back to an earlier state, and computes these gradients again."""
        for counter, sums, _ in self._states.values():
            counter.assign(0)
            self._clear(sums)


class _OnTorch(_Sums):
    """Adds gradients up, and reduces and applies the sums at every k-th call with the same variables."""

    def __init__(self, keras, backward_passes_per_step, average):
        self.backward_passes_per_step = backward_passes_per_step
        self._new_counter = lambda: keras.Variable(0, trainable=False, dtype="int32", name="aggregation_counter")
        self.counter = self._new_counter()  # of the first list of variables
        self._average = average
        self._states = {}

    def apply(self, optimizer, gradients, variables, reduce, apply_now):
        key = tuple(id(variable) for variable in variables)
        if key not in self._states:
            self._states[key] = (self._new_counter() if self._states else self.counter, {}, variables)
        counter, sums, _ = self._states[key]
        for i, gradient in enumerate(gradients):
            if gradient is not None:  # detached copies: the gradients are those of the next pass, too
                sums[i] = sums[i] + gradient.detach() if i in sums else gradient.detach().clone()
        counter.assign_add(1)
        if int(counter.numpy()) < self.backward_passes_per_step:
            optimizer.iterations.assign_add(1)
            return
        divisor = self.backward_passes_per_step if self._average else 1
        added = [sums[i] / divisor if i in sums else None for i in range(len(gradients))]
        sums.clear()
        counter.assign(0)
        apply_now(reduce(added, variables))

    @staticmethod
    def _clear(sums):
        sums.clear()


def _new_counter():
    import tensorflow as tf
    return tf.Variable(0, trainable=False, dtype=tf.int32, name="aggregation_counter")


class _OnTensorFlow(_Sums):
    """Adds gradients up on this rank, and reduces and applies the sums at every k-th call with the same variables."""

    def __init__(self, backward_passes_per_step, average, sparse_as_dense):
        self.backward_passes_per_step = backward_passes_per_step
        self.counter = _new_counter()  # of the first list of variables
        self._average = average
        self._sparse_as_dense = sparse_as_dense
        self._states = {}

    def apply(self, optimizer, gradients, variables, reduce, apply_now):
        import tensorflow as tf

        from horovod.tensorflow.gradient_aggregation import dense
        gradients = [dense(gradient, self._sparse_as_dense) for gradient in gradients]
        counter, all_sums = self._state_for(gradients, variables)
        for i, gradient in enumerate(gradients):
            if gradient is not None:
                all_sums[i].assign_add(gradient)
        counter.assign_add(1)

        def apply_sums():
            sums = [None if gradient is None else tf.identity(all_sums[i]) for i, gradient in enumerate(gradients)]
            if self._average:
                sums = [each if each is None else each / tf.cast(self.backward_passes_per_step, each.dtype)
                        for each in sums]
            apply_now(reduce(sums, variables))
            self._clear(all_sums)
            counter.assign(0)
            return tf.constant(True)

        def only_count():
            optimizer.iterations.assign_add(1)
            return tf.constant(False)

        is_due = tf.equal(counter, self.backward_passes_per_step)
        if tf.executing_eagerly():
            return apply_sums() if is_due else only_count()
        return tf.cond(is_due, apply_sums, only_count)

    @staticmethod
    def _clear(sums):
        import tensorflow as tf
        for each in sums.values():
            each.assign(tf.zeros_like(each))

    def _state_for(self, gradients, variables):
        """Returns the counter and the sums of calls with these variables, such as those of one of two models."""
        import tensorflow as tf
        key = tuple(id(variable) for variable in variables)
        with tf.init_scope():
            if key not in self._states:
                self._states[key] = (_new_counter() if self._states else self.counter, {}, variables)
            counter, sums, _ = self._states[key]
            for i, gradient in enumerate(gradients):
                if gradient is not None and i not in sums:
                    sums[i] = tf.Variable(tf.zeros(variables[i].shape, gradient.dtype), trainable=False,
                                          name=f"aggregation_sum_{i}")
        return counter, sums
