"""omrl: offline meta-reinforcement learning.

Importing it registers the environments with Gymnasium, as `omrl/<family>.<version>`.
"""

from omrl.envs import gym_hook

__version__ = "0.1.0"

gym_hook.install()
