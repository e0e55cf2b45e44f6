"""A Python function as a model sees it: a name, a description, and a JSON Schema of its arguments."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from functools import cached_property, partial
from types import FunctionType
from typing import Annotated, Any, Final, NamedTuple, cast, get_args, get_origin, get_type_hints
from weakref import WeakKeyDictionary

from pydantic import Field, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from .docstrings import DocText, doc_text
from .errors import printable_line

__all__ = ["PythonFunction", "in_words"]

MAX_WORDS_CHARS: Final = 500
_LISTED_ERRORS: Final = 8
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What OpenAI and Anthropic both take for the name of a tool."""
_SAID_SHORTER: Final = {
    "missing_keyword_only_argument": "Missing required argument",
    "unexpected_keyword_argument": "Unexpected argument",
}


class PythonFunction:
    """What a model needs to know of a Python function, and the way back from its words to a call.

    `function` is anything that can be called with keywords: a function, sync or async, a bound method, an object with
    `__call__`, a `functools.partial` (what it fixes by keyword is not the model's to say, and is not shown to it).
    `name` is the function's own, or its class's, `description` what its docstring says before its first section,
    unless they are given.

    Raises TypeError for what cannot be called, ValueError for a name that providers refuse, and for a function with
    positional-only or `*` parameters, which a JSON object cannot give.
    """

    def __init__(
        self, function: Callable[..., Any], *, name: str | None = None, description: str | None = None
    ) -> None:
        if not callable(function):
            raise TypeError(f"a tool is a function or another callable, not {_shown(function)}")
        self.function = function
        self.name = _tool_name(function, name)
        self._description = description
        self._parameters = _visible(function, self.name)

    @property
    def description(self) -> str | None:
        """What the function does; None where nothing says so."""
        return self._description if self._description is not None else self._doc.summary

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON Schema of the arguments: an object, closed unless the function takes `**`. The same every time.

        Made by pydantic from the type hints; descriptions are those of `Field(description=...)`, else the docstring's.
        Raises ValueError for a hint that cannot be resolved, or that has no JSON Schema.
        """
        return deepcopy(self._shape.schema)

    @property
    def is_async(self) -> bool:
        """Whether calling the function gives a coroutine."""
        call = getattr(type(self.function), "__call__", None)  # noqa: B004  # not whether it is there, but of what kind
        return inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(call)

    def bind(self, arguments: str) -> Callable[[], Any]:
        """The call that a model asks for: of no arguments, as the values are in it, validated and converted.

        Raises pydantic's ValidationError for arguments that do not fit (`in_words` says it briefly), ValueError for
        those that are no JSON object.
        """
        adapter = self._shape.adapter
        if arguments.lstrip()[:1] != "{":
            raise ValueError(f"the arguments must be one JSON object, not {_shown(arguments)}")
        positional, named = adapter.validate_json(arguments)
        return partial(self.function, *positional, **named)

    @cached_property
    def _doc(self) -> DocText:
        return doc_text(_docstring(self.function))

    @cached_property
    def _shape(self) -> _Shape:
        shape = _shapes.get(self.function) if isinstance(self.function, FunctionType) else None
        if shape is None:
            hints = [(one, self._described(one)) for one in self._parameters]
            try:
                shape = _shape_of(hints)
            except (PydanticUserError, NameError) as error:
                raise self._refusal(hints, error) from error
            if isinstance(self.function, FunctionType):
                _shapes[self.function] = shape
        return shape

    def _described(self, parameter: inspect.Parameter) -> Any:
        """The hint of a parameter, with the docstring's description of it below its own."""
        if parameter.annotation is inspect.Parameter.empty:
            hint: Any = Any
        else:
            hint = _resolved(parameter, self.function, self.name)
        said = self._doc.arguments.get(parameter.name)
        if said is None or parameter.kind is inspect.Parameter.VAR_KEYWORD:
            return hint
        if get_origin(hint) is Annotated:
            bare, *own = get_args(hint)
            return Annotated[(bare, Field(description=said), *own)]
        return Annotated[hint, Field(description=said)]

    def _refusal(self, hints: list[tuple[inspect.Parameter, Any]], error: Exception) -> ValueError:
        """Which of the parameters it is that pydantic can do nothing with."""
        for parameter, hint in hints:
            try:
                _shape_of([(parameter, hint)])
            except (PydanticUserError, NameError) as why:
                return _bad_hint(self.name, parameter, str(why).split("\n", 1)[0])
        return ValueError(f"{self.name}: its arguments have no JSON Schema: {error}")

    def __repr__(self) -> str:
        return f"PythonFunction({self.name!r})"


def in_words(refusal: ValidationError, whole: str = "the arguments", max_chars: int = MAX_WORDS_CHARS) -> str:
    """What does not fit, in one line: each field, and what would be right. `whole` names what all of it is."""
    errors = refusal.errors(include_url=False, include_input=False, include_context=False)
    lines = [
        f"{'.'.join(map(str, one['loc'])) or whole}: {_SAID_SHORTER.get(one['type'], one['msg'])}"
        for one in errors[:_LISTED_ERRORS]
    ]
    if len(errors) > _LISTED_ERRORS:
        lines.append(f"and {len(errors) - _LISTED_ERRORS} more")
    return printable_line("; ".join(lines), max_chars)


class _Shape(NamedTuple):
    adapter: TypeAdapter[Any]
    schema: JsonSchemaValue


