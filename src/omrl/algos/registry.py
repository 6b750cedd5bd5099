"""The algorithms that a run can have, by their configs.

Besides its settings every config has

* `TAG`, its name in JSON (`omrl.config`);
* `task_batch`, tasks per update, and `steps`, updates of the main stage;
* `normalize_obs`, whether policies take observations standardised with the scales of the `Spec`;
* `for_rounds(n)`, the config with room for n rounds of adaptation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from omrl.algorithm import Algorithm
from omrl.algos.macaw import Macaw
from omrl.algos.macaw_config import MacawConfig
from omrl.algos.meta_bc import MetaBc, MetaBcConfig
from omrl.algos.mt_awr import MtAwr, MtAwrConfig
from omrl.types import Spec

AlgoConfig: TypeAlias = MacawConfig | MtAwrConfig | MetaBcConfig

ALGORITHMS: Mapping[type, Callable[[Any, Spec], Algorithm]] = {
    MacawConfig: Macaw,
    MtAwrConfig: MtAwr,
    MetaBcConfig: MetaBc,
}


def build(config: AlgoConfig, spec: Spec, *, rounds: int = 0) -> Algorithm:
    """The algorithm of a config, with room for `rounds` of adaptation."""
    return ALGORITHMS[type(config)](config.for_rounds(rounds), spec)
