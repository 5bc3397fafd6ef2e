"""The report of a crawl, as Chromium draws it, and a reader with a keyboard uses it."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from conftest import REPOSITORY
from mockserver import MockServer, Reply
from tinycrawl.exceptions import DirectoryError, TinycrawlError, UsageError
from tinycrawl.pagedir import PageDirectory, PageWriter
from tinycrawl.report import render_report, write_report

TIME_LIMIT = 60  # seconds for one answer of Chromium
KEYS = {"Tab": 9, "Enter": 13, " ": 32, "Backspace": 8, "ArrowDown": 40}  # name: what Chromium calls its virtual code


class Chromium:
    """A headless Chromium with one tab, driven by the DevTools protocol through two pipes."""

    def __init__(self, scratch: Path) -> None:
        program = shutil.which("chromium")
        if program is None:
            pytest.fail("Chromium is not installed (Debian: apt-get install chromium)")
        arguments = [
            *(program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *("--remote-debugging-pipe", f"--user-data-dir={scratch / 'profile'}", "about:blank"),
        ]
        theirs_in, ours_out = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in _pipe())
        ours_in, theirs_out = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in _pipe())
        # It reads commands from 3 and writes to 4, which subprocess cannot promise.
        self._process = os.posix_spawn(
            program,
            arguments,
            {**os.environ, "DBUS_SESSION_BUS_ADDRESS": "disabled:"},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, theirs_in, 3),
                (os.POSIX_SPAWN_DUP2, theirs_out, 4),
            ],
            setpgroup=0,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._in, self._out = ours_in, ours_out
        self._unread, self._number, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        os.close(self._out)
        os.close(self._in)
        with suppress(ProcessLookupError):
            os.killpg(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)

    def send(self, method: str, **parameters: object) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        text = json.dumps(message).encode() + b"\0"
        while text:
            text = text[os.write(self._out, text) :]
        while (answer := self._receive()).get("id") != self._number:
            self.events.append(answer)
        if "error" in answer:
            pytest.fail(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            if not select.select([self._in], [], [], TIME_LIMIT)[0]:
                pytest.fail("Chromium does not answer")
            data = os.read(self._in, 1 << 20)
            if not data:
                pytest.fail("Chromium has ended")
            self._unread += data
        message, _, self._unread = self._unread.partition(b"\0")
        parsed: dict[str, Any] = json.loads(message)
        return parsed

    def open(self, page: Path, *, width: int = 1400, is_dark: bool = False) -> None:
        """Open *page* and wait until it is loaded; what it complains of from now on is in ``events``."""
        self.look(width=width, is_dark=is_dark)
        self.events.clear()
        self.send("Page.navigate", url=page.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())

    def look(self, *, width: int = 1400, is_dark: bool = False) -> None:
        is_phone = width < 600
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=is_phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def evaluate(self, script: str) -> Any:
        result = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            pytest.fail(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def press(self, key: str, modifiers: int = 0) -> None:
        text = {"Enter": "\r", " ": " "}.get(key, "")
        shared = {"key": key, "windowsVirtualKeyCode": KEYS[key], "modifiers": modifiers}
        self.send("Input.dispatchKeyEvent", type="keyDown", text=text, **shared)
        self.send("Input.dispatchKeyEvent", type="keyUp", **shared)

    def screenshot(self, path: Path) -> None:
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        taken = self.send("Page.captureScreenshot", captureBeyondViewport=True, clip={**size, "scale": 1})
        path.write_bytes(base64.b64decode(taken["data"]))

    def complaints(self) -> list[str]:
        """Errors and messages on the console, dialogs, and requests but those for the page itself."""
        self.evaluate("new Promise(done => setTimeout(done, 0))")
        found = []
        for event in self.events:
            method, parameters = event["method"], event["params"]
            if method == "Network.requestWillBeSent" and parameters["type"] != "Document":
                found.append(parameters["request"]["url"])
            elif method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Page.javascriptDialogOpening"):
                found.append(json.dumps(parameters))
            elif method == "Log.entryAdded":
                found.append(parameters["entry"]["text"])
        return found


def _pipe() -> Iterator[int]:
    """The ends of a pipe, to be duplicated: closed as soon as the next one is asked for."""
    for end in os.pipe():
        yield end
        os.close(end)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    browser = Chromium(tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()


def make_directory(
    path: Path, records: list[tuple[dict[str, Any], bytes]], end: dict[str, Any] | None, **identity: object
) -> PageDirectory:
    """A page directory with these records; one with a body is a page."""
    policies = {"ROBOTSTXT_OBEY": True, "DOWNLOAD_MAXSIZE": 33554432}
    known: dict[str, object] = {
        "scope": "host",
        "domains": [],
        "include": None,
        "exclude": None,
        "order": "breadth-first",
    }
    writer = PageWriter.open(path, {"seed": SEED, **known, **identity, "policies": policies}, sync=False)
    for record, body in records:
        if body:
            final = record.get("redirects", [record["url"]])[-1]
            writer.publish(record, writer.hold(writer.draft(final, record["depth"], body)))
        else:
            writer.settle(record)
    writer.close(end)
    return PageDirectory(path)


def make_large_directory(path: Path) -> PageDirectory:
    """One with 10,000 pages, written without the care for disks and crashes that takes the time."""
    path.mkdir()
    lines: list[dict[str, Any]] = [{"tinycrawl": 1, "seed": SEED, "scope": "host"}]
    for number in range(10_000):
        title, links = f"Title of page {number * 7919 % 10_000}", ("/footer", f"/dead{number % 300}")
        body = html_page(title, *links, length=250 + number % 9000)
        url, depth = f"http://h.test/{number}/{'path' * 8}", int(number > 0)
        (path / str(number + 1)).write_bytes(f"{url}\n{depth}\n".encode() + body)
        record = {"docID": number + 1, "url": url, "depth": depth, "parent": SEED if number else None}
        shared = {"status": 200, "type": "text/html", "charset": "utf-8", "length": len(body)}
        lines.append(record | shared | {"sha256": hashlib.sha256(body).hexdigest()})
    lines.append(failed_record("http 404", "http://h.test/footer", 1, "/"))
    long = "certificate: hostname mismatch"  # beside the bar with the longest number
    lines += [failed_record(long, f"http://h.test/dead{number}", 2, "/") for number in range(300)]
    lines.append(COMPLETE | {"saved": 10_000})
    (path / ".crawler").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    directory = PageDirectory(path)
    assert directory.unreadable == 0
    return directory


def html_page(title: str, *links: str, length: int = 0) -> bytes:
    """A page of *length* bytes, where that is more than it needs."""
    body = f"<!DOCTYPE html><title>{title}</title>" + "".join(f'<a href="{link}">x</a>' for link in links)
    return body.encode("utf-8", "surrogatepass").ljust(length)


def page_record(path: str, depth: int, parent: str | None, **more: object) -> dict[str, Any]:
    shared = {"status": 200, "type": "text/html", "charset": "utf-8"}
    return (
        {"url": f"http://h.test{path}", "depth": depth, "parent": parent and f"http://h.test{parent}"} | shared | more
    )


def failed_record(reason: str, url: str, depth: int, parent: str) -> dict[str, Any]:
    return {"reason": reason, "url": url, "depth": depth, "parent": f"http://h.test{parent}"}


SEED = "http://h.test/"
COMPLETE = {"end": "complete", "saved": 6, "depth": 2, "max_pages": None}
XHTML = (
    b'<html xmlns="http://www.w3.org/1999/xhtml"><head><title>Aa &amp; more</title></head>'
    b'<body><a href="/d">d</a></body></html>'
)
TWIN = html_page("Twin", "/gone", length=5000)
SMALL = [
    (page_record("/", 0, None), html_page("Home", "/b", "/a", "/old", "/gone", "/secret", length=900)),
    (page_record("/b", 1, "/"), TWIN),
    (page_record("/a", 1, "/", type="application/xhtml+xml"), XHTML.ljust(70_000)),
    (page_record("/old", 1, "/", redirects=["http://h.test/c"]), TWIN),
    (failed_record("http 404", "http://h.test/gone", 1, "/"), b""),
    (failed_record("robots", "http://h.test/secret", 1, "/"), b""),
    (page_record("/d", 2, "/a", charset="koi8-r"), html_page("Deep", "https://other.test/", length=6000)),
    (failed_record("out of scope", "https://other.test/", 3, "/d"), b""),
]
HOSTILE = "</script ><script>document.title='run'</script><!--<script >\"'&amp;<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """A report of a small site, of a hostile one, and of one with 10,000 pages."""
    scratch = tmp_path_factory.mktemp("reports")
    title = HOSTILE + "&#x202e;abc &#27;[31m &#xd800; \ud800".replace("&amp;", "&amp;amp;")
    hostile = [
        (page_record("/", 0, None, type=HOSTILE, charset=HOSTILE), html_page(title, "/x")),
        (page_record("/%3C/script%3E?'", 1, "/"), html_page("\u202e\u2066\x1b[31m\udcff", "/x")),
        (failed_record(f"not html: {HOSTILE}", "http://h.test/\u202e</script>\ud800", 1, "/"), b""),
        (failed_record("not http", "javascript:document.title='run'", 1, "/"), b""),
        (failed_record("http 404", "http://h.test/x\"onmouseover='alert(1)'", 1, "/"), b""),
        (page_record("/" + "long" * 500, 1, "/"), html_page("W" * 5000)),
    ]
    made = {
        "small": make_directory(scratch / "small", SMALL, COMPLETE, duplicates="keep"),
        "hostile": make_directory(scratch / "hostile", hostile, None, include=HOSTILE),
        "large": make_large_directory(scratch / "large"),
        "empty": make_directory(scratch / "empty", [], {"end": "failed", "saved": 0, "depth": 0, "max_pages": 9}),
    }
    for name, directory in made.items():
        write_report(directory, scratch / f"{name}.html")
    return {name: scratch / f"{name}.html" for name in made}


BARS = """
[...document.querySelectorAll('figure')].map(figure => {
    const box = element => { const b = element.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; };
    const svg = figure.querySelector('svg');
    const texts = selector => [...svg.querySelectorAll(selector)].sort((a, b) => box(a)[1] - box(b)[1]);
    return {
        name: figure.querySelector('figcaption').firstChild.data.trim(),
        spoken: svg.getAttribute('aria-label'),
        labels: texts('.axis text').map(text => text.textContent),
        values: texts('text.value').map(text => text.textContent),
        bars: texts('.rect').map(box),
        texts: texts('text').map(box),
        svg: box(svg),
    };
})
"""
COLOURS = """
[...document.querySelectorAll('svg text, svg .rect, h1, dt, td, th, a, summary, .quiet')].map(element => {
    let behind = element;
    while (/^rgba\\(.*, 0\\)$/.test(getComputedStyle(behind).backgroundColor)) behind = behind.parentElement;
    const style = getComputedStyle(element);
    return [element.matches('svg *') ? style.fill : style.color, getComputedStyle(behind).backgroundColor,
        element.matches('.rect')];
})
"""
ROWS = """
(id => [...document.querySelectorAll(`#${id} tbody tr`)].map(row => [...row.cells].map(cell => cell.innerText)))
"""
FOCUSED = """
(one => `${one.closest('section, header')?.id} ${(one.labels?.[0] ?? one).innerText.trim().split('\\n')[0]}`)(
    document.activeElement)
