"""Random numbers: keys, bits, and every sampler, in jax.random's two modes of threefry2x32.

The first input of a case is the key, as its two words; params say which function it is and what it
is given. "original": jax_threefry_partitionable=False.
"""

import contextlib

import jax
import jax.extend
import numpy as np

from .common import DTYPES, FLOATS, SIGNED, UNSIGNED, Topic

KEYS = {"zero": 0, "year": 1701, "minus": -1, "wide": 123456789012}
# The largest distance of results from JAX's, in units in the last place of f16, bf16, f32 and f64: about
# twice the measured one (SHMAP_TEST_ULPS=1 golden_random_test; docs/random.md has the table). None: not drawn.
ULPS = {
    "normal": (2, 2, 4, 8),
    "exponential": (2, 2, 4, 128),
    "gumbel": (4, 2, 32, 32),
    "laplace": (2, 2, 4, 4),
    "logistic": (4, 2, 8, 256),
    "cauchy": (2, 2, 4, 4),
    "truncated_normal": (2, 2, 32, 32),
    "gamma": (None, None, 32, 32),
    "loggamma": (None, None, 16, 96),
    "beta": (None, None, 16, 40),
    "dirichlet": (None, None, 40, 48),
    "generalized_normal": (None, None, 8, None),
    "ball": (None, None, 8, None),
}
STEP = {"f16": 2**-10, "bf16": 2**-7, "f32": 2**-23, "f64": 2**-52}


def near(sampler, dtype):
    """Near 0 a distance of 4 times the last place of 1 is allowed as well."""
    return {"ulp": ULPS[sampler][FLOATS.index(dtype)], "atol": 4 * STEP[dtype]}


def words(seed):
    return np.asarray(jax.random.key_data(jax.random.key(seed)))


