# SPDX-License-Identifier: Apache-2.0
"""What the command says to somebody who meets it for the first time."""
import struct
import subprocess
import unittest

from support import SYNTH, Case, tree, write_tensors

UP = "model.layers.0.mlp.up_proj"


class Sources(Case):
    def test_no_model(self):
        for name, content, message in (
                ("Makefile", b"all:\n\tcc -o x x.c  # and so on\n", "but text"),
                ("m.gguf", b"GG", "but text"),
                ("m.gguf", b"G\0", "too short for either")):
            (self.at / name).write_bytes(content)
            self.bad(1, "this is neither safetensors nor GGUF", "quantize", self.at / name,
                     "-o", self.at / "out")
            self.bad(1, message, "inspect", self.at / name)

    def test_packed_file(self):
        """A packed file is read by the config.json beside it, or not at all."""
        model = self.model(1)
        packed = self.pack(model)
        self.good("dequantize", packed, "-o", self.at / "folder.safetensors")
        file = packed / "model.safetensors"
        self.good("dequantize", file, "-o", self.at / "file.safetensors")
        self.assertEqual((self.at / "file.safetensors").read_bytes(),
                         (self.at / "folder.safetensors").read_bytes())
        self.good("verify", file, "--against", model)
        self.bad(1, "packed already", "quantize", file, "-o", self.at / "again")
        (packed / "config.json").unlink()
        self.bad(1, "looks packed, and no config.json", "dequantize", file, "-o",
                 self.at / "none.safetensors")
        self.assertFalse((self.at / "none.safetensors").exists())

    def test_file_of_several(self):
        packed = self.pack(self.model(2), "--shard-size", "100KiB")
        files = sorted(packed.glob("*.safetensors"))
        self.assertGreater(len(files), 1)
        self.good("dequantize", files[1], "-o", self.at / "some.safetensors")

    def test_parts(self):
        part = self.pack(self.model(), "--shard", "1/2")
        self.bad(1, "part 1 of 2 of an output: 'tcq merge' joins them", "inspect", part)
        missing = self.at / "missing"
        result = self.bad(1, "no such folder", "merge", missing, "-o", self.at / "out")
        self.assertEqual(result.err.count(str(missing)), 1)

    def test_not_packed(self):
        self.bad(1, "not packed: nothing to verify", "verify", self.model())


class Quantize(Case):
    def test_vectors_stay(self):
        zeros = bytes(4 * 64)
        model = write_tensors(self.at / "model.safetensors", {
            UP + ".weight": ("F32", [1, 64], struct.pack("<64f", *range(64))),
            "model.layers.0.input_layernorm.weight": ("F32", [64], zeros),
            "model.layers.0.self_attn.q_proj.bias": ("F32", [64], zeros)})
        for arguments in (["--include", "*.layers.0.*"], ["--include", "*"]):
            plan = self.good("quantize", model, "--dry-run", "--json", *arguments).json()
            self.assertEqual([(t["action"], t["nbytes"], t.get("reason")) for t in plan["tensors"]
                              if len(t["shape"]) == 1], [("keep", 256, None)] * 2)
        result = self.good("quantize", model, "-o", self.at / "out", "--include", "*", "--L", 8)
        self.assertNotIn("not packed", result.out)

    def test_sizes(self):
        model = self.model(1)
        size = sum(t["nbytes"] for t in self.good("inspect", model, "--json").json()["tensors"])
        self.assertEqual(self.good("quantize", model, "--dry-run", "--json").json()["source_nbytes"],
                         size)
        result = self.good("quantize", model, "-o", self.at / "out", "--L", 8)
        self.assertRegex(result.out, r"in all \(source: [0-9.]+ [kKM]i?B\)")

    def test_nothing_to_pack(self):
        model = self.model(1, 100, 100)
        for arguments, message in ((["--preset", "mlx-bun"], "(--preset mlx-bun has blocks of 256)"),
                                   ([], "neither side is a multiple of 64"),
                                   (["--include", "*norm*"], "--include and --exclude leave")):
            one = self.bad(1, message, "quantize", model, "--dry-run", *arguments)
            two = self.bad(1, message, "quantize", model, "-o", self.at / "out", *arguments)
            self.assertEqual(one.err, two.err)


class Outliers(Case):
    def test_clipped(self):
        """One weight far beyond the rest: cut off and said, unless --scale fit keeps it."""
        values = [0.02 * ((37 * i) % 64 - 31.5) / 32 for i in range(4 * 64)]
        calm = write_tensors(self.at / "calm.safetensors",
                             {UP + ".weight": ("F32", [4, 64], struct.pack("<256f", *values))})
        values[70] = 0.1
        wild = write_tensors(self.at / "wild.safetensors",
                             {UP + ".weight": ("F32", [4, 64], struct.pack("<256f", *values))})
        for axis in ("1", "0"):
            if axis == "0":  # the coded side is the 64: transposed
                columns = [values[64 * (i % 4) + i // 4] for i in range(256)]
                wild = write_tensors(self.at / "wild.safetensors", {
                    UP + ".weight": ("F32", [64, 4], struct.pack("<256f", *columns))})
            arguments = ["quantize", wild, "-o", self.at / "out", "--L", 10, "--force", "--axis",
                         axis]
            for arguments in (arguments, ["verify", self.at / "out", "--against", wild]):
                result = self.good(*arguments)
                self.assertIn("outliers are cut off in 1 tensor, most in", result.err)
                self.assertIn("0.391 % of its weights", result.err)  # 1 of 256
            one = self.good(*arguments, "--json").json()["tensors"][0]
            self.assertEqual(one["clipped"], 1)
            self.assertGreater(one["clipped_energy"], 0.03)
            self.assertGreater(one["largest_error_in_rms"], 2)
        result = self.good("quantize", calm, "-o", self.at / "calm", "--L", 10)
        self.assertNotIn("cut off", result.err)
        fit = ["quantize", wild, "-o", self.at / "out", "--L", 10, "--force", "--scale", "fit"]
        self.assertNotIn("cut off", self.good(*fit, "--axis", 0).err)


class Others(Case):
    def test_lists(self):
        self.bad(2, "expected smollm2-135m, llama-3.2-1b", "synth", "--shape", "foo", "-o", "x")
        self.bad(2, "or encode", "bench", "--op", "foo")
        self.bad(2, "expected f32, f16 or bf16", "matmul", "m", "x", "--type", "foo")

    def test_matmul(self):
        packed, y = self.pack(self.model(1)), self.at / "y.safetensors"
        x = write_tensors(self.at / "x.safetensors", {"x": ("F32", [1, 128], bytes(512))})
        result = self.good("matmul", packed, UP, "--x", x, "-o", y)
        self.assertEqual(result.err, "")
        self.assertTrue(result.out.startswith(f"{y}: 1 x 256 by "), result.out)
        self.bad(1, "exists already (--force replaces it)", "matmul", packed, UP, "--x", x, "-o", y)

    def test_no_prompt(self):
        self.bad(2, "no prompt", "run", self.model(1), stdin=subprocess.DEVNULL)

    def test_synth_model(self):
        done = subprocess.run([SYNTH, "--help"], cwd=self.at, capture_output=True)
        self.assertEqual((done.returncode, tree(self.at)), (2, {}))
        self.assertFalse((self.at / "--help").exists())


if __name__ == "__main__":
    unittest.main(verbosity=1)
