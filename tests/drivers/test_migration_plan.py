"""The rules of the migration plan: what a set may contain, and what may be applied next."""

from types import SimpleNamespace
from typing import cast

import pytest

from belay_core.errors import MigrationRefused, SchemaMismatch
from belay_drivers.sql.schema import migration_plan
from belay_drivers.sql.schema.migration_plan import Migration, MigrationSet, own_set, pending, planned
from belay_drivers.sql.schema.script_statements import statements_of

ONE = {"0001_one": "SELECT 1;\n"}
ODD = ["9" * 5_000 + "_one", 1, None, "1_a\rDROP TABLE x;", "1_a\u2028b", "1_a\0", "1_\ud800"]


def refused(*sets):
    with pytest.raises(MigrationRefused) as failure:
        planned(sets)
    return failure.value.reason


def test_ids_are_the_sets_and_names_say_whose_they_are():
    mine = MigrationSet("audit", 2_000, {"0002_two": "b", "1_one": "a", "0_none": "z"})
    steps = planned([mine, MigrationSet("", 0, {"0001_first": "c"})])
    assert [(step.id, step.name, step.sql) for step in steps] == [
        (1, "first", "c"),
        (2_000, "audit_none", "z"),
        (2_001, "audit_one", "a"),
        (2_002, "audit_two", "b"),
    ]


@pytest.mark.parametrize("package", ["belay_drivers.sqlite", "belay_drivers.postgres"])
def test_belays_own_set_is_block_zero_and_begins_with_the_first(package):
    first, *more = planned([own_set(package)])
    assert (first.id, first.name) == (1, "first")
    assert [step.id for step in more] == list(range(2, len(more) + 2))


def test_two_sets_have_neither_a_name_nor_a_block_in_common():
    assert refused(MigrationSet("a", 1_000, ONE), MigrationSet("a", 2_000, ONE)) == "namespace"
    assert refused(MigrationSet("a", 1_000, ONE), MigrationSet("b", 1_000, ONE)) == "offset"


@pytest.mark.parametrize("offset", [-1_000, 1, 1_500, 1_000.0, True, "1000", None, 2**53, 10**18])
def test_an_offset_is_a_multiple_of_a_thousand(offset):
    assert refused(MigrationSet("a", offset, ONE)) == "offset"


@pytest.mark.parametrize("namespace", ["A", "a_b", "1a", "a b", "ä", "a\n", None])
def test_a_namespace_is_lower_case(namespace):
    assert refused(MigrationSet(namespace, 1_000, ONE)) == "namespace"


def test_block_zero_is_belays_own():
    assert refused(MigrationSet("a", 0, ONE)) == "offset"
    assert refused(MigrationSet("", 1_000, ONE)) == "offset"


@pytest.mark.parametrize("key", ["one", "_one", "0001", "0001_", "1000_one", "-1_one", "0001-one", "²_one", *ODD])
def test_a_key_is_a_number_below_a_thousand_and_a_name(key):
    assert refused(MigrationSet("a", 1_000, {key: "SELECT 1"})) == "key"


def test_two_keys_are_never_one_id():
    assert refused(MigrationSet("a", 1_000, {"0001_a": "x", "01_b": "y"})) == "key"


@pytest.mark.parametrize("sql", [None, b"SELECT 1", "SELECT '\0'", "SELECT '\ud800'"])
def test_a_migration_is_text(sql):
    assert refused(MigrationSet("a", 1_000, {"0001_a": cast("str", sql)})) == "key"


@pytest.mark.parametrize(
    "names", [{"0002_two": ["a_two"]}, {"0001_one": "a_uno"}, {"0001_one": [""]}, {"0001_one": [1]}, {"0001_one": None}]
)
def test_previous_names_belong_to_a_migration_and_are_a_list(names):
    assert refused(MigrationSet("a", 1_000, ONE, names)) == "previous_names"


@pytest.mark.parametrize("name", ["contract_drop", "contract_0003_drop", "contract_0000_drop", "contract_1_drop"])
def test_a_contraction_names_the_migration_that_code_has_to_know(name):
    assert refused(MigrationSet("a", 1_000, {**ONE, f"0002_{name}": "x"})) == "contract"


