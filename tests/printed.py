"""What the README and the docs print for people to type: found, and run as printed in a small setting.

    python tests/printed.py ROOT PAGE ...      # runs all of it in the present folder, in one process; JSON of what ran

Nothing but the package is imported, so that an installed wheel can be asked as well as a clone.
"""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

# --- budgets: options that the printed command may be given again, so that it takes a moment
MODEL = "--model.n_layer 1 --model.d_model 8 --model.n_head 1 --model.block_size 64"
RUN = "--tokens 256 --batch_size 2 --accumulate 1 --eval_tokens 256 --sample_tokens 2 --precision float32"
SMALLER = {
    "sympformer train --init_from": RUN,  # the model is that of the run
    "sympformer train --resume --out runs/mine --tokens": "--tokens 512",
    "sympformer train --resume": "",
    "sympformer train": f"{MODEL} {RUN} --data.tokenizer bpe:300 --data.validation 0.1",
    "torchrun": f"{MODEL} {RUN} --data.corpus my-texts/ --data.tokenizer byte --data.validation 0.1 --out runs/two",
    "sympformer sample": "--max_new_tokens 4",
    "sympformer eval": "--tokens 512",
    "sympformer audit": "--length 6",
    "sympformer compare factorial-small --plan": "--common.data.corpus storybook:60 --common.data.tokenizer byte",
    "sympformer compare": "--models '{gpt: {variant: softmax-baseline, lr: 0.01}}' --seeds '[1]' --budget.tokens 32 "
    "--common.model '{n_layer: 1, n_head: 1, d_model: 8, block_size: 16}' --common.data.tokenizer byte "
    "--common.data.test 0.1 --common.eval_tokens 64 --common.batch_size 2",
    "sympformer flow": "--max_passes 16 --dim 2 --particles 2 --integrators ab2",
    "sympformer bench": "--suites '[]'",  # sizes of their own; tests/studies/test_describe_and_bench.py
    "sympformer data prepare": "--tokenizer runs/mine",
}
CORPUS = {  # the text, where a line names none
    "sympformer train": "--data.corpus storybook:60",
    "sympformer compare": "--common.data.corpus storybook:60",
    "sympformer data prepare": "--corpus my-texts/",
}
PYTHON = {  # the same for the blocks
    '"storybook", "bpe:2048"': '"my-texts", "byte", "data/blocks"',
    "steps=200": "steps=1, eval_tokens=64, batch_size=2, model={'n_layer': 1, 'd_model': 8, 'n_head': 1}, "
    "data=type(TrainConfig().data)(corpus='my-texts', tokenizer='byte')",
}
# --- what a folder needs before a line can run, and what is not run here
BEFORE = {
    "sympformer report runs/mine runs/other": ("runs/mine", "runs/other"),
    "sympformer report runs/first runs/second": ("runs/first", "runs/second"),
    "sympformer watch runs/gpt runs/yurii runs/mine": ("runs/mine", "runs/gpt"),
    "runs/yurii": ("runs/mine", "runs/yurii"),
    "sympformer report runs/demo": ("runs/which", "runs/demo"),
    "sympformer report runs/compare --watch": ("runs/demo", "runs/compare"),
    "exported/": ("hf/mine", "exported"),
}
LEFT_OUT = {
    "make ": "sets up from the network and runs everything: the integrator's",
    "git clone": "needs the network",
    "cd sympformer": "where the clone is",
    "pip install": "needs the network",
    "hf ": "needs an account",
    "--push": "needs an account; tests/export/test_elsewhere.py pushes to a hub of its own",
    "docs/examples/lm_eval": "tests/export/test_elsewhere.py",
    "SYMPFORMER_PARTS": "tests/test_extending.py",
    "python mine.py": "a script of the reader's",
}
ELSEWHERE = {  # Python blocks that another test runs; all but those that need an export
    "accelerate.md": "tests/inertia/test_hugging_face.py",
    "audit.md": "tests/audit/test_audit.py",
    "extending.md": "tests/test_extending.py",
    "huggingface.md": "tests/hf/test_modeling.py",
    "layers.md": "tests/nn/test_encoder.py",
    "watch.md": "tests/watching/test_page.py",
}
EXPECTED = {"docs/examples/leaking_model.py": 1}  # exit codes other than 0: it leaks, and that is found
STARTS = ("sympformer ", "torchrun ", "make ", "pip install", "hf ", "docs/", "SYMPFORMER_PARTS", "ONEDNN_")


