"""DistributedOptimizer: an optimizer that averages the gradients of all ranks before each step.

The given optimizer's class is replaced by one derived from it. Therefore the optimizer keeps its state, options, hooks
and schedulers. Everything that is added is in one attribute, `_distributed`. gradients.py handles the gradients.
"""
import collections
import copy
import functools
import itertools
import numbers
import os
import warnings
import weakref
from contextlib import contextmanager

import torch

from horovod import _core, _ops
from horovod.common.process_sets import global_process_set
from horovod.common.util import split_list
from horovod.torch import grad_scaler, gradients_in_flight, tracing
from horovod.torch._tensors import ByTensor, check_adasum
from horovod.torch.adasum_optimizer import _DistributedAdasumOptimizer
from horovod.torch.compression import Compression, NoneCompressor
from horovod.torch.functions import broadcast_object, show_zero_gradients
from horovod.torch.gradients import Gradients, Settings
from horovod.torch.mpi_ops import Adasum, Average, Max, Sum, allreduce_, rocm_built, size
from horovod.torch.shown_gradients import ShownGradients, take_back_those_of


_orders = itertools.count()


class _Names:
    """The names by which the ranks match gradients: the user's names, or names made of the places in the groups. A
    parameter that joins later without a name gets one that no other parameter has had."""

    def __init__(self, of_parameters, process_set):
        self.of_parameters = ByTensor(of_parameters)  # parameters that the program has replaced are freed
        self.process_set = process_set
        self.number = 0  # counts the optimizers of the process set whose parameters have these names
        self._at_first = sorted(of_parameters.values()) or ["nothing"]
        self._joined = 0
        self._job = _ops.jobs  # the job in which the number was taken
        self._order = None  # the place among all that have a number

    def take_number(self):
        """Takes the next number. It is the same on all ranks, because they make the set's optimizers in the same
        order."""
        keys = [(self.process_set.process_set_id, name) for name in self._at_first]
        self.number = max((_ops.optimizers_with[key] for key in keys), default=0)
        for key in keys:
            _ops.optimizers_with[key] = self.number + 1
        self._job = _ops.jobs
        if self._order is None:
            self._order = next(_orders)
            _ops.numbered[self._order] = self

    def find(self, parameter):
        """Returns the name of the parameter. One that has none joins now: on all ranks in the same order."""
        name = self.of_parameters.get(parameter)
        if name is None:
            name = self.of_parameters[parameter] = self._new_name()
        if self.number == 0 and self._job == _ops.jobs:
            return name
        return f"{name} (optimizer {self._number_and_job()})"

    def _new_name(self):
        taken = set(self.of_parameters.values())
        while True:
            self._joined += 1
            # The first name makes it differ from the names of what has joined other optimizers.
            name = f"joined.{self._joined} of {self._at_first[0]}"
            if name not in taken:
                return name

    def of(self, what):
        """Returns the name of an operation of the whole optimizer."""
        return f"{what} of optimizer {self._number_and_job()} of {self._at_first[0]}"

    def _number_and_job(self):
        """An optimizer that lives through hvd.shutdown() and hvd.init() keeps its number, which a new one gets, too."""
        age = _ops.jobs - self._job
        return f"{self.number + 1}, made {age} jobs ago" if age else f"{self.number + 1}"


class _Distributed:
    """The additional state of a distributed optimizer."""

    def __init__(self, settings, names, groups, gradient_views, inner_step):
        self.settings = settings
        self.names = names
        # lists of weak references to parameters, or None
        self.groups = groups and [[weakref.ref(parameter) for parameter in group] for group in groups]
        self.gradient_views = gradient_views
        self.inner_step = inner_step  # a step method that the program had set on the object, or None
        self.gradients = None  # None without other ranks, or if steps are combined instead
        self.passes = None  # adasum_optimizer sets it
        self.should_synchronize = True
        self.shown = ShownGradients()
        self.let_go = lambda: None


class _Shown:
    """An attribute that Horovod's users read. If the optimizer already has an attribute of this name, that one is
    used."""

    def __init__(self, find):
        self._find = find

    def __get__(self, optimizer, owner=None):
        return self if optimizer is None else self._find(optimizer._distributed)


