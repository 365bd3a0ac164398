# SPDX-License-Identifier: Apache-2.0
"""Write a fresh set of golden vectors: a second implementation of the encoder.

    golden_vectors.py FOLDER [SEED]

The files have the names and tensors of tests/golden/, other shapes and other
numbers.  Nothing here shares code with the library: states come from a plain
Viterbi search over numpy arrays, values and products from float64.
"""
import json
import sys

try:
    import numpy as np
except ImportError:
    print("skipped: no numpy")
    sys.exit(77)

DIVISOR = 147.800537109375
FORBIDDEN = np.float32(-1e30)


def integers(L):
    """y of every state."""
    z = np.arange(1 << L, dtype=np.uint64) * 34038481 + 76625530
    return sum((z >> shift) & 255 for shift in (0, 8, 16, 24)).astype(np.int64) - 510


def table(L):
    return (integers(L) / DIVISOR).astype(np.float32)


def emissions(x, value):
    """fma(2x, value, -(value^2)) rounded once; the extended precision holds the
    product exactly and leaves the last rounding to float32."""
    square = (value * value).astype(np.longdouble)
    product = (2 * x).astype(np.longdouble)[:, None] * value.astype(np.longdouble)[None, :]
    return (product - square).astype(np.float32)


def search(x, value, k, L, overlap=None):
    """Best paths for the blocks x [B, T]; with overlap [B], closed through it."""
    blocks, T = x.shape
    states = np.arange(1 << L)
    kept = 1 << (L - k)
    best = emissions(x[:, 0], value)
    if overlap is not None:
        best = np.where(states[None] >> k == overlap[:, None], best, FORBIDDEN)
    choices = np.zeros((T, blocks, 1 << L), np.uint8)
    for t in range(1, T):
        before = best[:, states >> k]
        for m in range(1, 1 << k):
            other = best[:, (states >> k) + m * kept]
            wins = other >= before
            choices[t][wins] = m
            before = np.where(wins, other, before)
        best = before + emissions(x[:, t], value)
    if overlap is not None:
        best = np.where(states[None] & (kept - 1) == overlap[:, None], best, FORBIDDEN)
    state = (1 << L) - 1 - np.argmax(best[:, ::-1], axis=1)  # the largest of equals
    path = np.zeros((blocks, T), np.int64)
    for t in reversed(range(T)):
        path[:, t] = state
        state = (state >> k) + choices[t][np.arange(blocks), state].astype(np.int64) * kept
    return path


