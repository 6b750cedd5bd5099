"""The one abstraction: what differs between the methods is only what "knowing the task" is.

That knowledge is a pytree, `Task`, so one trainer and one evaluator serve every method.

* `init` makes the meta-trained `State` of one seed. It must be a pure function of the key.
* A `Stage` says what one update reads and does; `train.py` samples, loops, shards and saves.
* `begin`, `adapt`, `observe` and `act` are meta-test: the evaluator and the exporter call them.
* `resample` and `online_context` say how a method explores: `omrl.explore` calls and reads them.
* `begin_tuning`, `tune` and `tuned` go on learning online from an adapted task, where a method can:
  `omrl.finetune` calls them.

An algorithm is a frozen dataclass of `(config, spec)`: static, hashable, final. All that changes is
in `State`, which has an int32 scalar field `step` counting updates. No key lives in `State`: the
trainer derives every key from (seed, step), so a resumed run repeats an uninterrupted one exactly.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, NoReturn, TypeVar

from jaxtyping import Array, Float

from omrl.data.device import DeviceData
from omrl.data.sample import AnyBatchSpec
from omrl.errors import InputError
from omrl.exploration import Exploration
from omrl.nets.mlp import Dense
from omrl.tuning import OF_THE_ALGORITHM, FinetuneConfig
from omrl.types import Batch, Key, Metrics, Scalar, Spec, Step

SEPARATELY = (
    " with separate steps; leave finetune.interleaved on, and value_steps as many as policy_steps"
)

State = TypeVar("State")
Task = TypeVar("Task")


@dataclass(frozen=True)
class Stage:
    """A phase of meta-training: `steps` updates, each on `task_batch` tasks."""

    name: str
    steps: int
    task_batch: int
    """Tasks per update, drawn uniformly from the training tasks."""
    batches: tuple[AnyBatchSpec, ...]
    """One batch per spec and sampled task; `update` receives them by the names of the specs."""
    update: Callable[..., tuple[Any, Metrics]]
    """`(state, batches, key) -> (state, metrics)`. Batch leaves are [task, sample, ...]; a metric
    is a scalar or has one value per sampled task: a non-finite loss can be traced to its task."""
    with_tasks: bool = False
    """`update` has a fourth argument: the numbers [task] of the sampled tasks among the training
    tasks, from 0 to `Spec.num_train_tasks` - 1."""
    distinct_tasks: bool = True
    """The tasks of an update are drawn without replacement."""
    exploration: Exploration | None = None
    """What the stage collects itself; None: it learns from logged data alone."""
    prepare: Callable[[Any, DeviceData], dict[str, Array]] | None = None
    """`(state, data) -> columns`: fields of the data, with the same rows, that the stage draws in
    place of the logged ones. Called before its first update and after a resume, for one seed; so
    what it makes of the state must be what updates of the stage leave alone."""
    left_out_by: str = ""
    """The option that leaves the stage out, as typed: `--algo.online-steps 0`; empty: none does."""

    @property
    def needs_data(self) -> bool:
        """Whether it reads logged data."""
        return self.exploration is None or self.exploration.needs_data


class Algorithm(abc.ABC, Generic[State, Task]):
    """The contract. Concrete classes are final frozen dataclasses: fields `config` and `spec`."""

    config: Any
    spec: Spec
    online_context: ClassVar[Literal["batch", "trajectory", "step"]] = "batch"
    """How a method takes in what it collects itself. batch: by `adapt` to all of it. trajectory: by
    `observe` of every transition, of which it makes use from the next trajectory on. step: the
    same, at once."""

    @abc.abstractmethod
    def init(self, key: Key) -> State:
        """The meta-parameters, optimiser state and step counter of one seed."""

    @abc.abstractmethod
    def stages(self) -> tuple[Stage, ...]:
        """The phases of meta-training, in order."""

    @abc.abstractmethod
    def begin(self, state: State, key: Key) -> Task:
        """What is known of a task before any of its data was seen."""

    @abc.abstractmethod
    def adapt(self, state: State, task: Task, support: Batch, key: Key) -> Task:
        """`task` after learning from `support`, leaves [sample, ...]; same tree, shapes, dtypes."""

    @abc.abstractmethod
    def observe(self, state: State, task: Task, step: Step, key: Key) -> Task:
        """`task` after one more transition of its own; batch learners return it as it is."""

    @abc.abstractmethod
    def act(
        self, state: State, task: Task, obs: Float[Array, " obs"], key: Key, deterministic: bool
    ) -> Float[Array, " act"]:
        """An action in [-1, 1]^act for one observation."""

    @abc.abstractmethod
    def policy_layers(self, state: State, task: Task) -> tuple[Dense, ...]:
        """What the deterministic `act` is made of, for export: ReLU between the layers, tanh behind
        the last, observations standardised where `config.normalize_obs` says so."""

    # --- Exploring: optional ---

    def resample(self, state: State, task: Task, key: Key) -> Task:
        """`task` with the guess it acts on drawn anew from what is known of it, as exploration
        does before every trajectory or every step; the same for methods that guess nothing."""
        return task

    # --- What is believed of a task: optional, for `omrl evaluate --diagnose` ---

    def posterior(
        self, state: State, task: Task
    ) -> tuple[Float[Array, " latent"], Float[Array, " latent"]]:
        """(mean, variance) of the latent task variable, whose prior is N(0, 1) or, of methods with
        `online_context` step, learned. `InputError` for a method that has none."""
        raise InputError(f"{type(self).__name__} has no posterior over tasks")

    def predict_reward(
        self,
        state: State,
        task: Task,
        obs: Float[Array, " obs"],
        action: Float[Array, " act"],
        next_obs: Float[Array, " obs"],
    ) -> Scalar:
        """The reward of a transition, in the environment's units, by the guess that `task` acts on.
        `InputError` for a method without a decoder."""
        raise InputError(f"{type(self).__name__} has no reward decoder")

    # --- Learning on online: optional ---

    def for_tuning(self, settings: FinetuneConfig) -> Algorithm[State, Task]:
        """The algorithm whose tuning follows those of `settings` that are `OF_THE_ALGORITHM`.

        By default it learns in its own way: `InputError` where they ask for another one.
        """
        settings.check_left_alone(OF_THE_ALGORITHM, type(self).__name__)
        return self

    def begin_tuning(self, state: State, task: Task, key: Key) -> Any:
        """`Tuning`: the adapted `task` as what goes on learning online, with fresh optimisers if
        adapting had none. `InputError` for a method that cannot."""
        self._cannot_tune()

    def tune(self, state: State, tuning: Any, batch: Batch, key: Key) -> Any:
        """`tuning` after one gradient step, value and policy both, on a batch with leaves
        [sample, ...]; same tree, shapes, dtypes."""
        self._cannot_tune()

    def tune_value(self, state: State, tuning: Any, batch: Batch, key: Key) -> Any:
        """The value's half of `tune`, where there are more steps on the one than on the other."""
        self._cannot_tune(SEPARATELY)

    def tune_policy(self, state: State, tuning: Any, batch: Batch, key: Key) -> Any:
        """The policy's half of `tune`."""
        self._cannot_tune(SEPARATELY)

    def tuned(self, state: State, tuning: Any) -> Task:
        """The `Task` for `act` and `policy_layers`, not to be adapted any more."""
        self._cannot_tune()

    def _cannot_tune(self, how: str = "; use protocol given, zero-shot or explore") -> NoReturn:
        raise InputError(f"{type(self).__name__} cannot go on learning online{how}")
