"""Derivatives at special points: ties, zeros, ends of domains, infinities; and of composites.

Inputs are the operands, a tangent of each, and a cotangent of the result; outputs are the result's
tangent and the operands' cotangents. Tolerances are `ulp` and `atol`, as elsewhere.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .common import FLOATS, Topic, array

NAN, INF = float("nan"), float("inf")
ULP = {"f64": 8, "f32": 8, "bf16": 3, "f16": 3}
EPS = {"f64": 2.0**-52, "f32": 2.0**-23, "bf16": 2.0**-7, "f16": 2.0**-10}


def direction(shape, dtype, seed):
    """Small dyadic numbers other than 0, which every dtype has."""
    n = int(np.prod(shape))
    values = [((5 * k + 3 * seed) % 7 + 1) / 4 * (-1) ** (k + seed) for k in range(n)]
    return array(values, dtype).reshape(shape)


def derive(topic, name, op, fn, *operands, ulp=None, atol=0.0, **params):
    dtype = next(k for k in FLOATS if operands[0].dtype == array(0, k).dtype)
    tangents = [direction(x.shape, dtype, k + 1) for k, x in enumerate(operands)]
    at = [jnp.asarray(x) for x in operands]
    out, jv = jax.jvp(fn, at, [jnp.asarray(t) for t in tangents])
    cotangent = direction(out.shape, dtype, 9)
    jtw = jax.vjp(fn, *at)[1](jnp.asarray(cotangent))
    topic.add(
        name,
        [*operands, *tangents, cotangent],
        [jv, *jtw],
        op=op,
        operands=len(operands),
        ulp=ULP[dtype] if ulp is None else ulp,
        atol=atol,
        **params,
    )


UNARY = {
    "neg": ("neg", [0.0, -0.0, 1, INF]),
    "abs": ("abs", [0.0, -0.0, 2, -2, INF, -INF, NAN]),
    "sign": ("sign", [0.0, 2, -2]),
    "square": ("square", [0.0, -3, INF]),
    "floor": ("floor", [0.0, 1.0, 1.5]),
    "round": ("round", [0.0, 0.5, 1.5]),
    "exp": ("exp", [0.0, 1, -INF, INF, NAN]),
    "expm1": ("expm1", [0.0, -0.0, -INF, 1]),
    "log": ("log", [1.0, 2, INF, 0.0, -1]),
    "log1p": ("log1p", [0.0, 1, -1, INF]),
    "sin": ("sin", [0.0, 1, INF]),
    "cos": ("cos", [0.0, 1, INF]),
    "tan": ("tan", [0.0, 1]),
    "tanh": ("tanh", [0.0, 1, -1, 100, -INF, INF, NAN]),
    "asin": ("asin", [0.0, 0.5, 1, -1]),
    "acos": ("acos", [0.0, 0.5, 1, -1]),
    "atan": ("atan", [0.0, 1, -2, INF]),
    "sinh": ("sinh", [0.0, 1, -INF]),
    "cosh": ("cosh", [0.0, 1, -INF]),
    "sqrt": ("sqrt", [1.0, 4, 0.0, INF, -1]),
    "rsqrt": ("rsqrt", [1.0, 4, INF, 0.0]),
    "cbrt": ("cbrt", [1.0, -8, 0.0]),
    "logistic": ("logistic", [0.0, 1, 200, -200, INF, -INF]),
    "erf": ("erf", [0.0, 1, -1, 10, INF]),
    "erf_inv": ("erf_inv", [0.0, 0.5, -0.5, 1, -1]),
}


def unary(topic):
    for op, (name, points) in UNARY.items():
        fn = getattr(lax, name)
        for dtype in FLOATS:
            # A transcendental's own rounding is in its derivative's.
            ulp = {"f64": 64, "f32": 32, "bf16": 4, "f16": 4}[dtype]
            derive(topic, f"{op}/{dtype}", op, fn, array(points, dtype), ulp=ulp, atol=EPS[dtype])


def binary(topic):
    grid = [0.0, -0.0, 1, 2, -2, INF, -INF, NAN]
    pairs = np.array([(a, b) for a in grid for b in grid])
    for op, fn in (("add", lax.add), ("sub", lax.sub), ("mul", lax.mul), ("div", lax.div),
                   ("max", lax.max), ("min", lax.min)):
        for dtype in ("f32", "f64", "bf16"):
            derive(topic, f"{op}/{dtype}", op, fn, array(pairs[:, 0], dtype),
                   array(pairs[:, 1], dtype))
    atan2 = [(0.0, 1), (0.0, -1), (1, 0.0), (-1, 0.0), (0.0, 0.0), (1, 2), (-3, -1), (1, INF)]
    derive(topic, "atan2", "atan2", lax.atan2, array([p[0] for p in atan2], "f32"),
           array([p[1] for p in atan2], "f32"))
    rem = [(7, 3), (-7, 3), (7, -3), (-7, -3), (6, 3), (0.0, 3), (1, 3)]
    derive(topic, "rem", "rem", lax.rem, array([p[0] for p in rem], "f32"),
           array([p[1] for p in rem], "f32"))
    # By y = 0 at x = 0 lax.pow gives NaN (0 times an infinite value), and we give 0; such cases are
    # left out.
    power = [(0.0, 1), (0.0, 2), (0.0, 3), (0.0, 0.5), (-2, 3), (-2, 2), (2, -2), (2, 0.0),
             (-1, 0.0), (INF, 2), (4, 0.5), (1, 7)]
    for dtype in ("f32", "f64"):
        derive(topic, f"pow/{dtype}", "pow", lax.pow, array([p[0] for p in power], dtype),
               array([p[1] for p in power], dtype), ulp=32)
    for n in (0, 1, 2, 3, -1):
        derive(topic, f"integer_pow/{n}", "integer_pow", lambda x: lax.integer_pow(x, n),
               array([1, 0.5, -2] if n < 0 else [0.0, 1, -2, INF], "f32"), n=n)


def selections(topic):
    x = array([-2, -1, -1, 0, 1, 1, 2, NAN], "f32")
    lo, hi = array(np.full(8, -1.0), "f32"), array(np.full(8, 1.0), "f32")
    derive(topic, "clamp", "clamp", lax.clamp, lo, x, hi)
    derive(topic, "clip", "clip", lambda a: jnp.clip(a, -1, 1), x)
    for dtype in FLOATS:
        derive(topic, f"relu/{dtype}", "relu", jax.nn.relu, array([-1, 0.0, -0.0, 1, 2], dtype))


def lines(topic):
    tied = array([[1, 3, 3, 2], [5, 5, 5, 5], [-1, -2, -1, -1], [0.0, -0.0, -1, 0.0]], "f32")
    zeros = array([[1, 2, 3, 4], [0.0, 2, 3, 4], [2, 0.0, 3, 0.0], [0.0, 0.0, 0.0, 0.0]], "f32")
    for op, fn in (("reduce_max", jnp.max), ("reduce_min", jnp.min)):
        for label, axes in (("0", (0,)), ("1", (1,)), ("0,1", (0, 1))):
            derive(topic, f"{op}/{label}", op, lambda a: fn(a, axis=axes), tied, axes=list(axes))
        for dtype in ("f64", "bf16", "f16"):
            derive(topic, f"{op}/{dtype}", op, lambda a: fn(a, axis=(1,)),
                   tied.astype(array(0, dtype).dtype), axes=[1])
        derive(topic, f"{op}/specials", op, lambda a: fn(a, axis=(1,)),
               array([[INF, INF, 1], [-INF, -INF, -INF], [0, NAN, 1]], "f32"), axes=[1])
    for label, axes in (("0", (0,)), ("1", (1,)), ("0,1", (0, 1))):
        derive(topic, f"reduce_prod/{label}", "reduce_prod", lambda a: jnp.prod(a, axis=axes),
               zeros, axes=list(axes))
    for op in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"):
        fn = getattr(lax, op)
        for x, label in ((tied, "tied"), (zeros, "zeros")):
            for axis in (0, 1):
                for reverse in (False, True):
                    derive(topic, f"{op}/{label}/{axis}{'r' if reverse else ''}", op,
                           lambda a: fn(a, axis=axis, reverse=reverse), x, axis=axis,
                           reverse=reverse, ulp=32, atol=1e-6)
    for n in (1, 2, 3, 5, 8, 13):
        x = array([(3 * k) % 4 for k in range(n)], "f64")
        derive(topic, f"cummax/length{n}", "cummax", lax.cummax, x, axis=0, reverse=False)
    far = array([1000, -1000, 1001, 0, 1001, 999], "f32")
    derive(topic, "cumlogsumexp/far", "cumlogsumexp", lax.cumlogsumexp, far, axis=0,
           reverse=False, ulp=32, atol=1e-6)
    for axis in (0, 1):
        derive(topic, f"sort/{axis}", "sort", lambda a: lax.sort(a, dimension=axis), tied,
               axis=axis)
    for k in (1, 2, 3):
        # -0 equals 0 to us, and is less than it to lax.top_k: so the row that has both is left out.
        derive(topic, f"top_k/{k}", "top_k", lambda a: lax.top_k(a, k)[0], tied[:3], k=k)


def composites(topic):
    plain = (np.arange(12).reshape(3, 4) * 7 % 12 - 6) / 4
    ops = {
        "softmax": jax.nn.softmax,
        "log_softmax": jax.nn.log_softmax,
        "logsumexp": lambda a: jax.nn.logsumexp(a, axis=-1),
        "mean": lambda a: jnp.mean(a, axis=-1),
        "var": lambda a: jnp.var(a, axis=-1),
        "gelu": jax.nn.gelu,
        "gelu_erf": lambda a: jax.nn.gelu(a, approximate=False),
        "silu": jax.nn.silu,
    }
    for op, fn in ops.items():
        for dtype in ("f64", "f32", "bf16"):
            # Halves are rounded at other places: by eye, not to the bit.
            loose = 4 if dtype == "bf16" else 8
            derive(topic, f"{op}/{dtype}", op, fn, array(plain, dtype), atol=loose * EPS[dtype])
    for op in ("softmax", "log_softmax", "logsumexp"):
        rows = [[1000, 1001, 999, 0], [-1000, -1000, -1000, -1000], [0, -INF, 1, -INF],
                [1e4, -1e4, 1e4, 0]]
        derive(topic, f"{op}/far", op, ops[op], array(rows, "f32"), atol=1e-6)


def make():
    topic = Topic("Derivatives at special points, and of composites.")
    with jax.numpy_dtype_promotion("standard"):
        for part in (unary, binary, selections, lines, composites):
            part(topic)
    return topic
