"""Small models of every layer that is exchanged, built alike in both Keras.

Each function takes the keras module (tf_keras or keras 3) and gives a model. Names are given where the two would
name layers differently.
"""


def mlp(k):
    return k.Sequential([k.layers.Input((6, 5), name="pixels"), k.layers.Flatten(),
                         k.layers.Dense(7, activation="relu"), k.layers.Dropout(0.25),
                         k.layers.Dense(4, activation="sigmoid", use_bias=False), k.layers.Dense(3, activation="softmax")],
                        name="mlp")


def chain_of_images(k):
    L = k.layers
    return k.Sequential([L.Input((9, 8, 3)), L.Conv2D(4, 3, padding="same", activation="tanh"), L.BatchNormalization(),
                         L.MaxPooling2D(), L.Conv2D(6, (3, 2), strides=(2, 1), use_bias=False), L.Activation("relu"),
                         L.AveragePooling2D((1, 2), padding="same"), L.Flatten(), L.Dense(5)], name="images")


def graph(k):
    """Branches, a sum, a concatenation, and a layer that is called twice."""
    L = k.layers
    image = L.Input((8, 8, 4), name="image")
    shared = L.Conv2D(4, 3, padding="same", name="shared")
    a = shared(image)
    b = shared(L.BatchNormalization(epsilon=0.01, momentum=0.9, name="norm")(a))
    c = L.Conv2D(2, 1, dilation_rate=1, groups=2, kernel_initializer="he_normal", name="grouped")(image)
    x = L.Concatenate(name="join")([L.Add(name="sum")([a, b, image]), c])
    x = L.GlobalAveragePooling2D(name="mean")(x)
    return k.Model(image, L.Dense(3, activation="softmax", name="out")(x), name="graph")


def separable(k):
    L = k.layers
    x = L.Input((9, 9, 3), name="image")
    y = L.SeparableConv2D(5, 3, padding="same", use_bias=False, depth_multiplier=2, name="sep")(x)
    y = L.ZeroPadding2D(((1, 0), (2, 1)), name="pad")(y)
    y = L.DepthwiseConv2D(3, strides=2, name="depth")(y)
    y = L.ReLU(max_value=6.0, name="relu6")(y)
    y = L.GlobalMaxPooling2D(name="top")(y)
    return k.Model(x, L.Dense(3, name="out")(y), name="separable")


def lstm(k):
    L = k.layers
    x = L.Input((6,), dtype="int32", name="words")
    y = L.Embedding(11, 5, name="embedding")(x)
    y = L.LSTM(4, return_sequences=True, name="first")(y)
    y = L.LSTM(3, name="second")(y)
    return k.Model(x, L.Dense(2, activation="softmax", name="out")(y), name="lstm")


def gru(k):
    L = k.layers
    x = L.Input((6, 5), name="steps")
    y = L.GRU(4, name="gru")(x)
    return k.Model(x, L.Dense(2, name="out")(y), name="gru")


def masked(k):
    """Word 0 is none: recurrent layers pass their states on, attention does not look there, the mean leaves it out."""
    L = k.layers
    x = L.Input((6,), dtype="int32", name="words")
    y = L.Embedding(11, 5, mask_zero=True, name="embedding")(x)
    a = L.LSTM(4, return_sequences=True, name="first")(y)
    b = L.GRU(4, return_sequences=True, name="second")(y)
    c = L.GRU(3, go_backwards=True, reset_after=False, name="third")(y)
    y = L.Dense(4, name="each")(L.Add(name="sum")([a, b]))
    y = L.MultiHeadAttention(num_heads=2, key_dim=3, name="attention")(y, y)
    y = L.GlobalAveragePooling1D(name="mean")(y)
    return k.Model(x, L.Dense(2, name="out")(L.Concatenate(name="join")([y, c])), name="masked")


def masking(k):
    """Sequences with steps of 0, and a layer that walks backwards."""
    L = k.layers
    x = L.Input((6, 3), name="steps")
    y = L.Masking(0.0, name="masking")(L.ReLU(threshold=0.5, name="relu")(x))
    y = L.LSTM(4, recurrent_activation="hard_sigmoid", return_sequences=True, go_backwards=True, name="first")(y)
    y = L.Bidirectional(L.GRU(3, return_sequences=True), merge_mode="ave", name="both")(y)
    y = L.TimeDistributed(L.Dense(4), name="each")(y)
    y = L.LSTM(3, dropout=0.5, recurrent_dropout=0.25, name="second")(y)
    return k.Model(x, y, name="masking")


def bidirectional(k):
    """A layer in both directions, and one applied to each time step."""
    L = k.layers
    x = L.Input((5, 4), name="steps")
    y = L.Bidirectional(L.LSTM(3, return_sequences=True), name="both")(x)
    y = L.TimeDistributed(L.Dense(4, activation="tanh"), name="each")(y)
    y = L.PReLU(shared_axes=[1], name="prelu")(y)
    a = L.Bidirectional(L.GRU(2), merge_mode="sum", name="last")(y)
    b = L.Add(name="joined")([L.RepeatVector(5, name="repeat")(a), L.Dense(2, name="narrow")(y)])
    return k.Model(x, L.Flatten(name="flat")(b), name="bidirectional")


def limited(k):
    """Constraints, and penalties on results and on normalization."""
    L, r, c = k.layers, k.regularizers, k.constraints
    return k.Sequential([
        L.Input((5, 5, 2)), L.Conv2D(4, 3, activation="tanh", kernel_constraint=c.MaxNorm(0.5, axis=[0, 1, 2]),
                                     bias_constraint=c.NonNeg(), activity_regularizer=r.L2(0.01), name="c"),
        L.Flatten(name="f"), L.Dense(5, kernel_constraint=c.UnitNorm(), name="d"),
        L.BatchNormalization(gamma_regularizer=r.L2(0.05), beta_regularizer=r.L1(0.02), gamma_constraint=c.NonNeg(), name="n"),
        L.PReLU(alpha_constraint=c.MaxNorm(0.2), name="p"), L.ActivityRegularization(l1=0.02, name="a"),
        L.Dense(3, activation="softmax", kernel_constraint=c.MinMaxNorm(0.2, 0.7, rate=0.6), activity_regularizer=r.L1L2(0.01, 0.03),
                name="out")], name="limited")


def attention(k):
    L = k.layers
    x = L.Input((5, 8), name="tokens")
    y = L.MultiHeadAttention(num_heads=2, key_dim=3, name="attention")(x, x)
    y = L.LayerNormalization(name="norm")(L.Add(name="sum")([x, y]))
    return k.Model(x, L.Dense(2, name="out")(L.Flatten(name="flat")(y)), name="attention")


def nested(k):
    L = k.layers
    inner = k.Sequential([L.Input((4,)), L.Dense(5, activation="relu", name="in1"), L.BatchNormalization(name="in2"),
                          L.Dense(4, name="in3")], name="inner")
    x = L.Input((4,), name="x")
    return k.Model(x, L.Dense(2, name="out")(L.Add(name="sum")([inner(x), inner(inner(x))])), name="nested")


# Keras 3 writes what computes a mask as operations of the model: those are not read.
TF_ONLY = ("masked", "masking")
ALL = {f.__name__: f for f in (mlp, chain_of_images, graph, separable, lstm, gru, masked, masking, bidirectional, limited, attention, nested)}
