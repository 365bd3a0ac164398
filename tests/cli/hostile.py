# SPDX-License-Identifier: Apache-2.0
"""Paths, names and folders that would lose data, hang or give an unreadable model."""
import json
import os
import shutil
import signal
import struct
import subprocess
import unittest

from support import COMMAND, Case, tree

UP = "model.layers.0.mlp.up_proj"


def write_model(folder, names, config="{}"):
    """One 1 x 64 float32 matrix (or, for a bias, vector) a name."""
    header, data = {}, b""
    for name in names:
        shape = [1, 64] if name.endswith(".weight") else [64]
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [len(data), len(data) + 256]}
        data += struct.pack("<64f", *[0.01 * (i - 30) for i in range(64)])
    text = json.dumps(header).encode()
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "config.json").write_text(config)
    return folder


class Lost(Case):
    """--force never deletes what is read, nor what is no model."""

    def refused(self, message, kept, *arguments, **options):
        before = tree(kept)
        self.bad(1, message, *arguments, "--force", **options)
        self.assertEqual(tree(kept), before)

    def test_source(self):
        model = write_model(self.at / "above" / "model", [UP + ".weight"])
        packed = self.pack(model)
        (self.at / "link").symlink_to(model)
        for out in (model, model.parent, self.at / "link", f"{model}/../model/"):
            for source in (model, model / "model.safetensors", self.at / "link"):
                self.refused("choose another output", model, "quantize", source, "-o", out)
        self.refused("choose another output", model, "quantize", ".", "-o", ".", cwd=model)
        self.refused("choose another output", packed, "dequantize", packed, "-o", packed)
        file = packed / "model.safetensors"
        self.refused("choose another output", packed, "dequantize", packed, "-o", file)
        self.refused("choose another output", packed, "matmul", packed, UP, "--x", model, "-o", file)
        self.good("quantize", model, "-o", model / "inside", "--L", 8)

    def test_parts(self):
        model = write_model(self.at / "model", [UP + ".weight", "norm.bias"])
        parts = [self.pack(model, "--shard", f"{i}/2", name=f"part{i}") for i in (1, 2)]
        self.refused("choose another output", parts[0], "merge", *parts, "-o", parts[0])

    def test_no_model(self):
        model = write_model(self.at / "model", [UP + ".weight"])
        (self.at / "thesis").mkdir()
        (self.at / "thesis" / "chapter").write_text("x")
        self.refused("holds no model", self.at / "thesis", "quantize", model, "-o",
                     self.at / "thesis")
        (self.at / "thesis" / "config.json").write_text("{}")  # of some other program
        self.refused("holds no model", self.at / "thesis", "quantize", model, "-o",
                     self.at / "thesis")
        (self.at / "thesis").rename(self.at / "out.partial")
        self.refused("holds no model", self.at / "out.partial", "quantize", model, "-o",
                     self.at / "out")

    def test_pipe(self):
        packed = self.pack(write_model(self.at / "model", [UP + ".weight"]))
        pipe = self.at / "pipe.safetensors"
        os.mkfifo(pipe)
        self.bad(1, "no regular file", "dequantize", packed, "-o", pipe, "--force", timeout=20)
        self.assertTrue(pipe.is_fifo())
        self.bad(1, "not a regular file", "inspect", pipe, timeout=20)  # and does not wait


class Output(Case):
    def test_link_and_dot(self):
        model = write_model(self.at / "model", [UP + ".weight"])
        for name in ("real", "here"):
            (self.at / name).mkdir()
        (self.at / "link").symlink_to("real")
        self.good("quantize", model, "-o", self.at / "link", "--L", 8)
        self.good("quantize", model, "-o", ".", "--L", 8, cwd=self.at / "here")
        self.assertTrue((self.at / "link").is_symlink())
        self.assertEqual(tree(self.at / "real"), tree(self.at / "here"))
        self.assertIn("model.safetensors", tree(self.at / "real"))

    def test_left_without_a_job(self):
        """Killed after its job file was deleted: nothing of it goes into the next output."""
        model = write_model(self.at / "model", [UP + ".weight"])
        whole = tree(self.pack(model, name="whole"))
        partial = self.at / "packed.partial"
        partial.mkdir()
        for name in ("model-00001-of-00002.safetensors", "model.safetensors.index.json"):
            (partial / name).write_text("stale")
        self.assertEqual(tree(self.pack(model, "--resume")), whole)

    def test_links_among_companions(self):
        model = write_model(self.at / "model", [UP + ".weight"])
        (self.at / "note.txt").write_text("beside the model, not of it")
        (model / "up").symlink_to("..")
        (model / "vocab.txt").symlink_to(self.at / "note.txt")
        self.assertEqual(set(tree(self.pack(model))),
                         {"config.json", "model.safetensors", "vocab.txt"})

    def test_shard_numbers(self):
        for value in ("1/4294967297", "4294967297/1", " 1/2", "1/ 2", "1/2 ", "1/", "0x1/2"):
            self.bad(2, "expected I/N", "quantize", "model", "-o", "out", "--shard", value)