"""


def contrast(one: str, other: str) -> float:
    """As in https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio, of colours like ``rgb(1, 2, 3)``."""

    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def column(chromium: Chromium, index: int, section: str = "urls") -> list[str]:
    rows: list[list[str]] = chromium.evaluate(f"{ROWS}('{section}')")
    return [row[index] for row in rows]


def tab_to(chromium: Chromium, place: str, steps: int = 60) -> None:
    """Press Tab until the focus is at *place*, ``<section> <text>``."""
    seen = []
    for _ in range(steps):
        chromium.press("Tab")
        seen.append(chromium.evaluate(FOCUSED))
        if seen[-1] == place:
            return
    pytest.fail(f"{place!r} is not reached by Tab, only {seen}")


def test_charts_are_drawn_to_scale_with_their_numbers(chromium: Chromium, reports: Mapping[str, Path]) -> None:
    chromium.open(reports["small"])

    figures = {figure["name"]: figure for figure in chromium.evaluate(BARS)}

    drawn = {name: list(zip(f["labels"], f["values"], strict=True)) for name, f in figures.items()}
    assert drawn == {
        "Pages by depth": [("0", "1"), ("1", "3"), ("2", "1"), ("3", "0")],
        "URLs by status and reason": [("200: a page", "5"), ("http 404", "1"), ("out of scope", "1"), ("robots", "1")],
        "Pages by content type": [("text/html", "4"), ("application/xhtml+xml", "1")],
        "Pages by size": [
            ("under 1 KiB", "1"),
            ("1 KiB to 4 KiB", "0"),
            ("4 KiB to 16 KiB", "3"),
            ("16 KiB to 64 KiB", "0"),
            ("64 KiB to 256 KiB", "1"),
        ],
    }
    assert figures["Pages by depth"]["spoken"] == "Pages by depth: 0 1, 1 3, 2 1, 3 0"


@pytest.mark.parametrize("name", ["small", "hostile", "large"])
@pytest.mark.parametrize("width", [360, 1400])
def test_bars_are_to_scale_and_no_text_is_cut_or_covered(
    chromium: Chromium, reports: Mapping[str, Path], name: str, width: int
) -> None:
    chromium.open(reports[name], width=width)

    figures = chromium.evaluate(BARS)

    assert len(figures) == 4
    for figure in figures:
        numbers = [int(value.replace(",", "")) for value in figure["values"]]
        widths = [right - left for left, _, right, _ in figure["bars"]]
        assert max(widths) > 60
        for number, width_of_bar in zip(numbers, widths, strict=True):
            assert width_of_bar == pytest.approx(max(widths) * number / max(numbers), abs=2)
        shown = [bar for bar, number in zip(figure["bars"], numbers, strict=True) if number]
        assert all(bottom - top > 10 for _, top, _, bottom in shown)
        left, top, right, bottom = figure["svg"]
        for position, text in enumerate(figure["texts"]):
            assert left <= text[0] < text[2] <= right
            assert top <= text[1] < text[3] <= bottom
            assert not [other for other in shown + figure["texts"][position + 1 :] if overlap(text, other)]


def overlap(one: list[float], other: list[float]) -> bool:
    """Whether two boxes have something in common, but for the empty space above and below a text."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] - 4 and other[1] < one[3] - 4


