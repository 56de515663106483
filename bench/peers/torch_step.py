#!/usr/bin/env python3
"""Time of one training step of the zoo's models in PyTorch, phase by phase.

The counterpart of build/step_bench: same models, same batch, same rows.
"""

import argparse
import time

import peer_models as peer
import torch


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    peer.add_arguments(parser)
    args = parser.parse_args()
    peer.check_arguments(parser, args)
    peer.configure(args)
    print("\n".join(peer.describe(args)))

    model = peer.make_model(args)
    images, labels = peer.make_batch(args, args.batch)
    optimizer = peer.make_optimizer(args, model.parameters())
    network = torch.compile(model) if args.compile else model

    # The first steps build oneDNN primitives, optimizer slots and, with
    # --compile, the kernels: they are never counted.
    for _ in range(5):
        peer.timed_step(network, optimizer, images, labels)
    until = time.perf_counter() + args.warmup
    while time.perf_counter() < until:
        peer.timed_step(network, optimizer, images, labels)

    clock = peer.CLOCKS[args.clock]
    readings = []
    faults = peer.page_faults()
    until = time.perf_counter() + args.seconds
    while time.perf_counter() < until or len(readings) < 5:
        readings.append(peer.timed_step(network, optimizer, images, labels, clock))
    faults = peer.page_faults() - faults
    summary = peer.summarize(peer.durations(readings))
    peer.report(args, summary, args.batch, len(readings), faults)


if __name__ == "__main__":
    main()
