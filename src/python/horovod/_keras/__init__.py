"""What horovod.keras and horovod.tensorflow.keras have in common, for Keras 2 and for Keras 3 on its backends."""
