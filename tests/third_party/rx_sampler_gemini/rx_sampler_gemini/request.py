"""`SamplingRequest` to the body of a streamed `generateContent`.

Decisions where the API leaves a choice:

* The model stands in the path. A name with a slash (`tunedModels/x`) is taken as the whole resource name.
* System items, wherever they stand, become the `systemInstruction`. Items of one side that follow each other share one
  content.
* A signature goes back on the part that brought it, as the API demands: a `ReasoningItem` without text holds that of
  the item behind it. Thoughts without a signature are for people, and are not sent.
* A tool result is an object: `{"output": ...}`, or `{"error": ...}`; its images stand beside it.
* Efforts become thinking levels, and budgets for the models of generation 2, which know no levels.
* `metadata` and `prompt_cache_key` have no form here and are not sent.
"""

from __future__ import annotations

from typing import Final, Literal, assert_never
from urllib.parse import quote

from rx_sampler import (
    AssistantItem,
    BackendToolCallItem,
    FunctionChoice,
    ImagePart,
    OpaqueItem,
    ReasoningItem,
    RefusalItem,
    SamplerConfig,
    SamplingRequest,
    SystemItem,
    TextItem,
    ToolCall,
    ToolResultItem,
    UserItem,
)
from rx_sampler.backends.encoding import (
    finished,
    function_tools,
    has_choice,
    hosted_tools,
    invalid,
    json_object,
    parse_data_uri,
    present,
    settings,
    summary_line,
)

from .chunks import Json

__all__ = ["encode", "path"]

_LEVELS: Final = {
    "minimal": "minimal",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}
_BUDGETS: Final = {"none": 0, "minimal": 1024, "low": 1024, "medium": 8192, "high": 24576, "xhigh": 24576, "max": 24576}
_MODES: Final = {"auto": "AUTO", "none": "NONE", "required": "ANY"}


def path(request: SamplingRequest, config: SamplerConfig) -> str:
    """The method of the model, behind the base URL."""
    model = settings(request, config).model
    if not model:
        raise invalid("model", model, "the Gemini API names it in the URL")
    name = model if "/" in model else f"models/{model}"
    return f"/{quote(name)}:streamGenerateContent?alt=sse"


def encode(request: SamplingRequest, config: SamplerConfig) -> Json:
    """The JSON body. Pure; what cannot be sent is refused by name."""
    history = _History(request)
    body = present(
        systemInstruction={"parts": history.system} if history.system else None,
        contents=history.contents,
        tools=_tools(request) or None,
        toolConfig=_tool_config(request),
        generationConfig=_generation_config(request, config) or None,
    )
    return finished(body, request, turns="contents")


def _generation_config(request: SamplingRequest, config: SamplerConfig) -> Json:
    resolved = settings(request, config)
    thinking: Json | None = None
    if (effort := resolved.reasoning_effort) is not None:
        leveled = effort in _LEVELS and not resolved.model.removeprefix("models/").startswith("gemini-2")
        amount: Json = {"thinkingLevel": _LEVELS[effort]} if leveled else {"thinkingBudget": _BUDGETS[effort]}
        thinking = {"includeThoughts": effort != "none", **amount}
    return present(
        temperature=resolved.temperature,
        topP=resolved.top_p,
        maxOutputTokens=resolved.max_output_tokens,
        stopSequences=list(request.stop) or None,
        candidateCount=request.n,
        responseMimeType="application/json" if request.json_schema is not None else None,
        responseJsonSchema=request.json_schema,
        thinkingConfig=thinking,
    )


def _tools(request: SamplingRequest) -> list[Json]:
    functions = [
        present(name=tool.name, description=tool.description, parametersJsonSchema=tool.parameters)
        for tool in function_tools(request, ())
    ]
    hosted: list[Json] = [
        {tool.pop("type"): tool} for tool in hosted_tools(request, web_search=lambda _tool: {"type": "google_search"})
    ]
    return [*([{"functionDeclarations": functions}] if functions else []), *hosted]


