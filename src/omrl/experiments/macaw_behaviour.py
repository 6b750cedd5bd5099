"""MACAW's Figures 8 and 9: the behaviour policies whose lifetimes are its data.

Figure 8 has the collections of Figures 3 and 5 (`macaw`, `macaw_problems`), Figure 9 that of 7.
"""

from __future__ import annotations

from omrl.experiments.declare import Claim
from omrl.experiments.lifetimes import Lifetimes, Problem
from omrl.experiments.macaw_problems import EXTENDED

_CHEETAH_VEL = "cheetah-vel"


def _problem(name: str) -> Problem:
    smoke = "bundled:cheetah-vel" if name == _CHEETAH_VEL else f"{name}-smoke"
    return Problem(
        name,
        f"{name}/macaw-v1",
        {"smoke": smoke, "gpu": f"{name}-10min", "paper": f"{name}-paper"},
    )


FIGURE_8 = Lifetimes(
    id="macaw-fig8-behaviour",
    title="MACAW, Figure 8: behaviour policies",
    claim=Claim(
        words="Every task has a policy of its own, trained from scratch by SAC, on cheetah "
        "velocity by TD3, which was more stable across its tasks. Lifetimes are of 2.5 million "
        "transitions on the cheetahs, 2 million on the ant and 1 million on the walkers. A curve "
        "per task, smoothed.",
        source=f"{EXTENDED}, Figure 8 (9 in the ICML version) and appendix D.2",
    ),
    problems=tuple(map(_problem, ("cheetah-dir", _CHEETAH_VEL, "ant-dir", "walker-params"))),
    scales={
        "smoke": "scale smoke: whole lifetimes on cheetah velocity alone, thinned to 29 episodes; "
        "of the others 1,600 transitions of random actions, in which nobody learns",
        "gpu": "scale gpu: lifetimes sized for ten minutes of one GPU each",
        "paper": "scale paper: lifetimes as long as the paper's",
    },
    deviates="networks, updates per transition and number of environments are not told by the "
    "paper; omrl presets lists what was taken in their place",
)

FIGURE_9 = Lifetimes(
    id="macaw-fig9-behaviour-ml45",
    title="MACAW, Figure 9: behaviour policies on Meta-World",
    claim=Claim(
        words="A SAC agent of each of the 45 and 5 environments, 5 million transitions long, with "
        "start vectors from the whole box, which makes the tasks much harder than a few fixed "
        "ones. Curves of returns and of success, smoothed.",
        source=f"{EXTENDED}, Figure 9 (10 in the ICML version), appendices D.1 and D.2",
    ),
    problems=(
        Problem(
            "ml45",
            "ml45/continuous-v1reward-h150-v1",
            {
                "smoke": "ml45-v1reward-smoke",
                "gpu": "ml45-v1reward-10min",
                "paper": "ml45-v1reward",
            },
        ),
    ),
    scales={
        "smoke": "scale smoke: four episodes in each of ten environments",
        "gpu": "scale gpu: 20,000 transitions in each environment",
        "paper": "scale paper: 100,000 transitions in each environment, where the paper has 5 "
        "million",
    },
    deviates="THIS CANNOT BE THE PAPER'S FIGURE. Nobody learns here: data are of Meta-World's "
    "scripts, which see the goal, with a share of random actions that falls from 1 to 0, so "
    "curves rise because they were made to. The paper's SAC agents were never released, and its "
    "Meta-World of 2020 is lost: here it is metaworld 3.0.0 with the rewards of its version 1",
    symlog=True,
)

BEHAVIOUR = (FIGURE_8, FIGURE_9)
