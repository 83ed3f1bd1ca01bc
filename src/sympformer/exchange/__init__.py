"""A trained run as a Hugging Face folder, and back.

from sympformer import exchange

exchange.export_run("runs/mine", "exports/mine")        # weights, config, tokenizer, card, and the source it needs
exchange.import_run("exports/mine", "runs/again")       # a run folder: eval and sample work on it
"""

from typing import TYPE_CHECKING

from sympformer.lazy import lazy_names

# public name -> module that defines it
_LAZY: dict[str, str] = {
    "bundle": "sympformer.exchange.bundle",
    "export_run": "sympformer.exchange.exporting",
    "fast_tokenizer": "sympformer.exchange.tokenizers",
    "push_folder": "sympformer.exchange.push",
}

__all__ = sorted(_LAZY)
if TYPE_CHECKING:  # type checkers see what the names are
    from sympformer.exchange import bundle as bundle
    from sympformer.exchange.exporting import export_run as export_run
    from sympformer.exchange.push import push_folder as push_folder
    from sympformer.exchange.tokenizers import fast_tokenizer as fast_tokenizer
else:
    __getattr__, __dir__ = lazy_names(__name__, _LAZY)