class _DistributedOptimizer(torch.optim.Optimizer):
    """The methods of the classes that DistributedOptimizer() makes; `_wrapped_class` is the optimizer's own class."""

    op = _Shown(lambda distributed: distributed.settings.op)
    process_set = _Shown(lambda distributed: distributed.settings.process_set)
    backward_passes_per_step = _Shown(lambda distributed: distributed.settings.passes)
    gradient_predivide_factor = _Shown(lambda distributed: distributed.settings.predivide_factor)
    sparse_as_dense = _Shown(lambda distributed: distributed.settings.sparse_as_dense)
    _compression = _Shown(lambda distributed: distributed.settings.compression)
    _parameter_names = _Shown(lambda distributed: distributed.names.of_parameters)
    _should_synchronize = _Shown(lambda distributed: distributed.should_synchronize)

    @staticmethod
    def find_duplicates(lst):
        """Returns the entries that occur more than once."""
        return {entry for entry, times in collections.Counter(lst).items() if times > 1}

    def set_backward_passes_per_step(self, passes):
        """From now on the gradients of `passes` backward passes are summed locally before they are communicated."""
        _check_passes(passes)
        self._distributed.settings.passes = passes
        if self._distributed.gradients is not None:
            self._distributed.gradients.set_passes(passes)

    def synchronize(self):
        """Waits for the gradients of all ranks; afterwards p.grad holds the result.

        step() calls it. To change gradients before the step (clipping): call synchronize(), change them, then call
        step() within skip_synchronize().
        """
        self._distributed.shown.take_back()
        if self._distributed.gradients is not None:
            self._distributed.gradients.synchronize(self.param_groups)

    @contextmanager
    def skip_synchronize(self):
        """A context in which step() does not call synchronize():

            optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            with optimizer.skip_synchronize():
                optimizer.step()
        """
        self._distributed.should_synchronize = False
        try:
            yield
        finally:
            self._distributed.should_synchronize = True

    def step(self, closure=None, *args, **kwargs):
        self._opt_called = True  # learning rate schedulers look for this
        distributed, gradients = self._distributed, self._distributed.gradients
        distributed.shown.take_back()
        if gradients is not None:
            if not distributed.should_synchronize:
                is_needed = not callable(closure) and gradients.are_own  # the program has not done it
            elif not gradients.is_synchronized:
                # A closure computes gradients. Gradients that were accumulated earlier are part of them.
                is_needed = not callable(closure) or _are_outstanding_anywhere(distributed)
            else:
                is_needed = False
                if not gradients.is_ahead:
                    warnings.warn("optimizer.step() called without optimizer.skip_synchronize() context after "
                                  "optimizer.synchronize(). This can cause training slowdown. You may want to consider "
                                  "using optimizer.skip_synchronize() context if you use optimizer.synchronize() in "
                                  "your code.", stacklevel=2)
            if is_needed:
                self.synchronize()
            elif gradients.hold_results:
                gradients.remember_results()  # as the program has changed them since
            gradients.is_synchronized = gradients.is_ahead = False
            if callable(closure):
                closure = _of_all_ranks(self, closure)
        result = self._step_of_its_own(closure, *args, **kwargs)
        if gradients is not None:
            gradients.steps += 1  # not if the step has raised an exception, perhaps on this rank only
        return result

    # The wrapped class's step runs the hooks of register_step_pre_hook and similar ones. `hooked` avoids that they run
    # twice. `_wrapped_by_lr_sched` keeps a scheduler from replacing this step by one of the plain optimizer.
    step.hooked = True
    step._wrapped_by_lr_sched = True

    def _step_of_its_own(self, *args, **kwargs):
        """The step that the optimizer made before it was distributed."""
        if args == (None,):
            args = ()  # some optimizers have a step without a closure
        if self._distributed.inner_step is not None:
            return self._distributed.inner_step(*args, **kwargs)
        return self._wrapped_class.step(self, *args, **kwargs)

    def zero_grad(self, *args, **kwargs):
        self._distributed.shown.take_back()
        gradients = self._distributed.gradients
        if gradients is not None:
            if gradients.was_loaded and gradients.are_outstanding:
                self.synchronize()
            if gradients.are_outstanding:
                raise AssertionError(
                    "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                    "optimizer.synchronize(). This is prohibited as it can cause a race condition. To discard these "
                    "gradients, call optimizer.synchronize() first.")
            gradients.begin_round()
            gradients.follow(self.param_groups)
        self._wrapped_class.zero_grad(self, *args, **kwargs)

    def add_param_group(self, param_group):
        self._wrapped_class.add_param_group(self, param_group)
        if self._distributed.gradients is not None:
            self._distributed.gradients.follow(self.param_groups)

    def load_state_dict(self, *args, **kwargs):
        gradients = self._distributed.gradients
        if gradients is not None:
            gradients.note_load()
        return self._wrapped_class.load_state_dict(self, *args, **kwargs)

    def __reduce_ex__(self, protocol):
        """Pickles the plain optimizer, because names, hooks and ranks belong to this job."""
        _, _, *rest = self._wrapped_class.__reduce_ex__(self, protocol)
        return (object.__new__, (self._wrapped_class,), *rest)

    def __copy__(self):
        raise TypeError(
            "copy.copy() of a distributed optimizer: expected one optimizer that reduces the gradients of these "
            "parameters, found a copy that would step them, too, and reduce none. Use the optimizer itself, or "
            "copy.deepcopy((model, optimizer)), which copies the parameters with it")

    def __deepcopy__(self, memo):
        """Returns a copy that is distributed, too, and works on the copies of the parameters."""
        make, arguments, state, *_ = self.__reduce_ex__(4)
        copied = make(*arguments)
        memo[id(self)] = copied
        copied.__setstate__(copy.deepcopy(state, memo))
        mine = self._distributed
        new = dict(zip(_parameters_of(self), _parameters_of(copied)))
        names = {new[parameter]: name for parameter, name in mine.names.of_parameters.items() if parameter in new}
        groups = mine.groups and [[new[parameter()] for parameter in group if parameter() in new]
                                  for group in mine.groups]
        # A rank may keep a copy and never step it. Therefore a copy gets its number only when it is used.
        return _distribute(copied, copy.copy(mine.settings), names, groups, mine.gradient_views, is_numbered=False)


