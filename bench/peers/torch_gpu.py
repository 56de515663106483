#!/usr/bin/env python3
"""Images per second of the zoo's models in PyTorch on one GPU.

The counterpart of `train --device cuda --data synthetic`: one fixed batch that
already lies on the GPU, forward, loss, backward and fused Adam, nothing read
back during a step. One line of JSON for each batch size.
"""

import argparse
import json
import statistics
import sys
import time

import torch
from peer_models import MODELS, classes_of
from torch.nn import functional as F

PRECISIONS = ("f32", "tf32", "bf16", "f16")


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, default="cnn")
    parser.add_argument("--precision", choices=PRECISIONS, default="bf16")
    parser.add_argument("--batch", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--seconds", type=float, default=2.0, help="measured, for each batch size")
    parser.add_argument("--contiguous", action="store_true", help="instead of channels-last")
    return parser.parse_args()


def make_step(args, batch):
    make_model, shape, _ = MODELS[args.model]
    torch.manual_seed(1234)
    model = make_model().cuda()
    images = torch.rand(batch, *shape, device="cuda")
    labels = torch.randint(0, classes_of(args.model), (batch,), device="cuda")
    if len(shape) == 3 and not args.contiguous:
        model = model.to(memory_format=torch.channels_last)
        images = images.to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    half = {"bf16": torch.bfloat16, "f16": torch.float16}.get(args.precision)
    scaler = torch.amp.GradScaler("cuda", enabled=args.precision == "f16")

    def step():
        with torch.autocast("cuda", dtype=half or torch.bfloat16, enabled=half is not None):
            loss = F.cross_entropy(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)

    return step


def images_per_s(step, batch, seconds):
    for _ in range(10):  # builds what is built once, and lets cuDNN try its algorithms
        step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    step()
    torch.cuda.synchronize()
    steps = max(3, min(50, int(seconds / 10 / (time.perf_counter() - start))))
    rates = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(rates) < 5:
        start = time.perf_counter()
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        rates.append(steps * batch / (time.perf_counter() - start))
    return statistics.median(rates)


def main():
    args = parse()
    if not torch.cuda.is_available():
        sys.exit("torch_gpu.py: PyTorch sees no GPU")
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = args.precision == "tf32"
    torch.backends.cudnn.allow_tf32 = args.precision == "tf32"
    for batch in args.batch:
        row = {
            "impl": f"torch {torch.__version__}",
            "model": args.model,
            "precision": args.precision,
            "batch": batch,
            "images_per_s": images_per_s(make_step(args, batch), batch, args.seconds),
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
