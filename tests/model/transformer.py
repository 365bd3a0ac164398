# SPDX-License-Identifier: Apache-2.0
"""Logits against transformers in float32, for small random models of every
family: biases, norms of heads, tied heads, grouped heads, llama-3 and linear
rotary scaling, windows, head sizes that fill no whole vector."""

import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
    import transformers
    from transformers import (LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM,
                              Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

SMALL = dict(vocab_size=211, hidden_size=64, intermediate_size=112, num_hidden_layers=3,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
             rms_norm_eps=1e-5)
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 32}


def cases():
    yield "llama", LlamaForCausalLM, LlamaConfig(**SMALL)
    yield "llama tied, biases, 3 of 9 heads", LlamaForCausalLM, LlamaConfig(
        **{**SMALL, "hidden_size": 72, "num_attention_heads": 9, "num_key_value_heads": 3},
        tie_word_embeddings=True, attention_bias=True, mlp_bias=True)
    yield "llama-3 rotary scaling", LlamaForCausalLM, LlamaConfig(**SMALL, rope_parameters=LLAMA3)
    yield "linear rotary scaling, heads of 20", LlamaForCausalLM, LlamaConfig(
        **SMALL, head_dim=20,
        rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0})
    yield "mistral with a window of 24", MistralForCausalLM, MistralConfig(**SMALL, sliding_window=24)
    yield "qwen2", Qwen2ForCausalLM, Qwen2Config(**SMALL)
    yield "qwen2 with windows from layer 1", Qwen2ForCausalLM, Qwen2Config(
        **SMALL, use_sliding_window=True, sliding_window=20, max_window_layers=1)
    yield "qwen3", Qwen3ForCausalLM, Qwen3Config(**SMALL, head_dim=32)
    yield "qwen3 tied", Qwen3ForCausalLM, Qwen3Config(**SMALL, head_dim=48, tie_word_embeddings=True)


def run(program, folder, tokens, threads=2, batch=0, cache=32, cpu="native"):
    done = subprocess.run([program, folder, str(threads), str(batch), str(cache), cpu],
                          input=np.asarray(tokens, dtype=np.uint32).tobytes(),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr.decode()
    return np.frombuffer(done.stdout, dtype=np.float32).reshape(len(tokens), -1)


def check(name, expected, got, limit):
    error = np.abs(got - expected).max() / np.abs(expected).max()
    same = (got.argmax(1) == expected.argmax(1)).mean()
    print(f"{name}: relative error {error:.2e}, top-1 {same:.3f}")
    assert error <= limit, (name, error)
    return same


def main():
    program = sys.argv[1]
    seed = int(os.environ.get("TCQ_SEED", "1"))
    print(f"transformer: TCQ_SEED={seed}")
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    for name, make, config in cases():
        config._attn_implementation = "eager"
        model = make(config).float().eval()
        with torch.no_grad():  # norms and biases that are not the neutral ones of a new model
            for key, value in model.named_parameters():
                spread = 0.3 if value.dim() == 1 else 2.5 / value.shape[-1] ** 0.5
                value.copy_(torch.randn_like(value) * spread + ("norm" in key))
            tokens = torch.randint(0, config.vocab_size, (1, 77))
            expected = model(tokens).logits[0].numpy()
        ids = tokens[0].tolist()
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            got = run(program, folder, ids)
            assert check(name, expected, got, 1e-4) == 1.0
            assert np.array_equal(got, run(program, folder, ids, threads=1, batch=13)), "threads or batch"
            for cpu in ("scalar", "avx2"):
                check(f"  {cpu}", expected, run(program, folder, ids, cpu=cpu), 1e-4)
            check("  cache of binary16", expected, run(program, folder, ids, cache=16), 2e-2)
            model.bfloat16().save_pretrained(folder)
            again = make.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
            with torch.no_grad():
                rounded = again(tokens).logits[0].numpy()
            check("  weights of bfloat16", rounded, run(program, folder, ids), 1e-4)


main()
