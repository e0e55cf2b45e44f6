"""Reasoning that came inside the text, told by its tags."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from reactivex import Observable

from rx_sampler.backends.think_tags import ThinkTagSplitter
from rx_sampler.conversation import ReasoningItem, ResponseItem, SamplingResponse, TextItem
from rx_sampler.events import REASONING, TEXT, AnnotationAdded, ChannelToken, Completed, Failed, SamplingEvent

from .per_request import each_request
from .rechunk import Rechunker

__all__ = ["split_think_tags"]


def split_think_tags() -> Callable[[Observable[SamplingEvent]], Observable[SamplingEvent]]:
    """The same events with text between `<think>` and `</think>` on the reasoning channel, without the tags.

    With `x` for "<th", `y` for "ink>hm</think>", `z` for "Yes", and 1 for "hm" as reasoning:

        source            -S-(Fx)-y----z-C-|
        split_think_tags  -S------(F1)-z-C-|

    In and out: events of one request, or of several interleaved, in the same order; for streams that were sampled or
    recorded without `SamplerConfig(split_think_tags=True)`. Half a tag is held back until the next token; what else
    comes next of the same choice makes it text. A closing tag before any text is dropped (the prompt held the opening
    one). The text items of `Completed.response` and `Failed.partial` are split in the same places, so that response and
    tokens agree; annotations stay with the text, `AnnotationAdded.offset` counts what is text now.

    Tokens of all channels are numbered anew from 1, `FirstToken` stands before the first that comes out, and each has
    the time of the event that completed it. Metrics stay as measured. `Retrying` starts anew.

    Synchronous, cold as its source, and as each subscription has state of its own; forwards the scheduler. Dispose
    disposes the source. Errors by `on_error`: the source's, behind what was held back. Cost: linear in the characters;
    memory: half a tag per choice, and a number for each half tag that was none.
    """
    return each_request(_ThinkTags)


class _Tags(ThinkTagSplitter):
    """A splitter that notes where it was told that something else comes."""

    held: list[str] | None = None

    def __init__(self) -> None:
        super().__init__({})
        self.chars = 0
        """What came in."""
        self.lost_chars = 0
        """What of it is no text: reasoning and tags, and what is held back."""
        self.passes = False
        """Whether text without a `<` is text as it is."""
        self.flushed_at: list[int] = []
        """Where half a tag was given up, in characters that came in."""

    def feed(self, text: str) -> list[tuple[str, str]]:
        self.chars += len(text)
        self.lost_chars += len(text)
        pieces = super().feed(text)
        self.passes = self._begun and not self._inside and not self._held
        return pieces

    def finish(self) -> list[tuple[str, str]]:
        pieces = super().finish()
        if pieces:
            self.flushed_at.append(self.chars)
            self.passes = not self._inside
        return pieces

    def _say(self, pieces: list[tuple[str, str]], text: str) -> None:
        super()._say(pieces, text)
        if not self._inside:
            self.lost_chars -= len(text)


class _ThinkTags(Rechunker[_Tags]):
    def __init__(self) -> None:
        super().__init__(TEXT, _Tags)

    def feed(self, item: SamplingEvent) -> Iterable[SamplingEvent] | SamplingEvent:
        if type(item) is ChannelToken and item.channel == TEXT and "<" not in item.text:
            tags = self._cutters.get(item.choice)
            if tags is not None and tags.passes:
                self._last = item
                tags.chars += len(item.text)
                if item.chunk_index == self._next:
                    self._next += 1
                    return item
                return self._whole(item)
        return super().feed(item)

    def annotated(self, event: AnnotationAdded) -> SamplingEvent:
        tags = self._cutters.get(0)
        if tags is None or event.channel != TEXT or event.offset != tags.chars:
            return event
        return replace(event, offset=tags.chars - tags.lost_chars)

    def ended(self, event: Completed | Failed) -> SamplingEvent:
        tags = self._cutters.get(0)
        flushed_at = tags.flushed_at if tags is not None else []
        if isinstance(event, Completed):
            return replace(event, response=_split(event.response, flushed_at))
        return event if event.partial is None else replace(event, partial=_split(event.partial, flushed_at))


def _split(response: SamplingResponse, flushed_at: Sequence[int]) -> SamplingResponse:
    """The response with its texts split as the tokens were."""
    splitter = ThinkTagSplitter({})
    texts = [place for place, item in enumerate(response.items) if isinstance(item, TextItem)]
    cuts = iter([*flushed_at, -1])
    cut = next(cuts)
    begin = 0
    items: list[ResponseItem] = []
    for place, item in enumerate(response.items):
        if not isinstance(item, TextItem):
            items.append(item)
            continue
        at, end = 0, len(item.text)
        pieces: list[tuple[str, str]] = []
        while 0 <= cut - begin <= end:
            pieces += [*splitter.feed(item.text[at : cut - begin]), *splitter.finish()]
            at = cut - begin
            cut = next(cuts)
        pieces += splitter.feed(item.text[at:])
        if place == texts[-1]:
            pieces += splitter.finish()
        begin += end
        items += _items(item, pieces)
    return response.model_copy(update={"items": tuple(items)})


def _items(item: TextItem, pieces: Sequence[tuple[str, str]]) -> Iterator[ResponseItem]:
    """What one text item becomes. Its annotations stay with the last text of it."""
    blocks = [(channel, "".join(text for _, text in group)) for channel, group in groupby(pieces, lambda one: one[0])]
    if item.annotations and not any(channel == TEXT for channel, _ in blocks):
        blocks.append((TEXT, ""))
    last = max((place for place, (channel, _) in enumerate(blocks) if channel == TEXT), default=-1)
    for place, (channel, text) in enumerate(blocks):
        if channel == REASONING:
            yield ReasoningItem(text=text)
        else:
            yield TextItem(text=text, annotations=item.annotations if place == last else ())
