"""Shared set-up: one thread per worker, so that two workers do not fight for two cores."""

import os

import torch

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)
