"""Writes the corpus to begin from: small files of tests/keras/golden, archives, and a message.

usage: make_corpus.py GOLDEN CORPUS
"""
import io
import json
import os
import struct
import sys
import zipfile

import h5py

golden, corpus = sys.argv[1:3]


def write(kind, name, data):
    with open(os.path.join(corpus, kind, name), "wb") as f:
        f.write(data)


for name in ("mlp.tf", "mlp.k3", "graph.tf", "graph.k3"):
    with open(os.path.join(golden, name + ".json")) as f:
        write("json", name, json.dumps(json.load(f), separators=(",", ":")).encode())

for name, method in (("stored", zipfile.ZIP_STORED), ("deflated", zipfile.ZIP_DEFLATED)):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", method) as z:
        for member in ("metadata.json", "config.json", "model.weights.h5", "assets/a"):
            z.writestr(zipfile.ZipInfo(member), b"{}" * 20, method)
    write("zip", name, archive.getvalue())


def number(n):
    return struct.pack("<q", n)


def text(t):
    return number(len(t)) + t.encode()


def group(name, inside):
    return number(1) + text(name) + inside + number(2)


def words(name, *values):
    return number(3) + text(name) + number(1) + number(len(values)) + b"".join(map(text, values))


def array(name, *shape):
    count = 1
    for extent in shape:
        count *= extent
    return number(4) + text(name) + number(0) + number(len(shape)) + b"".join(map(number, shape)) + bytes(4 * count)


def layer(name, inputs, units):
    inner = group(name, array("kernel:0", inputs, units) + array("bias:0", units))
    return group(name, words("weight_names", f"{name}/kernel:0", f"{name}/bias:0") + inner)


write("message", "legacy", words("layer_names", "a", "b") + layer("a", 2, 2) + layer("b", 2, 1) + number(8))
write("message", "keras3", group("layers", "".encode() + group("dense", group("vars", array("0", 2, 2) + array("1", 2))) +
                                 group("dense_1", group("vars", array("0", 2, 1) + array("1", 1)))) + number(8))


def count(name, value):
    return number(4) + text(name) + number(1) + number(0) + number(value)


layers = group("layers", group("dense", group("vars", array("0", 2, 2) + array("1", 2))) +
               group("dense_1", group("vars", array("0", 2, 1) + array("1", 1))))
write("message", "archive.state", layers + group("optimizer", group("vars", count("0", 2) + array("1") + b"".join(
    array(str(i), 2) for i in range(2, 8)))) + number(8))
write("message", "legacy.state", group("optimizer_weights", words("weight_names", "iteration:0", "a", "b", "c") + count(
    "iteration:0", 2) + array("a", 2) + array("b", 2) + array("c", 2)) + words("layer_names", "a", "b") + layer("a", 2, 2) +
    layer("b", 2, 1) + number(8))

# How a model was compiled, in the words of both.
with h5py.File(os.path.join(golden, "trained_adam.tf.h5"), "r") as f:
    write("json", "training.tf", json.dumps(json.loads(f.attrs["training_config"]), separators=(",", ":")).encode())
write("json", "training.k3", json.dumps({"optimizer": {"module": "keras.optimizers", "class_name": "RMSprop", "config": {
    "name": "rmsprop", "learning_rate": 0.01, "use_ema": False, "rho": 0.9, "momentum": 0.5, "centered": True}},
    "loss": [{"class_name": "CategoricalCrossentropy", "config": {"from_logits": True, "reduction": "sum"}}],
    "metrics": [["accuracy"], ["mae"]], "weighted_metrics": [], "loss_weights": None}, separators=(",", ":")).encode())
for name in ("lstm.k3", "separable.tf", "attention.k3", "nested.tf"):
    with open(os.path.join(golden, name + ".json")) as f:
        write("json", name, json.dumps(json.load(f), separators=(",", ":")).encode())
