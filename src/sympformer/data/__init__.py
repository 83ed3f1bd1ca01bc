"""Text to tokens: corpora, tokenizers, prepared token files, and the seeded batch sampler.

    from sympformer import data

    folder = data.prepare("storybook", "bpe:2048", "data/storybook-bpe-2048").folder
    prepared = data.load_prepared(folder)
    sampler = data.BlockSampler(prepared.tokens("train"), block_size=128, batch_size=16, seed=0)
    inputs, targets = sampler.batch(step=0)

Names are loaded when first used, so that importing this package stays light.
"""

from sympformer.lazy import lazy_names

# public name -> module that defines it
_LAZY: dict[str, str] = {
    "BlockSampler": "sympformer.data.sampler",
    "Corpus": "sympformer.data.corpora",
    "Document": "sympformer.data.corpora",
    "EvaluationBlocks": "sympformer.data.sampler",
    "Prepared": "sympformer.data.prepared",
    "Tokenizer": "sympformer.data.tokenizers",
    "cloze": "sympformer.data.storybook",
    "load_prepared": "sympformer.data.prepared",
    "load_tokenizer": "sympformer.data.tokenizers",
    "make_tokenizer": "sympformer.data.tokenizers",
    "open_corpus": "sympformer.data.corpora",
    "prepare": "sympformer.data.preparation",
    "stories": "sympformer.data.storybook",
    "story": "sympformer.data.storybook",
    "validation_blocks": "sympformer.data.sampler",
}

__all__ = sorted(_LAZY)
__getattr__, __dir__ = lazy_names(__name__, _LAZY)
