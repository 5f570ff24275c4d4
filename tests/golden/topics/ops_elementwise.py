"""Elementwise functions over values that include the specials: one case an op and dtype.

Binary cases have operands (n, 1) and (1, n), so that they broadcast as well. `ulp` is how far a
result may lie from the golden value: 0 where IEEE 754 fixes the result. Where XLA is more than a
unit off the correctly rounded value, the golden value is the rounded one (and this script says so).
"""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jax import lax

from .common import DTYPES, FLOATS, SHORT, SIGNED, Topic, array, is_subnormal, ordered

SPECIAL = [0.0, -0.0, float("inf"), -float("inf"), float("nan")]
PLAIN = [
    1,
    -1,
    0.5,
    -0.5,
    2,
    -2,
    1.5,
    2.5,
    -1.5,
    -2.5,
    3.25,
    -3.75,
    0.1,
    -0.1,
    1e-3,
    -1e-3,
    0.9,
    -0.9,
    7,
    10,
    -10,
    20.5,
    -30.25,
    100,
    1000.75,
    -1000.75,
]
HUGE = {
    "f16": [65504, -65504, 2.0**-14],
    "bf16": [3e38, 1e-30, 1e5],
    "f32": [3e38, 1e-30, 1e5, 16777217, -8388609.5],
    "f64": [1e300, 1e-300, 1e5, 2**53 + 1],
}
TRIG_LIMIT = 1e5


class Exact:
    """Marks a reference whose result IEEE 754 fixes. XLA multiplies by reciprocals here and there,
    which is a unit off; the golden value is the right one."""

    def __init__(self, fn):
        self.fn = fn

    def __call__(self, *xs):
        return self.fn(*xs)


# name: (JAX function, reference in f64 or None where exact, ulp)
UNARY = {
    "abs": (jnp.abs, None),
    "negative": (jnp.negative, None),
    "sign": (jnp.sign, None),
    "floor": (jnp.floor, None),
    "ceil": (jnp.ceil, None),
    "round": (jnp.round, None),
    "exp": (jnp.exp, np.exp),
    "exp2": (jnp.exp2, np.exp2),
    "expm1": (jnp.expm1, np.expm1),
    "log": (jnp.log, np.log),
    "log1p": (jnp.log1p, np.log1p),
    "sin": (jnp.sin, np.sin),
    "cos": (jnp.cos, np.cos),
    "tan": (jnp.tan, np.tan),
    "tanh": (jnp.tanh, np.tanh),
    "asin": (jnp.arcsin, np.arcsin),
    "acos": (jnp.arccos, np.arccos),
    "atan": (jnp.arctan, np.arctan),
    "sinh": (jnp.sinh, np.sinh),
    "cosh": (jnp.cosh, np.cosh),
    "asinh": (jnp.arcsinh, np.arcsinh),
    "acosh": (jnp.arccosh, np.arccosh),
    "atanh": (jnp.arctanh, np.arctanh),
    "sqrt": (jnp.sqrt, None),
    "rsqrt": (lax.rsqrt, lambda x: 1 / np.sqrt(x)),
    "cbrt": (jnp.cbrt, np.cbrt),
    "logistic": (jax.nn.sigmoid, scipy.special.expit),
    "erf": (jax.scipy.special.erf, scipy.special.erf),
    "erfc": (jax.scipy.special.erfc, scipy.special.erfc),
    "erf_inv": (jax.scipy.special.erfinv, scipy.special.erfinv),
    "square": (jnp.square, None),
    "reciprocal": (jnp.reciprocal, Exact(lambda x: 1 / x)),
    "isnan": (jnp.isnan, None),
    "isinf": (jnp.isinf, None),
    "isfinite": (jnp.isfinite, None),
    "logical_not": (jnp.logical_not, None),
}
INT_UNARY = (
    "abs",
    "negative",
    "sign",
    "floor",
    "ceil",
    "round",
    "square",
    "isnan",
    "isinf",
    "isfinite",
    "logical_not",
    "exp",
    "sin",
    "sqrt",
    "reciprocal",
)
BINARY = {
    "add": (jnp.add, None),
    "subtract": (jnp.subtract, None),
    "multiply": (jnp.multiply, None),
    "divide": (jnp.true_divide, Exact(np.divide)),
    "floor_divide": (jnp.floor_divide, None),
    "remainder": (jnp.remainder, None),
    "pow": (jnp.power, np.power),
    "atan2": (jnp.arctan2, np.arctan2),
    "maximum": (jnp.maximum, None),
    "minimum": (jnp.minimum, None),
    "equal": (jnp.equal, None),
    "not_equal": (jnp.not_equal, None),
    "less": (jnp.less, None),
    "less_equal": (jnp.less_equal, None),
    "greater": (jnp.greater, None),
    "greater_equal": (jnp.greater_equal, None),
    "logical_and": (jnp.logical_and, None),
    "logical_or": (jnp.logical_or, None),
    "logical_xor": (jnp.logical_xor, None),
}
BITS = {"population_count": lax.population_count, "clz": lax.clz}
BITWISE = {
    "bitwise_and": jnp.bitwise_and,
    "bitwise_or": jnp.bitwise_or,
    "bitwise_xor": jnp.bitwise_xor,
}
SHIFTS = {"left_shift": jnp.left_shift, "right_shift": jnp.right_shift}


