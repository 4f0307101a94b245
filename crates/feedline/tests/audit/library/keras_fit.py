"""Trains a model from text files with Keras, for 2 epochs, and then reads in a loop. Prints a number of batches."""
import os
import sys

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", TF_ENABLE_ONEDNN_OPTS="0", CUDA_VISIBLE_DEVICES="")
import keras
import tensorflow

names = sorted(os.path.join(sys.argv[1], name) for name in os.listdir(sys.argv[1]))
data = tensorflow.data.Dataset.from_tensor_slices(names).map(tensorflow.io.read_file)
data = data.map(lambda text: (tensorflow.reshape(tensorflow.cast(tensorflow.strings.length(text), "float32"), (1,)), 1.0))
data = data.batch(8)
model = keras.Sequential([keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse")
seen = []
model.fit(data, epochs=2, verbose=0, shuffle=False, callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: seen.append(1))])
model.save(os.path.join(os.path.dirname(sys.argv[1]), "model.keras"))
print(len(seen), sum(1 for _ in data))
