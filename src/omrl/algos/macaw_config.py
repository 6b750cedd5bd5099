"""The settings of MACAW (`algos/macaw.py`), one field for every choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from omrl.algos.maml import MamlConfig
from omrl.errors import InputError
from omrl.ranges import Fraction, Positive, Size


@dataclass(frozen=True)
class MacawConfig(MamlConfig):
    """Settings of MACAW. Defaults are the paper's (Table 5 of the appendix, cheetah)."""

    TAG: ClassVar[str] = "macaw"

    value_hidden: tuple[Size, ...] | None = None
    """Widths of the value network's hidden layers; None: as `hidden`."""
    value_inner_lr: Positive | None = None
    """Initial eta, of the value network's tensors; None: as `inner_lr`."""

    # --- The advantage head ---
    advantage_head: bool = True
    """Eq. 3; False is MAML + AWR."""
    head_hidden: tuple[Size, ...] = (32,)
    """Hidden widths of the advantage head."""
    relu_action: bool = False
    """The advantage head sees only the positive part of actions."""
    adv_coef: Positive = 1e-2
    """lambda, the weight of the advantage regression."""
    learn_adv_coef: bool = False
    """Meta-learn lambda."""

    # --- Losses ---
    scale_returns: bool = False
    """Divide returns by the training tasks' standard deviation of returns."""
    temperature: Positive = 1.0
    """T of the advantage weights."""
    max_weight: Positive = 20.0
    """Upper clip of the advantage weights."""
    normalize_advantage: bool = True
    """Standardise advantages over the batch before weighting."""
    bootstrap_advantage: bool = False
    """Continue returns past the episode's end with the adapted value, in advantages."""
    bootstrap_outer_value: bool = False
    """The same in the outer value target, with the target network."""
    bootstrap_inner_value: bool = False
    """The same in the inner value target."""
    target_decay: Fraction = 0.9
    """After every inner step the target network keeps this share of itself."""
    value_lr: Positive = 1e-5
    """Adam rate of the value network."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.advantage_head and not self.hidden:
            raise InputError("hidden: no layer, and the advantage head reads one; give a width")

    @property
    def value_widths(self) -> tuple[int, ...]:
        """Widths of the value network's hidden layers."""
        return self.hidden if self.value_hidden is None else self.value_hidden
