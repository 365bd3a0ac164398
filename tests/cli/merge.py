# SPDX-License-Identifier: Apache-2.0
"""quantize --shard I/N on several machines, joined by merge."""
import json
import shutil
import unittest

from support import Case, tree


class Merge(Case):
    def setUp(self):
        super().setUp()
        self.source = self.model(2, 128, 256)

    def parts(self, count, *arguments):
        return [self.pack(self.source, "--shard", f"{i}/{count}", *arguments, name=f"part{i}")
                for i in range(1, count + 1)]

    def test_same_bytes(self):
        for count, arguments in [(1, []), (3, ["--axis", 0]), (4, ["--shard-size", "50KiB"]),
                                 (25, ["--bits", 2])]:
            with self.subTest(count=count):
                whole = self.pack(self.source, *arguments, "--force")
                parts = self.parts(count, *arguments, "--force")
                self.good("merge", *reversed(parts), "-o", self.at / "joined", "--force")
                self.assertEqual(tree(self.at / "joined"), tree(whole))

    def test_a_part_is_no_model(self):
        part = self.parts(2)[0]
        self.assertEqual(sorted(tree(part)), ["README.md", "part-1-of-2.safetensors",
                                              "tcq-part.json", "tokenizer_config.json"])
        self.bad(1, "tcq: ", "inspect", part)

    def test_work_is_shared_evenly(self):
        weights = [self.good("quantize", self.source, "--shard", f"{i}/3", "--dry-run",
                             "--json").json()["packed_weights"] for i in (1, 2, 3)]
        self.assertEqual(sum(weights), 294912)
        self.assertLess(max(weights), 1.1 * min(weights))

    def test_refusals(self):
        one, two = self.parts(2)
        out = self.at / "out"
        self.bad(1, "exists already", "merge", one, two, "-o", self.pack(self.source))
        self.bad(1, "part 2 of 2 is missing", "merge", one, "-o", out)
        self.bad(1, "both are part 1", "merge", one, one, "-o", out)
        self.bad(1, "no part of an output", "merge", self.source, "-o", out)
        other = self.pack(self.source, "--shard", "2/2", "--bits", 4, name="other")
        self.bad(1, "parts of different outputs: their options differ", "merge", one, other,
                 "-o", out)
        for tensors in ([["a"]], [["a", "F33", [1], 0]], [["a", "F32", [-1], 0]],
                        [["a", "F32", [1], 5]], "x"):
            for part in (one, two):
                text = json.loads((part / "tcq-part.json").read_text())
                text["tensors"] = tensors
                (part / "tcq-part.json").write_text(json.dumps(text))
            self.bad(1, "cannot be read", "merge", one, two, "-o", out)
        self.bad(2, "--shard '3/2'", "quantize", self.source, "-o", out, "--shard", "3/2")
        self.bad(2, "--shard '1/2x'", "quantize", self.source, "-o", out, "--shard", "1/2x")
        self.assertFalse(out.exists())

    def test_tensor_missing_from_the_parts(self):
        one, two = self.parts(2)
        # the weights of part 1 again, under the name of part 2
        shutil.copy(one / "part-1-of-2.safetensors", two / "part-2-of-2.safetensors")
        self.bad(1, "is in", "merge", one, two, "-o", self.at / "out")
        self.assertFalse((self.at / "out").exists() or (self.at / "out.partial").exists())


if __name__ == "__main__":
    unittest.main(verbosity=1)