def _are_outstanding_anywhere(distributed):
    """True if any rank has gradients whose results nobody has waited for."""
    gradients, process_set = distributed.gradients, distributed.settings.process_set
    gradients.take_names()
    found = torch.tensor([gradients.are_outstanding], dtype=torch.uint8, device="cpu")
    return allreduce_(found, None, distributed.names.of("closure"), Max, process_set=process_set).item()


def _of_all_ranks(optimizer, closure):
    """Returns a closure that gives the gradients and the loss of all ranks. (A closure computes gradients and the loss
    within the step.)"""
    distributed = optimizer._distributed

    @functools.wraps(closure)
    def compute():
        loss = closure()
        gradients = distributed.gradients
        if not gradients.is_synchronized if distributed.should_synchronize else gradients.are_own:
            optimizer.synchronize()
        if distributed.should_synchronize:
            gradients.is_synchronized = False
        return _averaged(loss, distributed)

    return compute


def _averaged(loss, distributed):
    """Returns the mean of all ranks' losses (their sum under op=hvd.Sum). An optimizer may use it in a search."""
    op = Sum if distributed.settings.op == Sum else Average
    name, process_set = distributed.names.of("loss"), distributed.settings.process_set
    if isinstance(loss, torch.Tensor) and loss.dtype.is_floating_point:
        loss = loss.detach().clone(memory_format=torch.contiguous_format)
        return allreduce_(loss, None, name, op, process_set=process_set)
    if isinstance(loss, numbers.Real):  # numpy's, too
        loss = torch.tensor([float(loss)], dtype=torch.float64, device="cpu")
        return allreduce_(loss, None, name, op, process_set=process_set).item()
    return loss


# ---- making one -------------------------------------------------------------------------------------------------


