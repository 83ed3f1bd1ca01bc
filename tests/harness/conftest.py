"""One of everything, made once for all attacks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import artefacts


@pytest.fixture(scope="package")
def one_of_everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("harness")
    with artefacts.small(folder / "cache"):
        artefacts.make(folder)
        yield folder
