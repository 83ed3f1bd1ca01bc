"""A trained run as a folder that transformers loads without sympformer.

from sympformer.export.export import export_run

export_run("runs/mine", "exports/mine")        # weights, config, tokenizer, card, and the source it needs
"""
