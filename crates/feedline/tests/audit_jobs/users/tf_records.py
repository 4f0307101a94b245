"""tf.data: TFRecord files by interleave, a shuffle buffer, batches, prefetch, in an eager loop.

Fault: reshuffle_each_iteration=False, so each epoch has the same order. Healthy: it is left at its default.
"""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import draw
import tensorflow as tf


def main():
    job = draw.Job("order-never-changes", also_ok=[*draw.LIMITS, "one-file-many-workers"])
    shards, each = job.draw("shards", 24, 40), job.draw("each", 20, 40)
    size, batch = job.draw("size", 10_000, 40_000), job.draw("batch", 8, 16)
    cycle, epochs = job.draw("cycle", 1, 4), job.draw("epochs", 3, 4)
    seconds = job.compute(0.002, 0.004, steps=epochs * shards * each // batch)

    def make():
        os.makedirs(job.path("train"))
        for number in range(shards):
            with tf.io.TFRecordWriter(job.path("train", f"{number:04}.tfrecord")) as writer:
                for at in range(each):
                    writer.write(draw.noise(size, number * 131071 + at * 997))

    job.begin(make)
    data = tf.data.Dataset.from_tensor_slices(draw.paths(job.path("train")))
    data = data.interleave(tf.data.TFRecordDataset, cycle_length=cycle, num_parallel_calls=cycle)
    data = data.shuffle(200, seed=7, reshuffle_each_iteration=not job.faulty)
    data = data.map(lambda record: tf.io.decode_raw(tf.strings.substr(record, 0, 2048), tf.uint8))
    data = data.batch(batch).prefetch(tf.data.AUTOTUNE)
    for _epoch in range(epochs):
        for _batch in data:
            draw.compute(seconds)


if __name__ == "__main__":
    main()
