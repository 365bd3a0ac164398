# SPDX-License-Identifier: Apache-2.0
"""tcq quantize on a model of several GiB: speed beside the encoder's own, memory, kill and resume.

    tests/cli/run large_model.py [--layers N] [--L L] [--bits K] [--threads N] [--kills N] [--at DIR]

Makes a model of random weights, packs it undisturbed, then once more in a run that is killed
(SIGKILL) at random moments and resumed, and compares both folders byte for byte.  The encoder's
own speed is measured with `tcq bench --op encode` before and after, since machines drift.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

COMMAND, SYNTH = os.environ["TCQ_COMMAND"], os.environ["TCQ_SYNTH_MODEL"]
HIDDEN, INTERMEDIATE, VOCABULARY = 2048, 8192, 1024
WEIGHTS_A_LAYER = 3 * HIDDEN * HIDDEN + 3 * HIDDEN * INTERMEDIATE  # what is packed
PIECE = 1 << 24


def encoder_speed(options):
    """Weights a second of the encoder alone, with the same options."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
        subprocess.run([COMMAND, "bench", "--op", "encode", "--bits", str(options.bits), "--L", str(options.L),
                        "--threads", str(options.threads), "--json", file.name],
                       check=True, stdout=subprocess.DEVNULL)
        return json.load(file)[0]["mweights_per_s"] * 1e6


def quantize(options, source, out, *more):
    return [COMMAND, "quantize", source, "-o", out, "--bits", str(options.bits), "--L", str(options.L),
            "--threads", str(options.threads), "--quiet", "--shard-size", "100MiB", *more]


def pack_undisturbed(options, source, out):
    """Wall-clock seconds and peak resident MiB, mapped source pages apart."""
    start = time.monotonic()
    process = subprocess.Popen(quantize(options, source, out))
    anonymous = 0
    while process.poll() is None:
        try:
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            anonymous = max([anonymous] + [int(line.split()[1]) for line in status.splitlines()
                                           if line.startswith("RssAnon")])
        except OSError:
            pass
        time.sleep(0.05)
    assert process.returncode == 0, process.returncode
    return time.monotonic() - start, anonymous / 1024


def tensors_done(out):
    """Lines of the lists of finished tensors; a shard without a list is whole."""
    partial = out.with_name(out.name + ".partial")
    lists = list(partial.glob("*.done"))
    return len(list(partial.glob("*.safetensors"))), sum(path.read_bytes().count(b"\n") for path in lists)


def pack_killed(options, source, out):
    """The same in a run that is killed at random moments and resumed; the number of kills that hit."""
    hits = 0
    for _ in range(options.kills):
        process = subprocess.Popen(quantize(options, source, out, "--resume"))
        before, wanted = tensors_done(out), random.randrange(1, 8)
        while process.poll() is None:
            now = tensors_done(out)
            if now[0] > before[0] or now[1] >= before[1] + wanted:
                time.sleep(random.uniform(0, 0.2))
                process.kill()
                hits += process.wait() != 0
                break
            time.sleep(0.005)
        assert not out.exists(), "a killed run left a folder under its final name"
    subprocess.run(quantize(options, source, out, "--resume"), check=True)
    return hits


def same_file(a, b):
    if a.stat().st_size != b.stat().st_size:
        return False
    with open(a, "rb") as left, open(b, "rb") as right:
        while piece := left.read(PIECE):
            if piece != right.read(PIECE):
                return False
    return True


def compare(a, b):
    names = [sorted(path.name for path in folder.iterdir()) for folder in (a, b)]
    assert names[0] == names[1], f"other files: {names}"
    different = [name for name in names[0] if not same_file(a / name, b / name)]
    assert not different, f"other bytes: {different}"
    return len(names[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--L", type=int, default=10)
    parser.add_argument("--bits", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--at", default=None, help="folder for some GiB of temporary files")
    options = parser.parse_args()
    random.seed(options.seed)
    at = pathlib.Path(tempfile.mkdtemp(prefix="tcq-large-", dir=options.at))
    try:
        source, whole, resumed = at / "model", at / "whole", at / "resumed"
        subprocess.run([SYNTH, source, *map(str, (options.layers, HIDDEN, INTERMEDIATE, VOCABULARY))],
                       check=True)
        size = sum(path.stat().st_size for path in source.iterdir()) / 2**30
        weights = options.layers * WEIGHTS_A_LAYER
        print(f"source {size:.2f} GiB, {weights / 1e6:.0f} million weights to pack, L {options.L}, "
              f"k {options.bits}, {options.threads} threads, seed {options.seed}", flush=True)
        before = encoder_speed(options)
        seconds, anonymous = pack_undisturbed(options, source, whole)
        after = encoder_speed(options)
        speed = weights / seconds
        print(f"undisturbed: {seconds:.1f} s, {speed / 1e6:.2f} Mw/s; encoder alone {before / 1e6:.2f} "
              f"before, {after / 1e6:.2f} after; share {2 * speed / (before + after):.3f}; "
              f"memory {anonymous:.0f} MiB", flush=True)
        hits = pack_killed(options, source, resumed)
        print(f"killed {hits} times and resumed: {compare(whole, resumed)} files, the same bytes")
    finally:
        shutil.rmtree(at, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