def DistributedOptimizer(optimizer, named_parameters=None, compression=Compression.none, backward_passes_per_step=1,
                         op=Average, gradient_predivide_factor=1.0, num_groups=0, groups=None, sparse_as_dense=False,
                         process_set=global_process_set, gradient_views=None):
    """Makes an optimizer use the gradients of all ranks in its steps, and returns the optimizer.

    optimizer: any torch optimizer. The same object is returned. Its class is then one derived from the old class.
    named_parameters: model.named_parameters(); the ranks match gradients by these names.
    compression: hvd.Compression.fp16 communicates gradients as float16.
    backward_passes_per_step: how many backward passes are summed locally before gradients are communicated.
    op: hvd.Average, hvd.Sum, …; with hvd.Adasum each rank makes its own step, and the parameters' changes are combined.
    gradient_predivide_factor: with Average, gradients are divided by it before the sum and multiplied by it after it.
    groups: a number of groups, or lists of parameters. The gradients of a group are communicated together.
    sparse_as_dense: communicate sparse gradients as dense ones.
    process_set: the ranks that share their gradients. On all other ranks the optimizer stays a plain one.
    gradient_views: keep gradients in memory that the ranks of a node share. There they are reduced without packing.
        This is faster with zero_grad(set_to_none=False) and slower with torch's default. If None,
        HOROVOD_GRADIENT_VIEWS decides.
    """
    if gradient_predivide_factor != 1.0:
        if rocm_built():
            raise ValueError("gradient_predivide_factor not supported yet with ROCm")
        if op != Average:
            raise ValueError("gradient_predivide_factor not supported with op != Average")
    if num_groups != 0:
        warnings.warn("Parameter `num_groups` has been replaced by `groups` and will be removed", DeprecationWarning,
                      stacklevel=2)
        if groups is None:
            groups = num_groups
    _check_passes(backward_passes_per_step)
    if not hasattr(optimizer, "param_groups") or not hasattr(optimizer, "step"):
        raise TypeError(f"DistributedOptimizer takes a torch optimizer, not {type(optimizer).__name__}")
    names = _names_of_parameters(optimizer, named_parameters)
    _check_groups(groups)
    is_global = process_set.process_set_id == 0
    if op == Adasum and size() > 1:
        check_adasum(process_set)
    if gradient_views and not is_global:
        raise ValueError("gradient_views: all ranks of the job share that memory; use it with the global process set")
    if gradient_views is None:
        gradient_views = is_global and _ops.is_on("HOROVOD_GRADIENT_VIEWS")
    settings = Settings(compression, op, gradient_predivide_factor, sparse_as_dense, process_set,
                        backward_passes_per_step)
    if isinstance(groups, int):
        is_needed = not _is_alone() and process_set.included()
        groups = _split(optimizer, names, groups, process_set) if is_needed else None
    elif groups is not None:
        groups = [[parameter for parameter in (group if isinstance(group, (list, tuple)) else [group])
                   if parameter.requires_grad] for group in groups]
    return _distribute(optimizer, settings, names, groups, gradient_views)


def _is_alone():
    """True if this process has no other ranks, and none will come."""
    return size() == 1 and os.environ.get("HOROVOD_ELASTIC") != "1"


def _distribute(optimizer, settings, names, groups, gradient_views, is_numbered=True):
    is_alone = _is_alone() or not settings.process_set.included()
    settings.process_set._check_id()
    combines_steps = settings.op == Adasum and not _is_alone()
    inner_step = _become_distributed(optimizer, combines_steps)
    take_back_those_of(_parameters_of(optimizer))
    names = _Names(names, settings.process_set)
    distributed = _Distributed(settings, names, groups, gradient_views, inner_step)
    optimizer._distributed = distributed
    if is_alone:
        return optimizer
    if combines_steps:
        if is_numbered:
            names.take_number()
        optimizer._listen()
        show_zero_gradients(optimizer, _parameters_of(optimizer), None)
        grad_scaler.wait_for_gradients()
        return optimizer
    gradients = Gradients(settings, names)
    if is_numbered:
        gradients.take_names()
    gradients.follow(optimizer.param_groups)
    gradients.make_groups(groups or [])
    if gradient_views:
        from horovod.torch.gradient_views import GradientViews
        gradients.use_views(GradientViews([parameter for parameter in _parameters_of(optimizer)
                                          if parameter.requires_grad]))
    distributed.gradients = gradients
    # Parameters may live longer than the optimizer. Without this, their hooks would too.
    distributed.let_go = weakref.finalize(optimizer, gradients.let_go)
    distributed.let_go.atexit = False
    tracing.leave_us_alone()
    grad_scaler.wait_for_gradients()
    gradients_in_flight.wait_before_backward()
    gradients_in_flight.wait_before_torch_distributed()
    return optimizer


