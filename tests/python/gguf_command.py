# SPDX-License-Identifier: Apache-2.0
"""`tcq dequantize --dtype f32` of a GGUF model whose blocks are each of another
type: the safetensors file holds the gguf package's values bit for bit, in the
model's row order; and `tcq inspect` lists the types."""

import json
import os
import subprocess
import sys
import tempfile

from gguf_support import (SKIPPED, TYPES, Sizes, gguf, model_tensors, np, quantization_type,
                          random_bytes, same_bits, start, store_plain, typed, write_model)

try:
    import safetensors
except ImportError as missing:
    print(f"SKIPPED: {missing} (pip install -r tests/python/requirements.txt)")
    sys.exit(SKIPPED)

SIZES = Sizes(hidden=256, middle=256, heads=4, kv_heads=2, head_dim=64, vocab=32, layers=len(TYPES))
# Where a block's scale and minimum, binary16 numbers, are.
HALVES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q4_K": [0, 2],
          "Q5_K": [0, 2], "Q6_K": [208]}


def finite_blocks(rng, type_name, rows, cols):
    """Random bits with scales of about 0.01."""
    raw = random_bytes(rng, type_name, rows, cols)
    blocks = raw.reshape(-1, gguf.GGML_QUANT_SIZES[quantization_type(type_name)][1])
    for at in HALVES[type_name]:
        scales = (rng.standard_normal(len(blocks)) * 0.01).astype(np.float16)
        blocks[:, at:at + 2] = scales.view(np.uint8).reshape(-1, 2)
    return raw


def store_by_layer(rng):
    def store(name, weights):
        if weights.ndim != 2 or not name.startswith("model.layers."):
            return store_plain(name, weights)
        type_name = TYPES[int(name.split(".")[2])]
        kind = quantization_type(type_name)
        if type_name in HALVES:
            rows = finite_blocks(rng, type_name, *weights.shape)
            return rows, kind, gguf.quants.dequantize(rows, kind)
        rows = typed(type_name, gguf.quants.quantize(weights, kind).view(np.uint8))
        values = rows.astype(np.float32) if type_name != "BF16" else gguf.quants.dequantize(rows, kind)
        return rows, kind, values
    return store


def load(path):
    """{name: float32 array}; tensors without blocks were copied as they are."""
    with open(path, "rb") as file:
        tensors = safetensors.deserialize(file.read())
    arrays = {}
    for name, tensor in tensors:
        data = bytes(tensor["data"])
        if tensor["dtype"] == "BF16":
            values = (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(data, {"F32": np.float32, "F16": np.float16}[tensor["dtype"]])
        arrays[name] = values.astype(np.float32).reshape(tensor["shape"])
    return arrays


def run(*arguments):
    done = subprocess.run([os.environ["TCQ_COMMAND"], *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def check(folder, rng, family, bias):
    source, output = os.path.join(folder, "m.gguf"), os.path.join(folder, "m.safetensors")
    tensors = model_tensors(rng, family, True, bias, SIZES)
    expected = write_model(source, family, tensors, store_by_layer(rng), sizes=SIZES)
    run("dequantize", source, "-o", output, "--dtype", "f32", "--force", "--quiet")
    actual = load(output)
    assert sorted(actual) == sorted(expected)
    wrong = [n for n in expected if not same_bits(actual[n], expected[n])]
    assert not wrong, (family, wrong)
    listing = run("inspect", source, "--json")
    assert json.loads(listing) and all(f'"{name}"' in listing for name in TYPES), listing[:500]
    print(f"{family}: {len(expected)} tensors, {len(TYPES)} types: equal")


def main():
    if not os.path.exists(os.environ.get("TCQ_COMMAND", "")):
        print("SKIPPED: the command is not built (TCQ_COMMAND)")
        sys.exit(SKIPPED)
    rng = start("gguf_command", 19)
    with tempfile.TemporaryDirectory() as folder:
        check(folder, rng, "llama", False)
        check(folder, rng, "qwen2", True)


main()
