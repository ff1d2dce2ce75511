"""tests/unit mirrors src/roost: who looks for the tests of a package finds them."""

from __future__ import annotations

from pathlib import Path

UNIT = Path(__file__).parent
SOURCE = UNIT.parents[1] / "src" / "roost"


def test_every_folder_of_unit_tests_has_its_package() -> None:
    folders = {path.parent.relative_to(UNIT) for path in UNIT.rglob("test_*.py")}

    assert [str(folder) for folder in sorted(folders) if not (SOURCE / folder).is_dir()] == []
