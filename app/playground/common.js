// Shared by all tabs: elements, number formats, copying, and requests that follow the input.

import { UserError } from "./errors.js";

export const find = (selector, parent = document) => parent.querySelector(selector);

// Create an element with properties and children. Strings become text nodes, never markup.
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

export const format = (value, digits = 3) => value.toFixed(digits).replace("-", "−");

export const formatSigned = (value) => (value < 0 ? "" : "+") + format(value);

// `info.metrics` has the recommended one first.
export const metricLabel = (metric, info) => (metric === info.recommended_metric ? `${metric} (recommended)` : metric);

// Unicode characters, as Python counts them; JavaScript's string indices count UTF-16 units.
export const characters = (text) => Array.from(text);

export const shorten = (text, limit = 60) => {
  const all = characters(text);
  return all.length > limit ? `${all.slice(0, limit - 1).join("")}…` : text;
};

export function toast(message) {
  find("#toast").textContent = message;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => (find("#toast").textContent = ""), 3000);
}

export async function copy(text, confirmation) {
  try {
    await navigator.clipboard.writeText(text);
    toast(confirmation);
  } catch {
    toast("The browser does not allow this page to copy.");
  }
}

// A text with an explanation below it, for a table.
export const withNote = (text, note) => make("span", {}, text, make("small", { className: "quiet" }, note));

// Fill a table: a header row, unless `header` is null, and rows of cells, the first of which is a header.
export function fillTable(table, header, rows) {
  const row = ([name, ...cells]) =>
    make("tr", {}, make("th", { scope: "row" }, name), ...cells.map((cell) => make("td", {}, cell)));
  table.replaceChildren(make("tbody", {}, ...rows.map(row)));
  if (!header) return;
  table.createTHead().append(make("tr", {}, ...header.map((name) => make("th", { scope: "col" }, name))));
}

// Runs a tab's comparison when its input changes; a new run aborts the previous one.
export class LiveResults {
  // `compare(signal)` returns whether there are results to show.
  constructor(section, compare) {
    this.section = section;
    this.compare = compare;
    this.error = find(".error", section);
    this.results = find(".results", section);
  }

  schedule(milliseconds = 250) {
    this.restart();
    this.timer = setTimeout(() => this.run(), milliseconds);
  }

  async run() {
    this.restart();
    const { signal } = (this.controller = new AbortController());
    try {
      const complete = await this.compare(signal);
      if (signal.aborted) return;
      this.error.textContent = "";
      this.results.hidden = !complete;
    } catch (error) {
      if (signal.aborted) return;
      this.fail(error);
    } finally {
      if (!signal.aborted) this.section.removeAttribute("aria-busy");
    }
  }

  // Abort the run; the results stay as they are.
  stop() {
    clearTimeout(this.timer);
    this.controller?.abort();
    this.section.removeAttribute("aria-busy");
  }

  // Abort the previous run and show that results are outdated.
  restart() {
    clearTimeout(this.timer);
    this.controller?.abort();
    this.section.setAttribute("aria-busy", "true");
  }

  fail(error) {
    this.results.hidden = true;
    if (!(error instanceof UserError)) throw error;
    this.error.textContent = error.message;
    if (error.status === 401) {
      find("#key").hidden = false;
      find("#key-value").focus();
    }
    if (error.retryAfter) this.schedule(error.retryAfter * 1000);
  }
}
