"""Writes the golden files that the C++ tests read: made by tf_keras and Keras 3, never by Rondo.

usage: make_golden.py OUT [names of models, or heads]
"""
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import h5py
import keras
import numpy as np
import tensorflow as tf
import tf_keras

import models

out = sys.argv[1]
chosen = sys.argv[2:] or list(models.ALL)
tf.config.threading.set_intra_op_parallelism_threads(1)


def path(name):
    return os.path.join(out, name)


def inputs_of(model, rng, rows=3):
    shape = [int(extent) for extent in model.inputs[0].shape[1:]]
    if "int" in str(model.inputs[0].dtype):
        return rng.integers(0, 11, [rows] + shape).astype("int32")
    return rng.normal(size=[rows] + shape).astype("float32")


def give_weights(model, rng):
    """Values that tell weights apart, moving statistics included."""
    model.set_weights([np.abs(rng.normal(size=w.shape)).astype("float32") + 0.1 if "variance" in getattr(v, "path", v.name)
                       else rng.normal(size=w.shape).astype("float32") * 0.5
                       for v, w in zip(model.weights, model.get_weights())])


def write_io(name, **arrays):
    with h5py.File(path(name), "w") as f:
        for key, value in arrays.items():
            f[key] = np.asarray(value, "float32")


for name in [name for name in chosen if name in models.ALL]:
    for dialect, k in (("tf", tf_keras), ("k3", keras)):
        if dialect == "k3" and name in models.TF_ONLY:
            continue
        k.backend.clear_session()
        rng = np.random.default_rng(len(name))
        model = models.ALL[name](k)
        give_weights(model, rng)
        x = inputs_of(model, rng)
        # Canonical order is that of get_weights.
        arrays = {f"weight{i:02}": w for i, w in enumerate(model.get_weights())}
        write_io(f"{name}.{dialect}.io.h5", x=x, y=model.predict(x, verbose=0), **arrays)
        with open(path(f"{name}.{dialect}.json"), "w") as f:
            f.write(model.to_json())
        model.save(path(f"{name}.{dialect}.h5"))
        model.save(path(f"{name}.{dialect}.keras"))
        if dialect == "tf":
            model.save_weights(path(f"{name}.tf.only.h5"))
        else:
            model.save_weights(path(f"{name}.k3.weights.h5"))

# What multi_gpu_model of Keras 2 built: slices of the batch through one template, joined again.
if "graph" in chosen:
    tf_keras.backend.clear_session()
    rng = np.random.default_rng(5)
    template = models.graph(tf_keras)
    give_weights(template, rng)
    x = tf_keras.layers.Input((8, 8, 4), name="image")
    parts = [template(tf_keras.layers.Lambda(lambda t, i=i: t[i::2])(x)) for i in range(2)]
    parallel = tf_keras.Model(x, tf_keras.layers.Concatenate(axis=0, name="out")(parts))
    parallel.save_weights(path("graph.parallel.h5"))
    write_io("graph.parallel.io.h5", **{f"weight{i:02}": w for i, w in enumerate(template.get_weights())})

# Names of layers that are longer than an attribute takes; h5py before version 3 wrote texts of fixed length.
if "mlp" in chosen:
    tf_keras.backend.clear_session()
    long = tf_keras.Sequential([tf_keras.layers.Input((2,)), tf_keras.layers.Dense(2)] +
                               [tf_keras.layers.Activation("linear", name=f"{i:02}" + "n" * 990) for i in range(66)])
    rng = np.random.default_rng(6)
    give_weights(long, rng)
    long.save_weights(path("long_names.h5"))
    with h5py.File(path("long_names.h5"), "a") as f:
        print("pieces:", [a for a in f.attrs if a.startswith("layer_names")])
    source = h5py.File(path("mlp.tf.only.h5"), "r")
    with h5py.File(path("mlp.fixed.h5"), "w") as f:
        f.attrs["layer_names"] = np.array([str(n if isinstance(n, str) else n.decode()) for n in source.attrs["layer_names"]], "S")
        f.attrs["backend"] = np.bytes_("tensorflow")
        f.attrs["keras_version"] = np.bytes_("2.3.1")
        for layer in source:
            if layer == "top_level_model_weights":
                continue
            group = f.create_group(layer)
            names = [n if isinstance(n, str) else n.decode() for n in source[layer].attrs["weight_names"]]
            group.attrs["weight_names"] = np.array(names, "S") if names else np.array([])
            for n in names:
                group.create_dataset(n, data=np.asarray(source[layer][n]))

# Three steps of each optimizer: full batches, no shuffling, so that only the update can differ.
OPTIMIZERS = {
    "sgd": lambda o: o.SGD(0.1),
    "sgd_momentum": lambda o: o.SGD(0.1, momentum=0.9, nesterov=True),
    "rmsprop": lambda o: o.RMSprop(0.01),
    "rmsprop_centered": lambda o: o.RMSprop(0.01, momentum=0.5, centered=True),
    "adagrad": lambda o: o.Adagrad(0.05),
    "adadelta": lambda o: o.Adadelta(1.0),
    "adam": lambda o: o.Adam(0.01),
    "amsgrad": lambda o: o.Adam(0.01, amsgrad=True),
    "adamax": lambda o: o.Adamax(0.01),
    "nadam": lambda o: o.Nadam(0.01),
}
# As they are since Keras 2.11; Nadam of Keras 3, for tf_keras multiplies its momenta once for each variable.
NEW_OPTIMIZERS = {
    "new_rmsprop": lambda: tf_keras.optimizers.RMSprop(0.01),
    "new_adagrad": lambda: tf_keras.optimizers.Adagrad(0.05),
    "new_nadam": lambda: keras.optimizers.Nadam(0.01),
    "adamw": lambda: tf_keras.optimizers.AdamW(0.01, weight_decay=0.1),
}


