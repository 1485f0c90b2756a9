"""A training script for a convolutional network on small images, with a DistributedSampler, learning rate warmup,
averaged metrics and a checkpoint."""
import os
import tempfile

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import horovod.torch as hvd

EPOCHS, WARMUP_EPOCHS, BATCH, BASE_LR = 6, 2, 32, 0.02


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = torch.nn.Conv2d(8, 16, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(16)
        self.fc1 = torch.nn.Linear(16 * 16, 32)
        self.fc2 = torch.nn.Linear(32, 4)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.norm(self.conv2(x)), 2))
        x = F.dropout(F.relu(self.fc1(x.flatten(1))), 0.1, training=self.training)
        return F.log_softmax(self.fc2(x), dim=1)


def images(count, seed):
    """Random images with a bright square in one of four corners, and the corner as the label."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (count,), generator=generator)
    data = torch.randn(count, 1, 16, 16, generator=generator) * 0.7
    for image, label in zip(data, labels):
        row, column = divmod(int(label), 2)
        image[0, row * 8:row * 8 + 8, column * 8:column * 8 + 8] += 1
    return TensorDataset(data, labels)


def learning_rate(epoch, batch, batches):
    progress = epoch + (batch + 1) / batches
    if progress < WARMUP_EPOCHS:  # the rate grows from that of one rank to that of all ranks
        return BASE_LR * (progress * (hvd.size() - 1) / WARMUP_EPOCHS + 1)
    return BASE_LR * hvd.size() * (0.5 if epoch >= EPOCHS - 2 else 1.0)


def average(value, name):
    return hvd.allreduce(torch.tensor(value), name=name).item()


def evaluate(model, loader):
    model.eval()
    loss = correct = seen = 0.0
    with torch.no_grad():
        for data, target in loader:
            output = model(data)
            loss += F.nll_loss(output, target, reduction="sum").item()
            correct += (output.argmax(1) == target).float().sum().item()
            seen += len(data)
    return average(loss / seen, "avg_loss"), average(correct / seen, "avg_accuracy")


def main():
    hvd.init()
    torch.manual_seed(42)
    torch.set_num_threads(1)
    train, test = images(512, seed=1), images(128, seed=2)
    train_sampler = DistributedSampler(train, num_replicas=hvd.size(), rank=hvd.rank())
    test_sampler = DistributedSampler(test, num_replicas=hvd.size(), rank=hvd.rank())
    train_loader = DataLoader(train, batch_size=BATCH, sampler=train_sampler)
    test_loader = DataLoader(test, batch_size=BATCH, sampler=test_sampler)

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=BASE_LR, momentum=0.5)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(),
                                         compression=hvd.Compression.fp16, op=hvd.Average)
    folder = hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None, root_rank=0, name="folder")
    first, _ = evaluate(model, test_loader)
    for epoch in range(EPOCHS):
        model.train()
        train_sampler.set_epoch(epoch)
        for batch, (data, target) in enumerate(train_loader):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(epoch, batch, len(train_loader))
            optimizer.zero_grad()
            F.nll_loss(model(data), target).backward()
            optimizer.step()
        loss, accuracy = evaluate(model, test_loader)
        if hvd.rank() == 0:
            print(f"epoch {epoch}: loss {loss:.3f}, accuracy {accuracy:.2f}")
            checkpoint = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(checkpoint, os.path.join(folder, "last.pt"))

    # Training starts again from the checkpoint that rank 0 wrote. Only rank 0 reads the checkpoint.
    again = Net()
    if hvd.rank() == 0:
        again.load_state_dict(torch.load(os.path.join(folder, "last.pt"))["model"])
    hvd.broadcast_parameters(again.state_dict(), root_rank=0)

    assert loss < first / 2 and accuracy > 0.85, (first, loss, accuracy)
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    everyones = hvd.allgather(weights.unsqueeze(0))
    assert all(torch.equal(row, everyones[0]) for row in everyones), "ranks differ"
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), again.parameters()))


if __name__ == "__main__":
    main()
    print("OK")
