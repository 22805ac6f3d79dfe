"""The list of all names says what the code says."""

from tests.architecture.reference_listing import LISTING, listing
from tests.architecture.test_reference import written


def test_the_list_of_all_names_is_that_of_the_code():
    current = LISTING.read_text() == listing()
    assert current, "docs/reference/all-names.md is old: run python -m tests.architecture.reference_listing"


def test_every_name_of_the_pages_is_in_it():
    shown = LISTING.read_text()
    names = {path.rpartition(".")[2] for _, path in written()} - {"gc_tuning"}
    assert len(names) > 300
    assert sorted(name for name in names if f".{name}" not in shown) == []
