#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tcq beside llama.cpp (the Python package llama-cpp-python) on one GGUF model:

    compare_llama_cpp.py agree MODEL.gguf           tokens, logits, perplexity, greedy text
    compare_llama_cpp.py speed MODEL.gguf DIR...    tokens a second, with models packed by tcq

agree compares twice: with the file as it is, where llama.cpp rounds activations to
8 bits for its block types and tcq does not; and with the same weights written out
in float32, where the two must agree.  speed runs all programs in turns, every run
a process of its own: a prompt of 512 tokens, then 64 tokens after it.  llama.cpp
runs the file and a copy whose layers are of its type Q4_0, which it is fastest with.

Needs numpy, gguf and llama-cpp-python (`pip install llama-cpp-python` compiles
llama.cpp for this machine), and a build of tcq with its tests (make).
"""

import argparse
import ctypes
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import time

try:
    import gguf
    import llama_cpp
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing} (pip install numpy gguf llama-cpp-python)")
    sys.exit(77)

WINDOW = 512
PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n",
    "Once upon a time there was a",
    "The three laws of thermodynamics are",
    "Die Hauptstadt von Deutschland ist",
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
    "1 2 3 4 5 6",
    "この文章は",
]


class Llama:
    """The few calls of llama.cpp that are needed, with its default settings."""

    def __init__(self, path, threads, context=1024):
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(
            path.encode(), llama_cpp.llama_model_default_params())
        assert self.model, path
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.vocab_count = llama_cpp.llama_vocab_n_tokens(self.vocab)
        options = llama_cpp.llama_context_default_params()
        options.n_ctx = context
        options.n_batch = options.n_ubatch = WINDOW
        options.n_threads = options.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, options)
        assert self.context
        self.batch = llama_cpp.llama_batch_init(WINDOW, 0, 1)
        self.position = 0

    def tokenize(self, text):
        data = text.encode()
        room = (llama_cpp.llama_token * (len(data) + 8))()
        count = llama_cpp.llama_tokenize(self.vocab, data, len(data), room, len(room), True, True)
        return list(room[:count])

    def text(self, tokens):
        room = ctypes.create_string_buffer(256)
        out = b""
        for token in tokens:
            count = llama_cpp.llama_token_to_piece(self.vocab, token, room, 256, 0, True)
            out += room.raw[:count]
        return out.decode(errors="replace")

    def reset(self):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)
        self.position = 0

    def forward(self, tokens, every=False):
        """Logits after every token, or after the last."""
        batch = self.batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i] = token, self.position + i
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
            batch.logits[i] = every or i == len(tokens) - 1
        assert llama_cpp.llama_decode(self.context, batch) == 0
        self.position += len(tokens)
        rows = range(len(tokens)) if every else [len(tokens) - 1]
        return np.stack([np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self.context, i),
                                               (self.vocab_count,)) for i in rows])

    def is_end(self, token):
        return llama_cpp.llama_vocab_is_eog(self.vocab, token)


# ---------------------------------------------------------------------------
# Agreement
# ---------------------------------------------------------------------------

def rewrite(source, path, matrices=None):
    """The same model with every tensor as float32, or else the matrices of its
    layers as another type and the rest as it is."""
    reader = gguf.GGUFReader(source)
    fields = reader.fields
    writer = gguf.GGUFWriter(path, fields["general.architecture"].contents())
    for name, field in fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type",
                                                "general.quantization_version"):
            continue
        kind, inner = field.types[0], field.types[1] if len(field.types) > 1 else None
        writer.add_key_value(name, field.contents(), kind, sub_type=inner)
    for tensor in reader.tensors:
        if matrices and (len(tensor.shape) != 2 or not tensor.name.startswith("blk.")):
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
            continue
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if matrices:
            writer.add_tensor(tensor.name, gguf.quants.quantize(values, matrices), raw_dtype=matrices)
        else:
            writer.add_tensor(tensor.name, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tcq_tokens(bin_folder, model, text):
    data = text.encode()
    done = subprocess.run([f"{bin_folder}/tokenize", model, "3"], input=struct.pack("<I", len(data)) + data,
                          stdout=subprocess.PIPE, check=True)
    return [int(i) for i in done.stdout.decode().partition("\t")[0].split()]


def tcq_logits(bin_folder, model, tokens):
    done = subprocess.run([f"{bin_folder}/logits", model, "2", "0", "16", "native"],
                          input=np.asarray(tokens, np.uint32).tobytes(), stdout=subprocess.PIPE, check=True)
    return np.frombuffer(done.stdout, np.float32).reshape(len(tokens), -1)


def log_softmax(logits):
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def compare_windows(bin_folder, model, llama, tokens):
    """Perplexities of both and how far apart their distributions are."""
    losses, kl, same = [[], []], [], []
    for start in range(0, len(tokens), WINDOW):
        window = tokens[start:start + WINDOW]
        llama.reset()
        theirs = log_softmax(llama.forward(window, every=True))
        mine = log_softmax(tcq_logits(bin_folder, model, window))
        for loss, values in zip(losses, (mine, theirs)):
            loss.append(-values[np.arange(len(window) - 1), window[1:]])
        kl.append((np.exp(theirs) * (theirs - mine)).sum(axis=1)[:-1])
        same.append((theirs.argmax(axis=1) == mine.argmax(axis=1))[:-1])
    mine, theirs = (np.exp(np.concatenate(loss).mean()) for loss in losses)
    kl, same = np.concatenate(kl), np.concatenate(same)
    print(f"  perplexity of {len(tokens)} tokens, windows of {WINDOW}: tcq {mine:.4f}, llama.cpp {theirs:.4f}"
          f" ({(mine / theirs - 1) * 100:+.3f} %)")
    print(f"  KL divergence: mean {kl.mean():.2e}, largest {kl.max():.2e}; same top token: "
          f"{same.sum()} of {same.size}")


def greedy(llama, tokens, count):
    """Tokens and, for each, how far its logit lies above the next one's."""
    llama.reset()
    made, gaps = [], []
    logits = llama.forward(tokens)[0]
    while len(made) < count:
        best = int(logits.argmax())
        if llama.is_end(best):
            break
        second, first = np.partition(logits, -2)[-2:]
        made.append(best)
        gaps.append(float(first - second))
        logits = llama.forward([best])[0]
    return made, gaps


