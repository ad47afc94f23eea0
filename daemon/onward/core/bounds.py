"""How large a number that people write down may be. Pure."""

MOST = 10**15
"""Whatever is added to it stays far below what JSON and a 64-bit integer hold."""
