"""Which kinds of entries the drivers write; what the journal promises is in the conformance suite."""

import ast
from pathlib import Path

import belay_drivers
from belay_core.stores.journal import RESERVED, RESERVED_PREFIXES


def test_every_kind_the_drivers_write_is_reserved():
    written = set()
    for path in Path(belay_drivers.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name.startswith("note") or name in {"Entry", "Change", "_entry", "journal_row"}:
                written |= {
                    each.value
                    for each in node.args
                    if isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value != "{}"
                }
    assert {"created", "woken", "decided", "settled", "parent_deleted", "cancel_acknowledged"} <= written
    assert {kind for kind in written if not kind.startswith(RESERVED_PREFIXES)} <= RESERVED
