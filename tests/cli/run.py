# SPDX-License-Identifier: Apache-2.0
"""run, eval, synth and bench --model: what they say, and what they refuse."""
import json
import os
import pathlib
import resource
import signal
import subprocess
import time
import unittest

from support import COMMAND, Case, start, tcq

EXAMPLES = os.environ["TCQ_EXAMPLES"]


class Run(Case):
    def synth(self, *arguments, name="synth"):
        self.good("synth", "--shape", "smollm2-135m", "--layers", 2, "-o", self.at / name, *arguments)
        return self.at / name

    def test_run_streams_and_reports(self):
        model = self.synth()
        done = self.good("run", model, "hello", "-n", 5, "--json")
        report = done.json()
        self.assertEqual((report["prompt_tokens"], report["tokens"], report["stop"]),
                         (5, 5, "max-tokens"))
        done = self.good("run", model, "hello", "-n", 3)
        self.assertIn("tokens/s", done.err)
        self.assertIn("peak memory", done.err)
        self.assertEqual(self.good("run", model, "hello", "-n", 3, "-q").err, "")

    def test_same_seed_same_text(self):
        model = self.synth("--bits", 4)
        # Few candidates, among which single bytes, so that there is a text to compare.
        options = ["-n", 12, "--temperature", 5, "--seed", 7, "--json"]
        texts = [self.good("run", model, "abc", *options, "--threads", n).json()["text"]
                 for n in (1, 2, 3)]
        self.assertEqual(len(set(texts)), 1, texts)

    def test_config_beside_a_file(self):
        plain = self.at / "plain"
        self.good("dequantize", self.synth(), "-o", plain)
        packed = self.at / "from_file"
        self.good("quantize", plain / "model.safetensors", "-o", packed, "--bits", 4)
        done = self.good("run", packed, "abc", "-n", 2, "--json").json()
        self.assertEqual(done["tokens"], 2)

    def test_prompts(self):
        model = self.synth()
        self.bad(1, "prompt is empty", "run", model, "")
        self.bad(1, "context has 8 positions", "run", model, "a text of more than that",
                 "--context", 8)
        self.bad(1, "no chat template", "run", model, "hello", "--chat")
        self.bad(2, "exclude each other", "run", model, "hello", "--chat", "--raw")
        for option, value in (("temperature", -1), ("temperature", "0x10"), ("temperature", "nan"),
                              ("top-p", 1.5), ("min-p", "inf"), ("min-p", "")):
            self.bad(2, f"--{option} '{value}'", "run", model, "hello", f"--{option}={value}")
        done = self.good("run", model, "abcd", "--context", 8, "-n", 0, "--json")
        self.assertEqual(done.json()["stop"], "context full")
        done = subprocess.run([COMMAND, "run", str(model), "-n", "2", "--json"], input=b"a\xffb",
                              capture_output=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"byte 1 (0xff) is not UTF-8", done.stderr)

    def test_closed_pipe_and_full_disk(self):
        model = self.synth()
        done = subprocess.run(f"'{COMMAND}' run '{model}' hello -n 200 | head -c 0", shell=True,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0)
        with open("/dev/full", "w") as full:
            done = subprocess.run([COMMAND, "run", str(model), "hello", "-n", "3", "--json"],
                                  stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("No space left", done.stderr)

    def test_interrupt_ends_cleanly(self):
        model = self.synth()
        running = start("run", model, "hello", "-n", 4000, "--json")
        time.sleep(1.5)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
        self.assertEqual(running.returncode, 0, err)
        self.assertEqual(json.loads(out)["stop"], "interrupted")

    def test_eval(self):
        model = self.synth()
        text = self.at / "text.txt"
        text.write_text("All the world's a stage, and all the men and women merely players. " * 4)
        done = self.good("eval", model, "--text", text, "--context", 64, "--against", model,
                         "--plot", self.at / "plot.png", "--json")
        report = done.json()
        # A model compared with itself: no divergence, the same tokens everywhere.
        self.assertEqual((report["kl_max"], report["top1_agreement"]), (0, 1))
        self.assertEqual(report["layer_errors"], [0, 0])
        self.assertEqual(report["perplexity"], report["perplexity_against"])
        self.assertEqual(report["scored"], report["tokens"] - report["windows"])
        self.assertEqual((self.at / "plot.png").read_bytes()[:8], b"\x89PNG\r\n\x1a\n")
        before = (self.at / "plot.png").read_bytes()

        def small_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (256, 256))
        self.bad(1, "plot.png: File too large", "eval", model, "--text", text, "--against", model,
                 "--plot", self.at / "plot.png", preexec_fn=small_files, restore_signals=False)
        self.assertEqual((self.at / "plot.png").read_bytes(), before)
        self.assertFalse((self.at / "plot.png.partial").exists())
        self.bad(1, "/dev/full: No space left", "eval", model, "--text", text, "--against", model,
                 "--plot", "/dev/full")
        self.assertFalse(pathlib.Path("/dev/full").is_file())
        other = self.synth("--seed", 2, name="other")
        report = self.good("eval", model, "--text", text, "--tokens", 64, "--against", other,
                           "--json").json()
        self.assertGreater(report["kl_mean"], 0)
        self.assertGreaterEqual(report["kl_max"], report["kl_p99"])
        self.assertLess(report["top1_agreement"], 1)
        self.bad(2, "--text", "eval", model)
        self.bad(1, "missing.txt", "eval", model, "--text", self.at / "missing.txt")
        text.write_text("x")
        self.bad(1, "at least 2", "eval", model, "--text", text)

    def test_device(self):
        """On a GPU where there is one; else why not, and nothing about the model."""
        model = self.synth()
        text = self.at / "text.txt"
        text.write_text("All the world's a stage.")
        for command in (["run", model, "hello", "-n", 2], ["bench", "--model", model],
                        ["eval", model, "--text", text],
                        ["bench", "--shape", "512x512", "--m", 1, "--bits", 3, "--memory", "16MiB"]):
            done = tcq(*command, "--device", "cuda")
            if done.code:
                self.assertEqual(done.code, 1)
                self.assertRegex(done.err, "^tcq: (no NVIDIA driver|no usable NVIDIA GPU|"
                                           "this program was built without the CUDA)")
        on_cpu = self.good("run", model, "hello", "-n", 2, "--json").json()["text"]
        self.assertEqual(self.good("run", model, "hello", "-n", 2, "--json", "--device",
                                   "cpu").json()["text"], on_cpu)

    def test_bench_model(self):
        model = self.synth()
        done = self.good("bench", "--model", model, "--json", self.at / "bench.json")
        self.assertIn("prefill", done.out)
        before = (self.at / "bench.json").read_text()
        self.assertGreater(json.loads(before)["decode_seconds"], 0)

        def small_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (256, 256))
        self.bad(1, "bench.json: File too large", "bench", "--model", model, "--json",
                 self.at / "bench.json", preexec_fn=small_files, restore_signals=False)
        self.assertEqual((self.at / "bench.json").read_text(), before)
        self.bad(1, "/dev/full: No space left", "bench", "--model", model, "--json", "/dev/full")

    def test_example(self):
        model = self.synth()
        done = subprocess.run([os.path.join(EXAMPLES, "next_tokens"), str(model), "hello"],
                              capture_output=True, text=True, errors="replace")
        self.assertEqual((done.returncode, len(done.stdout.splitlines())), (0, 10), done.stderr)


