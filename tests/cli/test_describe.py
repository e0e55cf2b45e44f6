"""Words for citations, tool results and summaries."""

import pytest

from rx_sampler.cli.describe import MAX_GIST_CHARS, citation_lines, summary_line, tool_gist
from rx_sampler.conversation import JsonObject, Usage


@pytest.mark.parametrize(
    ("annotation", "line"),
    [
        # OpenAI responses, chat completions; Anthropic web search, document, search result; a bare URL; none of these.
        ({"type": "url_citation", "url": "https://a", "title": "A", "start_index": 0}, "A <https://a>"),
        ({"type": "url_citation", "url_citation": {"url": "https://b", "title": "B"}}, "B <https://b>"),
        ({"type": "file_citation", "file_id": "file-1", "filename": "a.pdf", "index": 3}, "a.pdf"),
        ({"type": "web_search_result_location", "url": "https://c", "title": "C", "cited_text": "x"}, "C <https://c>"),
        ({"type": "char_location", "document_title": "D", "document_index": 0, "cited_text": "x"}, "D"),
        ({"type": "search_result_location", "source": "https://e", "title": None}, "https://e"),
        ("https://f", "https://f"),
        ({"type": "new", "new": 7}, '{"type":"new","new":7}'),
        (None, "null"),
    ],
)
def test_a_citation_is_title_and_place(annotation: object, line: str) -> None:
    assert citation_lines(annotation)[1] == line


def test_the_same_place_is_the_same_source() -> None:
    titled, bare = citation_lines({"url": "https://a", "title": "A"}), citation_lines("https://a")
    assert titled[0] == bare[0] == "https://a"


@pytest.mark.parametrize(
    ("result", "gist"),
    [
        (None, ""),
        ({"type": "web_search_call", "status": "completed"}, ""),
        ({"action": {"type": "search", "query": "q"}}, ': {"type":"search","query":"q"}'),
        ({"type": "server_tool_use", "input": {"query": "é"}}, ': {"query":"é"}'),
        ({"type": "mcp_call", "arguments": '{"a":1}', "error": None}, ': {"a":1}'),
        ({"arguments": "{}", "error": "no such tool"}, ": no such tool"),
        ({"code": "print(1)\nprint(2)"}, ": print(1)\\nprint(2)"),
    ],
)
def test_the_gist_is_what_was_asked_or_went_wrong(result: JsonObject | None, gist: str) -> None:
    assert tool_gist(result) == gist


def test_a_long_gist_is_clipped() -> None:
    gist = tool_gist({"input": "x" * 10_000})
    assert gist == ": " + "x" * (MAX_GIST_CHARS - 3) + "..."


def test_the_summary_leaves_out_what_is_not_known() -> None:
    assert summary_line(model=None, first_token_ms=None, chunks=0, end="stop: stop") == "0 chunks | stop: stop"
    usage = Usage(input_tokens=1, output_tokens=2)
    assert summary_line(model=None, first_token_ms=1.0, chunks=2, end="stop: stop", usage=usage) == (
        "time to first token 1 ms | 1 input tokens, 2 output tokens | stop: stop"
    )


@pytest.mark.parametrize(
    ("stop_reason", "raw", "end"),
    [
        ("stop", "end_turn", "stop: stop"),
        ("stop", "stop_sequence", "stop: stop (stop_sequence)"),
        ("stop", "pause_turn", "stop: stop (pause_turn)"),
        ("tool_calls", "tool_use", "stop: tool_calls"),
        ("content_filter", "refusal", "stop: content_filter (refusal)"),
    ],
)
def test_the_wires_own_stop_reason_is_shown_where_it_tells_more(stop_reason: str, raw: str, end: str) -> None:
    line = summary_line(model=None, first_token_ms=None, chunks=1, end=f"stop: {stop_reason}", raw_stop_reason=raw)
    assert line == f"1 chunks | {end}"
