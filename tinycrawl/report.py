"""The report of a crawl: one HTML page that is read from the disk and asks the network for nothing.

Charts are drawn here, as SVG; the lists are data of the page, which a script of its own draws a part of at a time.
Nothing in it depends on when or where it was made: equal directories have equal reports.
"""

import base64
import hashlib
import html
import json
import os
import re
import stat
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from tinycrawl.analysis import Broken, Entry, broken, duplicates, entries
from tinycrawl.arguments import one_line
from tinycrawl.exceptions import DirectoryError, UsageError
from tinycrawl.pagedir import MARKER, PageDirectory, is_in_page_directory
from tinycrawl.publisher import kind_of

STDOUT = Path("-")
LARGEST = 20  # rows of that table
BARS = 12  # of one chart; what is rarer shares the last one
PLACES = 100  # of one broken link or group: a footer's dead link is on every page
TITLE = 200  # characters
LABEL = 22  # characters, of a bar
WIDTH = 380  # of a chart: about that of a phone, where its letters then have their own size

_LARGEST_COLUMNS = (("docID", "number"), ("Bytes", "number"), ("URL", "url"), ("Title", "text"))
_WEB = re.compile(r"https?://[!-~]+", re.IGNORECASE)
_ENDINGS = {
    "complete": "The crawl is complete.",
    "stopped": "The crawl was stopped early: the same command goes on.",
    "failed": "The crawl failed.",
    None: "The crawl has not ended: it still runs, or it was killed and the same command goes on.",
}


def write_report(directory: PageDirectory, path: Path) -> None:
    """Write the report of *directory* to *path*, in the place of what is there; ``-`` is stdout.

    A reader sees the old file or the new one, never a part.

    :raises UsageError: *path* is in a page directory, where only a crawl writes, or is a directory.
    :raises DirectoryError: the directory cannot be read or is another crawler's, or the file cannot be written.
    :raises OSError: stdout cannot be written.
    """
    if path == STDOUT:
        text = render_report(directory).encode()
        with open(1, "wb", closefd=False) as stdout:
            stdout.write(text)
        return
    target = Path(os.path.realpath(path))
    if target.is_relative_to(os.path.realpath(directory.path)) or is_in_page_directory(target):
        raise UsageError(f"report {path}: it would be in a page directory, give a place outside of it")
    if target.is_dir():
        raise UsageError(f"report {path}: that is a directory, give the name of a file")
    text = render_report(directory).encode()
    try:
        _write(target, text)
    except OSError as error:
        raise DirectoryError(f"report {path} cannot be written: {error.strerror}") from error


