def _stencil(x):
    def part(row, column):
        return x[row:row + 1000, column:column + 1000]

    return 0.2 * (part(1, 1) + part(0, 1) + part(2, 1) + part(1, 0) + part(1, 2))


def jax_rows():
    import jax.numpy as jnp

    return {
        "transpose_odd": lambda x: x.T,
        "transpose_bf16": lambda x: x.T,
        "transpose_heads": lambda x: jnp.transpose(x, (0, 2, 1, 3)),
        "transpose_channels": lambda x: jnp.transpose(x, (0, 3, 1, 2)),
        "concatenate_columns": lambda x, y: jnp.concatenate([x, y], 1),
        "stack_last": lambda x, y: jnp.stack([x, y], 1),
        "pad_odd": lambda x: jnp.pad(x, ((1, 2), (3, 4)), constant_values=0.5),
        "roll_rows": lambda x: jnp.roll(x, 7, 1),
        "flip_columns": lambda x: jnp.flip(x, 1),
        "every_second": lambda x: x[:, ::2],
        "slice_window": lambda x: x[100:1900, 101:1899],
        "tile_odd": lambda x: jnp.tile(x, (10, 10)),
        "repeat_columns": lambda x: jnp.repeat(x, 3, 1),
        "triangle": jnp.tril,
        "eager_slice": lambda x: x[10:20, 10:20] * 2,
        "stencil_5_points": _stencil,
    }


def torch_rows():
    import torch

    return {
        "transpose_odd": lambda x: x.T.contiguous(),
        "transpose_bf16": lambda x: x.T.contiguous(),
        "transpose_heads": lambda x: x.permute(0, 2, 1, 3).contiguous(),
        "transpose_channels": lambda x: x.permute(0, 3, 1, 2).contiguous(),
        "concatenate_columns": lambda x, y: torch.cat([x, y], 1),
        "stack_last": lambda x, y: torch.stack([x, y], 1),
        "pad_odd": lambda x: torch.nn.functional.pad(x, (3, 4, 1, 2), value=0.5),
        "roll_rows": lambda x: torch.roll(x, 7, 1),
        "flip_columns": lambda x: torch.flip(x, (1,)),
        "every_second": lambda x: x[:, ::2].contiguous(),
        "slice_window": lambda x: x[100:1900, 101:1899].contiguous(),
        "tile_odd": lambda x: torch.tile(x, (10, 10)),
        "repeat_columns": lambda x: torch.repeat_interleave(x, 3, 1),
        "triangle": torch.tril,
        "eager_slice": lambda x: x[10:20, 10:20] * 2,
        "stencil_5_points": _stencil,
    }
