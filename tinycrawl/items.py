"""What a crawl yields: a Page for each page that is saved, an Unsaved for each URL that is not.

Both go through the item pipeline in canonical order, so that one place writes the page directory. An Unsaved ends
there: feeds see Pages only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tinycrawl.markup import decode_body
from tinycrawl.pagedir import Held

Record = Mapping[str, Any]  # a line of the manifest, as far as the spider knows it


@dataclass(slots=True)
class Page:
    """One page.

    *url* is the final one, *requested* the one that a link or the seed named, *parent* the page with that link (None
    for the seed). *depth* counts links from the seed. *length* and *sha256* (hexadecimal) are of the body as stored;
    *charset* is the encoding the server meant. *doc_id* is 0 until the pipeline has numbered the page. *title* is read
    where a feed wants it.
    """

    url: str
    depth: int
    body: bytes = field(repr=False)
    requested: str = ""
    parent: str | None = None
    status: int = 200
    content_type: str = ""
    charset: str = ""
    length: int = 0
    sha256: str = ""
    doc_id: int = 0
    title: str = ""
    order: int = field(default=0, repr=False)  # its place among all items of the crawl, from 1
    record: Record = field(default_factory=dict, repr=False)
    before: Sequence[Record] = field(default=(), repr=False)  # of links that were refused, to be written first
    held: Held | None = field(default=None, repr=False)  # where the body waits for its number

    @property
    def text(self) -> str:
        """The body, decoded."""
        charset = self.record.get("stored", self.charset)
        return decode_body(self.body, f"text/html; charset={charset}")[0]


@dataclass(slots=True)
class Unsaved:
    """A URL that was found but is no page of the directory; its record gives the reason."""

    record: Record
    before: Sequence[Record] = ()
    order: int = 0
    sha256: str = ""  # of a page that is folded
