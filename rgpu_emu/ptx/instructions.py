"""The instruction table, built from the data modules."""

from __future__ import annotations

from typing import Final

from rgpu_emu.ptx import (
    forms_arith,
    forms_control,
    forms_data,
    forms_matrix,
    forms_mbarrier,
    forms_refused,
    forms_texture,
    forms_video,
)
from rgpu_emu.ptx.table import Table

TABLE: Final = Table(
    forms_arith.ROWS
    + forms_data.ROWS
    + forms_control.ROWS
    + forms_video.ROWS
    + forms_matrix.ROWS
    + forms_mbarrier.ROWS
    + forms_texture.ROWS,
    forms_refused.REFUSALS,
)
