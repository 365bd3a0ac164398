# SPDX-License-Identifier: Apache-2.0
"""Help, usage errors, and what info, inspect, verify and dequantize say."""
import json
import shutil
import struct
import subprocess
import unittest

from support import COMMAND, Case, tcq, tree


def commands():
    lines = tcq("--help").out.split("Commands:\n")[1].split("\n\n")[0].splitlines()
    return [line.split()[0] for line in lines]


class Help(Case):
    def test_overview(self):
        for arguments in (["--help"], ["-h"], ["help"]):
            self.assertIn("Commands:", self.good(*arguments).out)
        self.assertRegex(self.good("--version").out, r"^tcq \d+\.\d+\.\d+\n$")

    def test_every_command(self):
        names = commands()
        for name in ("quantize", "merge", "inspect", "verify", "dequantize", "info"):
            self.assertIn(name, names)
        for name in names:
            result = self.good(name, "--help")
            self.assertTrue(result.out.startswith(f"Usage: tcq {name}"), result.out)
            self.assertEqual(result.err, "")
            self.assertEqual(self.good("help", name).out, result.out)
            for line in result.out.splitlines():
                self.assertLessEqual(len(line), 90, line)


class Usage(Case):
    def test_no_command(self):
        result = tcq()
        self.assertEqual((result.code, result.out), (2, ""))
        self.bad(2, "unknown command 'frobnicate'", "frobnicate")
        self.bad(2, "unknown command 'frobnicate'", "help", "frobnicate")

    def test_options(self):
        for arguments, message in [
            (["--nonsense"], "unknown option '--nonsense'"),
            (["-z"], "unknown option '-z'"),
            (["--bits"], "option '--bits' needs an argument"),
            (["-o"], "option '-o' needs an argument"),
            (["--bits", "7"], "--bits '7': expected a whole number from 1 to 6"),
            (["--bits", "3x"], "--bits '3x'"),
            (["--bits", "-3"], "--bits '-3'"),
            (["--L", "17"], "from 8 to 16"),
            (["--block", "96"], "--block '96': expected auto, 64, 128 or 256"),
            (["--axis", "2"], "--axis '2': expected auto, 0 or 1"),
            (["--scale", "mse"], "--scale 'mse': expected rms or fit"),
            (["--preset", "mlx"], "the only preset is mlx-bun"),
            (["--bits-for", "*.up_proj"], "expected GLOB=K"),
            (["--bits-for", "*.up_proj=9"], "from 1 to 6"),
            (["--shard-size", "lots"], "expected a size such as"),
            (["--threads", "0"], "--threads '0'"),
            (["--threads", "100000"], "--threads '100000'"),
            (["--cpu", "mmx"], "--cpu 'mmx'"),
            (["--output", ""], "must not be empty"),
            ([], "-o DIR is missing"),
            (["--preset", "mlx-bun", "--axis", "0", "--dry-run"], "leave them out"),
        ]:
            with self.subTest(arguments=arguments):
                self.bad(2, message, "quantize", "model", *arguments)

    def test_operands(self):
        self.bad(2, "too few arguments", "quantize", "-o", "x")
        self.bad(2, "unexpected argument 'b'", "inspect", "a", "b")
        self.bad(2, "unexpected argument 'a'", "info", "a")
        self.bad(2, "-o FILE is missing", "dequantize", "a")
        self.bad(2, "--dtype 'f8'", "dequantize", "a", "-o", "b", "--dtype", "f8")

    def test_patterns_that_match_nothing(self):
        model = self.model()
        for option in ("--include", "--exclude"):
            self.bad(2, f"{option} '*.nothing': matches no tensor", "quantize", model, "--dry-run",
                     option, "*.nothing")
        self.bad(2, "matches no tensor that is packed", "quantize", model, "--dry-run",
                 "--bits-for", "*.embed_tokens=4")


