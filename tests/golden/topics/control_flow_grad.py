"""Derivatives of loops and branches: of fori_loop, while_loop, scan, cond and switch.

A case's name is its program's, which
tests/transforms/control_flow/golden_control_flow_grad_test.cpp has in C++, up to a "/", with "vjp"
or "jvp" before it. Inputs are the program's arguments, then a cotangent for each result (vjp) or a
tangent for each argument (jvp); outputs are cotangents, or results and tangents. Values are small
integers where results are exact however XLA fuses; ulp says otherwise.
"""

import jax
import jax.numpy as jnp
from jax import lax

from .common import Topic, arange, array


def make():
    topic = Topic(__doc__)

    def vjp(name, f, args, cts, **params):
        n = len(args)

        def run(*all):
            return jax.vjp(lambda *a: tuple(f(*a)), *all[:n])[1](tuple(all[n:]))

        topic.run(f"vjp {name}", run, *args, *cts, **params)

    def jvp(name, f, args, tangents, **params):
        n = len(args)

        def run(*all):
            return jax.jvp(lambda *a: tuple(f(*a)), all[:n], all[n:])

        topic.run(f"jvp {name}", run, *args, *tangents, **params)

    x, m = arange("f32", 6), arange("f32", 3, 3)
    one, two = array(1, "f32"), array(2, "f32")

    def horner(c, w):
        return (lax.fori_loop(0, 5, lambda i, a: a * w + i, c),)

    vjp("fori_horner", horner, (array(3, "f32"), two), (one,))
    jvp("fori_horner", horner, (array(3, "f32"), two), (one, one))

    def running(c, xs):
        return lax.scan(lambda s, v: (s + v, s * v), c, xs)

    vjp("scan_running", running, (one, x), (two, x + 1))
    vjp("scan_running/empty", running, (one, x[:0]), (two, x[:0]))
    vjp("scan_running/rows", running, (x[:3], m), (x[:3], m + 1))
    jvp("scan_running", running, (one, x), (two, x + 1))

    def backwards(c, xs):
        return lax.scan(lambda s, v: (s * 2 + v * v, s), c, xs, reverse=True)

    vjp("scan_reverse", backwards, (one, x), (two, x + 1))

    def products(c, w):
        return lax.scan(lambda s, a: (a @ s, s), c, jnp.stack([w, w + 1, w * 2]))

    cts = (m, jnp.stack([m, m * 2, m + 3]))
    vjp("scan_products", products, (m, m), cts)

    def rnn(h, xs, w):
        step = lambda c, v: (jnp.tanh(c @ w + v), c)
        return lax.scan(step, h, xs)

    small = lambda *shape: (arange("f64", *shape) % 7 - 3) / 8
    rnn_args = (small(2, 3), small(4, 2, 3), small(3, 3))
    vjp("scan_rnn", rnn, rnn_args, (small(2, 3), small(4, 2, 3)), ulp=64, atol=1e-13)
    jvp("scan_rnn", rnn, rnn_args, rnn_args, ulp=64, atol=1e-13)

    def powers(v, w):
        out = lax.while_loop(
            lambda c: jnp.sum(c[0]) < 100, lambda c: (c[0] * 2, c[1] * c[0] + w), (v, w)
        )
        return out

    jvp("while_powers", powers, (x[1:3], x[2:4]), (x[:2], x[1:3]))

    def choose(p):
        return lambda v, w: lax.cond(
            p, lambda a, b: (a * b, a), lambda a, b: (a * a - b, b * b * a), v, w
        )

    for p in (True, False):
        vjp(f"cond{int(p)}", choose(p), (x, x * 2), (x + 1, x + 2))
        jvp(f"cond{int(p)}", choose(p), (x, x * 2), (x + 1, x + 2))

    def switch(i):
        return lambda v: (lax.switch(i, [lambda a: a, lambda a: a * a, lambda a: a * 0 + 1], v),)

    for i in (0, 1, 2):
        vjp(f"switch{i}", switch(i), (x,), (x + 1,))
    return topic
