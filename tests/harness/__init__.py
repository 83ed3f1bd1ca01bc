"""Attacks on the whole product, made by the hundred from a seed: command lines and configs, damaged files, kills.

`pytest tests/harness` runs a few of each; SYMPFORMER_HARNESS=5000,500,100 as many as that. All counts must be zero.
A command that takes 30 s hangs; where other work shares the machine, SYMPFORMER_HARNESS_PATIENCE=120 waits longer.
"""
