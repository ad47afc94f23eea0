"""Onward supervises LLM agent runs and never loses one."""

__version__ = "0.1.0"
