#!/usr/bin/env python3
"""Writes npy/*.npy with NumPy (and ml_dtypes for bfloat16).

    python3 -m venv v && v/bin/pip install numpy==2.4.6 ml_dtypes==0.6.0
    v/bin/python tests/golden/make_npy_goldens.py

Element k of an array, counted in C order, is k - 5 for signed and floating types, 3 k for unsigned
ones and k % 3 == 0 for bool, cast to the dtype: the readers' tests know the values by this rule.
A file is named <dtype>_<shape>_<c|f>[_be][_v<version>].npy; a shape is its extents joined by x.
"""
import pathlib

import ml_dtypes
import numpy as np

TYPES = {
    "bool": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
}
out = pathlib.Path(__file__).with_name("npy")
out.mkdir(exist_ok=True)
for old in out.glob("*.npy"):
    old.unlink()


def values(name, shape):
    k = np.arange(int(np.prod(shape, dtype=np.int64)))
    v = k % 3 == 0 if name == "bool" else 3 * k if name[0] == "u" else k - 5
    return v.astype(TYPES[name]).reshape(shape)


def write(name, shape, order="c", big=False, version=None):
    a = values(name, shape)
    if big:
        a = a.astype(a.dtype.newbyteorder(">"))
    a = np.asfortranarray(a) if order == "f" else a
    stem = f"{name}_{'x'.join(map(str, shape)) or 'scalar'}_{order}"
    stem += "_be" * big + (f"_v{version}" if version else "")
    with open(out / (stem + ".npy"), "wb") as f:
        np.lib.format.write_array(f, a, version=(version, 0) if version else None)


for name in TYPES:
    for shape in [(3, 4), (2, 3, 4)]:
        for order in "cf":
            write(name, shape, order)
    write(name, (5,))
    write(name, ())
    if np.dtype(TYPES[name]).itemsize > 1 and name != "bf16":
        write(name, (2, 3, 4), "c", big=True)
        write(name, (2, 3, 4), "f", big=True)
for version in (1, 2, 3):
    write("f32", (3, 4), "c", version=version)
    write("f64", (3, 4), "f", version=version)
for shape in [(0,), (0, 3), (3, 0, 2), (1, 1, 1), (2, 1, 3, 1), (1, 5), (2, 2, 2, 2, 3)]:
    write("f32", shape)
    write("i16", shape, "f")
# An archive of NumPy's, and one that is compressed.
arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "f": np.asfortranarray(np.eye(3)),
          "b": np.arange(5, dtype=">i4"), "s": np.array(7, np.int8), "\u00e9": np.zeros((0, 2))}
archives = out.parent / "npz"
archives.mkdir(exist_ok=True)
np.savez(archives / "savez.npz", **arrays)
np.savez_compressed(archives / "savez_compressed.npz", **arrays)
# Arrays whose deflated bytes have every kind of block and matches of every length, near and far.
noise = [1]
while len(noise) < 12000:
    noise.append(noise[-1] * 48271 % 2147483647)
noise = np.array([n >> 8 & 255 for n in noise], np.uint8)
count = np.arange(60000)
np.savez_compressed(
    archives / "savez_compressed_large.npz",
    noise=noise,
    far=np.concatenate([noise[:3000], np.zeros(29000, np.uint8), noise[:3000]]),
    squares=(count * count % 251).astype(np.int32).reshape(300, 200),
    columns=np.asfortranarray((count % 77).astype(">f4").reshape(200, 300)),
    flags=(count % 3 == 0), ramp=count[:4000].astype(np.float64).reshape(40, 100))
print(len(list(out.glob("*.npy"))), "files,", sum(p.stat().st_size for p in out.glob("*.npy")), "bytes")
