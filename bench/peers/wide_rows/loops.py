def jax_rows():
    import jax
    import jax.numpy as jnp
    from jax import lax

    def rnn_loss(w, u, xs):
        def step(h, x):
            h = jnp.tanh(h @ w + x @ u)
            return h, h.sum()

        h, ys = lax.scan(step, jnp.zeros((16, 64), jnp.float32), xs)
        return jnp.square(h).mean() + ys.mean()

    def products(c, xs):
        def step(c, x):
            c = c @ x
            return c, c.sum()

        return lax.scan(step, c, xs)

    def newton(x):
        return lax.while_loop(
            lambda carry: jnp.abs(carry[1] * carry[1] - x).max() > 1e-5,
            lambda carry: (carry[0] + 1, 0.5 * (carry[1] + x / carry[1])),
            (0, x))[1]

    def switch_in_scan(which, x):
        branches = (lambda c: c + 0.5, lambda c: c * 0.5, jnp.sin, jnp.tanh)
        return lax.scan(lambda c, k: (lax.switch(k, branches, c), c.sum()), x, which)

    def reverse(xs):
        def step(c, x):
            c = jnp.maximum(c * 0.99, x)
            return c, c

        return lax.scan(step, jnp.zeros(128, jnp.float32), xs, reverse=True)

    def nested(xs):
        def inner(c, x):
            return c * 0.9 + x, c.sum()

        return lax.scan(lambda c, rows: lax.scan(inner, c, rows), jnp.zeros(64, jnp.float32), xs)

    def dynamic_index(table, ids):
        def step(c, k):
            row = lax.dynamic_index_in_dim(table, k, 0, False)
            return c + row, row.sum()

        return lax.scan(step, jnp.zeros(128, jnp.float32), ids)

    def power(a, x):
        def step(_, v):
            w = a @ v
            return w / jnp.sqrt(jnp.square(w).sum())

        return lax.fori_loop(0, 50, step, x)

    return {
        "scan_sums": lambda xs: lax.scan(
            lambda c, x: (c * 0.9 + x, c), jnp.zeros(64, jnp.float32), xs),
        "scan_products_200": products,
        "rnn_500": rnn_loss,
        "rnn_500_grad": lambda w, u, xs: jax.grad(rnn_loss, (0, 1))(w, u, xs),
        "fori_scalar_1000": lambda x: lax.fori_loop(0, 1000, lambda _, c: c * 0.999 + 0.001, x),
        "fori_matrix_100": lambda x: lax.fori_loop(0, 100, lambda _, c: c @ x + x, x),
        "while_newton": newton,
        "cond_of_two": lambda x, which: lax.cond(which[0] > 0, jnp.sin, lambda x: x * 2, x),
        "switch_in_scan": switch_in_scan,
        "scan_large_xs": lambda xs: lax.scan(
            lambda c, x: (c + jnp.tanh(x), x.max()), jnp.zeros((256, 257), jnp.float32), xs),
        "scan_reverse": reverse,
        "nested_scans": nested,
        "scan_dynamic_index": dynamic_index,
        "power_iteration": power,
    }


def torch_rows():
    import torch

    def rnn_loss(w, u, xs):
        h, ys = torch.zeros(16, 64), []
        for x in xs:
            h = torch.tanh(h @ w + x @ u)
            ys.append(h.sum())
        return torch.square(h).mean() + torch.stack(ys).mean()

    def rnn_grad(w, u, xs):
        w, u = w.detach().requires_grad_(), u.detach().requires_grad_()
        return torch.autograd.grad(rnn_loss(w, u, xs), (w, u))

    rnn_grad.derives = True

    def products(c, xs):
        ys = []
        for x in xs:
            c = c @ x
            ys.append(c.sum())
        return c, torch.stack(ys)

    def fori_matrix(x):
        c = x
        for _ in range(100):
            c = torch.addmm(x, c, x)
        return c

    def large(xs):
        c, ys = torch.zeros(256, 257), []
        for x in xs:
            c = c + torch.tanh(x)
            ys.append(x.max())
        return c, torch.stack(ys)

    def power(a, v):
        for _ in range(50):
            w = a @ v
            v = w / torch.sqrt(torch.square(w).sum())
        return v

    return {
        "scan_products_200": products,
        "rnn_500": rnn_loss,
        "rnn_500_grad": rnn_grad,
        "fori_matrix_100": fori_matrix,
        "cond_of_two": lambda x, which: torch.sin(x) if which[0] > 0 else x * 2,
        "scan_large_xs": large,
        "power_iteration": power,
    }
