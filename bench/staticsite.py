"""A site of static files, like a project's documentation: any number of pages of about 25 kB with 60 links each.

The pages are a tree. Most links are repeated, as on real sites: navigation, siblings, pages further up. What a crawl of
it must save, in order and with depths, is known from the same rule, without reading any HTML. The same arguments give
the same bytes. It can also be written by hand: ``python bench/staticsite.py DIRECTORY [--pages 1500]``.
"""

import argparse
import gzip
from dataclasses import dataclass
from html import escape
from pathlib import Path
from random import Random

LINKS = 60  # http links of a page, those that leave the site included
PAGE_BYTES = 25_000  # a page goes on until it has so many
NAVIGATION = 20  # pages that every page links to
CHILDREN = 3
SIBLINGS = 8
EXTERNAL = 3  # to names that do not exist anywhere, so a crawler that leaves the site gets nowhere
FORBIDDEN = "/private/report.html"  # by robots.txt; every page links to it
ROBOTS = "User-agent: *\nDisallow: /private/\n"
WORDS = (  # noqa: SIM905 - a list would be a word a line
    "access amount answer archive array binary block branch buffer bytes cache caller channel client codec column "
    "command commit config context cursor database default depth device digest domain editor element encoding engine "
    "error event example export field file filter folder format frame function gateway graph group handler header "
    "history host image import index input instance item key label layer length level library limit line link list "
    "loader local lock logger manual mapping marker memory message method mirror module name network node number "
    "object offset option order output package page parser path pattern pipeline plugin policy port prefix process "
    "profile project protocol proxy query queue range reader record region release render reply request resolver "
    "result role route row rule runtime sample scheduler schema scope search section segment select server session "
    "setting shard signal socket source spider stack state status storage stream string switch symbol system table "
    "target task template thread timeout token trace tree trigger type update upload user value vector version view "
    "widget window worker zone"
).split()