@pytest.mark.parametrize("needed", ["0001", "0002"])
def test_a_contraction_may_need_an_earlier_one_or_itself(needed):
    name = f"contract_{needed}_drop"
    assert planned([MigrationSet("a", 1_000, {**ONE, f"0002_{name}": "x"})])[1].name == f"a_{name}"


def test_what_is_planned_stays_when_the_callers_records_change():
    given, former = dict(ONE), {"0001_one": ["a_uno"]}
    mine = MigrationSet("a", 1_000, given, former)
    given["0002_two"] = "x"
    former.clear()
    [step] = planned([mine])
    assert step.is_recorded_as("a_uno", step.checksum)


def recorded(*steps):
    return {step.id: (step.name, step.checksum) for step in steps}


STEPS = tuple(Migration(number, f"a_{number}", "x", "a_") for number in (1_001, 1_002, 1_003))


def test_only_what_lies_above_its_block_is_applied():
    first, second, third = STEPS
    assert pending(STEPS, {}) == list(STEPS)
    assert pending(STEPS, recorded(first)) == [second, third]
    assert pending(STEPS, {5_000: ("b_x", "y"), **recorded(first, second)}) == [third]
    for holed in (recorded(second), recorded(first, third)):
        with pytest.raises(SchemaMismatch, match="never fills holes") as mismatch:
            pending(STEPS, holed)
        assert mismatch.value.state == "altered"


def test_a_new_block_lies_above_all_that_is_applied():
    with pytest.raises(MigrationRefused) as failure:
        pending(STEPS, {5_000: ("b_x", "y")})
    assert failure.value.reason == "order"
    assert pending(STEPS, {500: ("old", "y")}) == list(STEPS)


@pytest.mark.parametrize("number", [-1, 2**53])
def test_the_ledger_holds_ids_only(number):
    with pytest.raises(SchemaMismatch):
        pending(STEPS, {number: ("x", "y")})


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("a_more", None),
        ("a_contract_0003_drop", None),
        ("a_contract_0001_drop", None),
        ("a_contract_0004_drop", "newer"),
        ("a_contract_odd", "newer"),
        ("a_contracts", None),
    ],
)
def test_code_bears_what_it_does_not_know_unless_it_took_something_away(name, state):
    ledger_rows = {**recorded(*STEPS), 1_004: (name, "y")}
    if state is None:
        assert pending(STEPS, ledger_rows) == []
        return
    with pytest.raises(SchemaMismatch) as mismatch:
        pending(STEPS, ledger_rows)
    assert mismatch.value.state == state


def test_other_blocks_contractions_are_others_business():
    assert pending(STEPS, {**recorded(*STEPS), 2_001: ("b_contract_0001_drop", "y")}) == []


def test_sets_of_installed_packages_are_found_by_their_entry_points(monkeypatch):
    mine = MigrationSet("a", 1_000, ONE)
    found = {("belay.migration_sets", "sqlite"): mine, ("belay.migration_sets", "postgresql"): "no set"}

    def entry_points(group, name):
        loaded = found[group, name]
        return [SimpleNamespace(load=lambda: loaded, value="somebody:SET")]

    monkeypatch.setattr(migration_plan, "entry_points", entry_points)
    assert migration_plan.installed_sets("sqlite") == [mine]
    with pytest.raises(MigrationRefused, match="somebody:SET"):
        migration_plan.installed_sets("postgresql")


def test_a_statement_ends_where_a_line_ends_with_a_semicolon():
    assert statements_of("SELECT 1;\nSELECT ';'\n  , 2;  \n\n-- the end\n") == ["SELECT 1", "SELECT ';'\n  , 2"]
    assert statements_of("SELECT 1") == ["SELECT 1"]
    assert statements_of("") == []


def test_a_trigger_and_a_function_are_one_statement_each():
    trigger = "-- noted\nCREATE TRIGGER t AFTER INSERT ON a BEGIN\n  UPDATE a SET x = 1;\n  DELETE FROM b;\nEND"
    function = "CREATE FUNCTION f() RETURNS void AS $body$\nBEGIN\n  PERFORM 1;\nEND;\n$body$ LANGUAGE plpgsql"
    other = "CREATE TRIGGER t AFTER INSERT ON a EXECUTE FUNCTION f()"
    script = f"{trigger};\n{function};\n{other};\nSELECT 1;\n"
    assert statements_of(script) == [trigger, function, other, "SELECT 1"]
