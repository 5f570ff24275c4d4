NET_STEPS = ("mlp_step", "mlp_step_odd", "mlp_step_f64", "mlp_step_bf16", "mlp_step_tiny")


def jax_rows():
    import jax
    import jax.numpy as jnp
    from jax import lax

    def cross_entropy(logits, labels):
        hot = jax.nn.one_hot(labels, logits.shape[1], dtype=logits.dtype)
        return -(jax.nn.log_softmax(logits) * hot).sum(1).mean()

    def net_loss(net, x, labels):
        w1, b1, w2, b2, w3, b3 = net
        h = jax.nn.relu(jax.nn.relu(x @ w1 + b1) @ w2 + b2)
        return cross_entropy(h @ w3 + b3, labels)

    def net_step(*args):
        net, (x, labels) = args[:6], args[6:]
        loss, g = jax.value_and_grad(net_loss)(net, x, labels)
        return [loss] + [w - 0.1 * d for w, d in zip(net, g)]

    def layer_norm(x, scale, bias):
        centred = x - x.mean(-1, keepdims=True)
        return centred * lax.rsqrt(
            jnp.square(centred).mean(-1, keepdims=True) + 1e-5) * scale + bias

    def attention(q, k, v):
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * 0.125
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)

    def long_attention(causal):
        return lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=causal)

    def attention_gradient(attend):
        return jax.grad(lambda q, k, v: jnp.square(attend(q, k, v)).mean(), (0, 1, 2))

    def regression(w, x, y):
        def loss(w):
            p = jax.nn.sigmoid(x @ w)
            return -jnp.where(y > 0, jnp.log(p + 1e-9), jnp.log(1 - p + 1e-9)).mean()

        return jax.value_and_grad(loss)(w)

    def adam(w, g, m, v):
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * jnp.square(g)
        return w - 0.001 * m / (jnp.sqrt(v) + 1e-8), m, v

    def examples(w, x, y):
        def loss(w, x, y):
            return jnp.square(jnp.tanh(x @ w) - y).sum()

        return jax.vmap(jax.grad(loss), (None, 0, 0))(w, x, y)

    def checkpointed(w, x):
        layer = jax.checkpoint(lambda w, x: jnp.tanh(x @ w))
        return jax.grad(lambda w: layer(w, layer(w, layer(w, x))).sum())(w)

    return {name: net_step for name in NET_STEPS} | {
        "eager_mlp_forward": lambda w, b, x: jnp.tanh(x @ w.T + b),
        "logistic_regression_grad": regression,
        "cross_entropy_grad": jax.value_and_grad(cross_entropy),
        "layer_norm_grad": lambda x, scale, bias, bar: jax.grad(
            lambda *a: (layer_norm(*a) * bar).sum(), (0, 1, 2))(x, scale, bias),
        "softmax_grad": lambda x, bar: jax.grad(lambda x: (jax.nn.softmax(x) * bar).sum())(x),
        "gelu_grad_bf16": lambda x, bar: jax.grad(lambda x: (jax.nn.gelu(x) * bar).sum())(x),
        "adam_1m": adam,
        "attention": attention,
        "attention_grad": attention_gradient(attention),
        "attention_odd": attention,
        "attention_2048": long_attention(False),
        "attention_2048_grad": attention_gradient(long_attention(False)),
        "attention_causal_2048": long_attention(True),
        "attention_causal_2048_grad": attention_gradient(long_attention(True)),
        "examples_gradients": examples,
        "hessian_40": lambda x, a: jax.hessian(lambda x: (jnp.sin(a @ x) * x).sum())(x),
        "jvp_chain": lambda x, x_dot: jax.jvp(lambda x: jnp.exp(jnp.sin(x)) * x, (x,), (x_dot,)),
        "eager_grad": lambda w, x: jax.grad(lambda w: jnp.square(jnp.tanh(x @ w)).mean())(w),
        "checkpoint_grad": checkpointed,
    }


def torch_rows():
    import torch
    from torch.nn import functional

    def derived(f):
        f.derives = True
        return f

    def gradient(f, *args):
        args = [x.detach().requires_grad_() for x in args]
        loss = f(*args)
        return loss.detach(), torch.autograd.grad(loss, args)

    @derived
    def net_step(*args):
        net, (x, labels) = args[:6], args[6:]

        def loss(w1, b1, w2, b2, w3, b3):
            h = torch.relu(torch.relu(x @ w1 + b1) @ w2 + b2)
            return functional.cross_entropy(h @ w3 + b3, labels.long())

        value, g = gradient(loss, *net)
        return [value] + [w - 0.1 * d for w, d in zip(net, g)]

    @derived
    def regression(w, x, y):
        def loss(w):
            p = torch.sigmoid(x @ w)
            return -torch.where(y > 0, torch.log(p + 1e-9), torch.log(1 - p + 1e-9)).mean()

        return gradient(loss, w)

    @derived
    def cross_entropy_grad(x, labels):
        return gradient(lambda x: functional.cross_entropy(x, labels.long()), x)

    @derived
    def layer_norm_grad(x, scale, bias, bar):
        return gradient(lambda x, s, b: (functional.layer_norm(x, (768,), s, b) * bar).sum(),
                        x, scale, bias)[1]

    @derived
    def softmax_grad(x, bar):
        return gradient(lambda x: (torch.softmax(x, -1) * bar).sum(), x)[1]

    @derived
    def gelu_grad(x, bar):
        return gradient(
            lambda x: (functional.gelu(x, approximate="tanh") * bar).sum(), x)[1]

    def attention_of(causal):
        def attend(q, k, v):
            q, k, v = (x.transpose(1, 2) for x in (q, k, v))
            return functional.scaled_dot_product_attention(
                q, k, v, scale=0.125, is_causal=causal).transpose(1, 2)

        return attend

    attention = attention_of(False)

    def attention_gradient(attend):
        return derived(
            lambda q, k, v: gradient(lambda *a: torch.square(attend(*a)).mean(), q, k, v)[1])

    def adam(w, g, m, v):
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * torch.square(g)
        return w - 0.001 * m / (torch.sqrt(v) + 1e-8), m, v

    @derived
    def eager_grad(w, x):
        return gradient(lambda w: torch.square(torch.tanh(x @ w)).mean(), w)[1]

    return {name: net_step for name in NET_STEPS} | {
        "eager_mlp_forward": lambda w, b, x: torch.tanh(x @ w.T + b),
        "logistic_regression_grad": regression,
        "cross_entropy_grad": cross_entropy_grad,
        "layer_norm_grad": layer_norm_grad,
        "softmax_grad": softmax_grad,
        "gelu_grad_bf16": gelu_grad,
        "adam_1m": adam,
        "attention": attention,
        "attention_grad": attention_gradient(attention),
        "attention_odd": attention,
        "attention_2048": attention,
        "attention_2048_grad": attention_gradient(attention),
        "attention_causal_2048": attention_of(True),
        "attention_causal_2048_grad": attention_gradient(attention_of(True)),
        "eager_grad": eager_grad,
    }
