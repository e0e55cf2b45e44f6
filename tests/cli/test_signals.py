"""What the first and the second signal do."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE

import pytest

from .harness import environment

pytestmark = pytest.mark.skipif(os.name != "posix", reason="POSIX signals")

STUBBORN = """
import asyncio
from rx_sampler.cli.signals import run_until_signal
async def stubborn():
    while True:
        try:
            print("waiting", flush=True)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
raise SystemExit(run_until_signal(stubborn()))
"""
OBEDIENT = """
import asyncio
from rx_sampler.cli.signals import run_until_signal
async def obedient():
    print("waiting", flush=True)
    await asyncio.Event().wait()
    return 7
raise SystemExit(run_until_signal(obedient(), signal_is_success=True))
"""


async def start(code: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=PIPE, stderr=PIPE, env=environment())


async def test_a_second_signal_ends_what_ignores_the_first() -> None:
    process = await start(STUBBORN)
    assert process.stdout is not None
    await process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert await process.stdout.readline() == b"waiting\n"
    process.send_signal(signal.SIGTERM)
    assert await process.communicate() == (b"", b"")
    assert process.returncode == 128 + signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_is_success_for_what_has_no_other_end(number: signal.Signals) -> None:
    process = await start(OBEDIENT)
    assert process.stdout is not None
    await process.stdout.readline()
    process.send_signal(number)
    assert await process.communicate() == (b"", b"")
    assert process.returncode == 0
