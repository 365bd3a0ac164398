# SPDX-License-Identifier: Apache-2.0
"""Names, row order and values of whole small models: llama (with biases,
grouped heads, tied and untied head), qwen2 and qwen3, written as GGUF's
converter does (its row permutation is written here a second time)."""

import os
import sys
import tempfile

from gguf_support import floats, gguf, np, same_bits, start

HIDDEN, MIDDLE, HEADS, KV_HEADS, HEAD_DIM, VOCAB, LAYERS = 64, 96, 4, 2, 24, 50, 3


def permute(weights, heads):
    """What the converter does to llama's q and k."""
    rows = weights.shape[0]
    pairs = weights.reshape(heads, 2, rows // heads // 2, *weights.shape[1:])
    return pairs.swapaxes(1, 2).reshape(weights.shape)


def model_tensors(rng, family, tied, bias):
    """{Hugging Face name: float32 array}."""
    q_rows, kv_rows = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    shapes = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,)}
    if not tied:
        shapes["lm_head.weight"] = (VOCAB, HIDDEN)
    for layer in range(LAYERS):
        block = f"model.layers.{layer}."
        shapes |= {
            block + "input_layernorm.weight": (HIDDEN,),
            block + "self_attn.q_proj.weight": (q_rows, HIDDEN),
            block + "self_attn.k_proj.weight": (kv_rows, HIDDEN),
            block + "self_attn.v_proj.weight": (kv_rows, HIDDEN),
            block + "self_attn.o_proj.weight": (HIDDEN, q_rows),
            block + "post_attention_layernorm.weight": (HIDDEN,),
            block + "mlp.gate_proj.weight": (MIDDLE, HIDDEN),
            block + "mlp.up_proj.weight": (MIDDLE, HIDDEN),
            block + "mlp.down_proj.weight": (HIDDEN, MIDDLE),
        }
        if bias:
            shapes |= {block + "self_attn.q_proj.bias": (q_rows,),
                       block + "self_attn.k_proj.bias": (kv_rows,),
                       block + "self_attn.v_proj.bias": (kv_rows,)}
        if family == "qwen3":
            shapes |= {block + "self_attn.q_norm.weight": (HEAD_DIM,),
                       block + "self_attn.k_norm.weight": (HEAD_DIM,)}
    return {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


def gguf_name(name):
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, LAYERS)
    return names.get_name(name, try_suffixes=(".weight", ".bias"))


def write(path, family, tensors, quantize):
    """Returns the values that a reader should find, in Hugging Face's order."""
    writer = gguf.GGUFWriter(path, family)
    writer.add_block_count(LAYERS)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(MIDDLE)
    writer.add_context_length(512)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-5)
    expected = {}
    for name, weights in tensors.items():
        heads = HEADS if ".q_proj." in name else KV_HEADS if ".k_proj." in name else 0
        moved = permute(weights, heads) if family == "llama" and heads else weights
        if quantize and weights.ndim == 2 and weights.shape[1] % 32 == 0:
            kind = gguf.GGMLQuantizationType.Q8_0
            stored = gguf.quants.quantize(moved, kind)
            writer.add_tensor(gguf_name(name), stored, raw_dtype=kind)
            # blocks lie within rows: quantizing commutes with moving rows
            expected[name] = gguf.quants.dequantize(gguf.quants.quantize(weights, kind), kind)
        else:
            writer.add_tensor(gguf_name(name), moved)
            expected[name] = weights
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected


def main():
    program = sys.argv[1]
    rng = start("gguf_model", 11)
    cases = [("llama", True, False), ("llama", False, True), ("qwen2", True, True),
             ("qwen3", False, False)]
    with tempfile.TemporaryDirectory() as folder:
        for family, tied, bias in cases:
            for quantize in (False, True):
                path = os.path.join(folder, "model.gguf")
                expected = write(path, family, model_tensors(rng, family, tied, bias), quantize)
                actual = floats(program, "model", path)
                assert list(actual) == sorted(expected), (family, list(actual), sorted(expected))
                wrong = [name for name in expected if not same_bits(actual[name], expected[name])]
                assert not wrong, (family, quantize, wrong)
                print(f"{family}: {len(expected)} tensors, tied {tied}, bias {bias}, "
                      f"{'Q8_0' if quantize else 'F32'}: equal")


main()
