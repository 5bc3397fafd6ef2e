"""Every project-wide setting: value, unit, Scrapy's default where it differs, and the reason.

A site's own settings are in sites/<host>.toml; `-s NAME=VALUE` wins over both.
"""

from scrapy.settings import default_settings

BOT_NAME = "tinycrawl"
SPIDER_MODULES = ["tinycrawl.spiders"]
NEWSPIDER_MODULE = "tinycrawl.spiders"
COMMANDS_MODULE = "tinycrawl.commands"
TWISTED_DNS_RESOLVER = "scrapy.resolver.CachingHostnameResolver"  # Scrapy's own default knows no IPv6
TWISTED_REACTOR = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"

# Who we are. The word before the slash is the name that robots.txt knows us by. Put an address at which you can be
# reached here, or in the site's file.
USER_AGENT = "tinycrawl/0.1 (+https://example.org/tinycrawl)"

# Politeness

DOWNLOAD_DELAY = 1.0  # seconds between the starts of two requests to a host; Scrapy falls back to 0
DOWNLOAD_DELAY_JITTER = 0  # Scrapy: 0.5, so that half of the delays are shorter than DOWNLOAD_DELAY
CONCURRENT_REQUESTS_PER_DOMAIN = 1  # requests to a host at a time; Scrapy: 8
CONCURRENT_REQUESTS = 16  # requests in flight, all hosts together; 0 is no limit
ROBOTSTXT_OBEY = True  # Scrapy falls back to False
ROBOTSTXT_PARSER = "tinycrawl.robots.RobotsParser"  # Scrapy: Protego's own order of rules
TINYCRAWL_CRAWL_DELAY_MAX = 30.0  # seconds; a longer Crawl-delay in robots.txt counts as this
TINYCRAWL_RETRY_AFTER_MAX = 300.0  # seconds; a longer Retry-After counts as this
TINYCRAWL_PATIENCE = 5  # times that a page is asked for again after 429 or 503; the host's next request waits
RETRY_TIMES = 2  # times that a page is asked for again after another fault
RETRY_GIVE_UP_LOG_LEVEL = "DEBUG"  # Scrapy: ERROR; a dead link is part of a crawl, the summary counts it

# Policies: what is saved and followed

TINYCRAWL_META_ROBOTS = True  # obey <meta name=robots> and X-Robots-Tag: noindex is not saved, nofollow not followed
TINYCRAWL_FOLLOW_NOFOLLOW = True  # follow a link whose rel says nofollow: a hint about endorsement
TINYCRAWL_ENCODING = None  # None: bodies as served; "utf-8": every page is stored as UTF-8
# Parameters of links that make no difference, like session ids: they are removed. `*` is any characters, `?` is one.
TINYCRAWL_DROP_PARAMETERS: list[str] = []
TINYCRAWL_COOKIES: dict[str, str] = {}  # name -> value, sent with every request to the seed's host

# Limits; 0 is no limit

TINYCRAWL_MAX_DEPTH = 10  # the largest `depth` that is accepted
DOWNLOAD_MAXSIZE = 32 * 1024 * 1024  # bytes of a body, also after decoding; Scrapy: 1 GiB
DOWNLOAD_WARNSIZE = 0  # no warnings before that
DOWNLOAD_TIMEOUT = 120  # seconds for one request in all, from connecting to the last byte; Scrapy: 180
TINYCRAWL_PAGE_TIMEOUT = 600  # seconds for all requests of one page: redirects and retries, without the delays
TINYCRAWL_HEADERS_MAXSIZE = 256 * 1024  # bytes of an answer before its body
REDIRECT_MAX_TIMES = 20  # redirects in a row; here 0 is none
URLLENGTH_LIMIT = 2083  # characters
TINYCRAWL_MAX_LINKS = 10_000  # links of one page that are looked at
TINYCRAWL_MAX_SEGMENT_REPEATS = 4  # times that a path segment, or a parameter, may occur in a URL: a trap beyond it
TINYCRAWL_MAX_PARAMETERS = 32  # parameters of a URL's query
TINYCRAWL_ROBOTSTXT_MAXSIZE = 512 * 1024  # bytes of a robots.txt that are read
TINYCRAWL_ROBOTSTXT_MAX_LINES = 10_000  # lines of it; each rule is looked at for each URL
TINYCRAWL_MAX_BYTES = 0  # bytes of all saved pages together, in their order; the page that would exceed it is the end
CLOSESPIDER_TIMEOUT = 0  # seconds of the whole crawl; after them no request is begun
# Connection failures in a row after which the network is taken to be gone, if the seed's server does not answer either;
# it is asked at the end of a level too, before failures are believed that nothing has come after.
TINYCRAWL_OUTAGE_AFTER = 20