def _tool_config(request: SamplingRequest) -> Json | None:
    choice = request.tool_choice
    if choice is None or not has_choice(request, _tools(request)):
        return None
    if isinstance(choice, FunctionChoice):
        return {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [choice.name]}}
    return {"functionCallingConfig": {"mode": _MODES[choice]}}


class _History:
    """The items of a request as `systemInstruction` and `contents`."""

    def __init__(self, request: SamplingRequest) -> None:
        self.system: list[Json] = []
        self.contents: list[Json] = []
        self._names: dict[str, str] = {}
        self._signature: str | None = None
        """Of the part to come."""
        for index, item in enumerate(request.items):
            match item:
                case SystemItem():
                    self.system += _text(item.content)
                case UserItem():
                    self._add("user", _user_parts(item, index))
                case ToolResultItem():
                    self._add("user", self._result(item, index))
                case AssistantItem():
                    self._add("model", [*_text(item.content), *map(self._call, item.tool_calls)])
                case TextItem() | RefusalItem():
                    self._add("model", _text(item.text))
                case ReasoningItem():
                    self._reason(item)
                case ToolCall():
                    self._add("model", [self._call(item)])
                case BackendToolCallItem():
                    own = all("executableCode" in part or "codeExecutionResult" in part for part in item.wire)
                    self._add("model", list(item.wire) if item.wire and own else _text(summary_line(item)))
                case OpaqueItem():
                    # Parts have no type; what has one came over another wire, and would be refused.
                    self._add("model", [] if "type" in item.wire else [item.wire])
                case _:
                    assert_never(item)
        self._flush()

    def _add(self, role: Literal["user", "model"], parts: list[Json]) -> None:
        if not parts:
            return
        if role == "user":
            self._flush()
        elif self._signature is not None:
            parts[0] = {**parts[0], "thoughtSignature": self._signature}
            self._signature = None
        if self.contents and self.contents[-1]["role"] == role:
            self.contents[-1]["parts"] += parts
        else:
            self.contents.append({"role": role, "parts": parts})

    def _flush(self) -> None:
        """A signature that came last came on a part that says nothing."""
        if self._signature is not None:
            self._add("model", [{"text": ""}])

    def _reason(self, item: ReasoningItem) -> None:
        if item.signature is None:
            return
        self._flush()
        if item.text:
            self._add("model", [{"text": item.text, "thought": True, "thoughtSignature": item.signature}])
        else:
            self._signature = item.signature

    def _call(self, call: ToolCall) -> Json:
        self._names[call.id] = call.name
        return {"functionCall": {"id": call.id, "name": call.name, "args": json_object(call.arguments) or {}}}

    def _result(self, item: ToolResultItem, index: int) -> list[Json]:
        name = self._names.get(item.tool_call_id)
        if name is None:
            raise invalid(f"items[{index}].tool_call_id", item.tool_call_id, "the id of a call that stands before it")
        response = {"error" if item.is_error else "output": item.content}
        images = [_image(part, f"items[{index}].images[{number}].url") for number, part in enumerate(item.images)]
        return [{"functionResponse": {"id": item.tool_call_id, "name": name, "response": response}}, *images]


def _text(text: str) -> list[Json]:
    return [{"text": text}] if text else []


def _user_parts(item: UserItem, index: int) -> list[Json]:
    parts: list[Json] = []
    for number, part in enumerate(item.content):
        if isinstance(part, ImagePart):
            parts.append(_image(part, f"items[{index}].content[{number}].url"))
        else:
            parts += _text(part.text)
    if not parts:
        raise invalid(f"items[{index}].content", item.content, "the Gemini API wants some text or an image in it")
    return parts


def _image(part: ImagePart, field: str) -> Json:
    if not part.url.startswith("data:"):
        return {"fileData": {"fileUri": part.url}}
    uri = parse_data_uri(part.url, field)
    return {"inlineData": {"mimeType": uri.media_type, "data": uri.data}}
