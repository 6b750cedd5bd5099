"""omrl: offline meta-reinforcement learning."""

__version__ = "0.1.0"
