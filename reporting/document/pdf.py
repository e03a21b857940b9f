"""A report as PDF, by WeasyPrint: an extra, since it needs the system library Pango."""

from __future__ import annotations

from infra.errors import Fatal

REMEDY = (
    "pip install 'headgate[pdf]', and on Debian apt-get install libpango-1.0-0 libpangoft2-1.0-0"
)


def to_pdf(page: str) -> bytes:
    """The HTML page as PDF. Raises `Fatal` with the remedy where WeasyPrint or Pango is missing."""
    try:
        # Inside: slow to import, and nothing but PDF needs it.
        from weasyprint import HTML
        from weasyprint.urls import URLFetchingError
    except (ImportError, OSError) as error:
        # OSError: the package is there and Pango is not.
        raise Fatal(f"PDF cannot be made ({str(error).splitlines()[0]}); {REMEDY}") from None

    def nothing(url: str) -> dict[str, object]:
        # The page holds all it needs; what would load something came from a log.
        raise URLFetchingError(f"{url}: a report loads nothing")

    pdf: bytes = HTML(string=page, url_fetcher=nothing).write_pdf()
    return pdf
