"""Data that other processes prepare: TensorFlow's tf.data service in a job of its own."""
