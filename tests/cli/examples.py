# SPDX-License-Identifier: Apache-2.0
"""The programs in examples/ do what they say."""
import os
import re
import subprocess
import unittest

from support import Case

EXAMPLES = os.environ["TCQ_EXAMPLES"]


def example(name, *arguments):
    return subprocess.run([os.path.join(EXAMPLES, name), *map(str, arguments)],
                          capture_output=True, text=True)


class Examples(Case):
    def test_pack_matrix(self):
        done = example("pack_matrix")
        self.assertEqual(done.returncode, 0, done.stderr)
        bits, error = re.search(r"([\d.]+) bits each, relative error ([\d.]+)", done.stdout).groups()
        self.assertEqual(bits, "3.031")
        self.assertLess(float(error), 0.022)

    def test_decode_row(self):
        packed = self.pack(self.model(1, 128, 128))
        module = "model.layers.0.mlp.up_proj"
        done = example("decode_row", packed, module, 5)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.startswith("row 5 of 128 x 128:"), done.stdout)
        done = example("decode_row", packed, module, 128)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        done = example("decode_row", packed, "model.norm", 0)
        self.assertEqual(done.returncode, 1)
        self.assertIn("model.norm", done.stderr)
        self.assertEqual(example("decode_row").returncode, 2)


if __name__ == "__main__":
    unittest.main(verbosity=1)
