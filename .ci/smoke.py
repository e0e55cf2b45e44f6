"""What an installed wheel must do, run from outside the source tree with nothing but its dependencies."""

import asyncio
from importlib.metadata import metadata
from importlib.resources import files

import rx_sampler
from rx_sampler import Completed, Sampler, SamplerConfig
from rx_sampler.simulator import Simulator, Timing


async def main() -> None:
    async with Simulator(seed=1, timing=Timing.instant()) as simulator:
        for backend in ("chat_completions", "responses", "messages"):
            config = SamplerConfig(
                backend=backend, base_url=simulator.base_url, model="simulated-model", api_key="none"
            )
            async with Sampler(config) as sampler:
                end = await sampler.stream("Is anyone there?")
                if not isinstance(end, Completed):
                    raise SystemExit(f"{backend}: {end}")
                print(f"{backend}: {end.response.text[:60]}...")


assert files(rx_sampler).joinpath("py.typed").is_file(), "the wheel has no py.typed"
assert metadata("rx-sampler")["License-Expression"] == "Apache-2.0"
asyncio.run(main())
