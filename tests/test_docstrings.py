"""What is read out of docstrings, in the three usual styles."""

from __future__ import annotations

import inspect

import pytest

from rx_sampler.docstrings import doc_text

GOOGLE = """
    Look a place up.

    By name, and by
    nothing else.

    Args:
        place (str): Where: a town
            or a village.
        *days: How many.

        unit: C or F.
        nothing

    Returns:
        place: not of the arguments.
    """
SPHINX = """Look a place up.

    By name.

    :param place: Where: a town
        or a village.
    :param int days: How many.
    :type place: str
    :returns: words
    :param unit:
    """
NUMPY = """Look a place up.

    Parameters
    ----------
    place : str
        Where.
    """


def read(doc: str) -> tuple[str | None, dict[str, str]]:
    return doc_text(inspect.cleandoc(doc))


def test_google_style() -> None:
    summary, arguments = read(GOOGLE)
    assert summary == "Look a place up.\n\nBy name, and by\nnothing else."
    assert arguments == {"place": "Where: a town or a village.", "days": "How many.", "unit": "C or F."}


def test_sphinx_style() -> None:
    summary, arguments = read(SPHINX)
    assert summary == "Look a place up.\n\nBy name."
    assert arguments == {"place": "Where: a town or a village.", "days": "How many."}


def test_numpy_style_ends_the_summary() -> None:
    assert read(NUMPY)[0] == "Look a place up."


@pytest.mark.parametrize("doc", [None, "", "   \n  "])
def test_no_docstring_says_nothing(doc: str | None) -> None:
    assert doc_text(doc) == (None, {})


@pytest.mark.parametrize(
    "doc",
    [
        "Takes these\narguments:\nnone.",  # the last word of a sentence
        "Notes\nare kept.",
        "Use it as a : b :: c : d.",
        "Give me the\nparameters",
    ],
)
def test_prose_is_no_section(doc: str) -> None:
    assert doc_text(doc) == (doc, {})


def test_a_docstring_of_sections_alone_has_no_summary() -> None:
    assert doc_text("Args:\n    a: One.\n") == (None, {"a": "One."})