def test_summary_and_lists_say_what_the_directory_holds(chromium: Chromium, reports: Mapping[str, Path]) -> None:
    chromium.open(reports["small"])

    words = "[...document.querySelectorAll(selector)].map(one => [...one.children].map(part => part.innerText))"
    tiles = chromium.evaluate(f"(selector => {words})('.tiles > div').map(([name, number]) => number + ' ' + name)")
    assert tiles == [
        "5 pages",
        "3 URLs without a page",
        "1 broken links",
        "1 groups of duplicates",
        "84.9 KiB of pages",
        "2 deepest page",
    ]
    facts = chromium.evaluate(f"Object.fromEntries((selector => {words})('#summary > .facts > div'))")
    assert facts == {
        "Seed": "http://h.test/",
        "Depth": "up to 2",
        "Scope": "host",
        "Ended": "complete",
        "Order": "breadth-first",
        "Duplicates": "keep",
        "Bytes": "86,900",
    }
    assert chromium.evaluate(f"{ROWS}('largest')")[0] == ["3", "70,000", "http://h.test/a", "Aa & more"]
    assert chromium.evaluate(f"{ROWS}('broken')") == [
        ["http://h.test/gone", "http 404", "3", "http://h.test/\nhttp://h.test/b\nhttp://h.test/c"]
    ]
    assert chromium.evaluate(f"{ROWS}('duplicates')") == [["2", "5,000", "http://h.test/b\nhttp://h.test/c"]]
    assert chromium.evaluate(f"{ROWS}('urls')") == [
        ["1", "http://h.test/", "Home", "0", "200", "900", "text/html", "utf-8"],
        ["2", "http://h.test/b", "Twin", "1", "200", "5,000", "text/html", "utf-8"],
        ["3", "http://h.test/a", "Aa & more", "1", "200", "70,000", "application/xhtml+xml", "utf-8"],
        ["4", "http://h.test/c\nasked for as http://h.test/old", "Twin", "1", "200", "5,000", "text/html", "utf-8"],
        ["", "http://h.test/gone", "", "1", "http 404", "", "", ""],
        ["", "http://h.test/secret", "", "1", "robots", "", "", ""],
        ["5", "http://h.test/d", "Deep", "2", "200", "6,000", "text/html", "koi8-r"],
        ["", "https://other.test/", "", "3", "out of scope", "", "", ""],
    ]


