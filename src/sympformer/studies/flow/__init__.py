"""Particle flows raced by kernel passes, and their pictures."""
