"""Whether the embedded server can run here, and what is said if not."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

from rx_sampler.local import LocalModelUnavailable, LocalServer
from rx_sampler.local.unavailable import cpu_problem, require_engine

MODERN = "processor\t: 0\nflags\t\t: fpu sse4_2 fma avx avx2 bmi1 bmi2\n\nprocessor\t: 1\nflags\t\t: fpu\n"
OLD = "processor\t: 0\nflags\t\t: fpu sse4_2 avx bmi1\n"


def test_a_missing_binding_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)

    with pytest.raises(LocalModelUnavailable) as caught:
        require_engine()

    assert str(caught.value) == "the package xllamacpp is not installed (pip install 'rx-sampler[local]')"


async def test_both_ways_of_entering_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)

    with pytest.raises(LocalModelUnavailable, match="xllamacpp is not installed"), LocalServer():
        pass
    with pytest.raises(LocalModelUnavailable, match="xllamacpp is not installed"):
        async with LocalServer():
            pass


def test_an_old_processor_is_told_what_it_lacks() -> None:
    assert cpu_problem("x86_64", OLD) == "this processor lacks AVX2, FMA, BMI2, which xllamacpp is built for"


@pytest.mark.parametrize(
    ("machine", "info"), [("x86_64", MODERN), ("aarch64", "Features\t: fp asimd\n"), ("x86_64", "")]
)
def test_other_processors_are_left_to_try(machine: str, info: str) -> None:
    assert cpu_problem(machine, info) is None


@pytest.mark.skipif(find_spec("xllamacpp") is None, reason="the extra [local] is not installed")
def test_importing_the_package_does_not_load_the_binding() -> None:
    code = "import sys, rx_sampler.local; print('xllamacpp' in sys.modules, rx_sampler.local.LocalServer())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "False LocalServer('gemma-3-270m', base_url=None)\n"


@pytest.mark.parametrize(("field", "value"), [("context", 0), ("parallel", -1)])
def test_numbers_out_of_range_are_refused_at_once(field: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{field} is at least 1, not {value}"):
        LocalServer(**{field: value})  # pyright: ignore[reportArgumentType]  # the name is a parameter here
