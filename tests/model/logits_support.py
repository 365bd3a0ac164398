# SPDX-License-Identifier: Apache-2.0
"""What the tests of logits share: weights that follow from their names alone, a
model folder of them, and the program that computes logits from it."""

import hashlib
import json
import os
import subprocess
import sys

try:
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing} (pip install -r tests/python/requirements.txt)")
    sys.exit(77)


def uniform(name, count):
    """Multiples of 2^-23 in [-1, 1): splitmix64 counted from the name's hash, so
    that no version of any package can change them."""
    start = np.frombuffer(hashlib.sha256(name.encode()).digest()[:8], "<u8")
    with np.errstate(over="ignore"):
        z = start + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return ((z >> np.uint64(40)).astype(np.int64) - (1 << 23)).astype(np.float32) / np.float32(1 << 23)


def weights(shapes):
    """float32 arrays for {name: shape}; norms lie around 1, and products keep the
    size of what goes in."""
    made = {}
    for name, shape in shapes.items():
        spread = np.float32(0.5 if len(shape) == 1 else 4 / shape[-1] ** 0.5)
        value = uniform(name, int(np.prod(shape))).reshape(shape) * spread
        made[name] = value + np.float32(1) if "norm" in name else value
    return made


def bfloat16(value):
    """Bits of the nearest bfloat16, ties to even."""
    bits = value.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def write_folder(folder, config, tensors, dtype):
    """config.json and model.safetensors; dtype is F32 or BF16."""
    header, parts, at = {}, [], 0
    for name, value in tensors.items():
        data = (bfloat16(value) if dtype == "BF16" else value).tobytes()
        header[name] = {"dtype": dtype, "shape": list(value.shape), "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + b"".join(parts))
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)


def run(program, folder, tokens, threads=2, batch=0, cache=32, cpu="native"):
    done = subprocess.run([program, folder, str(threads), str(batch), str(cache), cpu],
                          input=np.asarray(tokens, dtype=np.uint32).tobytes(),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr.decode()
    return np.frombuffer(done.stdout, dtype=np.float32).reshape(len(tokens), -1)


def check(name, expected, got, limit):
    error = np.abs(got - expected).max() / np.abs(expected).max()
    same = (got.argmax(1) == expected.argmax(1)).mean()
    print(f"{name}: relative error {error:.2e}, top-1 {same:.3f}")
    assert error <= limit, (name, error)
    return same


def check_folder(name, program, folder, tokens, expected):
    """Every way to compute the logits of a folder of float32."""
    got = run(program, folder, tokens)
    assert check(name, expected, got, 1e-4) == 1.0
    assert np.array_equal(got, run(program, folder, tokens, threads=1, batch=13)), "threads or batch"
    for cpu in ("scalar", "avx2"):
        check(f"  {cpu}", expected, run(program, folder, tokens, cpu=cpu), 1e-4)
    check("  cache of binary16", expected, run(program, folder, tokens, cache=16), 2e-2)
