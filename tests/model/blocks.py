# SPDX-License-Identifier: Apache-2.0
"""A GGUF's blocks, decoded a few rows at a time as they are multiplied, give the
logits of the same weights in float32, to the bit."""

import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "python"))
from gguf_support import Sizes, model_tensors, np, start, store_q8_0, write_model


def logits(program, model, tokens, batch, threads=2):
    done = subprocess.run([program, model, str(threads), str(batch), "32", "native"],
                          input=tokens.astype(np.uint32).tobytes(), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return np.frombuffer(done.stdout, dtype=np.float32)


def main():
    rng = start("model_blocks", 12)
    sizes = Sizes(vocab=67)  # no whole number of tasks, nor of rows decoded together
    with tempfile.TemporaryDirectory() as folder:
        for family, tied in (("llama", True), ("qwen2", False), ("qwen3", False)):
            path, plain = f"{folder}/{family}.gguf", f"{folder}/{family}"
            tensors = model_tensors(rng, family, tied, family == "qwen2", sizes)
            tensors = {n: t * np.float32(0.2) if t.ndim == 2 else t for n, t in tensors.items()}
            write_model(path, family, tensors, store_q8_0, sizes=sizes)
            subprocess.run([os.environ["TCQ_COMMAND"], "dequantize", path, "-o", plain, "--dtype",
                            "f32", "-q"], check=True)
            tokens = rng.integers(0, sizes.vocab, 41)
            expected = logits(sys.argv[1], plain, tokens, 0)
            assert np.isfinite(expected).all() and expected.std() > 0
            for batch, threads in ((0, 2), (1, 1), (7, 2)):
                got = logits(sys.argv[1], path, tokens, batch, threads)
                assert np.array_equal(got, expected), (family, batch, threads)
            print(f"{family}: {expected.size} logits equal")


main()
