"""Trains a small convolutional network on scikit-learn's digits with Horovod, then checks the loss curve.

    horovodrun -np 4 python examples/digits/train.py
    horovodrun -np 4 python examples/digits/train.py --checkpoints run

With a folder for checkpoints the same command goes on where an earlier one was interrupted, with the same losses.

Every step takes one global batch; each rank computes on its share, Horovod averages the gradients. Afterwards rank 0
trains the same network alone on the whole global batches, without Horovod, and compares: N ranks must have followed the
curve that one process follows. Exits with 1 if they did not.
"""
import argparse
import contextlib
import sys
import time

import numpy
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

import horovod.torch as hvd

SEED = 2024
TEST_IMAGES = 297  # this many of the 1797 images are for the test


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=100, help="images per step, of all ranks together")
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--checkpoints", metavar="FOLDER", help="save there, and go on from what is there")
    parser.add_argument("--save-every", type=int, default=50, metavar="STEPS", help="default: 50")
    parser.add_argument("--tolerance", type=float, default=1e-4,
                        help="largest relative difference between the loss curves (default: 0.0001)")
    parser.add_argument("--no-compare", action="store_true", help="train only")
    parser.add_argument("--no-reduction", action="store_true",
                        help="do not average gradients: every rank learns from its own share only, the curves differ")
    return parser.parse_args()


