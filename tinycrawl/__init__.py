"""tinycrawl: a polite, exact and repeatable crawler for one site."""
