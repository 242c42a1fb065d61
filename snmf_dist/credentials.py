"""Credentials stay out of messages: passwords and keys in the environment or in the options of a URL."""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

SECRET = re.compile(r"(?i)secret|password|token|^key$|access_key")  # names of options and variables to keep quiet


def without_secrets(text: str, options: Mapping[str, Any] | None = None) -> str:
    """The text without the credentials that the environment or `options` hold.

    Examples
    --------
    >>> without_secrets("wrong key abc", {"secret": "abc"})
    'wrong key ***'
    """
    secrets = [*_secrets(os.environ), *_secrets(options or {})]
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _secrets(options: Mapping[str, Any]) -> Iterator[str]:
    """The values of options to keep quiet, also of those in options of options, as `client_kwargs`."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _secrets(value)
        elif SECRET.search(name):
            yield str(value)