class Broken(Case):
    """A folder with one thing wrong."""

    def setUp(self):
        super().setUp()
        self.good("synth", "--shape", "smollm2-135m", "--layers", 1, "-o", self.at / "m")
        self.model = self.at / "m"
        self.config = json.loads((self.model / "config.json").read_text())

    def refused(self, message, **changes):
        config = {**self.config, **changes}
        config = {k: v for k, v in config.items() if v != "absent"}
        (self.model / "config.json").write_text(json.dumps(config))
        self.bad(1, message, "run", self.model, "hello")

    def test_config(self):
        self.refused("model_type 'gemma2' is not implemented", model_type="gemma2")
        self.refused("'attn_logit_softcapping' is not implemented", attn_logit_softcapping=50.0)
        self.refused("rope type 'yarn' is not implemented",
                     rope_scaling={"rope_type": "yarn", "factor": 4.0})
        self.refused("hidden_act 'gelu'", hidden_act="gelu")
        self.refused("partial_rotary_factor", partial_rotary_factor=0.5)
        self.refused("num_hidden_layers is 0", num_hidden_layers="absent")
        self.refused("'hidden_size': expected an integer", hidden_size="wide")
        self.refused("9 heads of 64 on 2", num_key_value_heads=2)
        self.refused("layer type 'linear_attention'", layer_types=["linear_attention"])
        self.refused("layer_types has 2 entries", layer_types=["full_attention"] * 2)

    def test_numbers(self):
        # 10^30 as transformers writes it for "no limit"; sizes as whole reals
        config = {**self.config, "model_max_length": 10 ** 30, "hidden_size": 576.0}
        (self.model / "config.json").write_text(json.dumps(config))
        self.good("run", self.model, "hello", "-n", 1)
        for command in (["inspect"], ["verify"]):
            self.good(*command, self.model)
        for size in (576.5, -576, 10 ** 30, 2 ** 32, True, "576"):
            self.refused("'hidden_size': expected an integer in 0..4294967295", hidden_size=size)

    def test_shapes(self):
        self.refused("expected [49152, 512] by config.json", hidden_size=512)
        self.refused("expected [49151, 576] by config.json", vocab_size=49151)
        self.refused("model.layers.1.self_attn.q_proj.weight' is missing", num_hidden_layers=2)
        self.refused("expected [1535, 576]", intermediate_size=1535)
        self.refused("'lm_head.weight' is missing", tie_word_embeddings=False)
        self.refused("self_attn.q_proj.bias' is missing", attention_bias=True)

    def test_files(self):
        weights = self.model / "model.safetensors"
        data = weights.read_bytes()
        weights.write_bytes(data[:len(data) // 2])
        self.bad(1, "model.safetensors", "run", self.model, "hello")
        weights.write_bytes(data)
        (self.model / "tokenizer.json").write_text('{"model": {"type": "Unigram"}, '
                                                   '"decoder": {"type": "Metaspace"}}')
        self.bad(1, "model type 'Unigram' is not implemented", "run", self.model, "hello")
        (self.model / "tokenizer.json").unlink()
        self.bad(1, "no tokenizer", "run", self.model, "hello")
        (self.model / "config.json").unlink()
        self.bad(1, "config.json", "run", self.model, "hello")
        self.bad(1, "No such file", "run", self.at / "nowhere", "hello")


if __name__ == "__main__":
    unittest.main()
