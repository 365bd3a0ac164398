# SPDX-License-Identifier: Apache-2.0
"""Writes the first inputs of the fuzz targets into tests/fuzz/corpus: small
valid files of every kind.  What fuzzing found worth keeping lies beside them.
    python3 tests/fuzz/make_corpus.py"""

import json
import os
import struct

import gguf
import numpy as np

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")
TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q4_K", "Q5_K",
         "Q6_K"]
HIDDEN, MIDDLE, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 4, 4, 2, 1, 2, 12
SHAPES = {"attn_norm.weight": (HIDDEN,), "attn_q.weight": (HEADS * HEAD_DIM, HIDDEN),
          "attn_k.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
          "attn_v.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
          "attn_output.weight": (HIDDEN, HEADS * HEAD_DIM), "ffn_norm.weight": (HIDDEN,),
          "ffn_gate.weight": (MIDDLE, HIDDEN), "ffn_up.weight": (MIDDLE, HIDDEN),
          "ffn_down.weight": (HIDDEN, MIDDLE)}


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_types(path):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(8)
    for i, name in enumerate(TYPES):
        kind = gguf.GGMLQuantizationType[name]
        nbytes = gguf.GGML_QUANT_SIZES[kind][1]
        raw = np.arange(nbytes, dtype=np.uint8) + np.uint8(i)
        writer.add_tensor(name, raw.view({"F32": np.float32, "F16": np.float16}.get(name, np.uint8)),
                          raw_dtype=kind)
    finish(writer)


def gguf_values(path):
    writer = gguf.GGUFWriter(path, "llama")
    for name in ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"):
        getattr(writer, f"add_{name}")(name, 1)
    writer.add_float32("float32", 1.5)
    writer.add_float64("float64", 1.5)
    writer.add_bool("bool", True)
    writer.add_string("string", "Ü")
    writer.add_array("array", [1, 2, 3])
    writer.add_array("strings", ["a", "b"])
    writer.add_array("arrays", [[1, 2], [3]])
    finish(writer)


def gguf_model(path, family, pre):
    rng = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, family)
    writer.add_custom_alignment(8)
    writer.add_block_count(1)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(MIDDLE)
    writer.add_context_length(32)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(["<s>", "a", "b", "ab", "</s>", "[PAD]"])
    writer.add_token_types([3, 1, 1, 1, 4, 5])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(4)
    writer.add_add_bos_token(True)
    writer.add_chat_template("{{ x }}")
    shapes = {"token_embd.weight": (VOCAB, HIDDEN), "output_norm.weight": (HIDDEN,)}
    shapes |= {"blk.0." + name: shape for name, shape in SHAPES.items()}
    if family == "llama":
        shapes |= {"rope_freqs.weight": (HEAD_DIM // 2,)}
    if family == "qwen2":
        shapes |= {f"blk.0.attn_{x}.bias": SHAPES[f"attn_{x}.weight"][:1] for x in "qkv"}
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(2.0)
    if family == "qwen3":
        shapes |= {"blk.0.attn_q_norm.weight": (HEAD_DIM,), "blk.0.attn_k_norm.weight": (HEAD_DIM,)}
    for name, shape in shapes.items():
        ones = name == "rope_freqs.weight"
        values = np.ones(shape) if ones else rng.standard_normal(shape)
        writer.add_tensor(name, values.astype(np.float32 if len(shape) < 2 else np.float16))
    finish(writer)


def safetensors(path, header, data):
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def config(modules):
    section = {"group_size": 64, "bits": 4, "mode": "affine"} | modules
    return {"model_type": "llama", "hidden_size": 64, "rms_norm_eps": 1e-5,
            "quantization": section, "quantization_config": section}


def module(bits, block, states, axis):
    return {"bits": bits, "group_size": block, "mode": "trellis",
            "trellis": {"L": states, "code": "1mad", "axis": axis}}


def tokenizers():
    """tokenizer.json, a zero byte, a text."""
    vocab = {c: i for i, c in enumerate("abcdefghijklmnoĠ")} | {"ab": 16, "Ġab": 17, "<s>": 18}
    added = [{"id": 18, "content": "<s>", "special": True, "normalized": False, "rstrip": True}]
    bpe = {"type": "BPE", "vocab": vocab, "merges": ["a b", ["Ġ", "ab"]], "ignore_merges": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    split = {"type": "Split", "pattern": {"Regex": "\\s?\\p{L}+|\\p{N}{1,3}"}, "behavior": "Isolated"}
    ends = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [18]}}}
    yield "bytes.json", {"model": bpe, "added_tokens": added, "pre_tokenizer": level,
                         "decoder": {"type": "ByteLevel"}, "post_processor": ends}, "ab <s> abc 12"
    yield "split.json", {"model": bpe, "normalizer": {"type": "NFC"},
                         "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                             split, {"type": "Digits", "individual_digits": True}, level]},
                         "decoder": {"type": "ByteLevel"}}, "ab e\u0301 123"
    pieces = {"<unk>": 0, "<0x41>": 1, "\u2581": 2, "a": 3, "\u2581a": 4}
    yield "marks.json", {"model": {"vocab": pieces, "merges": ["\u2581 a"], "byte_fallback": True,
                                   "unk_token": "<unk>", "fuse_unk": True},
                         "pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "first"},
                         "decoder": {"type": "Metaspace"}}, "a a Aa x"


