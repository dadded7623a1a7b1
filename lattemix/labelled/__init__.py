"""Pairs that people have labelled: measure models on them, and calibrate scores."""
