"""The fixtures that the plugin brings, in runs of pytest of their own."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from rx_sampler.testing import pytest_plugin

pytest_plugins = ["pytester"]

HEAD = """
import pytest
import reactivex as rx
"""


@pytest.fixture(autouse=True)
def by_name_only(monkeypatch: pytest.MonkeyPatch) -> None:
    # A checkout that is not installed has no entry points, and one that is would bring the plugin twice.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def run(pytester: pytest.Pytester, tests: str) -> pytest.RunResult:
    pytester.makepyfile(HEAD + tests)
    return pytester.runpytest("-p", "rx_sampler.testing.pytest_plugin", "-p", "no:cacheprovider")


def test_what_holds_passes(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
def test_it(marbles):
    source = marbles.cold("-a|")
    marbles.expect(source).to_be("-a|")
    marbles.expect_subscriptions(source).to_be("^-!")

def test_each_has_its_own(marbles):
    assert marbles.scheduler.microseconds == 0
        """,
    )
    result.assert_outcomes(passed=2)


def test_what_does_not_hold_fails_the_test_itself(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
def test_it(marbles):
    marbles.expect(marbles.cold("-a|")).to_be("-b|")

def test_nothing_is_said(marbles):
    marbles.expect(rx.empty())

@pytest.mark.xfail(strict=True)
def test_expected_to_fail(marbles):
    marbles.expect(marbles.cold("-a|")).to_be("-b|")

def test_flushed_by_hand(marbles):
    marbles.expect(marbles.cold("-a|")).to_be("-b|")
    with pytest.raises(AssertionError):
        marbles.flush()
        """,
    )
    result.assert_outcomes(passed=1, failed=2, xfailed=1)
    result.stdout.fnmatch_lines(
        ["E *AssertionError: test_what_does_not*.py:5: expected value 'b' at 1 ms; found value 'a' at 1 ms"]
    )


def test_a_test_that_failed_is_not_checked_besides(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
def test_it(marbles):
    marbles.expect(marbles.cold("-a|")).to_be("-b|")
    raise KeyError("bug")

def test_skipped(marbles):
    marbles.expect(marbles.cold("-a|")).to_be("-b|")
    pytest.skip("not now")
        """,
    )
    result.assert_outcomes(failed=1, skipped=1)
    output = result.stdout.str()
    assert "KeyError: 'bug'" in output
    assert "expected value" not in output


def test_other_fixtures_can_use_it(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.fixture
def source(marbles):
    return marbles.cold("-a|")

def test_it(source, marbles):
    marbles.expect(source).to_be("-b|")
        """,
    )
    result.assert_outcomes(failed=1)


def test_the_simulator_answers(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
import urllib.request

def test_it(simulator):
    with urllib.request.urlopen(f"{simulator.base_url}/models") as response:
        assert response.status == 200
        """,
    )
    result.assert_outcomes(passed=1)


def test_the_plugin_imports_what_its_fixtures_need_in_them() -> None:
    tree = ast.parse(Path(pytest_plugin.__file__).read_text(encoding="utf-8"))
    imported = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {name for node in imported for name in ([node.module] if isinstance(node, ast.ImportFrom) else ["pytest"])}
    assert names == {"__future__", "collections.abc", "typing", "pytest"}
