# SPDX-License-Identifier: Apache-2.0
"""What `tcq quantize` wrote, decoded by the second implementation, is what
`tcq dequantize` makes of it, to the bit: every k, both axes and layouts."""

import os
import pathlib
import subprocess
import sys
import tempfile

from tcq_reference import compare, packed_modules, read_model

COMMAND = os.environ["TCQ_COMMAND"]

# hidden, intermediate, options, type to decode to
RUNS = [
    *[(64, 192, ["--bits", str(k), "--L", "8"], "f32") for k in range(1, 7)],
    (64, 192, ["--bits", "3"], "bf16"),
    (128, 192, ["--bits", "2", "--L", "9", "--axis", "0"], "f16"),
    (64, 128, ["--bits", "4", "--L", "16", "--include", "*.k_proj"], "f32"),
    (256, 512, ["--preset", "mlx-bun"], "f32"),
    (512, 256, ["--preset", "mlx-bun", "--interleave"], "bf16"),
    (128, 256, ["--L", "8", "--bits-for", "*.down_proj=4", "--shard-size", "64KiB"], "bf16"),
]


def run(*arguments):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(map(str, arguments))}: {done.returncode}\n{done.stderr}"


def check(synth, folder, number, hidden, intermediate, options, dtype):
    source, packed, plain = (folder / f"{part}{number}" for part in ("source", "packed", "plain"))
    run(synth, source, 1, hidden, intermediate, 20)
    run(COMMAND, "quantize", source, "-o", packed, "--quiet", *options)
    run(COMMAND, "dequantize", packed, "-o", f"{plain}.safetensors", "--dtype", dtype, "--quiet")
    count, problems = compare(packed, f"{plain}.safetensors", dtype)
    print(f"{' '.join(options)}: {count} packed modules")
    assert count and not problems, problems
    if "--interleave" in options:
        tensors = read_model(packed)
        ranks = {tensors[m + ".weight"].array.ndim for m in packed_modules(packed)}
        assert ranks == {2, 3}, ranks


def main(synth):
    with tempfile.TemporaryDirectory() as folder:
        for number, settings in enumerate(RUNS):
            check(synth, pathlib.Path(folder), number, *settings)


if __name__ == "__main__":
    main(sys.argv[1])
