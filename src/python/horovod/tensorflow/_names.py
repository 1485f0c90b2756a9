"""The names of operations. All ranks must give an operation the same name, whatever else they have traced before."""
import itertools
import re
import weakref

import tensorflow as tf

_numbers = {}  # (process set, names, ids of the variables) -> (weak references to the variables, number)


def normalize(name):
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)


def executing_eagerly():
    return tf.executing_eagerly()


def check_no_xla(operation):
    """Raises if the operation is being traced for XLA, which has no such operation."""
    if executing_eagerly() or not _is_for_xla(tf.compat.v1.get_default_graph()):
        return
    raise NotImplementedError(f"{operation} cannot be compiled by XLA: take jit_compile=True away from the tf.function "
                              "or from model.compile() (jit_compile=False), or keep the call of Horovod outside of the "
                              "compiled function")


def _is_for_xla(graph):
    try:
        from tensorflow.python.ops import control_flow_util
        return control_flow_util.GraphOrParentsInXlaContext(graph)
    except (ImportError, AttributeError):  # TensorFlow then says that there is no kernel for XLA
        return False


def default_name(operation, tensors):
    """Returns the name of an operation that the user has not named."""
    if executing_eagerly():
        return f"{operation}.noname"  # such operations run one after another
    names = [tensor.name for tensor in (tensors[:1] if len(tensors) == 1 else [tensors[0], tensors[-1]])]
    return operation + "_" + "_".join(normalize(name) for name in names)


def node_and_tensor_name(name, ignore_name_scope):
    """Returns the name for the node, and the name under which ranks meet.

    That is the name that the node gets, with those of the functions around it: an operation of a function must not meet
    one of the function that calls it.
    """
    if executing_eagerly():
        return None, name.rsplit("/", 1)[-1] if ignore_name_scope else name
    graph = tf.compat.v1.get_default_graph()
    node = re.sub(r"[^A-Za-z0-9_.\-/]", "_", name)
    if not re.match(r"[A-Za-z0-9.]", node):
        node = "Horovod" + node
    full = graph.unique_name(node, mark_as_used=False)
    if ignore_name_scope:
        return node, full.rsplit("/", 1)[-1]
    around = []
    while graph is not None and getattr(graph, "outer_graph", None) is not None:
        # TensorFlow numbers functions of conditions and loops in the order of tracing.
        around.insert(0, re.sub(r"(_\d+)+$", "", graph.name))
        graph = graph.outer_graph
    return node, "/".join(around + [full])


@tf.autograph.experimental.do_not_convert
def tell_models_apart(names, variables, set_id):
    """Returns names of reductions that no other variables have in the outermost function that is being traced.

    One inner function may train several models, and TensorFlow may run its calls at the same time. Models are numbered
    in the order in which the outermost function reduces them. That order, unlike one of the whole process, is that of
    a rank which starts later in an elastic job. A list of variables keeps its number when it is traced again.
    """
    graph = _outermost_function()
    if graph is None:
        return names
    taken = graph._hvd_taken = getattr(graph, "_hvd_taken", {})
    key = (set_id, tuple(names), tuple(map(id, variables)))
    references, known = _numbers.get(key, ((), 0))
    alive = references and all(reference() is each for reference, each in zip(references, variables))
    for number in itertools.chain([known] if alive else [], itertools.count()):
        own = {(set_id, number, name): each for name, each in zip(names, variables)}
        if all(taken.get(place, each) is each for place, each in own.items()):
            break
    taken.update(own)
    for old in [each for each, (references, _) in _numbers.items() if any(one() is None for one in references)]:
        del _numbers[old]
    _numbers[key] = [weakref.ref(each) for each in variables], number
    return [f"{name}_of_model_{number}" for name in names] if number else names


def _outermost_function():
    """Returns the graph of the outermost function that is being traced, or of TensorFlow 1; None in eager mode."""
    if executing_eagerly():
        return None
    graph = tf.compat.v1.get_default_graph()
    in_graph_of_1 = not tf.compat.v1.executing_eagerly_outside_functions()
    while hasattr(graph, "outer_graph") and (in_graph_of_1 or hasattr(graph.outer_graph, "outer_graph")):
        graph = graph.outer_graph
    return graph
