# SPDX-License-Identifier: Apache-2.0
"""What the GGUF tests share: packages or a skip, random blocks, a small model
written with the gguf package, and the output of the program gguf_floats."""

import os
import subprocess
import sys

SKIPPED = 77

try:
    import gguf
    import numpy as np
except ImportError as missing:
    print(f"SKIPPED: {missing} (pip install -r tests/python/requirements.txt)")
    sys.exit(SKIPPED)

TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]


def start(name, seed):
    """A generator seeded from TCQ_SEED, else `seed`; printed."""
    seed = int(os.environ.get("TCQ_SEED", seed), 0) if "TCQ_SEED" in os.environ else seed
    print(f"{name}: TCQ_SEED={seed}")
    return np.random.default_rng(seed)


def quantization_type(name):
    return gguf.GGMLQuantizationType[name]


def random_bytes(rng, name, rows, cols):
    """Rows of any bits at all: every scale, NaN and infinity among them."""
    block, nbytes = gguf.GGML_QUANT_SIZES[quantization_type(name)]
    return rng.integers(0, 256, (rows, cols // block * nbytes), dtype=np.uint8)


def typed(name, raw):
    """The array that GGUFWriter.add_tensor wants for raw bytes of a type."""
    return raw.view({"F32": np.float32, "F16": np.float16}.get(name, np.uint8))


def floats(program, mode, path):
    """{name: float32 array} as gguf_floats prints it."""
    done = subprocess.run([program, mode, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.decode())
    out, at, arrays = done.stdout, 0, {}
    while at < len(out):
        end = out.index(b"\n", at)
        name, *sizes = out[at:end].decode().split(" ")
        shape = tuple(map(int, sizes))
        count = int(np.prod(shape))
        arrays[name] = np.frombuffer(out, np.float32, count, end + 1).reshape(shape)
        at = end + 1 + 4 * count
    return arrays


def same_bits(a, b):
    """Equal bit for bit, except that any NaN equals any NaN."""
    if a.shape != b.shape:
        return False
    nan = np.isnan(a) & np.isnan(b)
    return bool(np.all(nan | (a.view(np.uint32) == b.view(np.uint32))))
