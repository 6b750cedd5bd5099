"""The algorithms that a run can have, by their configs.

Besides its settings every config has

* `TAG`, its name in JSON (`omrl.config`);
* `task_batch`, tasks per update, and `steps`, updates of the main stage;
* `normalize_obs`, whether policies take observations standardised with the scales of the `Spec`;
* `for_rounds(n)`, the config with room for n rounds of adaptation;
* `gradient_steps`, those of one round; 0 where adapting takes none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import equinox as eqx
import jax

from omrl.algorithm import Algorithm
from omrl.algos.borel import Borel
from omrl.algos.borel_config import BorelConfig
from omrl.algos.macaw import Macaw
from omrl.algos.macaw_config import MacawConfig
from omrl.algos.macaw_self_supervised import MacawSelfSupervised, MacawSelfSupervisedConfig
from omrl.algos.meta_bc import MetaBc, MetaBcConfig
from omrl.algos.mt_awr import MtAwr, MtAwrConfig
from omrl.algos.pearl import Pearl
from omrl.algos.pearl_config import PearlConfig
from omrl.algos.smac import Smac
from omrl.algos.smac_config import SmacConfig
from omrl.nets.mlp import num_parameters
from omrl.types import Spec

AlgoConfig: TypeAlias = (
    MacawConfig
    | MtAwrConfig
    | MetaBcConfig
    | PearlConfig
    | SmacConfig
    | MacawSelfSupervisedConfig
    | BorelConfig
)

ALGORITHMS: Mapping[type, Callable[[Any, Spec], Algorithm]] = {
    MacawConfig: Macaw,
    MtAwrConfig: MtAwr,
    MetaBcConfig: MetaBc,
    PearlConfig: Pearl,
    SmacConfig: Smac,
    MacawSelfSupervisedConfig: MacawSelfSupervised,
    BorelConfig: Borel,
}


def build(config: AlgoConfig, spec: Spec, *, rounds: int = 0) -> Algorithm:
    """The algorithm of a config, with room for `rounds` of adaptation."""
    return ALGORITHMS[type(config)](config.for_rounds(rounds), spec)


def draws_distinct_tasks(config: AlgoConfig) -> bool:
    """Whether an update needs as many training tasks as it has in its batch."""
    return getattr(config, "distinct_tasks", True)


def network_sizes(config: AlgoConfig, spec: Spec) -> dict[str, int]:
    """How many numbers every network of the algorithm's state holds, by the name of its field.

    By shapes alone: nothing is computed.
    """
    state = jax.eval_shape(build(config, spec).init, jax.random.PRNGKey(0))
    return {name: num_parameters(network) for name, network in _networks(state)}


def _networks(node: Any) -> Iterator[tuple[str, Any]]:
    """Networks in nested NamedTuples, without the moments that optimisers keep of them."""
    for name in getattr(node, "_fields", ()):
        value = getattr(node, name)
        if isinstance(value, eqx.Module):
            yield name, value
        elif name != "opt" and not name.endswith("_opt"):
            yield from _networks(value)
