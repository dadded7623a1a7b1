// The choice of a threshold: precision and recall by threshold, and the numbers at the chosen one.

import { Chart } from "./chart.js";
import { find, format } from "./common.js";
import { fillTable, withNote } from "./tables.js";

const TABLE_ROWS = 20;
const DIGITS = 4; // of thresholds

const percent = (share) => `${(100 * share).toFixed(1)}\u00a0%`;

// Rounded down, so that the pairs at the threshold still reach it.
export const roundThreshold = (score) => Math.floor(score * 10 ** DIGITS) / 10 ** DIGITS;

export class ThresholdChoice {
  // `onChange(score)` is called when a threshold is chosen.
  constructor(element, onChange) {
    this.onChange = onChange;
    this.svg = find("svg", element);
    this.numbers = find(".numbers", element);
    this.table = find("figure table", element);
    this.slider = find("input[type=range]", element);
    this.output = find("output", element);
    this.slider.addEventListener("input", () => this.choose(Number(this.slider.value)));
  }

  // `curve` is the one of `/evaluate`; `calibration` is null unless it maps this metric.
  show(curve, metric, calibration) {
    this.points = [...curve].reverse(); // lowest threshold first, as on the slider
    this.metric = metric;
    this.calibration = calibration;
    this.draw();
    this.showTable();
    this.addNumbers();
    const last = this.points.length - 1;
    Object.assign(this.slider, { min: 0, max: last, step: 1 });
    const best = indexOfBest(this.points);
    this.slider.value = best;
    this.choose(best);
  }

  draw() {
    const [low, high] = [this.points[0].threshold, this.points.at(-1).threshold];
    const x = { low, high, label: `threshold, ${this.metric}`, format: (value) => format(value, 2) };
    const y = { low: 0, high: 1, label: "precision, recall", format: (value) => `${Math.round(100 * value)}\u00a0%` };
    this.chart = new Chart(this.svg, x, y, "Precision and recall by threshold.");
    for (const name of ["precision", "recall"]) {
      this.chart.line(this.points.map((point) => [point.threshold, point[name]]), name);
    }
  }

  showTable() {
    const last = this.points.length - 1;
    const count = Math.min(TABLE_ROWS, last + 1);
    const rows = Array.from({ length: count }, (_, i) => this.points[Math.round((i * last) / Math.max(1, count - 1))]);
    fillTable(this.table, ["threshold", "precision", "recall"], rows.map((point) =>
      [format(point.threshold), percent(point.precision), percent(point.recall)]));
  }

  // The table of numbers at the threshold. The slider changes only its texts.
  addNumbers() {
    const texts = { precision: new Text(), recall: new Text(), value: new Text() };
    const rows = [
      [withNote("Precision", "share of matches among the pairs that reach the threshold"), texts.precision],
      [withNote("Recall", "share of the matches that reach the threshold"), texts.recall],
    ];
    const kind = this.calibration?.kind === "rating" ? "Rating" : "Probability";
    if (this.calibration) rows.push([withNote(kind, "of a pair at the threshold, by the model's calibration"), texts.value]);
    fillTable(this.numbers, null, rows);
    this.texts = texts;
  }

  choose(index) {
    const { threshold, precision, recall } = this.points[index];
    const score = roundThreshold(threshold);
    const text = `${this.metric} ${format(score, DIGITS)}`;
    this.output.textContent = text;
    this.slider.setAttribute("aria-valuetext", `${text}, precision ${percent(precision)}, recall ${percent(recall)}`);
    this.chart.mark(threshold);
    this.texts.precision.data = percent(precision);
    this.texts.recall.data = percent(recall);
    this.texts.value.data = this.calibration?.format(this.calibration.value(score), 2) ?? "";
    this.onChange(score);
  }
}

// Index of the point with the best F1.
function indexOfBest(points) {
  const scores = points.map(({ precision, recall }) => (precision * recall) / (precision + recall || 1));
  return scores.indexOf(Math.max(...scores));
}