def test_the_table_is_searched_and_sorted_by_keyboard(chromium: Chromium, reports: Mapping[str, Path]) -> None:
    chromium.open(reports["small"])
    sorting = "[...document.querySelectorAll('#urls th')].map(head => head.ariaSort)"

    tab_to(chromium, "urls Search the URLs")
    assert chromium.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    chromium.send("Input.insertText", text="TWIN /C")
    assert column(chromium, 0) == ["4"]
    assert chromium.evaluate("document.querySelector('#urls [role=status]').innerText") == "1 found among 8 URLs"
    for _ in "TWIN /C":
        chromium.press("Backspace")
    assert len(column(chromium, 0)) == 8

    tab_to(chromium, "urls docID")
    tab_to(chromium, "urls URL")
    chromium.press("Enter")
    assert chromium.evaluate(sorting) == ["none", "ascending", *["none"] * 6]
    assert column(chromium, 0) == ["1", "3", "2", "4", "5", "", "", ""]
    tab_to(chromium, "urls Bytes")
    assert chromium.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    chromium.press(" ")
    assert column(chromium, 5) == ["900", "5,000", "5,000", "6,000", "70,000", "", "", ""]  # by number, none last
    chromium.press(" ")
    assert column(chromium, 0) == ["3", "5", "2", "4", "1", "", "", ""]  # equal ones keep their order
    assert chromium.evaluate(sorting) == [*["none"] * 5, "descending", *["none"] * 2]

    chromium.evaluate("document.querySelector('#urls input').focus()")
    chromium.press("Tab")
    chromium.press("ArrowDown")
    chromium.press("ArrowDown")
    assert column(chromium, 4) == ["http 404", "robots", "out of scope"]


