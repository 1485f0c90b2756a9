"""N ranks give the numbers of one process. This module says what that means, and has the parts of all tests here.

A test writes a training loop once, as a function of a world, and gives it to `equals_one_process` (conftest.py):

    def train(world):
        model = world.network()
        optimizer = world.wrap(torch.optim.Adam(model.parameters()), model)
        for x, y in world.batches():
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
        return model, optimizer

1. It runs in one process: the world gives whole batches, and wrap() nothing but the optimizer.
2. It runs on all ranks: the world gives each rank its part of the same batches, and wrap() does what every script
   does: hvd.DistributedOptimizer, hvd.broadcast_parameters, hvd.broadcast_optimizer_state. The models of the ranks
   have different values before the broadcast.
   With four ranks, the even ranks and the odd ranks are two process sets, which run the loop at the same time. (Not
   where RANKS_OF_A_NODE is set: tests/doubles/torch_cuda.)
3. The results of the loop (tensors, numbers, models, optimizers with state and options, lists of these) are equal on
   all ranks to the last bit, and equal to one process within rounding. The ranks give no warning that one process
   does not give.

Numbers are double, so that rounding errors are much smaller than real faults. A rank that fails alone leaves the job,
so that the others fail, too. Then all ranks initialise Horovod again and exchange their errors.
"""
import contextlib
import itertools
import os
import traceback
import warnings

import torch

STEPS = int(os.environ.get("EQUALS_STEPS", 20))
ROWS = 8  # rows of a whole batch
FEATURES, CLASSES = 6, 3
HALVES = []  # the process sets of a job with four ranks

loss = torch.nn.functional.cross_entropy


def kind_of_device():
    """Where tensors are that the tests make: "cpu", or "cuda" in tests/doubles/torch_cuda."""
    return torch.empty(0).device.type


def network(bias=True):
    return torch.nn.Sequential(torch.nn.Linear(FEATURES, 5, bias=bias), torch.nn.Tanh(),
                               torch.nn.Linear(5, CLASSES, bias=bias))


class OneProcess:
    """The world in which one process has the whole batch."""
    rank, size = 0, 1
    distributed = False

    def __init__(self, ranks=1):
        self.ranks = ranks  # number of ranks of the job with which this process is compared

    def network(self, make=network, *arguments, **options):
        """A model. In one process, its values are those with which the job begins."""
        torch.manual_seed(17)
        return make(*arguments, **options)

    def share(self, tensor):
        """This rank's rows of a tensor that has the rows of a whole batch."""
        return tensor

    def batches(self, steps=STEPS, first=0, rows=ROWS):
        """Yields this rank's part of the batch of each step. The batches are the same in every run."""
        for step in range(first, first + steps):
            generator = torch.Generator().manual_seed(1000 + step)
            x = torch.randn(rows, FEATURES, generator=generator)
            y = torch.randint(0, CLASSES, (rows,), generator=generator)
            self.be_late_by_turns(step)
            yield self.share(x), self.share(y)

    def be_late_by_turns(self, step):
        pass

    def parts(self, x, y):
        """[(rank, x, y)] for loops in which ranks do different things: one process gets the parts of all ranks, a rank
        gets its own."""
        return list(zip(range(self.ranks), x.chunk(self.ranks), y.chunk(self.ranks)))

    def wrap(self, optimizer, model, named=True, begin=True, **options):
        """The optimizer as the script uses it. If `begin`, the root's values are broadcast to all ranks."""
        return optimizer

    def begin(self, model, optimizer=None):
        pass

    def synchronize(self, optimizer):
        pass

    def skip_synchronize(self, optimizer):
        return contextlib.nullcontext()

    def average(self, value):
        """The mean, over all ranks, of a number that each rank computed from its part of a batch."""
        return value


def start(hvd):
    """Initialises Horovod, and returns the process set in which this rank trains."""
    if os.environ.get("HOROVOD_SIZE") == "4" and not HALVES and "RANKS_OF_A_NODE" not in os.environ:
        HALVES.extend([hvd.ProcessSet([0, 2]), hvd.ProcessSet([1, 3])])
    hvd.init(process_sets=HALVES)
    return next((each for each in HALVES if each.included()), hvd.global_process_set)


class Ranks(OneProcess):
    """The world in which a rank has its part of the batch."""
    distributed = True

    def __init__(self, hvd, process_set):
        super().__init__(process_set.size())
        self.hvd, self.process_set = hvd, process_set
        self.rank, self.size = process_set.rank(), process_set.size()
        self.root = process_set.ranks[0]

    def network(self, make=network, *arguments, **options):
        torch.manual_seed(17 + self.rank)
        return make(*arguments, **options)

    def share(self, tensor):
        rows = len(tensor) // self.size
        return tensor[self.rank * rows:(self.rank + 1) * rows]

    def parts(self, x, y):
        return [(self.rank, x, y)]

    def be_late_by_turns(self, step):
        """Delays one rank, a different one in each step, so that the other ranks' gradients are in flight for a
        while."""
        if step % self.size == self.rank:
            work = torch.ones(160, 160)
            for _ in range(2):
                work = work @ work / 160

    def wrap(self, optimizer, model, named=True, begin=True, **options):
        if self.process_set is not self.hvd.global_process_set:
            options.pop("gradient_views", None)  # gradient views need memory that all ranks of the job share
        optimizer = self.hvd.DistributedOptimizer(
            optimizer, named_parameters=model.named_parameters() if named else None, process_set=self.process_set,
            **options)
        if begin:
            self.begin(model, optimizer)
        return optimizer

    def begin(self, model, optimizer=None):
        self.hvd.broadcast_parameters(model.state_dict(), self.root, process_set=self.process_set)
        # Horovod has no broadcast for LBFGS.
        if optimizer is not None and not isinstance(optimizer, torch.optim.LBFGS):
            self.hvd.broadcast_optimizer_state(optimizer, self.root, process_set=self.process_set)

    def synchronize(self, optimizer):
        optimizer.synchronize()

    def skip_synchronize(self, optimizer):
        return optimizer.skip_synchronize()

    def average(self, value):
        tensor = torch.as_tensor(value, dtype=torch.float64).detach()
        return self.hvd.allreduce(tensor, name="average", process_set=self.process_set).item()


