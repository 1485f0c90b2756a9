"""Batch normalization over the batches of all ranks."""
import tensorflow as tf

from horovod.tensorflow import mpi_ops


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):
    """tf.keras.layers.BatchNormalization whose mean and variance are those of the batches of all ranks, of equal
    size."""

    def __init__(self, fused=False, **kwargs):
        if fused in (True, None):
            raise ValueError("SyncBatchNormalization: fused is False; TensorFlow's fused kernel cannot wait for other "
                             "ranks")
        if not hasattr(tf.keras, "Variable"):  # Keras 2 chooses the fused kernel for images, which asks no other rank
            kwargs["fused"] = False
        super().__init__(**kwargs)

    def _moments(self, *args, **kwargs):
        mean, variance = super()._moments(*args, **kwargs)
        size = mpi_ops.size()
        if size == 1:
            return mean, variance
        both = tf.stack([mean, variance + tf.square(mean)])
        both = mpi_ops._allreduce(both, op=mpi_ops.Sum, name=f"{self.name}_moments") / tf.cast(size, both.dtype)
        mean, mean_of_squares = tf.unstack(both, 2)
        return mean, mean_of_squares - tf.square(mean)
