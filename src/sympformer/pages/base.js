"use strict";
// Light or dark: as the system has it, until the button says otherwise.
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
// Sorting: a head's button sorts the ranked rows by their cells' data-sort; cells without one stay last.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.querySelector("tbody.ranked");
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    const key = (row) => row.cells[column].dataset.sort;
    const order = (a, b) => (isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b) * (down ? -1 : 1);
    const rows = body ? [...body.rows] : [];
    rows.sort((a, b) => (key(a) === "") - (key(b) === "") || order(key(a), key(b)));
    for (const row of rows) body.append(row);
    for (const other of heads) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
  }));
}
