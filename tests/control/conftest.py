"""The fixtures of the commands, which find an instance in the same way."""

from tests.cli.conftest import fake, maker, no_contexts

__all__ = ["fake", "maker", "no_contexts"]