def compare_greedy(bin_folder, model, llama, count):
    """Both continue each prompt; where they part, both had the same tokens before."""
    agree = 0
    for prompt in PROMPTS:
        tokens = tcq_tokens(bin_folder, model, prompt)
        assert tokens == llama.tokenize(prompt), prompt
        theirs, gaps = greedy(llama, tokens, count)
        done = subprocess.run([f"{bin_folder}/tcq", "run", model, prompt, "--raw", "--quiet", "--json",
                               "-n", str(count)], stdout=subprocess.PIPE, check=True)
        mine, text = json.loads(done.stdout)["text"], llama.text(theirs)
        if mine == text:
            agree += 1
            continue
        logits = tcq_logits(bin_folder, model, tokens + theirs)[len(tokens) - 1:]
        at = next((i for i, token in enumerate(theirs) if logits[i].argmax() != token), len(theirs))
        theirs_above = f"{gaps[at]:.3f}" if at < len(gaps) else "(its end)"
        above = logits[at].max() - (logits[at][theirs[at]] if at < len(theirs) else 0)
        print(f"  {prompt!r}: part at token {at + 1}; llama.cpp's likeliest lies {theirs_above} above its "
              f"second, tcq's {above:.3f} above llama.cpp's")
    print(f"  greedy text of {count} tokens: {agree} of {len(PROMPTS)} prompts continue alike")


def agree(options):
    with tempfile.TemporaryDirectory(dir=options.work) as folder:  # 4 bytes a weight
        plain = os.path.join(folder, "float32.gguf")
        rewrite(options.model, plain)
        with open(options.text, encoding="utf-8") as file:
            text = file.read()
        for name, model in (("as it is", options.model), ("in float32", plain)):
            print(f"{os.path.basename(options.model)}, {name}:", flush=True)
            llama = Llama(model, 2)
            tokens = tcq_tokens(options.bin, model, text)
            theirs = llama.tokenize(text)
            assert tokens == theirs, "the tokens of the text differ"
            print(f"  tokens of {os.path.basename(options.text)}: all {len(tokens)} the same")
            compare_windows(options.bin, model, llama, tokens[:options.tokens])
            compare_greedy(options.bin, model, llama, 64)