def test_text_of_the_site_is_shown_and_never_run(chromium: Chromium, reports: Mapping[str, Path]) -> None:
    chromium.open(reports["hostile"])

    assert chromium.complaints() == []
    assert chromium.evaluate("document.title") == "Crawl of http://h.test/"
    assert chromium.evaluate("[document.querySelectorAll('script').length, document.images.length]") == [2, 0]
    rows = chromium.evaluate(f"{ROWS}('urls')")
    assert rows[0][2].startswith(
        "</script ><script>document.title='run'</script><!--<script >\"'&<img src=x onerror=alert(1)>"
    )
    assert "\\u202eabc" in rows[0][2]
    assert rows[0][6] == rows[0][7] == HOSTILE
    assert rows[1][2].startswith("\\u202e\\u2066")
    assert [row[1] for row in rows[1:5]] == [
        "http://h.test/%3C/script%3E?'",
        "http://h.test/\\u202e</script>\\ud800",
        "javascript:document.title='run'",
        "http://h.test/x\"onmouseover='alert(1)'",
    ]
    links = chromium.evaluate("[...document.querySelectorAll('main a')].map(a => [a.getAttribute('href'), a.rel])")
    assert {rel for _, rel in links} == {"noreferrer"}
    assert all(re.fullmatch("http://h.test/[!-~]*", href) for href, _ in links)
    assert not [char for char in reports["hostile"].read_text() if not char.isprintable() and char != "\n"]


