# SPDX-License-Identifier: Apache-2.0
"""A whole folder in MLX's form as mlx-bun has it, written here with numpy: MLP by
the trellis on both axes (rows of two modules by the second encoder, one interleaved),
attention, embedding and head affine at 3, 4, 6 and 8 bits in groups of 64, one
module and the norms in 16 bits, in three shards with an index.  Held against the
same weights in a plain float32 folder: logits, text, perplexity, and what the
command says of it."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from logits_support import bfloat16, check, np, run, uniform, weights, write_folder

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "python"))
from golden_vectors import encode, from_bf16, pack, table, unpack

HIDDEN, MIDDLE, HEADS, KV_HEADS, DIM, VOCAB, LAYERS, GROUP, L = 512, 64, 8, 2, 64, 260, 2, 64, 12
ENCODED_ROWS = 6  # by a plain Viterbi search, which is slow
CONFIG = {
    "model_type": "qwen3", "num_hidden_layers": LAYERS, "hidden_size": HIDDEN,
    "intermediate_size": MIDDLE, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
    "head_dim": DIM, "vocab_size": VOCAB, "max_position_embeddings": 256, "rope_theta": 1e6,
    "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "hidden_act": "silu",
    # as transformers writes "no limit", and as Python writes it
    "model_max_length": 1000000000000000019884624838656,
}  # fmt: skip


def shapes():
    made = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "lm_head.weight": (VOCAB, HIDDEN),
            "model.norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        made |= {
            at + "input_layernorm.weight": (HIDDEN,),
            at + "post_attention_layernorm.weight": (HIDDEN,),
            at + "self_attn.q_norm.weight": (DIM,),
            at + "self_attn.k_norm.weight": (DIM,),
            at + "self_attn.q_proj.weight": (HEADS * DIM, HIDDEN),
            at + "self_attn.k_proj.weight": (KV_HEADS * DIM, HIDDEN),
            at + "self_attn.v_proj.weight": (KV_HEADS * DIM, HIDDEN),
            at + "self_attn.o_proj.weight": (HIDDEN, HEADS * DIM),
            at + "mlp.gate_proj.weight": (MIDDLE, HIDDEN),
            at + "mlp.up_proj.weight": (MIDDLE, HIDDEN),
            at + "mlp.down_proj.weight": (HIDDEN, MIDDLE),
        }
    return made


# ---- the forms -----------------------------------------------------------------


def affine(weight, bits, bf16_scales):
    """words, scales, biases and what they stand for: w = q * scale + bias."""
    groups = weight.reshape(len(weight), -1, GROUP)
    low, high = groups.min(axis=2), groups.max(axis=2)
    scale = np.maximum((high - low) / np.float32((1 << bits) - 1), np.float32(1e-4))
    if bf16_scales:
        stored = bfloat16(scale), bfloat16(low)
        scale, low = map(from_bf16, stored)
    else:
        stored = scale.astype(np.float16), low.astype(np.float16)
        scale, low = (x.astype(np.float32) for x in stored)
    q = np.clip(np.rint((groups - low[..., None]) / scale[..., None]), 0, (1 << bits) - 1)
    # from the low end of little-endian words, without gaps
    flat = q.astype(np.uint32).reshape(len(weight), -1, 1) >> np.arange(bits, dtype=np.uint32) & 1
    words = np.packbits(flat.reshape(len(weight), -1).astype(np.uint8), axis=1, bitorder="little")
    values = q.astype(np.float32) * scale[..., None] + low[..., None]
    return words.view("<u4"), *stored, values.reshape(weight.shape)


def interleaved(words):
    """[rows, words] as [cols/512, rows, 48]: blocks in pairs."""
    return np.ascontiguousarray(words.reshape(len(words), -1, 48).transpose(1, 0, 2))


def trellis(name, weight, k, axis, encoded):
    """words, scales and what they stand for."""
    stored = weight if axis else np.ascontiguousarray(weight.T)
    # any words are valid blocks: all rows but the first few of one module an axis
    bits = (uniform(name + " words", stored.size * k // 16) * 32768).astype(np.int64)
    words = (bits & 0xFFFF).astype(np.uint16).view("<u4").reshape(len(stored), -1)
    scales = np.full(len(stored), 1.5 / stored.shape[1] ** 0.5, np.float16)
    if encoded:
        some, scales[:ENCODED_ROWS] = encode(stored[:ENCODED_ROWS], k, L, 256)
        words[:ENCODED_ROWS] = pack(some, k, 256)
    states = unpack(words, k, L, 256, stored.shape[1])
    assert not encoded or np.array_equal(states[:ENCODED_ROWS], some)
    values = table(L)[states] * scales.astype(np.float32)[:, None]
    return words, scales, values if axis else np.ascontiguousarray(values.T)


# ---- the folder ------------------------------------------------------------------

AFFINE_BITS = {"q_proj": 4, "k_proj": 6, "v_proj": 8, "o_proj": 3, "embed_tokens": 6, "lm_head": 8}
TRELLIS = {"gate_proj": (2, 1), "up_proj": (4, 1), "down_proj": (2, 0)}  # k and axis


def convert(tensors):
    """{name: (dtype, array)} in MLX's form, config's section, and plain weights."""
    section = {"group_size": GROUP, "bits": 4, "mode": "affine"}
    stored, plain = {}, {}
    for name, weight in tensors.items():
        module, leaf, layer1 = name.removesuffix(".weight"), name.split(".")[-2], ".1." in name
        if leaf in TRELLIS:
            k, axis = (3, 0) if layer1 and leaf == "down_proj" else TRELLIS[leaf]
            encoded = not layer1 and leaf != "up_proj"
            words, scales, plain[name] = trellis(name, weight, k, axis, encoded)
            stored[name] = "U32", interleaved(words) if k == 3 else words
            stored[module + ".scales"] = "F16", scales
            section[module] = {"bits": k, "group_size": 256, "mode": "trellis",
                               "trellis": {"L": L, "code": "1mad", "axis": axis}}
        elif leaf in AFFINE_BITS and not (layer1 and leaf == "o_proj"):
            words, scales, biases, plain[name] = affine(weight, AFFINE_BITS[leaf], layer1)
            stored[name] = "U32", words
            stored[module + ".scales"] = "BF16" if layer1 else "F16", scales
            stored[module + ".biases"] = "BF16" if layer1 else "F16", biases
            if AFFINE_BITS[leaf] != section["bits"]:  # others have the defaults
                section[module] = {"bits": AFFINE_BITS[leaf], "group_size": GROUP}
        else:
            stored[name] = "BF16", bfloat16(weight)
            plain[name] = from_bf16(stored[name][1])
            if weight.ndim == 2:
                section[module] = False
    return stored, section, plain


def write_shard(path, tensors):
    header, parts, at = {"__metadata__": {"format": "mlx"}}, [], 0
    for name, (dtype, array) in tensors.items():
        data = array.tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts))


def write_mlx(folder, stored, section):
    names, weight_map, count = list(stored), {}, 3
    for i in range(count):
        file = f"model-{i + 1:05}-of-{count:05}.safetensors"
        mine = names[i::count]
        write_shard(folder / file, {name: stored[name] for name in mine})
        weight_map |= {name: file for name in mine}
    total = sum(array.nbytes for _, array in stored.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    config = {**CONFIG, "quantization": section, "quantization_config": section}
    (folder / "config.json").write_text(json.dumps(config))


def write_tokenizer(folder):
    """Every byte is a token, the last four ids are none."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    vocab = {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(others)}
    (folder / "tokenizer.json").write_text(json.dumps({
        "model": {"type": "BPE", "vocab": vocab, "merges": []}, "decoder": {"type": "ByteLevel"},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}}))


