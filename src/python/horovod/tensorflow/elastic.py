"""Elastic training with TensorFlow: `hvd.elastic`."""
import numpy as np
import tensorflow as tf

from horovod import _core
from horovod._keras import arrays
from horovod._keras.elastic import ModelState, check_is_not_live, from_rank_0, make_run
from horovod._keras.elastic import rank as _rank
from horovod.common.elastic import ObjectState
from horovod.common.exceptions import HorovodInternalError
from horovod.tensorflow._job import _basics
from horovod.tensorflow._library import failures
from horovod.tensorflow.gradient_aggregation import OpenStep

__all__ = ["TensorFlowKerasState", "TensorFlowState", "run"]

_failures_before = 0  # the training that runs


def forget_failures():
    global _failures_before
    _failures_before = failures()


def failure_of(error):
    """Returns the HorovodInternalError that an operation within TensorFlow has raised, or None."""
    if isinstance(error, HorovodInternalError):
        return error
    is_ours = isinstance(error, tf.errors.UnknownError) and failures() > _failures_before
    return HorovodInternalError(error.message) if is_ours else None


run = make_run(_basics, failure_of, forget_failures)


class TensorFlowKerasState(ModelState):
    __doc__ = ModelState.__doc__


class TensorFlowState(ObjectState):
    """The state of a training: variables of TensorFlow, and anything else by its name.

    variables: by default all global variables of the graph, except the sums of backward_passes_per_step. session: that
    of TensorFlow 1's graph; by default the current one.
    """

    def __init__(self, variables=None, session=None, **kwargs):
        check_is_not_live(self, kwargs)
        self.session = session or tf.compat.v1.get_default_session()
        if variables is None:
            own = {id(variable) for step in OpenStep.all_in(self.session) for variable in step.own_variables()}
            variables = [each for each in tf.compat.v1.global_variables() if id(each) not in own]
        self.variables = list(variables)
        super().__init__(bcast_object=from_rank_0, get_rank=_rank, **kwargs)

    def _copies(self):
        if self.session is None:
            return [np.array(each.numpy()) for each in self.variables]
        return [np.array(each) for each in self.session.run(self.variables)] if self.variables else []

    def _write(self, values):
        for variable, value in zip(self.variables, values):
            if self.session is None:
                variable.assign(value)
            else:
                variable.load(value, self.session)

    def _passes_done(self):
        found = [(step.passes_done(self.session), step.backward_passes_per_step)
                 for step in OpenStep.all_in(self.session)]
        return max(found, default=super()._passes_done())

    def _forget_passes(self):
        """A process that has joined has done none, and all must reduce together."""
        for step in OpenStep.all_in(self.session):
            step.forget(self.session)

    def restore(self):
        self._write(self._kept.copies)
        self._forget_passes()
        super().restore()

    def sync(self):
        """Takes over the state of rank 0, which a restore goes back to from now on."""
        values = self._copies()
        sent = [i for i, value in enumerate(values) if value.dtype != object]  # every rank has made its own texts
        if _core.has_place():
            names = [f"elastic.variables.{i}" for i in sent]
            for i, value in zip(sent, arrays.broadcast_all([values[i] for i in sent], names, 0)):
                values[i] = value
            self._write(values)
        self._forget_passes()
        super().sync()
