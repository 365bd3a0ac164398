# SPDX-License-Identifier: Apache-2.0
"""Logits against transformers in float32, for small random models of every
family: biases, norms of heads, tied heads, grouped heads, llama-3 and linear
rotary scaling, windows, head sizes that fill no whole vector.

    transformer.py PROGRAM          compares models of random weights
    transformer.py --write FOLDER   writes the logits that golden_logits.py
                                    compares where there is no transformers
"""

import json
import os
import sys
import tempfile

from logits_support import bfloat16, check, check_folder, np, run, uniform, weights

try:
    import torch
    import transformers
    from safetensors.numpy import save_file
    from transformers import (LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM,
                              Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)
except ImportError as missing:
    print(f"skipped: {missing}; model_logits compares with stored logits of transformers")
    sys.exit(77)

SMALL = dict(vocab_size=211, hidden_size=64, intermediate_size=112, num_hidden_layers=3,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
             rms_norm_eps=1e-5)
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
GOLDEN_TOKENS = 56  # more than two windows of 24


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


def make_model(make, config):
    config._attn_implementation = "eager"
    return make(config).float().eval()


def logits(model, tokens):
    with torch.no_grad():
        return model(torch.as_tensor(tokens)[None]).logits[0].numpy()


def compare(program, name, make, config):
    model = make_model(make, config)
    with torch.no_grad():  # norms and biases that are not the neutral ones of a new model
        for key, value in model.named_parameters():
            spread = 0.3 if value.dim() == 1 else 2.5 / value.shape[-1] ** 0.5
            value.copy_(torch.randn_like(value) * spread + ("norm" in key))
    tokens = torch.randint(0, config.vocab_size, (77,)).tolist()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        check_folder(name, program, folder, tokens, logits(model, tokens))
        model.bfloat16().save_pretrained(folder)
        again = make.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
        check("  weights of bfloat16", logits(again, tokens), run(program, folder, tokens), 1e-4)


def written_names(model):
    """Names and shapes as save_pretrained writes them: a tied head is left out."""
    tied = model.config.tie_word_embeddings
    return {name: list(value.shape) for name, value in model.named_parameters()
            if not (tied and name == "lm_head.weight")}


def load(model, tensors):
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(torch.from_numpy(tensors[name]))


def write(folder, name, make, config):
    model = make_model(make, config)
    shapes = written_names(model)
    made = weights(shapes)
    tokens = (np.abs(uniform(name, GOLDEN_TOKENS)) * config.vocab_size).astype(np.int64) % config.vocab_size
    load(model, made)
    stored = {"tokens": tokens, "logits": logits(model, tokens)}
    load(model, {key: (bfloat16(value).astype(np.uint32) << 16).view(np.float32)
                 for key, value in made.items()})
    stored["logits_bf16"] = logits(model, tokens)
    file = name.replace(",", "").replace(" ", "_").replace("-", "_") + ".safetensors"
    save_file(stored, os.path.join(folder, file), metadata={
        "name": name, "config": model.config.to_json_string(use_diff=False),
        "shapes": json.dumps(shapes), "made_by": f"transformers {transformers.__version__}"})


def main():
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    if sys.argv[1] == "--write":
        for case in cases():
            write(sys.argv[2], *case)
        return
    seed = int(os.environ.get("TCQ_SEED", "1"))
    print(f"transformer: TCQ_SEED={seed}")
    torch.manual_seed(seed)
    for case in cases():
        compare(sys.argv[1], *case)


main()