@dataclass(frozen=True)
class StaticSite:
    """Page 0 is the seed, ``/``. *seed* makes another site of the same kind."""

    pages: int = 1500
    seed: int = 1

    def path(self, i: int) -> str:
        if i == 0:
            return "/"
        return f"/{WORDS[i % NAVIGATION]}/{WORDS[(7 * i) % len(WORDS)]}-{i}.html"

    def links(self, i: int) -> dict[str, list[int]]:
        """The pages that page *i* links to, by the place on it, in the order of the document."""
        siblings = range(max(1, i - SIBLINGS // 2), i + 1 + SIBLINGS // 2)
        places = {
            "navigation": list(range(1, NAVIGATION + 1)),
            "trail": self._ancestors(i),
            "children": [CHILDREN * i + k for k in range(1, CHILDREN + 1)],
            "siblings": [k for k in siblings if k != i],
        }
        places = {place: [k for k in targets if k < self.pages] for place, targets in places.items()}
        rng = Random(f"{self.seed}/{i}/links")
        # Mostly further up; one anywhere, which may be the shortest way there.
        missing = LINKS - EXTERNAL - 1 - sum(map(len, places.values()))
        places["text"] = [rng.randrange(i + 1) for _ in range(missing - 1)] + [rng.randrange(self.pages)]
        return places

    def oracle(self) -> list[tuple[str, int]]:
        """Path and depth of each page, in the order of a serial breadth-first crawl."""
        depths = {0: 0}
        queue = [0]
        for i in queue:
            for target in (target for targets in self.links(i).values() for target in targets):
                if target not in depths:
                    depths[target] = depths[i] + 1
                    queue.append(target)
        return [(self.path(i), depths[i]) for i in queue]

    def write(self, directory: Path) -> None:
        """Write the site, each page also as ``.gz`` for a server that sends such files as they are."""
        for i in range(self.pages):
            path = directory / (self.path(i) + ("index.html" if i == 0 else "")).lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            body = self.body(i)
            path.write_bytes(body)
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(body, mtime=0))
        (directory / "robots.txt").write_text(ROBOTS)
        (directory / "style.css").write_text("body { max-width: 60em }\n")
        (directory / FORBIDDEN.lstrip("/")).parent.mkdir()
        (directory / FORBIDDEN.lstrip("/")).write_text("<title>Not for crawlers</title><p>Not for crawlers.")

    def body(self, i: int) -> bytes:
        rng = Random(f"{self.seed}/{i}/text")
        links = self.links(i)
        title = escape(f"{WORDS[(7 * i) % len(WORDS)].title()} {i} & more")
        navigation = "".join(f'<li class="nav-item">{self._link(i, k, "nav-link")}</li>\n' for k in links["navigation"])
        trail = " » ".join(self._link(i, k, "crumb") for k in links["trail"])
        children = "".join(f'<li class="toctree-l1">{self._link(i, k, "reference")}</li>\n' for k in links["children"])
        siblings = "".join(f"<dd>{self._link(i, k, 'sibling')}</dd>\n" for k in links["siblings"])
        head = f"""\
<!DOCTYPE html>
<html lang="en" class="no-js">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="description" content="{title}: {_sentence(rng)}">
<title>{title} — Manual</title>
<link rel="stylesheet" href="/style.css">
<script>var page = {{"id": {i}, "next": "<a href='/never.html'>"}}; document.documentElement.className = "js";</script>
</head>
<body id="top" data-page="{i}">
<header role="banner"><nav aria-label="Main">
<ul class="nav nav-tabs">
{navigation}</ul>
</nav><p class="crumbs">{trail}</p></header>
<main class="content" role="main">
<h1>{title}<a class="headerlink" href="#top" title="Permalink to this heading">¶</a></h1>
<ul class="toctree">
{children}</ul>
<aside><dl class="related">
{siblings}</dl></aside>
"""
        outside = "\n".join(
            f'<a rel="external" href="https://other{k}.invalid/{WORDS[i % 50]}?from={i % 9}&amp;to={k}">elsewhere</a>'
            for k in range(EXTERNAL)
        )
        foot = f"""\
</main>
<footer>
<!-- <a href="/commented-out.html">not a link</a> -->
{outside}
<a href="{FORBIDDEN}">Report</a>
<a href="mailto:manual@other.invalid">Write to us</a>
</footer>
</body>
</html>
"""
        targets = links["text"]
        parts = [head]
        size = len(head) + len(foot)
        while targets or size < PAGE_BYTES:
            parts.append(self._section(rng, i, len(parts), targets[:3]))
            size += len(parts[-1])
            targets = targets[3:]
        return "".join([*parts, foot]).encode()

    def _section(self, rng: Random, i: int, number: int, targets: list[int]) -> str:
        """Some paragraphs, with links to *targets*, and then a table, a list or code."""
        name = f"section-{number}"
        parts = [
            f'<section id="{name}">\n<h2>{rng.choice(WORDS).title()} {rng.choice(WORDS)}'
            f'<a class="headerlink" href="#{name}" title="Permalink to this heading">¶</a></h2>\n'
        ]
        parts += [
            f"<p>{_sentence(rng)} See <em>also</em> {self._link(i, target, 'reference internal')}"
            f" or <code>{rng.choice(WORDS)}.{rng.choice(WORDS)}()</code>. {_sentence(rng)}</p>\n"
            for target in targets
        ]
        if number % 3 == 0:
            rows = "".join(
                f'<tr class="{kind}"><td><p>{rng.choice(WORDS)}</p></td><td>{_sentence(rng)}</td></tr>\n'
                for kind in ("row-even", "row-odd") * 4
            )
            parts.append(
                f'<table class="docutils">\n<thead><tr><th>Name</th><th>Meaning</th></tr></thead>\n{rows}</table>'
            )
        elif number % 3 == 1:
            parts.append("<ul>\n" + "".join(f"<li><p>{_sentence(rng)}</p></li>\n" for _ in range(6)) + "</ul>")
        else:
            code = "\n".join(f"if {rng.choice(WORDS)} &lt; {n}: {rng.choice(WORDS)}('{n}')" for n in range(12))
            parts.append(f'<div class="highlight"><pre><span></span>{code}\n</pre></div>')
        return "".join([*parts, "\n</section>\n"])

    def _ancestors(self, i: int) -> list[int]:
        trail: list[int] = []
        while i:
            i = (i - 1) // CHILDREN
            trail.insert(0, i)
        return trail

    def _link(self, i: int, target: int, css: str) -> str:
        """A link as a person or a generator writes it: absolute or relative path, sometimes with a fragment."""
        href = self.path(target)
        if (i + target) % 2 and target:
            here, there = self.path(i).rsplit("/", 1)[0], href.rsplit("/", 1)[0]
            name = href.rsplit("/", 1)[1]
            href = name if here == there else f"../{there[1:]}/{name}" if i else href[1:]
        if (i + target) % 7 == 0:
            href += "#section-2"
        return f'<a class="{css}" href="{href}" title="Page {target}">{WORDS[(7 * target) % len(WORDS)]} {target}</a>'


def _sentence(rng: Random) -> str:
    words = rng.choices(WORDS, k=rng.randint(8, 18))
    return escape(f"{words[0].title()} {' '.join(words[1:])}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--pages", type=int, default=1500)
    options = parser.parse_args()
    StaticSite(options.pages).write(options.directory)


if __name__ == "__main__":
    main()
