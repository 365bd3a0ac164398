# SPDX-License-Identifier: Apache-2.0
"""tcq_reference.py against the golden vectors: both implementations answer to
the same judge."""

import os
import pathlib
import sys

from tcq_reference import bf16_bits, code_table, decode_stored, matrix_states, np, read_file, row_major


def numbers(name):
    """k, T and axis from a name such as encoded_k3_T256_axis1."""
    parts = dict(k=0, T=256, axis=1)
    for part in name.split("_")[1:]:
        for key in parts:
            if part.startswith(key) and part[len(key):].isdigit():
                parts[key] = int(part[len(key):])
    return parts["k"], parts["T"], parts["axis"]


def main():
    # An absolute path replaces the source folder, a relative one is inside it.
    folder = pathlib.Path(os.environ["TCQ_SOURCE_DIR"]) / (os.environ.get("TCQ_GOLDEN_DIR") or "tests/golden")
    checked = 0
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        name, tensors = path.stem, {n: t.array for n, t in read_file(path).items()}
        k, T, _ = numbers(name)
        if name.startswith("lut_"):
            L = len(tensors["lut"]).bit_length() - 1
            assert code_table(L).tobytes() == tensors["lut"].tobytes(), name
        elif name.startswith("encoded_"):
            words, scales = tensors["layer.weight"], tensors["layer.scales"]
            decoded = decode_stored(words, scales, k, 12, T)
            assert (matrix_states(words, k, 12, T) == tensors["states"]).all(), name
            assert decoded.tobytes() == tensors["expand_f32"].tobytes(), name
            assert bf16_bits(decoded).tobytes() == tensors["expand_bf16"].tobytes(), name
        elif name.startswith("interleaved_"):
            assert (row_major(tensors["layer_interleaved.weight"]) == tensors["layer_rowmajor.weight"]).all(), name
            decoded = decode_stored(tensors["layer_interleaved.weight"], tensors["layer.scales"], k, 12, T)
            assert bf16_bits(decoded).tobytes() == tensors["expand_bf16"].tobytes(), name
        else:
            continue
        print(f"golden: {name}")
        checked += 1
    assert checked, f"no vectors in {folder}"
    return 0


if __name__ == "__main__":
    sys.exit(main())
