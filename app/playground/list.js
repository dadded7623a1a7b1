// The second tab: a list of sentences, their similarity matrix, and near-duplicates.

import { postMatrix } from "./api.js";
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
const ROUNDING_ERROR = 1e-6; // of similarities
// With the default model, 95 % of the unrelated pairs of STSb's training split score lower.
const DEFAULT_THRESHOLDS = { cosine: 0.7, js: 0.82, bhattacharyya: 0.87, centred: 0.62, l2: -2.9 };

export class ListTab {
  // `info` is the response of `/info`; `onChange` is called when the input changes.
  constructor(info, onChange) {
    this.onChange = onChange;
    this.metric = find("#list-metric");
    this.lines = find("#lines");
    this.slider = find("#threshold");
    this.chosenThreshold = null; // from the URL or the slider
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
    const chosen = this.metric.value;
    this.metrics = info.metrics;
    const option = (metric) => make("option", { value: metric }, metricLabel(metric, info));
    this.metric.replaceChildren(...info.metrics.map(option));
    if (info.metrics.includes(chosen)) this.metric.value = chosen;
  }

  // The input, for the URL.
  fields() {
    const { metric, lines, chosenThreshold: threshold } = this;
    return { list: lines.value, metric: metric.value, ...(threshold === null ? {} : { threshold }) };
  }

  fill(fields) {
    if (this.metrics.includes(fields.get("metric"))) this.metric.value = fields.get("metric");
    const threshold = Number.parseFloat(fields.get("threshold"));
    this.chosenThreshold = Number.isFinite(threshold) ? threshold : null;
    this.lines.value = fields.get("list") ?? "";
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
    this.chosenThreshold = null; // metrics have different scales
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
    return this.chosenThreshold ?? DEFAULT_THRESHOLDS[this.metric.value];
  }

  async compare(signal) {
    const inputs = this.lines.value.split("\n").map((line) => line.trim()).filter(Boolean);
    if (inputs.length < 2) return false;
    const scores = await postMatrix({ inputs, metric: this.metric.value }, signal);
    if (signal.aborted) return false;
    this.sentences = inputs;
    this.scores = scores;
    this.range = range(scores);
    this.live.results.hidden = false; // before drawing, which needs the width
    this.setSlider();
    this.show();
    return true;
  }

  // The slider covers all similarities and the threshold, which a URL may set beyond them.
  setSlider() {
    const [low, high] = range([...this.pairScores(), this.threshold]);
    this.slider.min = low;
    this.slider.max = high;
    this.slider.value = this.threshold;
  }

  *pairScores() {
    const count = this.sentences.length;
    for (let i = 0; i < count; i += 1) {
      for (let j = i + 1; j < count; j += 1) yield this.scores[i * count + j];
    }
  }

  show() {
    find("#threshold-value").textContent = format(this.threshold);
    const groups = group(this.sentences.length, this.scores, this.threshold - ROUNDING_ERROR);
    this.duplicates = groups.filter((members) => members.length > 1);
    this.order = groups.flat();
    this.showDuplicates();
    this.showMatrix();
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
    const { order, scores, sentences } = this;
    const count = sentences.length;
    const [low, high] = this.range;
    const colour = sequential(low, high);
    const value = (i, j) => scores[order[i] * count + order[j]];
    const names = order.map((index) => sentences[index]);
    const labels = { rows: names, columns: names };
    this.map.show({ rows: count, columns: count, value, colour, labels, margin: 150 },
      `Similarity of ${count} sentences to each other; use the arrow keys to explore.`);
    this.map.details.textContent = "";
    showLegend(find("#list .legend"), colour, low, high);
  }

  describePair(i, j) {
    const [a, b] = [this.order[i], this.order[j]];
    const score = format(this.scores[a * this.sentences.length + b]);
    this.map.details.textContent = `${score}: “${this.sentences[a]}” and “${this.sentences[b]}”`;
  }

  copyUnique() {
    const dropped = new Set(this.duplicates.flatMap((members) => members.slice(1)));
    const unique = this.sentences.filter((_, index) => !dropped.has(index));
    copy(unique.join("\n"), `${unique.length} sentences copied.`);
  }
}

// Group indices: each ungrouped one takes all later ones that are similar to it, so that the first
// can represent its group. Larger groups come first.
function group(count, scores, threshold) {
  const grouped = new Set();
  const groups = [];
  for (let i = 0; i < count; i += 1) {
    if (grouped.has(i)) continue;
    const members = [i];
    for (let j = i + 1; j < count; j += 1) {
      if (!grouped.has(j) && scores[i * count + j] >= threshold) members.push(j);
    }
    members.forEach((index) => grouped.add(index));
    groups.push(members);
  }
  return groups.sort((x, y) => y.length - x.length);
}
