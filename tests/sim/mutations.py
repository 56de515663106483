#!/usr/bin/env python3
"""Removes the waits of the GPU path one at a time and shows what notices, on simulated GPUs.

    cmake --build BUILD --target rondo_cuda_sim sim_seeds_test sim_replay_test nccl_sim_test sim_order_test \\
                                 sim_devices_test \\
                                 models_device_test grad_sync_device_test
    tests/sim/mutations.py BUILD [--only TEXT] [--write]

A mutation is a text of one source file and what takes its place. Only that file (or what includes it) is compiled
again, as the build compiles it, and either the simulated module or the test program is linked with the object. Prints a table; --write
puts it into MUTATIONS.md beside this script. Ends with 1 when a mutation went unnoticed.
"""
import argparse
import functools
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULE = "librondo_cuda_sim.so"
TRAINING = ("sim_seeds_test", "-*Seeds*")
COLLECTIVES = ("nccl_sim_test", "-*Random*")
ORDER = ("sim_order_test", "*")
REPLAY = ("sim_replay_test", "*")
SETS = ("sim_devices_test", "-*Seeds*")  # ranks of several devices
# Devices whose streams run later too, and whose copies from pageable memory never block.
GUARDED = [("models_device_test", "*"), ("grad_sync_device_test", "*")]
LANES = "models/graph/lanes.cpp"
STAGED = "runtime/comm/staged/staged_communicator.cpp"
DEVICE, LINK, NCCL = ("runtime/device/cuda/cuda_device.cpp", "runtime/comm/nccl/nccl_link.cpp",
                      "runtime/comm/nccl/nccl_communicator.cpp")

