#!/usr/bin/env python3
"""Removes the waits of the training path one at a time and shows the test that notices.

    cmake --build BUILD --target models_device_test grad_sync_device_test
    tests/mutations.py BUILD [--only TEXT]

Each mutation is a text of one source file and what takes its place. The file is compiled as the build compiles it,
into a folder of its own, and the tests are linked with that object in front of the libraries. Prints a table, and
ends with 1 when a mutation went unnoticed.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TESTS = ["grad_sync_device_test", "models_device_test"]

# (what goes, file, text, replacement)
MUTATIONS = [
    ("uploads wait for the work on the batch before", "runtime/train/batch_stream.cpp",
     "upload_->wait(*place.used);", ""),
    ("work waits for its batch's upload", "runtime/train/batch_stream.cpp",
     "compute.wait(*place.uploaded);", ""),
    ("the loader gets a slot back after its upload", "runtime/train/batch_stream.cpp",
     "if (uploads()) places_[static_cast<size_t>(given_ % 2)].uploaded->synchronize();", ""),
    ("a new pass waits for the uploads of the last one", "runtime/train/batch_stream.cpp",
     "if (uploads()) upload_->synchronize();", ""),
    ("the end of work on a batch is recorded", "runtime/train/batch_stream.cpp",
     "if (uploads()) compute.record(*places_[static_cast<size_t>((given_ + 1) % 2)].used);", ""),
    ("an upload's end is recorded", "runtime/train/batch_stream.cpp",
     "upload_->record(*place.uploaded);", ""),
    ("the loader keeps the slot that is being uploaded", "runtime/train/batch_stream.cpp",
     ".keep = 1", ".keep = 0"),
    ("results are read after their event", "runtime/train/read_back.cpp",
     "from.there->synchronize();", ""),
    ("a bucket starts after its last gradient", "runtime/gradsync/grad_sync.cpp",
     ".after = state.buckets[b].final.get(), ", ""),
    ("the end of a bucket's gradients is recorded", "runtime/gradsync/grad_sync.cpp",
     "state.compute->record(*state.buckets[b].final);", ""),
    ("updates wait for the bucket's sum", "runtime/gradsync/grad_sync.cpp",
     "waited.work.order_before(*state.compute);", ""),
    ("statistics are read after the work that made them", "runtime/train/replica_statistics.cpp",
     "  stream_.synchronize();\n  const double weight", "  const double weight"),
    ("predictions are gathered after they were made", "runtime/train/trainer.cpp",
     "      stream.synchronize();\n", ""),
    ("local predictions are given out after they were made", "models/local_evaluation.cpp",
     "  stream.synchronize();\n", ""),
    ("weights are read after their copy", "models/graph/weights.cpp",
     "    stream.copy(values.data(), tensor.data, desc.bytes());\n    stream.synchronize();",
     "    stream.copy(values.data(), tensor.data, desc.bytes());"),
    ("a reorder outside of plans is waited for", "models/graph/weights.cpp",
     "kernel->run({.stream = stream, .scratch = scratch.data()}, from, to);\n  stream.synchronize();",
     "kernel->run({.stream = stream, .scratch = scratch.data()}, from, to);"),
    ("old values stay until they are in their bucket", "runtime/gradsync/grad_sync.cpp",
     "stream->synchronize();  // before the old values go", ""),
    ("a look at weights waits for the steps queued so far", "models/model.cpp",
     "trained_by->trainer->synchronize();", ";"),
    ("a new plan's memory waits for passes underway", "models/graph/graph_network.cpp",
     "  stream.synchronize();\n  return get_plan", "  return get_plan"),
    ("a failed run is waited for", "runtime/device/quiet_at_end.h", "stream_.synchronize();", ""),
]


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, **options)


def commands(build, target):
    return run(["ninja", "-C", build, "-t", "commands", target]).stdout.splitlines()


class Mutant:
    """A copy of the sources of one mutation, with their objects."""

    def __init__(self, build, folder, file, text, replacement):
        self.build, self.folder = build, folder
        self.objects = {test: [] for test in TESTS}
        source = (ROOT / file).read_text()
        if source.count(text) != 1:
            sys.exit(f"{file}: {text!r} stands there {source.count(text)} times; the table is out of date")
        mutated = folder / file
        mutated.parent.mkdir(parents=True, exist_ok=True)
        mutated.write_text(source.replace(text, replacement))
        users = [file] if file.endswith(".cpp") else run(
            ["grep", "-rl", "--include=*.cpp", f'"{file}"\\|fit_run.h\\|evaluation.h', "runtime/train", "models"],
            cwd=ROOT).stdout.split()
        for user in users:
            self.compile(user)

    def compile(self, user):
        copy = self.folder / user
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text((ROOT / user).read_text())
        users = {t: c for t in TESTS for c in commands(self.build, f"tests/{t}")
                 if re.search(rf"-c \S*{re.escape(user)}$", c)}
        if not users:
            return
        output = self.folder / (user.replace("/", "_") + ".o")
        command = re.sub(r" -o \S+", f" -w -Wno-error -o {output}", list(users.values())[0])
        command = re.sub(r"-c \S+$", f"-c {copy}", command)
        command = re.sub(r"-MF \S+", f"-MF {output}.d", command)
        command = command.replace(f" -I{ROOT}", f" -I{self.folder} -I{ROOT}", 1)
        done = run(command, shell=True, cwd=self.build)
        if done.returncode != 0:
            sys.exit(f"{user} does not compile:\n{done.stderr}")
        for test in users:
            self.objects[test].append(str(output))

    def failures(self, test, seconds):
        """What fails in a test program: names of tests, or how it died."""
        if not self.objects[test]:
            return []
        link = commands(self.build, f"tests/{test}")[-1]
        program = self.folder / test
        objects = " ".join(self.objects[test])
        command = re.sub(rf" -o tests/{test}", f" {objects} -o {program}", link)
        done = run(command, shell=True, cwd=self.build)
        if done.returncode != 0:
            sys.exit(f"{test} does not link:\n{done.stderr}")
        try:
            done = run([program], timeout=seconds)
        except subprocess.TimeoutExpired:
            return ["(does not end)"]
        if done.returncode == 0:
            return []
        names = re.findall(r"^\[  FAILED  \] (\S+?),? ", done.stdout, re.M)
        running = re.findall(r"^\[ RUN      \] (\S+)", done.stdout, re.M)
        return list(dict.fromkeys(names)) or [f"{running[-1] if running else test} (dies)"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--only", default="", help="mutations whose description contains this")
    parser.add_argument("--seconds", type=int, default=60, help="limit of a test program")
    options = parser.parse_args()
    build = str(pathlib.Path(options.build).resolve())
    unnoticed = 0
    print("| without: | noticed by |\n|---|---|")
    for what, file, text, replacement in MUTATIONS:
        if options.only not in what:
            continue
        with tempfile.TemporaryDirectory() as folder:
            mutant = Mutant(build, pathlib.Path(folder), file, text, replacement)
            found = [f for test in TESTS for f in mutant.failures(test, options.seconds)]
        unnoticed += not found
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        print(f"| {what} | {found[0] + more if found else '**nothing**'} |", flush=True)
    sys.exit(1 if unnoticed else 0)


main()
