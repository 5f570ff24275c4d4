"""Reductions, scans, sorts and the softmax family.

axes is absent where the call names none; keepdims is absent where it is false. Integers keep their
dtype (JAX widens: its results are cast back, which is the same as wrapping), bool sums to i32, and
indices are i32. Floats are multiples of 1/4, so that sums are exact in any order; where a result is
not exact `ulp` is the tolerance (and `atol`, where given, an absolute one beside it).
"""

import jax
import jax.numpy as jnp
import numpy as np

from .common import DTYPES, FLOATS, Topic, arange, array

NAN, INF = float("nan"), float("inf")
CASES = [
    ("all", None, False),
    ("0", [0], False),
    ("-1", [-1], False),
    ("0,2", [0, 2], False),
    ("1_keepdims", [1], True),
    ("all_keepdims", None, True),
    ("none", [], False),
    ("-1,0_keepdims", [-1, 0], True),
]


def scramble(dtype, *shape):
    """Distinct small values out of order; quarters where the dtype has them."""
    n = int(np.prod(shape))
    values = np.array(
        [(k * 7) % (n if n % 7 else n + 1) - (0 if dtype[0] == "u" else n // 2) for k in range(n)]
    )
    return (values / (4 if dtype in FLOATS else 1)).astype(DTYPES[dtype]).reshape(shape)


def run(topic, op, label, fn, x, out=None, ulp=0, **params):
    result = jax.block_until_ready(fn(jnp.asarray(x)))
    result = jax.tree.map(
        lambda r: np.asarray(r).astype(DTYPES[out]) if out else np.asarray(r), result
    )
    topic.add(f"{op}/{label}", [x], result, op=op, ulp=ulp, **params)


def result_dtype(op, dtype):
    if op in ("argmax", "argmin", "argsort"):
        return "i32"
    if op in ("sum", "prod", "cumsum", "cumprod"):
        return "i32" if dtype == "bool" else dtype
    return None


def reductions(topic):
    for op in ("sum", "prod", "max", "min", "mean", "var", "any", "all", "argmax", "argmin"):
        fn = getattr(jnp, op)
        for label, axes, keepdims in CASES:
            if op.startswith("arg") and axes is not None and len(axes) != 1:
                continue
            # Small factors, so that products stay exact.
            x = (
                scramble("f32", 2, 3, 4)
                if op != "prod"
                else (scramble("i32", 2, 3, 4) % 3 - 1 + 0.5).astype(np.float32)
            )
            if op in ("any", "all"):
                x = (
                    scramble("i32", 2, 3, 4)
                    % (5 if op == "all" else 9)
                    // (1 if op == "all" else 8)
                )
                x = x.astype(bool)
            axis = None if axes is None else axes[0] if op.startswith("arg") else tuple(axes)
            params = ({} if axes is None else {"axes": axes}) | (
                {"keepdims": True} if keepdims else {}
            )
            run(
                topic,
                op,
                label,
                lambda a: fn(a, axis=axis, keepdims=keepdims),
                x,
                result_dtype(op, "f32"),
                ulp=4 if op in ("mean", "var", "prod") else 0,
                **params,
            )
        for dtype in ("f16", "bf16", "f64", "i32", "i8", "u8", "u32", "i64", "bool"):
            x = scramble("u8", 3, 4) % 2 if dtype == "bool" else scramble(dtype, 3, 4)
            if op == "prod" and dtype in FLOATS:
                x = array([[1, -0.5, 2, 4], [0.25, 2, -2, 1], [1.5, 2, 1, -1]], dtype)
            x = x.astype(DTYPES[dtype])
            exact = dtype not in FLOATS or op not in ("mean", "var")
            out = result_dtype(op, dtype)
            if dtype not in FLOATS + ("bool",) and op in ("sum", "prod"):
                assert out == dtype
            run(
                topic,
                op,
                dtype,
                lambda a: fn(a, axis=-1),
                x,
                out,
                ulp=0
                if exact and op not in ("mean", "var")
                else (1 if dtype in ("f16", "bf16") else 4),
                axes=[-1],
            )
    wrap = array([[100, 100, 100], [-128, -1, 5]], "i8")
    run(topic, "sum", "wraps_i8", lambda a: jnp.sum(a, axis=1), wrap, "i8", axes=[1])
    run(topic, "prod", "wraps_i8", lambda a: jnp.prod(a, axis=1), wrap, "i8", axes=[1])
    run(topic, "mean", "i32_large", lambda a: jnp.mean(a), array([2**31 - 1] * 4, "i32"), ulp=1)
    # bf16 and f16 accumulate in f32: 256 + 1 is not a bf16, 2048 + 1 no f16.
    run(topic, "sum", "bf16_accumulates_in_f32", jnp.sum, array([256] + [1] * 256, "bf16"))
    run(topic, "sum", "f16_accumulates_in_f32", jnp.sum, array([2048] + [1] * 64, "f16"))
    run(topic, "mean", "f16_no_overflow", jnp.mean, array([60000] * 8, "f16"), ulp=1)
    specials(topic)
    empties(topic)


def specials(topic):
    """NaN wins every maximum and minimum; argmax finds the first NaN, else the first of equals.
    Of +0 and -0 either may be the maximum: hence its unit."""
    rows = array(
        [[1, NAN, 3, NAN], [INF, -INF, 2, 0], [-0.0, 0.0, -0.0, -1], [5, 5, -7, -7]], "f32"
    )
    for op in ("sum", "prod", "max", "min", "mean", "var", "argmax", "argmin"):
        run(
            topic,
            op,
            "specials",
            lambda a, f=getattr(jnp, op): f(a, axis=1),
            rows,
            result_dtype(op, "f32"),
            ulp=1 if op in ("var", "max", "min") else 0,
            axes=[1],
        )
    for op in ("any", "all"):
        run(topic, op, "nan_is_true", lambda a, f=getattr(jnp, op): f(a, axis=1), rows, axes=[1])


def empties(topic):
    for op in ("sum", "prod", "any", "all"):
        for label, axes in (("all", None), ("0", [0]), ("1", [1])):
            x = np.zeros((0, 3), np.float32)
            run(
                topic,
                op,
                f"empty_{label}",
                lambda a, f=getattr(jnp, op), d=axes: f(a, axis=None if d is None else tuple(d)),
                x,
                **({} if axes is None else {"axes": axes}),
            )
    run(
        topic,
        "mean",
        "empty",
        lambda a: jnp.mean(a, axis=0),
        np.zeros((0, 2), np.float32),
        axes=[0],
    )
    run(
        topic,
        "max",
        "empty_kept",
        lambda a: jnp.max(a, axis=1),
        np.zeros((0, 2), np.float32),
        axes=[1],
    )
    run(
        topic,
        "logsumexp",
        "empty_kept",
        lambda a: jax.nn.logsumexp(a, axis=1),
        np.zeros((0, 2), np.float32),
        axes=[1],
    )
    run(
        topic,
        "cumsum",
        "empty",
        lambda a: jnp.cumsum(a, axis=0),
        np.zeros((0, 2), np.float32),
        axis=0,
    )
    run(topic, "sort", "empty", lambda a: jnp.sort(a, axis=0), np.zeros((0, 2), np.float32), axis=0)


def scans(topic):
    fns = {
        "cumsum": jnp.cumsum,
        "cumprod": jnp.cumprod,
        "cummax": lambda a, axis: jax.lax.cummax(a, axis % a.ndim),
    }
    for op, fn in fns.items():
        for dtype in ("f32", "f64", "bf16", "f16", "i32", "i8", "u8"):
            x = (
                scramble(dtype, 3, 4)
                if op != "cumprod"
                else array([[1, 2, 2, 1], [2, 1, 3, 2], [0, 2, 2, 2]], dtype)
            )
            run(topic, op, dtype, lambda a: fn(a, axis=1), x, result_dtype(op, dtype), axis=1)
        for axis in (0, -1):
            x = arange("f32", 2, 3, 2, start=1) if op == "cumprod" else scramble("f32", 2, 3, 2)
            run(topic, op, f"axis{axis}", lambda a: fn(a, axis=axis), x, axis=axis)
        run(
            topic, op, "nan", lambda a: fn(a, axis=0), array([1, 2, NAN, -1, INF, 4], "f32"), axis=0
        )
    run(
        topic,
        "cumsum",
        "bool",
        lambda a: jnp.cumsum(a, axis=0),
        array([True, False, True, True], "bool"),
        "i32",
        axis=0,
    )


def sorts(topic):
    """Stable; NaN goes last, and -0 stands before +0 nowhere: they are equal."""
    for dtype in ("f32", "f64", "bf16", "f16", "i32", "i8", "u8", "i64", "bool"):
        x = (
            array([[True, False, True], [False, False, True]], "bool")
            if dtype == "bool"
            else scramble(dtype, 3, 5)
        )
        run(topic, "sort", dtype, lambda a: jnp.sort(a, axis=-1), x, axis=-1)
        run(topic, "argsort", dtype, lambda a: jnp.argsort(a, axis=-1), x, "i32", axis=-1)
    for axis in (0, 1):
        run(
            topic,
            "sort",
            f"axis{axis}",
            lambda a: jnp.sort(a, axis=axis),
            scramble("f32", 3, 4, 2),
            axis=axis,
        )
        run(
            topic,
            "argsort",
            f"axis{axis}",
            lambda a: jnp.argsort(a, axis=axis),
            scramble("f32", 3, 4, 2),
            "i32",
            axis=axis,
        )
    special = array([3, NAN, -INF, 1, NAN, INF, -2, 1], "f32")
    run(topic, "sort", "specials", jnp.sort, special, axis=-1)
    run(topic, "argsort", "specials", jnp.argsort, special, "i32", axis=-1)
    zeros = array([0.0, -0.0, 0.0, -0.0, -1.0], "f32")
    run(topic, "argsort", "zeros_are_equal", jnp.argsort, zeros, "i32", axis=-1)
    ties = array([2, 1, 2, 1, 0, 2, 0], "i32")
    run(topic, "argsort", "stable", jnp.argsort, ties, "i32", axis=-1)
    for dtype in ("f32", "i32", "bf16", "u8"):
        for k in (1, 3):
            x = scramble(dtype, 2, 5)
            values, indices = jax.lax.top_k(jnp.asarray(x), k)
            topic.add(
                f"top_k/{dtype}_{k}",
                [x],
                [values, np.asarray(indices).astype(np.int32)],
                op="top_k",
                k=k,
                ulp=0,
            )
    for label, x, k in (
        ("ties", ties, 4),
        ("all", ties, 7),
        ("zero", ties, 0),
        ("specials", special, 4),
    ):
        values, indices = jax.lax.top_k(jnp.asarray(x), k)
        topic.add(
            f"top_k/{label}",
            [x],
            [values, np.asarray(indices).astype(np.int32)],
            op="top_k",
            k=k,
            ulp=0,
        )


def softmaxes(topic):
    tolerance = {"f32": (8, 1e-7), "f64": (8, 1e-16), "bf16": (2, 1e-3), "f16": (2, 1e-4)}
    for op, fn in (
        ("softmax", jax.nn.softmax),
        ("log_softmax", jax.nn.log_softmax),
        ("logsumexp", jax.nn.logsumexp),
    ):
        for dtype in FLOATS:
            ulp, atol = tolerance[dtype]
            run(
                topic,
                op,
                dtype,
                lambda a: fn(a, axis=-1),
                scramble(dtype, 3, 5),
                ulp=ulp,
                atol=atol,
                axes=[-1],
            )
        for label, axes in (("0", [0]), ("0,1", [0, 1])):
            axis = axes[0] if len(axes) == 1 else tuple(axes)
            run(
                topic,
                op,
                label,
                lambda a: fn(a, axis=axis),
                scramble("f32", 3, 4),
                ulp=8,
                atol=1e-7,
                axes=axes,
            )
        large = array([[1000, 1001, 999], [-1000, -1000, -1000]], "f32")
        run(topic, op, "large", lambda a: fn(a, axis=-1), large, ulp=8, atol=1e-7, axes=[-1])
        special = array([[0, -INF, 1], [-INF, -INF, -INF], [0, NAN, 1], [INF, 0, 1]], "f32")
        run(topic, op, "specials", lambda a: fn(a, axis=-1), special, ulp=8, atol=1e-7, axes=[-1])
    run(topic, "logsumexp", "all", jax.nn.logsumexp, scramble("f32", 3, 4), ulp=8)
    run(
        topic,
        "logsumexp",
        "keepdims",
        lambda a: jax.nn.logsumexp(a, axis=0, keepdims=True),
        scramble("f32", 3, 4),
        ulp=8,
        axes=[0],
        keepdims=True,
    )


def make():
    topic = Topic("Reductions, scans, sorts, top_k and the softmax family.")
    for part in (reductions, scans, sorts, softmaxes):
        part(topic)
    return topic