def load_data():
    """Returns the images and labels for training, then those for the test. All ranks get the same split."""
    digits = load_digits()
    images = torch.tensor(digits.images / 16.0, dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(digits.target)
    order = torch.from_numpy(numpy.random.RandomState(SEED).permutation(len(labels)))
    train, test = order[TEST_IMAGES:], order[:TEST_IMAGES]
    return images[train], labels[train], images[test], labels[test]


def global_batches(epoch, image_count, batch_size):
    """Yields the images of each step of an epoch; all ranks get the same. Images that do not fill a batch are left
    out."""
    order = numpy.random.RandomState(SEED + 1 + epoch).permutation(image_count)
    steps = image_count // batch_size
    return torch.from_numpy(order[:steps * batch_size]).view(steps, batch_size)


def shard(batch, rank, size):
    """Returns a rank's share of a global batch. The shares of the ranks are disjoint and equally large."""
    return batch[rank::size]


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = torch.nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = torch.nn.Linear(32 * 4, 64)
        self.fc2 = torch.nn.Linear(64, 10)

    # This network has no bends. At the bend of a ReLU, or where two pixels are equally bright, the last bit of a float
    # decides about a gradient. On some processors this alone makes two curves of the same training differ.
    def forward(self, x):
        x = F.avg_pool2d(torch.tanh(self.conv1(x)), 2)
        x = F.avg_pool2d(torch.tanh(self.conv2(x)), 2)
        return self.fc2(torch.tanh(self.fc1(x.flatten(1))))


def new_network():
    torch.manual_seed(SEED)
    return Network()


def new_optimizer(network, learning_rate):
    return torch.optim.SGD(network.parameters(), lr=learning_rate, momentum=0.9)


def train_step(network, optimizer, images, labels):
    """Trains one step and returns its loss."""
    network.train()
    optimizer.zero_grad()
    loss = F.cross_entropy(network(images), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()


def accuracy_of(network, images, labels):
    """Returns the percentage of right answers. Each rank tests its share of the images."""
    rank, size = hvd.rank(), hvd.size()
    network.eval()
    with torch.no_grad():
        correct = (network(images[rank::size]).argmax(1) == labels[rank::size]).sum()
    return 100.0 * hvd.allreduce(correct, name="correct", op=hvd.Sum).item() / len(labels)


def train_distributed(arguments):
    """Trains, and returns the loss of every step, averaged over the ranks."""
    rank, size = hvd.rank(), hvd.size()
    images, labels, test_images, test_labels = load_data()
    if arguments.batch_size % size != 0:
        sys.exit(f"--batch-size {arguments.batch_size} cannot be shared equally by {size} ranks")
    network = new_network()
    optimizer = new_optimizer(network, arguments.learning_rate)
    hvd.broadcast_parameters(network.state_dict(), root_rank=0)
    if not arguments.no_reduction:
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=network.named_parameters())

    def say(text):
        if rank == 0:
            print(text, flush=True)

    say(f"digits: {len(labels)} images for training, {len(test_labels)} for the test; {size} ranks, "
        f"batches of {arguments.batch_size} = {size} x {arguments.batch_size // size}"
        + (" (gradients are NOT averaged)" if arguments.no_reduction else ""))
    losses = []  # losses of all steps so far, including those of earlier jobs
    checkpointer = None
    if arguments.checkpoints:
        checkpointer = hvd.checkpoint.Checkpointer(arguments.checkpoints, network, optimizer,
                                                   every_steps=arguments.save_every)
        losses = list(checkpointer.restore().get("losses", []))
        if losses:
            say(f"going on after step {len(losses)}, from {arguments.checkpoints}")

    with checkpointer or contextlib.nullcontext():  # if the job was told to stop, the block ends it with exit code 75
        for epoch in range(arguments.epochs):
            batches = global_batches(epoch, len(labels), arguments.batch_size)
            to_do = batches[max(0, len(losses) - epoch * len(batches)):]
            start = time.perf_counter()
            for batch in to_do:
                mine = shard(batch, rank, size)
                losses.append(hvd.allreduce(train_step(network, optimizer, images[mine], labels[mine]), name="loss"))
                if checkpointer:
                    checkpointer.step(len(losses), extra={"losses": torch.stack(losses)})
                    if checkpointer.stopped:
                        return None
            if len(to_do) > 0:
                seconds = time.perf_counter() - start
                accuracy = accuracy_of(network, test_images, test_labels)
                say(f"epoch {epoch + 1:3}/{arguments.epochs}   loss {torch.stack(losses[-len(batches):]).mean():.4f}   "
                    f"accuracy {accuracy:5.1f} %   {to_do.numel() / seconds:8,.0f} images/s")
        if checkpointer:
            checkpointer.save(len(losses), extra={"losses": torch.stack(losses)})
    say(f"final accuracy: {accuracy_of(network, test_images, test_labels):.1f} % of {len(test_labels)} images that "
        "the network has not seen")
    return torch.stack(losses)


def train_alone(arguments):
    """Trains one process with the same global batches, without Horovod. Returns the loss of every step."""
    images, labels, _, _ = load_data()
    network = new_network()
    optimizer = new_optimizer(network, arguments.learning_rate)
    return torch.stack([train_step(network, optimizer, images[batch], labels[batch])
                        for epoch in range(arguments.epochs)
                        for batch in global_batches(epoch, len(labels), arguments.batch_size)])


def compare(arguments, size, curve):
    """Prints both curves and says whether they agree."""
    alone = train_alone(arguments)
    differences = (curve - alone).abs() / alone.abs()
    print("the same training in one process:")
    print(f"   epoch   loss of {size} ranks   loss of 1 process   largest difference")
    for epoch, (ours, theirs, difference) in enumerate(zip(*(values.chunk(arguments.epochs)
                                                             for values in (curve, alone, differences)))):
        print(f"   {epoch + 1:5}   {ours.mean():15.6f}   {theirs.mean():17.6f}   {difference.max():18.1e}")
    largest = differences.max().item()
    agree = largest <= arguments.tolerance
    print(f"the loss curves {'agree' if agree else 'DIFFER'}: largest relative difference over {len(alone)} steps "
          f"{largest:.1e}, allowed {arguments.tolerance:.1e}", flush=True)
    return agree


def main():
    arguments = parse_arguments()
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    curve = train_distributed(arguments)
    hvd.shutdown()
    if rank == 0 and not arguments.no_compare and not compare(arguments, size, curve):
        sys.exit(1)


if __name__ == "__main__":
    main()