@pytest.mark.parametrize("name", ["small", "hostile", "large", "empty"])
def test_a_phone_needs_no_sideways_scroll_and_nothing_complains(
    chromium: Chromium, reports: Mapping[str, Path], name: str
) -> None:
    chromium.open(reports[name], width=360)
    chromium.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")

    assert chromium.evaluate("[innerWidth, document.documentElement.scrollWidth]") == [360, 360]
    assert chromium.complaints() == []


def test_in_the_dark_all_is_dark_and_readable(chromium: Chromium, reports: Mapping[str, Path]) -> None:
    chromium.open(reports["small"], is_dark=False)
    light = chromium.evaluate(COLOURS)
    chromium.look(is_dark=True)
    dark = chromium.evaluate(COLOURS)

    assert len(light) == len(dark) > 100
    for colours in (light, dark):
        for front, behind, is_bar in colours:
            assert contrast(front, behind) >= (3 if is_bar else 4.5), (front, behind)
    white, black = "rgb(255, 255, 255)", "rgb(0, 0, 0)"
    assert {contrast(behind, white) < 1.2 for _, behind, _ in light} == {True}
    assert {contrast(behind, black) < 1.5 for _, behind, _ in dark} == {True}


def test_the_page_cannot_reach_the_network(
    chromium: Chromium, reports: Mapping[str, Path], server: Callable[..., MockServer]
) -> None:
    listening = server(lambda request: Reply(body=b"got"))
    chromium.open(reports["small"])
    tried = chromium.evaluate(
        f"""(async url => {{
            const refused = [];
            document.addEventListener('securitypolicyviolation', event => refused.push(event.effectiveDirective));
            await fetch(url).catch(() => 0);
            for (const [name, key] of [['img', 'src'], ['script', 'src'], ['link', 'href'], ['iframe', 'src']]) {{
                const made = document.createElement(name);
                made.rel = 'stylesheet';
                const ended = new Promise(done => made.onerror = made.onload = done);
                made[key] = url;
                document.body.append(made);
                await ended;
            }}
            const inline = document.createElement('script');
            inline.textContent = 'document.title = "run"';
            document.body.append(inline);
            await new Promise(done => setTimeout(done, 0));
            return refused.sort();
        }})({json.dumps(listening.url("/"))})"""
    )

    assert tried == ["connect-src", "frame-src", "img-src", "script-src-elem", "script-src-elem", "style-src-elem"]
    assert listening.targets() == []
    assert chromium.evaluate("document.title") == "Crawl of http://h.test/"


