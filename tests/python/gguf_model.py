# SPDX-License-Identifier: Apache-2.0
"""Names, row order and values of whole small models: llama (with biases,
grouped heads, tied and untied head), qwen2 and qwen3, written as GGUF's
converter does (its row permutation is written a second time in gguf_support)."""

import os
import sys
import tempfile

from gguf_support import (floats, model_tensors, same_bits, start, store_plain, store_q8_0,
                          write_model)


def main():
    program = sys.argv[1]
    rng = start("gguf_model", 11)
    cases = [("llama", True, False), ("llama", False, True), ("qwen2", True, True),
             ("qwen3", False, False)]
    with tempfile.TemporaryDirectory() as folder:
        for family, tied, bias in cases:
            for store in (store_plain, store_q8_0):
                path = os.path.join(folder, "model.gguf")
                expected = write_model(path, family, model_tensors(rng, family, tied, bias), store)
                actual = floats(program, "model", path)
                assert list(actual) == sorted(expected), (family, list(actual), sorted(expected))
                wrong = [name for name in expected if not same_bits(actual[name], expected[name])]
                assert not wrong, (family, store.__name__, wrong)
                print(f"{family}: {len(expected)} tensors, tied {tied}, bias {bias}, "
                      f"{store.__name__}: equal")


main()
