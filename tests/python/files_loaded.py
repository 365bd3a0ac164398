# SPDX-License-Identifier: Apache-2.0
"""Python's safetensors loads what our writer writes: random plans of tensors of
every type, empty and scalar ones among them, under names of all kinds."""

import os
import random
import subprocess
import sys
import tempfile

from tcq_reference import NUMPY, np, safetensors

NAMES = ["model.layers.{}.weight", "caf\u00e9 {}", "quote\" {}", "back\\slash {}", "\u6a21\u578b{}", "a b\t{}"]


def plan_line(rng, i):
    dtype = rng.choice(sorted(NUMPY))
    shape = [rng.choice([0, 1, 2, 3, 7, 64]) if rng.random() < 0.9 else 0 for _ in range(rng.randrange(4))]
    return dtype, shape, rng.choice(NAMES).format(i)


def expected_bytes(i, nbytes):
    return ((31 * i + 7 * np.arange(nbytes) + 1) & 255).astype(np.uint8).tobytes()


def check(program, rng, folder):
    plan = [plan_line(rng, i) for i in range(rng.randrange(30))]
    path = os.path.join(folder, "m.safetensors")
    text = "".join(f"{d} {len(s)} {''.join(f'{n} ' for n in s)}{name}\n" for d, s, name in plan)
    subprocess.run([program, path], input=text.encode(), check=True)
    with open(path, "rb") as file:
        data = file.read()
    loaded = dict(safetensors.deserialize(data))
    assert set(loaded) == {name for _, _, name in plan}
    for i, (dtype, shape, name) in enumerate(plan):
        tensor = loaded[name]
        nbytes = int(np.prod(shape)) * np.dtype(NUMPY[dtype]).itemsize
        assert tensor["dtype"] == dtype and tensor["shape"] == shape, name
        assert bytes(tensor["data"]) == expected_bytes(i, nbytes), name
    with safetensors.safe_open(path, "np") as opened:  # the lazy reader, too
        assert opened.metadata() == {"made by": 'files_write "quoted"'}
        assert set(opened.keys()) == set(loaded)
    assert not os.path.exists(path + ".partial")


def main(program):
    seed = int(os.environ.get("TCQ_SEED", "5"), 0)
    print(f"files_loaded: TCQ_SEED={seed}")
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(60):
            check(program, rng, folder)


if __name__ == "__main__":
    main(sys.argv[1])
