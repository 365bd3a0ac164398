# SPDX-License-Identifier: Apache-2.0
"""config.json made from metadata, for every family; and Llama 3's rotary
scaling from its frequency factors, computed as the converter does."""

import json
import math
import os
import subprocess
import sys
import tempfile

from gguf_support import Sizes, gguf, model_tensors, np, start, write_model

SIZES = Sizes()


def config(program, path):
    done = subprocess.run([program, "config", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.decode()


def llama3_factors(theta, dim, factor, low=1.0, high=4.0, context=8192):
    """As transformers defines them: by wavelength, in float32."""
    frequencies = np.float32(1) / np.float32(theta) ** (np.arange(0, dim, 2, dtype=np.float32) / dim)
    factors = []
    for frequency in frequencies:
        wavelength = 2 * math.pi / frequency
        if wavelength < context / high:
            factors.append(1)
        elif wavelength > context / low:
            factors.append(factor)
        else:
            smooth = (context / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, dtype=np.float32)


def check_families(program, path, rng):
    classes = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
    for family, name in classes.items():
        for tied in (True, False):
            def extra(writer):
                writer.add_rope_freq_base(1000000.0)
                writer.add_bos_token_id(3)
                writer.add_eos_token_id(SIZES.vocab)  # names no token
            write_model(path, family, model_tensors(rng, family, tied, family == "qwen2"),
                        extra=extra)
            made = config(program, path)
            expected = {
                "architectures": [name], "model_type": family, "hidden_size": SIZES.hidden,
                "intermediate_size": SIZES.middle, "num_hidden_layers": SIZES.layers,
                "num_attention_heads": SIZES.heads, "num_key_value_heads": SIZES.kv_heads,
                "head_dim": SIZES.head_dim, "vocab_size": SIZES.vocab, "max_position_embeddings": 512,
                "rms_norm_eps": 1e-5, "rope_theta": 1000000.0, "rope_scaling": None,
                "tie_word_embeddings": tied, "bos_token_id": 3, "hidden_act": "silu",
            }
            wrong = {k: made.get(k, "missing") for k in expected if made.get(k, "missing") != expected[k]}
            assert not wrong, (family, wrong)
            assert "eos_token_id" not in made
            print(f"{family}, tied {tied}: {len(expected)} keys")


def check_scaling(program, path, rng):
    tensors = model_tensors(rng, "llama", True, False)
    for factor in (8.0, 32.0, 2.5):
        factors = llama3_factors(500000.0, SIZES.head_dim, factor)
        def extra(writer):
            writer.add_rope_freq_base(500000.0)
            writer.add_tensor("rope_freqs.weight", factors)
        write_model(path, "llama", tensors, extra=extra)
        scaling = config(program, path)["rope_scaling"]
        assert scaling == {"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0,
                           "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}, scaling
    factors[len(factors) // 2] *= 1.01
    write_model(path, "llama", tensors, extra=extra)
    refusal = config(program, path)
    assert "frequency factors that are not" in refusal, refusal

    def yarn(writer):
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(4.0)
        writer.add_rope_scaling_orig_ctx_len(128)
    write_model(path, "llama", tensors, extra=yarn)
    scaling = config(program, path)["rope_scaling"]
    assert scaling == {"rope_type": "yarn", "type": "yarn", "factor": 4.0,
                       "original_max_position_embeddings": 128}, scaling
    print("scaling: llama3 at three factors, a foreign one refused, yarn")


def main():
    program = sys.argv[1]
    rng = start("gguf_config", 13)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.gguf")
        check_families(program, path, rng)
        check_scaling(program, path, rng)


main()
