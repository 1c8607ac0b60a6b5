"""`cupyx.scipy.sparse` on a remote GPU node."""

from __future__ import annotations

from rgpu_client.cupyx import _modules
from rgpu_client.cupyx.scipy.sparse import _matrix

__getattr__, __dir__ = _modules.package(
    __name__,
    "cupyx.scipy.sparse.",
    globals(),
    ("linalg",),
    {
        name: getattr(_matrix, name)
        for name in (
            "csr_matrix", "csc_matrix", "coo_matrix", "dia_matrix", "spmatrix", "issparse",
            "isspmatrix", "isspmatrix_csr", "isspmatrix_csc", "isspmatrix_coo",
        )
    },
)  # fmt: skip
