"""A recurrent network. Ranks have different numbers of batches, and call hvd.join() after their last one. The metrics
of the ranks are gathered."""
import torch
from torch import nn

import horovod.torch as hvd

EPOCHS, LENGTH, BATCH = 6, 12, 16


class Counter(nn.Module):
    """A network that learns to count the ones in a sequence."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(3, 8)
        self.lstm = nn.LSTM(8, 16, batch_first=True)
        self.head = nn.Linear(16, 1)

    def forward(self, tokens, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.embedding(tokens), lengths, batch_first=True,
                                                   enforce_sorted=False)
        _, (hidden, _) = self.lstm(packed)
        return self.head(hidden[-1]).squeeze(1)


def batches(rank, epoch):
    """The batches of a rank. Rank 0 has the fewest."""
    random = torch.Generator().manual_seed(1000 * rank + epoch)
    for _ in range(20 + 7 * rank + epoch % 3):
        lengths = torch.randint(3, LENGTH + 1, (BATCH,), generator=random)
        tokens = torch.randint(1, 3, (BATCH, LENGTH), generator=random)
        tokens[torch.arange(LENGTH) >= lengths.unsqueeze(1)] = 0
        yield tokens, lengths, (tokens == 1).sum(1).float()


def main():
    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(hvd.rank())  # different models, which the broadcast makes equal
    model = Counter()
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.01),
                                         named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    losses = []
    for epoch in range(EPOCHS):
        total = count = 0.0
        for tokens, lengths, target in batches(hvd.rank(), epoch):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(tokens, lengths), target)
            loss.backward()
            optimizer.step()
            total, count = total + loss.item(), count + 1
        last = hvd.join()  # other ranks may still have batches
        counts = hvd.allgather(torch.tensor([count]), name="counts")
        assert last == hvd.size() - 1 and counts.tolist() == sorted(counts.tolist()), (last, counts)
        # A rank that trained on after others had joined has other parameters. All ranks take over those of the last
        # rank.
        hvd.broadcast_parameters(model.state_dict(), root_rank=last)
        hvd.broadcast_optimizer_state(optimizer, root_rank=last)
        sums = hvd.allreduce(torch.tensor([total, count]), op=hvd.Sum, name="loss")
        losses.append((sums[0] / sums[1]).item())
        if hvd.rank() == 0:
            print(f"epoch {epoch}: loss {losses[-1]:.3f}, batches {counts.int().tolist()}")
    assert losses[-1] < losses[0] / 3, losses
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    everyones = hvd.allgather(weights.unsqueeze(0))
    assert all(torch.equal(row, everyones[0]) for row in everyones), "ranks differ"


if __name__ == "__main__":
    main()
    print("OK")
