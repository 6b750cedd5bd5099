"""How an adapted policy goes on learning online, as a config: the second half of `finetune`.

After the offline adaptation of `given`, for every run seed and test task: collect one trajectory
with the stochastic policy, put it into the task's buffer, take some gradient steps on the buffer,
and again. MACAW (arXiv:2008.06043) describes it in appendices C.2 and D.4; its reference code does
something else in nearly every number, so that both are here by name (`protocol.FINETUNE`), and
`docs/evaluation.md` has the table of the differences.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from omrl.errors import InputError
from omrl.ranges import Count, Natural, Positive, Range, check_ranges

Rounds = Annotated[int, Range(0, 10_000)]

OF_THE_ALGORITHM = ("value_lr", "policy_lr", "parameters", "advantage_head")
"""Fields that say how an algorithm learns; all others are the protocol's own."""


@dataclass(frozen=True)
class FinetuneConfig:
    """Online fine-tuning. Defaults are the paper's (arXiv:2008.06043, C.2 and D.4)."""

    rounds: Rounds = 1
    """Adaptation rounds on the offline context, before anything is collected."""
    burn_in: Natural = 5
    """Online trajectories with which the first gradient steps are taken; before there are none."""
    value_steps: Natural = 100
    """Gradient steps on the value per trajectory."""
    policy_steps: Natural = 100
    """Gradient steps on the policy per trajectory."""
    interleaved: bool = True
    """A step on the value is followed by one on the policy on the same batch, and what one of them
    has more comes last; False: all steps on the value, then all on the policy, each on a batch of
    its own."""
    batch_size: Count = 256
    """Transitions per gradient step."""
    sampling: Literal["iid", "without_replacement"] = "iid"
    """How they are drawn from the buffer."""
    keep_context: bool = True
    """Put the offline context into the buffer, before all that is collected."""
    buffer_size: Natural = 0
    """Transitions that the buffer holds; a newer one takes the place of the oldest. 0: it holds
    all."""
    eval_every: Natural = 10
    """Trajectories from one evaluation to the next, beside those in `shots`; 0: these alone."""
    value_lr: Positive | None = None
    """Adam rate of the value; None: the algorithm's own (MACAW: of its outer loop)."""
    policy_lr: Positive | None = None
    """Adam rate of the policy; None: the algorithm's own (MACAW: of its outer loop)."""
    parameters: Literal["all", "generated"] = "all"
    """What Adam moves in layers that generate their weights: all that they are made of, or only the
    weights generated for this task, which is a hundredth of the numbers."""
    advantage_head: bool = False
    """Keep the advantage head's term (Eq. 3) in the policy's loss."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if 0 < self.buffer_size < self.batch_size:
            raise InputError(
                f"buffer_size: {self.buffer_size} holds no batch of {self.batch_size}; take more, "
                "or 0 for all"
            )

    def check_left_alone(self, names: tuple[str, ...], algorithm: str) -> None:
        """`InputError` for the first of `names` that is not as by default: `algorithm` has no such
        choice."""
        for name in names:
            default = getattr(DEFAULT, name)
            if getattr(self, name) != default:
                raise InputError(
                    f"finetune.{name}: {algorithm} has no such choice; leave it at {default}"
                )

    @property
    def together(self) -> int:
        """Steps per trajectory that move value and policy."""
        return min(self.value_steps, self.policy_steps) if self.interleaved else 0

    @property
    def alone(self) -> bool:
        """Whether there are steps that move only one of them."""
        return max(self.value_steps, self.policy_steps) > self.together

    @property
    def schedule(self) -> str:
        """What is done per trajectory, in words."""
        of_value = counted(self.value_steps, "value step")
        of_policy = counted(self.policy_steps, "policy step")
        steps = f"{of_value}, then {of_policy}"
        if self.interleaved:
            steps = f"{of_value} and {of_policy} by turns"
            if not self.alone:
                steps = counted(self.together, "gradient step")
        kept = "context and all trajectories" if self.keep_context else "all trajectories"
        if self.buffer_size:
            kept = f"the last {self.buffer_size:,} transitions of {kept}"
        return (
            f"{steps} per trajectory from the {_ordinal(max(self.burn_in, 1))} on, on batches of "
            f"{self.batch_size} from {kept}{''.join(self._unusual())}"
        )

    def _unusual(self) -> Iterator[str]:
        """What makes another method of it."""
        if self.parameters == "generated":
            yield "; of generated weights these alone move"
        if self.advantage_head:
            yield "; with the advantage head's term"
        for name, rate in (("value", self.value_lr), ("policy", self.policy_lr)):
            if rate is not None:
                yield f"; rate of the {name} {rate:g}"


DEFAULT = FinetuneConfig()


def counted(number: int, noun: str) -> str:
    """`number` of what `noun` is one of."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number % 100 in (11, 12, 13) else ending}"
