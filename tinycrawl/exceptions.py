"""The errors that end a crawl, each with who raises it and when."""


class TinycrawlError(Exception):
    """The base of the errors below. Its text is one line, fit to be shown to whoever runs the crawl."""


class UsageError(TinycrawlError):
    """An argument or a setting is wrong: raised by the checks, before anything is created. Exit status 2."""


class DirectoryError(TinycrawlError):
    """A page directory cannot be used or written: raised by ``pagedir``. The text always gives the path."""


class RunSkipped(TinycrawlError):
    """The last run of a recurring crawl still works: raised by ``runs``, before anything is created. Exit status 4."""


class CrawlFailed(TinycrawlError):
    """The crawl as a whole failed. Exit status 1.

    Raised by the publisher when its seed is no page, and by the event log when it cannot be written.
    """
