"""An app whose dependency is not installed."""

import a_package_nobody_has  # type: ignore[import-not-found] # noqa: F401  # pyright: ignore[reportMissingImports]
