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


ALL = {f.__name__: f for f in (mlp, chain_of_images, graph, separable, lstm, gru, attention, nested)}