def float_values(op, dtype):
    plain = PLAIN if dtype in ("f32", "f64") else PLAIN[:22]
    values = array(SPECIAL + plain + HUGE[dtype], dtype)
    if op in ("sin", "cos", "tan"):
        finite = np.isfinite(values.astype(np.float64))
        values = values[~finite | (np.abs(values.astype(np.float64)) < TRIG_LIMIT)]
    return values


def int_values(dtype):
    info = np.iinfo(DTYPES[dtype])
    return array(
        sorted({info.min, 0, 1, 2, 7, 100, info.max} | ({-1, -7} if info.min else set())), dtype
    )


def ulps(a, b):
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64)))
    return np.where(same, 0, np.abs(ordered(a) - ordered(b)))


def settle(name, got, reference, inputs, dtype):
    """XLA's values, or the correctly rounded ones where they are more than a unit apart."""
    with np.errstate(all="ignore"):
        if isinstance(reference, Exact):  # once rounded: f32 by way of f64 is, and f64 itself
            exact = reference(*[x.astype(np.float64) for x in inputs])
        else:
            try:
                wide = np.longdouble if dtype == "f64" else np.float64
                exact = reference(*[x.astype(wide) for x in inputs])
            except TypeError:  # SciPy's erf stops at f64
                exact = reference(*[x.astype(np.float64) for x in inputs])
        rounded = exact.astype(np.float64).astype(DTYPES[dtype])
    off = ulps(got, rounded)
    if isinstance(reference, Exact):
        return rounded
    bad = off > 1
    if bad.any():
        at = [
            tuple(float(np.broadcast_to(x, got.shape)[i]) for x in [*inputs, got, rounded])
            for i in zip(*np.nonzero(bad))
        ]
        print(f"  {name}: XLA is up to {max(off[bad])} ulp off; input(s), XLA, rounded: {at[:4]}")
    return np.where(bad, rounded, got)


def tolerance(reference, dtype):
    return (
        0
        if reference is None or isinstance(reference, Exact)
        else (4 if dtype in ("f32", "f64") else 1)
    )


def unary(topic):
    for op, (fn, reference) in UNARY.items():
        for dtype in FLOATS:
            x = float_values(op, dtype)
            out = np.asarray(jax.jit(fn)(x))
            if out.dtype == x.dtype:
                if reference is not None:
                    out = settle(f"{op}/{dtype}", out, reference, [x], dtype)
                keep = ~is_subnormal(out)
                x, out = x[keep], out[keep]
            topic.add(f"{op}/{dtype}", [x], [out], op=op, ulp=tolerance(reference, dtype))
        if op in INT_UNARY:
            for dtype in ("i32", "i8", "u8", "u32", "i64"):
                x = int_values(dtype)
                out = np.asarray(jax.jit(fn)(x))
                if reference is not None:
                    wide = [x.astype(out.dtype)]
                    out = settle(f"{op}/{dtype}", out, reference, wide, SHORT[out.dtype])
                topic.add(f"{op}/{dtype}", [x], [out], op=op, ulp=tolerance(reference, "f32"))
    topic.run(
        "logical_not/bool", jnp.logical_not, array([True, False], "bool"), op="logical_not", ulp=0
    )
    for dtype in ("bool", "i32", "i8", "u8", "u32", "i64"):
        x = array([True, False], "bool") if dtype == "bool" else int_values(dtype)
        topic.run(f"bitwise_not/{dtype}", jnp.bitwise_not, x, op="bitwise_not", ulp=0)
    for op, fn in BITS.items():
        for dtype in ("i32", "i8", "u8", "u32", "i64"):
            topic.run(f"{op}/{dtype}", fn, int_values(dtype), op=op, ulp=0)


def binary_values(dtype):
    if dtype == "bool":
        return array([False, True], "bool")
    if dtype in FLOATS:
        extra = [3e4] if dtype == "f16" else [1e10]
        return array(
            [0.0, -0.0, 1, -1, 2.5, -3, 0.75] + extra + [float("inf"), -float("inf"), float("nan")],
            dtype,
        )
    return int_values(dtype)


