"""A training script that learns ratings of items by users. The embeddings have sparse gradients and are trained by
SparseAdam, the dense layers by Adam."""
import torch
from torch import nn

import horovod.torch as hvd

USERS, ITEMS, WIDTH, EPOCHS, BATCH = 60, 40, 8, 8, 64


class Ratings(nn.Module):
    def __init__(self):
        super().__init__()
        self.users = nn.Embedding(USERS, WIDTH, sparse=True)
        self.items = nn.EmbeddingBag(ITEMS, WIDTH, sparse=True, mode="sum")
        self.head = nn.Sequential(nn.Linear(2 * WIDTH, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, user, items):
        return self.head(torch.cat([self.users(user), self.items(items)], dim=1)).squeeze(1)


def ratings(seed, count):
    random = torch.Generator().manual_seed(seed)
    taste = torch.randn(USERS, 2, generator=torch.Generator().manual_seed(0))
    kind = torch.randn(ITEMS, 2, generator=torch.Generator().manual_seed(1))
    user = torch.randint(0, USERS, (count,), generator=random)
    items = torch.randint(0, ITEMS, (count, 3), generator=random)
    return user, items, (taste[user].unsqueeze(1) * kind[items]).sum((1, 2))


def main():
    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(5)
    model = Ratings()
    sparse = [(name, parameter) for name, parameter in model.named_parameters() if not name.startswith("head")]
    dense = [(name, parameter) for name, parameter in model.named_parameters() if name.startswith("head")]
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizers = [
        hvd.DistributedOptimizer(torch.optim.SparseAdam([parameter for _, parameter in sparse], lr=0.03),
                                 named_parameters=sparse),
        hvd.DistributedOptimizer(torch.optim.Adam([parameter for _, parameter in dense], lr=0.01),
                                 named_parameters=dense),
    ]
    for optimizer in optimizers:
        hvd.broadcast_optimizer_state(optimizer, root_rank=0, model=model)
    user, items, target = ratings(seed=10 + hvd.rank(), count=1200)
    scale = hvd.allreduce(target.pow(2).mean(), name="scale").sqrt()  # the scale is the same on all ranks
    losses = []
    for epoch in range(EPOCHS):
        order = torch.randperm(len(user), generator=torch.Generator().manual_seed(epoch * 100 + hvd.rank()))
        total = 0.0
        for first in range(0, len(order), BATCH):
            batch = order[first:first + BATCH]
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(user[batch], items[batch]), target[batch] / scale)
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            total += loss.item() * len(batch)
        losses.append(hvd.allreduce(torch.tensor(total / len(order)), name="loss").item())
        if hvd.rank() == 0:
            print(f"epoch {epoch}: loss {losses[-1]:.3f}")
    assert losses[-1] < losses[0] / 2, losses

    # Calls sparse_allreduce directly, without an optimizer. Only the rows in use travel.
    table = torch.sparse_coo_tensor(torch.tensor([[hvd.rank(), 5]]), torch.ones(2, WIDTH), (ITEMS, WIDTH))
    summed = hvd.sparse_allreduce_async(table, name="table", op=hvd.Sum)().to_dense()
    assert summed[5].tolist() == [hvd.size() + (hvd.size() > 5)] * WIDTH and summed[0].tolist() == [1.0] * WIDTH

    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    everyones = hvd.allgather(weights.unsqueeze(0))
    assert all(torch.equal(row, everyones[0]) for row in everyones), "ranks differ"


if __name__ == "__main__":
    main()
    print("OK")