def _write(target: Path, text: bytes) -> None:
    if target.exists() and not stat.S_ISREG(target.stat().st_mode):
        target.write_bytes(text)  # /dev/stdout, a named pipe: nothing to be put in the place of
        return
    hidden = target.with_name(f".report-{os.getpid()}")  # short: the name of the target may be as long as it can be
    try:
        with hidden.open("xb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        hidden.replace(target)
    except BaseException:
        with suppress(OSError):
            hidden.unlink()
        raise


def render_report(directory: PageDirectory) -> str:
    """Return the page.

    :raises DirectoryError: another crawler wrote the directory, and says nothing of its pages.
    """
    identity = directory.identity
    if identity is None:
        raise DirectoryError(f"page directory {directory.path} is not one of tinycrawl: its {MARKER} is not ours")
    rows = list(entries(directory, titles=True))
    pages = [row for row in rows if row.doc_id]
    faults, groups = broken(directory), duplicates(directory)
    end = directory.end
    seed = str(identity.get("seed", ""))
    style, script = _read("report.css"), _read("report.js")
    size = sum(page.length or 0 for page in pages)
    ending = _ENDINGS.get(end["end"] if end else None, "The crawl has ended.")
    return Template(_read("report.html")).substitute(
        style=style,
        style_hash=_digest(style),
        script=script,
        script_hash=_digest(script),
        seed=_text(seed),
        seed_link=_link(seed),
        ending=_text(ending),
        tiles=_definitions(
            {
                "pages": f"{len(pages):,}",
                "URLs without a page": f"{len(rows) - len(pages):,}",
                "broken links": f"{len(faults):,}",
                "groups of duplicates": f"{len(groups):,}",
                "of pages": _in_units(size),
                "deepest page": f"{max((page.depth for page in pages), default=0):,}",
            }
        ),
        facts=_definitions(_facts(identity, end, size, directory.unreadable)),
        policies=_policies(identity.get("policies") or {}),
        charts="\n".join(_charts(rows, pages)),
        largest=_largest(pages),
        data=_for_script(_data(rows, faults, groups)),
    )


def _facts(identity: Mapping[str, Any], end: Mapping[str, Any] | None, size: int, unreadable: int) -> dict[str, str]:
    facts = {
        "Seed": str(identity.get("seed", "")),
        "Depth": "",
        "Scope": str(identity.get("scope", "")),
        "Ended": "not yet",
    }
    if end:
        depth, most = end.get("depth"), end.get("max_pages")
        facts |= {
            "Ended": str(end["end"]),
            "Depth": f"up to {depth}" if depth else "0, the seed alone",
            "Limit": f"{most:,} pages" if isinstance(most, int) else "",
        }
    facts["Domains"] = ", ".join(map(str, identity.get("domains") or ()))
    facts |= {
        name.capitalize(): str(identity.get(name) or "") for name in ("include", "exclude", "order", "duplicates")
    }
    facts["Bytes"] = f"{size:,}"
    facts["Left out"] = f"{unreadable:,} bytes of the manifest, which cannot be read" if unreadable else ""
    return {name: text for name, text in facts.items() if text}


def _charts(rows: Sequence[Entry], pages: Sequence[Entry]) -> Iterable[str]:
    depths, without = Counter(page.depth for page in pages), Counter(row.depth for row in rows if not row.doc_id)
    known = sorted(depths | without)  # not all up to the deepest: a line that was altered may say any depth
    yield _figure(
        "Pages by depth",
        "links from the seed",
        {f"{depth}": depths[depth] for depth in known},
        {f"{depth}": without[depth] for depth in known},
    )
    ends = Counter(_ending(row) for row in rows)
    yield _figure("URLs by status and reason", "why a URL has no page, or the status of the page", _most(ends))
    yield _figure("Pages by content type", "as the server declared it", _most(Counter(p.type or "none" for p in pages)))
    yield _figure("Pages by size", "bytes of the body as stored", _sizes([page.length or 0 for page in pages]))


def _ending(row: Entry) -> str:
    if row.doc_id:
        return f"{row.status or 'unknown'}: a page"
    return kind_of(row.reason)


def _shown(row: Entry) -> str:
    """The URL that a row is known by: that of the page, or the one that was asked for."""
    return row.final if row.doc_id else row.url


def _most(counts: Mapping[str, int]) -> dict[str, int]:
    """The most frequent first, equal ones by name; what does not fit is one more bar."""
    order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    if len(order) > BARS:
        order[BARS - 1 :] = [(f"{len(order) - BARS + 1:,} others", sum(n for _, n in order[BARS - 1 :]))]
    return {one_line(name): number for name, number in order}


def _sizes(lengths: Iterable[int]) -> dict[str, int]:
    """How many lengths are in each class; from 1 KiB on, a class reaches to four times where it begins."""
    steps = Counter(((length >> 10).bit_length() + 1) // 2 for length in lengths)
    names = ["under 1 KiB", *(f"{_in_units(1024 * 4**step)} to {_in_units(4096 * 4**step)}" for step in range(20))]
    return {names[step]: steps[step] for step in range(min(steps, default=0), max(steps, default=-1) + 1)}


def _figure(name: str, note: str, bars: dict[str, int], without: dict[str, int] | None = None) -> str:
    total = sum(bars.values())
    heads = ["", "pages", "URLs without a page"] if without else ["", "number", "share"]
    lines = []
    for bar, number in bars.items():
        share = f"{without[bar]:,}" if without else f"{number / total:.1%}" if total else ""
        lines.append(
            f'<tr><th scope="row"><bdi>{_text(bar)}</bdi></th>'
            f'<td class="number">{number:,}</td><td class="number">{share}</td></tr>'
        )
    head = "".join(f'<th scope="col">{text}</th>' if text else "<td></td>" for text in heads)
    drawn = _draw(name, bars) if total else "<p>None.</p>"
    return (
        f"<figure><figcaption>{name} <small>{note}</small></figcaption>{drawn}<details><summary>As numbers</summary>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></details></figure>"
    )


def _draw(name: str, bars: dict[str, int]) -> str:
    """Return a chart with a bar and its number per line, to be coloured by the page's style sheet."""
    import pygal  # only this command has charts, and it is slow to import
    from pygal.style import Style

    # It leaves a finder of its maps in the interpreter, of the kind that Python gave up: every later import that fails
    # would warn of it. There are no maps here.
    sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__module__ != "pygal"]

    def finish(root: Any) -> Any:
        # pygal adds the date, a script, styles and tooltips that need the script: the policy of the page refuses them.
        for parent in list(root.iter()):
            for child in list(parent):
                is_tooltip = "tooltip-overlay" in child.get("class", "") if isinstance(child.tag, str) else True
                if is_tooltip or child.tag.rpartition("}")[2] in ("defs", "style", "script", "title", "desc"):
                    parent.remove(child)
        root.attrib.pop("id", None)  # random
        root.set("role", "img")
        root.set("aria-label", f"{name}: " + ", ".join(f"{bar} {number:,}" for bar, number in bars.items()))
        return root

    font = dict.fromkeys(("label_font_size", "major_label_font_size", "value_font_size"), 13)
    # It draws from the bottom, and would cut a label at the wrong end of what it says.
    labels = [bar if len(bar) <= LABEL else bar[: LABEL - 1] + "…" for bar in reversed(bars)]
    plot = WIDTH - 8 * max(map(len, labels)) - 30  # what is left for bars: a character takes 8 at most
    room = 8 * len(f"{max(bars.values()):,}") + 12  # for the number beside the longest one
    chart = pygal.HorizontalBar(
        style=Style(**font),
        width=WIDTH,
        height=26 * len(bars) + 12,
        margin=6,
        spacing=4,
        range=(0, max(bars.values()) * plot / (plot - room)),
        show_legend=False,
        show_x_labels=False,
        show_x_guides=False,
        show_y_guides=False,
        print_values=True,
        print_values_position="top",
        formatter=lambda value: f"{value:,}",
        js=[],
        truncate_label=-1,
    )
    chart.x_labels = labels
    chart.add(name, list(reversed(bars.values())))
    chart.add_xml_filter(finish)
    return str(chart.render(is_unicode=True, disable_xml_declaration=True))


def _largest(pages: Sequence[Entry]) -> str:
    largest = sorted(pages, key=lambda page: -(page.length or 0))[:LARGEST]
    lines = [
        _cells(
            (
                f"{page.doc_id}",
                f"{page.length or 0:,}",
                _link(_shown(page)),
                f"<bdi>{_text(_title(page))}</bdi>",
            )
        )
        for page in largest
    ]
    if not lines:
        return "<p>No page.</p>"
    head = "".join(f'<th scope="col" role="columnheader" class="{kind}">{name}</th>' for name, kind in _LARGEST_COLUMNS)
    return (
        '<div class="box"><table class="list" role="table" aria-labelledby="largest-title"><thead role="rowgroup">'
        f'<tr role="row">{head}</tr></thead><tbody role="rowgroup">{"".join(lines)}</tbody></table></div>'
    )


def _cells(cells: Iterable[str]) -> str:
    # The roles are said, since a narrow window shows rows as blocks, and then some browsers forget that it is a table.
    row = zip(_LARGEST_COLUMNS, cells, strict=True)
    return (
        '<tr role="row">'
        + "".join(f'<td role="cell" class="{kind}" data-name="{name}">{cell}</td>' for (name, kind), cell in row)
        + "</tr>"
    )


def _policies(policies: Mapping[str, Any]) -> str:
    if not policies:
        return ""
    facts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in policies.items()}
    return f'<details><summary>Policies and limits</summary><dl class="facts">{_definitions(facts)}</dl></details>'