def binary(topic):
    for op, (fn, reference) in BINARY.items():
        for dtype in FLOATS + ("i32", "i8", "u8", "u32", "i64", "bool"):
            if dtype == "bool" and op in ("subtract", "floor_divide", "remainder", "pow", "atan2"):
                continue
            if dtype not in FLOATS and op == "atan2":
                continue
            x = y = binary_values(dtype)
            if op == "pow" and dtype not in FLOATS:
                y = array([0, 1, 2, 3, 7, 13], dtype)
            if op in ("floor_divide", "remainder") and dtype not in FLOATS:
                y = y[y != 0]  # see by_zero
            x, y = x.reshape(-1, 1), y.reshape(1, -1)
            out = np.asarray(jax.jit(fn)(x, y))
            if reference is not None and out.dtype in (DTYPES[d] for d in FLOATS):
                operands = [v.astype(out.dtype) for v in (x, y)]
                out = settle(f"{op}/{dtype}", out, reference, operands, SHORT[out.dtype])
            if dtype in FLOATS and out.dtype == x.dtype:
                assert not is_subnormal(out).any(), (op, dtype)
            # The sign of zero: in % and // XLA's is not NumPy's, and of max(0, -0) it is nobody's
            # contract. There a unit is allowed.
            loose = ("floor_divide", "remainder", "maximum", "minimum")
            ulp = 1 if op in loose else tolerance(reference, dtype)
            topic.add(f"{op}/{dtype}", [x, y], [out], op=op, ulp=ulp)
    for dtype in FLOATS:
        x = binary_values(dtype)
        topic.run(
            f"nextafter/{dtype}",
            jnp.nextafter,
            x.reshape(-1, 1),
            x.reshape(1, -1),
            op="nextafter",
            ulp=0,
        )
    for op in ("floor_divide", "remainder"):
        for dtype in ("i32", "u8"):
            topic.run(
                f"{op}/by_zero_{dtype}",
                BINARY[op][0],
                int_values(dtype),
                array(0, dtype),
                op=op,
                ulp=0,
            )
    for op, fn in BITWISE.items():
        for dtype in ("bool", "i32", "i8", "u8", "u32", "i64"):
            x = binary_values(dtype)
            topic.run(f"{op}/{dtype}", fn, x.reshape(-1, 1), x.reshape(1, -1), op=op, ulp=0)
    for op, fn in SHIFTS.items():
        for dtype in ("i32", "i8", "u8", "u32", "i64"):
            bits = 8 * DTYPES[dtype].itemsize
            y = array([0, 1, 3, bits - 1, bits, bits + 1], dtype)
            topic.run(
                f"{op}/{dtype}",
                fn,
                int_values(dtype).reshape(-1, 1),
                y.reshape(1, -1),
                op=op,
                ulp=0,
            )


def ternary(topic):
    for dtype in FLOATS + ("i32", "u8"):
        x = binary_values(dtype)
        lo, hi = (array(-1 if dtype in FLOATS or dtype in SIGNED else 1, dtype), array(2, dtype))
        topic.run(f"clip/{dtype}", jnp.clip, x, lo, hi, op="clip", ulp=0)
    x = array([0, 1, 2, 3, 4, 5], "f32")
    topic.run("clip/lo_above_hi", jnp.clip, x, array(4, "f32"), array(2, "f32"), op="clip", ulp=0)


def mixed(topic):
    """Operands of two dtypes: the promotion of the values, not only of the types."""
    ints, floats = array([-7, 0, 3, 100], "i32"), array([0.5, -2.0, 2.0, 1e3], "f32")
    halves, bytes_ = array([0.5, -2.0, 2.0, 100], "bf16"), array([1, 2, 250, 7], "u8")
    signed = array([-1, -128, 5, 127], "i8")
    for op in ("add", "multiply", "less", "divide", "maximum", "floor_divide", "remainder"):
        fn = BINARY[op][0]
        for name, x, y in (
            ("i32_f32", ints, floats),
            ("bf16_f32", halves, floats),
            ("u8_i8", bytes_, signed),
            ("i32_bf16", ints, halves),
            ("bool_i32", array([True, False, True, True], "bool"), ints),
        ):
            out = np.asarray(jax.jit(fn)(x, y))
            if op == "divide":
                wide = [v.astype(out.dtype) for v in (x, y)]
                out = settle(f"{op}/{name}", out, BINARY[op][1], wide, SHORT[out.dtype])
            ulp = int(op in ("floor_divide", "remainder"))
            topic.add(f"{op}/{name}", [x, y], [out], op=op, ulp=ulp)


def make():
    topic = Topic("Elementwise functions, specials included; ulp is the tolerance.")
    unary(topic)
    binary(topic)
    ternary(topic)
    mixed(topic)
    return topic
