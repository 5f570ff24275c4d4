"""Code that the topics share: JAX set up, dtypes by their short names, arrays and cases as JSON.

64-bit types are on, since ours are real. A case is
  {"name": ..., "params": {...}, "inputs": [array, ...], "outputs": [array, ...]}
and an array is {"dtype", "shape"} with one of
  "bits":   the elements' bits, each as fixed-width hex, row-major (floats);
  "ints":   the elements themselves (integers and bool);
  "arange": [start, step], both integers: element k is start + k * step, exactly.
"""

import json
import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax
import ml_dtypes
import numpy as np

jax.config.update("jax_enable_x64", True)

DTYPES = {
    "bool": np.dtype(np.bool_),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8),
    "u16": np.dtype(np.uint16),
    "u32": np.dtype(np.uint32),
    "u64": np.dtype(np.uint64),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}
SHORT = {dtype: name for name, dtype in DTYPES.items()}
FLOATS = ("f16", "bf16", "f32", "f64")
SIGNED = ("i8", "i16", "i32", "i64")
UNSIGNED = ("u8", "u16", "u32", "u64")
MANTISSA = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}


def array(values, dtype, shape=None):
    """A NumPy array of the named dtype; out-of-range Python values are errors."""
    out = np.array(values, dtype=DTYPES[dtype])
    return out if shape is None else out.reshape(shape)


def arange(dtype, *shape, start=0, step=1):
    n = int(np.prod(shape))
    return (start + step * np.arange(n)).astype(DTYPES[dtype]).reshape(shape)


def is_float(dtype):
    return SHORT[np.dtype(dtype)] in FLOATS


def uint_view(x):
    return np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}")


def ordered(x):
    """Floats to integers whose differences are distances in units in the last place."""
    bits = uint_view(x).astype(object)
    top = 1 << (8 * x.dtype.itemsize - 1)
    return np.vectorize(lambda b: int(b) if b < top else top - int(b), otypes=[object])(bits)


def is_subnormal(x):
    """XLA's CPU code flushes these to zero, so no case holds one (but of f16: computed as f32)."""
    if SHORT[x.dtype] == "f16":
        return np.zeros(x.shape, bool)
    tiny = ml_dtypes.finfo(x.dtype).tiny
    with np.errstate(all="ignore"):
        return (x != 0) & (np.abs(x.astype(np.float64)) < np.float64(tiny))


def encode_array(x):
    x = np.asarray(x)
    out = {"dtype": SHORT[x.dtype], "shape": list(x.shape)}
    flat = x.reshape(-1)
    wide = flat.astype(np.float64) if is_float(x.dtype) else flat
    if flat.size > 4 and x.dtype != bool and np.isfinite(wide).all():
        start, step = int(wide[0]), int(wide[1]) - int(wide[0])
        line = [start + k * step for k in range(flat.size)]
        if abs(line[-1]) < 2**53 and [float(v) for v in line] == [float(v) for v in wide]:
            if not (is_float(x.dtype) and np.signbit(wide[wide == 0]).any()):
                return out | {"arange": [start, step]}
    if is_float(x.dtype):
        # All NaNs get one spelling, since nothing promises their payloads and signs.
        flat = np.where(np.isnan(wide), np.array(np.nan, x.dtype), flat).astype(x.dtype)
        nan_positive = np.where(np.isnan(wide), np.abs(flat), flat).astype(x.dtype)
        width = 2 * x.dtype.itemsize
        return out | {"bits": "".join(f"{int(b):0{width}x}" for b in uint_view(nan_positive))}
    return out | {"ints": [int(v) for v in flat]}


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


class Topic:
    def __init__(self, about):
        self.about = about
        self.cases = []

    def add(self, name, inputs=(), outputs=(), **params):
        """A case from values; params may hold ints, floats, bools, texts and lists of them."""
        assert name not in {case["name"] for case in self.cases}, name
        case = {"name": name, "params": params}
        case["inputs"] = [encode_array(x) for x in leaves(inputs)]
        case["outputs"] = [encode_array(x) for x in leaves(outputs)]
        self.cases.append(case)

    def run(self, name, fn, *inputs, **params):
        """A case from a call: fn takes JAX arrays of the inputs' dtypes."""
        outputs = jax.block_until_ready(fn(*[jax.numpy.asarray(x) for x in inputs]))
        self.add(name, inputs, outputs, **params)

    def write(self, path):
        head = {"about": self.about, "jax": jax.__version__}
        lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in self.cases)
        text = json.dumps(head, indent=0)[:-2] + ',\n"cases": [\n' + lines + "\n]}\n"
        json.loads(text)
        path.write_text(text)
