"""A training script for a generator and a discriminator with an optimizer for each, and SyncBatchNorm in the
generator."""
import torch
from torch import nn

import horovod.torch as hvd

STEPS, BATCH, NOISE = 150, 32, 4


def real(generator):
    """Random points on a line, with some noise."""
    x = torch.rand(BATCH, 1, generator=generator) * 2 - 1
    return torch.cat([x, 2 * x + 0.5], dim=1) + torch.randn(BATCH, 2, generator=generator) * 0.05


def distance(points):
    """The mean distance of the points from the line."""
    return (points[:, 1] - 2 * points[:, 0] - 0.5).abs().mean()


def main():
    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    generator_net = nn.Sequential(nn.Linear(NOISE, 32), hvd.SyncBatchNorm(32), nn.ReLU(), nn.Linear(32, 2))
    discriminator_net = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32), nn.LeakyReLU(0.2),
                                      nn.Linear(32, 1))
    hvd.broadcast_parameters(generator_net.state_dict(), root_rank=0)
    hvd.broadcast_parameters(discriminator_net.state_dict(), root_rank=0)

    g_optimizer = torch.optim.Adam(generator_net.parameters(), lr=0.005, betas=(0.5, 0.999))
    g_optimizer = hvd.DistributedOptimizer(g_optimizer,
                                           named_parameters=generator_net.named_parameters(prefix="generator"))
    d_optimizer = torch.optim.Adam(discriminator_net.parameters(), lr=0.005, betas=(0.5, 0.999))
    d_optimizer = hvd.DistributedOptimizer(d_optimizer, groups=2,
                                           named_parameters=discriminator_net.named_parameters(prefix="discriminator"))
    hvd.broadcast_optimizer_state(g_optimizer, root_rank=0)
    hvd.broadcast_optimizer_state(d_optimizer, root_rank=0)

    random = torch.Generator().manual_seed(100 + hvd.rank())
    criterion = nn.BCEWithLogitsLoss()
    ones, zeros = torch.ones(BATCH, 1), torch.zeros(BATCH, 1)
    before = distance(generator_net(torch.randn(BATCH, NOISE, generator=random))).item()
    for step in range(STEPS):
        # One update of the discriminator, with real and generated points.
        d_optimizer.zero_grad()
        generated = generator_net(torch.randn(BATCH, NOISE, generator=random))
        d_loss = criterion(discriminator_net(real(random)), ones)
        d_loss = d_loss + criterion(discriminator_net(generated.detach()), zeros)
        d_loss.backward()
        d_optimizer.step()

        # One update of the generator. The discriminator is frozen, because it must not learn from this pass.
        for parameter in discriminator_net.parameters():
            parameter.requires_grad_(False)
        g_optimizer.zero_grad()
        g_loss = criterion(discriminator_net(generated), ones)
        g_loss.backward()
        g_optimizer.step()
        for parameter in discriminator_net.parameters():
            parameter.requires_grad_(True)
        if step % 50 == 0:
            both = hvd.allreduce(torch.stack([d_loss.detach(), g_loss.detach()]), name="losses")
            if hvd.rank() == 0:
                print(f"step {step}: discriminator {both[0]:.3f}, generator {both[1]:.3f}")

    after = distance(generator_net(torch.randn(BATCH, NOISE, generator=random))).item()
    before, after = hvd.allreduce(torch.tensor([before, after]), name="distances").tolist()
    assert after < before / 2, (before, after)
    for net in (generator_net, discriminator_net):
        state = hvd.allgather_object([value.tolist() for value in net.state_dict().values()])
        assert all(each == state[0] for each in state), "ranks differ"


if __name__ == "__main__":
    main()
    print("OK")
