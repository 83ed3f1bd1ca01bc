"""The memory of a model as `generate()` wants it: rows of different lengths, beams, steps back.

A `sympformer.models.Cache` serves texts of one length. Here rows of equal length form a group with such a cache, and
padding is nowhere stored: a padded row is a shorter row. `generate()` counts columns, padding included; so does
`get_seq_length`.

Going back is exact. Softmax attention drops the last keys and values. A memory that cannot forget single tokens, such
as the state of linear attention, goes back to a mark (or to the start): its group keeps the token ids, and those after
the mark are taken in again by the next call.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import Cache as TransformersCache

from sympformer.errors import InputError
from sympformer.hf.configuration_sympformer import SympFormerConfig
from sympformer.hf.padding import Span, padding_inside
from sympformer.models import Cache
from sympformer.nn import ATTENTIONS, Memory


def new_memory(batch_size: int, n_layer: int, kind: Callable[[], Memory]) -> Cache:
    """An empty cache of such memories."""
    return Cache(batch_size, [kind() for _ in range(n_layer)])


@dataclass
class Mark:
    """What the layers remembered after `length` tokens."""

    length: int
    layers: list[Memory]

    @classmethod
    def of(cls, memory: Cache) -> "Mark":
        return cls(memory.length, [layer.copy() for layer in memory.layers])

    def part(self, index: Tensor) -> "Mark":
        """The same for some rows of the batch."""
        layers = [layer.copy() for layer in self.layers]
        for layer in layers:
            layer.select(index)
        return Mark(self.length, layers)

    def restore(self, memory: Cache) -> None:
        memory.layers, memory.length = [layer.copy() for layer in self.layers], self.length


@dataclass
class Group:
    """Rows of the batch that hold equally many tokens."""

    rows: Tensor  # (b,) places in the batch
    memory: Cache
    ids: Tensor | None = None  # (b, length): kept where tokens cannot be forgotten
    tail: int = 0  # columns of padding after the text
    mark: Mark | None = None

    @property
    def length(self) -> int:
        """Tokens taken in, those included that wait to be taken in again."""
        return self.memory.length if self.ids is None else self.ids.shape[1]

    @property
    def waiting(self) -> Tensor | None:
        """Token ids (b, n) that the memory lost on the way back."""
        if self.ids is None or self.memory.length == self.ids.shape[1]:
            return None
        return self.ids[:, self.memory.length :]

    def part(self, index: Tensor, rows: Tensor) -> "Group":
        """A copy of the rows `index` of this group, standing at `rows` of the batch."""
        ids = None if self.ids is None else self.ids[index]
        mark = None if self.mark is None else self.mark.part(index)
        return Group(rows, self.memory.part(index), ids, self.tail, mark)

    def forget(self, columns: int) -> None:
        """Drop the last `columns`: padding first, as it stands last, then tokens."""
        padding = min(self.tail, columns)
        self.tail -= padding
        length = max(0, self.length - (columns - padding))
        if self.ids is None:
            self.memory.crop(length)
        elif length < self.length:
            self.ids = self.ids[:, :length]
            if self.memory.length > length:
                self._go_back(length)
        self.mark = None

    def _go_back(self, length: int) -> None:
        if self.mark is not None and self.mark.length <= length:
            self.mark.restore(self.memory)
        else:
            self.memory = new_memory(self.memory.batch_size, len(self.memory.layers), type(self.memory.layers[0]))


class SympFormerCache(TransformersCache):
    """What `generate()` hands from call to call. Make one with `SympFormerCache(model.config)`, or let it be made."""

    def __init__(self, config: SympFormerConfig) -> None:
        super().__init__(layers=[])
        cfg = config.to_model_config()
        if not cfg.causal:
            raise InputError("a model with full visibility cannot continue a text from a cache; use use_cache = False")
        self.n_layer, self.limit, self.kind = cfg.n_layer, cfg.block_size, ATTENTIONS[cfg.attention].memory
        self.groups: list[Group] = []
        self.seen = 0  # columns so far, padding included
        self.recording = False

    def groups_for(self, input_ids: Tensor, spans: list[Span] | None) -> list[tuple[Group, Span]]:
        """The groups that take in new columns `input_ids` (B, T), each with its span; they count as seen.

        Groups whose rows now differ are split. `spans` None: every column of every row is a token.
        """
        B, T = input_ids.shape
        if not self.groups:
            self.groups = [self._new_group(torch.arange(B, device=input_ids.device), input_ids)]
        if self.batch_size != B:
            raise InputError(f"the cache holds {self.batch_size} rows, got {B}")
        pairs = [(group, Span(0, T)) for group in self.groups] if spans is None else self._split(spans)
        for group, span in pairs:
            if span.n and (group.tail or (span.first and group.length)):
                raise padding_inside(int(group.rows[0]))
            if group.length + span.n > self.limit:
                needed = group.length + span.n
                raise InputError(f"{needed} tokens exceed max_position_embeddings = {self.limit}; shorten the text")
        for group, span in pairs:
            behind = T - span.first - span.n
            # a row without any token so far is padded in front, whatever its new columns are
            group.tail += behind if span.n else T * (group.length > 0)
        self.groups = [group for group, _ in pairs]
        self.seen += T
        return [(group, span) for group, span in pairs if span.n]

    def _new_group(self, rows: Tensor, input_ids: Tensor) -> Group:
        memory = new_memory(len(rows), self.n_layer, self.kind)
        ids = None if memory.layers[0].croppable else input_ids.new_empty(len(rows), 0)
        return Group(rows, memory, ids)

    def _split(self, spans: list[Span]) -> list[tuple[Group, Span]]:
        pairs = []
        for group in self.groups:
            kinds: dict[Span, list[int]] = {}
            for i, row in enumerate(group.rows.tolist()):
                kinds.setdefault(spans[row], []).append(i)
            for span, members in kinds.items():
                index = torch.tensor(members, device=group.rows.device)
                pairs.append((group if len(kinds) == 1 else group.part(index, group.rows[index]), span))
        return pairs

    def lengths(self) -> Tensor:
        """How many tokens each row holds, (B,)."""
        lengths = torch.zeros(self.batch_size, dtype=torch.long, device=self.groups[0].rows.device)
        for group in self.groups:
            lengths[group.rows] = group.length
        return lengths

    # What transformers asks of a cache.

    def __len__(self) -> int:
        return self.n_layer

    def __repr__(self) -> str:
        return f"SympFormerCache(columns={self.seen}, lengths={[group.length for group in self.groups]})"

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Columns so far, padding included."""
        return self.seen

    def get_max_length(self, layer_idx: int | None = None) -> int:
        """-1: no limit of its own."""
        return -1

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Columns of a mask for `query_length` more, and the first of them."""
        return self.seen + query_length, 0

    @property
    def batch_size(self) -> int:
        """Rows held, -1 before the first call."""
        return sum(len(group.rows) for group in self.groups) or -1

    @property
    def is_initialized(self) -> bool:
        return bool(self.groups)

    @property
    def is_compileable(self) -> bool:
        return False

    @property
    def is_croppable(self) -> bool:
        return True

    @property
    def nbytes(self) -> int:
        """Bytes held for attention."""
        return sum(group.memory.nbytes for group in self.groups)

    def reset(self) -> None:
        """Forget everything."""
        self.groups, self.seen = [], 0

    def activate_past_recording(self) -> None:
        """From now on steps back will follow: keep a mark between them, so that they cost little."""
        self.recording = True

    def is_recording_past(self, layer_idx: int) -> bool:
        return self.recording

    def crop(self, tokens_to_remove: int) -> None:
        """Drop the last columns; as in transformers their number comes with a minus."""
        if tokens_to_remove > 0:
            raise InputError(f"crop takes the number of columns to drop with a minus, got {tokens_to_remove}")
        if -tokens_to_remove > self.seen:
            raise InputError(f"cannot drop {-tokens_to_remove} columns of a cache that holds {self.seen}")
        for group in self.groups:
            group.forget(-tokens_to_remove)
        self.seen += tokens_to_remove

    def batch_select_indices(self, indices: Tensor) -> None:
        """Row r becomes what row indices[r] was."""
        if not self.groups:
            return
        device = self.groups[0].rows.device
        indices = indices.to(device)
        owner = torch.empty(self.batch_size, dtype=torch.long, device=device)
        place = torch.empty_like(owner)
        for i, group in enumerate(self.groups):
            owner[group.rows] = i
            place[group.rows] = torch.arange(len(group.rows), device=device)
        chosen = [(group, (owner[indices] == i).nonzero().squeeze(1)) for i, group in enumerate(self.groups)]
        self.groups = [group.part(place[indices[rows]], rows) for group, rows in chosen if len(rows)]

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Beams move between rows."""
        self.batch_select_indices(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Every row `repeats` times, copies side by side."""
        if self.groups:
            rows = torch.arange(self.batch_size, device=self.groups[0].rows.device)
            self.batch_select_indices(rows.repeat_interleave(repeats))
