"""Batch normalisation over the batches of all ranks."""
from torch.nn.modules.batchnorm import _BatchNorm


class SyncBatchNorm(_BatchNorm):
    """To come. In a job of one rank torch.nn.BatchNorm1d/2d/3d do the same."""

    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True):
        raise NotImplementedError("This version of Horovod has no SyncBatchNorm yet; torch.nn.BatchNorm normalises "
                                  "over each rank's own batch.")
