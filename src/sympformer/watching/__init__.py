"""The particles of a trained model: where its tokens are and how they move, as tensors and as a page."""

from sympformer.watching.physics import Physics, clusters, effective_rank
from sympformer.watching.record import Lens, Readout, Record, Stage
from sympformer.watching.tape import readout, watch

__all__ = ["Lens", "Physics", "Readout", "Record", "Stage", "clusters", "effective_rank", "readout", "watch"]
