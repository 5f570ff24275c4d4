"""Loops and branches: fori_loop, while_loop, scan, cond and switch.

A case's name is its program's, which tests/transforms/control_flow/golden_control_flow_test.cpp has
in C++, up to a "/". Values are small integers, also as floats, so that results are exact however
XLA fuses.
"""

import jax.numpy as jnp
from jax import lax

from .common import Topic, arange, array


def make():
    topic = Topic(__doc__)
    x, m = arange("f32", 6), arange("f32", 3, 3)

    def horner(c):
        return lax.fori_loop(0, 5, lambda i, a: a * 2 + i, c)

    topic.run("fori_horner", horner, array(3, "f32"))
    topic.run("fori_horner/i32", horner, array(3, "i32"))
    topic.run("fori_horner/i64", horner, array(3, "i64"))
    topic.run("fori_weak_init", lambda v: lax.fori_loop(1, 4, lambda i, a: a + v[i], 0), x)

    def between(lo, hi, c):
        return lax.fori_loop(lo, hi, lambda i, a: a + i, c)

    for lo, hi in ((1, 5), (-3, 3), (4, 4), (9, 2)):
        topic.run(
            f"fori_bounds/{lo},{hi}",
            between,
            array(lo, "i32"),
            array(hi, "i32"),
            array(10, "i32"),
        )

    def triangle(c):
        inner = lambda i, a: lax.fori_loop(0, i, lambda j, b: b + i * j, a)
        return lax.fori_loop(0, 6, inner, c)

    topic.run("fori_nested", triangle, array(0, "i32"))

    def halve(v):
        return lax.while_loop(
            lambda c: jnp.sum(c[0]) > 1, lambda c: (c[0] // 2, c[1] + 1), (v, jnp.int32(0))
        )

    topic.run("while_halve", halve, array([90, 7, 33], "i32"))
    topic.run("while_halve/none", halve, array([0, 1], "i32"))

    def running(c, xs):
        return lax.scan(lambda s, v: (s + v, s * v), c, xs)

    topic.run("scan_running", running, array(1, "f32"), x)
    topic.run("scan_running/i32", running, array(1, "i32"), arange("i32", 5))
    topic.run("scan_running/empty", running, array(1, "f32"), x[:0])
    topic.run("scan_running/rows", running, x[:3], m)
    topic.run(
        "scan_reverse",
        lambda c, xs: lax.scan(lambda s, v: (s * 2 + v, s), c, xs, reverse=True),
        array(1, "f32"),
        x,
    )
    topic.run(
        "scan_length",
        lambda c: lax.scan(lambda s, _: (s * 3, s), c, None, length=4),
        array(1, "i32"),
    )
    topic.run(
        "scan_products",
        lambda c, w: lax.scan(lambda s, a: (a @ s % 5, s), c, jnp.stack([w, w + 1, w * 2])),
        m,
        m,
    )

    def choose(p, v, w):
        return lax.cond(p, lambda a, b: (a + b, a), lambda a, b: (a - b, b), v, w)

    for p in (True, False):
        topic.run(f"cond/{p}", choose, array(p, "bool"), x, x * 2)

    def switch(i, v):
        return lax.switch(i, [lambda a: a, lambda a: a * 2, lambda a: -a], v)

    for i in (-5, 0, 1, 2, 7):
        topic.run(f"switch/{i}", switch, array(i, "i32"), x)
    return topic
