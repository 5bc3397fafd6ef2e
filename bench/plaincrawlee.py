"""The crawler that Crawlee's introduction leads to, for comparison: every page of one site, each in a numbered file.

python bench/plaincrawlee.py SEED DIRECTORY
"""

import asyncio
import sys
from pathlib import Path

from crawlee import ConcurrencySettings
from crawlee.crawlers import ParselCrawler, ParselCrawlingContext
from crawlee.storage_clients import MemoryStorageClient


async def crawl(seed: str, directory: Path) -> None:
    crawler = ParselCrawler(  # the faster of its two static parsers
        storage_client=MemoryStorageClient(),  # faster than the default, which keeps the queue in files
        concurrency_settings=ConcurrencySettings(desired_concurrency=16, max_concurrency=16),
        respect_robots_txt_file=True,
    )
    saved = 0

    @crawler.router.default_handler
    async def save(context: ParselCrawlingContext) -> None:
        nonlocal saved
        body = await context.http_response.read()
        saved += 1
        (directory / str(saved)).write_bytes(context.request.url.encode() + b"\n" + body)
        await context.enqueue_links(strategy="same-hostname")

    await crawler.run([seed])


if __name__ == "__main__":
    asyncio.run(crawl(sys.argv[1], Path(sys.argv[2])))