# How far ahead of the last published page may be fetched, in pages. What waits for its turn is in hidden files, so
# this bounds the disk space and the number of files, not the memory.
TINYCRAWL_AHEAD = 10_000

# Where page directories are created. Relative paths start at the working directory, which under scrapyd is the
# service's own.
TINYCRAWL_OUTPUT_DIR = "data"
TINYCRAWL_SYNC = True  # flush each page to the disk before it gets its number: survives a power cut
TINYCRAWL_SITES_DIR = None  # folder of the sites' own files; None: the one packaged with the project

# Secrets: used, and written nowhere. None: none

TINYCRAWL_HTTP_USER = None  # for HTTP authentication at the seed's host; a user in the seed wins
TINYCRAWL_HTTP_PASSWORD = None  # of that user; Scrapy's own HTTPAUTH_PASS would be in the log
TINYCRAWL_PROXY = None  # http://user:password@host:port, for all requests; None: what the environment says
# Path of a cookies.txt in Netscape's format, as browsers export it. A relative one starts at the folder of the site's
# file that gives it, else at the working directory.
TINYCRAWL_COOKIES_FILE = None

# Security

DOWNLOAD_VERIFY_CERTIFICATES = True  # Scrapy: False. Set it off to accept any certificate
# Refuse hosts whose address is private, loopback, link-local or a cloud's metadata service. None: in jobs of scrapyd,
# unless the seed is such an address itself.
TINYCRAWL_ADDRESS_GUARD = None
TELNETCONSOLE_ENABLED = False  # Scrapy: True
REMOTE_CONTROL_ENABLED = False  # Scrapy: True; runs code over HTTP
DOWNLOAD_HANDLERS = {
    "http": "tinycrawl.handler.PoliteHTTPHandler",
    "https": "tinycrawl.handler.PoliteHTTPHandler",
    "data": None,
    "file": None,
    "ftp": None,
    "s3": None,
}

# The parts of the crawl

