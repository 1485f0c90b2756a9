"""A forked child of a rank, such as a data loader's worker, can ask for the rank, size and so on of its parent."""
import os
import pickle

import torch
from torch.utils.data import DataLoader, Dataset

import horovod.torch

QUESTIONS = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size", "is_initialized", "mpi_enabled",
             "gloo_enabled", "nccl_built")


def answers():
    found = [getattr(horovod.torch, question)() for question in QUESTIONS]
    whole = horovod.torch.global_process_set
    return found + [horovod.torch.mpi_ops.is_homogeneous(), whole.size(), whole.rank(), whole.ranks, whole.included()]


def in_child(call):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = call()
        except Exception as error:
            answer = error
        os.write(writer, pickle.dumps(answer))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pickle.loads(pipe.read())
    assert os.waitpid(child, 0)[1] == 0
    return answer


def test_it_gets_the_answers_of_its_parent(hvd, rank, size):
    assert in_child(answers) == answers()
    assert in_child(lambda: in_child(answers)) == answers(), "a grandchild"


def seed_by_rank(worker):
    torch.manual_seed(1000 * horovod.torch.rank() + worker)


class Seeds(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.initial_seed(), horovod.torch.rank(), horovod.torch.size()


def test_a_data_loaders_workers_can_be_seeded_by_rank(hvd, rank, size):
    loader = DataLoader(Seeds(), batch_size=2, num_workers=2, worker_init_fn=seed_by_rank,
                        multiprocessing_context="fork")
    batches = list(loader)
    assert [seeds.tolist() for seeds, _, _ in batches] == [[1000 * rank] * 2, [1000 * rank + 1] * 2]
    assert all(ranks.tolist() == [rank] * 2 and sizes.tolist() == [size] * 2 for _, ranks, sizes in batches)


def test_it_may_shut_down_without_harm_to_its_parent(hvd, size):
    def leave():
        hvd.shutdown()
        return hvd.is_initialized()

    assert in_child(leave) is False
    assert hvd.is_initialized()
    assert torch.equal(hvd.allreduce(torch.ones(1), op=hvd.Sum), torch.tensor([float(size)]))


def test_communication_there_names_the_cause(hvd):
    for call in (lambda: hvd.allreduce(torch.ones(1)), lambda: hvd.broadcast_(torch.ones(1), 0, name="forked"),
                 hvd.barrier, lambda: hvd.broadcast_object(1), hvd.init):
        assert "fork" in str(in_child(call))


def test_it_may_compute_gradients_of_its_own(hvd, rank):
    model = torch.nn.Linear(2, 1, bias=False)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

    def compute():
        model(torch.tensor([[rank + 1.0, 2.0]])).sum().backward()
        return model.weight.grad.tolist()

    assert in_child(compute) == [[rank + 1.0, 2.0]]
    assert "fork" in str(in_child(lambda: (compute(), optimizer.step())))
    assert model.weight.grad is None or not model.weight.grad.any()
    before = model.weight.detach().clone()
    compute()
    optimizer.step()
    average = sum(other + 1.0 for other in range(hvd.size())) / hvd.size()
    assert torch.allclose(before - model.weight.detach(), torch.tensor([[average, 2.0]]))


def test_a_child_forked_after_shutdown_knows_nothing(hvd):
    hvd.barrier()
    hvd.shutdown()
    assert in_child(hvd.is_initialized) is False
    assert isinstance(in_child(hvd.rank), ValueError)
    hvd.init()
