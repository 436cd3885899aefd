"""longflow: evaluate long-context language models, reproducibly and without computing anything twice."""

__version__ = "0.1.0"