def test_ten_thousand_pages_are_windows_of_a_hundred(
    chromium: Chromium, reports: Mapping[str, Path], record_property: Callable[[str, object], None]
) -> None:
    chromium.open(reports["large"])
    timing = chromium.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
    state = "document.querySelector('#urls [role=status]').innerText"

    assert chromium.evaluate(state) == "1 to 100 of 10,301 URLs"
    assert chromium.evaluate("document.querySelectorAll('#urls tbody tr').length") == 100
    tab_to(chromium, "top All URLs")  # past the links of all other lists
    chromium.press("Enter")
    tab_to(chromium, "urls Search the URLs", 2)
    searching = chromium.evaluate(
        """(() => {
            const start = performance.now(), input = document.activeElement;
            input.value = 'page 4242';
            input.dispatchEvent(new Event('input', {bubbles: true}));
            document.body.offsetHeight;
            return performance.now() - start;
        })()"""
    )
    assert column(chromium, 2) == ["Title of page 2398", "Title of page 4242"]  # the first one's URL has the number
    sorting = chromium.evaluate(
        """(() => {
            document.activeElement.value = '';
            const start = performance.now();
            document.querySelectorAll('#urls th button')[2].click();
            document.body.offsetHeight;
            return performance.now() - start;
        })()"""
    )
    assert column(chromium, 2)[:3] == ["Title of page 0", "Title of page 1", "Title of page 10"]

    tab_to(chromium, "urls Show", 1)
    tab_to(chromium, "urls Next", 1)
    chromium.press("Enter")
    assert chromium.evaluate(state) == "101 to 200 of 10,301 URLs"
    assert chromium.evaluate(FOCUSED) == "urls Next"
    figures = {"bytes": reports["large"].stat().st_size, "load": timing, "search": searching, "sort": sorting}
    print(figures)
    for name, figure in figures.items():
        record_property(name, figure)


def test_a_list_is_paged_through_by_keyboard(chromium: Chromium, reports: Mapping[str, Path]) -> None:
    chromium.open(reports["large"])
    state = "document.querySelector('#broken [role=status]').innerText"

    dead = chromium.evaluate(f"{ROWS}('broken')")
    assert (len(dead), dead[0][:3]) == (100, ["http://h.test/footer", "http 404", "10,000"])
    chromium.evaluate("document.querySelector('#broken details').open = true")
    assert chromium.evaluate("document.querySelector('#broken tr td:last-child').querySelectorAll('a').length") == 100
    assert column(chromium, 3, "broken")[0].endswith("\nand 9,900 more")

    tab_to(chromium, "top Broken links")
    chromium.press("Enter")
    tab_to(chromium, "broken Next", 2)
    chromium.press("Enter")
    chromium.press("Enter")
    assert chromium.evaluate(state) == "201 to 300 of 301 broken links"
    assert column(chromium, 0, "broken")[0] == "http://h.test/dead199"
    chromium.press("Enter")
    assert chromium.evaluate(state) == "301 to 301 of 301 broken links"
    assert chromium.evaluate(FOCUSED) == "broken Previous"  # the other one cannot be pressed any more
    chromium.press("Enter")
    assert chromium.evaluate(state) == "201 to 300 of 301 broken links"


def test_equal_directories_have_equal_reports_wherever_they_are(tmp_path: Path) -> None:
    for place in ("a", "b/c"):
        directory = make_directory(tmp_path / place, SMALL, COMPLETE, duplicates="keep")
        write_report(directory, tmp_path / f"{place[0]}.html")
    again = subprocess.run(
        [sys.executable, "-c", PRINT_REPORT, tmp_path / "b" / "c"],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo", "LC_ALL": "C"},
        capture_output=True,
        check=True,
    )

    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes() == again.stdout


PRINT_REPORT = """
import sys
from pathlib import Path
from tinycrawl.pagedir import PageDirectory
from tinycrawl.report import write_report
assert "pygal" not in sys.modules  # every other command would wait for it
write_report(PageDirectory(sys.argv[1]), Path("-"))
assert all(hasattr(finder, "find_spec") for finder in sys.meta_path)  # without it every failed import warns
"""


@pytest.mark.parametrize("place", ["pages/report.html", "pages/1", "pages/.crawler", "link/report.html", "to-page"])
def test_nothing_is_written_into_the_page_directory(place: str, tmp_path: Path) -> None:
    directory = make_directory(tmp_path / "pages", SMALL, COMPLETE)
    (tmp_path / "link").symlink_to("pages")
    (tmp_path / "to-page").symlink_to("pages/2")
    before = {path: path.read_bytes() for path in directory.path.iterdir()}

    with pytest.raises(UsageError, match=r"report .*: it would be in a page directory, give a place outside of it$"):
        write_report(directory, tmp_path / place)

    assert {path: path.read_bytes() for path in directory.path.iterdir()} == before


