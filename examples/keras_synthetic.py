"""How many images per second a small ResNet trains on made-up images, on 1 rank and on many.

    horovodrun -np 4 python examples/keras_synthetic.py --blocks 8
    KERAS_BACKEND=torch horovodrun -np 4 python examples/keras_synthetic.py
"""
import argparse
import time

import keras
import numpy as np

import horovod.keras as hvd

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--blocks", type=int, default=4, help="residual blocks")
parser.add_argument("--filters", type=int, default=32)
parser.add_argument("--batch-size", type=int, default=16, help="images per rank and step")
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--warmup-steps", type=int, default=3)
parser.add_argument("--fp16-allreduce", action="store_true", help="communicate gradients as float16")
options = parser.parse_args()

hvd.init()
layers = keras.layers
inputs = layers.Input((32, 32, 3))
x = layers.Conv2D(options.filters, 3, padding="same")(inputs)
for _ in range(options.blocks):
    y = layers.Activation("relu")(layers.BatchNormalization()(x))
    x = layers.Add()([x, layers.Conv2D(options.filters, 3, padding="same")(y)])
model = keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))
model.compile(
    optimizer=hvd.DistributedOptimizer(
        keras.optimizers.SGD(0.01, momentum=0.9),
        compression=hvd.Compression.fp16 if options.fp16_allreduce else hvd.Compression.none),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
generator = np.random.default_rng(hvd.rank())
images = generator.normal(size=(options.batch_size, 32, 32, 3)).astype(np.float32)
labels = generator.integers(0, 10, options.batch_size)

for step in range(options.warmup_steps + options.steps):
    if step == options.warmup_steps:
        hvd.barrier()
        begin = time.perf_counter()
    model.train_on_batch(images, labels)
hvd.barrier()
seconds = time.perf_counter() - begin
if hvd.rank() == 0:
    print(f"Keras on {keras.backend.backend()}, {hvd.size()} ranks: "
          f"{options.steps * options.batch_size * hvd.size() / seconds:.1f} images per second")