def encode(source, k, L, T):
    value = table(L)
    rms = np.sqrt(np.mean(value.astype(np.float64) ** 2))
    scale = np.sqrt(np.mean(source.astype(np.float64) ** 2, axis=1)) / rms
    scale[~source.any(axis=1)] = 1
    scales = scale.astype(np.float32).astype(np.float16)
    scales[scales == 0] = np.float16(2.0**-24)
    x = (source / scales.astype(np.float32)[:, None]).reshape(-1, T)
    turned = search(np.roll(x, -(T // 2), axis=1), value, k, L)
    overlap = turned[:, T - T // 2] >> k  # the state at the original first position
    states = search(x, value, k, L, overlap)
    return states.reshape(source.shape), scales


def pack(states, k, T):
    """Symbols in reversed time, little-endian bits."""
    symbols = states.reshape(-1, T)[:, ::-1] & ((1 << k) - 1)
    bits = (symbols[:, :, None] >> np.arange(k)) & 1
    packed = np.packbits(bits.reshape(len(symbols), -1).astype(np.uint8), axis=1, bitorder="little")
    return packed.view("<u4").reshape(states.shape[0], -1).astype(np.uint32)


def bf16(x):
    """Round float32 to bfloat16, as bits."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(h):
    return (h.astype(np.uint32) << 16).view(np.float32)


def source_rows(rng, rows, cols):
    source = rng.standard_normal((rows, cols)).astype(np.float32) * np.float32(0.02)
    source[0] = 0
    source[1, cols // 3] = 5
    source[2] = rng.choice(np.float32([-0.25, 0.25]), cols)
    source[3] *= np.float32(1e-7)
    source[4] = 1  # constant: ties everywhere
    return source


def layer(rng, k, T, axis, rows, cols):
    """One packed layer and everything that follows from it."""
    L = 12
    source = source_rows(rng, rows, cols)
    states, scales = encode(source, k, L, T)
    scale = scales.astype(np.float32)[:, None]
    weight = table(L)[states] * scale
    x = bf16(rng.standard_normal((9, cols if axis else rows)))
    exact = integers(L)[states] / DIVISOR * scale.astype(np.float64)

    def product(w):
        w = w if axis == 0 else w.T
        return from_bf16(x).astype(np.float64) @ w.astype(np.float64)

    return {
        "source": source, "layer.weight": pack(states, k, T), "layer.scales": scales,
        "states": states.astype(np.uint16), "expand_bf16": bf16(weight), "expand_f32": weight,
        "x": x, "y_f64": product(exact), "y_bf16weights_f64": product(from_bf16(bf16(weight))),
    }


def gate_up(rng, k_gate, k_up, rows, cols):
    x = bf16(rng.standard_normal((4, cols)) * 0.25)
    tensors, sums = {"x": x}, {}
    for name, k in (("gate", k_gate), ("up", k_up)):
        symbols = rng.integers(0, 1 << 32, (rows, cols * k // 32), dtype=np.uint64)
        words = symbols.astype(np.uint32)
        scales = (rng.random(rows) * 0.05 + 0.01).astype(np.float16)
        weight = integers(12)[unpack(words, k, 12, 256, cols)] / DIVISOR * scales.astype(np.float64)[:, None]
        sums[name] = from_bf16(x).astype(np.float64) @ weight.T
        tensors |= {f"{name}.weight": words, f"{name}.scales": scales, f"{name}_f64": sums[name]}
    g, u = (from_bf16(bf16(sums[name].astype(np.float32))) for name in ("gate", "up"))
    sigmoid = from_bf16(bf16((1 / (1 + np.exp(-g.astype(np.float64)))).astype(np.float32)))
    tensors["mid_bf16"] = bf16(from_bf16(bf16(g * sigmoid)) * u)
    return tensors


def unpack(words, k, L, T, cols):
    """States of packed rows, a bit at a time."""
    bits = np.unpackbits(words.astype("<u4").view(np.uint8).reshape(-1, T * k // 8), axis=1, bitorder="little")
    start = (T - 1 - np.arange(T)) * k
    window = bits[:, (start[:, None] + np.arange(L)) % (T * k)].astype(np.int64)
    return (window << np.arange(L)).sum(axis=2).reshape(len(words), cols)


DTYPES = {"uint16": "U16", "uint32": "U32", "float16": "F16", "float32": "F32", "float64": "F64"}
BFLOAT16 = {"x", "expand_bf16", "mid_bf16"}  # held as uint16: numpy has no such type


def save(folder, name, tensors, **metadata):
    header, data = {"__metadata__": {key: str(value) for key, value in metadata.items()}}, b""
    for tensor, array in tensors.items():
        dtype = "BF16" if tensor in BFLOAT16 else DTYPES[array.dtype.name]
        end = len(data) + array.nbytes
        header[tensor] = {"dtype": dtype, "shape": array.shape, "data_offsets": [len(data), end]}
        data += np.ascontiguousarray(array).tobytes()
    text = json.dumps(header).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    with open(f"{folder}/{name}.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)


def main(folder, seed=1):
    print(f"golden vectors into {folder}, seed {seed}")
    rng = np.random.default_rng(seed)
    save(folder, "lut_1mad_L12", {"lut": table(12)})
    for k in (2, 3, 4):
        for T, rows, cols in ((256, 5, 256), (128, 6, 256), (64, 9, 192)):
            for axis in (0, 1):
                tensors = layer(rng, k, T, axis, rows + axis, cols)
                save(folder, f"encoded_k{k}_T{T}_axis{axis}", tensors, k=k, L=12, T=T, axis=axis)
    for k_gate, k_up in ((2, 4), (3, 3), (4, 3)):
        save(folder, f"gateup_kg{k_gate}_ku{k_up}", gate_up(rng, k_gate, k_up, 37, 768),
             k_gate=k_gate, k_up=k_up, L=12, T=256)
    words = rng.integers(0, 1 << 32, (21, 1536 * 3 // 32), dtype=np.uint64).astype(np.uint32)
    scales = rng.random(21).astype(np.float16)
    weight = table(12)[unpack(words, 3, 12, 256, 1536)] * scales.astype(np.float32)[:, None]
    save(folder, "interleaved_k3_T256_axis0",
         {"layer_rowmajor.weight": words, "layer.scales": scales, "expand_bf16": bf16(weight),
          "layer_interleaved.weight": words.reshape(21, 3, 48).transpose(1, 0, 2)},
         k=3, L=12, T=256, axis=0)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