class Bytes(Case):
    """Paths that are no UTF-8."""

    def setUp(self):
        super().setUp()
        self.path = os.path.join(os.fsencode(self.at), b"m\xff\xe9.d")
        self.source = write_model(self.at / "source", [UP + ".weight"])
        os.rename(self.source, self.path)

    def test_json(self):
        packed = self.path + b".packed"
        path = os.fsencode(self.at).decode() + "/m\ufffd\ufffd.d"
        report = self.run_bytes("quantize", self.path, "-o", packed, "--L", "8", "--json")
        self.assertEqual(report["output"], path + ".packed")
        for command in ("inspect", "verify"):
            self.assertEqual(self.run_bytes(command, packed, "--json")["path"], path + ".packed")
        synth = self.path + b".synth"
        self.run_bytes("synth", "--shape", "smollm2-135m", "--layers", "1", "-o", synth)
        self.assertEqual(self.run_bytes("run", synth, "x", "-n", "2", "--json")["tokens"], 2)
        text = os.path.join(os.fsencode(self.at), b"t\xff.txt")
        with open(text, "w") as file:
            file.write("a few words")
        report = self.run_bytes("eval", synth, "--text", text, "--json")
        self.assertGreater(report["scored"], 0)
        self.run_bytes("bench", "--model", synth, "--json", text)
        with open(text) as file:
            self.assertEqual(json.load(file)["model"], path + ".synth")
        self.run_bytes("dequantize", packed, "-o", self.path + b".plain")

    def test_resume(self):
        """That the source has changed since is seen whatever its file's name."""
        file = os.path.join(os.fsencode(self.large()), b"w\xff.safetensors")
        arguments = ["quantize", file, "-o", self.path + b".out", "--L", "8"]
        script = "trap '' XFSZ; ulimit -f 20; exec \"$0\" \"$@\""
        done = subprocess.run(["bash", "-c", script, COMMAND, *arguments], capture_output=True)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(b"File too large", done.stderr)
        os.utime(file, (1, 1))
        done = subprocess.run([COMMAND, *arguments, "--resume"], capture_output=True)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(b"'source files' was", done.stderr)

    def large(self):
        folder = self.model(1, 128, 128, name="large")
        os.rename(folder / "model.safetensors", os.fsencode(folder) + b"/w\xff.safetensors")
        return folder

    def run_bytes(self, *arguments):
        done = subprocess.run([COMMAND, *arguments], capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout) if b"{" in done.stdout[:2] else None


class Changing(Case):
    """Files that change while they are read."""

    def setUp(self):
        super().setUp()
        # a byte a token, so that it soon says something, and two seconds of them
        self.model(6, 512, 1536, 256, name="m")
        self.good("synth", "--shape", "smollm2-135m", "--layers", 1, "-o", self.at / "synth")
        shutil.copy(self.at / "synth" / "tokenizer.json", self.at / "m")
        self.weights = self.at / "m" / "model.safetensors"

    def running(self):
        process = subprocess.Popen([COMMAND, "run", str(self.at / "m"), "x", "-n", "0"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.kill)
        process.stdout.read(1)  # it has loaded, and goes on
        return process

    def test_cut_off(self):
        process = self.running()
        os.truncate(self.weights, 1 << 20)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1, err)
        self.assertEqual(err.decode(), "tcq: a file that was being read was cut off meanwhile, "
                                       "or its disk failed\n")

    def test_replaced(self):
        """What was opened is read to its end, whatever has its name by then."""
        process = self.running()
        (self.at / "other").write_bytes(b"not a model")
        os.replace(self.at / "other", self.weights)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, err)
        self.bad(1, "model.safetensors", "run", self.at / "m", "x")

    def test_overwritten(self):
        """Other bytes under the same name give other text, or numbers that are none;
        never a read outside of the file."""
        process = self.running()
        with open(self.weights, "r+b") as file:
            file.seek(1 << 20)
            file.write(b"\xff" * (8 << 20))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        self.assertIn(process.returncode, (0, 1), err)


class Names(Case):
    def test_reserved_modules(self):
        for name in ("bits", "mode", "group_size", "trellis", "quant_method"):
            model = write_model(self.at / name, [name + ".weight"])
            self.bad(1, "is not a module's path", "quantize", model, "-o", self.at / "out",
                     "--include", "*")
            self.assertFalse((self.at / "out").exists())

    def test_biases(self):
        model = write_model(self.at / "model", ["a.weight", "a.biases", UP + ".weight"])
        packed = self.pack(model, "--include", "*")
        self.good("verify", packed, "--against", model)

    def test_numbers_of_config(self):
        big = '"big": 12345678901234567890123'
        model = write_model(self.at / "model", [UP + ".weight"], '{"a": 1.10, ' + big + "}")
        packed = self.pack(model)
        self.good("dequantize", packed, "-o", self.at / "plain")
        text = (self.at / "plain" / "config.json").read_text()
        self.assertIn(big, text)
        self.assertIn('"a": 1.10', text)
        self.assertEqual(set(json.loads(text)), {"a", "big"})


if __name__ == "__main__":
    unittest.main(verbosity=1)
