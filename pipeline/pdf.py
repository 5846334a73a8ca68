"""Reports' pages as PDF."""

from __future__ import annotations

from pipeline.errors import ProcessFailedError


def as_pdf(page: str) -> bytes:
    """The page as a PDF on A4; nothing is fetched from anywhere.

    Raises:
        ProcessFailedError: Pango is not installed.
    """
    try:
        import weasyprint
        from weasyprint.urls import URLFetcher
    except OSError as error:
        raise ProcessFailedError(
            "the report's PDF needs Pango, which is not installed (Debian: libpango-1.0-0, libpangoft2-1.0-0, "
            f"libharfbuzz-subset0; macOS: brew install pango). {str(error).splitlines()[0][:200]}"
        ) from error
    inside = URLFetcher(allowed_protocols=["data"], fail_on_errors=True)  # type: ignore[no-untyped-call]
    return bytes(weasyprint.HTML(string=page, url_fetcher=inside).write_pdf())  # type: ignore[no-untyped-call]
