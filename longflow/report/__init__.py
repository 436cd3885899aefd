"""The report: what a run tells, in one HTML file that needs nothing else.

- `data` gathers a run's files, `overview`, `published_beside`, `protocol` and `cost` make parts of the page of them.
- `records` packs the single records for the page's browser; `figures` makes plots that follow light and dark.
- `page` renders; `latex` writes the tables of papers.
"""

from longflow.report.page import write

__all__ = ["write"]
