"""Build the site: `make docs`, or `python site/build.py [folder]`. The site is site/ in that folder, by default build/.

docs/ is copied. Beside it come the tutorials (the scripts in docs/tutorials as pages), the reference (from docstrings),
the paper's text read with care (section 3 of theory.md as a page), the playground, a page of `sympformer watch`, KaTeX.
A page asks nobody: KaTeX is fetched here, by npm. Without npm formulas stay as they are typed, and that is said.
"""

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
DOCS, SITE = ROOT / "docs", ROOT / "site"
KATEX = "katex@0.16"
TEXT = "The story of a small cat who found a big dog in the park."

# what the reference documents: module -> one line
REFERENCE = {
    "sympformer": "Names of the front door.",
    "sympformer.flows": "The mathematics on particles.",
    "sympformer.flows.elliptic": "Laws that linear attention preserves.",
    "sympformer.nn": "What a model is made of.",
    "sympformer.models": "The language model.",
    "sympformer.ops": "Kernels, with slow twins.",
    "sympformer.data": "Text to tokens.",
    "sympformer.training": "Training, checkpoints, evaluation.",
    "sympformer.audit": "Does it look ahead? In your own tests too.",
    "sympformer.opening": "A model from a run, a variant, a folder.",
    "sympformer.watching": "Every token's way through a model.",
    "sympformer.hf": "Classes for transformers.",
    "sympformer.export": "A run as a folder that loads without sympformer.",
}


def main(folder: Path) -> None:
    """Lay everything out, then let zensical build it."""
    docs = folder / "docs"
    for old in (docs, folder / "site"):
        shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(DOCS, docs, ignore=shutil.ignore_patterns("__pycache__"))
    modules = [name for name in REFERENCE if find_spec(name) is not None]
    for file, text in written(modules).items():
        (docs / file).parent.mkdir(exist_ok=True)
        (docs / file).write_text(text, encoding="utf-8")
    for page in docs.rglob("*.md"):
        bring_along(page, docs)
    live_pages(docs)
    (docs / "assets").mkdir(exist_ok=True)
    for name in ("site.css", "formulas.js"):
        shutil.copy(SITE / name, docs / "assets" / name)
    copy_katex(folder / "katex", docs / "assets" / "katex")
    (folder / "zensical.toml").write_text(configuration(modules, docs), encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "--config-file", "zensical.toml"]
    subprocess.run(command, cwd=folder, check=True)
    print(f"Built: {folder / 'site' / 'index.html'}")


def bring_along(page: Path, docs: Path) -> None:
    """Files of the project outside docs/ that a page links to come into files/, and the links lead there."""

    def moved(link: "re.Match[str]") -> str:
        source = (DOCS / page.relative_to(docs)).parent.joinpath(link[1]).resolve()
        if source.is_relative_to(DOCS) or not source.is_file():
            return link[0]
        target = docs / "files" / source.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
        return f"]({os.path.relpath(target, page.parent)})"

    text = page.read_text(encoding="utf-8")
    page.write_text(re.sub(r"\]\((\.\./[^)#]+)\)", moved, text), encoding="utf-8")


def written(modules: list[str]) -> dict[str, str]:
    """Pages that are made of something else: their names and texts."""
    index, theory = ((DOCS / name).read_text(encoding="utf-8") for name in ("index.md", "theory.md"))
    scripts = {script.name: script.read_text(encoding="utf-8") for script in (DOCS / "tutorials").glob("*.py")}
    theory = linked(theory, modules)
    return {
        "theory.md": theory,
        "index.md": re.sub(r"(\(tutorials/\w+)\.py\)", r"\1.md)", index),  # there they are pages
        "paper_text.md": paper_text(theory),
        **{f"tutorials/{Path(name).stem}.md": tutorial(code, name) for name, code in scripts.items()},
        **{f"reference/{name}.md": reference(name) for name in modules},
    }


def linked(text: str, modules: list[str]) -> str:
    """Names of tests lead to their files, names of code to the reference."""
    text = re.sub(r"`(tests/[\w/]+\.py)::([\w:]+)`", r"[`\2`](../\1)", text)

    def place(found: "re.Match[str]") -> str:
        module, name = f"sympformer.{found[1]}", found[2]
        public = module in modules and name in getattr(import_module(module), "__all__", [])
        there = defined(import_module(module), name) if public else None
        return f"[{found[0]}](reference/{module}.md#{there})" if there else found[0]

    return re.sub(r"`(flows(?:\.elliptic)?|nn|ops|models)\.([A-Za-z]\w*)(?:\.\w+)*`", place, text)


def tutorial(code: str, name: str) -> str:
    """A script as a page: its docstring and its comments at the margin are text, the rest is code."""
    docstring, _, rest = code.removeprefix('"""').partition('"""')
    title, _, lead = docstring.partition("\n")
    source = f"*The whole script: [{name}]({name}). A test runs it at a small size.*"
    return "\n\n".join([f"# {title.rstrip('.')}", lead.strip(), source, *cells(rest)]) + "\n"