# ---- the results of a loop --------------------------------------------------------------------------------------


def numbers(result, name="result"):
    """name -> value, for every tensor and number in a result. The name says where the value is."""
    if isinstance(result, torch.nn.Module):
        return numbers({key: value for key, value in result.state_dict().items()}, f"{name}.model")
    if isinstance(result, torch.optim.Optimizer):
        parameters = [parameter for group in result.param_groups for parameter in group["params"]]
        options = [{key: value for key, value in group.items() if key not in ("params", "param_names")}
                   for group in result.param_groups]
        return {**numbers([result.state.get(parameter, {}) for parameter in parameters], f"{name}.state"),
                **numbers(options, f"{name}.options")}
    if isinstance(result, torch.Tensor):
        result = result.detach()
        return {name: (result.to_dense() if result.is_sparse else result).clone()}
    if isinstance(result, dict):
        return _merged(numbers(value, f"{name}[{key!r}]") for key, value in result.items())
    if isinstance(result, (list, tuple)):
        return _merged(numbers(value, f"{name}[{index}]") for index, value in enumerate(result))
    if result is None or isinstance(result, (bool, int, float, str)):
        return {name: result}
    raise TypeError(f"{name}: no numbers in a {type(result).__name__}")


def _merged(parts):
    return dict(itertools.chain.from_iterable(part.items() for part in parts))


def run(train, world):
    """Runs a loop. Returns (the numbers of its results, the texts of its warnings)."""
    torch.manual_seed(4 + world.rank)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = numbers(train(world))
    return result, {f"{warning.category.__name__}: {warning.message}" for warning in caught
                    if not issubclass(warning.category, (DeprecationWarning, FutureWarning))}


def run_on_all_ranks(hvd, train):
    """Runs a loop on all ranks, and returns the results of run() on each. If a rank fails, every rank raises an
    AssertionError with all causes."""
    done, failure = None, None
    process_set = start(hvd)
    try:
        done = run(train, Ranks(hvd, process_set))
    except Exception:
        failure = traceback.format_exc()
    outcomes = _exchanged(hvd, process_set, (done, failure))
    failures = [f"rank {rank} of {len(outcomes)}:\n{text}" for rank, (_, text) in enumerate(outcomes) if text]
    if failures:
        raise AssertionError("fails on ranks, not in one process\n" + "\n".join(failures))
    return [done for done, _ in outcomes]


def _exchanged(hvd, process_set, outcome):
    """The outcomes of all ranks. If a rank failed, Horovod starts anew first, because others may wait for that rank."""
    if outcome[1] is None:
        try:
            return hvd.allgather_object(outcome, process_set=process_set)
        except hvd.HorovodInternalError:
            pass  # another rank failed, and left the job
    hvd.shutdown()
    return hvd.allgather_object(outcome, process_set=start(hvd))


def check(expected, found, rtol, atol, warns):
    """Asserts that the results are equal on all ranks and equal to those of one process, and that no rank warns
    more."""
    (wanted, warned_alone), ranks = expected, found
    problems = []
    for rank, (result, warned) in enumerate(ranks):
        problems += [f"rank {rank} warns, one process does not: {text}" for text in warned - warned_alone
                     if not (warns and warns in text)]
        if result.keys() != wanted.keys():
            problems.append(f"rank {rank}: missing {sorted(wanted.keys() - result.keys())}, "
                            f"not in one process {sorted(result.keys() - wanted.keys())}")
    for key, value in wanted.items():
        values = [result[key] for result, _ in ranks if key in result]
        if not isinstance(value, (torch.Tensor, float)):
            problems += [f"{key}: {other!r} on rank {rank}, {value!r} in one process"
                         for rank, other in enumerate(values) if other != value]
            continue
        tensors = [torch.as_tensor(each) for each in values]
        problems += [f"{key}: rank {rank} differs from rank 0 by {_difference(other, tensors[0])}"
                     for rank, other in enumerate(tensors) if not _same_bits(other, tensors[0])]
        try:
            if tensors:
                torch.testing.assert_close(tensors[0], torch.as_tensor(value), rtol=rtol, atol=atol)
        except AssertionError:
            problems.append(f"{key}: differs from one process by {_difference(tensors[0], torch.as_tensor(value))}")
    assert not problems, "\n".join(problems)


def _same_bits(one, other):
    return one.dtype == other.dtype and torch.equal(one, other)


def _difference(one, other):
    if one.shape != other.shape or one.dtype != other.dtype:
        return f"shape or type ({tuple(one.shape)} {one.dtype}, {tuple(other.shape)} {other.dtype})"
    return f"{(one.double() - other.double()).abs().max().item():.3g}" if one.numel() else "nothing"
