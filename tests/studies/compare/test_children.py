"""Signals to a comparison: whoever gets them, all children save and leave, and none stays behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sympformer.errors import InputError
from sympformer.studies.compare import children

HERE = Path(__file__).parent


def wait_for(folder: Path, pattern: str, count: int, process: "subprocess.Popen[str] | None" = None) -> list[Path]:
    end = time.monotonic() + 60
    while len(found := sorted(folder.glob(pattern))) < count and time.monotonic() < end:
        assert process is None or process.poll() is None
        time.sleep(0.01)
    assert len(found) >= count, found
    return found


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"  # its parent was killed, and nobody has asked yet how it ended


CASES = [
    ("group", signal.SIGINT, 1, 130),
    ("group", signal.SIGINT, 4, 130),
    ("parent", signal.SIGINT, 2, 130),
    ("parent", signal.SIGTERM, 2, 143),
    ("child", signal.SIGINT, 2, 130),
    ("child", signal.SIGTERM, 2, 130),
    ("child", signal.SIGKILL, 2, 2),
    ("parent", signal.SIGKILL, 2, -9),
]


@pytest.mark.parametrize(("to", "number", "jobs", "code"), CASES)
def test_all_children_save_and_leave(to: str, number: int, jobs: int, code: int, tmp_path: Path) -> None:
    path = os.pathsep.join([str(HERE), *sys.path])
    process = subprocess.Popen(
        [sys.executable, str(HERE / "slow_work.py")],
        env=os.environ | {"PYTHONPATH": path, "FOLDER": str(tmp_path), "JOBS": str(jobs)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # a background job may ignore it
    )
    try:
        pids = [int(path.read_text()) for path in wait_for(tmp_path, "pid-*", jobs, process)]
        if to == "group":
            os.killpg(process.pid, number)
        else:
            os.kill(process.pid if to == "parent" else pids[0], number)
        _, said = process.communicate(timeout=30)
        assert process.returncode == code, said
        assert "Traceback" not in said
        killed = to == "child" and number == signal.SIGKILL
        wait_for(tmp_path, "saved-*", jobs - killed)
        end = time.monotonic() + 30
        while not all(map(gone, pids)) and time.monotonic() < end:
            time.sleep(0.01)
        assert all(map(gone, pids))
        assert len(list(tmp_path.glob("pid-*"))) == jobs  # none of the waiting tasks began
        if killed:
            assert "a worker process was killed (SIGKILL)" in said
    finally:
        process.kill()
        process.wait()


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *codes: str) -> dict[int, str]:
    """Children that do what these lines say."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    imports = "import sys, os", "from sympformer.errors import InputError"
    head = "\n".join([*imports, "from sympformer.studies.compare.children import be_child"])
    for i, code in enumerate(codes):
        (tmp_path / f"made{i}.py").write_text(f"{head}\ndef main(words):\n    {code}\nbe_child(main)\n")
    return dict(children.run_all([[f"made{i}", f"word{i}"] for i in range(len(codes))], 2, 3, MINE="x"))


def test_results_and_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "9")
    said = "return words[0] + os.environ['OMP_NUM_THREADS'] + os.environ['MINE']"
    assert {i: text.strip() for i, text in run(tmp_path, monkeypatch, said, said, said).items()} == {
        i: f"word{i}3x" for i in range(3)
    }
    assert run(tmp_path, monkeypatch) == {}
    with pytest.raises(InputError, match=r"^three is not allowed$"):
        run(tmp_path, monkeypatch, said, "raise InputError('three is not allowed')")
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        run(tmp_path, monkeypatch, "1 / 0")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, monkeypatch, "raise KeyboardInterrupt")


def test_a_chatty_child_is_not_stopped_by_a_full_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = run(tmp_path, monkeypatch, "sys.stderr.write('x' * 300_000); return 'y' * 300_000").values()
    assert len(text.strip()) == 300_000
