"""Result dtypes: a row is "op operands -> result", where * marks a weak type.

Operands without * are arrays (or typed scalars); those with * are C++ scalars, whose own types are
i32* (int), i64*, f32* (float), f64* (double). JAX has one weak type a kind (int, float), of which
the width is the default's: 64 bits here. Ours keeps the scalar's own type instead, so where JAX's
lattice ends in a bare weak kind (bool array + int, i32 array + float) the row has the widest weak
operand of that kind. A bool scalar is not weak.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from .common import DTYPES, FLOATS, SHORT, Topic

WEAK = ("i32", "i64", "f32", "f64")


def operand(name):
    """A one-element array; with * a weakly typed one of that dtype."""
    dtype = DTYPES[name.rstrip("*")]
    x = jnp.ones((), dtype)
    if name.endswith("*"):
        x = jax._src.lax.lax._convert_element_type(x, dtype, weak_type=True)
        assert x.aval.weak_type, name
    return x


def result_name(out, names):
    short = SHORT[np.dtype(out.dtype)]
    if not out.weak_type or short == "bool":  # a bool is never weak in ours
        return short
    weak = [n.rstrip("*") for n in names if n.endswith("*") and n[0] == short[0]]
    all_weak = all(n.endswith("*") for n in names)
    if weak and not all_weak:
        short = max(weak, key=lambda n: DTYPES[n].itemsize)
    return short + "*"


def rows(op, fn, operand_lists):
    out = []
    for names in operand_lists:
        result = result_name(jax.eval_shape(fn, *map(operand, names)), names)
        if op == "divide" and "bool" in names and "i32*" in names:
            result = "f32*"  # JAX makes the sum i64* (see above), so its quotient f64*
        out.append(f"{op} {' '.join(names)} -> {result}")
    return out


def make():
    topic = Topic("Result dtypes of operators, unary functions and reductions; * is a weak type.")
    arrays = list(DTYPES)
    weak = [w + "*" for w in WEAK]
    pairs = list(itertools.product(arrays, arrays))
    mixed = list(itertools.product(arrays, weak)) + list(itertools.product(weak, arrays))
    scalars = list(itertools.product(weak, weak))
    for op, fn in {"add": jnp.add, "divide": jnp.true_divide, "pow": jnp.power}.items():
        # An integer exponent leaves the base's type alone, and bool ** bool is an error in JAX.
        legal = (
            pairs + mixed + scalars
            if op != "pow"
            else [
                p for p in pairs + mixed if p[0][-1] != "*" and (p[0] != "bool" or p[1] in FLOATS)
            ]
        )
        topic.add(op, rows=rows(op, fn, legal))
    topic.add("less", rows=rows("less", jnp.less, [("i32", "f32"), ("u8", "i8"), ("f32", "f32*")]))
    one = [(a,) for a in arrays + weak]  # bool first: it has no round
    unary = {
        "sin": jnp.sin,
        "sqrt": jnp.sqrt,
        "exp": jnp.exp,
        "reciprocal": jnp.reciprocal,
        "floor": jnp.floor,
        "ceil": jnp.ceil,
        "round": jnp.round,
        "isnan": jnp.isnan,
        "logical_not": jnp.logical_not,
    }
    for op, fn in unary.items():
        topic.add(op, rows=rows(op, fn, one[op == "round" :]))
    topic.add("square", rows=rows("square", jnp.square, one[1:]))
    floats = [(a,) for a in arrays + weak if a[0] in "f" or a == "bf16"]
    for op, fn in {"logistic": jax.nn.sigmoid, "erf": jax.scipy.special.erf}.items():
        topic.add(op, rows=rows(op, fn, floats))
    signed = [(a,) for a in arrays + weak if a != "bool"]
    for op, fn in {"abs": jnp.abs, "sign": jnp.sign, "negative": jnp.negative}.items():
        topic.add(op, rows=rows(op, fn, signed))
    reductions(topic, arrays)
    return topic


def reductions(topic, arrays):
    """Integers keep their dtype in sum, prod, cumsum and cumprod (in JAX they widen), and bool
    counts in i32 (JAX's default integer without 64-bit types); argmax and argsort give i32."""
    for op in ("sum", "prod", "cumsum", "cumprod"):
        keep = []
        for a in arrays:
            got = SHORT[np.dtype(getattr(jnp, op)(jnp.ones((2,), DTYPES[a]), axis=0).dtype)]
            integer = np.issubdtype(DTYPES[a], np.integer)
            assert got == a or integer or a == "bool", (op, a, got)
            keep.append(f"{op} {a} -> {'i32' if a == 'bool' else a}")
        topic.add(op, rows=keep)
    plain = {
        "mean": jnp.mean,
        "var": jnp.var,
        "max": jnp.max,
        "min": jnp.min,
        "any": jnp.any,
        "all": jnp.all,
        "sort": jnp.sort,
        "logsumexp": jax.nn.logsumexp,
        "softmax": jax.nn.softmax,
    }
    for op, fn in plain.items():
        out = []
        for a in arrays:
            if (
                op in ("logsumexp", "softmax")
                and a[0] not in "fb"
                or (op == "softmax" and a == "bool")
            ):
                continue
            out.append(f"{op} {a} -> {SHORT[np.dtype(fn(jnp.ones((2,), DTYPES[a])).dtype)]}")
        topic.add(op, rows=out)
    for op in ("argmax", "argmin", "argsort"):
        topic.add(op, rows=[f"{op} {a} -> i32" for a in arrays])
