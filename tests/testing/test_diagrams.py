"""`diagram_of`: the rows of a docstring's marble diagram."""

from __future__ import annotations

from functools import partial

import pytest

from rx_sampler.testing.diagrams import diagram_of


def documented() -> None:
    """What comes out.

    An example in between, which is none: two  words.

        source      -S-(Fa) 10ms b-C|
        until       ^------!
        documented  -a----#

    More text.

        another  -x-|
    """


def one_row() -> None:
    """What comes out.

    source  -a|
        text  -b|
    """


def prose() -> None:
    """Text, and code:

    with Marbles() as marbles:
        marbles.flush()
    """


def twice() -> None:
    """Text:

    source  -a|
    source  -b|
    """


def silent() -> None:
    pass


class Documented:
    """A class.

    source  -a|
    """

    def __call__(self) -> None: ...


def test_the_first_diagram_row_by_row() -> None:
    assert diagram_of(documented) == {
        "source": "-S-(Fa) 10ms b-C|",
        "until": "^------!",
        "documented": "-a----#",
    }


def test_rows_are_indented_and_end_where_the_marbles_do() -> None:
    assert diagram_of(one_row) == {"text": "-b|"}


def test_classes_have_diagrams_too() -> None:
    assert diagram_of(Documented) == {"source": "-a|"}


@pytest.mark.parametrize("function", [prose, silent])
def test_no_diagram(function: object) -> None:
    assert callable(function)
    with pytest.raises(ValueError, match=f"the docstring of {getattr(function, '__name__', '')} has no marble diagram"):
        diagram_of(function)


def test_no_diagram_of_something_without_a_name() -> None:
    with pytest.raises(ValueError, match=r"functools\.partial"):
        diagram_of(partial(print, 1))


def test_two_rows_of_one_name() -> None:
    with pytest.raises(ValueError, match="twice has two rows 'source'"):
        diagram_of(twice)
