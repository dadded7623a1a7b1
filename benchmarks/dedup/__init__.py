"""Measure `lattemix dedup`."""