def small(k):
    L = k.layers
    return k.Sequential([L.Input((5,)), L.Dense(6, activation="tanh"), L.BatchNormalization(), L.Dense(3, activation="softmax")],
                        name="small")


if "mlp" in chosen:
    for name in [*OPTIMIZERS, *NEW_OPTIMIZERS]:
        k = keras if name == "new_nadam" else tf_keras
        k.backend.clear_session()
        rng = np.random.default_rng(7)
        model = small(k)
        give_weights(model, rng)
        before = model.get_weights()
        x = rng.normal(size=(12, 5)).astype("float32")
        y = np.eye(3, dtype="float32")[rng.integers(0, 3, 12)]
        optimizer = NEW_OPTIMIZERS[name]() if name in NEW_OPTIMIZERS else OPTIMIZERS[name](tf_keras.optimizers.legacy)
        model.compile(optimizer, "categorical_crossentropy", metrics=["accuracy"])
        losses = []
        for step in range(3):
            losses.append(model.train_on_batch(x, y)[0])
            if step == 1 and name in ("adam", "sgd_momentum", "rmsprop"):
                model.save(path(f"trained_{name}.tf.h5"))  # with optimizer state, one step before the end
            if step == 1 and name in NEW_OPTIMIZERS:
                model.save(path(f"trained_{name}.keras"))
                if name == "adamw":
                    model.save(path(f"trained_{name}.tf.h5"))
        after = model.get_weights()
        write_io(f"train_{name}.h5", x=x, y=y, losses=losses, **{f"before{i}": w for i, w in enumerate(before)},
                 **{f"after{i}": w for i, w in enumerate(after)})
# What happens behind the update, and what is added to the loss.
if "limited" in chosen:
    tf_keras.backend.clear_session()
    rng = np.random.default_rng(8)
    model = models.limited(tf_keras)
    give_weights(model, rng)
    before = model.get_weights()
    x = rng.normal(size=(12, 5, 5, 2)).astype("float32")
    y = np.eye(3, dtype="float32")[rng.integers(0, 3, 12)]
    model.compile(tf_keras.optimizers.legacy.SGD(0.1), "categorical_crossentropy")
    losses = [model.train_on_batch(x, y) for _ in range(3)]
    write_io("train_limited.h5", x=x, y=y, losses=losses, **{f"before{i:02}": w for i, w in enumerate(before)},
             **{f"after{i:02}": w for i, w in enumerate(model.get_weights())})


def heads(k):
    """Two inputs; three outputs, of which one is trained and measured on time steps and one is not trained."""
    L = k.layers
    numbers, steps = L.Input((4,), name="numbers"), L.Input((5, 3), name="steps_in")
    inner = L.Dense(4, activation="tanh", name="inner")(steps)
    trunk = L.Concatenate(name="join")([L.Flatten(name="flat")(inner), numbers])
    trunk = L.Dense(6, activation="tanh", kernel_regularizer=k.regularizers.l2(0.02), name="trunk")(trunk)
    kind = L.Dense(3, activation="softmax", name="kind")(trunk)
    each = L.Dense(2, name="each")(inner)
    flag = L.Dense(1, activation="sigmoid", name="flag")(L.Dense(2, name="untrained")(trunk))
    return k.Model([numbers, steps], [kind, each, flag], name="heads")


# Three epochs over batches of 5, 5 and 2 rows, in order.
if "heads" in chosen or len(sys.argv) < 3:
    tf_keras.backend.clear_session()
    rng = np.random.default_rng(8)
    model = heads(tf_keras)
    give_weights(model, rng)
    before = model.get_weights()
    x = {"numbers": rng.normal(size=(12, 4)).astype("float32"), "steps_in": rng.normal(size=(12, 5, 3)).astype("float32")}
    y = {"kind": np.eye(3, dtype="float32")[rng.integers(0, 3, 12)], "each": rng.normal(size=(12, 5, 2)).astype("float32"),
         "flag": rng.integers(0, 2, (12, 1)).astype("float32")}
    w = {"kind": rng.uniform(0, 2, 12).astype("float32"), "each": rng.uniform(0, 2, (12, 5)).astype("float32")}
    w["kind"][3] = 0.0
    model.compile(tf_keras.optimizers.legacy.Adam(0.01), {"kind": "categorical_crossentropy", "each": "mse"},
                  loss_weights={"each": 0.3}, metrics={"kind": ["accuracy"], "each": ["mae"], "flag": ["accuracy"]},
                  weighted_metrics={"kind": ["accuracy", "categorical_crossentropy"], "each": ["mae", "mse"]})
    history = model.fit(x, y, sample_weight=w, batch_size=5, epochs=3, shuffle=False, verbose=0,
                        validation_data=(x, y)).history
    values = {f"value{i:02} {name}": history[name] for i, name in enumerate(history)}
    evaluated = model.evaluate(x, y, sample_weight=w, batch_size=5, verbose=0)
    print(list(history))
    model.save(path("trained_heads.tf.h5"))
    after = model.get_weights()
    write_io("train_heads.h5", evaluated=evaluated, **{"x " + n: a for n, a in x.items()}, **{"y " + n: a for n, a in y.items()},
             **{"w " + n: a for n, a in w.items()}, **values, **{f"before{i:02}": a for i, a in enumerate(before)},
             **{f"after{i:02}": a for i, a in enumerate(after)},
             **{f"predicted{i}": a for i, a in enumerate(model.predict(x, verbose=0))})
print("tf_keras", tf_keras.__version__, "keras", keras.__version__, "tensorflow", tf.__version__, "h5py", h5py.__version__)
