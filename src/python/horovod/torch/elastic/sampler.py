"""A sampler that knows which samples of an epoch the job has used, and divides the others among the ranks."""
import itertools
import math
import random

import torch

from horovod.torch._job import rank, size


class ElasticSampler(torch.utils.data.Sampler):
    """Divides a data set among the ranks. As an attribute of a TorchState it is committed and restored with it.

    Call record_batch() after each batch, and set_epoch() at the end of each epoch. After a reset the samples that were
    not recorded are divided anew. At the end of an epoch its remaining samples are repeated, so that all ranks get
    equally many.
    """

    def __init__(self, dataset, shuffle=True, seed=0):
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch = 0
        self.processed_num = 0  # samples of this epoch that the job has used, over all ranks
        self.reset()

    def set_epoch(self, epoch):
        """Begins an epoch, of which no sample has been used."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx, batch_size):
        """All ranks have trained on a batch of `batch_size` samples each. The division stays as it is until reset()."""
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self):
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict):
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def reset(self):
        """Divides the samples that have not been used among the ranks that there are."""
        self.num_replicas, self.rank = size(), rank()
        indices = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(indices)
        self.remaining_indices = indices[self.processed_num:]
        self.num_samples = math.ceil(len(self.remaining_indices) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self):
        repeated = itertools.islice(itertools.cycle(self.remaining_indices), self.total_size)
        return itertools.islice(repeated, self.rank, None, self.num_replicas)

    def __len__(self):
        return self.num_samples
