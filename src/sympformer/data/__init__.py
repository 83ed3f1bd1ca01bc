"""Text to tokens: corpora, tokenizers, prepared token files, and the seeded batch sampler.

from sympformer import data

tokens = data.prepare("storybook", "bpe:2048")
sampler = data.BlockSampler(tokens.tokens("train"), block_size=128, batch_size=16, seed=0)
inputs, targets = sampler.batch(step=0)
"""

from sympformer.data.config import DataConfig
from sympformer.data.corpus import Corpus, find, stories
from sympformer.data.sampler import BlockSampler, EvaluationBlocks, validation_blocks
from sympformer.data.tokenizers import Tokenizer, load_tokenizer, make_tokenizer
from sympformer.data.tokens import Tokens, open_tokens, prepare

__all__ = [
    "BlockSampler",
    "Corpus",
    "DataConfig",
    "EvaluationBlocks",
    "Tokenizer",
    "Tokens",
    "find",
    "load_tokenizer",
    "make_tokenizer",
    "open_tokens",
    "prepare",
    "stories",
    "validation_blocks",
]
