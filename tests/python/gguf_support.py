# SPDX-License-Identifier: Apache-2.0
"""What the GGUF tests share: packages or a skip, random blocks, a small model
written with the gguf package as its converter does, and the output of the
program gguf_floats."""

import os
import subprocess
import sys

SKIPPED = 77
HIDDEN, MIDDLE, HEADS, KV_HEADS, HEAD_DIM, VOCAB, LAYERS = 64, 96, 4, 2, 24, 50, 3

try:
    import gguf
    import numpy as np
except ImportError as missing:
    print(f"SKIPPED: {missing} (pip install -r tests/python/requirements.txt)")
    sys.exit(SKIPPED)

TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]


def start(name, seed):
    """A generator seeded from TCQ_SEED, else `seed`; printed."""
    seed = int(os.environ.get("TCQ_SEED", str(seed)), 0)
    print(f"{name}: TCQ_SEED={seed}")
    return np.random.default_rng(seed)


def quantization_type(name):
    return gguf.GGMLQuantizationType[name]


def random_bytes(rng, name, rows, cols):
    """Rows of any bits at all: every scale, NaN and infinity among them."""
    block, nbytes = gguf.GGML_QUANT_SIZES[quantization_type(name)]
    return rng.integers(0, 256, (rows, cols // block * nbytes), dtype=np.uint8)


def typed(name, raw):
    """The array that GGUFWriter.add_tensor wants for raw bytes of a type."""
    return raw.view({"F32": np.float32, "F16": np.float16}.get(name, np.uint8))


def floats(program, mode, path):
    """{name: float32 array} as gguf_floats prints it."""
    done = subprocess.run([program, mode, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.decode())
    out, at, arrays = done.stdout, 0, {}
    while at < len(out):
        end = out.index(b"\n", at)
        name, *sizes = out[at:end].decode().split(" ")
        shape = tuple(map(int, sizes))
        count = int(np.prod(shape))
        arrays[name] = np.frombuffer(out, np.float32, count, end + 1).reshape(shape)
        at = end + 1 + 4 * count
    return arrays


def same_bits(a, b):
    """Equal bit for bit, except that any NaN equals any NaN."""
    if a.shape != b.shape:
        return False
    nan = np.isnan(a) & np.isnan(b)
    return bool(np.all(nan | (a.view(np.uint32) == b.view(np.uint32))))


def permute(weights, heads):
    """What the converter does to llama's q and k."""
    rows = weights.shape[0]
    pairs = weights.reshape(heads, 2, rows // heads // 2, *weights.shape[1:])
    return pairs.swapaxes(1, 2).reshape(weights.shape)


def model_tensors(rng, family, tied, bias, vocab=VOCAB):
    """{Hugging Face name: float32 array}."""
    q_rows, kv_rows = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    shapes = {"model.embed_tokens.weight": (vocab, HIDDEN), "model.norm.weight": (HIDDEN,)}
    if not tied:
        shapes["lm_head.weight"] = (vocab, HIDDEN)
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


def write_model(path, family, tensors, quantize=False, extra=lambda writer: None):
    """extra(writer) adds metadata or tensors.  Returns the values that a reader should find, in Hugging Face's order."""
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
    extra(writer)
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
