# SPDX-License-Identifier: Apache-2.0
"""The packed format a second time, from its definition alone and with numpy:
reads a folder that `tcq quantize` wrote and decodes it.

    tcq_reference.py FOLDER                           list what is packed
    tcq_reference.py FOLDER PLAIN [bf16|f16|f32]      compare with the file or
                                                      folder of a `tcq dequantize`

Exit status: 0 the same bits, 1 a difference, 2 usage, 77 a package is missing.
"""

import json
import pathlib
import sys

SKIPPED = 77

try:
    import numpy as np
    import safetensors
except ImportError as missing:
    print(f"SKIPPED: {missing} (pip install -r tests/python/requirements.txt)")
    sys.exit(SKIPPED)

# safetensors' names; BF16 has no numpy type and is kept as its bits.
NUMPY = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "?",
    "U8": "u1", "U16": "<u2", "U32": "<u4", "U64": "<u8",
    "I8": "i1", "I16": "<i2", "I32": "<i4", "I64": "<i8",
}  # fmt: skip


class Tensor:
    """An array and the type that safetensors gives it."""

    def __init__(self, dtype, array):
        self.dtype, self.array = dtype, array


def read_file(path):
    """name -> Tensor; the file is checked by the safetensors package."""
    tensors = {}
    for name, info in safetensors.deserialize(pathlib.Path(path).read_bytes()):
        array = np.frombuffer(bytes(info["data"]), dtype=NUMPY[info["dtype"]])
        tensors[name] = Tensor(info["dtype"], array.reshape(info["shape"]))
    return tensors


def read_model(path):
    """All tensors of a file, or of a folder with or without an index."""
    path = pathlib.Path(path)
    if path.is_file():
        return read_file(path)
    index = path / "model.safetensors.index.json"
    if not index.exists():
        return read_file(path / "model.safetensors")
    weight_map = json.loads(index.read_text())["weight_map"]
    tensors = {}
    for shard in sorted(set(weight_map.values())):
        for name, tensor in read_file(path / shard).items():
            assert weight_map[name] == shard, f"{name}: index says {weight_map[name]}, is in {shard}"
            tensors[name] = tensor
    assert set(tensors) == set(weight_map), "index and shards hold different tensors"
    return tensors


def packed_modules(folder):
    """module -> (k, L, T, axis) from config.json, whose two sections must agree."""
    config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    section = config["quantization"]
    assert section == config["quantization_config"], "the two sections differ"
    modules = {}
    for name, entry in section.items():
        if not isinstance(entry, dict) or entry.get("mode") != "trellis":
            continue
        trellis = entry["trellis"]
        assert trellis["code"] == "1mad", trellis["code"]
        modules[name] = (entry["bits"], trellis["L"], entry["group_size"], trellis["axis"])
    return modules


# ---- the format ------------------------------------------------------------


def code_table(L):
    """The value of every state, as float32."""
    z = (np.arange(1 << L, dtype=np.uint64) * 34038481 + 76625530) & 0xFFFFFFFF
    y = sum((z >> shift) & 255 for shift in (0, 8, 16, 24)).astype(np.int64) - 510
    return (y / 147.800537109375).astype(np.float32)


def block_states(words, k, L, T):
    """States [..., T] of blocks of words [..., T*k/32], a bit at a time: bit i of a
    block is bit i%32 of word i//32, and state t is the L bits from (T-1-t)*k
    upwards, round the end."""
    nbits = T * k
    octets = np.ascontiguousarray(words, dtype="<u4").view(np.uint8)
    bits = np.unpackbits(octets, axis=-1, bitorder="little")
    assert bits.shape[-1] == nbits
    states = np.zeros((*words.shape[:-1], T), dtype=np.uint32)
    starts = (T - 1 - np.arange(T)) * k
    for i in range(L):
        states |= bits[..., (starts + i) % nbits].astype(np.uint32) << i
    return states


