"""A model for texts that grow a token at a time: the same equations, with all that stays the same worked out once.

    decoder = Decoder(model.eval())
    cache = model.new_cache(1)
    hidden = decoder.hidden(idx, cache)        # then one token after the other

Its twin is the plain model with its plain cache; nothing here is needed for a result, only for speed.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from sympformer.models.cache import Cache
from sympformer.models.model import NOTHING, Given, LanguageModel
from sympformer.nn import fast


class Decoder:
    """The layers of a model, folded. Make a new one when weights have changed; hooks are heard, training is not."""

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        with torch.no_grad():
            self.programs = [fast.folded(layer) for layer in model.layers()]
        self._folded = not any(program is layer for program, layer in zip(self.programs, model.layers(), strict=True))

    @torch.no_grad()
    def hidden(self, idx: Tensor | None, cache: Cache, given: Given = NOTHING) -> Tensor:
        """As `LanguageModel.hidden` with a cache, without gradients."""
        return self.model.hidden(idx, cache, given, programs=self.programs if self._folded else None)

    def logits(self, idx: Tensor, cache: Cache, given: Given = NOTHING) -> Tensor:
        """The logits after the last token, (B, V)."""
        return F.linear(self.hidden(idx, cache, given)[:, -1], self.model.head_weight)
