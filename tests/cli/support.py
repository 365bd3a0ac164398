# SPDX-License-Identifier: Apache-2.0
"""Running the command, small models for it, and folders compared byte for byte."""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import unittest

COMMAND = os.environ["TCQ_COMMAND"]
SYNTH = os.environ["TCQ_SYNTH_MODEL"]


class Result:
    def __init__(self, done):
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    def json(self):
        return json.loads(self.out)


def tcq(*arguments, **options):
    done = subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True, **options)
    return Result(done)


def start(*arguments, **options):
    """The command in the background, for tests that interrupt it."""
    return subprocess.Popen([COMMAND, *map(str, arguments)], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, **options)


def tree(folder):
    """Every file of a folder with its bytes."""
    folder = pathlib.Path(folder)
    return {str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*")) if path.is_file()}


def write_tensors(path, tensors):
    """{name: (dtype, shape, bytes)} as a safetensors file."""
    header, data = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


class Case(unittest.TestCase):
    """A test with a folder of its own, self.at, deleted in the end."""

    def setUp(self):
        self.at = pathlib.Path(tempfile.mkdtemp(prefix="tcq-cli-"))
        self.addCleanup(shutil.rmtree, self.at, ignore_errors=True)

    def model(self, *arguments, name="model"):
        subprocess.run([SYNTH, str(self.at / name), *map(str, arguments)], check=True)
        return self.at / name

    def good(self, *arguments, **options):
        result = tcq(*arguments, **options)
        self.assertEqual(result.code, 0, f"tcq {arguments}: {result.err}")
        return result

    def bad(self, code, message, *arguments, **options):
        """The command ends with `code` and a message that contains `message`."""
        result = tcq(*arguments, **options)
        self.assertEqual(result.code, code, f"tcq {arguments}: {result.out}{result.err}")
        self.assertIn(message, result.err)
        self.assertTrue(result.err.startswith("tcq: ") or not message, result.err)
        return result

    def pack(self, source, *arguments, name="packed"):
        """Packed with a small trellis, which is fast."""
        out = self.at / name
        self.good("quantize", source, "-o", out, "--L", 8, *arguments)
        return out
