"""Text to tokens: corpora, tokenizers, prepared token files, and the seeded batch sampler.

    from sympformer import data

    folder = data.prepare("storybook", "bpe:2048", "data/storybook-bpe-2048").folder
    prepared = data.load_prepared(folder)
    sampler = data.BlockSampler(prepared.tokens("train"), block_size=128, batch_size=16, seed=0)
    inputs, targets = sampler.batch(step=0)

Names are loaded when first used, so that importing this package stays light.
"""

from typing import TYPE_CHECKING

from sympformer.lazy import lazy_names

# public name -> module that defines it
_LAZY: dict[str, str] = {
    "BlockSampler": "sympformer.data.sampler",
    "Corpus": "sympformer.data.corpora",
    "Document": "sympformer.data.corpora",
    "EvaluationBlocks": "sympformer.data.sampler",
    "Prepared": "sympformer.data.prepared",
    "Tokenizer": "sympformer.data.tokenizers",
    "load_prepared": "sympformer.data.prepared",
    "load_tokenizer": "sympformer.data.tokenizers",
    "make_tokenizer": "sympformer.data.tokenizers",
    "open_corpus": "sympformer.data.corpora",
    "prepare": "sympformer.data.preparation",
    "stories": "sympformer.data.corpora",
    "validation_blocks": "sympformer.data.sampler",
}

__all__ = sorted(_LAZY)
if TYPE_CHECKING:  # type checkers see what the names are
    from sympformer.data.corpora import Corpus as Corpus
    from sympformer.data.corpora import Document as Document
    from sympformer.data.corpora import open_corpus as open_corpus
    from sympformer.data.corpora import stories as stories
    from sympformer.data.preparation import prepare as prepare
    from sympformer.data.prepared import Prepared as Prepared
    from sympformer.data.prepared import load_prepared as load_prepared
    from sympformer.data.sampler import BlockSampler as BlockSampler
    from sympformer.data.sampler import EvaluationBlocks as EvaluationBlocks
    from sympformer.data.sampler import validation_blocks as validation_blocks
    from sympformer.data.tokenizers import Tokenizer as Tokenizer
    from sympformer.data.tokenizers import load_tokenizer as load_tokenizer
    from sympformer.data.tokenizers import make_tokenizer as make_tokenizer
else:
    __getattr__, __dir__ = lazy_names(__name__, _LAZY)
