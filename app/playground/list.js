// The second tab: a list of sentences, their similarity matrix, and near-duplicates.

import { postMatrix } from "./api.js";
import { Calibration } from "./calibration.js";
import { sequential } from "./colours.js";
import { copy, find, format, LiveResults, make, metricLabel } from "./common.js";
import { HeatMap, range, showLegend } from "./heatmap.js";

const EXAMPLE = [
  "How do I reset my password?",
  "I forgot my password and cannot log in.",
  "Where can I change my password?",
  "The delivery has not arrived yet.",
  "My parcel still is not here.",
  "Can I pay by credit card?",
  "Do you accept credit cards?",
  "What are your opening hours?",
];
const ROUNDING_ERROR = 1e-6; // of similarities, as a share of the scale if calibrated
// The middle of a calibration's scale: more likely a match than not, or nearer to "same gist" than to
// "some details in common". On STSb dev, about 1 % of the unrelated pairs reach it.
const DEFAULT_SHARE = 0.5;
// Scores for metrics without a calibration; with the model `default`, 95 % of the unrelated pairs of
// STSb's training split score lower.
const DEFAULT_SCORES = { cosine: 0.7, js: 0.82, bhattacharyya: 0.87, centred: 0.62, l2: -2.9 };

export class ListTab {
  // `info` is the response of `/info`; `onChange` is called when the input changes.
  constructor(info, onChange) {
    this.onChange = onChange;
    this.metric = find("#list-metric");
    this.lines = find("#lines");
    this.slider = find("#threshold");
    this.chosenThreshold = null; // from the URL or the slider, in the unit of the slider
    this.opened = false;
    this.use(info);
    this.live = new LiveResults(find("#list"), (signal) => this.compare(signal));
    this.map = new HeatMap(find("#matrix"), (i, j) => this.describePair(i, j));
    this.lines.addEventListener("input", () => this.linesChanged());
    this.metric.addEventListener("change", () => this.metricChanged());
    this.slider.addEventListener("input", () => this.thresholdChanged());
    find("#copy-unique").addEventListener("click", () => this.copyUnique());
  }

  // Show the results of another model from now on.
  use(info) {
    const [chosen, unit] = [this.metric.value, this.unit];
    this.metrics = info.metrics;
    this.modelCalibration = Calibration.of(info);
    const option = (metric) => make("option", { value: metric }, metricLabel(metric, info));
    this.metric.replaceChildren(...info.metrics.map(option));
    if (info.metrics.includes(chosen)) this.metric.value = chosen;
    if (this.unit !== unit) this.chosenThreshold = null;
  }

  // The calibration of the selected metric; null if there is none.
  get calibration() {
    return this.modelCalibration?.metric === this.metric.value ? this.modelCalibration : null;
  }

  // What thresholds are: the unit of a calibration, or a metric.
  get unit() {
    return this.calibration?.unit ?? this.metric.value;
  }

  // The input, for the URL.
  fields() {
    const { metric, lines, chosenThreshold: threshold, calibration } = this;
    const fields = { list: lines.value, metric: metric.value };
    if (threshold === null) return fields;
    return { ...fields, threshold, ...(calibration ? { threshold_on: calibration.kind } : {}) };
  }

  fill(fields) {
    if (this.metrics.includes(fields.get("metric"))) this.metric.value = fields.get("metric");
    this.chosenThreshold = this.readThreshold(fields);
    this.lines.value = fields.get("list") ?? "";
  }

  // The threshold of a URL, in the unit of the slider. As in the API, it is a score unless
  // `threshold_on` says otherwise. Null if there is none, or the model cannot convert it.
  readThreshold(fields) {
    const threshold = Number.parseFloat(fields.get("threshold"));
    const on = fields.get("threshold_on") ?? "score";
    if (!Number.isFinite(threshold)) return null;
    if (on === "score") return this.calibration ? this.calibration.value(threshold) : threshold;
    return on === this.calibration?.kind ? threshold : null;
  }

  open() {
    if (!this.opened && !this.lines.value) this.lines.value = EXAMPLE.join("\n");
    this.opened = true;
    this.live.run();
  }

  linesChanged() {
    this.onChange();
    this.live.schedule(400);
  }

  metricChanged() {
    this.chosenThreshold = null; // metrics have different scales, or none
    this.onChange();
    this.live.run();
  }