# ---------------------------------------------------------------------------
# Speed
# ---------------------------------------------------------------------------

PREFILL, DECODE = 512, 64


def worker(model, threads):
    """One run of llama.cpp: JSON as tcq run prints it."""
    text = sys.stdin.read()
    llama = Llama(model, threads)
    tokens = llama.tokenize(text)
    llama.forward(tokens[:8])  # what is mapped at first use is not timed
    llama.reset()
    begin = time.perf_counter()
    last = llama.forward(tokens)[0]
    middle = time.perf_counter()
    for _ in range(DECODE):
        last = llama.forward([int(last.argmax())])[0]
    end = time.perf_counter()
    print(json.dumps({"prefill_tokens_per_second": len(tokens) / (middle - begin),
                      "decode_tokens_per_second": DECODE / (end - middle)}))


def prompt_of(options):
    """The longest beginning of the text with at most 512 tokens."""
    with open(options.text, encoding="utf-8") as file:
        words = re.findall(r"\S+\s*", file.read(20000))
    low, high = 1, len(words)
    while low < high:
        middle = (low + high + 1) // 2
        fits = len(tcq_tokens(options.bin, options.model, "".join(words[:middle]))) <= PREFILL
        low, high = (middle, high) if fits else (low, middle - 1)
    return "".join(words[:low])


def run_once(options, model, threads, prompt):
    """(prefill, decode) in tokens a second."""
    if model.startswith("llama.cpp "):
        command = [sys.executable, __file__, "worker", model.split(" ", 1)[1], "--threads", str(threads)]
    else:
        command = [f"{options.bin}/tcq", "run", *model.split(" "), "--raw", "--quiet", "--json", "-n",
                   str(DECODE), "--context", "1024", "--threads", str(threads)]
    done = subprocess.run(command, input=prompt.encode(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          check=True)
    result = json.loads(done.stdout)
    return result["prefill_tokens_per_second"], result["decode_tokens_per_second"]


def speed(options):
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        q4_0 = os.path.join(folder, "Q4_0.gguf")
        rewrite(options.model, q4_0, gguf.GGMLQuantizationType.Q4_0)
        models = [f"llama.cpp {path}" for path in (options.model, q4_0)]
        models += [options.model] + [entry for path in options.packed for entry in (path, f"{path} --int8")]
        print_speed(options, models)


def print_speed(options, models):
    prompt = prompt_of(options)
    print(f"prompt: {len(tcq_tokens(options.bin, options.model, prompt))} tokens, then {DECODE} one by one; "
          f"best of {options.rounds} runs (and their median), tokens a second")
    print("| | prefill, 1 thread | 2 threads | decode, 1 thread | 2 threads |\n|---|---|---|---|---|")
    rates = {}
    for _ in range(options.rounds):
        for threads in (1, 2):
            for model in models:
                rates.setdefault((model, threads), []).append(run_once(options, model, threads, prompt))
    for model in models:
        cells = [f"{max(r[part] for r in rates[model, threads]):.1f} "
                 f"({np.median([r[part] for r in rates[model, threads]]):.1f})"
                 for part in (0, 1) for threads in (1, 2)]
        name = re.sub(r"\S*/", "", model)
        print(f"| {name if name.startswith('llama') else 'tcq ' + name} | " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=["agree", "speed", "worker"])
    parser.add_argument("model", help="a GGUF file")
    parser.add_argument("packed", nargs="*", help="folders that tcq quantize made of it")
    parser.add_argument("--text", default="/usr/share/common-licenses/GPL-3")
    parser.add_argument("--tokens", type=int, default=1024, help="agree: of the text (1024)")
    parser.add_argument("--rounds", type=int, default=3, help="speed: runs of each (3)")
    parser.add_argument("--threads", type=int, default=2, help=argparse.SUPPRESS)
    parser.add_argument("--bin", default="build/release/bin", help="where tcq is (build/release/bin)")
    parser.add_argument("--work", default=None, help="where a float32 copy has room")
    options = parser.parse_args()
    global silent  # kept: llama.cpp calls it
    silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    if options.mode == "worker":
        worker(options.model, options.threads)
    else:
        {"agree": agree, "speed": speed}[options.mode](options)


main()
