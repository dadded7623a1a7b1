"""The service: text in, mixtures and similarities out."""

from importlib.metadata import version

__version__ = version("lattemix")
