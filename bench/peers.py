"""How each crawler is called, as its user would call it, and which pages it has saved.

All obey robots.txt, stay on the host, and ask as fast as they can with up to 16 requests at a time, unless a delay is
asked for. tinycrawl has everything switched on.
"""

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
CONCURRENCY = 16
DEPTH = 10  # deeper than the sites are

# The (path, depth) of each saved page in the tool's own order; None for a depth that it does not tell.
Saved = list[tuple[str, int | None]]


@dataclass(frozen=True)
class Call:
    """What a tool is to do. *directory* is there, and empty. *delay*: seconds between two requests."""

    seed: str
    directory: Path
    compressed: bool = False
    delay: float = 0.0


@dataclass(frozen=True)
class Tool:
    """*program* is what must be there, *source* tells where it comes from. *statuses*: the exit statuses of success."""

    name: str
    program: Path | None
    source: str
    command: Callable[[Call], list[str]]
    saved: Callable[[Call], Saved]
    statuses: tuple[int, ...] = (0,)

    @property
    def is_installed(self) -> bool:
        return self.program is not None and self.program.exists()


def tinycrawl(call: Call) -> list[str]:
    arguments = {"seed": call.seed, "depth": DEPTH, "pagedir": call.directory / "pages"}
    settings: dict[str, object] = {"DOWNLOAD_DELAY": call.delay, "LOG_LEVEL": "INFO", "TINYCRAWL_SYNC": 1}
    if not call.delay:
        settings["CONCURRENT_REQUESTS_PER_DOMAIN"] = CONCURRENCY
    return scrapy_command(["crawl", "site"], arguments, settings)


def crawl_spider(call: Call) -> list[str]:
    settings = {
        "ROBOTSTXT_OBEY": 1,
        "DOWNLOAD_DELAY": call.delay,
        "CONCURRENT_REQUESTS_PER_DOMAIN": CONCURRENCY,
        "LOG_LEVEL": "INFO",
        "REMOTE_CONTROL_ENABLED": 0,  # it shares a folder with every other Scrapy of this user
    }
    arguments = {"seed": call.seed, "directory": call.directory}
    return scrapy_command(["runspider", str(HERE / "plainspider.py")], arguments, settings)


def scrapy_command(words: list[str], arguments: dict[str, object], settings: dict[str, object]) -> list[str]:
    return [
        *(sys.executable, "-m", "scrapy", *words),
        *(part for name, value in arguments.items() for part in ("-a", f"{name}={value}")),
        *(part for name, value in settings.items() for part in ("-s", f"{name}={value}")),
    ]


def wget(call: Call) -> list[str]:
    command = ["wget", "--recursive", "--level=inf", "--no-verbose", "--execute=robots=on"]
    command += [f"--directory-prefix={call.directory}", f"--wait={call.delay}"]
    return [*command, *(["--compression=auto"] if call.compressed else []), call.seed]


def httrack(call: Call) -> list[str]:
    # 16 connections, no limit to connections per second or to the rate, nor the limits that come on top of these;
    # robots.txt always, no questions.
    rate = f"-%c{1 / call.delay if call.delay else 0:g}"
    return ["httrack", call.seed, "-O", str(call.directory), f"-c{CONCURRENCY}", rate, "-A0", "-%!", "-s2", "-q"]


def crawlee(call: Call) -> list[str]:
    assert not call.delay, "not an option that it has"
    return [str(BENCH_VENV / "bin" / "python"), str(HERE / "plaincrawlee.py"), call.seed, str(call.directory)]


def page_directory(call: Call) -> Saved:
    saved: Saved = []
    while (path := call.directory / "pages" / str(len(saved) + 1)).exists():
        url, depth, _ = path.read_bytes().split(b"\n", 2)
        saved.append((urlsplit(url.decode()).path, int(depth)))
    return saved


def numbered_files(call: Call) -> Saved:
    files = [path for path in call.directory.iterdir() if path.name.isdigit()]
    return [(urlsplit(file.read_bytes().split(b"\n", 1)[0].decode()).path, None) for file in files]


def mirror(call: Call) -> Saved:
    """The HTML files in the folder of the host, named by path."""
    host = urlsplit(call.seed).netloc
    roots = [root for name in (host, host.replace(":", "_")) if (root := call.directory / name).is_dir()]
    paths = [f"/{path.relative_to(root)}" for root in roots for path in root.rglob("*.html")]
    return [("/" if path == "/index.html" else path, None) for path in paths]


def _which(name: str) -> Path | None:
    found = shutil.which(name)
    return Path(found) if found else None


BENCH_VENV = ROOT / ".venv-bench"
PLAIN = "CrawlSpider"
OURS = "tinycrawl"
TOOLS = [
    Tool(OURS, Path(sys.executable), "this folder", tinycrawl, page_directory),
    Tool(PLAIN, Path(sys.executable), "requirements.txt", crawl_spider, numbered_files),
    Tool(
        "wget", _which("wget"), "bench/packages", wget, mirror, (0, 8)
    ),  # 8: it looks for links in scripts, which lead nowhere
    Tool("HTTrack", _which("httrack"), "bench/packages", httrack, mirror),
    Tool("Crawlee", BENCH_VENV / "stamp", "bench/requirements.txt", crawlee, numbered_files),
]