class Info(Case):
    def test_text_and_json(self):
        self.assertIn("version", self.good("info").out)
        info = self.good("info", "--json", "--threads", 3, "--cpu", "scalar").json()
        self.assertEqual(info["threads"], 3)
        self.assertEqual(info["cpu_features_used"], [])
        self.assertEqual({tuple(isa) for isa in info["kernels"].values()}, {("scalar",)})
        self.assertIn("encode", info["kernels"])

    def test_output_that_cannot_be_written(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([COMMAND, "info"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("standard output", done.stderr)


class Inspect(Case):
    def test_packed(self):
        packed = self.pack(self.model(2, 128, 256), "--bits-for", "*.down_proj=4")
        report = self.good("inspect", packed, "--json").json()
        tensors = {t["name"]: t for t in report["tensors"]}
        down = tensors["model.layers.1.mlp.down_proj.weight"]
        self.assertEqual((down["type"], down["k"], down["L"], down["block"], down["axis"]),
                         ("trellis", 4, 8, 256, 1))
        self.assertEqual(down["shape"], [128, 256])
        self.assertAlmostEqual(down["bits_per_weight"], 4 + 16 / 256)
        self.assertEqual(tensors["model.norm.weight"]["type"], "BF16")
        self.assertEqual(report["packed_tensors"], 14)
        self.assertNotIn("model.layers.0.mlp.down_proj.scales", tensors)
        text = self.good("inspect", packed).out
        self.assertIn("model.layers.*.mlp.down_proj.weight", text)
        self.assertIn("bits per weight", text)
        self.assertIn("model.layers.1.mlp.down_proj.weight", self.good("inspect", packed, "--all").out)

    def test_plain(self):
        model = self.model()
        for path in (model, model / "model.safetensors"):
            report = self.good("inspect", path, "--json").json()
            self.assertEqual(report["packed_tensors"], 0)
            self.assertEqual(report["bits_per_weight"], 16)


class Verify(Case):
    def test_fine(self):
        model = self.model()
        packed = self.pack(model)
        self.assertIn("0 mismatches", self.good("verify", packed).out)
        report = self.good("verify", packed, "--against", model, "--json").json()
        errors = [t for t in report["tensors"] if t["packed"]]
        self.assertEqual(len(errors), 14)
        for t in errors:  # normal weights, small tensors: within a tenth
            self.assertLess(abs(t["relative_mse"] / t["expected"] - 1), 0.1, t)
        self.assertIn("relative MSE", self.good("verify", packed, "--against", model).out)
        self.assertEqual(self.good("verify", packed, "--against", model, "--quiet").out, "")

    def test_other_weights(self):
        packed = self.pack(self.model())
        other = self.model(2, 128, 256, 100, "other", name="other")
        result = self.bad(3, "relative error", "verify", packed, "--against", other)
        self.assertRegex(result.err, r"model.norm.weight': \d+ of 128 elements differ")

    def test_other_shapes(self):
        packed = self.pack(self.model())
        result = self.bad(3, "shape 100x128, in the source 90x128", "verify", packed, "--against",
                          self.model(3, 128, 256, 90, name="other"))
        self.assertIn("model.layers.2.mlp.up_proj.weight': in the source, but not here", result.err)

    def test_broken(self):
        packed = self.pack(self.model())
        weights = packed / "model.safetensors"
        data = bytearray(weights.read_bytes())
        length, = struct.unpack_from("<Q", data)
        begin, _ = json.loads(data[8:8 + length])[
            "model.layers.0.mlp.gate_proj.scales"]["data_offsets"]
        struct.pack_into("<H", data, 8 + length + begin, 0x7e00)
        weights.write_bytes(data)
        self.bad(3, "model.layers.0.mlp.gate_proj", "verify", packed)
        self.bad(1, "model.layers.0.mlp.gate_proj", "inspect", packed)
        self.bad(1, "model.layers.0.mlp.gate_proj", "dequantize", packed, "-o", self.at / "plain")
        self.assertFalse((self.at / "plain").exists())

    def test_unreadable(self):
        self.bad(1, "No such file", "verify", self.at / "missing")


class Dequantize(Case):
    def test_folder(self):
        model = self.model()
        packed = self.pack(model, "--axis", "0", "--block", "64")
        plain = self.at / "plain"
        self.good("dequantize", packed, "-o", plain)
        config = json.loads((plain / "config.json").read_text())
        self.assertEqual(config, json.loads((model / "config.json").read_text()))
        self.assertEqual(tree(plain)["README.md"], tree(model)["README.md"])
        # bf16 of the decoded weights, so the packed model agrees to the last bit
        self.good("verify", plain, "--against", packed)
        self.bad(1, "exists already", "dequantize", packed, "-o", plain)
        self.good("dequantize", packed, "-o", plain, "--force", "--shard-size", "100KiB")
        self.assertGreater(len(list(plain.glob("model-*-of-*.safetensors"))), 2)
        self.good("verify", plain, "--against", packed)

    def test_file_and_types(self):
        packed = self.pack(self.model())
        for dtype in ("bf16", "f16", "f32"):
            plain = self.at / f"{dtype}.safetensors"
            self.good("dequantize", packed, "-o", plain, "--dtype", dtype)
            self.good("verify", plain, "--against", packed)
            types = {t["type"] for t in self.good("inspect", plain, "--json").json()["tensors"]
                     if "_proj" in t["name"]}
            self.assertEqual(types, {dtype.upper()})
        self.bad(1, "exists already", "dequantize", packed, "-o", self.at / "f32.safetensors")

    def test_threads(self):
        packed = self.pack(self.model(), "--axis", "0")
        for threads in (1, 3):
            self.good("dequantize", packed, "-o", self.at / str(threads), "--threads", threads)
        self.assertEqual(tree(self.at / "1"), tree(self.at / "3"))
        shutil.rmtree(self.at / "1")


if __name__ == "__main__":
    unittest.main(verbosity=1)