def commands(text: str) -> list[str]:
    """Every command of a page, in order: lines of sh blocks, and indented lines that begin like a command."""
    found = []
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        found += block.splitlines()
    outside = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    indented = re.findall(r"^    (?:\$ )?(\S.*)$", outside, re.MULTILINE)
    found += [line for line in indented if line.startswith(STARTS)]
    bare = [re.sub(r"\s+#.*$", "", line).strip() for line in found]
    return [part.strip() for line in bare for part in line.split(";") if part.strip()]


def blocks(text: str) -> list[str]:
    """The Python of a page."""
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def options(command: str) -> list[str]:
    """The options that a command line gives."""
    return [word.split("=")[0] for word in shlex.split(command) if word.startswith("--")]


def left_out(command: str) -> bool:
    return any(part in f"{command} " for part in LEFT_OUT)


def small(command: str) -> list[str]:
    """The words of a command with its smaller budget behind them."""
    start = next((start for start in SMALLER if command.startswith(start)), None)
    more = SMALLER[start] if start else ""
    if start in CORPUS and "corpus" not in command and "--resume" not in command:
        more += f" {CORPUS[start]}"
    return shlex.split(command) + shlex.split(more)


def prepare_folder(root: Path) -> None:
    """Text of one's own, a factory of one's own, and the docs."""
    from sympformer import data

    for folder in ("my-texts", "texts"):
        Path(folder).mkdir()
        Path(folder, "a.txt").write_text("\n\n".join(data.stories(150)))
    for file in ("my.txt", "other.txt"):
        Path(file).write_text("\n\n".join(data.stories(50)))
    Path("package").mkdir()
    Path("package", "module.py").write_text(
        "import sympformer as sf\n\n"
        "def factory():\n    return sf.build_model(sf.variant('linear-ab2', n_layer=1, d_model=8, vocab_size=64))\n"
    )
    Path("docs").symlink_to(root / "docs")


def run(command: str) -> None:
    """One line, as printed but small."""
    from sympformer import cli

    for part, (source, copy) in BEFORE.items():
        if part in command and not Path(copy).exists():
            shutil.copytree(source, copy)
    program, *args = small(command)
    if program == "torchrun":
        done = subprocess.run([sys.executable, "-m", "torch.distributed.run", *args], stdin=subprocess.DEVNULL)
        code = done.returncode
    else:
        code = cli.main(args)
    wanted = next((code for part, code in EXPECTED.items() if part in command), 0)
    assert code == wanted, f"{command}: exit code {code}"


def main(root: Path, pages: list[str]) -> None:
    prepare_folder(root)
    sys.path.insert(0, ".")
    done: list[str] = []
    for page in pages:
        text = (root / page).read_text()
        for command in commands(text):
            if not left_out(command) and command not in done:
                print(f"--- {page}: {command}", file=sys.stderr, flush=True)
                run(command)
                done.append(command)
        names: dict[str, object] = {"__name__": "printed"}
        for block in blocks(text):
            if Path(page).name in ELSEWHERE and "exports/mine" not in block:
                continue
            for printed, smaller in PYTHON.items():
                block = block.replace(printed, smaller)
            print(f"--- {page}: {block.strip().splitlines()[0]} ...", file=sys.stderr, flush=True)
            exec(compile(block, page, "exec"), names)
            done.append(f"python of {page}")
    Path("done.json").write_text(json.dumps(done))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
