"""Products and the layers of networks.

Operands of products are small integers (quarters where a case says so), so that every order of
summation gives the same bits; bf16 and f16 products accumulate in f32 and are rounded once. Layers
are the formulae written here, evaluated in f64 and rounded; JAX's functions, where it has them, are
checked against these within the case's tolerance.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .common import DTYPES, FLOATS, Topic, array

# The defaults, which are floats in C++.
EPS_NORM, EPS_RMS = float(np.float32(1e-5)), float(np.float32(1e-6))
ALL = FLOATS + ("i32", "i8", "u8", "i64")


def small(dtype, *shape, step=7, mod=11):
    n = int(np.prod(shape))
    values = np.arange(n) * step % mod - (0 if dtype[0] == "u" or dtype == "bool" else mod // 2)
    return values.astype(DTYPES[dtype]).reshape(shape)


def run(topic, name, fn, *inputs, **params):
    op = name.split("/")[0]
    # Products are exact, but for the sign of a zero: a sum that starts at +0 never ends at -0.
    topic.run(name, fn, *inputs, op=op, **({"ulp": 1} | params))


def products(topic):
    shapes = {
        "vector_vector": ([4], [4]),
        "matrix_vector": ([3, 4], [4]),
        "vector_matrix": ([4], [4, 3]),
        "matrix_matrix": ([3, 4], [4, 5]),
        "batched": ([2, 3, 4], [2, 4, 5]),
        "batch_broadcast": ([2, 1, 3, 4], [5, 4, 2]),
        "batch_vector": ([2, 3, 4], [4]),
        "vector_batch": ([4], [2, 4, 3]),
        "batch_matrix": ([2, 3, 4], [4, 5]),
        "one_by_one": ([1, 1], [1, 1]),
        "odd": ([7, 13], [13, 17]),
    }
    # f32 by default: bf16 with a preferred type of f32 would be another function.
    for label, (s, t) in shapes.items():
        run(topic, f"matmul/{label}", jnp.matmul, small("f32", *s), small("f32", *t, step=5))
    for dtype in ALL:
        x, y = small(dtype, 5, 9), small(dtype, 9, 6, step=5)
        if dtype in ("bf16", "f16"):
            out = (x.astype(np.float32) @ y.astype(np.float32)).astype(DTYPES[dtype])
            assert np.array_equal(out, np.asarray(jnp.matmul(x, y)))
        run(topic, f"matmul/{dtype}", jnp.matmul, x, y)
    for dtype in ("bf16", "f16"):
        # 256 + 1 is no bf16, 2048 + 1 no f16: an accumulator of that dtype would lose each 1.
        first = 256 if dtype == "bf16" else 2048
        x = array([[first] + [1] * 64], dtype)
        want = array([[first + 64]], dtype)
        got = np.asarray(jnp.matmul(x, np.ones((65, 1), DTYPES[dtype])))
        if not np.array_equal(got, want):
            print(f"  matmul/{dtype}_accumulates: JAX has {got}")
        topic.add(
            f"matmul/{dtype}_accumulates_in_f32",
            [x, np.ones((65, 1), DTYPES[dtype])],
            [want],
            op="matmul",
            ulp=0,
        )
    big = array([[2**30, -(2**31)], [12345678, 2**31 - 1]], "i32")
    run(topic, "matmul/i32_wraps", jnp.matmul, big, big)
    run(
        topic,
        "matmul/i8_wraps",
        jnp.matmul,
        array([[100, 100], [-128, 127]], "i8"),
        array([[3, 2], [5, -1]], "i8"),
    )
    run(topic, "matmul/mixed_i32_f32", jnp.matmul, small("i32", 2, 3), small("f32", 3, 2))
    run(topic, "matmul/mixed_bf16_f32", jnp.matmul, small("bf16", 2, 3), small("f32", 3, 2))
    run(
        topic,
        "matmul/bool",
        jnp.matmul,
        small("bool", 2, 3, mod=2),
        small("bool", 3, 2, step=5, mod=2),
    )
    run(topic, "matmul/empty_inner", jnp.matmul, small("f32", 2, 0), small("f32", 0, 3))
    run(topic, "matmul/empty_outer", jnp.matmul, small("f32", 0, 4), small("f32", 4, 3))
    nan = array([[1, float("nan")], [float("inf"), 0]], "f32")
    run(topic, "matmul/nan", jnp.matmul, nan, array([[0, 1], [0, 1]], "f32"))
    for label, (s, t) in {
        "scalar_left": ([], [2, 3]),
        "vectors": ([4], [4]),
        "matrices": ([2, 3], [3, 4]),
        "matrix_vector": ([2, 3], [3]),
        "3d_2d": ([2, 3, 4], [4, 5]),
        "3d_3d": ([2, 3, 4], [5, 4, 2]),
        "3d_1d": ([2, 3, 4], [4]),
    }.items():
        run(topic, f"dot/{label}", jnp.dot, small("f32", *s), small("f32", *t, step=5))
    run(topic, "outer/vectors", jnp.outer, small("f32", 3), small("f32", 4))
    run(topic, "outer/flattens", jnp.outer, small("i32", 2, 2), small("i32", 3))


EINSUMS = [
    ("ij,jk->ik", [3, 4], [4, 5]),
    ("ij,jk", [3, 4], [4, 5]),
    ("ij,kj->ik", [3, 4], [5, 4]),
    ("ba,cb", [3, 4], [5, 3]),
    ("bij,bjk->bik", [2, 3, 4], [2, 4, 5]),
    ("bij,bkj->bki", [2, 3, 4], [2, 5, 4]),
    ("i,j->ij", [3], [4]),
    ("i,i->", [4], [4]),
    ("i,i", [4], [4]),
    ("ij,ij->ij", [2, 3], [2, 3]),
    ("ij,j->i", [2, 3], [3]),
    ("ij->ji", [2, 3]),
    ("ij->j", [2, 3]),
    ("ij->", [2, 3]),
    ("ii->i", [3, 3]),
    ("ii", [3, 3]),
    ("ii->", [3, 3]),
    ("iij->ij", [2, 2, 3]),
    ("ijk->kij", [2, 3, 4]),
    ("ba", [2, 3]),
    ("...ij,...jk->...ik", [2, 3, 4], [4, 5]),
    ("...ij->...ji", [2, 3, 4]),
    ("i...->...", [2, 3, 4]),
    ("...i,...i", [2, 3], [3]),
    ("bte,hed->bthd", [2, 3, 4], [2, 4, 3]),
    ("bthd,hde->bte", [2, 3, 2, 3], [2, 3, 4]),
    ("bqhd,bkhd->bhqk", [2, 3, 2, 4], [2, 5, 2, 4]),
    ("ij,jk,kl->il", [2, 3], [3, 4], [4, 2]),
    ("i,j,k->ijk", [2], [3], [2]),
    ("ij,ik->jk", [3, 2], [3, 4]),
    ("ijk,k->ij", [2, 3, 4], [4]),
    ("abc,cd->adb", [2, 3, 4], [4, 2]),
    ("ii,i->i", [3, 3], [3]),
    ("ij,jk->k", [2, 3], [3, 4]),
    ("b,bij->ij", [2], [2, 3, 3]),
    ("ij , jk -> ik", [2, 3], [3, 2]),
]


def einsums(topic):
    for spec, *shapes in EINSUMS:
        operands = [small("f32", *s, step=5 + 2 * k) for k, s in enumerate(shapes)]
        run(topic, f"einsum/{spec}", lambda *x, s=spec: jnp.einsum(s, *x), *operands, spec=spec)
    for dtype in ("bf16", "f16", "i32", "f64"):
        run(
            topic,
            f"einsum/bij,bjk->bik {dtype}",
            lambda *x: jnp.einsum("bij,bjk->bik", *x),
            small(dtype, 2, 3, 4),
            small(dtype, 2, 4, 2, step=5),
            spec="bij,bjk->bik",
        )


def dot_generals(topic):
    cases = {
        "plain": ([3, 4], [4, 5], [1], [0], [], []),
        "transposed": ([4, 3], [5, 4], [0], [1], [], []),
        "batch": ([2, 3, 4], [2, 4, 5], [2], [1], [0], [0]),
        "batch_inside": ([3, 2, 4], [4, 5, 2], [2], [0], [1], [2]),
        "two_batch": ([2, 3, 4, 5], [3, 2, 5, 4], [3], [2], [0, 1], [1, 0]),
        "two_contracted": ([2, 3, 4], [4, 3, 5], [1, 2], [1, 0], [], []),
        "none_contracted": ([2, 3], [4], [], [], [], []),
        "all_contracted": ([2, 3], [2, 3], [0, 1], [0, 1], [], []),
        "batch_only": ([4], [4], [], [], [0], [0]),
    }
    for label, (s, t, lc, rc, lb, rb) in cases.items():
        for dtype in (
            ("f32", "i32", "bf16") if label in ("batch_inside", "two_contracted") else ("f32",)
        ):
            run(
                topic,
                f"dot_general/{label}" + f"_{dtype}" * (dtype != "f32"),
                lambda a, b: lax.dot_general(a, b, ((lc, rc), (lb, rb))),
                small(dtype, *s),
                small(dtype, *t, step=5),
                lhs_contracting=lc,
                rhs_contracting=rc,
                lhs_batch=lb,
                rhs_batch=rb,
            )


def norm(x, scale, bias, eps):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * scale + bias


def rms(x, scale, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * scale


def layers(topic):
    """The tolerance of bf16 and f16 is for results of f32 arithmetic, rounded at the end."""
    tolerance = {"f32": (8, 1e-6), "f64": (16, 1e-14), "bf16": (2, 1e-2), "f16": (2, 2e-3)}
    sqrt2, c = np.sqrt(np.float64(2)), np.sqrt(2 / np.pi)
    from scipy.special import erf, expit

    points = [0.0, -0.0, 1, -1, 0.5, -0.5, 2, -2, 3.25, -3.75, 10, -10, 0.1, -0.1, 100, -100]
    fns = {
        "relu": (jax.nn.relu, lambda x: np.maximum(x, 0)),
        "silu": (jax.nn.silu, lambda x: x * expit(x)),
        "gelu_tanh": (
            lambda x: jax.nn.gelu(x, approximate=True),
            lambda x: 0.5 * x * (1 + np.tanh(c * (x + 0.044715 * x**3))),
        ),
        "gelu_erf": (
            lambda x: jax.nn.gelu(x, approximate=False),
            lambda x: 0.5 * x * (1 + erf(x / sqrt2)),
        ),
    }
    for op, (fn, reference) in fns.items():
        for dtype in FLOATS:
            ulp, atol = (0, 0) if op == "relu" else tolerance[dtype]
            x = array(points + ([] if "gelu" in op else [float("inf"), float("nan")]), dtype)
            out = reference(x.astype(np.float64)).astype(DTYPES[dtype])
            check(f"{op}/{dtype}", fn(x), out, atol)
            params = {"approximate": op == "gelu_tanh"} if op[:4] == "gelu" else {}
            topic.add(
                f"{op}/{dtype}", [x], [out], op=op.split("_")[0], ulp=ulp, atol=atol, **params
            )
    run(topic, "relu/i32", jax.nn.relu, array([-3, 0, 5], "i32"))
    for dtype in FLOATS:
        ulp, atol = tolerance[dtype]
        x = (small(dtype, 2, 3, 8).astype(np.float64) / 4).astype(DTYPES[dtype])
        scale = (1 + small(dtype, 8, step=3).astype(np.float64) / 8).astype(DTYPES[dtype])
        bias = (small(dtype, 8, step=5).astype(np.float64) / 4).astype(DTYPES[dtype])
        wide = [v.astype(np.float64) for v in (x, scale, bias)]
        params = {"ulp": ulp, "atol": atol * 4}
        topic.add(
            f"layer_norm/{dtype}",
            [x, scale, bias],
            [norm(*wide, EPS_NORM).astype(DTYPES[dtype])],
            op="layer_norm",
            **params,
        )
        topic.add(
            f"rms_norm/{dtype}",
            [x, scale],
            [rms(*wide[:2], EPS_RMS).astype(DTYPES[dtype])],
            op="rms_norm",
            **params,
        )
        if dtype == "f32":
            topic.add(
                "layer_norm/eps",
                [x, scale, bias],
                [norm(*wide, 0.5).astype(np.float32)],
                op="layer_norm",
                eps=0.5,
                **params,
            )
            topic.add(
                "rms_norm/eps",
                [x, scale],
                [rms(*wide[:2], 0.5).astype(np.float32)],
                op="rms_norm",
                eps=0.5,
                **params,
            )
            same = np.full((2, 8), 3.0, np.float32)
            topic.add(
                "layer_norm/constant_rows",
                [same, scale, bias],
                [norm(same.astype(np.float64), *wide[1:], EPS_NORM).astype(np.float32)],
                op="layer_norm",
                **params,
            )


def check(name, got, want, atol):
    got, want = np.asarray(got).astype(np.float64), want.astype(np.float64)
    with np.errstate(all="ignore"):
        far = ~(
            (np.abs(got - want) <= atol + 4e-3 * np.abs(want))
            | (got == want)
            | (np.isnan(got) & np.isnan(want))
        )
    if far.any():
        print(f"  {name}: JAX {got[far]}, formula {want[far]}")


def make():
    topic = Topic("Products (matmul, dot, outer, einsum, dot_general) and layers.")
    for part in (products, einsums, dot_generals, layers):
        part(topic)
    return topic
