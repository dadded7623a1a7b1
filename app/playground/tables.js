// Tables, which are also the text alternatives of heat maps and charts.

import { find, make } from "./common.js";

// A text with an explanation below it, for a table.
export const withNote = (text, note) => make("span", {}, text, make("small", { className: "quiet" }, note));

// Fill a table: a header row, unless `header` is null, and rows of cells, the first of which is a header.
export function fillTable(table, header, rows, caption = "") {
  const row = ([name, ...cells]) =>
    make("tr", {}, make("th", { scope: "row" }, name), ...cells.map((cell) => make("td", {}, cell)));
  table.replaceChildren(make("tbody", {}, ...rows.map(row)));
  if (header) table.createTHead().append(headerRow(...header));
  if (caption) table.createCaption().textContent = caption;
}

export const headerRow = (...names) => make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, name)));

// A table in a <details> element, filled only while that is open: large ones take time.
export class LazyTable {
  constructor(details) {
    this.details = details;
    this.table = find("table", details);
    details.addEventListener("toggle", () => this.fill());
  }

  // `content()` returns the arguments of `fillTable` that follow the table.
  show(content) {
    this.content = content;
    this.table.replaceChildren();
    this.fill();
  }

  fill() {
    if (!this.details.open || !this.content) return;
    fillTable(this.table, ...this.content());
    this.content = null;
  }
}
