"""Few-shot classification of Omniglot: what weight-transform layers are worth outside RL.

The last ablation of MACAW (arXiv:2008.06043, appendix C.1): MAML with cross-entropy on three
multilayer perceptrons, whose layers and inner step are the ones that MACAW adapts by.

* `images` reads the original archives, `split` says which characters are trained on.
* `settings` has what the paper says, the networks and the scales.
* `learner` is MAML on one seed; `training` runs several of them side by side, resumable.
* `study` chooses rates and trains every network; `results` makes table and figure of it.
"""
