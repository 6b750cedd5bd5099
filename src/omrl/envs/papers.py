"""Which papers use which MDP: the same name means a different one in each."""

from __future__ import annotations

PAPERS = {
    "BOReL": "arXiv:2008.02598",
    "CORRO": "arXiv:2206.10442",
    "CSRO": "arXiv:2311.03695",
    "ER-TRL": "arXiv:2412.14834",
    "MACAW": "arXiv:2008.06043",
    "Meta-DT": "arXiv:2410.11448",
    "PEARL": "arXiv:1903.08254",
    "SMAC": "arXiv:2107.03974",
    "UNICORN": "arXiv:2402.02429",
}

USES: dict[str, tuple[tuple[str, str], ...]] = {
    "cheetah-vel/macaw-v1": (("MACAW", ""),),
    "cheetah-vel/nopos-v1": (),
    "cheetah-vel/oyster-v1": (("PEARL", ""), ("SMAC", "which released the list")),
    "cheetah-vel/csro-v1": (("CSRO", ""), ("ER-TRL", "")),
    "cheetah-vel/ood-0-2-v1": (("MACAW", "appendix C.2"),),
    "cheetah-vel/ood-0-2-code-v1": (("MACAW", "its released code"),),
    "cheetah-vel/ood-0-1-v1": (("MACAW", "its workshop version"),),
    "cheetah-vel/sparse-20-v1": (("MACAW", "appendix D.3"),),
    "cheetah-vel/sparse-10-v1": (("MACAW", "appendix D.3"),),
    "cheetah-vel/sparse-5-v1": (("MACAW", "appendix D.3"),),
    "cheetah-vel/sparse-3-v1": (("MACAW", "appendix D.3"),),
    "cheetah-dir/macaw-v1": (("MACAW", ""),),
    "cheetah-dir/oyster-v1": (("PEARL", ""),),
    "ant-dir/macaw-v1": (("MACAW", ""),),
    "ant-dir/smac-v1": (("SMAC", ""),),
    "ant-dir/oyster-v1": (("PEARL", "the default of its configuration"),),
    "ant-dir/fwdback-v1": (("PEARL", "the other option of its configuration"),),
    "ant-dir/fwd-v1": (("CORRO", ""), ("UNICORN", "")),
    "ant-semicircle/borel-v1": (("BOReL", "the dense reward"),),
    "ant-semicircle/borel-sparse-v1": (("BOReL", "the sparse reward"),),
    "walker-params/macaw-v1": (("MACAW", ""),),
    "walker-params/workshop-v1": (("MACAW", "its workshop version"),),
    "walker-params/oyster-v1": (("PEARL", ""),),
    "walker-params/smac-v1": (("SMAC", ""),),
    "walker-params/corro-v1": (("CORRO", ""), ("UNICORN", "with a split of its own")),
    "walker-params/nodone-v1": (("Meta-DT", ""),),
    "hopper-params/oyster-v1": (("PEARL", ""),),
    "hopper-params/smac-v1": (("SMAC", ""),),
    "hopper-params/corro-v1": (("CORRO", ""), ("UNICORN", "with a split of its own")),
    "hopper-params/nodone-v1": (("Meta-DT", ""),),
    "humanoid-dir/smac-v1": (("SMAC", ""),),
    "humanoid-dir/oyster-v1": (("PEARL", ""),),
    "point-robot/oyster-v1": (("PEARL", ""),),
    "sparse-point-robot/oyster-v1": (("PEARL", "context and test"),),
    "sparse-point-robot/oyster-dense-v1": (("PEARL", "training of actor and critic"),),
    "sparse-point-robot/borel-v1": (("BOReL", ""),),
    "gridnav/borel-v1": (("BOReL", ""),),
    "gridnav/borel-sparse-v1": (("BOReL", "the sparse reward"),),
    "ml45/continuous-v1reward-h150-v1": (("MACAW", "of theirs, whose package is lost, the like"),),
    "ml45/continuous-v2-h150-v1": (("MACAW", "the same with Meta-World's later rewards"),),
    "sawyer-manip/smac3-v1": (("SMAC", "of theirs an equivalent on MuJoCo"),),
    "sawyer-manip/smac3-h50-v1": (("SMAC", "the same with the horizon of its Table 2"),),
    "sawyer-manip/fixedgoal-v1": (),
    "sawyer-manip/8-v1": (("SMAC", "figure 8, with eight behaviours of ours"),),
}
"""Paper and remark, by id; an empty list, or none: no paper, an extra of ours."""


def data_of(env_id: str) -> str:
    """What the papers' data were where ours cannot be the like; empty elsewhere."""
    if not env_id.startswith(("ml1-", "ml10/", "ml45/")):
        return ""
    return (
        "MACAW's data are whole lifetimes of SAC agents, 5 million steps in each environment; "
        "nobody released them. `omrl collect` has Meta-World's scripted policies instead, 100,000 "
        "steps in each, from random to expert: [see there](../meta-world.md#data)."
    )


def used_by(env_id: str) -> str:
    """The papers that use an environment, with their numbers; empty without any."""
    return "; ".join(
        f"{name}, {PAPERS[name]}" + (f" ({remark})" if remark else "")
        for name, remark in USES.get(env_id, ())
    )
