"""Variables and Python objects that all ranks shall have alike."""
import functools

import tensorflow as tf

from horovod.common import objects
from horovod.common.operations import name_to_broadcast
from horovod.common.process_sets import global_process_set
from horovod.tensorflow import mpi_ops
from horovod.tensorflow._names import executing_eagerly, normalize


def tensor_variable(variable):
    """Returns the tf.Variable in a variable of Keras 3; others are returned."""
    inner = getattr(variable, "_value", None)
    return inner if isinstance(inner, tf.Variable) else variable


def _check_built(variables):
    variables = list(variables)
    for variable in variables:
        if getattr(variable, "_initializer", None) is not None and getattr(variable, "_value", True) is None:
            raise ValueError(f"variable {variable.name!r} has no values yet; build the model first, as by calling it "
                             "once or by model.build(input_shape)")
    return variables


def _assignments(variables, root_rank, process_set):
    for i, variable in enumerate(variables):
        name = f"HorovodBroadcast_{normalize(name_to_broadcast(variable, i))}"
        variable = tensor_variable(variable)
        value = tf.convert_to_tensor(variable)
        if value.dtype == tf.string:  # as of tables of words; every rank has made its own
            continue
        yield variable.assign(mpi_ops.broadcast(value, root_rank, name=name, process_set=process_set))


def broadcast_variables(variables, root_rank, process_set=global_process_set, inplace=False):
    """Gives the variables of all ranks of the set the root's values. In a graph it returns the operation that does
    that.

    inplace: accepted for compatibility; the result is the same.
    """
    variables = _check_built(variables)
    if not executing_eagerly():
        return tf.group(*_assignments(variables, root_rank, process_set))
    if variables:
        @functools.partial(tf.function, autograph=False)  # in a function all are on their way at the same time
        def assign_all():
            list(_assignments(variables, root_rank, process_set))

        assign_all()
    return None


def broadcast_object(obj, root_rank=0, session=None, name=None, process_set=global_process_set):
    """Returns the root's object on every rank; other ranks may pass any object. session: not needed, as nothing of it
    is in a graph."""
    return objects.broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(root_rank=0, session=None, name=None, process_set=global_process_set):
    """Returns the function obj -> the root's object, which may be called again and again."""
    return lambda obj=None: objects.broadcast_object(obj, root_rank, name, process_set)


def allgather_object(obj, session=None, name=None, process_set=global_process_set):
    """Returns the list of all ranks' objects, in the order of ranks."""
    return objects.allgather_object(obj, name, process_set)


def broadcast_global_variables(root_rank):
    """Returns the operation that gives all global variables of the graph the root's values. RuntimeError in
    eager mode, where programs call broadcast_variables(model.variables, root_rank)."""
    if executing_eagerly():
        raise RuntimeError("hvd.broadcast_global_variables() needs a graph (tf.compat.v1.disable_eager_execution()); "
                           "in eager mode call hvd.broadcast_variables(variables, root_rank)")
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """Gives all global variables the root's values when a session has been created."""

    def __init__(self, root_rank, device=""):
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.bcast_op = None

    def begin(self):
        if self.bcast_op is None or self.bcast_op.graph is not tf.compat.v1.get_default_graph():
            with tf.device(self.device):
                self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session, coord):
        session.run(self.bcast_op)
