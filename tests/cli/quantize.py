# SPDX-License-Identifier: Apache-2.0
"""tcq quantize: plans, refusals, and what it writes."""
import json
import os
import subprocess
import sys
import unittest

from support import COMMAND, Case, tcq, tree

BLOCK_PROJECTIONS = ["mlp.down_proj", "mlp.gate_proj", "mlp.up_proj", "self_attn.k_proj",
                     "self_attn.o_proj", "self_attn.q_proj", "self_attn.v_proj"]


class Plan(Case):
    def plan(self, model, *arguments):
        report = self.good("quantize", model, "--dry-run", "--json", *arguments).json()
        return {t["name"].removesuffix(".weight"): t for t in report["tensors"]}

    def packed(self, plan):
        return sorted(name for name, t in plan.items() if t["action"] == "pack")

    def test_default(self):
        plan = self.plan(self.model(1, 128, 320))
        self.assertEqual(self.packed(plan), [f"model.layers.0.{p}" for p in BLOCK_PROJECTIONS])
        up, down = plan["model.layers.0.mlp.up_proj"], plan["model.layers.0.mlp.down_proj"]
        self.assertEqual((up["k"], up["L"], up["block"], up["axis"]), (3, 12, 128, 1))
        self.assertEqual((down["block"], down["axis"]), (64, 1))  # 320 = 5 * 64

    def test_axis_0_where_only_it_fits(self):
        plan = self.plan(self.model(1, 128, 100))
        down = plan["model.layers.0.mlp.down_proj"]  # [128, 100]: only the output divides
        self.assertEqual((down["axis"], down["block"]), (0, 128))

    def test_nothing_fits(self):
        model = self.model(1, 100, 256)
        plan = self.plan(model)
        self.assertEqual(plan["model.layers.0.self_attn.q_proj"]["reason"],
                         "neither side is a multiple of 64")
        self.assertEqual(plan["model.layers.0.mlp.up_proj"]["axis"], 0)
        packed = self.pack(model)
        self.good("verify", packed, "--against", model)
        listing = self.good("quantize", model, "--dry-run").out
        self.assertIn("neither side is a multiple of 64", listing)
        model = self.model(1, 100, 100, name="small")
        self.bad(1, "nothing to pack", "quantize", model, "-o", self.at / "out")

    def test_patterns(self):
        model = self.model(2)
        plan = self.plan(model, "--include", "*.q_proj", "--include", "model.embed_tokens.weight",
                         "--exclude", "*.1.*", "--bits-for", "*=2", "--bits-for", "*.q_proj=5")
        self.assertEqual(self.packed(plan), ["model.embed_tokens", "model.layers.0.self_attn.q_proj"])
        self.assertEqual(plan["model.embed_tokens"]["k"], 2)
        self.assertEqual(plan["model.layers.0.self_attn.q_proj"]["k"], 5)

    def test_preset(self):
        plan = self.plan(self.model(1, 256, 512), "--preset", "mlx-bun", "--interleave")
        self.assertEqual(self.packed(plan), [f"model.layers.0.mlp.{p}_proj"
                                             for p in ("down", "gate", "up")])
        down = plan["model.layers.0.mlp.down_proj"]
        self.assertEqual((down["axis"], down["block"], down["interleaved"]), (0, 256, False))
        plan = self.plan(self.model(1, 512, 256), "--preset", "mlx-bun", "--interleave")
        self.assertTrue(plan["model.layers.0.mlp.down_proj"]["interleaved"])
        self.assertEqual(plan["model.layers.0.mlp.up_proj"]["axis"], 1)

    def test_dry_run_writes_nothing(self):
        model = self.model()
        before = tree(self.at)
        self.assertIn("bits per weight", self.good("quantize", model, "--dry-run", "-o",
                                                   self.at / "out").out)
        self.assertEqual(tree(self.at), before)


