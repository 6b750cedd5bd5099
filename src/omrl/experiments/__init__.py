"""The papers' experiments as data: what is claimed, what has to be run, and at which scale.

`declare` has the vocabulary, one file per paper what it says, `registry` all of them by id. How
they are run (`stages`), read (`rows`) and shown (`page`) knows no paper.
"""
