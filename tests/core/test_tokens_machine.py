"""The token under any order of events, where each lease pays for itself."""

from __future__ import annotations

from core.token_machine import MANY, Tokens

Tokens.TestCase.settings = MANY
TestTokens = Tokens.TestCase