class Output(Case):
    def test_folder(self):
        model = self.model(1, 128, 128)
        (model / "1_Pooling").mkdir()
        (model / "1_Pooling" / "config.json").write_text("{}")
        (model / "pytorch_model.bin").write_text("weights")
        (model / ".cache").write_text("hidden")
        packed = self.pack(model)
        self.assertEqual(sorted(tree(packed)), ["1_Pooling/config.json", "README.md", "config.json",
                                                "model.safetensors", "tokenizer_config.json"])
        config = json.loads((packed / "config.json").read_text())
        source = json.loads((model / "config.json").read_text())
        self.assertEqual({key: config[key] for key in source}, source)
        self.assertEqual(config["quantization"], config["quantization_config"])
        self.assertEqual(config["quantization"]["model.layers.0.mlp.up_proj"],
                         {"bits": 3, "group_size": 128, "mode": "trellis",
                          "trellis": {"L": 8, "code": "1mad", "axis": 1}})
        self.assertIs(config["quantization"]["model.embed_tokens"], False)
        self.bad(1, "packed already", "quantize", packed, "-o", self.at / "again")

    def test_single_file_source(self):
        model = self.model()
        packed = self.pack(model / "model.safetensors")
        self.assertIn("tokenizer_config.json", tree(packed))
        self.assertNotIn("README.md", tree(packed))
        self.good("verify", packed, "--against", model)

    def test_same_bytes(self):
        model = self.model(1, 256, 512)
        for arguments in (["--threads", 1], ["--threads", 3], ["--cpu", "scalar"]):
            self.pack(model, *arguments, name="-".join(map(str, arguments)))
        trees = [tree(path) for path in self.at.glob("--*")]
        self.assertEqual(len(trees), 3)
        self.assertTrue(trees[0] == trees[1] == trees[2])

    def test_every_geometry(self):
        model = self.model(1, 256, 128)
        for k in range(1, 7):
            for arguments in (["--axis", 0], ["--axis", 1, "--block", 64], ["--block", 128]):
                packed = self.pack(model, "--bits", k, *arguments, "--force")
                self.good("verify", packed, "--against", model)

    def test_scale_rules(self):
        model = self.model(1, 128, 128)
        rms, fit = (self.pack(model, "--scale", rule, name=rule) for rule in ("rms", "fit"))
        self.assertEqual(tree(rms), tree(self.pack(model)))
        self.good("verify", fit, "--against", model)
        self.assertNotEqual(tree(fit), tree(rms))  # its trellis of 2^8 states reaches less far

    def test_memory(self):
        """What is resident stays within what is stated and 24 MiB for the program."""
        model = self.model(6, 512, 2048)
        size = (model / "model.safetensors").stat().st_size
        for axis in "10":
            command = [COMMAND, "quantize", str(model), "-o", str(self.at / "out"), "--L", "8",
                       "--threads", "2", "--axis", axis, "--json", "--force"]
            script = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); "
                      "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
            done = subprocess.run([sys.executable, "-c", script, *command], check=True,
                                  capture_output=True, text=True)
            report, _, resident = done.stdout.rstrip().rpartition("\n")
            stated = json.loads(report)["memory_nbytes"]
            if "asan" not in COMMAND and "tsan" not in COMMAND:
                self.assertLess(int(resident) * 1024, stated + (24 << 20))
            self.assertLess(stated, size)

    def test_device(self):
        model = self.model(1, 128, 128)
        self.bad(2, "expected cpu or cuda", "quantize", model, "-o", self.at / "x", "--device", "tpu")
        packed = self.pack(model)
        self.assertEqual(tree(self.pack(model, "--device", "cpu", name="cpu")), tree(packed))
        result = tcq("quantize", model, "-o", self.at / "gpu", "--device", "cuda")
        if result.code:  # no GPU, or built without CUDA: says so, writes nothing
            self.assertRegex(result.err, "GPU|CUDA")
            self.assertNotIn("nvcc", result.err)  # there may have been one, switched off
            self.assertEqual(list(self.at.glob("gpu*")), [])
        else:
            self.assertEqual(tree(self.at / "gpu"), tree(packed))

    def test_interleaved(self):
        model = self.model(1, 512, 256)
        self.good("quantize", model, "-o", self.at / "a", "--preset", "mlx-bun", "--interleave")
        self.good("quantize", model, "-o", self.at / "b", "--preset", "mlx-bun")
        self.good("verify", self.at / "a", "--against", model)
        self.assertNotEqual(tree(self.at / "a"), tree(self.at / "b"))
        for name in "ab":
            self.good("dequantize", self.at / name, "-o", self.at / f"{name}.safetensors")
        self.assertEqual((self.at / "a.safetensors").read_bytes(),
                         (self.at / "b.safetensors").read_bytes())

    def test_shards(self):
        model = self.model(3)
        whole = self.pack(model)
        packed = self.pack(model, "--shard-size", "60KiB", name="sharded")
        index = json.loads((packed / "model.safetensors.index.json").read_text())
        files = sorted(set(index["weight_map"].values()))
        self.assertEqual(files, sorted(p.name for p in packed.glob("model-*.safetensors")))
        self.assertGreater(len(files), 2)
        for name in files:
            self.assertLess((packed / name).stat().st_size, 70 * 1024)
        self.good("verify", packed, "--against", model)
        self.good("verify", packed, "--against", whole)


