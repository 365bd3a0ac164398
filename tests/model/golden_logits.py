# SPDX-License-Identifier: Apache-2.0
"""Logits against those that transformers computed once, stored in
tests/golden/model by transformer.py --write; the weights are made here again
from their names, as they were there."""

import glob
import json
import os
import sys
import tempfile

from logits_support import check, check_folder, run, weights, write_folder

try:
    from safetensors import safe_open
except ImportError as missing:
    print(f"skipped: {missing} (pip install -r tests/python/requirements.txt)")
    sys.exit(77)


def compare(program, path):
    with safe_open(path, "np") as file:
        about = file.metadata()
        tokens, expected, expected_bf16 = (file.get_tensor(name)
                                           for name in ("tokens", "logits", "logits_bf16"))
    config, tensors = json.loads(about["config"]), weights(json.loads(about["shapes"]))
    with tempfile.TemporaryDirectory() as folder:
        write_folder(folder, config, tensors, "F32")
        check_folder(about["name"], program, folder, tokens, expected)
        write_folder(folder, config, tensors, "BF16")
        check("  weights of bfloat16", expected_bf16, run(program, folder, tokens), 1e-4)


def main():
    paths = sorted(glob.glob(os.path.join(os.path.dirname(__file__), "..", "golden", "model", "*.safetensors")))
    assert len(paths) == 9, paths
    for path in paths:
        compare(sys.argv[1], path)


main()
