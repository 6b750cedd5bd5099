"""Literal values of the actor-critic equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omrl.ops.sac import bellman_target, polyak, soft_value, temperature_loss


def test_bellman_target_bootstraps_unless_terminated():
    reward, value = jnp.float32(1.5), jnp.float32(10.0)
    # 1.5 + 0.9 * 10 = 10.5
    assert bellman_target(reward, jnp.bool_(False), value, 0.9) == pytest.approx(10.5)
    assert bellman_target(reward, jnp.bool_(True), value, 0.9) == 1.5


def test_an_infinite_value_after_the_end_does_not_matter():
    target = bellman_target(jnp.float32(2.0), jnp.bool_(True), jnp.float32(jnp.inf), 0.9)
    assert target == 2.0


def test_soft_value():
    # min(3, 2.5) - 0.2 * (-1.5) = 2.5 + 0.3
    value = soft_value(jnp.array([3.0, 2.5]), jnp.float32(-1.5), jnp.float32(0.2))
    assert value == pytest.approx(2.8)


def test_temperature_loss_and_its_gradient():
    log_temperature, log_prob = jnp.log(jnp.float32(0.5)), jnp.float32(-1.0)
    # alpha = 0.5, H = -3: -0.5 * (-1 - 3) = 2, and d/d(log alpha) is the same number.
    value, grad = jax.value_and_grad(temperature_loss)(log_temperature, log_prob, -3.0)
    assert value == pytest.approx(2.0)
    assert grad == pytest.approx(2.0)
    assert jax.grad(temperature_loss, argnums=1)(log_temperature, log_prob, -3.0) == 0


def test_temperature_falls_when_entropy_is_above_its_target():
    # Entropy estimate -log_prob = 5 nats, target 1: gradient is positive, descent lowers alpha.
    grad = jax.grad(temperature_loss)(jnp.float32(0.0), jnp.float32(-5.0), 1.0)
    assert grad == pytest.approx(4.0)


def test_polyak_moves_every_leaf_by_the_rate():
    target = {"a": jnp.array([0.0, 4.0]), "b": jnp.float32(1.0)}
    online = {"a": jnp.array([10.0, 0.0]), "b": jnp.float32(1.0)}
    moved = polyak(target, online, 0.25)
    np.testing.assert_allclose(moved["a"], [2.5, 3.0])
    assert moved["b"] == 1.0
