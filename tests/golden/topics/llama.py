"""Logits of random little Llamas, in NumPy-like JAX code of their published formulas.

Inputs: tokens, then the tensors that the parameter `names` lists; output: logits [B, T, V] in f32.
`heads`, `kv_heads`, `layers`, `theta`, `eps` and `tied` are of config.json.
"""

import jax
import jax.numpy as jnp
import numpy as np

from .common import DTYPES, Topic

V, E, F, HEAD = 13, 12, 10, 6


def tensors(dtype, layers, heads, kv_heads, tied):
    shapes = {"model.embed_tokens.weight": (V, E), "model.norm.weight": (E,)}
    if not tied:
        shapes["lm_head.weight"] = (V, E)
    for k in range(layers):
        for name, shape in {
            "input_layernorm": (E,),
            "self_attn.q_proj": (heads * HEAD, E),
            "self_attn.k_proj": (kv_heads * HEAD, E),
            "self_attn.v_proj": (kv_heads * HEAD, E),
            "self_attn.o_proj": (E, heads * HEAD),
            "post_attention_layernorm": (E,),
            "mlp.gate_proj": (F, E),
            "mlp.up_proj": (F, E),
            "mlp.down_proj": (E, F),
        }.items():
            shapes[f"model.layers.{k}.{name}.weight"] = shape
    out = {}
    for number, (name, shape) in enumerate(sorted(shapes.items())):
        wave = np.sin(number + 0.7 * np.arange(int(np.prod(shape))) ** 1.1).reshape(shape)
        out[name] = (1 + 0.3 * wave if len(shape) == 1 else 0.6 * wave).astype(DTYPES[dtype])
    return out


def logits(tokens, w, layers, heads, kv_heads, theta, eps, tied):
    def norm(x, scale):
        wide = x.astype(jnp.float32)
        power = jnp.mean(wide * wide, -1, keepdims=True)
        return (wide / jnp.sqrt(power + eps)).astype(scale.dtype) * scale

    def rotated(x):
        half = HEAD // 2
        turns = theta ** (-np.arange(half, dtype=np.float64) / half)
        angles = np.arange(x.shape[1])[:, None, None] * turns
        cos = np.concatenate([np.cos(angles)] * 2, -1).astype(np.float32)
        sin = np.concatenate([np.sin(angles)] * 2, -1).astype(np.float32)
        wide = x.astype(jnp.float32)
        turned = jnp.concatenate([-wide[..., half:], wide[..., :half]], -1)
        return (wide * cos + turned * sin).astype(x.dtype)

    x = w["model.embed_tokens.weight"][tokens]
    batch, rows = tokens.shape
    for k in range(layers):
        at = lambda name: w[f"model.layers.{k}.{name}.weight"]
        own = norm(x, at("input_layernorm"))
        q, key, value = (
            (own @ at(f"self_attn.{p}_proj").T).reshape(batch, rows, -1, HEAD) for p in "qkv"
        )
        q, key = rotated(q), rotated(key)
        key, value = (jnp.repeat(t, heads // kv_heads, axis=2) for t in (key, value))
        scores = jnp.einsum("btnh,bsnh->bnts", q, key, preferred_element_type=jnp.float32)
        scores = jnp.where(np.tri(rows, dtype=bool), scores / np.float32(np.sqrt(HEAD)), -jnp.inf)
        shares = jax.nn.softmax(scores, -1).astype(x.dtype)
        mixed = jnp.einsum("bnts,bsnh->btnh", shares, value).reshape(batch, rows, -1)
        x = x + mixed @ at("self_attn.o_proj").T
        fed = norm(x, at("post_attention_layernorm"))
        gated = jax.nn.silu(fed @ at("mlp.gate_proj").T) * (fed @ at("mlp.up_proj").T)
        x = x + gated @ at("mlp.down_proj").T
    head = w["model.embed_tokens.weight" if tied else "lm_head.weight"]
    return (norm(x, w["model.norm.weight"]) @ head.T).astype(jnp.float32)


def make():
    topic = Topic(__doc__)
    tokens = (np.arange(14, dtype=np.int32) ** 2 % V).reshape(2, 7)
    for dtype, atol in (("f32", 2e-5), ("bf16", 0.15)):
        for name, sizes in {
            "grouped": dict(layers=2, heads=4, kv_heads=2, theta=10000.0, eps=1e-6, tied=False),
            "one_head_of_keys": dict(layers=1, heads=4, kv_heads=1, theta=500000.0, eps=1e-5, tied=True),
            "heads": dict(layers=1, heads=2, kv_heads=2, theta=10000.0, eps=1e-5, tied=False),
        }.items():
            w = tensors(dtype, sizes["layers"], sizes["heads"], sizes["kv_heads"], sizes["tied"])
            names = sorted(w)

            def run(tokens, *arrays, names=names, sizes=sizes):
                return logits(tokens, dict(zip(names, arrays)), **sizes)

            topic.run(f"{name}/{dtype}", jax.jit(run), tokens, *[w[n] for n in names],
                      names=names, ulp=16, atol=atol, **sizes)
    return topic
