"""An app with a mistake in it."""

app = [undefined_workflow]  # type: ignore[name-defined] # noqa: F821  # pyright: ignore[reportUndefinedVariable]
