// Shared by all tabs: elements, number formats, and copying.

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
    // Over plain HTTP, browsers offer no clipboard but that of a selection.
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else if (!copySelection(text)) throw new Error("refused");
    toast(confirmation);
  } catch {
    toast("The browser does not allow this page to copy.");
  }
}

function copySelection(text) {
  const [focused, area] = [document.activeElement, make("textarea", { value: text, className: "offscreen" })];
  document.body.append(area);
  area.select();
  try {
    return document.execCommand("copy");
  } finally {
    area.remove();
    focused?.focus();
  }
}