# (what goes, file, text, replacement, tests)
MUTATIONS = [
    ("a stream waits for an event", DEVICE,
     "RONDO_CHECK_CUDA(cudaStreamWaitEvent(handle(), handle_of(event), 0));", "static_cast<void>(event);",
     [TRAINING]),
    ("the host waits for an event", DEVICE,
     "    wait_until(hung_, [this] { return happened(); });\n"
     "    RONDO_CHECK_CUDA(cudaEventSynchronize(event_.get()));\n", "", [TRAINING]),
    ("the host waits for a stream", DEVICE,
     '    wait_until(hung_, [this] { return over(cudaStreamQuery(stream_.get()), "cudaStreamQuery"); });\n'
     "    RONDO_CHECK_CUDA(cudaStreamSynchronize(stream_.get()));\n", "", [TRAINING]),
    ("an event is recorded", DEVICE,
     "RONDO_CHECK_CUDA(cudaEventRecord(handle_of(event), stream_.get()));", "static_cast<void>(event);", [TRAINING]),
    ("new memory is zeroed before it is given out", DEVICE, "    setup_.synchronize();\n", "", [TRAINING]),
    ("a collective starts behind its event", NCCL, "if (options.after != nullptr) stream_->wait(*options.after);", "",
     [TRAINING]),
    ("a stream waits for a collective", NCCL, "stream.wait(*flight_->done);", "", [TRAINING]),
    ("the end of a collective is recorded", NCCL, "  stream.record(*flight.done);", "", [TRAINING]),
    ("the end of a captured collective is recorded", NCCL, "stream_->record(*work.flight_->done);", "",
     [TRAINING, REPLAY]),
    ("what captured steps use stays", "runtime/train/step_replay.cpp", "place.memory = std::move(*memory);", "",
     [REPLAY]),
    ("staging memory that was outgrown stays", NCCL,
     "    outgrown_.push_back({std::move(staging_), device_.make_event()});\n"
     "    stream_->record(*outgrown_.back().left);\n", "    staging_ = {};\n", [ORDER]),
    ("staging memory that was outgrown stays for the work on it", NCCL, "return old.left->happened();", "return true;",
     [ORDER]),
    ("memory of collectives is zeroed before it is given out", LINK, "  stream.synchronize();\n", "",
     [COLLECTIVES, TRAINING]),
    ("a call is waited for until NCCL has taken it", LINK,
     "const ncclResult_t result = settle(lock, call(shared_->comm), Clock::now() + kCallDeadline);",
     "ncclResult_t result = call(shared_->comm); if (result == ncclInProgress) result = ncclSuccess;", [TRAINING]),
    ("uploads wait for the work on the batch before", "runtime/train/batch_stream.cpp",
     "upload_->wait(*place.used);", "", [TRAINING]),
    ("work waits for its batch's upload", "runtime/train/batch_stream.cpp", "compute.wait(*place.uploaded);", "",
     [TRAINING]),
    ("the loader gets a slot back after its upload", "runtime/train/batch_stream.cpp",
     "if (uploads()) places_[static_cast<size_t>(given_ % 2)].uploaded->synchronize();", "", [TRAINING]),
    ("a new pass waits for the uploads of the last one", "runtime/train/batch_stream.cpp",
     "if (uploads()) upload_->synchronize();", "", [TRAINING, *GUARDED]),
    ("the end of work on a batch is recorded", "runtime/train/batch_stream.cpp",
     "if (uploads()) compute.record(*places_[static_cast<size_t>((given_ + 1) % 2)].used);", "", [TRAINING]),
    ("an upload's end is recorded", "runtime/train/batch_stream.cpp", "upload_->record(*place.uploaded);", "",
     [TRAINING]),
    ("the loader keeps the slot that is being uploaded", "runtime/train/batch_stream.cpp", ".keep = 1", ".keep = 0",
     [TRAINING]),
    ("results are read after their event", "runtime/train/read_back.cpp", "from.there->synchronize();", "",
     [TRAINING]),
    ("a bucket starts after its last gradient", "runtime/gradsync/grad_sync.cpp",
     ".after = state.buckets[b].final.get(), ", "", [TRAINING]),
    ("the end of a bucket's gradients is recorded", "runtime/gradsync/grad_sync.cpp",
     "state.compute->record(*state.buckets[b].final);", "", [TRAINING]),
    ("updates wait for the bucket's sum", "runtime/gradsync/grad_sync.cpp",
     "waited.work.order_before(*state.compute);\n  waited.work = {};", "new Work(std::move(waited.work));", [TRAINING]),
    ("old values stay until they are in their bucket", "runtime/gradsync/grad_sync.cpp",
     "stream->synchronize();  // before the old values go", "", [TRAINING]),
    ("weights are read after their copy", "models/graph/weights.cpp",
     "    stream.copy(values.data(), tensor.data, desc.bytes());\n    stream.synchronize();",
     "    stream.copy(values.data(), tensor.data, desc.bytes());", [TRAINING, *GUARDED]),
    ("a new plan's memory waits for passes underway", "models/graph/graph_network.cpp",
     "  stream.synchronize();\n  return get_plan", "  return get_plan", [TRAINING, *GUARDED]),
    ("predictions are gathered after they were made", "runtime/train/trainer.cpp", "      stream.synchronize();\n", "",
     [TRAINING]),
    ("statistics are read after the work that made them", "runtime/train/replica_statistics.cpp",
     "  stream_.synchronize();\n  const double weight", "  const double weight", [TRAINING, *GUARDED]),
    ("local predictions are given out after they were made", "models/local_evaluation.cpp",
     "  stream.synchronize();\n", "", GUARDED),
    ("a reorder outside of plans is waited for", "models/graph/weights.cpp",
     "kernel->run({.stream = stream, .scratch = scratch.data()}, from, to);\n  stream.synchronize();",
     "kernel->run({.stream = stream, .scratch = scratch.data()}, from, to);", GUARDED),
    ("a failed run is waited for", "runtime/device/quiet_at_end.h", "stream_.synchronize();", "", GUARDED),
    ("a look at weights waits for the steps queued so far", "models/model.cpp",
     "last->trainer->synchronize();", ";", [TRAINING, *GUARDED]),
    ("staged: downloads start behind the event of the call", STAGED,
     "if (options.after != nullptr) stream_->wait(*options.after);", "", [ORDER, COLLECTIVES]),
    ("staged: a stream waits for the upload of a result", STAGED, "stream.wait(*done_);", "", [ORDER, COLLECTIVES]),
    ("staged: the end of an upload is recorded", STAGED, "comm_.stream_->record(*done_);", "", [ORDER, COLLECTIVES]),
    ("staged: inputs are in host memory before they are reduced", STAGED,
     "    stream_->synchronize();\n    CollectiveOptions inner", "    CollectiveOptions inner", [ORDER, COLLECTIVES]),
    ("staged: pinned memory is used again behind its upload", STAGED, "    work.done_->synchronize();\n", "",
     [ORDER, COLLECTIVES]),
    ("staged: the host's result is waited for", STAGED, "  inner_.wait();\n", "", [ORDER, COLLECTIVES]),
    ("staged: wait() waits for the upload of the result", STAGED, "  done_->synchronize();\n", "", [ORDER, COLLECTIVES]),
    ("several devices: a pass starts behind the work in front of it", LANES,
     "      lane.stream->wait(*begin_);\n", "", [SETS]),
    ("several devices: the work in front of a pass is recorded", LANES, "    on.stream.record(*begin_);\n", "", [SETS]),
    ("several devices: a copy waits for what it reads", LANES,
     "for (const int signal : step.waits) on.stream.wait(*plan.events[static_cast<size_t>(signal)]);", "", [SETS]),
    ("several devices: the end of a step is recorded", LANES,
     "if (step.signal >= 0) on.stream.record(*plan.events[static_cast<size_t>(step.signal)]);", "", [SETS]),
    ("several devices: work behind a pass waits for all of them", LANES, "      on.stream.wait(*lane.end);\n", "",
     [SETS]),
    ("several devices: the end of a pass is recorded", LANES, "      lane.stream->record(*lane.end);\n", "", [SETS]),
    ("several devices: what another copies stays until the pass has ended", "models/graph/plan_builder.cpp",
     "plan_->storages[static_cast<size_t>(memory)].last = now - 1;", "static_cast<void>(memory);", [SETS]),
    ("several devices: what another copies is not overwritten", "models/graph/plan_devices.cpp",
     "  state(value).sent = true;\n", "", [SETS]),
    ("several devices: statistics are fetched behind their last update", "models/graph/plan_devices.cpp",
     "            .waits = signals_of_last(0)});", "            });", [SETS]),
    ("several devices: statistics come back behind the update", "models/graph/plan_devices.cpp",
     "              .waits = signals_of_last(from)});", "              });", [SETS]),
]


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, **options)


