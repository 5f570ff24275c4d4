def jax_rows():
    import jax
    import jax.numpy as jnp
    from jax import lax

    def xorshift(x):
        y = x ^ (x << 13)
        y = y ^ (y >> 17)
        return y ^ (y << 5)

    return {
        "eager_add_1m": lambda x, y: x + y,
        "eager_add_bf16": lambda x, y: x + y,
        "eager_chain_10k": lambda x: jnp.tanh(x * 2 + 1) * x - jnp.exp(x),
        "axpy_odd": lambda x, y: 2.5 * x + y,
        "add_int8_16m": lambda x, y: x + y,
        "gelu_bf16": jax.nn.gelu,
        "tanh_f64": jnp.tanh,
        "sin_cos": lambda x: jnp.sin(x) * jnp.cos(x),
        "pow_float": lambda x, y: x**y,
        "erf_logistic": lambda x: lax.erf(x) * jax.nn.sigmoid(x),
        "log1p_expm1_f64": lambda x: jnp.log1p(x) - jnp.expm1(x),
        "where_odd": lambda x, y: jnp.where(x > y, x, y * 0.5),
        "int_mod": lambda x: (x * 3 + 5) % 7,
        "int_floor_divide_i64": lambda x: (x - 50000) // 17,
        "xorshift_u32": xorshift,
        "quantize_int8": lambda x: jnp.round(jnp.clip(x * 127, -127, 127)).astype(jnp.int8),
        "cast_f32_bf16": lambda x: x.astype(jnp.bfloat16),
        "cast_i32_f64": lambda x: x.astype(jnp.float64),
        "add_row": lambda x, row: x + row,
        "scale_columns": lambda x, column: x * column,
        "outer_difference": lambda x, y: jnp.abs(x - y),
        "small_chain_1k": lambda x, y: jnp.sqrt(jnp.abs(x * y + 1)) - jnp.tanh(x),
    }


def torch_rows():
    import torch

    def gelu(x):
        return torch.nn.functional.gelu(x, approximate="tanh")

    return {
        "eager_add_1m": lambda x, y: x + y,
        "eager_add_bf16": lambda x, y: x + y,
        "eager_chain_10k": lambda x: torch.tanh(x * 2 + 1) * x - torch.exp(x),
        "axpy_odd": lambda x, y: torch.add(y, x, alpha=2.5),
        "add_int8_16m": lambda x, y: x + y,
        "gelu_bf16": gelu,
        "tanh_f64": torch.tanh,
        "sin_cos": lambda x: torch.sin(x) * torch.cos(x),
        "pow_float": lambda x, y: x**y,
        "erf_logistic": lambda x: torch.erf(x) * torch.sigmoid(x),
        "log1p_expm1_f64": lambda x: torch.log1p(x) - torch.expm1(x),
        "where_odd": lambda x, y: torch.where(x > y, x, y * 0.5),
        "int_mod": lambda x: (x * 3 + 5) % 7,
        "int_floor_divide_i64": lambda x: (x - 50000) // 17,
        "quantize_int8": lambda x: torch.round(torch.clip(x * 127, -127, 127)).to(torch.int8),
        "cast_f32_bf16": lambda x: x.to(torch.bfloat16),
        "cast_i32_f64": lambda x: x.double(),
        "add_row": lambda x, row: x + row,
        "scale_columns": lambda x, column: x * column,
        "outer_difference": lambda x, y: torch.abs(x - y),
        "small_chain_1k": lambda x, y: torch.sqrt(torch.abs(x * y + 1)) - torch.tanh(x),
    }
