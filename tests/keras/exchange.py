"""Exchanges files with real Keras in both directions and compares predictions.

usage: exchange.py PROGRAM GOLDEN RESULTS [models]
PROGRAM is keras_exchange, GOLDEN the folder of the golden files, RESULTS the Markdown file to write; models, by
default all, are names of the zoo and of models.py, and "training".
"""
import datetime
import os
import subprocess
import sys
import tempfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import h5py
import keras
import numpy as np
import tensorflow as tf
import tf_keras

import models

program, golden, results = sys.argv[1:4]
chosen = sys.argv[4:]
TOLERANCE = 1e-5
rows, failures = [], 0


def read(path):
    with h5py.File(path, "r") as f:
        return {key: f[key][()] for key in f}


def note(direction, name, file, reader, error, detail=""):
    global failures
    good = error is not None and error <= TOLERANCE
    failures += not good
    shown = "failed: " + detail.splitlines()[-1][:160].replace("|", "/") if error is None else f"{error:.1e}"
    rows.append(f"| {direction} | {name} | {file} | {reader} | {shown} | {'yes' if good else '**no**'} |")
    print(rows[-1], flush=True)


def compare(direction, name, file, reader, predict, wanted):
    try:
        got = np.asarray(predict())
        error = float(np.max(np.abs(got.reshape(wanted.shape) - wanted)))
        note(direction, name, file, reader, error if np.isfinite(error) else None, "not finite")
    except Exception as problem:  # whatever a reader does belongs into the table
        note(direction, name, file, reader, None, str(problem) or repr(problem))


