"""What training and generation cost, measured so that a noisy machine cannot fake it."""
