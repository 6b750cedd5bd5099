"""A gated recurrent unit (Cho et al. 2014, arXiv:1406.1078), for one sequence.

    r = sigmoid(x W_r + h U_r),  u = sigmoid(x W_u + h U_u)
    n = tanh(x W_n + r (h U_n)),  h' = (1 - u) n + u h

Every product has a bias, that with U_n within the gate, as in PyTorch. What the inputs add does not
depend on h, so for a whole sequence it is one product of matrices, and the scan is left with h.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from omrl.nets.mlp import Dense
from omrl.types import Key


class Gru(eqx.Module):
    of_input: Dense
    """x -> its parts of r, u and n, one behind the other."""
    of_hidden: Dense
    """The same of h."""

    @classmethod
    def init(cls, key: Key, in_dim: int, hidden: int, keep_bias: float = 0.0) -> Gru:
        """Orthogonal weights and biases 0, but for `keep_bias` within u, which keeps h."""
        keys = jax.random.split(key)
        orthogonal = jax.nn.initializers.orthogonal()
        biases = jnp.zeros((2, 3 * hidden)).at[0, hidden : 2 * hidden].set(keep_bias)
        return cls(
            *(
                Dense.of(orthogonal(k, (rows, 3 * hidden), bias.dtype), bias)
                for k, rows, bias in zip(keys, (in_dim, hidden), biases, strict=True)
            )
        )

    @property
    def num_hidden(self) -> int:
        return self.of_hidden.affine.shape[0] - 1

    def __call__(
        self, x: Float[Array, " in"], hidden: Float[Array, " hidden"]
    ) -> Float[Array, " hidden"]:
        """h'."""
        return self._next(self.of_input(x), hidden)

    def scan(
        self, inputs: Float[Array, "step in"], hidden: Float[Array, " hidden"]
    ) -> Float[Array, "step hidden"]:
        """h' after every one of the inputs."""

        def step(hidden: Array, part: Array) -> tuple[Array, Array]:
            hidden = self._next(part, hidden)
            return hidden, hidden

        return jax.lax.scan(step, hidden, jax.vmap(self.of_input)(inputs))[1]

    def _next(
        self, part: Float[Array, " gates"], hidden: Float[Array, " hidden"]
    ) -> Float[Array, " hidden"]:
        reset, update, new = jnp.split(part, 3)
        own_reset, own_update, own_new = jnp.split(self.of_hidden(hidden), 3)
        reset, update = jax.nn.sigmoid(reset + own_reset), jax.nn.sigmoid(update + own_update)
        new = jnp.tanh(new + reset * own_new)
        return (1 - update) * new + update * hidden
