// What both tabs need: elements, numbers in words, waiting for the last keystroke.

import { Refused } from "./api.js";

export const find = (selector, within = document) => within.querySelector(selector);

// An element with properties and children; text is always text, never markup.
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

export const number = (value, digits = 3) => value.toFixed(digits).replace("-", "−");

export const signed = (value) => (value < 0 ? "" : "+") + number(value);

// The words of a text by characters as Python counts them, which JavaScript does not.
export const characters = (text) => Array.from(text);

export const shortened = (text, most = 60) => {
  const found = characters(text);
  return found.length > most ? `${found.slice(0, most - 1).join("")}…` : text;
};

export function toast(message) {
  find("#toast").textContent = message;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => (find("#toast").textContent = ""), 3000);
}

export async function copy(text, said) {
  try {
    await navigator.clipboard.writeText(text);
    toast(said);
  } catch {
    toast("The browser does not let this page copy.");
  }
}

// Work that follows what is typed: only the newest counts, and it says in words what went wrong.
export class Live {
  constructor(section, work) {
    this.section = section;
    this.work = work;
    this.error = find(".error", section);
    this.results = find(".results", section);
  }

  later(milliseconds = 250) {
    clearTimeout(this.timer);
    this.running?.abort();
    this.section.setAttribute("aria-busy", "true");
    this.timer = setTimeout(() => this.now(), milliseconds);
  }

  async now() {
    clearTimeout(this.timer);
    this.running?.abort();
    const running = (this.running = new AbortController());
    this.section.setAttribute("aria-busy", "true");
    try {
      const complete = await this.work(running.signal);
      if (running.signal.aborted) return;
      this.error.textContent = "";
      this.results.hidden = !complete;
    } catch (error) {
      if (running.signal.aborted) return;
      this.fail(error);
    }
    this.section.removeAttribute("aria-busy");
  }

  fail(error) {
    this.results.hidden = true;
    if (!(error instanceof Refused)) throw error;
    this.error.textContent = error.message;
    if (error.status === 401) {
      find("#key").hidden = false;
      find("#key-value").focus();
    }
    if (error.retryAfter) this.later(error.retryAfter * 1000);
  }
}
