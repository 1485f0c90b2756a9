"""DistributedOptimizer: an optimizer that averages the gradients of all ranks before each step.

What happens to one gradient:
1. backward() accumulates it; the hook counts down from backward_passes_per_step.
2. At zero it is compressed and submitted, in place, under its parameter's name; backward() goes on meanwhile.
   A grouped gradient waits for the last one of its group.
3. step() (or synchronize()) submits what has not been submitted yet, so that ranks may use different parameters, waits for
   all, decompresses and stores.
"""
import os
import warnings
from contextlib import contextmanager

import torch

from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import global_process_set
from horovod.common.util import split_list
from horovod.torch.compression import Compression
from horovod.torch.functions import broadcast_object
from horovod.torch.mpi_ops import (Adasum, Average, allreduce_async_, grouped_allreduce_async_, rocm_built, size,
                                   sparse_allreduce_async, synchronize)


class _DistributedOptimizer(torch.optim.Optimizer):
    """The methods of the class that DistributedOptimizer() makes; `_wrapped_class` is the user's optimizer class."""

    def __init__(self, params, named_parameters, compression, backward_passes_per_step=1, op=Average,
                 gradient_predivide_factor=1.0, groups=None, sparse_as_dense=False,
                 process_set=global_process_set, gradient_views=False):
        self._wrapped_class.__init__(self, params)
        self._compression = compression
        self._op = op
        self._predivide_factor = gradient_predivide_factor
        self._sparse_as_dense = sparse_as_dense
        self._process_set = process_set
        self._backward_passes_per_step = backward_passes_per_step

        self._parameter_names = self._names_of_parameters(named_parameters)
        _check_groups(groups)
        self._countdown = {}  # parameter -> backward passes until its gradient is submitted
        self._submitted = {}  # parameter -> what _submit returned
        self._sparse_dims = {}  # parameter -> those of its last gradient, if that was sparse
        self._hooks = []
        self._views = None
        self._group_of = {}  # parameter -> tuple of its group's parameters
        self._group_ready = {}  # that tuple -> its parameters whose gradient is ready
        self._should_synchronize = True
        self._synchronized = False

        if self._process_set.included() and (size() > 1 or os.environ.get("HOROVOD_ELASTIC") == "1"):
            trained = [parameter for group in self.param_groups for parameter in group["params"]
                       if parameter.requires_grad]
            self._countdown = dict.fromkeys(trained, backward_passes_per_step)
            self._make_groups(groups, trained)
            if gradient_views:
                from horovod.torch.gradient_views import GradientViews
                self._views = GradientViews(trained)
            for parameter in trained:
                self._hooks.append(_on_gradient(parameter, self._gradient_is_ready))

    # ---- names and groups ---------------------------------------------------------------------------------------

    def _names_of_parameters(self, named_parameters):
        if named_parameters is None:
            return {parameter: f"allreduce.noname.{i}.{j}" for i, group in enumerate(self.param_groups)
                    for j, parameter in enumerate(group["params"])}
        named_parameters = list(named_parameters)
        if any(not isinstance(entry, tuple) for entry in named_parameters):
            raise ValueError("named_parameters should be a sequence of tuples (name, parameter), usually produced by "
                             "model.named_parameters().")
        seen, duplicates = set(), set()
        for name, _ in named_parameters:
            (duplicates if name in seen else seen).add(name)
        if duplicates:
            raise ValueError("Parameter names in named_parameters must be unique. Found duplicates: "
                             f"{', '.join(sorted(duplicates))}")
        names = {parameter: name for name, parameter in named_parameters}
        unnamed = sum(parameter not in names for group in self.param_groups for parameter in group["params"])
        if unnamed:
            raise ValueError(f"named_parameters was specified, but {unnamed} of the optimizer's parameters are not "
                             "among them. Python object ids: "
                             + ", ".join(str(id(parameter)) for group in self.param_groups
                                         for parameter in group["params"] if parameter not in names))
        return names

    def _make_groups(self, groups, trained):
        if groups is None:
            return
        if isinstance(groups, list):
            members = [tuple(parameter for parameter in group if parameter in self._countdown) for group in groups]
            listed = {parameter for group in members for parameter in group}
            members += [(parameter,) for parameter in trained if parameter not in listed]
        else:
            # Ranks may have made their parameters in different orders: rank 0's counts.
            by_name = {self._parameter_names[parameter]: parameter for parameter in trained}
            order = broadcast_object(list(by_name), 0, "DistributedOptimizer.groups", self._process_set)
            members = [tuple(chunk) for chunk in split_list([by_name[name] for name in order], groups)]
        for group in members:
            if group:
                self._group_ready[group] = set()
                self._group_of.update(dict.fromkeys(group, group))

    # ---- submitting ---------------------------------------------------------------------------------------------

    def _gradient_is_ready(self, parameter):
        """The hook."""
        if parameter in self._submitted or self._countdown[parameter] <= 0:
            raise AssertionError(
                "Gradients were computed more than backward_passes_per_step times before a call to step(). Increase "
                "backward_passes_per_step to accumulate gradients locally.")
        assert not parameter.grad.requires_grad
        self._countdown[parameter] -= 1
        if self._countdown[parameter] == 0:
            self._submit_when_group_is_ready(parameter)

    def _submit_when_group_is_ready(self, parameter):
        group = self._group_of.get(parameter)
        if group is None:
            self._submitted[parameter] = self._submit(parameter)
            return
        ready = self._group_ready[group]
        ready.add(parameter)
        if len(ready) == len(group):
            ready.clear()
            self._submit_group(group)

    def _submit(self, parameter):
        """Starts the allreduce of one gradient; returns (handle, what is reduced in place, context of its compression).

        For a sparse gradient: (function that waits and returns the result, None, None).
        """
        gradient = self._dense_gradient(parameter)
        name = self._parameter_names[parameter]
        if gradient.is_sparse:
            self._sparse_dims[parameter] = gradient.sparse_dim()
            return sparse_allreduce_async(gradient, name, self._op, self._process_set), None, None
        tensor, context = self._compress(gradient)
        factor = self._predivide_factor if self._op == Average else 1.0
        handle = allreduce_async_(tensor, None, name, self._op, 1.0 / factor, factor, self._process_set)
        return handle, tensor, context

    def _submit_group(self, group):
        dense = [parameter for parameter in group if not self._dense_gradient(parameter).is_sparse]
        for parameter in group:
            if parameter.grad.is_sparse:
                self._submitted[parameter] = self._submit(parameter)
        if not dense:
            return
        tensors, contexts = zip(*(self._compress(parameter.grad) for parameter in dense))
        handle = grouped_allreduce_async_(tensors, None, self._parameter_names[dense[0]], self._op,
                                          process_set=self._process_set)
        for parameter, tensor, context in zip(dense, tensors, contexts):
            self._submitted[parameter] = handle, tensor, context

    def _dense_gradient(self, parameter):
        """The gradient, empty or of zeros if there is none, and dense if the user asked for that."""
        if parameter.grad is None:
            parameter.grad = self._no_gradient(parameter)
        elif parameter.grad.is_sparse and self._sparse_as_dense:
            parameter.grad = parameter.grad.to_dense()
        return parameter.grad

    def _no_gradient(self, parameter):
        dims = self._sparse_dims.get(parameter)
        if dims is None:
            return torch.zeros_like(parameter)
        # Other ranks have a sparse one, and gather its rows.
        return torch.sparse_coo_tensor(torch.empty((dims, 0), dtype=torch.long),
                                       parameter.new_empty((0, *parameter.shape[dims:])), parameter.shape)

    def _compress(self, gradient):
        tensor, context = self._compression.compress(gradient.detach())
        return tensor.contiguous(), context

    # ---- collecting ---------------------------------------------------------------------------------------------

    def synchronize(self):
        """Waits for the gradients of all ranks; afterwards p.grad holds the result.

        Called by step(). To change gradients in between (clipping): synchronize(), change them, then step() within
        skip_synchronize().
        """
        if self._countdown:
            for parameter in self._countdown:
                if parameter not in self._submitted:
                    self._submit_when_group_is_ready(parameter)
            submitted, self._submitted = self._submitted, {}
            self._reset_countdown()
            failure = None
            for parameter, (started, tensor, context) in submitted.items():
                try:
                    if tensor is None:
                        tensor = started()
                    else:
                        synchronize(started)  # of a group's parameters the first waits for all
                    self._store(parameter, tensor, context)
                except HorovodInternalError as error:  # the others are in flight too: wait before telling
                    failure = failure or error
            if failure is not None:
                raise failure
        self._synchronized = True

    @torch.no_grad()
    def _store(self, parameter, tensor, context):
        if tensor.is_sparse:
            parameter.grad = tensor.coalesce()
            return
        result = self._compression.decompress(tensor, context)
        gradient = parameter.grad
        if result.data_ptr() == gradient.data_ptr() and result.dtype == gradient.dtype:
            return
        if gradient.is_contiguous() and result.dtype == gradient.dtype and not self._is_view(parameter):
            gradient.set_(result)
        else:
            gradient.copy_(result)

    def _is_view(self, parameter):
        return self._views is not None and parameter in self._views

    def _reset_countdown(self):
        self._countdown = dict.fromkeys(self._countdown, self._backward_passes_per_step)
        for ready in self._group_ready.values():
            ready.clear()

    # ---- the optimizer's own methods ------------------------------------------------------------------------------

    def set_backward_passes_per_step(self, passes):
        """From now on gradients of that many backward passes are summed locally before they are communicated."""
        self._backward_passes_per_step = passes
        self._reset_countdown()

    def load_state_dict(self, *args, **kwargs):
        if self._submitted:
            self.synchronize()  # or what is in flight would land in gradients of the next step
        self._synchronized = False
        self._reset_countdown()
        return self._wrapped_class.load_state_dict(self, *args, **kwargs)

    @contextmanager
    def skip_synchronize(self):
        """Within it, step() does not call synchronize():

            optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            with optimizer.skip_synchronize():
                optimizer.step()
        """
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure=None):
        if self._should_synchronize:
            if self._synchronized:
                warnings.warn("optimizer.step() called without optimizer.skip_synchronize() context after "
                              "optimizer.synchronize(). This can cause training slowdown. You may want to consider "
                              "using optimizer.skip_synchronize() context if you use optimizer.synchronize() in your "
                              "code.")
            self.synchronize()
        self._synchronized = False
        if closure is None:
            return self._wrapped_class.step(self)
        return self._wrapped_class.step(self, self._averaged(closure))

    def _averaged(self, closure):
        """A closure computes gradients within the step: they are to be those of all ranks, too."""
        def compute():
            loss = closure()
            if self._should_synchronize and any(passes != self._backward_passes_per_step
                                                for passes in self._countdown.values()):
                self.synchronize()
            self._synchronized = False
            return loss
        return compute

    # The wrapped class's step runs the hooks of register_step_pre_hook and its like; they are to run once.
    step.hooked = True

    def zero_grad(self, *args, **kwargs):
        if self._submitted:
            raise AssertionError("optimizer.zero_grad() was called after loss.backward() but before optimizer.step() "
                                 "or optimizer.synchronize(). This is prohibited as it can cause a race condition.")
        self._wrapped_class.zero_grad(self, *args, **kwargs)
        if self._views is not None:
            self._views.put_back_zeroed()


