// The calibrated similarity of a pair: a number, a meter with the words of its scale, and its origin.

import { find, make } from "./common.js";

export class Meaning {
  constructor(element) {
    this.element = element;
    this.value = find(".value", element);
    this.words = find(".words", element);
    this.meter = find("[role='meter']", element);
    this.ticks = find(".ticks", element);
    this.origin = find(".origin", element);
  }

  // Show values of this calibration from now on; null hides the element.
  use(calibration) {
    this.calibration = calibration;
    this.element.hidden = !calibration;
    if (!calibration) return;
    const { about, kind, scale, words } = calibration;
    const ends = kind === "probability" ? ["0\u00a0%", "100\u00a0%"] : scale.map(String);
    const ticks = words
      ? words.map((text, i) => make("li", {}, make("b", {}, String(i)), make("span", {}, text)))
      : ends.map((text) => make("li", {}, make("b", {}, text)));
    this.ticks.replaceChildren(...ticks);
    const name = kind === "probability" ? "Probability" : "Rating";
    this.origin.textContent =
      `${name} fitted on: ${about}. It may be off for other kinds of text: check it with your own labelled pairs.`;
  }

  show(value) {
    const { calibration } = this;
    const [low, high] = calibration.scale;
    const [number, words] = [calibration.format(value), calibration.describe(value)];
    this.value.textContent = number;
    this.words.textContent = words;
    this.meter.style.setProperty("--share", calibration.share(value).toFixed(4));
    const attributes = { valuemin: low, valuemax: high, valuenow: value, valuetext: `${number} ${words}`.trim() };
    for (const [name, content] of Object.entries(attributes)) this.meter.setAttribute(`aria-${name}`, content);
  }
}