def commands(build, target):
    return run(["ninja", "-C", build, "-t", "commands", target]).stdout.splitlines()


def including(header):
    return [str(path.relative_to(ROOT)) for folder in ("runtime", "models") for path in (ROOT / folder).rglob("*.cpp")
            if any(f'"{name}"' in path.read_text() for name in (header, *headers_with(header)))]


def headers_with(header):
    return [str(path.relative_to(ROOT)) for folder in ("runtime", "models") for path in (ROOT / folder).rglob("*.h")
            if f'"{header}"' in path.read_text()]


def compile_mutant(build, folder, target, file, text, replacement):
    """Pairs of an object with the change, as `target` compiles it, and the one it replaces; none where it does not."""
    source = (ROOT / file).read_text()
    if text not in source:
        sys.exit(f"{file}: {text!r} does not stand there; the table is out of date")
    copy = folder / file
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(source.replace(text, replacement))
    objects = []
    for user in [file] if not file.endswith(".h") else including(file):
        found = [c for c in commands(build, target) if re.search(rf"-c \S*/{re.escape(user)}$", c)]
        if not found:
            continue
        old = re.search(r" -o (\S+)", found[0])[1]
        new = folder / (user.replace("/", "_") + ".o")
        changed = folder / user
        if not changed.exists():
            changed.parent.mkdir(parents=True, exist_ok=True)
            changed.write_text((ROOT / user).read_text())
        command = re.sub(r" -o \S+", f" -w -Wno-error -o {new}", found[0])
        command = re.sub(r"-c \S+$", f"-c {changed}", re.sub(r"-MF \S+", f"-MF {new}.d", command))
        command = command.replace(f" -I{ROOT}", f" -I{folder} -I{ROOT}", 1)
        done = run(command, shell=True, cwd=build)
        if done.returncode != 0:
            sys.exit(f"{user} does not compile:\n{done.stderr}")
        objects.append((new, old))
    return objects


