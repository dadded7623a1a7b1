// Results that follow the input of a tab.

import { find } from "./common.js";
import { showError } from "./errors.js";

// Runs a tab's comparison when its input changes; a new run aborts the previous one.
export class LiveResults {
  // `compare(signal)` shows the results and returns "", or returns which input is missing.
  constructor(section, compare) {
    this.section = section;
    this.compare = compare;
    this.error = find(".error", section);
    this.hint = find(".hint", section);
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
      const missing = await this.compare(signal);
      if (signal.aborted) return;
      this.error.textContent = "";
      this.hint.textContent = missing;
      this.results.hidden = missing !== "";
    } catch (error) {
      if (!signal.aborted) this.fail(error);
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
    this.hint.textContent = "";
    showError(this.error, error, () => this.run());
    if (error.status === 401) {
      find("#key").hidden = false;
      find("#key-value").focus();
    }
    if (error.retryAfter) this.schedule(error.retryAfter * 1000);
  }
}
