"""The point environment and a dataset of it, and no waiting for the disk."""

from __future__ import annotations

import dataclasses
import os

import foreign
import pytest
from points import BEHAVIOUR, LENGTHS, PointEnv, lifetime

from omrl.data.exchange import import_dataset
from omrl.data.store import create


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch):
    """Waiting for the disk is most of the time of these tests."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


@pytest.fixture
def env():
    return PointEnv()


@pytest.fixture
def other_env(env):
    """The same id and tasks, but another MDP."""
    return dataclasses.replace(env, spec=dataclasses.replace(env.spec, dt=0.5))


@pytest.fixture
def columns(env):
    """The columns of each task, as they were given to the writer."""
    return {index: lifetime(env, index, lengths) for index, lengths in LENGTHS.items()}


@pytest.fixture
def dataset(tmp_path, env, columns):
    """The dataset `points` of three tasks."""
    writer = create(tmp_path / "points", env, command="test")
    for index, task in columns.items():
        writer.write_task(index, behaviour=BEHAVIOUR, **task)
    return writer.finish()


@pytest.fixture
def load(tmp_path, env):
    """Import a source into a fresh dataset."""

    def load(source, format, **options):
        return import_dataset(
            source, tmp_path / "imported", format, command="test", env=env, **options
        )

    return load


@pytest.fixture
def lifetimes(columns):
    """What formats without terms can hold."""
    return foreign.without_terms(columns)
