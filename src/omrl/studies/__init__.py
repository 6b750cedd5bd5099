"""Test-time studies: one question about adaptation each, asked of a trained run.

* `plan`: what a study evaluates, as a value; no data is read and nothing is computed.
* `run`: evaluates what a plan says, and goes on where it was interrupted.
* `results`: the folder of a study, its table and its JSON.
* `figures`: its picture, for one run or for several.
"""