def link(build, target, output, edit):
    command = edit(commands(build, target)[-1])
    done = run(re.sub(rf" -o {re.escape(target)}(?=\s)", f" -o {output}", command), shell=True, cwd=build)
    if done.returncode != 0:
        sys.exit(f"{target} does not link:\n{done.stderr}")


def what_failed(folder, test, tests, seconds):
    """Which case of a test program failed, and the first thing it said; nothing when all passed."""
    environment = dict(os.environ, RONDO_SIMULATED_GPUS="8")
    program = subprocess.Popen([folder / test, f"--gtest_filter={tests}"], env=environment, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        out, err = program.communicate(timeout=seconds)
        how = f"ended with {program.returncode}"
    except subprocess.TimeoutExpired:
        program.kill()
        out, err = program.communicate()
        how = f"still running after {seconds} s"
    if program.returncode == 0:
        return "", ""
    failed = re.search(r"\[  FAILED  \] ([\w./]+)", out)
    began = re.findall(r"\[ RUN      \] ([\w./]+)", out)
    mistake = re.search(r"MISTAKE: (.*)", err)
    error = re.search(r'C\+\+ exception with description "(.*?)"', out)
    if mistake:
        how = "the double: " + re.sub(r" ?\[0x[^)]*\)|allocation \d+ \(.*?\)", "", mistake[1])
        how = re.sub(r", which (reads|writes) bytes.*", "", how)
    elif error:
        how = error[1][:120]
    elif failed:
        how = "wrong values"
    return failed[1] if failed else began[-1] if began else test, how


def notice(build, mutation, seconds):
    name, file, text, replacement, tests = mutation
    with tempfile.TemporaryDirectory() as name_of_folder:
        folder = pathlib.Path(name_of_folder)
        mutants = compile_mutant(build, folder, MODULE, file, text, replacement)
        if mutants:
            link(build, MODULE, folder / MODULE,
                 lambda c: functools.reduce(lambda line, mutant: line.replace(mutant[1], str(mutant[0])), mutants, c))
        else:
            os.symlink(pathlib.Path(build).resolve() / MODULE, folder / MODULE)
        for test, chosen in tests:
            if mutants:
                run(["cp", pathlib.Path(build) / "tests" / test, folder / test])
            else:
                mutants_of_test = compile_mutant(build, folder, f"tests/{test}", file, text, replacement)
                if not mutants_of_test:
                    continue  # it does not use the file
                # In front of the libraries, one of which holds the original.
                added = " ".join(str(new) for new, _ in mutants_of_test)
                link(build, f"tests/{test}", folder / test,
                     lambda c: c.replace(f" -o tests/{test}", f" {added} -o tests/{test}", 1))
            case, how = what_failed(folder, test, chosen, seconds)
            if how:
                return f"{test}, {case}", how
    return "nothing", ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--only", default="", help="mutations whose name or file holds this text")
    parser.add_argument("--seconds", type=int, default=120, help="time-out of a test program")
    parser.add_argument("--write", action="store_true", help="write MUTATIONS.md")
    options = parser.parse_args()
    lines = ["| What is removed | Where | Noticed by | How |", "|---|---|---|---|"]
    print("\n".join(lines), flush=True)
    missed = 0
    for mutation in MUTATIONS:
        if options.only not in mutation[0] + mutation[1]:
            continue
        test, how = notice(options.build, mutation, options.seconds)
        missed += not how
        lines.append(f"| {mutation[0]} | {mutation[1]} | {test} | {how.replace('|', '/')} |")
        print(lines[-1], flush=True)
    if options.write:
        head = ("# What notices a missing wait\n\nMade by `tests/sim/mutations.py BUILD --write`: each line is one wait "
                "(or record) that was taken out of the\nproduct's sources, and what failed then on simulated GPUs. "
                "\"The double\" is the happens-before check.\n\n")
        (pathlib.Path(__file__).parent / "MUTATIONS.md").write_text(head + "\n".join(lines) + "\n")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
