# SPDX-License-Identifier: Apache-2.0
"""Every type that is read, against the gguf package, bit for bit: random
blocks (any scale, NaN and infinities too) and blocks of the package's own
quantizer, in matrices, vectors and tensors of four dimensions."""

import os
import sys
import tempfile

from gguf_support import TYPES, floats, gguf, np, quantization_type, random_bytes, same_bits, start, typed


def add(writer, expected, name, type_name, raw, shape):
    kind = quantization_type(type_name)
    row = shape[-1] // gguf.GGML_QUANT_SIZES[kind][0] * gguf.GGML_QUANT_SIZES[kind][1]
    rows = raw.reshape(-1, row)
    with np.errstate(all="ignore"):
        if type_name in ("F32", "F16"):
            values = typed(type_name, rows).astype(np.float32)
        else:
            values = gguf.quants.dequantize(rows, kind)
    expected[name] = values.reshape(shape)
    writer.add_tensor(name, typed(type_name, raw.reshape(*shape[:-1], row)), raw_dtype=kind)


def write(path, rng):
    writer = gguf.GGUFWriter(path, "llama")
    expected = {}
    shapes = {"matrix": (37, 512), "vector": (256,), "four": (2, 3, 5, 256)}
    for type_name in TYPES:
        for label, shape in shapes.items():
            rows = int(np.prod(shape[:-1]))
            add(writer, expected, f"{type_name}.{label}", type_name,
                random_bytes(rng, type_name, rows, shape[-1]), shape)
        weights = rng.standard_normal((16, 512), dtype=np.float32) * np.float32(0.02)
        weights[3] = 0
        try:
            raw = gguf.quants.quantize(weights, quantization_type(type_name)).view(np.uint8)
        except NotImplementedError:  # the package reads the K types and does not make them
            continue
        add(writer, expected, f"{type_name}.real", type_name, raw, weights.shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected


def main():
    program = sys.argv[1]
    rng = start("gguf_dequantize", 7)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "all.gguf")
        expected = write(path, rng)
        actual = floats(program, "raw", path)
    assert list(actual) == list(expected), "names or their order"
    wrong = [name for name in expected if not same_bits(actual[name], expected[name])]
    assert not wrong, f"differ: {wrong}"
    flipped = expected["Q6_K.real" if "Q6_K.real" in expected else "Q8_0.real"].copy()
    flipped[0, 0] = np.nextafter(flipped[0, 0], np.float32(9), dtype=np.float32)
    assert not any(same_bits(flipped, array) for array in actual.values()), "the comparison is blind"
    total = sum(array.size for array in expected.values())
    print(f"{len(expected)} tensors of {len(TYPES)} types, {total} values, all equal to the bit")


main()