def _data(rows: Sequence[Entry], faults: Sequence[Broken], groups: Sequence[Sequence[Entry]]) -> dict[str, Any]:
    """The lists by column; names that recur are numbers, and pages that lists name are the numbers of their rows."""
    names: dict[str, dict[str, int]] = {"reasons": {}, "types": {}, "charsets": {}}
    places: dict[str, int] = {}

    def number(kind: str, name: str | None) -> int:
        return names[kind].setdefault(one_line(name), len(names[kind])) if name else -1

    for position, row in enumerate(rows):
        places.setdefault(_shown(row), position)

    def refer(urls: Iterable[str]) -> list[int | str]:
        return [places.get(url, one_line(url)) for url in urls][:PLACES]

    urls = {
        "id": [row.doc_id or None for row in rows],
        "url": [one_line(_shown(row)) for row in rows],
        "depth": [row.depth for row in rows],
        "reason": [number("reasons", row.reason) for row in rows],
        "status": [row.status for row in rows],
        "type": [number("types", row.type) for row in rows],
        "charset": [number("charsets", row.charset) for row in rows],
        "length": [row.length for row in rows],
        "title": [one_line(_title(row)) for row in rows],
    }
    return {
        **{kind: list(known) for kind, known in names.items()},
        "urls": urls,
        "other": {
            n: one_line(row.url if row.doc_id else row.redirects[-1]) for n, row in enumerate(rows) if row.redirects
        },
        "broken": [[one_line(f.url), one_line(f.reason), len(f.sources), refer(f.sources)] for f in faults],
        "duplicates": [[len(group), group[0].length, refer(map(_shown, group))] for group in groups],
    }


def _title(row: Entry) -> str:
    title = row.title or ""
    return title if len(title) <= TITLE else f"{title[: TITLE - 1]}…"


def _for_script(value: object) -> str:
    """JSON that stays data within a script element: no ``</script>`` and no ``<!--`` can be in it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _text(text: str) -> str:
    """Text of the site as HTML, of one line, with what is not printable (bidi controls, surrogates) escaped."""
    return html.escape(one_line(text))


def _link(url: str) -> str:
    """A link, if it is surely an address of the web; other text stays text."""
    text = f"<bdi>{_text(url)}</bdi>"
    return f'<a href="{html.escape(url)}" rel="noreferrer">{text}</a>' if _WEB.fullmatch(url) else text


def _definitions(facts: Mapping[str, str]) -> str:
    return "".join(f"<div><dt>{_text(name)}</dt><dd>{_text(text)}</dd></div>" for name, text in facts.items())


def _in_units(size: int) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024  # type: ignore[assignment]
    return f"{size:,.0f} {unit}" if size >= 100 or size == int(size) else f"{size:,.1f} {unit}"


def _read(name: str) -> str:
    return (resources.files("tinycrawl") / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """What the policy calls an inline style or script that may be applied or run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
