"""Random numbers; torch's are of another generator, and other numbers."""


def jax_rows():
    import jax
    import jax.numpy as jnp

    n = 1 << 24

    def dropout(words, x):
        keep = jax.random.bernoulli(jax.random.wrap_key_data(words), jnp.float32(0.9), x.shape)
        return jnp.where(keep, x / 0.9, 0)

    return {
        "random_bits_16m": lambda words: jax.random.bits(
            jax.random.wrap_key_data(words), (n,), jnp.uint32
        ),
        "random_normal_16m": lambda words: jax.random.normal(
            jax.random.wrap_key_data(words), (n,), jnp.float32
        ),
        "dropout_4m": dropout,
    }


def torch_rows():
    return {}
