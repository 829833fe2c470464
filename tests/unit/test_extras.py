"""What an extra brings is imported, or its absence is told by the sentence that says what to install."""

import pytest

from makegood.base.extras import optional
from makegood.errors import ConfigError


def test_a_module_that_is_there_is_returned() -> None:
    assert optional("json", "json", "no").loads("1") == 1


def test_a_package_that_is_missing_is_told_by_the_sentence() -> None:
    with pytest.raises(ConfigError, match="install it"):
        optional("no_such_package.inner", "no_such_package", "install it")


def test_another_missing_module_is_a_defect_and_raised_as_it_is() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        optional("no_such_package", "another", "install it")
