"""Styles for `tables.py` and the worklist, in light and dark: put on every page once."""

from __future__ import annotations

STYLE = """
<style>
/* The page says whether it is light or dark (`color-scheme`), as the browser or the person chose. */
.stApp {
  --gs-ink: light-dark(#1f2430, #eceef4); --gs-faint: light-dark(#555867, #b9bdca);
  --gs-line: light-dark(#d5d6dc, #4a4f5c); --gs-thin: light-dark(#ebecf0, #31353f);
  --gs-link: light-dark(#8f1248, #ff9cc4); --gs-accent: light-dark(#b0175b, #ff7fb2);
  --gs-raised: light-dark(#f6f7f9, #1d212b); --gs-glass: light-dark(#ffffff, #f3f3f3);
}
.gs-table { width: 100%; border-collapse: collapse; font-size: 0.875rem; line-height: 1.4; margin-bottom: 0.5rem; }
.gs-table th { text-align: left; font-weight: 600; color: var(--gs-faint); border-bottom: 1px solid var(--gs-line);
  padding: 4px 16px 4px 0; }
.gs-table td { border-bottom: 1px solid var(--gs-thin); padding: 4px 16px 4px 0; vertical-align: top;
  overflow-wrap: anywhere; unicode-bidi: isolate; }
.gs-table tfoot td { font-weight: 600; border-bottom: none; }
.gs-table .number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.gs-table .fixed { white-space: nowrap; font-variant-numeric: tabular-nums; }
.gs-table td.hash { white-space: nowrap; font-family: monospace; }
.gs-table .text { min-width: 5.5rem; }
.gs-table .long { min-width: 14rem; }
a.gs-go { color: var(--gs-link); font-weight: 600; text-decoration: underline; text-underline-offset: 3px; }
a.gs-go:focus-visible, .gs-case > summary:focus-visible { outline: 2px solid var(--gs-accent); outline-offset: 3px; }
.gs-table td a.gs-go { display: inline-block; min-height: 32px; padding-top: 5px; }
.gs-table a.gs-sort { display: inline-block; min-height: 32px; padding: 6px 0; color: inherit; white-space: nowrap;
  text-decoration-color: var(--gs-line); }
.gs-table a.gs-sort:hover { text-decoration-color: currentcolor; }
.gs-table tbody tr:has(a.gs-go) td { padding-top: 8px; padding-bottom: 8px; cursor: pointer; }
.gs-table tbody tr:has(a.gs-go):is(:hover, :focus-within) td { background: var(--gs-raised); }
.gs-picture { display: inline-grid; place-items: center; background: var(--gs-glass); border-radius: 4px;
  overflow: hidden; }
.gs-picture img { grid-area: 1 / 1; display: block; object-fit: contain; }
.gs-table .gs-picture img { width: 136px; height: 82px; }
.gs-table tbody tr:has(a.gs-go) td, .gs-table:has(.gs-picture) tbody td { vertical-align: middle; }
.gs-table td:has(.gs-picture) { width: 1%; }
.gs-scroll { overflow-x: auto; }
@media (max-width: 1499px) { .gs-from-1500 { display: none; } }
@media (max-width: 1199px) { .gs-from-1200 { display: none; }
  .gs-table .gs-picture img { width: 104px; height: 64px; } }
@media (max-width: 899px) { .gs-from-900 { display: none; } }
.gs-out { white-space: nowrap; }
.gs-out a { display: inline-block; padding: 8px 4px 8px 8px; color: inherit; text-decoration: underline; }
.gs-facts { display: flex; flex-wrap: wrap; gap: 8px 32px; margin: 0 0 12px; }
.gs-facts span { display: block; font-size: 0.8rem; color: var(--gs-faint); }
.gs-facts strong { font-size: 1.3rem; font-weight: 400; overflow-wrap: anywhere; font-variant-numeric: tabular-nums;
  unicode-bidi: isolate; }
.gs-beside { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(400px, 100%), 1fr)); gap: 8px 40px; }
.gs-beside h5 { margin: 0 0 6px; padding: 0; font-size: 1rem; font-weight: 600; }
.gs-bar { display: flex; gap: 1px; height: 22px; border-radius: 4px; overflow: hidden; background: var(--gs-thin);
  margin-bottom: 8px; }
.gs-bar span { min-width: 3px; }
.gs-swatch { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin-right: 8px; }
.gs-cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(220px, 1fr)); gap: 14px;
  margin: 0 0 12px; }
.gs-card { display: flex; flex-direction: column; gap: 2px; margin: 0; padding: 8px;
  border: 1px solid var(--gs-line);
  border-radius: 8px; font-size: 0.875rem; overflow-wrap: anywhere; unicode-bidi: isolate; position: relative; }
.gs-card:hover { background: var(--gs-raised); }
.gs-card .gs-picture img { width: 100%; height: 150px; }
.gs-card a.gs-go { display: block; min-height: 32px; padding-top: 6px; }
/* The whole card leads where its name does. */
.gs-card a.gs-go::after { content: ""; position: absolute; inset: 0; border-radius: 8px; }
.gs-card .none { display: grid; place-items: center; height: 150px; border-radius: 4px; background: var(--gs-raised); }
.gs-card .faint, .gs-note { color: var(--gs-faint); }
.gs-note { font-size: 0.875rem; margin: 0 0 8px; }
.gs-note i { display: inline-block; width: 96px; height: 12px; margin: 0 8px 0 0; border-radius: 2px;
  vertical-align: -1px; }
.gs-case { border-bottom: 1px solid var(--gs-thin); }
.gs-case > summary { display: flex; flex-wrap: wrap; align-items: center; gap: 4px 20px; min-height: 44px;
  font-size: 0.95rem; cursor: pointer; }
.gs-case > summary::before { content: "▶"; width: 1rem; color: var(--gs-faint); font-size: 0.8rem; }
.gs-case[open] > summary::before { content: "▼"; }
.gs-case > summary strong { min-width: 9rem; overflow-wrap: anywhere; unicode-bidi: isolate; }
.gs-case > div { padding: 0 0 10px 22px; }
a.gs-button { display: inline-flex; align-items: center; min-height: 40px; padding: 0 14px; border-radius: 8px;
  border: 1px solid var(--gs-accent); text-decoration: none; }
/* Above a slide, the page's head and the slide's bar share a line, and leave the height to the slide. */
.stMainBlockContainer:has(.st-key-bar, .st-key-viewer) { padding: 4px 12px; }
.stMainBlockContainer:has(.st-key-bar, .st-key-viewer) > .stVerticalBlock { flex-flow: row wrap; align-items: center;
  gap: 4px 16px; }
.stMainBlockContainer:has(.st-key-bar, .st-key-viewer) > .stVerticalBlock > * { flex: 0 0 100%; }
.stMainBlockContainer:has(.st-key-bar, .st-key-viewer) > .stVerticalBlock > :has(> .st-key-head) {
  flex: 0 0 auto; width: auto; }
.stMainBlockContainer:has(.st-key-bar, .st-key-viewer) > .stVerticalBlock > :has(> .st-key-head) + * {
  flex: 1 1 500px; width: auto; min-width: 0; }
.stMainBlockContainer:has(.st-key-bar, .st-key-viewer) .st-key-links { position: absolute; }
.stMainBlockContainer:has(.st-key-bar, .st-key-viewer) [data-testid="stAlertContainer"] { padding: 4px 12px; }
.st-key-bar .stSelectbox { display: flex; align-items: center; gap: 8px; }
.st-key-bar .stSelectbox > label { min-height: 0; margin: 0; width: auto; flex: none; }
.st-key-bar .stSelectbox > div { flex: 1; min-width: 0; }
.st-key-bar [data-testid="stMarkdownContainer"] { margin-bottom: 0; }
@media (max-width: 1300px) {
  .st-key-bar > :has(.stSelectbox) { width: 190px; flex: 0 1 190px; }
}
@media (max-width: 900px) {
  .st-key-bar .stSelectbox > label { display: none; } /* each box still has its name for screen readers */
  .st-key-bar > :has(.stSelectbox) { width: 150px; flex: 0 1 150px; }
}
/* The viewer shows the next slide already: the bar must not name the one that was left. */
.gs-switching .st-key-bar > * { visibility: hidden; }
.st-key-bar h4 { padding: 0; font-size: 1.15rem; overflow-wrap: anywhere; }
.gs-loading { color: var(--gs-faint); padding: 18px 0; font-size: 0.95rem; }
</style>
"""
