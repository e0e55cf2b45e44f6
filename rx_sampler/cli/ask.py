"""One request from subscription to exit code."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from rx_sampler.errors import SamplingError
from rx_sampler.events import Completed, Failed, SamplingEvent

from .hints import hint_for
from .options import ServerOptions, UnusableError, key_variable, resolve
from .output import Output
from .render import EventLines, Renderer, TextRenderer
from .servers import BACKENDS, Kind, embedded_server

if TYPE_CHECKING:
    from rx_sampler.config import SamplerConfig
    from rx_sampler.conversation import SamplingRequest
    from rx_sampler.tools import AnyTool

__all__ = ["Target", "ask", "ask_target"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Whom to ask: a configured server, or one of our own (`kind`) with these settings."""

    config: SamplerConfig | None = None
    kind: Kind = Kind.ANY
    key_variable: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def choose(
        cls,
        options: ServerOptions,
        environ: Mapping[str, str],
        forced: Kind | None,
        *,
        retries: int = 0,
        **settings: Any,
    ) -> Self:
        """The target of a command line; `forced` is one of our own servers. Raises `UnusableError`."""
        from rx_sampler.config import RetryPolicy

        # None unless asked for: what is printed cannot be taken back, and whoever waits at a terminal wants to see a
        # failure at once.
        settings["retry"] = RetryPolicy(max_retries=retries)
        config = None if forced else resolve(options, environ, **settings)
        if config is not None:
            return cls(config=config, key_variable=key_variable(options, environ))
        backend = options.backend or BACKENDS[0]
        if backend not in BACKENDS:
            raise UnusableError(f"--backend {backend}: without a server of yours it is one of {', '.join(BACKENDS)}")
        named = {"model": options.model} if options.model else {}
        return cls(kind=forced or Kind.ANY, settings={**settings, **named, "backend": backend})


async def ask_target(
    target: Target,
    request: SamplingRequest,
    output: Output,
    tools: Sequence[AnyTool] = (),
    *,
    events: bool = False,
) -> int:
    """Ask `target`, starting a server of our own where it wants one; the exit code as `ask` gives it."""

    def hint(failed: Failed) -> str | None:
        return hint_for(failed.error, failed.exception, target.key_variable)

    renderer = EventLines(hint=hint) if events else TextRenderer(interleaved=output.interleaved, hint=hint)
    if target.config is not None:
        return await ask(target.config, request, renderer, output, tools)
    from rx_sampler.config import SamplerConfig

    async with embedded_server(target.kind, thinking=request.reasoning_effort not in (None, "none")) as server:
        output.note(server.notice)
        fields: dict[str, Any] = {"base_url": server.base_url, "model": server.model, **target.settings}
        config = SamplerConfig(**fields)
        return await ask(config, request, renderer, output, tools)


async def ask(
    config: SamplerConfig,
    request: SamplingRequest,
    renderer: Renderer,
    output: Output,
    tools: Sequence[AnyTool] = (),
) -> int:
    """Stream one request to `output`, with `tools` as many as it takes; 0 if it completed, 1 if it failed.

    Cancelling disposes the subscription, which closes the socket, then ends the output with the renderer's summary
    and raises CancelledError. Raises BrokenPipeError where the reader of the output is gone, with the socket closed,
    and `UnusableError` where the library refuses `config`.
    """
    from rx_sampler.sampler import Sampler

    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    exit_code = 1

    def on_next(event: SamplingEvent) -> None:
        nonlocal exit_code
        if ended.done():
            return
        if isinstance(event, Completed | Failed):
            exit_code = 0 if isinstance(event, Completed) else 1
        try:
            output.write(renderer.feed(event))
        except Exception as error:  # ours to report: raised here, it would not reach the one who awaits
            ended.set_exception(error)

    def on_error(error: Exception) -> None:
        if not ended.done():
            ended.set_exception(error)

    def on_completed() -> None:
        if not ended.done():
            ended.set_result(exit_code)

    try:
        sampler = Sampler(config)
    except ValueError as error:  # a backend that nobody registered
        raise UnusableError(str(error)) from None
    try:
        async with sampler:
            events = sampler.stream(request)
            if tools:
                from rx_sampler.tools import run_tools

                events = run_tools(sampler, request, tools)
            subscription = events.subscribe(on_next, on_error, on_completed)
            try:
                return await ended
            except asyncio.CancelledError:
                subscription.dispose()
                for piece in renderer.cancelled():
                    with suppress(BrokenPipeError):  # Ctrl-C ends the other processes of a pipeline too
                        output.write([piece])
                raise
            finally:
                subscription.dispose()
    except SamplingError as error:
        raise UnusableError(error.info.message) from error