def _become_distributed(optimizer, combines_steps):
    """Gives the optimizer a class derived from its own. Returns the step method that the program had set on the
    object, or None."""
    if hasattr(type(optimizer), "_wrapped_class"):  # already distributed: a notebook's cell ran again
        optimizer._distributed.shown.take_back()
        optimizer._distributed.let_go()
        optimizer.__class__ = _class_over(optimizer._wrapped_class, combines_steps)
        return optimizer._distributed.inner_step
    try:
        optimizer.__class__ = _class_over(type(optimizer), combines_steps)
    except TypeError as error:
        raise TypeError(f"DistributedOptimizer: an object of class {type(optimizer).__name__} cannot become one of a "
                        f"class derived from it ({error})") from None
    inner_step = vars(optimizer).pop("step", None)
    # A scheduler's step only notes that it was called. Our step does that, too.
    return None if hasattr(inner_step, "_wrapped_by_lr_sched") else inner_step


@functools.lru_cache(maxsize=256)
def _class_over(wrapped_class, combines_steps):
    """Makes a class of the same name, derived from the optimizer's own class."""
    methods = {**vars(_DistributedOptimizer), **(vars(_DistributedAdasumOptimizer) if combines_steps else {})}
    for name in ("__dict__", "__weakref__", "__doc__"):
        methods.pop(name, None)
    methods["_wrapped_class"] = wrapped_class
    return type(wrapped_class.__name__, (wrapped_class,), methods)


def _parameters_of(optimizer):
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _names_of_parameters(optimizer, named_parameters):
    if named_parameters is None:
        return {parameter: f"allreduce.noname.{i}.{j}" for i, group in enumerate(optimizer.param_groups)
                for j, parameter in enumerate(group["params"])}
    named_parameters = list(named_parameters)
    if any(not isinstance(entry, tuple) for entry in named_parameters):
        raise ValueError("named_parameters should be a sequence of tuples (name, parameter), usually produced by "
                         "model.named_parameters().")
    duplicates = _DistributedOptimizer.find_duplicates(name for name, _ in named_parameters)
    if duplicates:
        raise ValueError("Parameter names in named_parameters must be unique. Found duplicates: "
                         f"{', '.join(sorted(duplicates))}")
    names = {parameter: name for name, parameter in named_parameters}
    unnamed = [parameter for parameter in _parameters_of(optimizer) if parameter not in names]
    if unnamed:
        raise ValueError(f"named_parameters was specified, but {len(unnamed)} of the optimizer's parameters are not "
                         f"among them. Python object ids: {', '.join(str(id(parameter)) for parameter in unnamed)}")
    return names


def _check_passes(passes):
    if passes <= 0:
        raise ValueError("backward_passes_per_step must be > 0")


def _check_groups(groups):
    if groups is None:
        return
    if not isinstance(groups, list):
        if not isinstance(groups, int) or groups <= 0:
            raise ValueError("groups should be a positive number of groups or a list of lists of torch.Tensor, "
                             f"not {groups!r}")
        return
    seen = set()
    for group in groups:
        for parameter in group if isinstance(group, (list, tuple)) else [group]:
            if not isinstance(parameter, torch.Tensor):
                raise ValueError(f"groups must consist of lists of torch.Tensor; found {type(parameter).__name__}")
            if id(parameter) in seen:
                raise ValueError("groups: a parameter appears more than once")
            seen.add(id(parameter))


def _split(optimizer, names, count, process_set):
    """Divides the parameters into `count` groups. Ranks may have ordered theirs differently: the order of the set's
    first rank is used. Not so where ranks come and go, because a new one is alone when it makes its optimizer."""
    by_name = {names[parameter]: parameter for parameter in _parameters_of(optimizer) if parameter.requires_grad}
    if _core.elastic_facts() is not None:
        return split_list(list(by_name.values()), count)
    order = broadcast_object(list(by_name), process_set.ranks[0], "DistributedOptimizer.groups", process_set)
    return split_list([by_name[name] for name in order], count)