def make():
    topic = Topic(__doc__)

    def run(name, fn, seed, *inputs, modes=("", "original"), plain=False, narrow=False, **params):
        for mode in modes:
            with contextlib.ExitStack() as stack:
                if mode:
                    stack.enter_context(jax.threefry_partitionable(False))
                if plain:  # op by op: no product and sum in one rounding
                    stack.enter_context(jax.disable_jit())
                if narrow:  # ints of 32 bits where JAX chooses the dtype
                    stack.enter_context(jax.enable_x64(False))
                topic.run(
                    "/".join(filter(None, [name, mode])),
                    lambda k, *x: fn(jax.random.wrap_key_data(k), *x),
                    words(seed),
                    *inputs,
                    call=name.split("/")[0],
                    original=bool(mode),
                    **params,
                )

    for name, seed in KEYS.items():
        topic.add(f"key/{name}", (), (words(seed),), call="key", seed=seed)
        run(f"split/{name}", lambda k: jax.random.key_data(jax.random.split(k, 5)), seed, shape=[5])
        run(
            f"fold_in/{name}",
            lambda k: jax.random.key_data(jax.random.fold_in(k, 3000000000)),
            seed,
            data=3000000000,
        )
        for dtype in UNSIGNED:
            run(
                f"bits/{dtype}/{name}",
                lambda k: jax.random.bits(k, (3, 7), DTYPES[dtype]),
                seed,
                shape=[3, 7],
                dtype=dtype,
            )
    run(
        "split/shape",
        lambda k: jax.random.key_data(jax.random.split(k, (2, 3))),
        3,
        shape=[2, 3],
    )
    for dtype in UNSIGNED:
        for shape in ((), (1,), (0, 3), (97,), (4, 5, 6)):
            run(
                f"bits/{dtype}/{'x'.join(map(str, shape)) or 'scalar'}",
                lambda k: jax.random.bits(k, shape, DTYPES[dtype]),
                42,
                shape=list(shape),
                dtype=dtype,
            )
    run("bits/u32/large", lambda k: jax.random.bits(k, (1023,), np.uint32), 5, shape=[1023], dtype="u32")

    for dtype in FLOATS:
        d = DTYPES[dtype]
        at = dict(dtype=dtype, shape=[4, 6])
        run(f"uniform/{dtype}", lambda k: jax.random.uniform(k, (4, 6), d), 7, **at)
        run(
            f"uniform/{dtype}/bounds",
            lambda k, lo, hi: jax.random.uniform(k, (4, 6), d, lo, hi),
            8,
            np.array(-2.5, d),
            np.linspace(-2, 3, 6).astype(d),
            plain=True,
            **at,
        )
        for sampler in ("normal", "exponential", "gumbel", "laplace", "logistic", "cauchy"):
            fn = getattr(jax.random, sampler)
            run(f"{sampler}/{dtype}", lambda k: fn(k, (4, 6), d), 11, **at, **near(sampler, dtype))
        run(
            f"truncated_normal/{dtype}",
            lambda k, lo, hi: jax.random.truncated_normal(k, lo, hi, (4, 6), d),
            12,
            np.array([-2, -1, -0.5, 0, 0.25, -np.inf], d),
            np.array(1.5, d),
            **at,
            **near("truncated_normal", dtype),
        )
        run(
            f"bernoulli/{dtype}",
            lambda k, p: jax.random.bernoulli(k, p, (4, 6)),
            13,
            np.linspace(0, 1, 6).astype(d),
            **at,
        )
        run(
            f"categorical/{dtype}",
            lambda k, x: jax.random.categorical(k, x, axis=1).astype(np.int32),
            14,
            np.linspace(-1, 2, 24).reshape(4, 6).astype(d),
            axis=1,
            dtype=dtype,
        )
    for dtype in SIGNED + UNSIGNED:
        d = DTYPES[dtype]
        low, high = np.iinfo(d).min, np.iinfo(d).max
        bounds = [(low // 4, high // 3), (5, 5), (1, 100), (low, high)]
        if high < 2**62:
            bounds.append((low, high + 1))
        for k, (lo, hi) in enumerate(bounds):
            run(
                f"randint/{dtype}/{k}",
                lambda key, lo, hi: jax.random.randint(key, (9,), lo, hi, d),
                20 + k,
                np.array(lo, np.int64) if hi < 2**63 else np.array(lo, np.uint64),
                np.array(hi, np.int64) if hi < 2**63 else np.array(hi, np.uint64),
                shape=[9],
                dtype=dtype,
            )
    run(
        "randint/arrays",
        lambda key, lo, hi: jax.random.randint(key, (3, 4), lo, hi, np.int32),
        30,
        np.array([[-3], [0], [7]], np.int32),
        np.array([1, 5, 9, 100], np.int32),
        shape=[3, 4],
        dtype="i32",
    )

    run("permutation/10", lambda k: jax.random.permutation(k, 10).astype(np.int32), 31, n=10)
    run("permutation/0", lambda k: jax.random.permutation(k, 0).astype(np.int32), 31, n=0)
    grid = np.arange(24, dtype=np.float32).reshape(4, 6)
    for axis in (0, 1):
        for independent in (False, True):
            run(
                f"permutation/axis{axis}{'i' if independent else ''}",
                lambda k, x: jax.random.permutation(k, x, axis, independent=independent),
                32,
                grid,
                axis=axis,
                independent=independent,
            )
    chances = np.array([0.1, 0.0, 0.4, 0.2, 0.25, 0.05], np.float32)
    for replace in (True, False):
        tag = "with" if replace else "without"
        run(
            f"choice/{tag}/n",
            lambda k: jax.random.choice(k, 12, (2, 3), replace).astype(np.int32),
            33,
            narrow=True,
            n=12,
            shape=[2, 3],
            replace=replace,
        )
        run(
            f"choice/{tag}/axis1",
            lambda k, x: jax.random.choice(k, x, (2, 2), replace, axis=1),
            34,
            grid,
            narrow=True,
            axis=1,
            shape=[2, 2],
            replace=replace,
        )
        run(
            f"choice/{tag}/p",
            lambda k, x, p: jax.random.choice(k, x, (3,), replace, p, axis=1),
            35,
            grid,
            chances,
            narrow=True,
            axis=1,
            shape=[3],
            replace=replace,
        )
    run(
        "categorical/prefix",
        lambda k, x: jax.random.categorical(k, x, 0, (5, 6)).astype(np.int32),
        36,
        grid / 9,
        axis=0,
        shape=[5, 6],
    )
    run(
        "categorical/without",
        lambda k, x: jax.random.categorical(k, x, -1, (3, 4), replace=False).astype(np.int32),
        37,
        grid / 9,
        axis=-1,
        shape=[3, 4],
        replace=False,
    )
    run(
        "rademacher/i32",
        lambda k: jax.random.rademacher(k, (7,), np.int32),
        38,
        narrow=True,
        shape=[7],
        dtype="i32",
    )

    # Drawn until accepted.
    for dtype in ("f32", "f64"):
        d = DTYPES[dtype]
        at = dict(dtype=dtype, shape=[5, 4])
        a = np.array([0.05, 0.7, 1, 12.5], d)
        b = np.array([[0.5], [1], [2], [30], [0.1]], d)
        run(
            f"gamma/{dtype}",
            lambda k, a: jax.random.gamma(k, a, (5, 4), d),
            41,
            a,
            **at,
            **near("gamma", dtype),
        )
        run(
            f"loggamma/{dtype}",
            lambda k, a: jax.random.loggamma(k, a, (5, 4), d),
            42,
            a,
            **at,
            **near("loggamma", dtype),
        )
        run(
            f"beta/{dtype}",
            lambda k, a, b: jax.random.beta(k, a, b, (5, 4), d),
            43,
            a,
            b,
            **at,
            **near("beta", dtype),
        )
        run(
            f"dirichlet/{dtype}",
            lambda k, a: jax.random.dirichlet(k, a, (5,), d),
            44,
            a,
            dtype=dtype,
            shape=[5],
            **near("dirichlet", dtype),
        )
    run(
        "generalized_normal/f32",
        lambda k: jax.random.generalized_normal(k, 1.5, (5, 4), np.float32),
        45,
        p=1.5,
        dtype="f32",
        shape=[5, 4],
        narrow=True,
        **near("generalized_normal", "f32"),
    )
    run(
        "ball/f32",
        lambda k: jax.random.ball(k, 3, 2.0, (5,), np.float32),
        46,
        d=3,
        p=2.0,
        dtype="f32",
        shape=[5],
        narrow=True,
        **near("ball", "f32"),
    )
    run(
        "poisson/i32",
        lambda k, lam: jax.random.poisson(k, lam, (4, 6), np.int32),
        47,
        np.array([0, 0.3, 4, 9.5, 12, 1000], np.float32),
        shape=[4, 6],
        dtype="i32",
    )
    # Q of a QR: as far apart as the rounding of two factorisations.
    for dtype in ("f32", "f64"):
        d = DTYPES[dtype]
        for n, m, shape in ((1, 1, ()), (4, 4, (3,)), (5, 3, ()), (3, 6, (2,)), (80, 40, ())):
            tag = "x".join(map(str, (*shape, n, m)))
            run(
                f"orthogonal/{dtype}/{tag}",
                lambda k: jax.random.orthogonal(k, n, shape, d, m),
                49,
                dtype=dtype,
                n=n,
                m=m,
                shape=list(shape),
                modes=("",) if n == 80 else ("", "original"),
                ulp=16,
                atol={"f32": 12, "f64": 24}[dtype] * STEP[dtype],
            )
    pairs = np.arange(40, dtype=np.uint32).reshape(5, 8)
    topic.run(
        "threefry_2x32/even",
        lambda k, x: jax.extend.random.threefry_2x32(k, x),
        words(48),
        pairs,
        call="threefry_2x32",
    )
    topic.run(
        "threefry_2x32/odd",
        lambda k, x: jax.extend.random.threefry_2x32(k, x),
        np.array([1, 2], np.uint32),
        np.arange(7, dtype=np.uint32),
        call="threefry_2x32",
    )
    return topic