  thresholdChanged() {
    this.chosenThreshold = Number(this.slider.value);
    this.onChange();
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.show());
  }

  get threshold() {
    if (this.chosenThreshold !== null) return this.chosenThreshold;
    if (!this.calibration) return DEFAULT_SCORES[this.metric.value];
    const [low, high] = this.calibration.scale;
    return low + DEFAULT_SHARE * (high - low);
  }

  async compare(signal) {
    const inputs = this.lines.value.split("\n").map((line) => line.trim()).filter(Boolean);
    if (inputs.length < 2) return false;
    const scores = await postMatrix({ inputs, metric: this.metric.value }, signal);
    if (signal.aborted) return false;
    this.sentences = inputs;
    this.scores = scores;
    this.values = this.calibration ? scores.map((score) => this.calibration.value(score)) : scores;
    this.range = range(this.values);
    this.live.results.hidden = false; // before drawing, which needs the width
    this.setSlider();
    this.show();
    return true;
  }

  // The slider covers the values of all pairs and the threshold, which a URL may set beyond them.
  setSlider() {
    const [low, high] = range([...this.pairValues(), this.threshold]);
    find("#threshold-unit").textContent = this.calibration ? `, as a ${this.calibration.kind}` : "";
    this.slider.min = low;
    this.slider.max = high;
    this.slider.value = this.threshold;
  }

  *pairValues() {
    const count = this.sentences.length;
    for (let i = 0; i < count; i += 1) {
      for (let j = i + 1; j < count; j += 1) yield this.values[i * count + j];
    }
  }

  show() {
    const { calibration, threshold, values } = this;
    const text = this.formatValue(threshold);
    const score = calibration && ` (${this.metric.value} ${format(calibration.score(threshold))})`;
    find("#threshold-value").textContent = `${text}${score ?? ""}`;
    this.slider.setAttribute("aria-valuetext", text);
    const [low, high] = calibration?.scale ?? [0, 1];
    // Compare values, not scores: where the map is nearly flat, its inverse is inexact.
    const groups = group(this.sentences.length, values, threshold - ROUNDING_ERROR * (high - low));
    this.duplicates = groups.filter((members) => members.length > 1);
    this.order = groups.flat();
    this.showDuplicates();
    this.showMatrix();
  }

  formatValue(value) {
    return this.calibration ? this.calibration.format(value, 2) : format(value);
  }

  showDuplicates() {
    const { duplicates, sentences } = this;
    const grouped = duplicates.flat().length;
    const unique = sentences.length - grouped + duplicates.length;
    const groups = duplicates.length === 1 ? "1 group" : `${duplicates.length} groups`;
    find("#summary").textContent = duplicates.length
      ? `${grouped} of ${sentences.length} sentences form ${groups} of near-duplicates; ${unique} remain without duplicates.`
      : `No near-duplicates among ${sentences.length} sentences.`;
    find("#duplicates").replaceChildren(...duplicates.map((members) =>
      make("ul", {}, ...members.map((index) => make("li", {}, sentences[index])))));
    find("#copy-unique").hidden = !duplicates.length;
  }

  showMatrix() {
    const { order, values, sentences } = this;
    const count = sentences.length;
    const [low, high] = this.range;
    const colour = sequential(low, high);
    const value = (i, j) => values[order[i] * count + order[j]];
    const names = order.map((index) => sentences[index]);
    const labels = { rows: names, columns: names };
    this.map.show({ rows: count, columns: count, value, colour, labels, margin: 150 },
      `Similarity of ${count} sentences to each other; use the arrow keys to explore.`);
    this.map.details.textContent = "";
    showLegend(find("#list .legend"), colour, low, high);
  }

  describePair(i, j) {
    const [a, b] = [this.order[i], this.order[j]];
    const position = a * this.sentences.length + b;
    const score = `${this.metric.value} ${format(this.scores[position])}`;
    const text = this.calibration ? `${this.formatValue(this.values[position])} (${score})` : score;
    this.map.details.textContent = `${text}: “${this.sentences[a]}” and “${this.sentences[b]}”`;
  }

  copyUnique() {
    const dropped = new Set(this.duplicates.flatMap((members) => members.slice(1)));
    const unique = this.sentences.filter((_, index) => !dropped.has(index));
    copy(unique.join("\n"), `${unique.length} sentences copied.`);
  }
}

// Group indices: each ungrouped one takes all later ones that are similar to it, so that the first
// can represent its group. Larger groups come first.
function group(count, values, threshold) {
  const grouped = new Set();
  const groups = [];
  for (let i = 0; i < count; i += 1) {
    if (grouped.has(i)) continue;
    const members = [i];
    for (let j = i + 1; j < count; j += 1) {
      if (!grouped.has(j) && values[i * count + j] >= threshold) members.push(j);
    }
    members.forEach((index) => grouped.add(index));
    groups.push(members);
  }
  return groups.sort((x, y) => y.length - x.length);
}
