# SPDX-License-Identifier: Apache-2.0
"""SentencePiece tokenizers of GGUF files against the sentencepiece package: BPE
("llama") and unigram ("t5") models trained here, 2,500 strings in many scripts
each, with and without what GGUF can say about them.  Byte fallback, unknown
characters, dummy prefixes, normalization by a character map, user-defined
tokens; and the tokenizer.json that the file becomes, for BPE, read by tcq and by the
tokenizers package."""

import io
import os
import random
import re
import struct
import subprocess
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "python"))
from gguf_support import SKIPPED, Sizes, model_tensors, np, write_model
from random_text import WORDS, random_text

try:
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2
    from tokenizers import Tokenizer
except ImportError as missing:
    print(f"skipped: {missing} (pip install -r tests/python/requirements.txt)")
    sys.exit(SKIPPED)

TEXTS = 2500
USER = ["<mask>", "\n\n", "[[x]]"]
LLAMA = dict(normalization_rule_name="identity", remove_extra_whitespaces=False, byte_fallback=True)
CASES = {
    "llama": dict(model_type="bpe", **LLAMA),
    "llama, user-defined tokens": dict(model_type="bpe", user_defined_symbols=USER, **LLAMA),
    "llama, no prefix": dict(model_type="bpe", add_dummy_prefix=False, **LLAMA),
    "llama, unknown characters": dict(model_type="bpe", **{**LLAMA, "byte_fallback": False}),
    "llama, pieces across spaces": dict(model_type="bpe", split_by_whitespace=False, **LLAMA),
    "unigram": dict(model_type="unigram", **LLAMA),
    "unigram, user-defined tokens": dict(model_type="unigram", user_defined_symbols=USER, **LLAMA),
    "unigram, nmt_nfkc": dict(model_type="unigram", byte_fallback=True),
    "unigram, nmt_nfkc_cf, spaces": dict(model_type="unigram", normalization_rule_name="nmt_nfkc_cf",
                                         remove_extra_whitespaces=False),
    "unigram, nfkc, no prefix": dict(model_type="unigram", normalization_rule_name="nfkc",
                                     add_dummy_prefix=False),
}


def train(corpus, options):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus), model_writer=out, vocab_size=2000, character_coverage=0.98,
        hard_vocab_limit=False, max_sentence_length=100000, minloglevel=2, num_threads=2,
        **options)
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(out.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=out.getvalue()), proto


def write(path, proto, unigram):
    """As the converter writes it: pieces, scores, types and how to normalize."""
    pieces, rules = proto.pieces, proto.normalizer_spec

    def extra(writer):
        writer.add_tokenizer_model("t5" if unigram else "llama")
        writer.add_tokenizer_pre("default")
        writer.add_token_list([piece.piece.encode() for piece in pieces])
        writer.add_token_scores([piece.score for piece in pieces])
        writer.add_token_types([piece.type for piece in pieces])
        writer.add_add_space_prefix(rules.add_dummy_prefix)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_unk_token_id(0)
        if unigram:
            writer.add_remove_extra_whitespaces(rules.remove_extra_whitespaces)
            if rules.precompiled_charsmap:
                writer.add_precompiled_charsmap(rules.precompiled_charsmap)

    sizes = Sizes(vocab=len(pieces))
    tensors = model_tensors(np.random.default_rng(1), "llama", True, False, sizes)
    write_model(path, "llama", tensors, extra=extra, sizes=sizes)


def run(program, path, flags, texts):
    data = b"".join(struct.pack("<I", len(t)) + t for t in (t.encode() for t in texts))
    done = subprocess.run([program, path, str(flags)], input=data, stdout=subprocess.PIPE, check=True)
    lines = [line.partition("\t") for line in done.stdout.decode().splitlines()]
    return [([int(i) for i in ids.split()], bytes.fromhex(text).decode()) for ids, _, text in lines]


def expected_ids(processor, user, text):
    """What stands after a user-defined token is encoded like a text of its own,
    as llama.cpp and Hugging Face's converted tokenizers have it."""
    ids = []
    for part in re.split("(" + "|".join(map(re.escape, user)) + ")", text) if user else [text]:
        ids += [user[part]] if part in user else processor.encode(part)
    return ids


def carried(floats, path, folder):
    """The file's tokenizer.json, as quantize writes it beside packed weights."""
    made = os.path.join(folder, "tokenizer.json")
    with open(made, "wb") as file:
        file.write(subprocess.run([floats, "tokenizer", path], stdout=subprocess.PIPE, check=True).stdout)
    return made


def compare(name, processor, proto, made, texts):
    user = {piece.piece: i for i, piece in enumerate(proto.pieces) if piece.type == 4}
    for text, (ids, decoded) in zip(texts, made, strict=True):
        wanted = expected_ids(processor, user, text)
        assert ids == wanted, (name, text, [(i, processor.id_to_piece(i)) for i in ids],
                               [(i, processor.id_to_piece(i)) for i in wanted])
        # Several unknown characters are one token, written in one way or another.
        back = processor.decode(ids)
        assert decoded is None or 0 in ids or decoded == back, (name, text, decoded, back)


def main():
    program, floats = sys.argv[1:]
    seed = int(os.environ.get("TCQ_SEED", "1"))
    print(f"tokenizer_spm: TCQ_SEED={seed}")
    rng = random.Random(seed)
    here = open(__file__, encoding="utf-8").read()
    # Mostly words, so that characters met once stay unknown.
    corpus = here.splitlines() * 3 + ["".join(rng.choices(WORDS, k=12)).replace("\0", "") for _ in range(700)]
    corpus += [random_text(rng).replace("\0", "") for _ in range(150)]
    texts = [random_text(rng) for _ in range(TEXTS)]
    texts += ["", " ", "  ", "a  b ", " a", "\u2581", "a\u2581 b", "<s>a</s><unk>", "<0x0A>\n", here,
              "a<mask>b", "<mask><mask> a", "[[x]] \n\n b", "\u3000a\u3000", "\ufb01\u2460 \ufdfa"]
    with tempfile.TemporaryDirectory() as folder:
        for name, options in CASES.items():
            processor, proto = train(corpus, options)
            path = os.path.join(folder, "model.gguf")
            write(path, proto, options["model_type"] == "unigram")
            compare(name, processor, proto, run(program, path, 0, texts), texts)
            if options["model_type"] == "bpe":
                made = carried(floats, path, folder)
                compare(name + ", tokenizer.json", processor, proto, run(program, made, 0, texts), texts)
                plain = [text for text in texts if "<s>" not in text]  # always special there
                package = Tokenizer.from_file(made).encode_batch(plain, add_special_tokens=False)
                compare(name + ", tokenizers", processor, proto, [(e.ids, None) for e in package], plain)
            wrapped = run(program, path, 2, ["a"])[0][0]
            begin, end = ([], [2]) if options["model_type"] == "unigram" else ([1], [])
            assert wrapped == begin + processor.encode("a") + end, (name, wrapped)
            print(f"{name}: {len(texts)} texts, {len(proto.pieces)} tokens")


main()
