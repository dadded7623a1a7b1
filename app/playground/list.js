// The second tab: a list of sentences, their similarity matrix, and near-duplicates.

import { postMatrix } from "./api.js";
import { Calibration } from "./calibration.js";
import { sequential } from "./colours.js";
import { copy, find, format, make, metricLabel } from "./common.js";
import { group, mostSimilar, orderBySimilarity, pairValues, thresholdReachedBy } from "./groups.js";
import { HeatMap, markLegend, range, showLegend } from "./heatmap.js";
import { LiveResults } from "./live.js";
import { commandsOf, connect, modelField } from "./snippets.js";
import { LazyTable } from "./tables.js";

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
// The default threshold as a share of the calibration's scale: the middle. Above it, a match is more
// likely than not, or a rating is nearer to "same gist" than to "some details in common".
const DEFAULT_SHARE = 0.5;
const TABLE_ROWS = 100; // pairs in the table of similarities

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
    this.table = new LazyTable(find("#matrix-table"));
    this.legend = find("#list .legend");
    this.groupLists = new Map(); // elements of the groups on the page, by their indices
    this.lines.addEventListener("input", () => this.linesChanged());
    this.metric.addEventListener("change", () => this.metricChanged());
    this.slider.addEventListener("input", () => this.thresholdChanged());
    find("#copy-unique").addEventListener("click", () => this.copyUnique());
    connect(find("#list .copies"), () => this.commands());
  }

  // Show the results of another model from now on.
  use(info) {
    const [chosen, unit] = [this.metric.value, this.unit];
    this.info = info;
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
    this.frame = requestAnimationFrame(() => this.showThreshold());
  }

  get threshold() {
    return this.chosenThreshold ?? this.defaultThreshold;
  }

  get inputs() {
    return this.lines.value.split("\n").map((line) => line.trim()).filter(Boolean);
  }

  // The commands that find the same pairs; null without results.
  commands() {
    const { calibration, inputs, metric } = this;
    if (this.live.results.hidden || inputs.length < 2) return null;
    const threshold = Math.floor(1e6 * this.threshold) / 1e6; // rounded down: pairs still reach it
    const on = calibration ? { threshold_on: calibration.kind } : {};
    return commandsOf("matrix", { inputs, metric: metric.value, threshold, ...on, ...modelField(this.info) });
  }

  async compare(signal) {
    const { inputs } = this;
    if (inputs.length < 2) {
      return inputs.length ? "Enter at least one more sentence, on a line of its own." : "Enter two or more sentences, one per line.";
    }
    const [scores, reached] = await Promise.all([
      postMatrix({ inputs, metric: this.metric.value }, signal),
      this.countMatches(inputs, signal),
    ]);
    if (signal.aborted) return "";
    this.sentences = inputs;
    this.scores = scores;
    this.values = this.calibration ? scores.map((score) => this.calibration.value(score)) : scores;
    this.range = range(this.values);
    this.order = orderBySimilarity(inputs.length, this.values);
    this.setDefaultThreshold(reached);
    this.live.results.hidden = false; // before drawing, which needs the width
    this.setSlider();
    this.showMatrix();
    this.groupLists.clear();
    this.showThreshold();
    return "";
  }

  // How many pairs reach the default threshold by the calibrated metric; null if there is none, or no
  // need to know.
  async countMatches(inputs, signal) {
    const { modelCalibration } = this;
    if (!modelCalibration || this.calibration || this.chosenThreshold !== null) return null;
    const scores = await postMatrix({ inputs, metric: modelCalibration.metric }, signal);
    const threshold = defaultValue(modelCalibration);
    let reached = 0;
    for (const score of pairValues(inputs.length, scores)) reached += modelCalibration.value(score) >= threshold;
    return reached;
  }

  // Without a calibration, metrics have no threshold of their own: take as many pairs as by the
  // calibrated metric.
  setDefaultThreshold(reached) {
    const { calibration, modelCalibration } = this;
    const values = pairValues(this.sentences.length, this.values);
    this.defaultThreshold = calibration ? defaultValue(calibration) : thresholdReachedBy(reached ?? 0, values);
    let origin = `Default threshold: the middle of the model's ${calibration?.kind} scale.`;
    if (!modelCalibration) origin = "This model has no calibration, and so no default threshold: choose one with the slider.";
    else if (!calibration) {
      const value = modelCalibration.format(defaultValue(modelCalibration), 2);
      origin = `Default threshold: as many pairs as ${modelCalibration.metric}, the calibrated metric, finds at ${value}.`;
    }
    this.origin = origin;
  }

  // The slider covers the values of all pairs and the threshold, which a URL may set beyond them.
  setSlider() {
    const [low, high] = range([...pairValues(this.sentences.length, this.values), this.threshold]);
    find("#threshold-unit").textContent = this.calibration ? `, as a ${this.calibration.kind}` : "";
    this.slider.min = low;
    this.slider.max = high;
    this.slider.value = this.threshold;
  }

  // Update what depends on the threshold; the matrix and its order do not.
  showThreshold() {
    const { calibration, threshold, values, range: [lowest, highest] } = this;
    const text = this.formatValue(threshold);
    const score = calibration && ` (${this.metric.value} ${format(calibration.score(threshold))})`;
    find("#threshold-value").textContent = `${text}${score ?? ""}`;
    this.slider.setAttribute("aria-valuetext", text);
    find("#threshold-origin").textContent = this.chosenThreshold === null ? this.origin : "";
    markLegend(this.legend, (threshold - lowest) / (highest - lowest || 1));
    const [low, high] = calibration?.scale ?? [0, 1];
    // Compare values, not scores: where the map is nearly flat, its inverse is inexact.
    const groups = group(this.sentences.length, values, threshold - ROUNDING_ERROR * (high - low));
    this.duplicates = groups.filter((members) => members.length > 1);
    this.showDuplicates();
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
    this.showGroups();
    find("#copy-unique").hidden = !duplicates.length;
  }

  // Show the groups; those that were on the page before keep their elements.
  showGroups() {
    const { duplicates, groupLists, sentences } = this;
    const lists = new Map(duplicates.map((members) => {
      const key = members.join();
      return [key, groupLists.get(key) ?? make("ul", {}, ...members.map((index) => make("li", {}, sentences[index])))];
    }));
    const same = [...lists.keys()].join(";") === [...groupLists.keys()].join(";");
    if (!same || !lists.size) find("#duplicates").replaceChildren(...lists.values());
    this.groupLists = lists;
  }

  showMatrix() {
    const { order, values, sentences } = this;
    const count = sentences.length;
    const [low, high] = this.range;
    const colour = sequential(low, high);
    const value = (i, j) => values[order[i] * count + order[j]];
    const names = order.map((index) => sentences[index]);
    const labels = { rows: names, columns: names };
    const digits = this.calibration?.kind === "rating" ? 1 : 2;
    const text = (similarity) => format(similarity, digits);
    this.map.show({ rows: count, columns: count, value, colour, labels, margin: 150, text },
      `Similarity of ${count} sentences to each other; use the arrow keys to explore.`);
    this.map.details.textContent = "";
    showLegend(this.legend, colour, low, high);
    this.table.show(() => this.pairTable());
  }

  // Only the most similar pairs: a table of all cells would be too long to read.
  pairTable() {
    const { calibration, metric, sentences, values } = this;
    const count = sentences.length;
    const total = (count * (count - 1)) / 2;
    const rows = mostSimilar(count, values, TABLE_ROWS).map(([i, j]) =>
      [this.formatValue(values[i * count + j]), sentences[i], sentences[j]]);
    const caption = total <= TABLE_ROWS ? "All pairs" : `The ${TABLE_ROWS} most similar of ${total.toLocaleString("en")} pairs`;
    return [[calibration?.kind ?? metric.value, "first sentence", "second sentence"], rows, caption];
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

// The default threshold of a calibrated metric, as a value of the calibration.
function defaultValue({ scale: [low, high] }) {
  return low + DEFAULT_SHARE * (high - low);
}