class Refusals(Case):
    def test_sources(self):
        out = self.at / "out"
        self.bad(1, "No such file", "quantize", self.at / "missing", "-o", out)
        (self.at / "empty").mkdir()
        self.bad(1, "empty", "quantize", self.at / "empty", "-o", out)
        lfs = self.at / "lfs.safetensors"
        lfs.write_text("version https://git-lfs.github.com/spec/v1\n"
                       "oid sha256:0000000000000000000000000000000000000000000000000000000000000000\n"
                       "size 1234\n")
        self.bad(1, "Git LFS", "quantize", lfs, "-o", out)
        model = self.model()
        whole = (model / "model.safetensors").read_bytes()
        (model / "model.safetensors").write_bytes(whole[:-1])
        self.bad(1, "model.safetensors", "quantize", model, "-o", out)
        self.assertFalse(out.exists() or (self.at / "out.partial").exists())

    def test_missing_shard(self):
        model = self.model(3)
        sharded = self.at / "sharded"
        self.good("dequantize", model, "-o", sharded, "--shard-size", "100KiB")
        victim = sorted(sharded.glob("model-*.safetensors"))[1]
        victim.unlink()
        self.bad(1, victim.name, "quantize", sharded, "-o", self.at / "out")

    def test_values(self):
        for flaw in ("nan", "inf"):
            model = self.model(1, 128, 128, 100, flaw, name=flaw)
            self.bad(1, f"tensor 'model.layers.0.mlp.up_proj.weight': row 3, column 5 is {flaw}",
                     "quantize", model, "-o", self.at / "out", "--L", 8)
            self.assertFalse((self.at / "out").exists() or (self.at / "out.partial").exists())
            # excluded from packing it is nobody's business
            self.good("quantize", model, "-o", self.at / f"{flaw}-out", "--L", 8, "--exclude",
                      "*.up_proj")

    def test_all_zero(self):
        model = self.model(1, 128, 128, 100, "zero")
        self.good("verify", self.pack(model), "--against", model)

    def test_existing_output(self):
        model = self.model(1, 128, 128)
        packed = self.pack(model)
        before = tree(packed)
        self.bad(1, "exists already (--force replaces it)", "quantize", model, "-o", packed)
        self.assertEqual(tree(packed), before)
        (packed / "stale").write_text("x")
        self.pack(model, "--force", "--bits", 2)
        self.assertNotIn("stale", tree(packed))
        (self.at / "file").write_text("x")
        self.bad(1, "exists already", "quantize", model, "-o", self.at / "file")
        self.bad(1, "is no folder", "quantize", model, "-o", self.at / "file", "--force")
        (self.at / "empty").mkdir()
        self.good("quantize", model, "-o", self.at / "empty", "--L", 8)

    def test_permission_denied(self):
        model = self.model(1, 128, 128)
        locked = self.at / "locked"
        locked.mkdir(mode=0o555)
        as_nobody = {}
        if os.getuid() == 0:  # root may write anywhere: ask as somebody else
            self.at.chmod(0o755)
            as_nobody = {"user": 65534, "group": 65534, "extra_groups": []}
            try:
                subprocess.run([COMMAND, "--version"], check=True, capture_output=True, **as_nobody)
            except (PermissionError, subprocess.SubprocessError):
                self.skipTest("the command cannot be run by another user here")
        self.bad(1, "Permission denied", "quantize", model, "-o", locked / "out", "--L", 8,
                 **as_nobody)

    def test_disk_full(self):
        small = self.at / "small"
        small.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(small)],
                                 capture_output=True)
        if mounted.returncode != 0:
            self.skipTest("a small tmpfs cannot be mounted here")
        try:
            model = self.model(8, 256, 512)
            self.bad(1, "of disk space needed", "quantize", model, "-o", small / "out", "--L", 8)
            self.assertEqual(list(small.iterdir()), [])
            model = self.model(1, 128, 128)
            (model / "vocab.json").write_bytes(bytes(1 << 20))
            self.bad(1, "No space left", "quantize", model, "-o", small / "out", "--L", 8)
            self.assertFalse((small / "out").exists())
        finally:
            subprocess.run(["umount", str(small)], check=True)

    def test_file_too_large(self):
        model = self.model(2, 256, 512)
        script = f"trap '' XFSZ; ulimit -f 100; exec {COMMAND} quantize {model} -o {self.at}/out --L 8"
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("File too large", done.stderr)
        self.assertFalse((self.at / "out").exists())
        # with room again, the run goes on
        self.good("quantize", model, "-o", self.at / "out", "--L", 8, "--resume")
        self.good("verify", self.at / "out", "--against", model)


if __name__ == "__main__":
    unittest.main(verbosity=1)