# ---- checks --------------------------------------------------------------------


def tcq(*arguments):
    done = subprocess.run([os.environ["TCQ_COMMAND"], *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, (arguments, done.returncode, done.stderr)
    return json.loads(done.stdout) if "--json" in arguments else done.stdout


def check_logits(program, mlx, plain):
    tokens = [int(t) for t in (uniform("tokens", 77) + 1) * (VOCAB / 2)]
    expected = run(program, plain, tokens)
    # the narrow kernels round nothing; the wide ones put activations on a grid of 16 bits
    for batch, limit in ((13, 2e-5), (1, 2e-5), (0, 1e-3)):
        got = run(program, mlx, tokens, batch=batch)
        assert check(f"batch {batch}", expected, got, limit) == 1.0
        assert np.array_equal(got, run(program, mlx, tokens, batch=batch, threads=1))
    for cpu in ("scalar", "avx2"):
        check(f"  {cpu}", expected, run(program, mlx, tokens, batch=13, cpu=cpu), 2e-5)


def compare_tensors(folder, expected):
    """A plain folder's matrices, bit for bit."""
    data = (folder / "model.safetensors").read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    for name, value in expected.items():
        at, end = header[name]["data_offsets"]
        bits = np.frombuffer(data[start + at:start + end], "<u2" if header[name]["dtype"] == "BF16" else "<f4")
        bits = from_bf16(bits) if header[name]["dtype"] == "BF16" else bits
        assert np.array_equal(bits.reshape(value.shape), value), name
    assert set(header) - {"__metadata__"} == set(expected)


def check_command(mlx, plain, text, section, plain_tensors):
    trellis_modules = {name for name, entry in section.items()
                       if isinstance(entry, dict) and entry.get("mode") == "trellis"}
    listed = {t["name"]: t for t in tcq("inspect", mlx, "--json")["tensors"]}
    packed = {name for name, t in listed.items() if t["type"] == "trellis"}
    assert packed == {f"{name}.weight" for name in trellis_modules}, packed
    assert listed["model.layers.1.mlp.down_proj.weight"]["interleaved"] is True
    assert listed["model.layers.0.mlp.down_proj.weight"]["shape"] == [HIDDEN, MIDDLE]
    grouped = {name.split(".")[-2]: (t["bits"], t["group_size"], t["bits_per_weight"])
               for name, t in listed.items() if t["type"] == "affine"}
    # two numbers of 16 bits a group of 64
    assert grouped == {leaf: (k, GROUP, k + 0.5) for leaf, k in AFFINE_BITS.items()}, grouped
    assert not any(name.endswith((".scales", ".biases")) for name in listed)
    assert f"{len(trellis_modules)} packed tensors" in tcq("verify", mlx)
    assert " 0 mismatches" in tcq("verify", mlx, "--against", plain)
    decoded = mlx.with_name("decoded")
    tcq("dequantize", mlx, "-o", decoded, "--dtype", "f32", "-q")
    assert "quantization" not in json.loads((decoded / "config.json").read_text())
    compare_tensors(decoded, plain_tensors)
    said = [tcq("run", folder, "A folder of MLX's says:", "--raw", "-n", 20, "--json")
            for folder in (mlx, plain, decoded)]
    assert len({report["text"] for report in said}) == 1 and said[0]["tokens"] == 20, said
    report = tcq("eval", mlx, "--text", text, "--against", plain, "--context", 128, "--json")
    print("eval:", {key: report[key] for key in ("perplexity", "kl_max", "top1_agreement")})
    assert report["kl_max"] < 1e-5 and report["top1_agreement"] == 1
    assert abs(report["perplexity"] / report["perplexity_against"] - 1) < 1e-4


def check_refusals(mlx, section):
    """One thing wrong in config.json or an index: said by name, by run and by inspect."""
    q, v = (f"model.layers.0.self_attn.{leaf}" for leaf in ("q_proj", "v_proj"))
    changes = [
        ({v: {"bits": 7, "group_size": 64}}, "affine with 7 bits"),
        ({v: {"bits": 8, "group_size": 48}}, "groups of 48"),
        ({v: {"bits": 4, "group_size": 64}}, "v_proj.scales' is [128, 8]: expected [128, 16]"),
        ({v: {"bits": 5, "group_size": 64}}, "holds no rows of 5 bits"),
        ({v: {"bits": 8, "group_size": 128}}, "expected [128, 4]"),
        ({v: {"bits": 8, "group_size": 64, "mode": "mxfp8"}}, "mode 'mxfp8' is not implemented"),
        ({"bits": 2}, f"{q}.scales' is [512, 8]: expected [512, 16]"),
        ({v: {"bits": "8"}}, "'bits': expected an integer"),
    ]
    good = (mlx / "config.json").read_text()
    for change, message in changes:
        edited = {**section, **change}
        (mlx / "config.json").write_text(json.dumps(
            {**CONFIG, "quantization": edited, "quantization_config": edited}))
        done = subprocess.run([os.environ["TCQ_COMMAND"], "run", mlx, "x", "-n", "1"],
                              capture_output=True, text=True)
        assert done.returncode == 1 and message in done.stderr, (message, done.stderr)
        tcq("inspect", mlx)  # shows what is there
    (mlx / "config.json").write_text(good)
    index = json.loads((mlx / "model.safetensors.index.json").read_text())
    shard = mlx / index["weight_map"][v + ".biases"]
    data = shard.read_bytes()
    shard.write_bytes(data.replace(b"layers.0.self_attn.v_proj.biases", b"layers.0.self_attn.v_proj.biasez"))
    for command in (["run", mlx, "x"], ["inspect", mlx]):
        done = subprocess.run([os.environ["TCQ_COMMAND"], *command], capture_output=True, text=True)
        assert done.returncode == 1 and "v_proj.bias" in done.stderr, done.stderr
    shard.write_bytes(data)


def main():
    stored, section, plain_tensors = convert(weights(shapes()))
    with tempfile.TemporaryDirectory() as work:
        mlx, plain, text = (pathlib.Path(work) / name for name in ("mlx", "plain", "text.txt"))
        for folder in (mlx, plain):
            folder.mkdir()
            write_tokenizer(folder)
        write_mlx(mlx, stored, section)
        write_folder(plain, CONFIG, plain_tensors, "F32")
        text.write_text("One folder, three forms of weights: trellis, affine and plain. " * 8)
        check_logits(sys.argv[1], mlx, plain)
        check_command(mlx, plain, text, section, plain_tensors)
        check_refusals(mlx, section)


main()
