"""What the site needs beside its configuration: every decision record in the navigation, and nothing fetched."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.pages import Page

SECTION = "Decisions"
FOREIGN = "https://unpkg.com/iframe-worker/shim"
OWN = "assets/file-worker.js"
FETCHED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"?(?:https?:)?//[^>]*>")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Append the records, in their order, to the pages the section lists; a new one needs no second place."""
    docs = Path(config.docs_dir)
    records = sorted((docs / "decisions").glob("[0-9]*.md"))
    for section in config.nav or []:
        if isinstance(section, dict) and SECTION in section:
            section[SECTION] += [str(record.relative_to(docs)) for record in records]
    return config


def on_post_page(output: str, *, page: Page, config: MkDocsConfig) -> str:
    """Let the search work without the network: the theme fetches what starts it in a page opened as a file."""
    del config
    return output.replace(FOREIGN, "../" * page.file.dest_uri.count("/") + OWN)


def on_post_template(output_content: str, *, template_name: str, config: MkDocsConfig) -> str:
    """The same for pages that are made of no text, which a server shows under any address."""
    del template_name, config
    return output_content.replace(FOREIGN, f"/{OWN}")


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a site whose pages fetch anything from elsewhere, with ``PluginError``."""
    for page in sorted(Path(config.site_dir).rglob("*.html")):
        if found := FETCHED.search(page.read_text()):
            raise PluginError(f"{page.relative_to(config.site_dir)} fetches something from elsewhere: {found[0]}")
