# SPDX-License-Identifier: Apache-2.0
"""Logits against those that transformers computed once, stored in
tests/golden/model by transformer.py --write; the weights are made here again
from their names, as they were there."""

import glob
import json
import os
import sys
import tempfile

from logits_support import check, check_folder, np, run, weights, write_folder

try:
    from safetensors import safe_open
except ImportError as missing:
    print(f"skipped: {missing} (pip install -r tests/python/requirements.txt)")
    sys.exit(77)


def compare(program, path):
    with safe_open(path, "np") as file:
        about = file.metadata()
        tokens, expected, expected_bf16 = (file.get_tensor(name)
                                           for name in ("tokens", "logits", "logits_bf16"))
    config, tensors = json.loads(about["config"]), weights(json.loads(about["shapes"]))
    with tempfile.TemporaryDirectory() as folder:
        write_folder(folder, config, tensors, "F32")
        check_folder(about["name"], program, folder, tokens, expected)
        write_folder(folder, config, tensors, "BF16")
        check("  weights of bfloat16", expected_bf16, run(program, folder, tokens), 1e-4)


def narrow_windows(program):
    """Of fewer positions than are worked on together: as one position at a time."""
    config = {"model_type": "mistral", "num_hidden_layers": 2, "hidden_size": 64,
              "intermediate_size": 96, "num_attention_heads": 6, "num_key_value_heads": 2,
              "head_dim": 20, "vocab_size": 211, "max_position_embeddings": 128}
    q, kv, hidden, middle = 120, 40, 64, 96
    shapes = {"model.embed_tokens.weight": (211, hidden), "lm_head.weight": (211, hidden),
              "model.norm.weight": (hidden,)}
    for layer in range(2):
        at = f"model.layers.{layer}."
        shapes |= {at + "input_layernorm.weight": (hidden,), at + "mlp.up_proj.weight": (middle, hidden),
                   at + "post_attention_layernorm.weight": (hidden,),
                   at + "self_attn.q_proj.weight": (q, hidden), at + "self_attn.k_proj.weight": (kv, hidden),
                   at + "self_attn.v_proj.weight": (kv, hidden), at + "self_attn.o_proj.weight": (hidden, q),
                   at + "mlp.gate_proj.weight": (middle, hidden), at + "mlp.down_proj.weight": (hidden, middle)}
    tensors, tokens, seen = weights(shapes), [(i * i * 7 + 3) % 211 for i in range(45)], set()
    with tempfile.TemporaryDirectory() as folder:
        for window in (1, 2, 3, 7, 8, 9, 17, None):
            write_folder(folder, {**config, "sliding_window": window}, tensors, "F32")
            expected = run(program, folder, tokens, batch=1)
            for batch in (0, 13, 32):
                assert np.array_equal(expected, run(program, folder, tokens, batch=batch)), (window, batch)
            seen.add(expected.tobytes())
    assert len(seen) == 8, "a window that changes nothing"
    print("narrow windows: the same logits by every batch")


def main():
    narrow_windows(sys.argv[1])
    paths = sorted(glob.glob(os.path.join(os.path.dirname(__file__), "..", "golden", "model", "*.safetensors")))
    assert len(paths) == 9, paths
    for path in paths:
        compare(sys.argv[1], path)


main()
