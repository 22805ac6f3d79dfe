"""Demos of the tests make their folders where the tests have theirs."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _folders_of_demos(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where processes that are started by a test put what is temporary."""
    folder = tmp_path_factory.getbasetemp()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder
