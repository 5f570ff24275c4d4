"""Derivatives of samplers with respect to their distributions' parameters, by implicit
reparametrisation where they draw until they accept.

Inputs of a case are the key's two words, the parameters, and the cotangent of what is drawn;
outputs are the parameters' cotangents.
"""

import jax
import numpy as np

from .common import DTYPES, Topic
from .random import STEP, words


def make():
    topic = Topic(__doc__)

    def run(name, dtype, fn, seed, drawn, *parameters, **params):
        d = DTYPES[dtype]
        size = int(np.prod(drawn, dtype=int))
        weights = (1 + np.arange(size) % 5 - 2 * (np.arange(size) % 2)).astype(d).reshape(drawn)

        def pull(k, *x):
            *given, bar = x
            return jax.vjp(lambda *a: fn(jax.random.wrap_key_data(k), *a, d), *given)[1](bar)

        topic.run(
            f"{name}/{dtype}",
            pull,
            words(seed),
            *[np.asarray(p, d) for p in parameters],
            weights,
            call=name.split("/")[0],
            dtype=dtype,
            ulp={"f32": 512, "f64": 65536}[dtype],
            atol=4096 * STEP[dtype],
            **params,
        )

    for dtype in ("f32", "f64"):
        # Both sides of 1 and of the sample; large ones, whose samples lie close to them.
        for seed, a in enumerate(([0.2, 0.7, 1, 1.5], [2.5, 12.5, 80, 1000])):
            for name in ("gamma", "loggamma"):
                sampler = getattr(jax.random, name)
                run(
                    f"{name}/{seed}",
                    dtype,
                    lambda k, x, d: sampler(k, x, (6, 4), d),
                    61 + seed,
                    (6, 4),
                    np.broadcast_to(a, (6, 4)),
                    shape=[6, 4],
                )
        run(
            "beta",
            dtype,
            lambda k, a, b, d: jax.random.beta(k, a, b, (5, 4), d),
            63,
            (5, 4),
            np.array([0.5, 0.7, 1, 12.5]),
            np.array([[0.5], [1], [2], [30], [0.8]]),
            shape=[5, 4],
        )
        run(
            "dirichlet",
            dtype,
            lambda k, a, d: jax.random.dirichlet(k, a, (5,), d),
            64,
            (5, 4),
            np.array([0.5, 0.7, 1, 12.5]),
            shape=[5],
        )
    # Their signs are drawn by a float of JAX's choice: of 32 bits in its 32-bit mode, as ours.
    with jax.enable_x64(False):
        run(
            "generalized_normal",
            "f32",
            lambda k, p, d: jax.random.generalized_normal(k, p, (5, 4), d),
            65,
            (5, 4),
            1.5,
            shape=[5, 4],
        )
        run(
            "ball",
            "f32",
            lambda k, p, d: jax.random.ball(k, 3, p, (5,), d),
            66,
            (5, 3),
            2.5,
            shape=[5],
            d=3,
        )
    return topic
