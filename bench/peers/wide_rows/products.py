MATMULS = ("eager_matmul_64", "eager_matmul_300", "matmul_512", "matmul_odd", "matmul_odd_large",
           "matmul_f64", "matmul_f64_odd", "matmul_bf16", "matmul_bf16_odd", "matmul_f16",
           "matmul_int", "matmul_thin", "matmul_long_sum", "matrix_vector", "vector_matrix",
           "vector_matrix_bf16", "few_rows", "batched_4", "batched_16", "batched_odd",
           "batched_64", "batched_f64", "batched_vectors")
EINSUMS = {"transposed_product": "ki,jk->ij", "scores_heads": "bqhd,bkhd->bhqk",
           "scores_heads_bf16": "bqhd,bkhd->bhqk", "contract_two_dims": "shd,hde->se"}


def _rows(np, relu, sums):
    rows = {name: np.matmul for name in MATMULS}
    rows |= {name: (lambda a, b, spec=spec: np.einsum(spec, a, b))
             for name, spec in EINSUMS.items()}
    return rows | {
        "dot_1m": np.dot,
        "outer_2000": np.outer,
        "bias_relu_product": lambda x, w, b: relu(np.matmul(x, w) + b),
        "pairwise_distances": lambda x, y: sums(np.square(x))[:, None] + sums(np.square(y))
        - 2 * np.matmul(x, y.T),
    }


def jax_rows():
    import jax
    import jax.numpy as jnp

    return _rows(jnp, jax.nn.relu, lambda x: x.sum(1))


def torch_rows():
    import torch

    return _rows(torch, torch.relu, lambda x: x.sum(1))
