"""Redaction of secrets in everything that is stored, printed or sent.

A secret is recognised by its key (``keys``: ``api_key``, ``hf_token``, ``password``, …) or by the form of its value
(``rules``: ``sk-…``, ``AKIA…``, a private key, a password in a URL). From then on the same text is redacted everywhere:
in the command line, in an exception.
"""

from windsock.redaction.keys import is_secret_key
from windsock.redaction.redactor import Redactor
from windsock.redaction.texts import REDACTED

__all__ = ["REDACTED", "Redactor", "is_secret_key"]
