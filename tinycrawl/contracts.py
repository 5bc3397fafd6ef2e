"""Contracts for the spider, checked by ``scrapy check``."""

import atexit
from contextlib import ExitStack
from typing import Any

from scrapy.contracts import Contract

from tinycrawl import demo

_server = ExitStack()


class DemoContract(Contract):
    """Serves the demo site on loopback, and sets the request's address to one of its pages.

    ``@url`` would fix an address; this port is a free one. ::

        @demo letters/A.html
    """

    name = "demo"

    def adjust_request_args(self, args: dict[str, Any]) -> dict[str, Any]:
        base = _server.enter_context(demo.serve())
        atexit.register(_server.close)
        args["url"] = f"{base}/{self.args[0]}"
        return args
