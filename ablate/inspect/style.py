"""The style sheet of the page: light and dark, wide and narrow screens, no file but the page."""

STYLE = """\
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --faint: #5b6470; --edge: #d8dde3;
  --card: #f6f8fa; --bar: #3b82a8; --masked: #cfeaf6; --masked-ink: #0b465e; --replaced: #ffe2ad;
  --replaced-ink: #5f3b00; --visible: #cdeccf; --visible-ink: #12492a; --unpredicted: #ecd9f8;
  --unpredicted-ink: #511b7c; --out: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --paper: #14171a; --faint: #9aa4af;
  --edge: #363c43; --card: #1d2125; --bar: #5aa9cf; --masked: #123f52; --masked-ink: #c3e9f8;
  --replaced: #553905; --replaced-ink: #ffe0a3; --visible: #16412a; --visible-ink: #c0f0cb;
  --unpredicted: #47215f; --unpredicted-ink: #efd2ff; --out: #ff8a80; } }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 60rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.4rem; line-height: 1.25; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
code, pre { font-family: ui-monospace, monospace; font-size: .875rem; }
code { background: var(--card); padding: .15rem .35rem; border-radius: .25rem; }
pre { overflow-x: auto; } code, .row p, tbody th { overflow-wrap: anywhere; }
small, .small { color: var(--faint); font-size: .8125rem; }
.row { background: var(--card); border: 1px solid var(--edge); border-radius: .5rem;
  padding: .5rem .75rem; margin: .6rem 0; }
.row p { margin: .3rem 0; line-height: 1.9; } .row .small { line-height: 1.4; }
.row .small b { color: var(--ink); margin-right: .4rem; }
.row span, .legend span { border-radius: .25rem; padding: .1rem .2rem;
  -webkit-box-decoration-break: clone; box-decoration-break: clone; }
.masked { background: var(--masked); color: var(--masked-ink); }
.replaced { background: var(--replaced); color: var(--replaced-ink); }
.visible { background: var(--visible); color: var(--visible-ink); }
.unpredicted { background: var(--unpredicted); color: var(--unpredicted-ink); }
.row .special, .legend .special { color: var(--faint); padding: 0; }
.legend { list-style: none; padding: 0; } .legend li { margin: .35rem 0; }
table { border-collapse: collapse; width: 100%; font-size: .9375rem;
  font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .35rem .5rem; }
.num { text-align: right; white-space: nowrap; } th:first-child { padding-left: 0; }
tbody th { font-weight: 600; }
th small, td small { display: block; font-weight: 400; }
thead th { border-bottom: 1px solid var(--faint); color: var(--faint); font-weight: 400; }
tr.first > * { border-top: 1px solid var(--edge); } .out { color: var(--out); }
.bar { display: grid; grid-template-columns: 5.5rem 1fr 20rem; gap: .6rem; align-items: center;
  margin: .15rem 0; font-size: .875rem; font-variant-numeric: tabular-nums; }
.bar > b { text-align: right; font-weight: 400; }
.track { position: relative; height: 1rem; background: var(--card); border-radius: .2rem; }
.track i { position: absolute; inset: 0 auto 0 0; background: var(--bar); border-radius: .2rem; }
.track s { position: absolute; top: -.15rem; bottom: -.15rem; width: 2px; margin-left: -1px;
  background: var(--ink); }
details { margin-top: 2rem; }
@media (max-width: 42rem) {
  thead { display: none; } table, tbody, tr, th, td { display: block; }
  .num { text-align: left; white-space: normal; }
  tbody tr { border-top: 1px solid var(--edge); padding: .4rem 0; } tr.first > * { border: 0; }
  th, td { padding: .05rem 0; } td:empty { display: none; }
  td::before { content: attr(data-label) ": "; color: var(--faint); }
  td small { display: inline; margin-left: .4rem; } td small:first-child { margin: 0; }
  .bar { grid-template-columns: 4rem 1fr; } .bar > span { grid-column: 2; } }
"""