def run(*words):
    done = subprocess.run([program, *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or f"status {done.returncode}")
    return done.stdout


READERS = ((f"tf_keras {tf_keras.__version__}", tf_keras, ""), (f"keras {keras.__version__}", keras, ".keras3"))


def ours_in_keras(name, folder):
    try:
        run("write", name, folder)
    except RuntimeError as problem:
        return note("ours to Keras", name, "-", "-", None, str(problem))
    io = read(os.path.join(folder, name) + ".io.h5")
    for label, k, mark in READERS:
        base = os.path.join(folder, name) + mark
        k.backend.clear_session()
        for ending in (".h5", ".keras"):
            compare("ours to Keras", name, ending, label,
                    lambda: k.models.load_model(base + ending, compile=False).predict(io["x"], verbose=0), io["y"])

        def weights_alone():
            model = k.models.model_from_json(open(base + ".json").read())
            model.load_weights(base + ".weights.h5")
            return model.predict(io["x"], verbose=0)

        compare("ours to Keras", name, ".json + .weights.h5", label, weights_alone, io["y"])
        if name in APPLICATIONS:
            continue  # Keras' own model is in the table

        def saved_again(ending):
            again = os.path.join(folder, "again" + ending)
            k.models.load_model(base + ending, compile=False).save(again)
            return predict_with_us(again, os.path.join(folder, name) + ".io.h5", folder)

        for ending in (".h5", ".keras"):
            compare("Keras to ours", name, ending, f"of {label}, which had it from us", lambda: saved_again(ending), io["y"])
    return None


def predict_with_us(file, io, folder):
    out = os.path.join(folder, "out.h5")
    run("predict", file, io, out)
    return read(out)["y"]


APPLICATIONS = {"xception": ("Xception", 75), "resnet50": ("ResNet50", 32), "vgg16": ("VGG16", 32),
                "mobilenet": ("MobileNet", 32), "inception_v3": ("InceptionV3", 75)}


def keras_in_ours(folder):
    for name, (cls, size) in APPLICATIONS.items():
        if chosen and name not in chosen:
            continue
        for label, k in (("tf_keras", tf_keras), ("keras", keras)):
            k.backend.clear_session()
            rng = np.random.default_rng(1)
            model = getattr(k.applications, cls)(weights=None, input_shape=(size, size, 3), classes=10)
            x = rng.normal(size=(2, size, size, 3)).astype("float32")
            for layer in model.layers:  # moving statistics that count
                if "BatchNormalization" in type(layer).__name__:
                    layer.set_weights([np.abs(rng.normal(1.0, 0.1, w.shape)) for w in layer.get_weights()])
            wanted = model.predict(x, verbose=0)
            io = os.path.join(folder, "in.h5")
            with h5py.File(io, "w") as f:
                f["x"] = x
            for ending in (".h5", ".keras"):
                file = os.path.join(folder, "theirs" + ending)
                model.save(file)
                compare("Keras to ours", name, ending, f"of {label} {k.__version__}",
                        lambda: predict_with_us(file, io, folder), wanted)


def golden_in_ours(folder):
    for name in chosen or models.ALL:
        if name not in models.ALL:
            continue
        for dialect, label in (("tf", "tf_keras"), ("k3", "keras")):
            if dialect == "k3" and name in models.TF_ONLY:
                continue
            io = os.path.join(golden, f"{name}.{dialect}.io.h5")
            for ending in (".h5", ".keras"):
                compare("Keras to ours", name, ending, f"of {label}, a golden file",
                        lambda: predict_with_us(os.path.join(golden, f"{name}.{dialect}{ending}"), io, folder),
                        read(io)["y"])


def small(k):
    L = k.layers
    return k.Sequential([L.Input((5,)), L.Dense(6, activation="tanh"), L.BatchNormalization(), L.Dense(3, activation="softmax")],
                        name="small")


OPTIMIZERS = {
    "sgd": lambda o: o.SGD(0.1), "sgd_momentum": lambda o: o.SGD(0.1, momentum=0.9, nesterov=True),
    "sgd_decay": lambda o: o.SGD(o.schedules.InverseTimeDecay(0.1, 1, 0.5), momentum=0.5),
    "rmsprop": lambda o: o.RMSprop(0.01), "rmsprop_centered": lambda o: o.RMSprop(0.01, momentum=0.5, centered=True),
    "adagrad": lambda o: o.Adagrad(0.05), "adadelta": lambda o: o.Adadelta(1.0), "adam": lambda o: o.Adam(0.01, clipnorm=0.05),
    "adam_polynomial": lambda o: o.Adam(o.schedules.PolynomialDecay(0.02, 5, 0.001)),
    "amsgrad": lambda o: o.Adam(0.01, amsgrad=True), "adamw": lambda o: o.AdamW(0.01, weight_decay=0.1),
    "adamax": lambda o: o.Adamax(0.01), "nadam": lambda o: o.Nadam(0.01),
}


def losses_of(model, io, steps):
    """Of `steps` further steps on the whole batch."""
    return [float(np.ravel(model.train_on_batch(io["x"], io["y"]))[0]) for _ in range(steps)]


def endings(name, k):
    """The files from which this Keras goes on as it would have without them: none of Nadam in tf_keras, which multiplies the
    momenta of one step once for each variable and does not save the product; no .h5 in Keras 3, which builds the
    optimizer for no variables before it reads the state."""
    if k is tf_keras and name == "nadam":
        return ()
    return (".keras",) if k is keras else (".keras", ".h5")


def training(folder):
    """Two steps, a file, and the two steps after it: here, and there."""
    rng = np.random.default_rng(3)
    path = os.path.join(folder, "training.io.h5")
    with h5py.File(path, "w") as f:
        f["x"] = rng.normal(size=(12, 5)).astype("float32")
        f["y"] = np.eye(3, dtype="float32")[rng.integers(0, 3, 12)]
    io = read(path)

    def continued(k, file):
        k.backend.clear_session()
        return losses_of(k.models.load_model(file), io, 2)

    def continued_by_us(file):
        out = os.path.join(folder, "out.h5")
        run("continue", file, path, out)
        return read(out)["losses"]

    for name in run("optimizers").split():
        base = os.path.join(folder, name)
        try:
            run("train", name, path, folder)
        except RuntimeError as problem:
            note("ours trained on by Keras", name, "-", "-", None, str(problem))
            continue
        for label, k, mark in READERS:
            for ending in endings(name, k):
                compare("ours trained on by Keras", name, ending, label, lambda: continued(k, base + mark + ending),
                        read(base + ".losses.h5")["losses"])
        for label, k, _ in READERS:
            k.backend.clear_session()
            model = small(k)
            model.compile(OPTIMIZERS[name](k.optimizers), "categorical_crossentropy", metrics=["accuracy"])
            losses_of(model, io, 2)
            for ending in (".keras", ".h5"):
                model.save(base + ".theirs" + ending)
            wanted = np.asarray(losses_of(model, io, 2), "float32")
            for ending in (".keras", ".h5") if k is keras else endings(name, k):
                compare("Keras' trained on by us", name, ending, f"of {label}", lambda: continued_by_us(base + ".theirs" + ending),
                        wanted)


with tempfile.TemporaryDirectory() as folder:
    names = [line.split()[0] for line in run("names").splitlines()]
    for name in names:
        if not chosen or name in chosen:
            ours_in_keras(name, folder)
    if not chosen or "training" in chosen:
        training(folder)
    keras_in_ours(folder)
    golden_in_ours(folder)

with open(results, "w") as f:
    f.write(f"""# Files exchanged with Keras

Written by `tests/keras/run.sh` on {datetime.date.today()}: tf_keras {tf_keras.__version__}, keras {keras.__version__} on
TensorFlow {tf.__version__}, h5py {h5py.__version__}, all on the CPU. The error is the largest difference of any predicted
number, for training that of the losses of the two steps after the file was written; up to {TOLERANCE:g} passes. Files of ours
are written for the Keras that reads them (KerasDialect). Zoo models have 10 classes and small images here; the others are those of `models.py`.

{len(rows) - failures} of {len(rows)} exchanges pass.

| direction | model or optimizer | file | reader or writer | error | passes |
|---|---|---|---|---|---|
""")
    f.write("\n".join(rows) + "\n")
sys.exit(1 if failures else 0)
