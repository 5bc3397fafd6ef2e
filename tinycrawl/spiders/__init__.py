"""The project's spiders: one."""
