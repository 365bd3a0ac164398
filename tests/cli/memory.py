# SPDX-License-Identifier: Apache-2.0
"""Peak memory of tcq run: at most the packed weights, the cache and 64 MiB.

Measured is the largest resident set (VmHWM), which has the pages of the mapped
weights that were read in it: they are the packed weights' share."""
import json
import random
import subprocess
import sys
import unittest

from support import COMMAND, Case

ROOM = 64 << 20
PROMPT_TOKENS = 600


def byte_alphabet():
    """GPT-2's: every byte as a printable character."""
    plain = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    others = [b for b in range(256) if b not in plain]
    return [*map(chr, plain), *(chr(0x100 + i) for i in range(len(others)))]


def large_tokenizer(count):
    """As many tokens and merges as Qwen's tokenizer has, 9 MB of JSON."""
    tokens, merges = byte_alphabet(), []
    letters = tokens[64:90]
    for left in tokens:  # grows as it goes: words of one letter, of two, of three, ...
        for right in letters[:count - len(tokens)]:
            tokens.append(left + right)
            merges.append([left, right])
        if len(tokens) == count:
            break
    vocab = {token: i for i, token in enumerate(tokens)}
    return json.dumps({
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
        "decoder": {"type": "ByteLevel"},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}})


@unittest.skipIf("asan" in COMMAND or "tsan" in COMMAND, "sanitizers take memory of their own")
class Peak(Case):
    def peak(self, model, *arguments):
        """The report of a run, and what was resident at most."""
        script = ("import resource, subprocess, sys; "
                  "subprocess.run(sys.argv[1:], check=True, stdin=sys.stdin); "
                  "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
        command = [COMMAND, "run", str(model), "--raw", "--json", "-n", "4", "--context", "1024",
                   "--threads", "2", *map(str, arguments)]
        letters = random.Random(2)
        prompt = "".join(chr(letters.randrange(97, 123)) for _ in range(PROMPT_TOKENS))
        done = subprocess.run([sys.executable, "-c", script, *command], input=prompt,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        report, _, resident = done.stdout.rstrip().rpartition("\n")
        return json.loads(report), int(resident) * 1024

    def check(self, shape, *arguments, tokenizer=None, unread=0, run=()):
        model = self.at / shape
        self.good("synth", "--shape", shape, "-o", model, *arguments)
        if tokenizer:
            (model / "tokenizer.json").write_text(tokenizer)
        self.within(model, " ".join([shape, *map(str, run)]), unread=unread, run=run)

    def within(self, model, name, unread=0, run=()):
        report, resident = self.peak(model, *run)
        weights = (model / "model.safetensors").stat().st_size - unread
        beside = resident - weights - report["cache_nbytes"]
        print(f"{name}: {beside / 2**20:.1f} MiB beside "
              f"{weights / 2**20:.1f} of weights and {report['cache_nbytes'] / 2**20:.1f} of cache")
        self.assertGreater(report["prompt_tokens"], PROMPT_TOKENS // 3)
        self.assertLess(beside, ROOM)
        # what it says of itself is what is seen from outside, which adds Python before it starts
        self.assertLess(abs(report["peak_nbytes"] - resident), 1 << 20)

    def test_small(self):
        self.check("smollm2-135m", "--layers", 4)
        self.check("smollm2-135m", "--layers", 4, "--force", run=["--int8", "--temperature", 1])

    def test_16_bits(self):
        packed = self.at / "packed"
        self.good("synth", "--shape", "smollm2-135m", "--layers", 4, "-o", packed)
        for dtype in ("bf16", "f16"):
            model = self.at / dtype
            self.good("dequantize", packed, "-o", model, "--dtype", dtype)
            self.within(model, dtype)

    def test_large_vocabulary(self):
        self.check("qwen3-0.6b", "--layers", 3, tokenizer=large_tokenizer(151643))

    def test_large_layers(self):
        # no more than a few rows of its embedding are read; its head is another matrix
        embedding = 151936 * (4096 // 8 + 2)
        self.check("qwen3-8b", "--layers", 1, "--bits", 1, tokenizer=large_tokenizer(151643),
                   unread=embedding)


if __name__ == "__main__":
    unittest.main(verbosity=1)
