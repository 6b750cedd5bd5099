"""Registers the environments with Gymnasium when, and only when, a program uses Gymnasium.

Importing Gymnasium takes several times as long as the start of the interpreter. So `import omrl`
does not: it registers at once if Gymnasium is loaded already, or else right after its first import.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def gymnasium_id(env_id: str) -> str:
    """Gymnasium allows one slash: `cheetah-vel/macaw-v1` is `omrl/cheetah-vel.macaw-v1`."""
    return "omrl/" + env_id.replace("/", ".")


def register_with_gymnasium(env_id: str, horizon: int) -> None:
    """Makes an environment of the registry known to Gymnasium, which is loaded."""
    import gymnasium

    if gymnasium_id(env_id) in gymnasium.registry:
        return
    # Named, not imported: `omrl.envs.gym_wrapper` may be what is importing Gymnasium now.
    module = "omrl.envs.gym_wrapper"
    gymnasium.register(
        gymnasium_id(env_id),
        entry_point=f"{module}:GymEnv",
        vector_entry_point=f"{module}:GymVectorEnv",
        max_episode_steps=horizon,
        kwargs={"env_id": env_id},
    )


def _register() -> None:
    from omrl.envs.registry import all_ids, make

    for env_id in all_ids():
        register_with_gymnasium(env_id, make(env_id).spec.horizon)


class _RegisteringLoader:
    """Gymnasium's own loader, then the registration. (`importlib.abc` would cost 20 ms.)"""

    def __init__(self, spec: ModuleSpec):
        assert spec.loader is not None
        self._loader = spec.loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _register()


class _AfterGymnasium:
    """Finds `gymnasium` where the other finders do, with its loader wrapped."""

    def find_spec(
        self,
        fullname: str,
        path: Any,  # of a namespace package it is no Sequence
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if fullname != "gymnasium":
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _RegisteringLoader(spec)  # pyright: ignore[reportAttributeAccessIssue]
                return spec
        return None


def install() -> None:
    """Register now or after the first `import gymnasium`."""
    if "gymnasium" in sys.modules:
        _register()
    else:
        sys.meta_path.insert(0, _AfterGymnasium())
