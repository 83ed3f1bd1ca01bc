"""Shared set-up: one thread per worker, so that two workers do not fight for two cores; no deadlines on shared ones."""

import os

import torch
from hypothesis import settings

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that tests start

settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")
