"""Offline: corpus -> frozen backbone -> VAE head -> artifact -> evaluation."""
