"""A sampler whose position is saved with the training. Another number of ranks can go on from there."""
import torch

from horovod.torch._job import rank, size


class Sampler(torch.utils.data.Sampler):
    """Divides a data set among the ranks, and knows how much of it the job has already used.

        sampler = hvd.checkpoint.Sampler(dataset)
        loader = torch.utils.data.DataLoader(dataset, batch_size=32, sampler=sampler)
        for epoch in range(sampler.epoch, epochs):
            sampler.set_epoch(epoch)
            for batch in loader:
                …
                sampler.advance(len(batch))         # the sampler cannot know: loaders read ahead
                checkpointer.step(step)             # Checkpointer(…, sampler=sampler)

    Each rank calls advance() with the number of its own samples of a step, which must be equal on all ranks. After a
    restore the rest of the epoch is divided among the ranks of the new job: no sample is repeated or left out. The
    order of the samples depends only on seed and epoch. At the end of an epoch its first samples are repeated so that
    all ranks get equally many.
    """

    def __init__(self, dataset, shuffle=True, seed=0):
        self.epoch = 0
        self.position = 0  # how many samples of this epoch the job has used, over all ranks
        self._count, self._shuffle, self._seed = len(dataset), shuffle, seed
        # torch's generator as it was when the restored checkpoint was saved: a list that all samplers share which were
        # restored together, empty when one of them has begun
        self._random_state = []
        self._is_used_up = False  # this process has come to the end of the epoch

    def set_epoch(self, epoch):
        """Begins an epoch. The epoch of a restored checkpoint goes on at its saved position."""
        if epoch != self.epoch:
            self.epoch, self.position = epoch, 0
            self._random_state, self._is_used_up = [], False

    def advance(self, samples):
        """Call this when this rank has trained on `samples` more samples."""
        self.position = min(self._count, self.position + samples * size())
        self._is_used_up |= self.position == self._count

    def keep_random_state(self, shared):
        """restore() calls this when it has set the random numbers of this rank. `shared`: the state of torch's
        generator in a list, the same list for all samplers."""
        self._random_state = shared if self.position > 0 else []

    def _order(self):
        if not self._shuffle:
            return list(range(self._count))
        generator = torch.Generator()
        generator.manual_seed(self._seed + self.epoch)
        return torch.randperm(self._count, generator=generator).tolist()

    def __len__(self):
        return -(-(self._count - self.position) // size())

    def __iter__(self):
        if self._is_used_up and self.position > 0:
            raise RuntimeError(f"the samples of epoch {self.epoch} have been used: call sampler.set_epoch() with the "
                               "number of the next epoch before it begins")
        # A DataLoader draws a number whenever it begins, before it asks for the first sample. A training that was not
        # interrupted drew none here, in the middle of an epoch. A sampler that begins after another one leaves the
        # generator alone, because the training may have drawn from it since.
        shared, self._random_state = self._random_state, []
        if shared:
            torch.set_rng_state(shared.pop())
        order = self._order()
        rest = order[self.position:]
        # The repeated samples do not depend on the position, so that an epoch that was interrupted has the same ones.
        rest += [order[i % self._count] for i in range(len(self) * size() - len(rest))]
        yield from rest[rank()::size()]
        self._is_used_up = True

    def state_dict(self):
        return {"epoch": self.epoch, "position": self.position, "seed": self._seed, "samples": self._count,
                "shuffle": self._shuffle}

    def load_state_dict(self, state):
        if state["samples"] != self._count:
            raise ValueError(
                f"the checkpoint's sampler was over {state['samples']} samples, this one is over {self._count}")
        self.epoch, self.position, self._is_used_up = state["epoch"], state["position"], False
        self._seed, self._shuffle = state["seed"], state["shuffle"]
