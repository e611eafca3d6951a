"use strict";
// Tables sort by their heads and filter by text and verdict. Without this script they are whole, the gravest first.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const key = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.sort ?? cell.textContent;
  };
  const sort = (column) => {
    const head = heads[column];
    const ascending = head.getAttribute("aria-sort") !== "ascending";
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    const isNumber = head.classList.contains("number");
    const compare = (a, b) => {
      if (a === b) return 0;
      if (a === "" || b === "") return a === "" ? 1 : -1; // what has no value comes last, either way
      const order = isNumber ? Number(a) - Number(b) : a < b ? -1 : 1;
      return ascending ? order : -order;
    };
    const rows = [...body.rows].map((row) => [key(row, column), row]);
    rows.sort(([a], [b]) => compare(a, b));
    body.append(...rows.map(([, row]) => row));
  };
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", () => sort(column));
    head.replaceChildren(button);
  });

  const tools = document.querySelector(`form.tools[data-for="${table.id}"]`);
  const filter = () => {
    const text = tools.elements.text.value.trim().toLowerCase();
    const verdict = tools.elements.verdict.value;
    let shown = 0;
    for (const row of body.rows) {
      const found = `${row.textContent} ${row.dataset.id ?? ""}`.toLowerCase();
      const fits = (!verdict || row.dataset.verdict === verdict) && found.includes(text);
      row.hidden = !fits;
      shown += fits;
    }
    tools.querySelector("output").textContent = `${shown.toLocaleString("en")} of ${body.rows.length.toLocaleString("en")} shown`;
  };
  tools.addEventListener("input", filter);
  tools.addEventListener("submit", (event) => event.preventDefault());
  tools.hidden = false;
  filter();
}