_shapes: WeakKeyDictionary[FunctionType, _Shape] = WeakKeyDictionary()
"""Made once per function, however often it is given to a request: it costs about a millisecond."""


class _ArgumentsSchema(GenerateJsonSchema):
    """Without titles, which only repeat the names at a price in tokens, and the same in every process."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012  # as the base declares it

    def field_title_should_be_set(self, schema: Any) -> bool:
        del schema
        return False

    def kw_arguments_schema(self, arguments: Any, var_kwargs_schema: Any) -> JsonSchemaValue:
        made = super().kw_arguments_schema(arguments, var_kwargs_schema)
        for argument in made["properties"].values():
            argument.pop("title", None)
        if var_kwargs_schema is not None:
            made.setdefault("additionalProperties", True)
        return made

    def encode_default(self, dft: Any) -> Any:
        if isinstance(dft, set | frozenset):  # strings hash differently in each process
            dft = sorted(cast("Iterable[object]", dft), key=repr)
        return super().encode_default(dft)


def _shape_of(hints: list[tuple[inspect.Parameter, Any]]) -> _Shape:
    # Not the function itself goes to pydantic, but one that has its parameters and gives back what came in: so any
    # parameter name will do, and validation calls nothing.
    def came(*positional: Any, **named: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return positional, named

    parameters = [one.replace(annotation=hint) for one, hint in hints]
    came.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    came.__annotations__ = {one.name: hint for one, hint in hints}
    adapter: TypeAdapter[Any] = TypeAdapter(cast("Any", came))
    return _Shape(adapter, adapter.json_schema(schema_generator=_ArgumentsSchema))


def _tool_name(function: object, given: str | None) -> str:
    named = _unbound(function)
    name: str = given if given is not None else getattr(named, "__name__", type(named).__name__)
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"the name of a tool is 1 to 64 of A-Z a-z 0-9 _ -, not {_shown(name)}; give one: "
            "PythonFunction(function, name=...)"
        )
    return name


def _visible(function: Callable[..., Any], name: str) -> tuple[inspect.Parameter, ...]:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError, NameError) as error:
        raise ValueError(f"{name}: its parameters cannot be read: {error}") from error
    return tuple(_by_name(name, signature.parameters.values(), _fixed(function)))


def _by_name(
    name: str, parameters: Iterable[inspect.Parameter], fixed: Mapping[str, Any]
) -> Iterator[inspect.Parameter]:
    for parameter in parameters:
        if parameter.name in fixed and parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            continue
        if parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL):
            what = "positional-only" if parameter.kind is inspect.Parameter.POSITIONAL_ONLY else "a * parameter"
            raise ValueError(
                f"{name}: parameter {parameter.name!r} is {what}, and a model names each argument; "
                "wrap it in a function whose parameters have names"
            )
        yield parameter


def _fixed(function: object) -> Mapping[str, Any]:
    """What a chain of partials gives by keyword."""
    fixed: dict[str, Any] = {}
    while isinstance(function, partial):
        fixed.update(cast("partial[Any]", function).keywords)
        function = cast("partial[Any]", function).func
    return fixed


def _unbound(function: object) -> object:
    while isinstance(function, partial):
        function = cast("partial[Any]", function).func
    return function


def _docstring(function: object) -> str | None:
    """A function's; an object's is that of its `__call__`, or of its class where that has none."""
    bare = _unbound(function)
    if inspect.isroutine(bare):
        return inspect.getdoc(bare)
    made = bare if inspect.isclass(bare) else type(bare)
    said = None if made is bare else made.__call__.__doc__
    # only the class's own: what a base class says of itself is about something else
    return inspect.cleandoc(said or made.__doc__ or "")


def _written(function: object) -> object:
    """Where the hints stand: the function that was written, below whatever wraps it."""
    bare = _unbound(function)
    if not inspect.isroutine(bare) and not inspect.isclass(bare):
        bare = type(bare).__call__
    bare = inspect.unwrap(cast("Callable[..., Any]", bare))
    return bare.__init__ if inspect.isclass(bare) else getattr(bare, "__func__", bare)


def _resolved(parameter: inspect.Parameter, function: object, name: str) -> Any:
    """The type that a hint means, also where it is a string, as with `from __future__ import annotations`."""
    written = _written(function)
    module = sys.modules.get(getattr(written, "__module__", None) or "")
    names: dict[str, Any] = getattr(written, "__globals__", vars(module) if module else {})

    def holder() -> None: ...

    holder.__annotations__ = {parameter.name: parameter.annotation}
    try:
        found = get_type_hints(holder, names, _enclosed(written), include_extras=True)
    except Exception as error:  # a hint in a string may raise whatever it likes
        raise _bad_hint(name, parameter, f"{type(error).__name__}: {error}") from error
    return found[parameter.name]


def _enclosed(function: object) -> dict[str, Any]:
    """What a function took with it of the one it was defined in."""
    found: dict[str, Any] = {}
    if isinstance(function, FunctionType):
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                found[name] = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
    return found


def _bad_hint(name: str, parameter: inspect.Parameter, why: str) -> ValueError:
    hint = (
        parameter.annotation
        if isinstance(parameter.annotation, str)
        else inspect.formatannotation(parameter.annotation)
    )
    return ValueError(
        f"{name}: the type hint of parameter {parameter.name!r}, {_shown(hint)}, makes no JSON Schema: "
        f"{printable_line(why, 200)}; take a type that pydantic can describe, defined at module level"
    )


def _shown(value: object) -> str:
    return printable_line(repr(value), 60)
