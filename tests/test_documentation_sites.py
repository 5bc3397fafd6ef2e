"""Two real sites: Debian's python3-doc and sqlite3-doc, served by nginx, against an oracle that reads the files."""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import pytest

from conftest import CrawlCommand
from graph import files_oracle

ROOTS = {
    "python3-doc": Path("/usr/share/doc/python3-doc/html"),
    "sqlite3-doc": Path("/usr/share/doc/sqlite3"),
}
DEEPEST = 10  # as the default of TINYCRAWL_MAX_DEPTH; neither site is deeper than 5
SETTINGS = {"TINYCRAWL_MAX_LINKS": 0, "TINYCRAWL_SYNC": 0}  # the index of Python's documentation has more links


def file_of(root: Path, path: str) -> Path:
    file = root / unquote(path.partition("?")[0])[1:]
    return file / "index.html" if file.is_dir() else file


@pytest.mark.parametrize("package", ROOTS)
def test_documentation_is_crawled_as_its_files_say(
    package: str, nginx: Callable[[Path], str], crawl: CrawlCommand
) -> None:
    root = ROOTS[package].resolve()
    if not (root / "index.html").is_file():
        pytest.fail(f"{root} is missing (Debian: apt-get install {package})")
    server = nginx(root)
    assert max(depth for _, depth in files_oracle(root, "/index.html", None)) < DEEPEST

    for depth in (1, 2, DEEPEST):
        result = crawl(f"{server}/index.html", depth, settings=SETTINGS)

        pages = [(url.removeprefix(server), distance) for url, distance in result.pages]
        assert pages == files_oracle(root, "/index.html", depth)
        assert result.bodies() == [file_of(root, path).read_bytes() for path, _ in pages]
        assert result.manifest[-1] == {"end": "complete", "saved": len(pages), "depth": depth, "max_pages": None}
