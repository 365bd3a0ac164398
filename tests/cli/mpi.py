# SPDX-License-Identifier: Apache-2.0
"""tcq quantize under mpirun with 4 ranks: the same bytes as one process, and a
rank that dies.  Registered in builds with TCQ_MPI."""
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import time
import unittest

from support import COMMAND, Case, tree, write_tensors

MPIRUN = ["mpirun", "--oversubscribe", "-n", "4"]
if os.getuid() == 0:
    MPIRUN.insert(1, "--allow-run-as-root")


class Mpi(Case):
    def setUp(self):
        super().setUp()
        self.source = self.model(6, 256, 512)
        self.out, self.partial = self.at / "out", self.at / "out.partial"

    def arguments(self, *more, L=10):
        return [COMMAND, "quantize", str(self.source), "-o", str(self.out), "--L", str(L), *more]

    def undisturbed(self, *more):
        arguments = [x.replace(str(self.out), str(self.at / "whole")) for x in self.arguments(*more)]
        subprocess.run(arguments, check=True, capture_output=True)
        return tree(self.at / "whole")

    def mpirun(self, *more):
        return subprocess.run(MPIRUN + self.arguments(*more), capture_output=True, text=True,
                              timeout=300)

    def test_same_bytes(self):
        for more in ([], ["--shard-size", "200KiB", "--force"], ["--axis", "0", "--force"]):
            expected = self.undisturbed(*more)
            done = self.mpirun(*more)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(tree(self.out), expected)
            self.assertFalse(self.partial.exists())

    def test_warning_knows_all_tensors(self):
        """Every tensor has an outlier, whichever rank packs it."""
        values = [0.02 * ((37 * i) % 64 - 31.5) / 32 for i in range(4 * 64)]
        values[70] = 0.1
        data = struct.pack("<256f", *values)
        self.source = write_tensors(self.at / "outliers.safetensors", {
            f"model.layers.{i}.mlp.up_proj.weight": ("F32", [4, 64], data) for i in range(40)})
        expected = self.good(*self.arguments()[1:]).err
        self.assertIn("in 40 tensors", expected)
        done = self.mpirun("--force")
        self.assertEqual(done.returncode, 0, done.stderr)
        warning = [line for line in expected.splitlines() if "outliers are cut off" in line]
        self.assertEqual(len(warning), 1)
        self.assertIn(warning[0], done.stderr)

    def ranks(self, process):
        """Process ids of the ranks: mpirun's children."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
                name = (path.parent / "comm").read_text().strip()
            except OSError:
                continue
            if int(fields[1]) == process.pid and name == "tcq":
                found.append(int(path.parent.name))
        return sorted(found)

    def test_a_rank_is_killed(self):
        expected = self.undisturbed()
        process = subprocess.Popen(MPIRUN + self.arguments(), stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 100
        while time.monotonic() < deadline and process.poll() is None:
            if len(list(self.partial.glob("parts/*.safetensors"))) >= 8:
                break
            time.sleep(0.002)
        os.kill(self.ranks(process)[2], signal.SIGKILL)
        _, err = process.communicate(timeout=100)
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("Killed", err)
        self.assertFalse(self.out.exists())
        self.assertTrue(self.partial.exists())
        done = len(list(self.partial.glob("parts/*.safetensors")))
        self.assertLess(done, 56)
        again = self.mpirun()
        self.assertNotEqual(again.returncode, 0)
        self.assertIn("--resume", again.stderr)
        again = self.mpirun("--resume")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(tree(self.out), expected)

    def test_failures_reach_all_ranks(self):
        self.source = self.model(1, 128, 128, 100, "nan", name="nan")
        done = self.mpirun()
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("row 3, column 5 is nan", done.stderr)
        self.assertFalse(self.out.exists() or self.partial.exists())
        self.source = self.at / "missing"
        self.assertNotEqual(self.mpirun().returncode, 0)


if __name__ == "__main__":
    if not shutil.which("mpirun"):
        print("SKIPPED: there is no mpirun")
        sys.exit(77)
    unittest.main(verbosity=1)