SCHEDULER = "tinycrawl.scheduler.LevelScheduler"
DUPEFILTER_CLASS = "tinycrawl.dupefilter.RankDupeFilter"
REQUEST_FINGERPRINTER_CLASS = "tinycrawl.dupefilter.CanonicalFingerprinter"
CONCURRENT_ITEMS = 1  # Scrapy: 100. Items and links must be taken in one by one, in canonical order; it is faster too
ITEM_PIPELINES = {"tinycrawl.pipelines.PageDirectoryPipeline": 300}
DOWNLOADER_MIDDLEWARES = {
    "tinycrawl.receiving.ReceiveMiddleware": 1,
    "tinycrawl.cache.CacheMiddleware": 5,  # before robots.txt: what is known needs no permission
    "tinycrawl.failures.FailureMiddleware": 10,  # outermost: a failure becomes an answer
    "scrapy.downloadermiddlewares.offsite.OffsiteMiddleware": None,
    "tinycrawl.offsite.ScopeMiddleware": 50,
    "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware": None,
    "tinycrawl.robots.PoliteRobotsMiddleware": 100,
    "tinycrawl.credentials.SeedAuthMiddleware": 300,
    "scrapy.downloadermiddlewares.retry.RetryMiddleware": None,
    "tinycrawl.retry.PatientRetryMiddleware": 550,
    # Redirects and refreshes are the spider's: where they lead belongs to the smallest rank that leads there.
    "scrapy.downloadermiddlewares.redirect.MetaRefreshMiddleware": None,
    "scrapy.downloadermiddlewares.redirect.RedirectMiddleware": None,
    "scrapy.downloadermiddlewares.httpcompression.HttpCompressionMiddleware": None,
    "tinycrawl.compression.StrictCompressionMiddleware": 590,
    "scrapy.downloadermiddlewares.cookies.CookiesMiddleware": None,
    "tinycrawl.cookies.ChainCookiesMiddleware": 700,
    "scrapy.downloadermiddlewares.httpproxy.HttpProxyMiddleware": None,
    "tinycrawl.credentials.ProxyMiddleware": 750,
    # Of no use here, and each costs time for each page.
    "scrapy.downloadermiddlewares.httpauth.HttpAuthMiddleware": None,  # SeedAuthMiddleware
    "scrapy.downloadermiddlewares.httpcache.HttpCacheMiddleware": None,  # CacheMiddleware
    "scrapy.downloadermiddlewares.stats.DownloaderStats": None,  # the summary counts
}
SPIDER_MIDDLEWARES = {
    # A page must not depend on the page that was seen before it, so none is told.
    "scrapy.spidermiddlewares.referer.RefererMiddleware": None,
    "scrapy.spidermiddlewares.urllength.UrlLengthMiddleware": None,  # the scope refuses, with a reason
    # Of no use here, and each costs time for each page.
    "scrapy.spidermiddlewares.httperror.HttpErrorMiddleware": None,  # every status is read
    "scrapy.spidermiddlewares.metacopy.MetaCopyDetectionMiddleware": None,
}
EXTENSIONS = {
    "tinycrawl.logs.SafeLogs": -100,  # before what could log a secret
    "tinycrawl.htmlonly.HtmlOnly": 100,
    "tinycrawl.progress.Progress": 500,
    "tinycrawl.summary.Summary": 900,
    "scrapy.extensions.spiderstate.SpiderState": None,  # belongs to JOBDIR, which is not needed
    "scrapy.extensions.logstats.LogStats": None,  # Progress says more
}
# All of Scrapy's but the one that runs code over HTTP: to switch it off would still load a web server with it.
EXTENSIONS_BASE = {
    path: priority
    for path, priority in default_settings.EXTENSIONS_BASE.items()
    if path != "scrapy.extensions.remote_control.RemoteControl"
}
SPIDER_CONTRACTS = {"tinycrawl.contracts.DemoContract": 10}

# What is said and exported

LOG_LEVEL = "INFO"  # Scrapy: DEBUG, several lines for each page
STATS_DUMP = False  # the summary says what matters; set it on for all of Scrapy's counters
FEED_EXPORTERS = {
    "urls": "tinycrawl.exporters.UrlExporter",  # the URLs of the pages, one per line
    # Scrapy's own, with the body, where it is asked for, as text.
    "csv": "tinycrawl.exporters.SafeCsvExporter",  # safe to open in a spreadsheet
    "json": "tinycrawl.exporters.JsonExporter",
    "jsonlines": "tinycrawl.exporters.JsonLinesExporter",
    "jsonl": "tinycrawl.exporters.JsonLinesExporter",
    "jl": "tinycrawl.exporters.JsonLinesExporter",
    "xml": "tinycrawl.exporters.XmlExporter",
}
FEED_EXPORT_FIELDS = [
    "doc_id",
    "url",
    "depth",
    "title",
    "status",
    "content_type",
    "charset",
    "length",
    "sha256",
    "parent",
]  # add "body" for the page itself
