"""Scrapy commands of the project."""

# On its first import this module has Python read the source of every frame of the stack, three times: a tenth of a
# second where it is reached through a chain of imports, next to nothing here.
import scrapy.core.downloader.contextfactory  # noqa: F401
