"""The argument `groups` of optimizers and tapes: which gradients are reduced together."""
from horovod.common.util import split_list


def checked_groups(groups):
    """Returns a number of groups, a copy of a list of lists of variables, or None for no groups."""
    if groups is None:
        return None
    if isinstance(groups, (list, tuple)):
        if not all(isinstance(group, (list, tuple)) for group in groups):
            raise ValueError("groups is a number, or a list of lists of variables")
        return [list(group) for group in groups]
    if isinstance(groups, bool) or not isinstance(groups, int) or groups < 0:
        raise ValueError(f"groups is a number of groups greater than 0, or a list of lists of variables, "
                         f"not {groups!r}")
    return groups or None


def places_together(groups, variables, key_of):
    """Returns the places in `variables` of those that are reduced together, as tuples. groups: as checked_groups gives
    them; key_of identifies a variable."""
    everyone = list(range(len(variables)))
    if groups is None:
        return tuple((i,) for i in everyone)
    if isinstance(groups, int):
        return tuple(tuple(part) for part in split_list(everyone, groups) if part)
    group_of = {key_of(variable): number for number, group in enumerate(groups) for variable in group}
    together = {}
    for i in everyone:
        together.setdefault(group_of.get(key_of(variables[i]), -1 - i), []).append(i)
    return tuple(tuple(group) for group in together.values())
