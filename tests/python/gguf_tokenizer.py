# SPDX-License-Identifier: Apache-2.0
"""A tokenizer that goes into a GGUF file and comes out as tokenizer.json turns
texts into the same ids: byte-level BPE trained here for each pre-tokenizer,
with special tokens, with and without tokens around each text."""

import json
import os
import subprocess
import sys
import tempfile

from gguf_support import SKIPPED, Sizes, model_tensors, start, write_model

try:
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
except ImportError as missing:
    print(f"SKIPPED: {missing} (pip install -r tests/python/requirements.txt)")
    sys.exit(SKIPPED)

TEXTS = [
    "Hello world, it's 2024! I'LL don't WE'RE",
    "  leading\n\n\ttabs and   spaces  \r\n end ",
    "naïve café Å (composed) and A\u030a (not), 日本語 テスト, emoji 🙂👩‍👩‍👧",
    "<|im_start|>user\nhi<|im_end|><tool> 1234567 3.14159 x_1/y-2",
    "", " ", "a", "def f(x):\n    return x ** 2  # ½ Ⅷ",
]
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def byte_level(cuts):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=cuts)


def pattern(text):
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(text), "isolated", invert=False), byte_level(False)])


KINDS = {
    "gpt-2": byte_level(True),
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(True)]),
    "llama-bpe": pattern(WORDS % "{1,3}"),
    "qwen2": pattern(WORDS % ""),
}


def train(kind):
    tokenizer = Tokenizer(models.BPE(ignore_merges=kind == "llama-bpe"))
    tokenizer.pre_tokenizer = KINDS[kind]
    tokenizer.decoder = decoders.ByteLevel()
    if kind == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=SPECIALS, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(TEXTS * 20, trainer)
    return tokenizer


def write(path, rng, kind, tokenizer, begins):
    """Writes the file; token <tool> is user-defined, two pad the embedding."""
    made = json.loads(tokenizer.to_str())
    vocab = sorted(made["model"]["vocab"].items(), key=lambda item: item[1])
    merges = [m if isinstance(m, str) else " ".join(m) for m in made["model"]["merges"]]
    tokens = [text for text, _ in vocab] + ["<tool>", "[PAD1]", "[PAD2]"]
    types = [3 if t in SPECIALS else 4 if t == "<tool>" else 5 if t.startswith("[PAD") else 1
             for t in tokens]

    def extra(writer):
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(kind)
        writer.add_token_list(tokens)
        writer.add_token_types(types)
        writer.add_token_merges(merges)
        writer.add_bos_token_id(0)
        writer.add_eos_token_id(2)
        writer.add_add_bos_token(begins)
        writer.add_add_eos_token(begins)
        writer.add_chat_template("{{ messages }}\n")

    sizes = Sizes(vocab=len(tokens))
    tensors = model_tensors(rng, "llama", True, False, sizes)
    write_model(path, "llama", tensors, extra=extra, sizes=sizes)


def made_by(program, mode, path):
    done = subprocess.run([program, mode, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def check(program, path, rng, kind, begins):
    tokenizer = train(kind)
    write(path, rng, kind, tokenizer, begins)
    tokenizer.add_tokens(["<tool>"])
    carried = Tokenizer.from_str(made_by(program, "tokenizer", path))
    if begins:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|endoftext|> $A <|im_end|>",
            pair="<|endoftext|> $A <|im_end|> <|endoftext|>:1 $B:1 <|im_end|>:1",
            special_tokens=[("<|endoftext|>", 0), ("<|im_end|>", 2)])
    for text in TEXTS:
        expected, actual = tokenizer.encode(text), carried.encode(text)
        assert actual.ids == expected.ids, (kind, text, expected.tokens, actual.tokens)
        assert carried.decode(actual.ids, skip_special_tokens=False) == \
            tokenizer.decode(expected.ids, skip_special_tokens=False)
    assert carried.encode("a", "b").ids == tokenizer.encode("a", "b").ids
    config = json.loads(made_by(program, "tokenizer_config", path))
    assert config["bos_token"] == "<|endoftext|>" and config["eos_token"] == "<|im_end|>"
    assert config["add_bos_token"] is begins and config["chat_template"] == "{{ messages }}\n"
    print(f"{kind}, begins {begins}: {len(TEXTS)} texts, {carried.get_vocab_size()} tokens")


def main():
    program = sys.argv[1]
    rng = start("gguf_tokenizer", 17)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.gguf")
        for kind in KINDS:
            for begins in (False, True):
                check(program, path, rng, kind, begins)


main()
