# SPDX-License-Identifier: Apache-2.0
"""quantize --head-bits: the embedding and the head packed, tied and not."""
import json
import shutil
import subprocess
import unittest

from support import COMMAND, Case, Result, tree

EMBEDDING, HEAD = "model.embed_tokens", "lm_head"


class Head(Case):
    def source(self, *, untied=False, hidden=128, name="source"):
        """A model of a byte tokenizer's 256 tokens, and 4 more, that can be run."""
        model = self.model(2, hidden, 256, 260, *(["untied"] if untied else []), name=name)
        if not (self.at / "synth").exists():
            self.good("synth", "--shape", "smollm2-135m", "--layers", 1, "-o", self.at / "synth")
        shutil.copy(self.at / "synth" / "tokenizer.json", model)
        return model

    def tensors(self, command, *arguments):
        report = self.good(command, *arguments, "--json").json()
        return {t["name"].removesuffix(".weight"): t for t in report["tensors"]}

    def plan(self, model, *arguments):
        return self.tensors("quantize", model, "--dry-run", *arguments)

    def test_plan(self):
        model = self.source(untied=True)
        plan = self.plan(model, "--head-bits", 5, "--axis", 0)
        for name in (EMBEDDING, HEAD):  # axis 1 whatever the others have
            self.assertEqual([plan[name][key] for key in ("action", "k", "axis", "block")],
                             ["pack", 5, 1, 128])
        self.assertEqual(plan["model.layers.0.mlp.up_proj"]["axis"], 0)
        self.assertEqual({plan[n]["action"] for n in (EMBEDDING, HEAD)}, {"pack"})
        plan = self.plan(model, "--head-bits", 5, "--bits-for", "lm_head=2",
                         "--exclude", EMBEDDING, "--include", "*.q_proj")
        self.assertEqual(sorted(n for n, t in plan.items() if t["action"] == "pack"),
                         [HEAD, *(f"model.layers.{i}.self_attn.q_proj" for i in (0, 1))])
        self.assertEqual(plan[HEAD]["k"], 2)
        self.assertNotEqual(self.plan(model)[HEAD]["action"], "pack")
        # a hidden size that no block divides: 16 bits, and said
        plan = self.plan(self.model(1, 100, 256, 260, name="odd"), "--head-bits", 4)
        self.assertEqual(plan[EMBEDDING]["reason"], "the coded side is no multiple of 64")

    def test_refusals(self):
        model = self.source()
        out = self.at / "out"
        for bits in (0, 7, "x"):
            self.bad(2, "--head-bits", "quantize", model, "-o", out, "--head-bits", bits)
        self.bad(2, "leave --head-bits out", "quantize", model, "-o", out, "--head-bits", 4,
                 "--preset", "mlx-bun")
        headless = self.at / "headless.safetensors"
        packed = self.pack(model)
        self.good("dequantize", packed, "-o", headless)
        data = headless.read_bytes().replace(b"embed_tokens", b"embed_tokenz")
        headless.write_bytes(data)
        self.bad(2, "neither an embedding nor a head", "quantize", headless, "-o", out,
                 "--head-bits", 4)
        self.assertFalse(out.exists())

    def test_bytes_and_sizes(self):
        for untied in (False, True):
            model = self.source(untied=untied, name=f"source{untied}")
            plan = self.plan(model, "--head-bits", 4)
            packed = self.pack(model, "--head-bits", 4, name=f"packed{untied}")
            found = self.tensors("inspect", packed)
            self.assertEqual(set(found), set(plan))
            for name, t in plan.items():
                self.assertEqual(found[name]["nbytes"], t["nbytes"], name)
            # 260 rows of 128 weights at 4 bits, and a scale each
            for name in [EMBEDDING, HEAD] if untied else [EMBEDDING]:
                self.assertEqual(found[name]["nbytes"], 260 * (128 * 4 // 8 + 2))
            config = json.loads((packed / "config.json").read_text())["quantization"]
            self.assertEqual(config[EMBEDDING], {"bits": 4, "group_size": 128, "mode": "trellis",
                                                 "trellis": {"L": 8, "code": "1mad", "axis": 1}})
            # as any matrix is packed by its name
            same = self.pack(model, "--bits", 3, "--bits-for", f"{EMBEDDING}=4", "--bits-for",
                             f"{HEAD}=4" if untied else "*embed*=4", "--include", "*_proj",
                             "--include", "*embed*", *(["--include", HEAD] if untied else []),
                             name=f"named{untied}")
            self.assertEqual(tree(packed), tree(same))
            self.good("verify", packed, "--against", model)

    def test_parts_and_shards(self):
        model = self.source(untied=True)
        whole = self.pack(model, "--head-bits", 4)
        parts = [self.pack(model, "--head-bits", 4, "--shard", f"{i}/2", name=f"part{i}")
                 for i in (1, 2)]
        self.good("merge", *parts, "-o", self.at / "merged")
        self.assertEqual(tree(self.at / "merged"), tree(whole))
        other = self.pack(model, "--head-bits", 5, "--shard", "2/2", name="other")
        self.bad(1, "their options differ", "merge", parts[0], other, "-o", self.at / "mixed")
        sharded = self.pack(model, "--head-bits", 4, "--shard-size", "30KiB", name="sharded")
        self.good("verify", sharded, "--against", whole)
        self.assertEqual(self.run_json(sharded)["text"], self.run_json(whole)["text"])

    def test_resume(self):
        model = self.source()
        whole = self.pack(model, "--head-bits", 4)
        out = self.at / "out"
        arguments = ["quantize", model, "-o", out, "--L", 8]
        # a run that ends early: its file may not grow beyond 30 KiB
        script = "trap '' XFSZ; ulimit -f 30; exec \"$0\" \"$@\""
        done = Result(subprocess.run(["bash", "-c", script, COMMAND, *map(str, arguments),
                                      "--head-bits", "4"], capture_output=True, text=True))
        self.assertEqual(done.code, 1, done.err)
        self.bad(1, "'--head-bits' was 4, is 0", *arguments, "--resume")
        self.bad(1, "'--head-bits' was 4, is 3", *arguments, "--resume", "--head-bits", 3)
        self.good(*arguments, "--resume", "--head-bits", 4)
        self.assertEqual(tree(out), tree(whole))

    def run_json(self, model, *arguments):
        return self.good("run", model, "the head", "-n", 12, "--json", *arguments).json()

    def test_runs_as_its_weights(self):
        """Against the same weights in float32: the same text, hardly any divergence."""
        text = self.at / "text.txt"
        text.write_text("Of the head, and of the embedding that it is tied to. " * 3)
        for untied in (False, True):
            model = self.source(untied=untied, name=f"source{untied}")
            packed = self.pack(model, "--head-bits", 4, name=f"packed{untied}")
            plain = self.at / f"plain{untied}"
            self.good("dequantize", packed, "-o", plain, "--dtype", "f32")
            shutil.copy(packed / "tokenizer.json", plain)
            for threads in (1, 2):
                self.assertEqual(self.run_json(packed, "--threads", threads)["text"],
                                 self.run_json(plain)["text"])
            report = self.good("eval", packed, "--text", text, "--against", plain,
                               "--json").json()
            self.assertLess(report["kl_max"], 1e-5)
            self.assertEqual(report["top1_agreement"], 1)
            self.assertLess(max(report["layer_errors"]), 1e-2)
            done = self.good("bench", "--model", packed, "--json", self.at / "bench.json")
            self.assertIn("prefill", done.out)

    def test_axis_0(self):
        packed = self.pack(self.model(1, 256, 256, 256), "--head-bits", 4)
        config = (packed / "config.json").read_text()
        entry = json.loads(config)["quantization"][EMBEDDING]
        entry["trellis"]["axis"] = 0  # its words fit both ways: it is square
        edited = json.loads(config)
        for key in ("quantization", "quantization_config"):
            edited[key][EMBEDDING] = entry
        (packed / "config.json").write_text(json.dumps(edited))
        self.bad(1, "axis 0: its rows", "run", packed, "x")

    def test_hostile(self):
        model = self.source(untied=True)
        packed = self.pack(model, "--head-bits", 4)
        config = json.loads((packed / "config.json").read_text())

        def refused(message, change):
            edited = json.loads(json.dumps(config))
            for key in ("quantization", "quantization_config"):
                change(edited[key])
            (packed / "config.json").write_text(json.dumps(edited))
            self.bad(1, message, "run", packed, "x")
            (packed / "config.json").write_text(json.dumps(config))

        refused("lm_head", lambda q: q[HEAD].update({"bits": 3}))
        refused("embed_tokens", lambda q: q.update({EMBEDDING: False}))
        refused("lm_head", lambda q: q[HEAD].update({"group_size": 96}))
        data = (packed / "model.safetensors").read_bytes()
        bad = data.replace(b'"lm_head.scales"', b'"lm_head.scalez"')
        (packed / "model.safetensors").write_bytes(bad)
        for command in (["run", packed, "x"], ["verify", packed]):
            self.bad(3 if command[0] == "verify" else 1, "lm_head", *command)
        (packed / "model.safetensors").write_bytes(data[:-100])
        self.bad(1, "model.safetensors", "run", packed, "x")


if __name__ == "__main__":
    unittest.main(verbosity=1)
