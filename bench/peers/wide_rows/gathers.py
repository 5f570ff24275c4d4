TAKES = ("embedding", "embedding_bf16", "embedding_short_rows", "embedding_batch",
         "eager_embedding", "take_elements")
GRADIENTS = ("embedding_grad", "embedding_grad_bf16", "take_elements_grad")


def jax_rows():
    import jax
    import jax.numpy as jnp
    from jax import lax

    def table_gradient(table, ids, bar):
        return jax.grad(lambda t: (t[ids] * bar).sum())(table)

    return {name: (lambda table, ids: table[ids]) for name in TAKES} | {
        name: table_gradient for name in GRADIENTS
    } | {
        "embedding_mean": lambda table, ids: table[ids].mean(1),
        "take_columns": lambda x, ids: x[:, ids],
        "histogram": lambda ids, weights: jnp.zeros(1000, jnp.float32).at[ids].add(weights),
        "one_hot_product": lambda ids, w: jax.nn.one_hot(ids, 500, dtype=jnp.float32) @ w,
        "dynamic_slice_row": lambda x, at: lax.dynamic_slice(
            x, (at[0], jnp.int32(0)), (100, 1000)),
        "dynamic_update": lambda x, u, at: lax.dynamic_update_slice(
            x, u, (at[0], jnp.int32(0))),
        "pick_by_label": lambda x, labels: jnp.take_along_axis(x, labels[:, None], 1)[:, 0],
        "masked_by_label": lambda x, labels: jnp.where(
            labels[:, None] == jnp.arange(1000), x, 0).sum(1),
    }


def torch_rows():
    import torch

    def table_gradient(table, ids, bar):
        return torch.zeros_like(table).index_add_(0, ids, bar)

    def update(x, u, at):
        out = x.clone()
        out[int(at[0]):int(at[0]) + 10] = u
        return out

    return {name: (lambda table, ids: torch.nn.functional.embedding(ids, table))
            for name in TAKES if name != "take_elements"} | {
        name: table_gradient for name in GRADIENTS
    } | {
        "take_elements": lambda x, ids: x[ids],
        "embedding_mean": lambda table, ids: torch.nn.functional.embedding_bag(
            ids, table, mode="mean"),
        "take_columns": lambda x, ids: torch.index_select(x, 1, ids),
        "histogram": lambda ids, weights: torch.zeros(1000).index_add_(0, ids, weights),
        "dynamic_slice_row": lambda x, at: x[int(at[0]):int(at[0]) + 100].clone(),
        "dynamic_update": update,
        "pick_by_label": lambda x, labels: torch.gather(x, 1, labels.long()[:, None])[:, 0],
        "masked_by_label": lambda x, labels: torch.where(
            labels[:, None] == torch.arange(1000, dtype=torch.int32), x, 0).sum(1),
    }
