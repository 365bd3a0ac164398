# SPDX-License-Identifier: Apache-2.0
"""Runs of tcq quantize that are killed or interrupted, and go on."""
import os
import shutil
import signal
import time
import unittest

from support import Case, start, tree


class Resume(Case):
    """One model, large enough that a run can be caught half-way."""

    def setUp(self):
        super().setUp()
        self.source = self.model(6, 256, 512)
        self.out, self.partial = self.at / "out", self.at / "out.partial"

    def arguments(self, *more):
        return ["quantize", self.source, "-o", self.out, "--L", 10, "--threads", 1, *more]

    def tensors_done(self):
        """Lines of the lists of finished tensors, and files that are whole."""
        lists = self.partial.glob("*.done")
        return (sum(len(path.read_bytes().splitlines()) for path in lists)
                + 100 * len(list(self.partial.glob("*.safetensors"))))

    def interrupt(self, number, *more, after=20, **options):
        """Starts a run and sends the signal once `after` tensors are done."""
        process = start(*self.arguments(*more), **options)
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            if self.partial.exists() and self.tensors_done() >= after:
                process.send_signal(number)
                break
            time.sleep(0.002)
        _, err = process.communicate(timeout=60)
        self.assertNotEqual(process.returncode, 0, "the run ended before it was interrupted")
        self.assertFalse(self.out.exists())
        self.assertTrue(self.partial.exists())
        return process.returncode, err

    def undisturbed(self, *more):
        self.good("quantize", self.source, "-o", self.at / "whole", "--L", 10, *more)
        return tree(self.at / "whole")

    def test_kill(self):
        expected = self.undisturbed()
        self.interrupt(signal.SIGKILL)
        done = self.tensors_done()
        self.bad(1, "continue it with --resume or discard it with --force", *self.arguments())
        for path in self.partial.glob("*.partial"):  # nothing of it passes for a model
            self.bad(1, "tcq: ", "inspect", path)
        self.bad(1, "tcq: ", "inspect", self.partial)
        result = self.good(*self.arguments("--resume"))
        self.assertIn("tensors are there already", result.err)
        there, total = result.err.split(" tensors are there")[0].split()[-3::2]
        plan = self.good("quantize", self.source, "--dry-run", "--json").json()
        self.assertEqual(int(total), len(plan["tensors"]))
        self.assertGreaterEqual(2 * int(there), done - 1)  # words and scales are two
        self.assertEqual(tree(self.out), expected)
        self.assertFalse(self.partial.exists())

    def test_kill_twice_with_shards(self):
        expected = self.undisturbed("--shard-size", "200KiB")
        self.interrupt(signal.SIGKILL, "--shard-size", "200KiB", after=5)
        self.interrupt(signal.SIGKILL, "--shard-size", "200KiB", "--resume", after=205)
        self.good(*self.arguments("--shard-size", "200KiB", "--resume"))
        self.assertEqual(tree(self.out), expected)

    def test_interrupt(self):
        expected = self.undisturbed("--axis", "0")
        for number in (signal.SIGINT, signal.SIGTERM):
            shutil.rmtree(self.partial, ignore_errors=True)
            code, err = self.interrupt(number, "--axis", "0")
            self.assertEqual(code, 1)
            self.assertIn("interrupted; the same command with --resume goes on at tensor 'model.",
                          err)
        self.good(*self.arguments("--axis", "0", "--resume"))
        self.assertEqual(tree(self.out), expected)

    def test_closed_descriptors(self):
        """No message lands in a file that has the number of a closed stdin, stdout or stderr."""
        expected = self.undisturbed()
        for closed in ((2,), (1, 2), (0, 2), (0, 1, 2)):
            code, _ = self.interrupt(
                signal.SIGINT, preexec_fn=lambda: [os.close(fd) for fd in closed])
            self.assertEqual(code, 1)
            for path in self.partial.iterdir():
                self.assertNotIn(b"interrupted", path.read_bytes(), (closed, path))
            self.good(*self.arguments("--resume"))
            self.assertEqual(tree(self.out), expected)
            shutil.rmtree(self.out)

    def test_other_options(self):
        self.interrupt(signal.SIGKILL)
        self.bad(1, "cannot be resumed: '--bits' was 3, is 4",
                 *self.arguments("--resume", "--bits", 4))
        self.bad(1, "'--exclude' was [], is [\"*.up_proj\"]",
                 *self.arguments("--resume", "--exclude", "*.up_proj"))
        os.utime(self.source / "model.safetensors", (1, 1))  # another file, by all signs
        self.bad(1, "'source files' was", *self.arguments("--resume"))
        self.good(*self.arguments("--force"))

    def test_resume_of_nothing(self):
        self.good(*self.arguments("--resume"))
        self.bad(1, "exists already", *self.arguments("--resume"))

    def test_two_at_once(self):
        process = start(*self.arguments("--L", 13))
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        while not self.partial.exists() or not self.tensors_done():
            time.sleep(0.002)
        for option in ("--resume", "--force"):
            self.bad(1, "another tcq is writing there", *self.arguments("--L", 13, option))


if __name__ == "__main__":
    unittest.main(verbosity=1)
