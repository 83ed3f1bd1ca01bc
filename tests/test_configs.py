"""The configs that ship with the package: found by name, listed, copied, never over something else."""

from pathlib import Path

import pytest
import yaml

from sympformer import cli
from sympformer.configs import config_file, shipped
from sympformer.errors import InputError

CONFIGS = Path(__file__).parents[1] / "configs"


def test_every_config_has_a_name_of_its_own_and_a_command() -> None:
    found = shipped()
    assert {one.file for one in found.values()} == set(CONFIGS.rglob("*.yaml"))
    for one in found.values():
        assert one.command == (
            "compare" if {"models", "factors"} & set(yaml.safe_load(one.file.read_text())) else "train"
        )
        assert one.file.read_text().startswith(f"# {one.summary}")


def test_the_list_has_a_line_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["configs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(shipped())
    assert lines[0].split(maxsplit=3)[:3] == ["sympformer", "train", "cpu-small"]
    assert all(len(line) <= 150 and len(line.split(maxsplit=3)[3]) > 20 for line in lines)


def test_words_are_names_or_paths() -> None:
    assert config_file("demo", "compare") == str(CONFIGS / "compare" / "demo.yaml")
    assert config_file("demo.yaml", "compare") == "demo.yaml"
    assert config_file("my/demo", "compare") == "my/demo"
    with pytest.raises(InputError, match="did you mean 'cpu-small'"):
        config_file("cpu-smal", "train")
    with pytest.raises(InputError, match="is a config of 'sympformer compare'"):
        config_file("demo", "train")


def test_a_copy_is_the_same_and_overwrites_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["configs", "cpu-small", "--out", "my.yaml"]) == 0
    assert "sympformer train my.yaml" in capsys.readouterr().out
    assert cli.main(["configs", "cpu-small"]) == 0
    assert Path("my.yaml").read_text() == capsys.readouterr().out
    Path("my.yaml").write_text("mine")
    assert cli.main(["configs", "cpu-small", "--out", "my.yaml"]) == 2
    assert "is left alone" in capsys.readouterr().err
    assert Path("my.yaml").read_text() == "mine"


@pytest.mark.parametrize("args", [["cpu-smal"], ["--out", "x.yaml"]])
def test_what_cannot_be_copied(args: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["configs", *args]) == 2
    assert capsys.readouterr().err.count("\n") == 1
