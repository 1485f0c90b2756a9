"""A training script that accumulates gradients of several passes, uses automatic mixed precision with a GradScaler, and
clips between synchronize() and step()."""
import torch
from torch import nn

import horovod.torch as hvd

STEPS, PASSES, BATCH, CLIP = 60, 3, 16, 1.0


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(),
                                 nn.Linear(2 * width, width))

    def forward(self, x):
        normed = self.norm(x)
        x = x + self.attention(normed, normed, normed, need_weights=False)[0]
        return x + self.mlp(x)


class Copier(nn.Module):
    """A network that learns to say which token came first."""

    def __init__(self, tokens=8, width=16, length=6):
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.position = nn.Parameter(torch.randn(length, width) * 0.1)
        self.block = Block(width)
        self.head = nn.Linear(width, tokens)

    def forward(self, tokens):
        return self.head(self.block(self.embedding(tokens) + self.position)[:, -1])


def main():
    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(9)
    model = Copier()
    no_decay = [parameter for parameter in model.parameters() if parameter.ndim < 2]
    decay = [parameter for parameter in model.parameters() if parameter.ndim >= 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.01}, {"params": no_decay, "weight_decay": 0.0}],
                                  lr=0.01)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(),
                                         backward_passes_per_step=PASSES, gradient_predivide_factor=2.0)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS, eta_min=0.001)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 8, growth_interval=20)
    random = torch.Generator().manual_seed(200 + hvd.rank())
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        for _ in range(PASSES):
            tokens = torch.randint(0, 8, (BATCH, 6), generator=random)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(model(tokens).float(), tokens[:, 0]) / PASSES
            scaler.scale(loss).backward()
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), CLIP).item())
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
        schedule.step()
        losses.append(hvd.allreduce(loss.detach() * PASSES, name="loss").item())
        if step % 20 == 0 and hvd.rank() == 0:
            print(f"step {step}: loss {losses[-1]:.3f}, norm {norms[-1]:.3f}, scale {scaler.get_scale():.0f}")
    assert losses[-1] < losses[0] / 2, (losses[0], losses[-1])
    # The script clips after the reduction, so that all ranks had the same norm and made the same step.
    for kept in (torch.tensor(norms), torch.cat([parameter.detach().flatten() for parameter in model.parameters()])):
        rows = hvd.allgather(kept.unsqueeze(0))
        assert all(torch.equal(row, rows[0]) for row in rows), "ranks differ"


if __name__ == "__main__":
    main()
    print("OK")
