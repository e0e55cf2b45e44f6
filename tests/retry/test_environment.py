"""Retries by environment (B230, B231): an explicit 0 wins, then the variables in order, then the code."""

from __future__ import annotations

import pytest

from rx_sampler.retry import max_retries_from

OURS, THEIRS = "RX_SAMPLER_MAX_RETRIES", "GROK_MAX_RETRIES"


@pytest.mark.parametrize(
    ("configured", "environ", "resolved"),
    [
        (3, {THEIRS: "9"}, 9),  # B230
        (7, {}, 7),
        (15, {}, 15),
        (4, {THEIRS: "abc"}, 4),
        (4, {THEIRS: "-1"}, 4),
        (4, {THEIRS: "99999999999999"}, 4),
        (4, {OURS: " 2 ", THEIRS: "9"}, 2),
        (4, {OURS: "", THEIRS: "9"}, 9),
        (4, {OURS: "many", THEIRS: "9"}, 9),
        (4, {OURS: "0"}, 0),
        (0, {OURS: "9", THEIRS: "9"}, 0),  # B231
    ],
)
def test_who_says_how_often(configured: int, environ: dict[str, str], resolved: int) -> None:
    assert max_retries_from(configured, environ) == resolved
