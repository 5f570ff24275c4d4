"""jax.nn.dot_product_attention and its gradients.

Inputs: q, k, v, the cotangent, then bias and mask where the case has them; outputs: the result and
the gradients with respect to q, k, v and the bias. Parameters: bias, mask, causal, scale (0: the
default).
"""

import jax
import numpy as np

from .common import DTYPES, Topic


def wave(dtype, shape, start):
    n = int(np.prod(shape))
    return (np.sin(start + 0.7 * np.arange(n) ** 1.1)).reshape(shape).astype(DTYPES[dtype])


# q, k (v has k's shape), bias, mask, causal, scale
CASES = [
    ((2, 6, 4, 8), (2, 10, 4, 8), None, None, False, 0),
    ((2, 6, 4, 8), (2, 10, 2, 8), None, None, False, 0.5),
    ((2, 6, 4, 4), (2, 6, 1, 4), None, None, True, 0),
    ((1, 5, 2, 4), (1, 7, 2, 4), (1, 2, 5, 7), (1, 1, 5, 7), False, 0),
    ((2, 5, 4, 4), (2, 7, 2, 4), (1, 4, 1, 7), (2, 1, 1, 7), True, 0),
    ((6, 4, 8), (6, 2, 8), None, None, True, 0),
    # Several tiles of scores and an incomplete tile, in both dims.
    ((1, 261, 2, 4), (1, 523, 1, 4), None, None, False, 0),
    ((1, 265, 2, 4), (1, 265, 2, 4), None, None, True, 0),
    ((1, 265, 2, 4), (1, 270, 1, 4), None, (1, 1, 1, 270), True, 0.25),
]


def make():
    topic = Topic(__doc__)
    for dtype in ("f32", "bf16"):
        for number, (q, k, bias, mask, causal, scale) in enumerate(CASES):
            arrays = [wave(dtype, q, 0.3), wave(dtype, k, 1.1), wave(dtype, k, 2.3)]
            arrays.append(wave(dtype, q, 0.9))
            if bias:
                arrays.append(wave("f32", bias, 1.7))
            if mask:
                arrays.append((np.arange(int(np.prod(mask))) % 3 != 1).reshape(mask))

            def run(q, k, v, ct, *rest, biased=bool(bias), causal=causal, scale=scale):
                mask = rest[biased:]

                def f(q, k, v, *bias):
                    return jax.nn.dot_product_attention(
                        q,
                        k,
                        v,
                        *bias,
                        mask=mask[0] if mask else None,
                        is_causal=causal,
                        scale=scale or None,
                    )

                y, pullback = jax.vjp(f, q, k, v, *rest[:biased])
                return (y, *pullback(ct))

            topic.run(
                f"{number}/{dtype}",
                jax.jit(run),
                *arrays,
                bias=bool(bias),
                mask=bool(mask),
                causal=causal,
                scale=float(scale),
                ulp=16,
                # Sums of hundreds of weighted rows are of another order.
                atol={"f32": 2e-6 if q[0] * q[-3] < 100 else 1e-5, "bf16": 0.03}[dtype],
            )
    return topic