def row_major(words):
    """Interleaved words [cols/512, rows, 48] as [rows, words of a row]."""
    pairs, rows, width = words.shape
    assert width == 48
    return words.transpose(1, 0, 2).reshape(rows, pairs * width)


def matrix_states(words, k, L, T):
    """States [rows, cols] of a stored matrix, in either layout."""
    if words.ndim == 3:
        assert (k, L, T) == (3, 12, 256), "3-D words that are not interleaved"
        words = row_major(words)
    rows, width = words.shape
    assert width * 32 % k == 0 and width * 32 // k % T == 0, "cols do not fit k and T"
    blocks = words.reshape(rows, -1, T * k // 32)
    return block_states(blocks, k, L, T).reshape(rows, -1)


def decode_stored(words, scales, k, L, T):
    """The stored matrix [rows, cols] as float32: value * scale, one rounding."""
    assert scales.dtype == np.float16 and scales.shape == (words.shape[-2],)
    assert np.isfinite(scales).all(), "a scale is not finite"
    values = code_table(L)[matrix_states(words, k, L, T)]
    return values * scales.astype(np.float32)[:, None]


def decode_module(tensors, module, k, L, T, axis):
    """W [out, in] as float32."""
    words, scales = tensors[module + ".weight"], tensors[module + ".scales"]
    assert words.dtype == "U32" and scales.dtype == "F16" and module + ".biases" not in tensors
    assert words.array.ndim == 2 or axis == 0
    stored = decode_stored(words.array, scales.array, k, L, T)
    return stored if axis == 1 else np.ascontiguousarray(stored.T)


def bf16_bits(values):
    """float32 rounded to nearest even, as the bits of bf16; values are finite."""
    bits = values.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def rounded(values, dtype):
    with np.errstate(over="ignore"):
        return {"f32": lambda: values, "f16": lambda: values.astype(np.float16),
                "bf16": lambda: bf16_bits(values)}[dtype]()  # fmt: skip


# ---- comparing -------------------------------------------------------------


def compare(folder, plain_path, dtype):
    """The differences between what we decode and the plain model, as lines."""
    tensors, plain, modules = read_model(folder), read_model(plain_path), packed_modules(folder)
    problems, expected = [], set()
    for module, settings in modules.items():
        name = module + ".weight"
        ours = rounded(decode_module(tensors, module, *settings), dtype)
        theirs = plain.get(name)
        expected.add(name)
        if theirs is None:
            problems.append(f"{name}: missing")
        elif theirs.dtype != dtype.upper() or theirs.array.shape != ours.shape:
            problems.append(f"{name}: {theirs.dtype} {theirs.array.shape}, not {ours.shape}")
        elif ours.tobytes() != theirs.array.tobytes():
            count = int((ours.view(np.uint8) != theirs.array.view(np.uint8)).sum())
            problems.append(f"{name}: {count} bytes differ")
    kept = {n for n in tensors if n.rpartition(".")[0] not in modules or n.endswith(".bias")}
    for name in kept:
        expected.add(name)
        theirs = plain.get(name)
        if theirs is None or theirs.array.tobytes() != tensors[name].array.tobytes():
            problems.append(f"{name}: an unpacked tensor is missing or changed")
    problems += [f"{name}: unexpected" for name in set(plain) - expected]
    return len(modules), problems


def main(arguments):
    if len(arguments) not in (1, 2, 3) or (arguments[2:] or ["f32"])[0] not in ("bf16", "f16", "f32"):
        print(__doc__, file=sys.stderr)
        return 2
    if len(arguments) == 1:
        tensors = read_model(arguments[0])
        for module, (k, L, T, axis) in packed_modules(arguments[0]).items():
            shape = decode_module(tensors, module, k, L, T, axis).shape
            print(f"{module}: W {list(shape)}, k {k}, L {L}, T {T}, axis {axis}")
        return 0
    count, problems = compare(arguments[0], arguments[1], (arguments[2:] or ["bf16"])[0])
    for line in problems:
        print(line)
    print(f"{count} packed modules, {len(problems)} differences")
    return 1 if problems or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
