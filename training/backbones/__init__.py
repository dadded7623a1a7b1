"""Frozen backbones: where they come from, and their token vectors."""
