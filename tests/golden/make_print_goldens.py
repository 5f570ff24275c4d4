#!/usr/bin/env python3
"""Writes print.inc: arrays as exact bits, and how NumPy (and ml_dtypes, for bfloat16) print them.

    python3 -m venv v && v/bin/pip install numpy==2.4.6 ml_dtypes==0.6.0
    v/bin/python tests/golden/make_print_goldens.py

Each line of print.inc is {dtype, shape, prefix, bits, text}; `bits` are the little-endian bytes of
the elements in hexadecimal, repeated from the start until the shape is filled.
"""
import itertools
import pathlib

import ml_dtypes
import numpy as np

TYPES = {
    "bool_": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
}
FLOATS = ["f16", "f32", "f64"]
rng = np.random.default_rng(20240229)
lines = []


def add(name, values, shape=None, prefix=""):
    """`values` fills `shape` by repetition; without a shape it is printed as it is."""
    values = np.asarray(values, TYPES[name])
    shape = values.shape if shape is None else shape
    size = int(np.prod(shape, dtype=np.int64))
    flat = np.resize(values.reshape(-1), size).reshape(shape) if size else np.zeros(shape, values.dtype)
    text = np.array2string(flat, prefix=prefix) if prefix else str(flat)
    dims = ", ".join(map(str, shape))
    lines.append(f'{{DType::{name}, {{{dims}}}, "{prefix}", "{values.tobytes().hex()}", R"({text})"}},')


def integers(name):
    info = np.iinfo(TYPES[name])
    t = TYPES[name]
    add(name, np.arange(6).reshape(2, 3))
    add(name, [info.min, info.max, 0])
    add(name, info.max)
    add(name, info.min)
    add(name, 0)
    add(name, rng.integers(info.min, info.max, 40, t, endpoint=True))
    add(name, rng.integers(info.min, info.max, (3, 5, 4), t, endpoint=True))
    add(name, np.arange(100), (1001,))
    add(name, np.arange(100), (40, 30))


def magnitudes(t):
    info = np.finfo(t)
    return [float(info.max), float(info.tiny), float(info.smallest_subnormal), float(info.eps)]


def floats(name):
    t = TYPES[name]
    cast = lambda *v: np.array(v, t)
    with np.errstate(all="ignore"):
        for v in [0.0, -0.0, 1, -1, 0.1, 1 / 3, 2.5, 100, 999, 999.5, 1000, 1001, 12345, 999999,
                  1e6, 1234567, 1e8, 123456789, 1e15, 1e16, 1e17, 1e-3, 1e-4, 9.9e-5, 1e-5, 1.5e-7,
                  np.nan, np.inf, -np.inf, *magnitudes(t)]:
            add(name, cast(v).reshape(()))
            add(name, cast(v))
        add(name, -np.array(np.nan).astype(t))
        add(name, cast(1, 2, 3))
        add(name, cast(1.5, -2.25, 3))
        add(name, cast(0, 0, 0))
        add(name, cast(-0.0, 0))
        add(name, cast(1, np.nan, 3))
        add(name, cast(np.nan, np.nan))
        add(name, cast(np.inf, -np.inf))
        add(name, cast(np.inf))
        add(name, cast(1.25, -np.inf))
        add(name, cast(np.nan, 1e-7, 1e3, -np.inf))
        add(name, cast(0.0001, 1))
        add(name, cast(0.0001, 0.05))
        add(name, cast(0.00009, 1))
        add(name, cast(1, 1000))
        add(name, cast(1, 999))
        add(name, cast(1, 1001))
        add(name, cast(0.001, 1))
        add(name, cast(0.001, 1.001))
        add(name, cast(0.1, 12345))
        add(name, cast(0.1, 1.2345679e10))
        add(name, cast(0.1, 0.123456789, 5e-5))
        add(name, cast(1e5, 2e5))
        add(name, cast(999999, 1))
        add(name, cast(1e6, 2e6))
        add(name, cast(99999999, 99999998))
        add(name, cast(1e8, 2e8))
        add(name, cast(1e-100, 1))
        add(name, cast(1e-5, 1e-4))
        add(name, cast(3, 1e-5))
        add(name, cast(1, 1 / 3, 1 / 7))
        add(name, cast(0.123456785, 0.123456775, 0.000123456785))
        add(name, cast(*magnitudes(t)))
        add(name, [2.0**-i for i in range(24)])
        add(name, [2.0**i for i in range(24)])
        add(name, [0.1 * i for i in range(12)], (3, 4))
        add(name, rng.standard_normal(3).astype(t), (4, 5))
        add(name, rng.standard_normal((2, 3, 4)).astype(t))
        add(name, rng.standard_normal((2, 2, 2, 3)).astype(t))
        add(name, (rng.standard_normal(30) * 10).astype(t))
        add(name, (10.0 ** rng.uniform(-3, 3, 17)).astype(t))
        add(name, (10.0 ** rng.uniform(-7, 4, 23)).astype(t), (2, 23))
        add(name, rng.standard_normal(61).astype(t), (2000,))
        add(name, rng.standard_normal(61).astype(t), (50, 30))
        add(name, rng.standard_normal(61).astype(t), (12, 10, 11))
        add(name, rng.standard_normal(61).astype(t), (2, 600))
        for _ in range(8):  # any bits at all
            bits = rng.integers(0, 256, 8 * np.dtype(t).itemsize, np.uint8)
            add(name, bits.view(t))


