def jax_rows():
    import jax
    import jax.numpy as jnp
    from jax import lax

    def layer_norm(x, scale, bias):
        wide = x.astype(jnp.float32)
        centred = wide - wide.mean(-1, keepdims=True)
        normal = centred * lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5)
        return normal.astype(x.dtype) * scale + bias

    def rms_norm(x, scale):
        wide = x.astype(jnp.float32)
        return (wide * lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + 1e-6)).astype(
            x.dtype) * scale

    def normalize_columns(x):
        centred = x - x.mean(0)
        return centred * lax.rsqrt(jnp.square(centred).mean(0) + 1e-5)

    return {
        "eager_sum_1k": jnp.sum,
        "eager_softmax_small": jax.nn.softmax,
        "sum_all_16m": jnp.sum,
        "sum_rows_odd": lambda x: x.sum(1),
        "sum_columns_odd": lambda x: x.sum(0),
        "sum_middle": lambda x: x.sum(1),
        "sum_outer_dims_bf16": lambda x: x.sum((0, 1)),
        "sum_int_rows": lambda x: jnp.sum(x, 1, dtype=jnp.int32),
        "any_columns": lambda x: (x > 0.9999).any(0),
        "mean_var_f64": lambda x: (x.mean(1), x.var(1)),
        "max_columns_bf16": lambda x: x.max(0),
        "argmax_rows": lambda x: lax.argmax(x, 1, jnp.int32),
        "argmin_columns": lambda x: lax.argmin(x, 0, jnp.int32),
        "row_norm_bf16": lambda x: jnp.sqrt(jnp.square(x).sum(1)),
        "column_norm_f64": lambda x: jnp.sqrt(jnp.square(x).sum(0)),
        "rms_norm_bf16": rms_norm,
        "layer_norm_odd": layer_norm,
        "layer_norm_bf16": layer_norm,
        "softmax_vocabulary": jax.nn.softmax,
        "softmax_columns": lambda x: jax.nn.softmax(x, 0),
        "log_softmax_bf16": jax.nn.log_softmax,
        "logsumexp_f64": lambda x: jax.nn.logsumexp(x, 1),
        "normalize_columns": normalize_columns,
        "cumsum_rows": lambda x: jnp.cumsum(x, 1),
        "cumsum_columns": lambda x: jnp.cumsum(x, 0),
        "cumsum_int_1m": lambda x: jnp.cumsum(x, 0, dtype=jnp.int32),
        "cumprod_f64": lambda x: jnp.cumprod(x, 1),
        "sort_1m": jnp.sort,
        "sort_rows": jnp.sort,
        "argsort_int": jnp.argsort,
        "top_k": lambda x: lax.top_k(x, 8),
    }


def torch_rows():
    import torch
    from torch.nn import functional

    def rms_norm(x, scale):
        return functional.rms_norm(x, (x.shape[-1],), scale, 1e-6)

    def layer_norm(x, scale, bias):
        return functional.layer_norm(x, (x.shape[-1],), scale, bias)

    def normalize_columns(x):
        centred = x - x.mean(0)
        return centred * torch.rsqrt(torch.square(centred).mean(0) + 1e-5)

    return {
        "eager_sum_1k": torch.sum,
        "eager_softmax_small": lambda x: torch.softmax(x, -1),
        "sum_all_16m": torch.sum,
        "sum_rows_odd": lambda x: x.sum(1),
        "sum_columns_odd": lambda x: x.sum(0),
        "sum_middle": lambda x: x.sum(1),
        "sum_outer_dims_bf16": lambda x: x.sum((0, 1)),
        "sum_int_rows": lambda x: x.sum(1, dtype=torch.int32),
        "any_columns": lambda x: (x > 0.9999).any(0),
        "mean_var_f64": lambda x: (x.mean(1), x.var(1, correction=0)),
        "max_columns_bf16": lambda x: x.amax(0),
        "argmax_rows": lambda x: x.argmax(1),
        "argmin_columns": lambda x: x.argmin(0),
        "row_norm_bf16": lambda x: torch.sqrt(torch.square(x).sum(1)),
        "column_norm_f64": lambda x: torch.sqrt(torch.square(x).sum(0)),
        "rms_norm_bf16": rms_norm,
        "layer_norm_odd": layer_norm,
        "layer_norm_bf16": layer_norm,
        "softmax_vocabulary": lambda x: torch.softmax(x, -1),
        "softmax_columns": lambda x: torch.softmax(x, 0),
        "log_softmax_bf16": lambda x: torch.log_softmax(x, -1),
        "logsumexp_f64": lambda x: torch.logsumexp(x, 1),
        "normalize_columns": normalize_columns,
        "cumsum_rows": lambda x: torch.cumsum(x, 1),
        "cumsum_columns": lambda x: torch.cumsum(x, 0),
        "cumsum_int_1m": lambda x: torch.cumsum(x, 0, dtype=torch.int32),
        "cumprod_f64": lambda x: torch.cumprod(x, 1),
        "sort_1m": lambda x: torch.sort(x)[0],
        "sort_rows": lambda x: torch.sort(x)[0],
        "argsort_int": lambda x: torch.argsort(x, stable=True),
        "top_k": lambda x: tuple(torch.topk(x, 8)),
    }
