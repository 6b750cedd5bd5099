"""Environments: exact, versioned MDPs. `registry.make` finds one, `engine.VectorEnv` steps many.

Kept empty so that `import omrl` costs nothing.
"""