for name in TYPES:
    if name[0] in "iu":
        integers(name)
    elif name in FLOATS:
        floats(name)
    for shape in [(0,), (0, 3), (3, 0), (2, 0, 2)]:
        add(name, [1], shape)

for v in (True, False):
    add("bool_", v)
    add("bool_", [v])
add("bool_", [[True, False], [False, False]])
add("bool_", [True, False, False], (30,))
add("bool_", [True, False, False], (40, 40))

bf = [0.1, 1, -2, 1e6, 1e-5, 3.14159, 1e20, np.nan, np.inf, -np.inf, 0, -0.0, 123456, 65280, 1e5,
      1e-4, 1.2e-4, 2**-130, 3e38]
for v in bf:
    add("bf16", v)
add("bf16", bf)
add("bf16", bf, (3, 7))
add("bf16", bf, (30, 40))
add("bf16", np.array([0xffc0, 0x7fc0, 0x0001], np.uint16).view(ml_dtypes.bfloat16))

# Wrapping and summarising.
for n in (24, 25, 26, 37, 38, 39, 1000, 1001):
    add("i32", np.arange(min(n, 200)) % 10, (n,))
add("i64", [10**17, -(10**17)], (9,))
add("u64", [2**64 - 1], (2, 5))
add("f64", [1 / 3], (7,))
add("f64", [1 / 3, 1e300], (6,))
for shape in [(1, 1), (1, 1, 1, 1), (6, 200), (7, 200), (200, 6), (200, 7), (1001, 1), (1, 1001),
              (3, 4, 100), (7, 8, 20), (2, 3, 4, 50), (4, 10, 7, 9), (2, 2, 2, 2, 2), (1, 7, 1, 150)]:
    add("i16", np.arange(-20, 100), shape)
    add("f32", np.arange(-20, 100) / 8, shape)
for prefix in ("x = ", "Array(", "µ: "):
    for name, shape in itertools.product(("i32", "f32"), ((3,), (30,), (3, 4), (2, 2, 20), (40, 40))):
        add(name, np.arange(17), shape, prefix)

out = pathlib.Path(__file__).with_name("print.inc")
head = ("// Written by make_print_goldens.py with NumPy " + np.__version__ + " and ml_dtypes "
        + ml_dtypes.__version__ + ".\n// clang-format off\n")
out.write_text(head + "\n".join(lines) + "\n")
print(len(lines), "cases,", out.stat().st_size, "bytes")
