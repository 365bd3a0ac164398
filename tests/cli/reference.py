# SPDX-License-Identifier: Apache-2.0
"""The independent decoder in tests/python reads what quantize wrote, and gives
the bits that dequantize gives."""
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(os.environ["TCQ_SOURCE_DIR"]) / "tests" / "python"))
import tcq_reference  # noqa: E402  (leaves with 77 where a package is missing)

from support import Case  # noqa: E402


class Reference(Case):
    def same_bits(self, source, *arguments, dtype="bf16"):
        packed, plain = self.at / "packed", self.at / "plain"
        self.good("quantize", source, "-o", packed, "--force", *arguments)
        self.good("dequantize", packed, "-o", plain, "--dtype", dtype, "--force")
        count, problems = tcq_reference.compare(packed, plain, dtype)
        self.assertEqual(problems, [])
        self.assertGreater(count, 0)

    def test_k_and_axis(self):
        source = self.model(1, 128, 192)
        for k in range(1, 7):
            for axis in ("0", "1"):
                self.same_bits(source, "--bits", k, "--axis", axis, "--L", 8)

    def test_trellises(self):
        source = self.model(1, 64, 128)
        for L in (8, 9, 12, 13):
            self.same_bits(source, "--L", L, "--bits", 2)

    def test_types(self):
        source = self.model(1, 128, 256)
        for dtype in ("bf16", "f16", "f32"):
            self.same_bits(source, "--L", 8, "--block", "64", dtype=dtype)

    def test_interleaved_and_shards(self):
        source = self.model(1, 512, 256)
        self.same_bits(source, "--preset", "mlx-bun", "--interleave", "--shard-size", "64KiB",
                       "--exclude", "*.gate_proj")


if __name__ == "__main__":
    unittest.main(verbosity=1)
