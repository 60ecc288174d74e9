"""The use cases of exports and imports."""

from __future__ import annotations

from collections.abc import Sequence

from memory_anchor.domain.requests import moving_requests as moved
from memory_anchor.front.rows import Row, as_is, row

ROWS: Sequence[Row] = (
    row("export_begin", moved.BeginExport, lambda anchor, asked: anchor.moving.begin_export(asked), as_is),
    row("export_page", moved.ExportPage, lambda anchor, asked: anchor.moving.export_page(asked), as_is),
    row("import_projects", moved.ImportProjects, lambda anchor, asked: anchor.moving.import_projects(asked), as_is),
    row("import_lines", moved.ImportLines, lambda anchor, asked: anchor.moving.import_lines(asked), as_is),
)
