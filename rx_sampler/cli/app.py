"""The commands and their options. Each command imports what it needs when it runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_args

import typer

from rx_sampler.providers import PRESETS

from .options import ServerOptions, UnusableError
from .sanitize import visible_line

__all__ = ["run"]

_CLOSED_PIPE_EXIT_CODE = 141
"""As a shell reports a process that SIGPIPE ended."""

_app = typer.Typer(
    name="rx-sampler",
    help="Stream a model's answer to the terminal, over any of three wire formats.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,  # its tracebacks can show local variables, and keys are among them
)


def run() -> None:
    """Run the command line; ends in SystemExit."""
    _app(prog_name="rx-sampler")


def _exit_with(make: Callable[[], Coroutine[Any, Any, int]], *, ends_by_signal: bool = False) -> NoReturn:
    """Run what `make` returns and exit with its code; turn what nobody can mend into one line."""
    from .signals import run_until_signal

    try:
        code = run_until_signal(make(), signal_is_success=ends_by_signal)
    except UnusableError as problem:
        _fail(problem)
    except BrokenPipeError:
        code = _CLOSED_PIPE_EXIT_CODE
    raise typer.Exit(code)


def _fail(problem: UnusableError) -> NoReturn:
    print(f"error: {visible_line(str(problem))}", file=sys.stderr)
    raise typer.Exit(1)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"rx-sampler {version('rx-sampler')}")
        except PackageNotFoundError:
            print("rx-sampler, run from a source tree that is not installed")
        raise typer.Exit


def _known_provider(name: str | None) -> str | None:
    if name is not None and name.lower() not in PRESETS:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(PRESETS)}")
    return name


def _known_effort(effort: str | None) -> str | None:
    from rx_sampler.conversation import ReasoningEffort

    efforts: tuple[str, ...] = get_args(ReasoningEffort)
    if effort is not None and effort not in efforts:
        raise typer.BadParameter(f"{effort!r} is none of {', '.join(efforts)}")
    return effort


@_app.callback()
def root(
    version: Annotated[  # its callback acts
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@_app.command(name="ask")
def ask_command(
    prompt: Annotated[
        str | None,
        typer.Argument(help="What to ask; what is piped in is added. `-`: stdin alone.", show_default=False),
    ] = None,
    *,
    provider: Annotated[
        str | None,
        typer.Option(metavar="NAME", callback=_known_provider, help=f"A known server: {', '.join(PRESETS)}."),
    ] = None,
    base_url: Annotated[str | None, typer.Option(metavar="URL", help="Any other server, mostly ending in /v1.")] = None,
    backend: Annotated[
        str | None, typer.Option(metavar="NAME", help="The wire format: chat_completions, responses or messages.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", metavar="NAME", help="The model's name.")] = None,
    api_key_env: Annotated[
        str | None, typer.Option(metavar="VARIABLE", help="The environment variable that holds the API key.")
    ] = None,
    local: Annotated[bool, typer.Option("--local", help="Ask the small local model (extra: local).")] = False,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Ask the built-in simulator, which is no model.")
    ] = False,
    system: Annotated[
        str | None, typer.Option("--system", "-s", metavar="TEXT", help="Instructions for the model.")
    ] = None,
    image: Annotated[
        list[str] | None, typer.Option(metavar="PATH|URL", help="An image to send along; repeat for more.")
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE:FUNCTION", help="A Python function that the model may call; repeat for more."),
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="The most tokens that the model may write.")] = None,
    temperature: Annotated[float | None, typer.Option(min=0.0, help="0 is the least random.")] = None,
    reasoning_effort: Annotated[
        str | None,
        typer.Option(metavar="EFFORT", callback=_known_effort, help="none, minimal, low, medium, high, xhigh or max."),
    ] = None,
    timeout: Annotated[float | None, typer.Option(metavar="SECONDS", help="Give up when it takes longer.")] = None,
    retries: Annotated[int, typer.Option(min=0, metavar="N", help="Ask up to N more times where that may help.")] = 0,
    events: Annotated[bool, typer.Option("--events", help="Print each event as one line of JSON instead.")] = False,
) -> None:
    """Ask a model and watch its answer stream.

    The answer goes to stdout. Reasoning, tool calls and sources go there too if it is a terminal, else to stderr.
    Without a server (--provider, --base-url, RX_SAMPLER_PROVIDER or RX_SAMPLER_BASE_URL) the small local model
    answers, or the built-in simulator where there is none. With --tool the model's calls are run and their results sent
    back, until it answers in words.
    """
    server_named = provider or base_url
    if (local and simulate) or (server_named and (local or simulate)):
        raise typer.BadParameter("--local, --simulate and --provider or --base-url exclude each other")
    if timeout is not None and timeout <= 0:
        raise typer.BadParameter(f"{timeout} is not a time to wait; give more than 0 seconds", param_hint="--timeout")
    from .ask import Target, ask_target
    from .output import Output
    from .prompt import build_request, read_prompt
    from .servers import Kind
    from .tools import load_tools

    output = Output()
    options = ServerOptions(provider=provider, base_url=base_url, backend=backend, model=model, api_key_env=api_key_env)
    forced = Kind.LOCAL if local else Kind.SIMULATOR if simulate else None
    try:
        tools = load_tools(tool or ())
        target = Target.choose(options, os.environ, forced, retries=retries, deadline_s=timeout)
        question = read_prompt(prompt, sys.stdin, output.note)
        if not question:
            raise typer.BadParameter("nothing to ask: give a prompt, or pipe one in", param_hint="PROMPT")
        request = build_request(
            question,
            system=system,
            images=image or (),
            max_output_tokens=max_tokens,
            temperature=temperature,
            reasoning_effort=reasoning_effort,
        )
    except UnusableError as problem:
        _fail(problem)
    _exit_with(lambda: ask_target(target, request, output, tools, events=events))


@_app.command(name="local")
def local_command(
    model: Annotated[Path | None, typer.Option("--model", "-m", metavar="PATH", help="A GGUF file of yours.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0 takes a free one.")] = 0,
    thinking: Annotated[bool, typer.Option("--thinking", help="Make the model reason before it answers.")] = False,
) -> None:
    """Keep the local model up (extra: local) until Ctrl-C."""
    from .serve import serve_local

    _exit_with(lambda: serve_local(model=model, port=port, thinking=thinking), ends_by_signal=True)


@_app.command(name="simulate")
def simulate_command(
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0 takes a free one.")] = 0,
    seed: Annotated[int, typer.Option(help="Answers and pace are the same for the same seed.")] = 0,
    ttft_ms: Annotated[float, typer.Option(min=0.0, help="Time to the first token, in milliseconds.")] = 250.0,
    tokens_per_second: Annotated[
        float, typer.Option(min=0.0, help="The pace after it; 0 is as fast as it goes.")
    ] = 40.0,
    jitter: Annotated[float, typer.Option(min=0.0, max=1.0, help="Vary each wait by this share of itself.")] = 0.2,
    script: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A JSON list of turns: what each request gets, faults included.")
    ] = None,
) -> None:
    """Keep the simulator up until Ctrl-C: all three wire formats, no model."""
    from .serve import serve_simulator

    _exit_with(
        lambda: serve_simulator(
            port=port, seed=seed, ttft_ms=ttft_ms, tokens_per_second=tokens_per_second, jitter=jitter, script=script
        ),
        ends_by_signal=True,
    )


@_app.command(name="log")
def log_command(
    path: Annotated[
        Path | None,
        typer.Argument(help="The log; by default the one that RX_SAMPLER_LOG names.", show_default=False),
    ] = None,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is written, until Ctrl-C.")] = False,
    request: Annotated[
        str | None, typer.Option("--request", metavar="ID", help="Only this request; the start of its id will do.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the records as they are.")] = False,
) -> None:
    """Show a sampling log: what became of each request, one line per record."""
    from .log import LogLines, chosen_path, show_log
    from .output import Output

    try:
        chosen = chosen_path(path, os.environ)
    except UnusableError as problem:
        _fail(problem)
    lines = LogLines(request=request, as_json=as_json)
    _exit_with(lambda: show_log(chosen, lines, Output(), follow=follow), ends_by_signal=follow)
