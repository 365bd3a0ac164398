# SPDX-License-Identifier: Apache-2.0
"""Small models for check_model: models.py OUTPUT COMMAND.  Every family of
tests/golden/model in float32, half of them in bfloat16, as MLX's affine groups
too, and packed by the command at 2, 3 and 4 bits.  Prints the folders."""

import glob
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "model"))

try:
    import numpy as np
    from logits_support import bfloat16, weights, write_folder
    from safetensors import safe_open
except ImportError as missing:
    print(f"skipped: {missing}", file=sys.stderr)
    sys.exit(77)


def affine(value, bits, group):
    """Words, scales and biases of MLX's affine groups, scales in binary16."""
    out, inputs = value.shape
    grouped = value.reshape(out, inputs // group, group)
    low, high = grouped.min(2), grouped.max(2)
    scales = np.maximum((high - low) / ((1 << bits) - 1), 1e-4).astype(np.float16)
    biases = low.astype(np.float16)
    q = np.rint((grouped - biases[..., None].astype(np.float32)) / scales[..., None].astype(np.float32))
    q = np.clip(q, 0, (1 << bits) - 1).astype(np.uint8).reshape(out, inputs)
    stream = np.unpackbits(q[..., None], axis=2, bitorder="little")[:, :, :bits].reshape(out, -1)
    return np.packbits(stream, axis=1, bitorder="little").view(np.uint32), scales, biases


def write_affine(folder, config, tensors, bits, group):
    """Matrices whose inputs are whole groups become affine, the rest float32."""
    header, parts, at = {}, [], 0
    for name, value in tensors.items():
        entries = [(name, "F32", value)]
        if value.ndim == 2 and value.shape[1] % group == 0:
            stem = name.removesuffix("weight")
            entries = list(zip((name, stem + "scales", stem + "biases"), ("U32", "F16", "F16"),
                               affine(value, bits, group)))
        for key, dtype, array in entries:
            data = np.ascontiguousarray(array).tobytes()
            header[key] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [at, at + len(data)]}
            parts.append(data)
            at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + b"".join(parts))
    config = {**config, "quantization": {"group_size": group, "bits": bits, "mode": "affine"}}
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)


def main():
    output, command = sys.argv[1:]
    made = []

    def folder(name):
        path = os.path.join(output, name)
        os.makedirs(path, exist_ok=True)
        made.append(path)
        return path

    paths = sorted(glob.glob(os.path.join(HERE, "..", "golden", "model", "*.safetensors")))
    for i, path in enumerate(paths):
        with safe_open(path, "np") as file:
            about = file.metadata()
        name = os.path.splitext(os.path.basename(path))[0]
        config, tensors = json.loads(about["config"]), weights(json.loads(about["shapes"]))
        write_folder(folder(name), config, tensors, "F32")
        if i % 2:
            write_folder(folder(f"{name}-bf16"), config, tensors, "BF16")
        if config["hidden_size"] % 64 == 0:
            bits = (2, 3, 4, 5, 6, 8)[i % 6]
            write_affine(folder(f"{name}-affine{bits}"), config, tensors, bits, (32, 64)[i % 2])
            packed = folder(f"{name}-packed{2 + i % 3}")
            subprocess.run([command, "quantize", os.path.join(output, name), "-o", packed, "--force",
                            "--quiet", "--bits", str(2 + i % 3)], check=True, stdout=subprocess.DEVNULL)
    print("\n".join(made))


main()
