"""Names of a package load at their first use, once, and a wrong name is said as Python says it."""

import sys
from types import ModuleType

import pytest

from makegood.base.lazy import names


def test_name_is_loaded_once_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first use imports the name's module and leaves the value in the package, so that Python asks no more."""
    package = ModuleType("somewhere")
    module = ModuleType("somewhere.inside")
    module.__dict__.update(one=object(), two=object())
    monkeypatch.setitem(sys.modules, "somewhere", package)
    monkeypatch.setitem(sys.modules, "somewhere.inside", module)
    load, listing, exports = names("somewhere", {"inside": "one two"}, packages=("inside",))

    assert exports == ["one", "two"]
    assert {"one", "two"} <= set(listing())
    assert load("one") is module.__dict__["one"] is package.__dict__["one"]
    assert "two" not in vars(package)
    assert load("inside") is module
    with pytest.raises(AttributeError, match="module 'somewhere' has no attribute 'three'"):
        load("three")
