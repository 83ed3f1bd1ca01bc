"""The learning rate as a pure function of the step: linear warm-up, then a cosine."""

import math


def learning_rate(step: int, peak: float, warm_up: int, total: int, min_ratio: float) -> float:
    """The rate of step 0 .. total-1.

    step < warm_up:  peak (step + 1) / (warm_up + 1)
    then:            peak (r + (1 - r) (1 + cos(pi s)) / 2),  s from 0 to 1 at the last step,  r = min_ratio
    """
    if step < warm_up:
        return peak * (step + 1) / (warm_up + 1)
    s = min(1.0, (step - warm_up) / max(1, total - 1 - warm_up))
    return peak * (min_ratio + (1 - min_ratio) * (1 + math.cos(math.pi * s)) / 2)
