"""The configs that ship with the package: found by name, listed and copied by `sympformer configs`."""

from dataclasses import dataclass
from pathlib import Path

from sympformer.errors import InputError, unknown_name

ROOT = Path(__file__).parent
SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class Shipped:
    """A config: its file, the command that takes it, and its first line."""

    file: Path
    command: str
    summary: str


def shipped() -> dict[str, Shipped]:
    """All of them by name. A wheel has them inside the package; a clone has them beside `src`."""
    inside = ROOT / "configs"
    folder = inside if inside.is_dir() else ROOT.parents[1] / "configs"
    found = (_read(file) for file in sorted(folder.rglob("*.yaml")))
    return {one.file.stem: one for one in sorted(found, key=lambda one: one.command, reverse=True)}


def _read(file: Path) -> Shipped:
    """A comparison is what names several models, or factors to make them of."""
    lines = file.read_text(encoding="utf-8").splitlines()
    summary = lines[0].removeprefix("#").strip().rstrip(":")
    return Shipped(file, "compare" if {"models:", "factors:"} & set(lines) else "train", summary)


def config_file(word: str, command: str) -> str:
    """The file that a word on the command line means: a path as it is, a name looked up among those of the command."""
    if word.endswith(SUFFIXES) or "/" in word:
        return word
    known = shipped()
    if word not in known:
        names = [name for name, one in known.items() if one.command == command]
        raise unknown_name("config", word, [*names, "the path of a .yaml file"])
    if known[word].command != command:
        raise InputError(f"{word} is a config of 'sympformer {known[word].command}', not of 'sympformer {command}'")
    return str(known[word].file)


def configs(name: str | None = None, out: str | None = None) -> int:
    """List the configs that ship with the package, or print one, or copy it to change it.

    Args:
        name: Which one to print or copy; all are listed where none is named.
        out: File to copy it to; one that is there is left alone.
    """
    known = shipped()
    if name is None:
        if out is not None:
            raise InputError("say which config to copy: sympformer configs NAME --out FILE")
        width = max(map(len, known))
        for word, one in known.items():
            print(f"sympformer {one.command:<7} {word:<{width}}  {one.summary}")
        return 0
    if name not in known:
        raise unknown_name("config", name, known)
    text = known[name].file.read_text(encoding="utf-8")
    if out is None:
        print(text, end="")
        return 0
    try:
        with Path(out).open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"{out} exists and is left alone: choose another --out") from None
    print(f"{out}: a copy of {name}; change it, then: sympformer {known[name].command} {out}")
    return 0
