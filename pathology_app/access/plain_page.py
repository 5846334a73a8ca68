"""Pages that the app serves without Streamlit: sign-in, sign-out and refusals. They work without scripts."""

from __future__ import annotations

import html

from starlette.responses import HTMLResponse

from pipeline.units import RESEARCH_USE

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title} · gemslide</title>{head}
<link rel="icon" href="data:,">
<style>
:root {{ color-scheme: light dark; --text: #31333f; --faint: #555867; --ground: #fff; --line: #8d8f9b; --go: #b0175b;
  --link: #b0175b; --bad: #9b1c1c; --bad-ground: #fdecec; }}
@media (prefers-color-scheme: dark) {{ :root {{ --text: #fafafa; --faint: #b9bbc6; --ground: #0e1117; --line: #7d808d;
  --link: #ff8fbf; --bad: #ffc9c9; --bad-ground: #4a1717; }} }}
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 4rem auto; max-width: 38rem; padding: 0 1rem;
  color: var(--text); background: var(--ground); overflow-wrap: anywhere; }}
h1 {{ font-size: 1.6rem; margin: 1.5rem 0 1rem; }}
h2 {{ font-size: 1.1rem; margin: 1.25rem 0 0.25rem; }}
ul {{ margin: 0.25rem 0; padding-left: 1.25rem; }}
li a {{ display: inline-block; padding: 4px 0; }}
a {{ color: var(--link); }}
p.way a {{ display: inline-block; padding: 10px 0; }}
.notice {{ color: var(--link); }}
form {{ max-width: 22rem; margin-top: 1.5rem; }}
label {{ display: block; margin: 0 0 1rem; }}
label span {{ display: block; margin-bottom: 4px; }}
input {{ box-sizing: border-box; width: 100%; min-height: 44px; padding: 8px 12px; font: inherit; color: inherit;
  background: transparent; border: 1px solid var(--line); border-radius: 6px; }}
button, a.button {{ display: inline-block; min-height: 44px; padding: 8px 20px; font: inherit; font-weight: 600;
  color: #fff; background: var(--go); border: 0; border-radius: 6px; cursor: pointer; text-decoration: none;
  box-sizing: border-box; line-height: 28px; }}
input:focus-visible, button:focus-visible, a:focus-visible {{ outline: 3px solid var(--link); outline-offset: 2px; }}
.error {{ padding: 10px 14px; border-radius: 6px; color: var(--bad); background: var(--bad-ground); }}
hr {{ border: 0; border-top: 1px solid var(--line); margin: 1.5rem 0; }}
</style>
</head>
<body>
<header><strong>gemslide</strong> <span class="notice">{notice}</span></header>
<main>
<h1>{title}</h1>
{body}
</main>
</body>
</html>
"""


def plain_page(title: str, body: str, status: int = 200, *, goes_to: str | None = None) -> HTMLResponse:
    """A page that browsers and proxies do not cache.

    Args:
        body: HTML.
        goes_to: path of this app to which the browser is redirected.
    """
    head = f'<meta http-equiv="refresh" content="0; url={html.escape(goes_to)}">' if goes_to else ""
    page = _PAGE.format(title=html.escape(title), body=body, notice=html.escape(RESEARCH_USE), head=head)
    return HTMLResponse(page, status, headers={"Cache-Control": "no-store"})


def paragraph(text: object, *, kind: str = "") -> str:
    """A paragraph of text; a screen reader announces one of kind "error" at once."""
    attributes = ' class="error" role="alert"' if kind == "error" else ""
    return f"<p{attributes}>{html.escape(str(text))}</p>\n"


def link(path: str, text: str) -> str:
    """A link to a path of this app."""
    return f'<p class="way"><a href="{html.escape(path)}">{html.escape(text)}</a></p>\n'