def _on_gradient(parameter, call):
    """Calls call(parameter) whenever a backward pass has added to the parameter's gradient."""
    if hasattr(parameter, "register_post_accumulate_grad_hook"):
        return parameter.register_post_accumulate_grad_hook(call)
    # Before torch 2.1: the node that accumulates, which must be kept alive with its hook.
    node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
    return node, node.register_hook(lambda *_: call(parameter))


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


def DistributedOptimizer(optimizer, named_parameters=None, compression=Compression.none, backward_passes_per_step=1,
                         op=Average, gradient_predivide_factor=1.0, num_groups=0, groups=None, sparse_as_dense=False,
                         process_set=global_process_set, gradient_views=None):
    """Wraps an optimizer so that its step uses the gradients of all ranks.

    optimizer: any torch optimizer; the result is of a subclass of its class, with its parameter groups.
    named_parameters: model.named_parameters(); names match the gradients between ranks.
    compression: hvd.Compression.fp16 communicates gradients as float16.
    backward_passes_per_step: how many backward passes are summed locally before gradients are communicated.
    op: hvd.Average, hvd.Sum, …
    gradient_predivide_factor: with Average, gradients are divided by it before and multiplied after the sum.
    groups: a number of groups, or lists of parameters, that are communicated together.
    sparse_as_dense: communicate sparse gradients as dense ones.
    gradient_views: keep gradients in memory shared by the ranks of a node, where they are reduced without packing;
        zero_grad() then zeroes in place. By default as HOROVOD_GRADIENT_VIEWS=1 in the environment says.
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
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    if op == Adasum and size() > 1:
        raise NotImplementedError("DistributedOptimizer: op=hvd.Adasum is not part of this version of Horovod yet; use "
                                  "hvd.Average")
    if gradient_views is None:
        gradient_views = os.environ.get("HOROVOD_GRADIENT_VIEWS", "0") == "1"

    wrapped_class = type(optimizer)
    methods = {name: value for name, value in vars(_DistributedOptimizer).items()
               if name not in ("__dict__", "__weakref__", "__doc__")}
    methods["_wrapped_class"] = wrapped_class
    distributed_class = type(wrapped_class.__name__, (wrapped_class,), methods)
    return distributed_class(optimizer.param_groups, named_parameters, compression, backward_passes_per_step, op,
                             gradient_predivide_factor, groups, sparse_as_dense, process_set, gradient_views)