def write_tokenizers():
    folder = os.path.join(FOLDER, "tokenizer")
    os.makedirs(folder, exist_ok=True)
    for name, content, text in tokenizers():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(json.dumps(content).encode() + b"\0" + text.encode())


def main():
    write_tokenizers()
    def at(target, name):
        os.makedirs(os.path.join(FOLDER, target), exist_ok=True)
        return os.path.join(FOLDER, target, name)

    gguf_types(at("gguf", "types.gguf"))
    gguf_values(at("gguf", "values.gguf"))
    gguf_model(at("gguf", "llama.gguf"), "llama", "llama-bpe")
    gguf_model(at("gguf", "qwen2.gguf"), "qwen2", "qwen2")
    gguf_model(at("gguf", "qwen3.gguf"), "qwen3", "smollm")
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 9\n"
    for target in ("gguf", "safetensors"):
        with open(at(target, "lfs-pointer"), "wb") as file:
            file.write(pointer)
    safetensors(at("safetensors", "two.safetensors"), {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "b": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]}}, bytes(32))
    safetensors(at("safetensors", "types.safetensors"), {
        name: {"dtype": name, "shape": [], "data_offsets": [8 * i, 8 * i + size]}
        for i, (name, size) in enumerate([("F64", 8), ("U64", 8), ("I64", 8)])}, bytes(24))
    safetensors(at("safetensors", "empty.safetensors"), {}, b"")
    configs = {
        "plain.json": {"model_type": "llama"},
        "packed.json": config({"model.layers.0.mlp.up_proj": module(3, 256, 12, 1),
                               "model.layers.0.mlp.down_proj": module(2, 64, 12, 0),
                               "lm_head": False}),
        "foreign.json": config({"a": {"bits": 4, "group_size": 32, "mode": "mxfp4"}}),
        "one.json": {"quantization": {"group_size": 64, "bits": 4, "mode": "affine",
                                      "m": module(6, 128, 16, 0)}},
    }
    for name, content in configs.items():
        with open(at("config", name), "w", encoding="utf-8") as file:
            json.dump(content, file)
    headers = {
        "whole.json": {"a": {"dtype": "U32", "shape": [2, 8], "data_offsets": [0, 64]}},
        "three.json": {
            "m.weight": {"dtype": "U32", "shape": [1, 4], "data_offsets": [0, 16]},
            "m.scales": {"dtype": "F16", "shape": [1], "data_offsets": [16, 18]},
            "x": {"dtype": "I8", "shape": [46], "data_offsets": [18, 64]}},
        "none.json": {"a": {"dtype": "F8_E4M3", "shape": [0, 4], "data_offsets": [0, 0]}},
    }
    for name, header in headers.items():
        with open(at("safetensors", name), "w", encoding="utf-8") as file:
            json.dump(header, file)


main()
