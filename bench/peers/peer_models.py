"""The zoo's models in PyTorch, and what the torch benchmarks share.

A step has four phases: forward (model), loss (cross-entropy), backward, and
update (optimizer step and dropping the gradients). Dropout, activations and
pooling count as forward; the gradient of the loss counts as backward, because
autograd gives no way to time it apart.
"""

import ctypes
import json
import os
import resource
import statistics
import time

import torch
from peer_zoo import IMAGE_MODELS
from torch import nn
from torch.nn import functional as F

PHASES = ("forward", "loss", "backward", "update")


class Mlp(nn.Module):
    """784-512-512-10, ReLU, no dropout: 669,706 parameters."""

    def __init__(self):
        super().__init__()
        self.dense1 = nn.Linear(784, 512)
        self.dense2 = nn.Linear(512, 512)
        self.dense3 = nn.Linear(512, 10)

    def forward(self, x):
        x = F.relu(self.dense1(x), inplace=True)
        x = F.relu(self.dense2(x), inplace=True)
        return self.dense3(x)


class Cnn(nn.Module):
    """Keras' mnist_cnn: 1,199,882 parameters, valid padding, stride 1."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.dense1 = nn.Linear(64 * 12 * 12, 128)
        self.dense2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x), inplace=True)
        x = F.relu(self.conv2(x), inplace=True)
        x = F.max_pool2d(x, 2)
        x = F.dropout(x, 0.25, self.training)
        x = F.relu(self.dense1(torch.flatten(x, 1)), inplace=True)
        x = F.dropout(x, 0.5, self.training)
        return self.dense2(x)


CLOCKS = {"wall": time.perf_counter_ns, "cpu": time.process_time_ns}

MODELS = {
    "mlp": (Mlp, (784,), 669_706),
    "cnn": (Cnn, (1, 28, 28), 1_199_882),
    **IMAGE_MODELS,
}


def classes_of(model):
    return 1000 if model in IMAGE_MODELS else 10


def add_arguments(parser):
    parser.add_argument("--model", choices=MODELS, default="cnn")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0, help="measured time")
    parser.add_argument("--warmup", type=float, default=1.0, help="seconds before it")
    parser.add_argument("--optimizer", choices=("adam", "sgd"), default="adam")
    parser.add_argument(
        "--learning-rate", type=float, help="default: 1e-3 for adam, 1e-2 for sgd"
    )
    parser.add_argument(
        "--adam",
        choices=("fused", "foreach", "default"),
        default="fused",
        help="implementation of the update, of SGD too; fused was the fastest",
    )
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument(
        "--compile", action="store_true", help="torch.compile; needs a C++ compiler"
    )
    parser.add_argument(
        "--malloc",
        choices=("keep", "default"),
        default="keep",
        help="keep: freed activations stay in the process (see keep_freed_memory)",
    )
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        default="wall",
        help="cpu: CPU time of the process, for one thread on a busy machine",
    )
    parser.add_argument("--json", metavar="FILE", help="write the rows to FILE")


def check_arguments(parser, args):
    for name in ("batch", "threads", "seconds"):
        if getattr(args, name) <= 0:
            parser.error(f"--{name} must be positive, got {getattr(args, name)}")
    if args.clock == "cpu" and args.threads != 1:
        parser.error(f"--clock cpu measures one thread, got --threads {args.threads}")
    if args.json and not os.access(os.path.dirname(os.path.abspath(args.json)), os.W_OK):
        parser.error(f"--json {args.json}: its folder is missing or not writable")


def keep_freed_memory():
    """Stops glibc from returning freed activations to the kernel every step.

    PyTorch has no caching allocator on the CPU: with glibc's defaults each step
    maps its large activations anew and pays the page faults for them. False where
    the C library has no such knob.
    """
    trim_threshold, top_pad, mmap_threshold = -1, -2, -3  # malloc.h's M_* values
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    settings = ((mmap_threshold, 1 << 30), (trim_threshold, 2**31 - 1), (top_pad, 64 << 20))
    return all([mallopt(knob, value) == 1 for knob, value in settings])


def configure(args):
    """Call before any tensor work: later threads inherit the denormal mode."""
    if args.malloc == "keep" and not keep_freed_memory():
        print("mallopt refused: the allocator keeps its defaults")
    torch.set_flush_denormal(True)
    torch.set_num_threads(args.threads)
    torch.set_num_interop_threads(1)
    torch.manual_seed(1234)


def page_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def describe(args):
    """Lines that say which library and settings a figure belongs to."""
    wanted = ("MKL-DNN", "Math Kernel Library", "CPU capability", "OpenMP")
    lines = [f"torch {torch.__version__}"]
    lines += [
        line.strip(" -") for line in torch.__config__.show().splitlines()
        if any(word in line for word in wanted) and "Build settings" not in line
    ]
    cpus = sorted(os.sched_getaffinity(0))
    lines.append(
        f"threads {torch.get_num_threads()}, cpus {cpus}, "
        f"mkldnn {torch.backends.mkldnn.is_available()}, "
        f"mkl {torch.backends.mkl.is_available()}, "
        f"float32 matmul precision {torch.get_float32_matmul_precision()}"
    )
    lines.append(
        f"model {args.model}, batch {args.batch}, {args.optimizer} ({args.adam}), "
        f"layout {'channels-last' if args.channels_last else 'contiguous'}, "
        f"malloc {args.malloc}, compile {args.compile}"
    )
    return lines


def make_model(args):
    build, _, expected = MODELS[args.model]
    model = build().train()
    count = sum(p.numel() for p in model.parameters())
    if count != expected:
        raise RuntimeError(f"{args.model} has {count} parameters, expected {expected}")
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
    return model


def make_batch(args, batch):
    """One fixed synthetic batch: pixels uniform in [0, 1), labels over all classes."""
    _, shape, _ = MODELS[args.model]
    images = torch.rand(batch, *shape)
    if args.channels_last and len(shape) == 3:
        images = images.to(memory_format=torch.channels_last)
    return images, torch.randint(0, classes_of(args.model), (batch,))


def make_optimizer(args, parameters):
    how = {"fused": {"fused": True}, "foreach": {"foreach": True}, "default": {}}[args.adam]
    if args.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=args.learning_rate or 1e-2, **how)
    return torch.optim.Adam(parameters, lr=args.learning_rate or 1e-3, **how)


def timed_step(model, optimizer, images, labels, clock=time.perf_counter_ns):
    """One training step; returns the five clock readings around its phases."""
    t0 = clock()
    logits = model(images)
    t1 = clock()
    loss = F.cross_entropy(logits, labels)
    t2 = clock()
    loss.backward()
    t3 = clock()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    t4 = clock()
    return t0, t1, t2, t3, t4


def durations(readings):
    """Rows of nanoseconds: the four phases, then the whole step."""
    return [[r[i + 1] - r[i] for i in range(4)] + [r[4] - r[0]] for r in readings]


def summarize(rows):
    """Rows of durations() as milliseconds {name: (p10, median, p90)}."""
    result = {}
    for name, column in zip(PHASES + ("step",), zip(*rows)):
        values = sorted(ns * 1e-6 for ns in column)
        last = len(values) - 1
        result[name] = (
            values[round(0.1 * last)],
            statistics.median(values),
            values[round(0.9 * last)],
        )
    return result


def report(args, summary, images_per_step, steps, faults):
    """Prints the table; writes rows {"name", "images_per_s", "ms"} (medians)."""
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{steps} steps, {faults / steps:.0f} page faults a step, peak {peak_mb:.0f} MB")
    print(f"{'phase':<16}{'images/s':>12}{'ms median':>12}{'ms p10':>10}{'ms p90':>10}")
    rows = []
    for name, (low, median, high) in summary.items():
        rate = images_per_step / median * 1e3
        row_name = f"{args.model}/{name}"
        print(f"{row_name:<16}{rate:>12.1f}{median:>12.4f}{low:>10.4f}{high:>10.4f}")
        rows.append({"name": row_name, "images_per_s": rate, "ms": median})
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
            file.write("\n")
