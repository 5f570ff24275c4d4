"""Arguments of the wide table's rows, made from their words as bench/wide/arguments.cpp makes them:
`f32[1024@i,512]`, `i32[4096]<50000`, `f32[64]+`, `f32[64,64]*0.1`."""

import re

import numpy as np

SPEC = re.compile(r"([a-z]+\d*_?)\[([^\]]*)\](<(\d+)|\+|\*(.+))?$")


def mixed(count, number):
    """32 well-mixed bits of each element of argument `number`."""
    h = np.arange(count, dtype=np.uint32)
    h *= np.uint32(0x9E3779B1)
    h += np.uint32((number + 1) * 0x7FEB352D & 0xFFFFFFFF)
    h ^= h >> np.uint32(16)
    h *= np.uint32(0x85EBCA6B)
    h ^= h >> np.uint32(13)
    h *= np.uint32(0xC2B2AE35)
    h ^= h >> np.uint32(16)
    return h


def arguments(words):
    """For each word: (values in NumPy, the name of the dtype to cast to, the mesh axis of each dim or
    None). Half types are given as f32."""
    out = []
    for number, word in enumerate(words):
        name, dims, suffix, below, scale = SPEC.match(word).groups()
        dims = [d for d in dims.split(",") if d]
        extents = [int(d.split("@")[0]) for d in dims]
        axes = [d.split("@")[1] if "@" in d else None for d in dims]
        bits = mixed(int(np.prod(extents, dtype=np.int64)), number)
        if name in ("f32", "f64", "bf16", "f16"):
            unit = (bits >> np.uint32(8)) * 2.0**-24
            values = (unit + 0.5 if suffix == "+" else 2 * unit - 1) * float(scale or 1)
            values = values.astype(np.float32)
        else:
            values = bits % np.uint32(2 if name == "bool" else int(below or 100))
        if name == "f64":
            values = values.astype(np.float64)
        elif name not in ("f32", "bf16", "f16"):
            dtype = {"bool": "bool", "i": "int", "u": "uint"}.get(name.rstrip("0123456789"), name)
            values = values.astype(dtype + name.lstrip("iu") if dtype != "bool" else "bool")
        out.append((values.reshape(extents), name, axes))
    return out


def sample(leaf):
    """Some 64 values of a leaf in NumPy, evenly spread."""
    flat = leaf.reshape(-1)
    count = min(flat.size, 64)
    at = [0] if count < 2 else [k * (flat.size - 1) // (count - 1) for k in range(count)]
    return [float(v) for v in flat[at[:count]]]
