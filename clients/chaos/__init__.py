"""`seamscribe chaos`: seeded faults against a server, and whether its promises held, seen from outside."""

from .cli import main

__all__ = ["main"]
