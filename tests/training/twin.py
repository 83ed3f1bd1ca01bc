"""Run by the tests in processes of its own: `python twin.py CONFIG.yaml [resume]`."""

import sys

import torch

from sympformer.training import load_config, run_training

if __name__ == "__main__":
    torch.set_num_threads(1)
    run_training(load_config(sys.argv[1]), resume="resume" in sys.argv[2:])
