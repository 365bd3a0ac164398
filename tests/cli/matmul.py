# SPDX-License-Identifier: Apache-2.0
"""tcq matmul against numpy in float64, from weights decoded here."""
import json
import os
import pathlib
import struct
import sys
import unittest

from support import Case

try:
    import numpy as np
except ImportError:
    print("skipped: no numpy")
    sys.exit(77)

DIVISOR = 147.800537109375


def read_file(path):
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    types = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "U32": "<u4"}
    tensors = {}
    for name, entry in json.loads(raw[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            array = np.frombuffer(raw[begin:end], types[entry["dtype"]])
            tensors[name] = array.reshape(entry["shape"])
    return tensors


def write_file(path, name, array, dtype):
    header = json.dumps({name: {"dtype": dtype, "shape": array.shape,
                                "data_offsets": [0, array.nbytes]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + array.tobytes())


def bf16(x):
    """Bits of x rounded to nearest even."""
    bits = x.astype("<f4").view("<u4").astype(np.uint64)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype("<u2")


def from_bf16(bits):
    return (bits.astype("<u4") << 16).view("<f4")


def weights(words, scales, k, L, T, axis):
    """W [out, in] in float64."""
    rows, count = words.shape[0], T * k
    blocks = words.reshape(rows, -1, count // 32)
    bits = (blocks[..., None] >> np.arange(32, dtype="<u4") & 1).reshape(rows, blocks.shape[1], count)
    start = (T - 1 - np.arange(T)) * k
    at = (start[:, None] + np.arange(L)[None, :]) % count
    states = (bits[..., at].astype(np.uint64) << np.arange(L, dtype=np.uint64)).sum(-1)
    z = (states * 34038481 + 76625530) & 0xffffffff
    y = sum((z >> shift) & 255 for shift in (0, 8, 16, 24)).astype(np.int64) - 510
    stored = y.reshape(rows, -1) / DIVISOR * scales.astype(np.float64)[:, None]
    return stored if axis else stored.T


class Layers(Case):
    """A packed folder, self.packed, and its decoded layers."""

    def setUp(self):
        super().setUp()
        self.random = np.random.default_rng(5)

    def open(self, packed, wanted=lambda name: True):
        self.packed = pathlib.Path(packed)
        config = json.loads((self.packed / "config.json").read_text())["quantization"]
        tensors = {}
        for path in self.packed.glob("*.safetensors"):
            tensors.update(read_file(path))
        self.layers = {}
        for name, how in config.items():
            if isinstance(how, dict) and how.get("mode") == "trellis" and wanted(name):
                trellis = how["trellis"]
                self.layers[name] = weights(tensors[name + ".weight"], tensors[name + ".scales"],
                                            how["bits"], trellis["L"], how["group_size"],
                                            trellis["axis"])
        self.assertTrue(self.layers)

    def vectors(self, m, size):
        x = bf16(self.random.standard_normal((m, size)))
        write_file(self.at / "x.safetensors", "x", x, "BF16")
        return from_bf16(x).astype(np.float64)

    def product(self, module, *options):
        out = self.at / "y.safetensors"
        self.good("matmul", self.packed, module, "--x", self.at / "x.safetensors", "-o", out,
                  "--force", *options)
        return read_file(out)["y"]

    def close(self, y, W, x):
        """Sums in float32; beyond 32 vectors the weights may be rounded to bf16."""
        relative = (W.shape[1] + 3) * 2.0 ** -24 + (2.0 ** -9 if len(x) > 32 else 0)
        bound = relative * (np.abs(x) @ np.abs(W).T)
        self.assertTrue((np.abs(y - x @ W.T) <= bound).all(), np.abs(y - x @ W.T).max())

    def check_modules(self, sizes):
        for module, W in self.layers.items():
            for m in sizes:
                x = self.vectors(m, W.shape[1])
                self.close(self.product(module), W, x)
                self.close(self.product(module, "--cpu", "scalar", "--threads", 1), W, x)


class Matmul(Layers):
    def setUp(self):
        super().setUp()
        self.open(self.pack(self.model()))

    def test_every_module(self):
        self.check_modules([5])

    def test_numerics_and_types(self):
        module, W = next(iter(self.layers.items()))
        x = self.vectors(4, W.shape[1])
        self.close(self.product(module, "--numerics", "reference"), W, x)
        rounded = from_bf16(self.product(module, "--type", "bf16"))
        self.assertTrue((np.abs(rounded - x @ W.T) <= 2 ** -7 * np.abs(x @ W.T) + 1e-4).all())
        int8 = self.product(module, "--activations", "int8")
        error = np.abs(int8 - x @ W.T).max() / np.abs(x @ W.T).max()
        self.assertGreater(error, 1e-5)
        self.assertLess(error, 0.05)

    def test_gate_and_up(self):
        gate = next(name for name in self.layers if name.endswith("gate_proj"))
        up = gate.replace("gate_proj", "up_proj")
        x = self.vectors(3, self.layers[gate].shape[1])
        g, u = x @ self.layers[gate].T, x @ self.layers[up].T
        for tail in ("fused", "split"):
            mid = self.product(gate, "--up", up, "--tail", tail)
            self.assertTrue(np.allclose(mid, g / (1 + np.exp(-g)) * u, rtol=1e-4, atol=1e-6))

    def test_refusals(self):
        module, W = next(iter(self.layers.items()))
        self.vectors(2, W.shape[1])
        x, y = self.at / "x.safetensors", self.at / "y.safetensors"
        self.bad(2, "--x FILE is missing", "matmul", self.packed, module)
        self.bad(2, "-o FILE is missing", "matmul", self.packed, module, "--x", x)
        self.bad(1, "no module 'nothing'", "matmul", self.packed, "nothing", "--x", x, "-o", y)
        self.bad(1, "is not packed", "matmul", self.packed, "model.norm", "--x", x, "-o", y)
        self.bad(1, "no tensor 'z'", "matmul", self.packed, module, "--x", x, "-o", y,
                 "--tensor", "z")
        self.bad(2, "--op 'magic' is unknown", "matmul", self.packed, module, "--x", x, "-o", y,
                 "--op", "magic")
        self.bad(1, "needs reference numerics", "matmul", self.packed, module, "--x", x, "-o", y,
                 "--op", "tiled")
        self.vectors(2, W.shape[1] + 1)
        self.bad(1, f"expected [m, {W.shape[1]}]", "matmul", self.packed, module, "--x", x, "-o", y)
        self.assertFalse(y.exists())


class RealModel(Layers):
    """TCQ_PACKED_DIRS: folders, separated by colons, whose first layer and last are checked."""

    def test_layers(self):
        folders = os.environ.get("TCQ_PACKED_DIRS")
        if not folders:
            self.skipTest("TCQ_PACKED_DIRS is not set")
        for folder in folders.split(":"):
            config = json.loads((pathlib.Path(folder) / "config.json").read_text())
            last = config["num_hidden_layers"] - 1
            self.open(folder, lambda name: ".layers.0." in name or f".layers.{last}." in name)
            self.check_modules([1, 8, 33])


class Bench(Case):
    def test_rows_and_limits(self):
        out = self.at / "rows.json"
        shown = self.good("bench", "--shape", "512x256", "--bits", 3, "--m", "1,40", "--memory",
                          "16MiB", "--json", out).out
        self.assertIn("limits (", shown)
        report = json.loads(out.read_text())
        for key in ("memory_gb_per_s", "fma_gmac_per_s", "int8_gmac_per_s"):
            self.assertGreater(report["limits"][key], 0)
        self.assertEqual(len(report["rows"]), 3)  # int8 activations up to 32 vectors only
        for row in report["rows"]:
            for key in ("op", "isa", "axis", "k", "L", "T", "rows", "cols", "m", "threads",
                        "activations", "us", "gweights_per_s", "gmac_per_s", "share_of_fma",
                        "share_of_bandwidth", "ratio_to_scalar", "ratio_to_bf16"):
                self.assertIn(key, row)

    def test_operations(self):
        for op, shape in [("reduce", "256x256"), ("scatter", "256x512"), ("split-k", "256x512"),
                          ("tiled", "256x256"), ("gate-up", "256x256"), ("expand", "256x256")]:
            shown = self.good("bench", "--op", op, "--shape", shape, "--bits", 3, "--m", 4,
                              "--activations", "float", "--no-ratios", "--memory", "16MiB").out
            self.assertEqual(len(shown.splitlines()), 3, shown)

    def test_shape_file_and_refusals(self):
        shapes = self.at / "shapes.txt"
        shapes.write_text("# two layers\n1 256 512 # down\n\n2 512 256\n")
        shown = self.good("bench", "--shape", shapes, "--bits", 3, "--activations", "float",
                          "--no-ratios", "--memory", "16MiB").out
        self.assertEqual(len(shown.splitlines()), 4, shown)
        shapes.write_text("1 256\n")
        self.bad(2, "shapes.txt:1: expected 'M OUT IN'", "bench", "--shape", shapes)
        self.bad(1, "nowhere.txt", "bench", "--shape", self.at / "nowhere.txt")
        self.bad(2, "--op 'magic' is unknown", "bench", "--op", "magic")
        self.bad(1, "nothing was measured", "bench", "--shape", "100x100", "--bits", 3,
                 "--memory", "16MiB")
        self.bad(2, "expected 16MiB to 64GiB", "bench", "--memory", "1KiB")


if __name__ == "__main__":
    unittest.main()