def cells(code: str) -> Iterator[str]:
    """Paragraphs and blocks of code, in order: lines that begin with # at the margin are text."""
    for is_text, lines in groupby(code.strip("\n").splitlines(), key=lambda line: line.startswith("#")):
        block = "\n".join(line.removeprefix("#").removeprefix(" ") if is_text else line for line in lines).strip("\n")
        if block:
            yield block if is_text else f"```python\n{block}\n```"


def paper_text(theory: str) -> str:
    """Section 3 of theory.md as a page of its own, with a heading for every item."""
    section = theory[theory.index("\n## 3. ") : theory.index("\n## 4. ")].strip().split("\n", 1)[1]
    section = re.sub(r"^\*\*(3\.\d+) (.*?)\.\*\* ", r"## \1 \2\n\n", section, flags=re.MULTILINE)
    lead = (
        "The paper is V. Stein, W. Li, G. Steidl, *SympFormer: Accelerated attention blocks via inertial dynamics on"
        " density manifolds*. Its ideas stand; some of its formulas do not as they are printed. Every item has a number"
        " that shows it and a test that holds it. It is section 3 of [theory](theory.md)."
    )
    return f"# What is not true of the paper's text\n\n{lead}\n\n{section.strip()}\n"


def reference(name: str) -> str:
    """A page for mkdocstrings to fill: what a module says of itself, then its public names, each from where it is."""
    module = import_module(name)
    names = [each for each in getattr(module, "__all__", []) if not each.startswith("_")]
    parts = [f"::: {place}" for each in names if (place := defined(module, each))]
    said = (inspect.getdoc(module) or "").partition("\n")[0]
    return "\n\n".join([f"# {name}", REFERENCE[name], *([said, *parts] if parts else [f"::: {name}"])]) + "\n"


def defined(module: ModuleType, name: str) -> str | None:
    """Where a class or function of a module is written; None for modules inside it. Values are where they are used."""
    value = getattr(module, name)
    if inspect.ismodule(value):
        return None
    if inspect.isclass(value) or inspect.isfunction(value):
        return f"{value.__module__}.{value.__qualname__}"
    return f"{module.__name__}.{name}"


def live_pages(docs: Path) -> None:
    """The playground, and one page of `sympformer watch` where that command is there."""
    from sympformer.cli import COMMANDS
    from sympformer.cli import main as sympformer

    assert sympformer(["play", "--out", str(docs / "live" / "play.html")]) == 0
    (docs / "playground.md").write_text(framed("Play with a flow", "play", "sympformer play --out play.html"))
    if "watch" in COMMANDS:
        models = ["softmax-baseline", "softmax-yuriiformer", "softmax-exp-euler"]
        assert sympformer(["watch", *models, "--text", TEXT, "--out", str(docs / "live" / "watch.html")]) == 0
        shown = f'sympformer watch {" ".join(models)} --text "{TEXT}"'
        (docs / "watching.md").write_text(framed("Watch a model", "watch", shown))


def framed(title: str, name: str, command: str) -> str:
    """A page with another inside it."""
    frame = f'<iframe class="live" src="live/{name}.html" title="{title}" loading="lazy"></iframe>'
    return f"# {title}\n\n[Open it alone](live/{name}.html). Made by\n\n    {command}\n\n{frame}\n"


def copy_katex(cache: Path, out: Path) -> None:
    """KaTeX from npm, kept in a folder of ours; its fonts in the one format that every browser reads."""
    if not (cache / "package").is_dir():
        npm = shutil.which("npm")
        cache.mkdir(parents=True, exist_ok=True)
        done = npm and subprocess.run([npm, "pack", KATEX, "--silent"], cwd=cache, capture_output=True, text=True)
        if not done or done.returncode:
            print("npm cannot be asked for KaTeX: formulas are left as they are typed", file=sys.stderr)
            return
        with tarfile.open(next(cache.glob("katex-*.tgz"))) as archive:
            archive.extractall(cache, filter="data")
    kept = cache / "package" / "dist"
    (out / "fonts").mkdir(parents=True)
    for file in [kept / "katex.min.js", kept / "katex.min.css", *kept.glob("fonts/*.woff2")]:
        shutil.copy(file, out / file.relative_to(kept))


def configuration(modules: list[str], docs: Path) -> str:
    """zensical.toml: the reference in its place, pages that it does not name at its end, none that is not there."""
    text = (SITE / "zensical.toml").read_text(encoding="utf-8")
    rows = ",\n".join(f'        {{ "{name}" = "reference/{name}.md" }}' for name in modules)
    text = text.replace("[] },    # filled by site/build.py", f"[\n{rows},\n    ] }},")
    text = text.replace('paths = ["src"]', f"paths = [{json.dumps(str(ROOT / 'src'))}]")
    text = re.sub(r' *\{ "[^"]*" = "([^"]*)" \},\n', lambda row: row[0] if (docs / row[1]).exists() else "", text)
    if more := [json.dumps(page.name) for page in sorted(docs.glob("*.md")) if f'"{page.name}"' not in text]:
        text = text.replace("\n]\n", f'\n    {{ "More" = [{", ".join(more)}] }},\n]\n', 1)
    if not (docs / "assets" / "katex").exists():
        text = re.sub(r'"assets/katex/[^"]*", ', "", text)
    tomllib.loads(text)
    return text


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve())
