# SPDX-License-Identifier: Apache-2.0
"""Texts in many scripts for the tests of tokenizers."""

import unicodedata

RANGES = [(0x20, 0x7e), (0x20, 0x7e), (0x20, 0x7e), (0xa0, 0x24f), (0x370, 0x3ff), (0x400, 0x4ff),
          (0x590, 0x5ff), (0x600, 0x6ff), (0x900, 0x97f), (0xe00, 0xe7f), (0x1100, 0x11ff),
          (0x2000, 0x206f), (0x20a0, 0x2bff), (0x3000, 0x30ff), (0x4e00, 0x9fff),
          (0xac00, 0xd7a3), (0xfb00, 0xfdff), (0xfe00, 0xffef), (0x1d400, 0x1d7ff),
          (0x1f300, 0x1faff), (0x20000, 0x2a6df), (0xe0100, 0xe01ef), (0, 0x1f), (0x300, 0x36f)]
WORDS = ["don't", "I'LL", "we've", "hello", " world", "\r\n", "\n\n", "   ", "\t", "12345", "3.14",
         "<|im_start|>", "<|im_end|>", " <mask> ", "x<mask>y", "éàü", "e\u0301", "日本語", "مرحبا", "עברית",
         "привет", "สวัสดี", "한국어", "🙂👍🏽", "👩‍👩‍👧", "ſ't", "'ſ", "\u180e", "\u2028", "\x00", "\ufeff", "\x85",
         "def f(x):\n    return x**2  # ok\n", "https://a.b/c?d=e&f", "ﬁ", "Å", "\u212b", "①", "Ⅷ", "½"]


def random_text(rng):
    parts = []
    for _ in range(rng.randrange(0, 12)):
        if rng.random() < 0.4:
            parts.append(rng.choice(WORDS))
            continue
        low, high = rng.choice(RANGES)
        run = "".join(chr(rng.randint(low, high)) for _ in range(rng.randrange(1, 9)))
        # Code points that this Python's Unicode does not know have properties
        # that differ between libraries of different age.
        parts.append("".join(c for c in run if unicodedata.category(c) not in ("Cn", "Cs")))
        if rng.random() < 0.5:
            parts.append(" ")
    return "".join(parts)
