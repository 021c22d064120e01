"""Style sheet and script of the page: light and dark, wide and narrow, no file but the page."""

STYLE = """\
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --faint: #5b6470; --edge: #d8dde3;
  --card: #f6f8fa; --band: #e9edf2; --better: #00563d; --worse: #8f3a00; --equivalent: #005a8c;
  --link: #005a8c; --shade: #0003; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --paper: #14171a; --faint: #9aa4af;
  --edge: #363c43; --card: #1d2125; --band: #2a3037; --better: #58d3a8; --worse: #ff9d5c;
  --equivalent: #7cc4f0; --link: #7cc4f0; --shade: #fff4; } }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 72rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; line-height: 1.25; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .5rem; }
p, ul { max-width: 46rem; overflow-wrap: anywhere; } ul { padding-left: 1.2rem; }
a { color: var(--link); } .strong { background: var(--card); border-left: .25rem solid var(--faint);
  padding: .6rem .8rem; }
pre, code { font-family: ui-monospace, monospace; font-size: .875rem; }
pre { background: var(--card); padding: .6rem .8rem; overflow-x: auto; }
.box { overflow-x: auto; width: fit-content; max-width: 100%; border: 1px solid var(--edge);
  border-radius: .4rem; background: linear-gradient(to left, var(--paper) 40%, transparent)
  right / 3rem 100% no-repeat local, linear-gradient(to left, var(--shade), transparent)
  right / 1rem 100% no-repeat scroll; } /* a shade where columns go on */
.box:focus-visible, th button:focus-visible { outline: 2px solid var(--link);
  outline-offset: -2px; }
.note { color: var(--faint); font-size: .875rem; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .4rem .6rem; max-width: 26rem; }
td { min-width: 3rem; overflow-wrap: break-word; }
thead th { border-bottom: 1px solid var(--faint); font-weight: 600; padding: 0;
  vertical-align: bottom; }
th button { all: unset; box-sizing: border-box; display: block; width: 100%; cursor: pointer;
  padding: .4rem .6rem; }
th button::after { content: "\\a0\\2195"; color: var(--faint); }
th[aria-sort=ascending] button::after { content: "\\a0\\2191"; color: inherit; }
th[aria-sort=descending] button::after { content: "\\a0\\2193"; color: inherit; }
tbody tr + tr > * { border-top: 1px solid var(--edge); } tbody th { font-weight: 600;
  white-space: nowrap; } tbody th.long { white-space: normal; overflow-wrap: anywhere; }
tbody th:not(.long) wbr { display: none; } /* the name of a row stays in view */
tbody th, thead th:first-child { position: sticky; left: 0; background: var(--paper); }
@media (max-width: 42rem) { tbody th, tbody th.long { white-space: normal; min-width: 8.5rem;
  max-width: 11rem; overflow-wrap: anywhere; } tbody th:not(.long) wbr { display: inline; } }
.num { text-align: right; } td.num { white-space: nowrap; } .words { min-width: 7rem; }
.long { min-width: 15rem; overflow-wrap: anywhere; }
.kind { white-space: nowrap; } .better, .worse, .equivalent { font-weight: 600; }
.better { color: var(--better); } .better::before { content: "\\25B2\\a0"; }
.worse { color: var(--worse); } .worse::before { content: "\\25BC\\a0"; }
.equivalent { color: var(--equivalent); } .equivalent::before { content: "= "; }
.not_trained_enough, .undecided, .descriptive { color: var(--faint); }
.undecided::before { content: "? "; } .not_trained_enough::before { content: "! "; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr));
  gap: 1.5rem; align-items: start; }
figure { margin: 0; min-width: 0; } figcaption { color: var(--faint); font-size: .875rem;
  overflow-wrap: anywhere; }
figure b { color: var(--ink); } .wide { grid-column: 1 / -1; }
.plot { overflow-x: auto; } .plot svg { display: block; max-width: 100%; height: auto; }
.wide .plot svg { max-width: none; }
"""

SCRIPT = """\
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = row => row.cells[column].dataset.key ?? row.cells[column].textContent;
      const numeric = head.dataset.kind === "number";
      [...body.rows].sort((a, b) => {
        const x = key(a), y = key(b);
        if (numeric && (x === "" || y === "")) return (x === "") - (y === "");
        const order = numeric ? x - y : x.localeCompare(y, "en", {numeric: true});
        return up ? order : -order;
      }).forEach(row => body.append(row));
    });
  });
}
"""
