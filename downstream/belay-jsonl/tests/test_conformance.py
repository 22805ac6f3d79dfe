"""The driver keeps the contract."""

from functools import partial
from pathlib import Path

import pytest

from belay_jsonl import open_jsonl
from belay_testing.conformance import Harness, SharedConformance, StoreConformance


class TestJsonl(StoreConformance, SharedConformance):
    driver = "jsonl"

    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        return Harness(partial(open_jsonl, f"jsonl:///{tmp_path / 'runs.jsonl'}"))
