"""Particle flows raced by oracle calls, and their pictures."""
