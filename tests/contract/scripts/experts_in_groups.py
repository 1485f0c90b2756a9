"""A mixture of experts with one expert on each rank. Rows travel to their expert and back with alltoall; all other
layers are the same on every rank (replicated).

The process set of the replicated parameters is the global one. Each expert has a process set of one rank.
"""
import torch
from torch import nn

import horovod.torch as hvd

STEPS, BATCH, WIDTH = 150, 64, 8


class Experts(nn.Module):
    """The layer of experts. This rank's expert computes the rows that all ranks send to it."""

    def __init__(self, process_set):
        super().__init__()
        self.process_set = process_set
        self.gate = nn.Linear(WIDTH, process_set.size())
        torch.manual_seed(10 + hvd.rank())  # the experts of the ranks differ
        self.expert = nn.Sequential(nn.Linear(WIDTH, 32), nn.Tanh(), nn.Linear(32, WIDTH))

    def forward(self, rows):
        noise = torch.randn(len(rows), self.process_set.size())  # the noise makes sure that every expert gets rows
        weights = torch.softmax(self.gate(rows) + noise, dim=1)
        best, chosen = weights.max(dim=1)
        order = torch.argsort(chosen, stable=True)
        splits = torch.bincount(chosen, minlength=self.process_set.size()).to(torch.int32)
        there, received = hvd.alltoall(rows[order], splits, name="to_experts", process_set=self.process_set)
        back, returned = hvd.alltoall(self.expert(there), received, name="from_experts", process_set=self.process_set)
        assert torch.equal(returned, splits) and len(there) == int(received.sum())
        return back[torch.argsort(order)] * best.unsqueeze(1), splits


def data(random):
    """Random rows in four clusters, and as their target the rows turned by the rotation of their cluster."""
    cluster = torch.randint(0, 4, (BATCH,), generator=random)
    rows = torch.randn(BATCH, WIDTH, generator=random) * 0.5
    rows[torch.arange(BATCH), cluster] += 3.0
    rotations = torch.linalg.qr(torch.randn(4, WIDTH, WIDTH, generator=torch.Generator().manual_seed(0)))[0]
    return rows, torch.einsum("bi,bij->bj", rows, rotations[cluster])


def main():
    hvd.init(process_sets="dynamic")
    torch.set_num_threads(1)
    size, rank = hvd.size(), hvd.rank()
    everyone = hvd.global_process_set
    singles = [hvd.add_process_set([one]) for one in range(size)] if size > 1 else [everyone]
    torch.manual_seed(3)
    model = nn.ModuleDict({"experts": Experts(everyone), "head": nn.Linear(WIDTH, WIDTH)})
    replicated = [(name, parameter) for name, parameter in model.named_parameters() if ".expert." not in name]
    own = [(name, parameter) for name, parameter in model.named_parameters() if ".expert." in name]
    hvd.broadcast_parameters(replicated, root_rank=0)
    optimizers = [
        hvd.DistributedOptimizer(torch.optim.Adam([parameter for _, parameter in replicated], lr=0.005),
                                 named_parameters=replicated, process_set=everyone),
        # A rank has the only copy of its expert, whose gradients are averaged in a process set of this rank alone.
        hvd.DistributedOptimizer(torch.optim.Adam([parameter for _, parameter in own], lr=0.01), named_parameters=own,
                                 process_set=singles[rank]),
    ]
    random = torch.Generator().manual_seed(100 + rank)
    losses = []
    for step in range(STEPS):
        rows, target = data(random)
        for optimizer in optimizers:
            optimizer.zero_grad()
        found, splits = model["experts"](rows)
        loss = nn.functional.mse_loss(model["head"](found), target)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(hvd.allreduce(loss.detach(), name="loss").item())
        if step % 50 == 0:
            load = hvd.allreduce(splits, op=hvd.Sum, name="load")
            if rank == 0:
                print(f"step {step}: loss {losses[-1]:.3f}, rows per expert {load.tolist()}")
            assert int(load.sum()) == BATCH * size
    assert sum(losses[-10:]) < sum(losses[:10]) / 2, (losses[:10], losses[-10:])

    shared = torch.cat([parameter.detach().flatten() for _, parameter in replicated])
    rows = hvd.allgather(shared.unsqueeze(0), name="replicated")
    assert all(torch.equal(row, rows[0]) for row in rows), "replicated parameters differ"
    expert = torch.cat([parameter.detach().flatten() for _, parameter in own])
    experts = hvd.allgather(expert.unsqueeze(0), name="experts")
    assert size == 1 or not torch.equal(experts[0], experts[1]), "experts are the same"
    for single in singles:
        hvd.remove_process_set(single)


if __name__ == "__main__":
    main()
    print("OK")
