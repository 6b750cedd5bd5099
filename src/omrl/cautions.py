"""What a training is told before it begins, where it may go as asked but hardly well."""

from __future__ import annotations

from collections.abc import Callable

from omrl.algos.macaw_self_supervised import MacawSelfSupervisedConfig
from omrl.algos.smac_config import SmacConfig
from omrl.data.info_warnings import SCALES
from omrl.envs.base import TaskEnv
from omrl.presets import RunRecord


def tell_cautions(record: RunRecord, env: TaskEnv, report: Callable[[str], None]) -> None:
    """One line for each."""
    _tell_of_labels(record, env, report)
    _tell_of_scales(record, report)


def _tell_of_labels(record: RunRecord, env: TaskEnv, report: Callable[[str], None]) -> None:
    """Where rewards, from which encoder and decoder learn, hardly tell tasks apart."""
    decodes = isinstance(record.run.algo, SmacConfig | MacawSelfSupervisedConfig)
    if decodes and env.task_changes_physics:
        report(
            f"warning: tasks of {env.spec.id} differ in their physics; where the reward is "
            "the same function in all of them, the reward decoder and its labels cannot tell "
            "them apart"
        )


def _tell_of_scales(record: RunRecord, report: Callable[[str], None]) -> None:
    """Where observations are of so different scales that updates may not stay finite."""
    std = record.spec.obs_std
    if std and not record.run.algo.normalize_obs and max(std) > SCALES * min(std):
        report(
            f"warning: obs scales differ by over {SCALES:,.0f}, standard deviations are from "
            f"{min(std):.2g} to {max(std):.2g}; if updates do not stay finite, standardise: "
            "--algo.normalize-obs"
        )
