"""One of everything, made once for all attacks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import artefacts


@pytest.fixture(scope="package")
def one_of_everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("harness")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SYMPFORMER_CACHE", str(folder / "cache"))
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setattr("sympformer.studies.compare.workers.Workers", artefacts.InPlace)
        for cost in ("tokens_per_second", "memory_mb"):  # measuring them takes longer than all the rest
            patch.setattr(
                f"sympformer.studies.compare.comparison.{cost}", lambda models, batch: dict.fromkeys(models, 1e3)
            )
        artefacts.make(folder)
        yield folder
