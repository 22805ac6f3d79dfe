"""A driver of belay's contract over one file of JSON lines."""

from belay_jsonl.open import open_jsonl

__all__ = ["open_jsonl"]
