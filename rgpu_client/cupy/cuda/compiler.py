"""`cupy.cuda.compiler`: the exception for a source that does not compile."""

from __future__ import annotations

from rgpu_client.cupy import errors

CompileException = errors.CompileException
