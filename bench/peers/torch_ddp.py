#!/usr/bin/env python3
"""The training step of torch_step.py under DistributedDataParallel over Gloo.

Spawns the ranks itself on this host. With --scaling weak (the default) each rank
takes --batch samples a step; with strong the ranks share --batch samples, as
Rondo's global batch does. images/s counts all ranks. The all-reduce runs during
backward, so "backward" includes the communication that is not hidden.
"""

import argparse
import os
import socket
import time

import peer_models as peer
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def bind_rank(rank, args):
    """Gives each rank its own cores, as long as there are enough of them."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) >= args.ranks * args.threads:
        first = rank * args.threads
        os.sched_setaffinity(0, cpus[first : first + args.threads])


def slowest(rows):
    """For each step and phase the longest time that any rank took."""
    longest = torch.tensor(rows, dtype=torch.int64)
    dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    return longest.tolist()


def run_rank(rank, args, port):
    if not args.no_bind:
        bind_rank(rank, args)
    peer.configure(args)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=args.ranks
    )
    share = args.batch
    if args.scaling == "strong":
        share = args.batch * (rank + 1) // args.ranks - args.batch * rank // args.ranks
    total = args.batch * (args.ranks if args.scaling == "weak" else 1)
    if rank == 0:
        print("\n".join(peer.describe(args)))
        print(f"{args.ranks} ranks, {args.scaling} scaling, {total} images a step")

    model = DistributedDataParallel(peer.make_model(args), gradient_as_bucket_view=True)
    network = torch.compile(model) if args.compile else model
    torch.manual_seed(5678 + rank)
    images, labels = peer.make_batch(args, share)
    optimizer = peer.make_optimizer(args, model.parameters())

    # The ranks must agree on the number of steps: rank 0 decides from its clock.
    def agreed_steps(seconds):
        steps = torch.tensor([max(5, int(seconds / step_seconds))])
        dist.broadcast(steps, 0)
        return int(steps)

    for _ in range(5):
        peer.timed_step(network, optimizer, images, labels)
    start = time.perf_counter()
    for _ in range(5):
        peer.timed_step(network, optimizer, images, labels)
    step_seconds = (time.perf_counter() - start) / 5
    for _ in range(agreed_steps(args.warmup)):
        peer.timed_step(network, optimizer, images, labels)

    readings = []
    faults = peer.page_faults()
    start = time.perf_counter()
    for _ in range(agreed_steps(args.seconds)):
        readings.append(peer.timed_step(network, optimizer, images, labels))
    elapsed = time.perf_counter() - start
    faults = peer.page_faults() - faults
    rows = slowest(peer.durations(readings))
    if rank == 0:
        peer.report(args, peer.summarize(rows), total, len(rows), faults)
        print(f"mean over {elapsed:.2f} s: {total * len(readings) / elapsed:.1f} images/s")
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    peer.add_arguments(parser)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--scaling", choices=("weak", "strong"), default="weak")
    parser.add_argument("--no-bind", action="store_true", help="leave ranks unbound")
    args = parser.parse_args()
    peer.check_arguments(parser, args)
    if args.clock != "wall":
        parser.error("ranks wait for each other: --clock wall")
    if args.ranks <= 0:
        parser.error(f"--ranks must be positive, got {args.ranks}")
    if args.scaling == "strong" and args.batch < args.ranks:
        parser.error(f"--batch {args.batch} cannot be shared by {args.ranks} ranks")
    mp.spawn(run_rank, args=(args, free_port()), nprocs=args.ranks)


if __name__ == "__main__":
    main()