def test_an_old_report_is_replaced_in_one_step(tmp_path: Path) -> None:
    directory = make_directory(tmp_path / "pages", SMALL, COMPLETE)
    report = tmp_path / ("r" * 250 + ".html")
    report.write_text("old")
    with report.open() as reader:
        write_report(directory, report)
        assert reader.read() == "old"  # whoever has it open keeps the whole old one

    assert report.read_text().startswith("<!DOCTYPE html>")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["pages", report.name])


def test_a_report_that_cannot_be_written_leaves_the_old_one(small_disk: Path, tmp_path: Path) -> None:
    directory = make_directory(tmp_path / "pages", SMALL, COMPLETE)
    report = small_disk / "report.html"
    report.write_text("old")
    (small_disk / "filler").write_bytes(bytes(1_040_000))  # one block is left

    with pytest.raises(DirectoryError, match=r"report.html cannot be written: No space left on device$"):
        write_report(directory, report)

    assert report.read_text() == "old"
    assert sorted(path.name for path in small_disk.iterdir()) == ["filler", "report.html"]


@pytest.mark.parametrize(
    ("place", "message"),
    [
        pytest.param("folder", r"that is a directory, give the name of a file$", id="directory"),
        pytest.param("missing/report.html", r"cannot be written: No such file or directory$", id="no-parent"),
        pytest.param("file/report.html", r"cannot be written: Not a directory$", id="parent-is-a-file"),
    ],
)
def test_a_place_that_cannot_be_is_refused_in_one_line(place: str, message: str, tmp_path: Path) -> None:
    directory = make_directory(tmp_path / "pages", SMALL, COMPLETE)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()

    with pytest.raises(TinycrawlError, match=message):
        write_report(directory, tmp_path / place)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder", "pages"]


def test_a_torn_manifest_and_a_crawl_without_an_end_are_told(tmp_path: Path) -> None:
    directory = make_directory(tmp_path / "pages", SMALL, None)
    with (directory.path / ".crawler").open("a") as manifest:
        manifest.write('{"docID":6,"url":')

    text = render_report(directory)

    assert "<p>The crawl has not ended: it still runs, or it was killed and the same command goes on.</p>" in text
    assert "<dt>Ended</dt><dd>not yet</dd>" in text
    assert "<dt>Left out</dt><dd>17 bytes of the manifest, which cannot be read</dd>" in text


def test_a_folded_page_is_counted_with_the_others_and_in_its_group(tmp_path: Path) -> None:
    folded = [(failed_record(f"duplicate of {number}", f"http://h.test/{number}", 1, "/"), b"") for number in (1, 2)]
    text = render_report(make_directory(tmp_path / "pages", SMALL[:2] + folded, COMPLETE, duplicates="fold"))

    assert '<bdi>duplicate of a page</bdi></th><td class="number">2</td>' in text
    data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    assert data["duplicates"] == [[2, 900, [0, 2]], [2, 5000, [1, 3]]]


def test_the_directory_of_another_crawler_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / ".crawler").touch()
    (tmp_path / "1").write_bytes(b"http://h.test/\n0\n<p>")

    with pytest.raises(DirectoryError, match=r"^page directory .* is not one of tinycrawl: its .crawler is not ours$"):
        render_report(PageDirectory(tmp_path))


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    directory = make_directory(tmp_path / "pages", SMALL, COMPLETE)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["head", "-c", "15", pipe], stdout=subprocess.PIPE)
    with suppress(BrokenPipeError):
        write_report(directory, pipe)

    assert reader.communicate(timeout=30)[0] == b"<!DOCTYPE html>"
    assert pipe.is_fifo()
