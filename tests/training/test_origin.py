"""Runs, data and keys of other people: what is opened, and what only when it is trusted."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from sympformer import cli
from sympformer.errors import InputError
from sympformer.training import run as runs
from sympformer.training import run_training
from sympformer.training.config import DataConfig
from sympformer.training.origin import KEY, check_data
from tests.training.conftest import ConfigMaker


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SYMPFORMER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def run(make_config: ConfigMaker, cache: Path) -> Path:
    return run_training(make_config(steps=2), bar=False).folder


@pytest.fixture
def elsewhere(run: Path, cache: Path) -> Path:
    """The same run where another key is kept."""
    shutil.rmtree(cache)
    return run


def forged(run: Path, **data: Any) -> Path:
    """A run whose config names other data; its checksums fit, as those of whoever made it would."""
    config = runs.load_config(run / runs.CONFIG)
    (run / runs.CONFIG).write_text(config.replace(data=DataConfig(**data)).to_yaml())
    runs.write_environment(run, runs.read_environment(run))
    return run


def test_ones_own_run_is_scored(run: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (cache / KEY).stat().st_mode & 0o777 == 0o600
    assert cli.main(["eval", str(run)]) == 0
    assert "nats per token" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["eval"]])
def test_data_that_a_run_from_elsewhere_names(
    command: list[str], elsewhere: Path, prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = [*command, str(elsewhere)] + ([f"--out={tmp_path / 'page.html'}"] if command == ["report"] else [])
    assert cli.main(line) == 2
    said = capsys.readouterr().err
    assert f"was not trained here, and its config names the folder '{prepared}'" in said
    assert not (elsewhere / "score.json").exists()
    assert cli.main([*line, "--trust_data"]) == 0
    if command == ["eval"]:
        assert cli.main([*line, "--data", str(prepared)]) == 0  # what one names oneself
        assert cli.main(["sample", str(elsewhere), "--max_new_tokens=2"]) == 0  # opens no data


@pytest.mark.parametrize(
    ("data", "place"),
    [
        ({"folder": "/etc"}, "the folder '/etc'"),
        ({"corpus": "/etc/passwd"}, "the text '/etc/passwd'"),
        ({"corpus": "hub:somebody/something"}, "the text 'hub:somebody/something'"),
        ({"corpus": "tinystories"}, "the text 'tinystories'"),
        ({"tokenizer": "gpt2:/dev/zero"}, "the tokenizer 'gpt2:/dev/zero'"),
    ],
)
def test_a_config_that_was_changed(
    data: dict[str, Any], place: str, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mark is of the config as it was: nothing is read, nobody asked, also with the right key."""

    def open_data(*args: Any) -> Any:
        raise AssertionError("it was opened")

    monkeypatch.setattr("sympformer.data.tokens.open_tokens", open_data)
    monkeypatch.setattr("sympformer.training.run.open_tokens", open_data)
    assert cli.main(["eval", str(forged(run, **data))]) == 2
    assert f"names {place}" in capsys.readouterr().err


def test_a_run_from_elsewhere_is_continued_when_its_data_are_trusted(
    elsewhere: Path, prepared: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["train", "--resume=true", f"--out={elsewhere}", "--steps=3"]
    with monkeypatch.context() as patch:
        patch.setattr("sympformer.training.run.open_tokens", lambda *args: pytest.fail("it was opened"))
        assert cli.main(line) == 2
    assert f"was not trained here, and its config names the folder '{prepared}'" in capsys.readouterr().err
    assert runs.budget(elsewhere) is None  # nothing was done
    assert cli.main([*line, "--trust_data=true"]) == 0
    assert cli.main([*line[:-1], "--steps=4", f"--data.folder={prepared}"]) == 0  # what one names oneself
    assert runs.budget(elsewhere) == 4


def test_our_own_stories_are_no_data_from_anywhere(elsewhere: Path) -> None:
    check_data(forged(elsewhere, corpus="storybook:40", tokenizer="byte"))


def test_a_key_that_others_may_have_is_none(run: Path, cache: Path) -> None:
    check_data(run)
    (cache / KEY).chmod(0o644)
    with pytest.raises(InputError, match="was not trained here"):
        check_data(run)


def test_a_run_without_a_cache_to_keep_a_key_in(
    make_config: ConfigMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SYMPFORMER_CACHE", str(tmp_path / "file"))
    run = run_training(make_config(steps=2), bar=False).folder
    assert "mark" not in runs.read_environment(run)
    with pytest.raises(InputError, match="was not trained here"):
        check_data(run)
