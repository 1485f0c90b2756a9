"""What an operation of any framework needs before it starts: a name, and checks of its arguments."""
import operator
import re

from horovod import _core, _ops
from horovod.common.exceptions import HorovodInternalError
from horovod.common.util import num_rank_is_power_2


# The numbers of the reduce operations, by the names that users write.
REDUCE_OPS = {name: getattr(_core, name.upper()) for name in ("Average", "Sum", "Adasum", "Min", "Max", "Product")}


def full_name_of(prefix, name, set_id):
    return f"{prefix}.noname.{_ops.new_unnamed(set_id)}" if name is None else f"{prefix}.{name}"


def name_of_variable(variable, i):
    """Returns what the ranks call the i-th variable of a list. A model that Keras has loaded has its name before those
    of its layers, and one that is built has not; Keras counts the layers of a process. So neither is in the name."""
    whole = getattr(variable, "path", None) or variable.name
    words = [re.sub(r"(_\d+)+$", "", word) for word in whole.partition(":")[0].split("/")]
    return "/".join([*words[-2:], str(i)])


def name_to_broadcast(variable, i):
    """Returns what the ranks call the i-th variable of a list when one rank gives its values to the others. A variable
    of an optimizer may have another name on each rank; it is not trainable, and has its place alone."""
    return name_of_variable(variable, i) if getattr(variable, "trainable", False) else str(i)


def names_of_group(prefix, name, count, set_id):
    """Returns the name of the group and the names of its members."""
    base = full_name_of(prefix, name, set_id)
    return base, [f"{base}_{i}of{count}" for i in range(1, count + 1)]


def prepared(name, key, *description, **more):
    """Returns the prepared operation of a tensor. If the user gave no name, the operation serves this use only.

    key: distinguishes this operation from all others. `description` and `more` are arguments of _ops.operation.
    """
    return _ops.transient(*description, **more) if name is None else _ops.operation(key, *description, **more)


def place_in(set_id):
    """Returns (this rank's place, size) of the set in which an operation will run."""
    try:
        return _ops.place_in(set_id)
    except ValueError as error:
        if _core.is_initialized():
            raise
        raise HorovodInternalError(str(error)) from None


def ranks_may_change():
    """True if this job may continue with other ranks. The number of ranks must then be asked for in each step."""
    facts = getattr(_core, "elastic_facts", None)
    return facts is not None and facts() is not None


def root_of(root_rank, what):
    """Returns the rank that gives its tensor, as an integer. `what`: the function that was called, for errors."""
    try:
        return operator.index(root_rank)
    except TypeError:
        raise ValueError(f"{what}: root_rank is the number of a rank, not {root_rank!r}") from None


def rows_of_share(rows, set_id):
    """Returns how many rows of a scattered tensor this rank gets. If the rows cannot be divided evenly, the first ranks
    get one more."""
    place, size = place_in(set_id)
    each, more = divmod(rows, size)
    return each + (place < more)


# ---- checks -----------------------------------------------------------------------------------------------------


def check_reduction(op, verb):
    if op not in REDUCE_OPS.values():
        raise ValueError(f"{verb}: op is one of hvd.{', '.join(REDUCE_OPS)}, not {op!r}")


def check_has_gradient(op, verb, known):
    """Raises unless `op` is one of the known reduce operations. The gradient of another one would be wrong."""
    if op in known:
        return
    name = next((f"hvd.{name}" for name, number in REDUCE_OPS.items() if number == op), repr(op))
    raise NotImplementedError(f"{verb}: op={name} has no gradient; expected a tensor that needs none "
                              "(tensor.detach(), tf.stop_gradient(tensor))")


def check_adasum(process_set):
    """Raises unless tensors can be reduced by Adasum over the set."""
    if process_set.process_set_id != 0:
        raise NotImplementedError("op=hvd.Adasum reduces over the global process set only")
    if _core.is_initialized() and not num_rank_is_power_2(_core.world()[1]):
        raise NotImplementedError(f"op=hvd.Adasum needs a number of ranks that is a power of two; found "
                                  f"{_core.world()[1]}")


def check_scatter(op, verb, dimensions):
    """dimensions: the number of dimensions of each tensor."""
    if op not in (_core.AVERAGE, _core.SUM):
        raise HorovodInternalError(f"{verb}: op is hvd.Average or hvd.Sum, not {op!r}")
    if 0 in dimensions:
        raise ValueError(f"{verb}: expected tensors with a first dimension to scatter, found one of no dimensions")


def check_kinds_of_memory(kinds, verb):
    if len(set(kinds)) > 1:
        raise HorovodInternalError(f"{verb}: the tensors of a group must be in one kind of memory; found "
                                   f"{' and '.join(sorted(set(kinds)))}")


def read_splits(splits, rows, size):
    """Returns the number of rows for each rank as integers, None for equal parts. ValueError if the splits are not
    valid."""
    if splits is None:
        if rows % size:
            raise ValueError(f"alltoall: expected a first dimension that is a multiple of the number of ranks, {size}, "
                             f"found {rows}; or give splits")
        return None
    try:
        splits = [operator.index(split) for split in splits]
    except TypeError:
        raise ValueError(f"alltoall: splits are numbers of rows in a list or a tensor, not {splits!r}") from None
    if len(splits) != size:
        raise ValueError(f"alltoall: expected splits for {size} ranks, found {len(splits)}")
    if min(splits) < 0 or sum(splits) > rows:
        raise ValueError(f"alltoall: splits are not negative, and together no more than the first dimension, {rows}; "
                         f"found {splits}")
    return splits
