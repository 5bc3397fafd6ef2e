"""The demo site: its links, in their order, are those that the depth-first transcript is made of."""

from html.parser import HTMLParser
from importlib.resources import files
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tinycrawl.demo import serve
from tinycrawl.demo.__main__ import crawl_demo

EXTERNAL = "https://en.wikipedia.org/wiki/Algorithm"

LINKS = {
    "index.html": ["A.html"],
    "A.html": [EXTERNAL, "B.html", "index.html"],
    "B.html": [EXTERNAL, "C.html", "D.html", "E.html", "index.html"],
    "C.html": [EXTERNAL, "D.html", "index.html"],
    "D.html": [EXTERNAL, "index.html"],
    "E.html": [EXTERNAL, "F.html", "G.html", "A.html", "index.html"],
    "F.html": [EXTERNAL, "H.html", "index.html"],
    "G.html": [EXTERNAL, "H.html", "index.html"],
    "H.html": [EXTERNAL, "B.html", "index.html"],
}


class LinkParser(HTMLParser):
    """Collects whatever a crawler might take for a link, not only ``<a href>``."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value for name, value in attrs if name in {"href", "src", "content", "action"}]


def find_links(page: str) -> list[str | None]:
    parser = LinkParser()
    parser.feed(page)
    parser.close()
    return parser.links


def test_site_has_these_nine_pages_and_no_other() -> None:
    site = files("tinycrawl.demo") / "site"

    assert [entry.name for entry in site.iterdir()] == ["letters"]
    assert {entry.name for entry in (site / "letters").iterdir()} == set(LINKS)


@pytest.mark.parametrize("name", LINKS)
def test_links_of_a_page_are_in_the_documented_order(name: str) -> None:
    page = (files("tinycrawl.demo") / "site" / "letters" / name).read_text(encoding="utf-8")

    assert find_links(page) == LINKS[name]


def test_site_has_28_links() -> None:
    letters = files("tinycrawl.demo") / "site" / "letters"

    assert sum(len(find_links((letters / name).read_text(encoding="utf-8"))) for name in LINKS) == 28


def test_serve_answers_with_the_packaged_bytes_as_html() -> None:
    with serve() as base:
        for name in LINKS:
            with urlopen(f"{base}/letters/{name}") as response:
                assert response.headers["Content-Type"] == "text/html"
                assert response.read() == (files("tinycrawl.demo") / "site" / "letters" / name).read_bytes()


@pytest.mark.parametrize("path", ["/robots.txt", "/", "/letters/", "/letters/../__init__.py"])
def test_serve_has_nothing_but_the_pages(path: str) -> None:
    with serve() as base, pytest.raises(HTTPError, match="404") as info:
        urlopen(f"{base}{path}")
    info.value.close()


def test_serve_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    with serve() as base, urlopen(f"{base}/letters/index.html") as response:
        response.read()

    assert capfd.readouterr() == ("", "")


def test_serve_refuses_a_port_that_is_taken() -> None:
    with serve() as base, pytest.raises(OSError, match="in use"), serve(int(base.rpartition(":")[2])):
        pass


@pytest.mark.parametrize("port", ["x", "0", "65536", "80 ", "１", "-1"])
def test_bad_port_is_one_line_and_exit_status_2(
    port: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PORT", port)

    assert crawl_demo([]) == 2
    expected = f"environment variable `PORT`: expected an integer from 1 to 65535, got '{port}'\n"
    assert capfd.readouterr() == ("", expected)


def test_port_that_is_taken_is_one_line_and_exit_status_2(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with serve() as base:
        port = base.rpartition(":")[2]
        monkeypatch.setenv("PORT", port)

        assert crawl_demo([]) == 2
    expected = f"demo site: cannot serve on port {port}: Address already in use; set PORT to another\n"
    assert capfd.readouterr() == ("", expected)
