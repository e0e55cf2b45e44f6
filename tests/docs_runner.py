"""Markdown pages as programs: the fenced blocks of a page, the marks before them, and how they are run."""

from __future__ import annotations

import ast
import asyncio
import inspect
import io
import re
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType
from typing import Any, Final

__all__ = [
    "Block",
    "Chain",
    "blocks",
    "chains",
    "headings",
    "install",
    "links",
    "run",
    "section",
    "slug",
    "table",
    "without_fences",
]

# A fence at the start of a line, with what its language is; the marks are the HTML comments directly above it.
_FENCE: Final = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_MARKS: Final = re.compile(r"(?:<!--[^\n]*?-->[ \t]*\n\s*)+\Z")
_MARK: Final = re.compile(r"<!--\s*(.*?)\s*-->")
_LINK: Final = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)")
_CODE_SPAN: Final = re.compile(r"`[^`\n]*`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block: `line` is where its text starts, `marks` are the comments above its fence."""

    path: Path
    line: int
    language: str
    text: str
    marks: tuple[str, ...]
    output: str | None = None
    """What a block of text marked `output` directly behind it says that it prints."""

    def mark(self, name: str) -> str | None:
        """The value of the mark `name: value`, an empty str for a bare `name`, None without that mark."""
        for mark in self.marks:
            key, _, value = mark.partition(":")
            if key.strip() == name:
                return value.strip()
        return None


@dataclass(frozen=True, slots=True)
class Chain:
    """Python blocks that share a namespace and an event loop: the first, and those that say `continues`."""

    blocks: tuple[Block, ...]

    @property
    def name(self) -> str:
        first = self.blocks[0]
        return f"{first.path.name}:{first.line}"


def blocks(path: Path) -> list[Block]:
    """All fenced blocks of a page, each with the output that belongs to it."""
    page = path.read_text(encoding="utf-8")
    found: list[Block] = []
    for match in _FENCE.finditer(page):
        marks = _MARKS.search(page, 0, match.start())
        block = Block(
            path=path,
            line=page.count("\n", 0, match.start()) + 2,
            language=match["language"],
            text=match["text"],
            marks=tuple(_MARK.findall(marks[0])) if marks else (),
        )
        if block.mark("output") is None:
            found.append(block)
        elif found and found[-1].language == "python":
            found[-1] = replace(found[-1], output=block.text)
        else:
            raise ValueError(f"{path.name}:{block.line}: an output without a python block before it")
    return found


def chains(path: Path) -> list[Chain]:
    """The Python blocks of a page that are to be run in this process, grouped by what they share."""
    grouped: list[list[Block]] = []
    for block in blocks(path):
        if block.language != "python" or any(block.mark(name) is not None for name in ("not run", "file", "pytest")):
            continue
        if block.mark("continues") is None:
            grouped.append([block])
        elif grouped:
            grouped[-1].append(block)
        else:
            raise ValueError(f"{path.name}:{block.line}: `continues` without a block before it")
    return [Chain(tuple(group)) for group in grouped]


def run(chain: Chain) -> Iterator[tuple[Block, str]]:
    """Run the blocks in order; gives each with what it printed. `await` may stand at top level, as in a notebook."""
    namespace: dict[str, Any] = {"__name__": "__docs__"}
    with asyncio.Runner() as runner:
        for block in chain.blocks:
            printed = io.StringIO()
            with redirect_stdout(printed):
                outcome: object = eval(_compiled(block), namespace)  # noqa: S307  # the project's own documents
                if inspect.iscoroutine(outcome):
                    runner.run(outcome)
            yield block, printed.getvalue()


def _compiled(block: Block) -> CodeType:
    # Empty lines before it, so that a traceback names the line of the page.
    text = "\n" * (block.line - 1) + block.text
    return compile(text, str(block.path), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


def install(path: Path, folder: Path) -> None:
    """Put the files of a page (blocks marked `file: NAME`) into `folder`, as an installer would.

    The entry points of a `pyproject.toml` among them are written the way an installed distribution has them, so that
    they are found once `folder` is on `sys.path`.
    """
    for block in blocks(path):
        name = block.mark("file")
        if name is None:
            continue
        (folder / name).write_text(block.text, encoding="utf-8")
        if name == "pyproject.toml":
            project = tomllib.loads(block.text)["project"]
            info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
            lines = [
                line
                for group, points in project["entry-points"].items()
                for line in (f"[{group}]", *(f"{point} = {target}" for point, target in points.items()))
            ]
            (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def without_fences(page: str) -> str:
    """The prose of a page."""
    return _FENCE.sub("", page)


def links(path: Path) -> list[str]:
    """The targets of the links of a page, in order."""
    return _LINK.findall(_CODE_SPAN.sub("", without_fences(path.read_text(encoding="utf-8"))))


def headings(path: Path) -> list[str]:
    """The headings of a page, without their number signs."""
    return re.findall(r"^#{1,6} +(.+?) *$", without_fences(path.read_text(encoding="utf-8")), re.MULTILINE)


def slug(heading: str) -> str:
    """The anchor that GitHub makes of a heading: lower case, punctuation dropped, spaces to hyphens."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def section(path: Path, heading: str) -> str:
    """What stands between a heading and the next one. Raises ValueError where there is no such heading."""
    page = without_fences(path.read_text(encoding="utf-8"))
    found = re.search(rf"^#{{1,6}} +{re.escape(heading)} *$(.*?)(?=^#{{1,6}} |\Z)", page, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError(f"{path.name} has no heading {heading!r}")
    return found[1]


def table(path: Path, heading: str) -> list[list[str]]:
    """The rows, without the head, of the first table below a heading; cells as they stand.

    Raises ValueError where there is no such heading, or no table before the next one.
    """
    rows: list[str] = []
    for line in section(path, heading).splitlines():
        if line.startswith("|"):
            rows.append(line)
        elif rows:
            break
    if len(rows) < 3:
        raise ValueError(f"{path.name}: no table below {heading!r}")
    return [[cell.replace("\\|", "|").strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows[2:]]
