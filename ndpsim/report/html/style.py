"""How a page looks: on a light or dark screen, and in print."""

STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --soft: #5a5a5a; --paper: #ffffff; --line: #d5d5d5;
  --tint: #f3f4f6; --link: #0b5cad; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --soft: #a5a5a5; --paper: #17181a; --line: #3c3e42; --tint: #232529;
    --link: #7db8f5; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; border-bottom: 1px solid var(--line); padding-bottom: .2rem; }
.subtitle, .note { color: var(--soft); margin: .2rem 0; overflow-wrap: anywhere; }
/* A shadow at an edge says that the table goes on there; what moves with the table hides it at its ends. */
.scroll { overflow: auto; max-height: 40rem; background:
  linear-gradient(to right, var(--paper) 40%, transparent) 0 0 / 3rem 100% no-repeat local,
  linear-gradient(to left, var(--paper) 40%, transparent) 100% 0 / 3rem 100% no-repeat local,
  linear-gradient(to top, var(--paper) 40%, transparent) 0 100% / 100% 3rem no-repeat local,
  linear-gradient(to right, var(--soft), transparent) 0 0 / 1rem 100% no-repeat scroll,
  linear-gradient(to left, var(--soft), transparent) 100% 0 / 1rem 100% no-repeat scroll,
  linear-gradient(to top, var(--soft), transparent) 0 100% / 100% .7rem no-repeat scroll; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem .25rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); }
td { overflow-wrap: break-word; }
.n { text-align: right; }
td.n { white-space: nowrap; }
thead th { position: sticky; top: 0; background: var(--tint); padding-left: .4rem; vertical-align: bottom; }
.sortable td { padding-left: .4rem; }
.facts th { font-weight: 600; white-space: nowrap; }
th button { all: unset; cursor: pointer; font-weight: 600; }
th button:focus-visible, .zoom button:focus-visible, .view:focus-visible { outline: 2px solid var(--link); }
th[aria-sort=ascending] button::after { content: " \\25B2"; }
th[aria-sort=descending] button::after { content: " \\25BC"; }
details { margin: 1rem 0; }
summary { cursor: pointer; color: var(--link); }
.picture { margin: 1rem 0; }
.picture svg { display: block; width: 100%; height: auto; background: #ffffff; border-radius: 4px; }
.zoom { display: flex; gap: .4rem; align-items: center; margin-bottom: .3rem; }
.zoom button { font: inherit; min-width: 2rem; color: var(--ink); background: var(--tint);
  border: 1px solid var(--line); border-radius: 4px; cursor: pointer; }
.zoom span { color: var(--soft); font-size: .85rem; }
.zoomed { cursor: grab; touch-action: none; }
@media print {
  :root { --ink: #000000; --soft: #444444; --paper: #ffffff; --line: #bbbbbb; --tint: #ffffff; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  .zoom { display: none; }
  .scroll { overflow: visible; max-height: none; background: none; }
  /* What is folded is printed, too. */
  details::details-content { content-visibility: visible; height: auto; }
  thead th { position: static; }
  tr, figure { break-inside: avoid; }
}
"""
