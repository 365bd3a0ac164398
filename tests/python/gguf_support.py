# SPDX-License-Identifier: Apache-2.0
"""What the GGUF tests share: packages or a skip, random blocks, a small model
written with the gguf package as its converter does, and the output of the
program gguf_floats."""

import os
import subprocess
import sys
from typing import NamedTuple

SKIPPED = 77

try:
    import gguf
    import numpy as np
except ImportError as missing:
    print(f"SKIPPED: {missing} (pip install -r tests/python/requirements.txt)")
    sys.exit(SKIPPED)


class Sizes(NamedTuple):
    """Of a model."""
    hidden: int = 64
    middle: int = 96
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 24
    vocab: int = 50
    layers: int = 3


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


def model_tensors(rng, family, tied, bias, sizes=Sizes()):
    """{Hugging Face name: float32 array}."""
    hidden, middle = sizes.hidden, sizes.middle
    q_rows, kv_rows = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    shapes = {"model.embed_tokens.weight": (sizes.vocab, hidden), "model.norm.weight": (hidden,)}
    if not tied:
        shapes["lm_head.weight"] = (sizes.vocab, hidden)
    for layer in range(sizes.layers):
        block = f"model.layers.{layer}."
        shapes |= {
            block + "input_layernorm.weight": (hidden,),
            block + "self_attn.q_proj.weight": (q_rows, hidden),
            block + "self_attn.k_proj.weight": (kv_rows, hidden),
            block + "self_attn.v_proj.weight": (kv_rows, hidden),
            block + "self_attn.o_proj.weight": (hidden, q_rows),
            block + "post_attention_layernorm.weight": (hidden,),
            block + "mlp.gate_proj.weight": (middle, hidden),
            block + "mlp.up_proj.weight": (middle, hidden),
            block + "mlp.down_proj.weight": (hidden, middle),
        }
        if bias:
            shapes |= {block + "self_attn.q_proj.bias": (q_rows,),
                       block + "self_attn.k_proj.bias": (kv_rows,),
                       block + "self_attn.v_proj.bias": (kv_rows,)}
        if family == "qwen3":
            shapes |= {block + "self_attn.q_norm.weight": (sizes.head_dim,),
                       block + "self_attn.k_norm.weight": (sizes.head_dim,)}
    return {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


def gguf_name(name, layers):
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, layers)
    return names.get_name(name, try_suffixes=(".weight", ".bias"))


def store_plain(name, weights):
    """Rows to store, their type, and the values that they stand for."""
    return weights, None, weights


def store_q8_0(name, weights):
    if weights.ndim != 2 or weights.shape[1] % 32 != 0:
        return store_plain(name, weights)
    kind = gguf.GGMLQuantizationType.Q8_0
    rows = gguf.quants.quantize(weights, kind)
    return rows, kind, gguf.quants.dequantize(rows, kind)


def add_sizes(writer, sizes):
    writer.add_block_count(sizes.layers)
    writer.add_embedding_length(sizes.hidden)
    writer.add_feed_forward_length(sizes.middle)
    writer.add_context_length(512)
    writer.add_head_count(sizes.heads)
    writer.add_head_count_kv(sizes.kv_heads)
    writer.add_key_length(sizes.head_dim)
    writer.add_value_length(sizes.head_dim)
    writer.add_layer_norm_rms_eps(1e-5)


def write_model(path, family, tensors, store=store_plain, extra=lambda writer: None, sizes=Sizes()):
    """store chooses each tensor's type; extra(writer) adds metadata or tensors.
    Returns the values that a reader should find, under Hugging Face's names."""
    writer = gguf.GGUFWriter(path, family)
    add_sizes(writer, sizes)
    extra(writer)
    expected = {}
    for name, weights in tensors.items():
        # blocks lie within rows, so that rows can be moved after quantizing
        rows, kind, expected[name] = store(name, weights)
        heads = sizes.heads if ".q_proj." in name else sizes.kv_heads if ".k_proj." in name else 0
        moved = permute(rows, heads) if family == "llama" and heads else rows
        writer.add_tensor(gguf_name(name, sizes.layers), moved, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected
