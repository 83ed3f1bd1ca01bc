"""Run by the tests in processes of its own: `python twin.py CONFIG.yaml [resume]`."""

import os
import sys
from pathlib import Path

import torch

from sympformer.training import load_config, run_training

if __name__ == "__main__":
    torch.set_num_threads(1)
    run_training(load_config(sys.argv[1]), resume="resume" in sys.argv[2:])
    if "WORLD_SIZE" in os.environ and (tasks := Path("/proc/self/task")).is_dir():  # Linux tells
        alive = {(task / "comm").read_text().strip() for task in tasks.iterdir()}
        assert not any("gloo" in name for name in alive), alive  # a thread that outlives the run can abort its process
